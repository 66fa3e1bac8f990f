//! The command line as clap reads it. What the values mean is decided where they are used.

use std::net::SocketAddr;
use std::path::PathBuf;

use batch_types::gates::Gates;
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};

use crate::controller::Controller;
use crate::parts::{Controllers, NodeKind};
use crate::running::JobFlags;

/// The Kubernetes Job API on one machine, in one small binary.
#[derive(Debug, Parser)]
#[command(name = "tally", version, disable_help_subcommand = true, after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    /// Log more: -v for changes, -vv for decisions, -vvv for payloads. RUST_LOG, if set, says it in more detail.
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_CODES: &str = "\
Exit codes:
  0    done; `up` was asked to stop and stopped
  1    could not start, or failed while running
  2    the command line was not understood or asks for something this version does not have
  130  stopped at once by a second Ctrl-C (143: by a second SIGTERM)";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the API server in the foreground until Ctrl-C or SIGTERM.
    Up(Box<Up>),
    /// Run Jobs of a Kubernetes cluster: those with `spec.managedBy: tally.dev/job-controller`, or all.
    Controller(Box<Controller>),
    /// Print the version of tally and of the Kubernetes it behaves as.
    Version(Version),
}

#[derive(Debug, Args)]
pub(crate) struct Up {
    /// Where everything is kept [default: tally/ in the user's data directory].
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Address to listen on; port 0 takes any free port.
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:6443")]
    pub(crate) listen: SocketAddr,
    /// Where to write the kubeconfig for clients [default: DATA/kubeconfig].
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig_out: Option<PathBuf>,
    /// What runs pods on this machine [default: the best that this version has].
    #[arg(long, value_name = "KIND")]
    pub(crate) node: Option<NodeKind>,
    /// Controllers to run: names separated by commas, `*` for all that this version has, `-name` to leave one out,
    /// `none`. Names: job, ttl, cronjob, gc, podgc, namespace, scheduler.
    #[arg(long, value_name = "LIST", default_value = "*", allow_hyphen_values = true)]
    pub(crate) controllers: Controllers,
    /// Switch feature gates, for example `JobManagedBy=false`. Names: JobManagedBy, JobPodReplacementPolicy,
    /// TTLAfterFinished.
    #[arg(long, value_name = "NAME=BOOL,…", default_value = "", hide_default_value = true)]
    pub(crate) feature_gates: Gates,
    #[command(flatten)]
    pub(crate) job: JobFlags,
}

#[derive(Debug, Args)]
pub(crate) struct Version {
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: VersionFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum VersionFormat {
    Text,
    Json,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn up_has_safe_defaults() {
        let Command::Up(up) = Arguments::parse_from(["tally", "up"]).command else { panic!("not `up`") };
        assert!(up.listen.ip().is_loopback());
        assert_eq!(up.feature_gates, Gates::DEFAULT);
        assert_eq!((up.node, up.controllers), (None, Controllers::default()));
    }

    #[test]
    fn a_list_may_start_with_a_removal() {
        let Command::Up(up) = Arguments::parse_from(["tally", "up", "--controllers", "-gc,-ttl"]).command else {
            panic!("not `up`")
        };
        assert_eq!(up.controllers, "-gc,-ttl".parse().unwrap());
    }
}
