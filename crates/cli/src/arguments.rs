//! The command line as clap reads it. What the values mean is decided where they are used.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process;

use clap::{ArgAction, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::bench::Bench;
use crate::controller::Controller;
use crate::down::Down;
use crate::failure::Exit;
use crate::history::History;
use crate::logs::Logs;
use crate::output::{Format, tell};
use crate::rerun::Rerun;
use crate::run::Run;
use crate::shell::{Completion, Man};
use crate::status::Status;
use crate::up::Up;
use crate::wait::Wait;
use crate::why::Why;

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
  0    done: all Jobs complete; `up` or `controller` was asked to stop and stopped
  1    a Job failed; or the command could not start, or failed while running
  2    the command line or a manifest was not understood, or names what does not exist
  3    no tally runs here: `status`, and commands that are sent to one with `--data`
  124  `wait`, `down`, `bench`: the time ran out
  129  terminal closed (130: Ctrl-C, 143: SIGTERM); `run` ends its pods first, unless asked twice
  141  nobody reads the output any more";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run Jobs to their end, on a control plane of their own: from manifests, or around a command.
    Run(Box<Run>),
    /// Run the API server and everything beside it, until Ctrl-C or SIGTERM.
    Up(Box<Up>),
    /// End the tally that runs on a data directory.
    Down(Down),
    /// Say whether a tally runs on a data directory, and what it has to do.
    Status(Status),
    /// Say what a Job, CronJob or pod is waiting for, and what one can do about it.
    Why(Why),
    /// Wait for Jobs to finish; the exit code says how they did.
    Wait(Wait),
    /// Show the logs of a Job's pods.
    Logs(Logs),
    /// Show how containers ended, also when their pods and Jobs are gone.
    History(History),
    /// Run a Job again, or only what failed of it.
    Rerun(Rerun),
    /// Put a load of Jobs on a cluster and tell how it copes.
    Bench(Box<Bench>),
    /// Run Jobs of a Kubernetes cluster: those with `spec.managedBy: tally.dev/job-controller`, or all.
    Controller(Box<Controller>),
    /// Print the version of tally and of the Kubernetes it behaves as.
    Version(Version),
    /// Print a script that completes this command's words in a shell.
    Completion(Completion),
    /// Write the manual pages.
    Man(Man),
}

#[derive(Debug, Args)]
pub(crate) struct Version {
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: Format,
}

/// The name under which kubectl finds this program as a plugin.
const PLUGIN: &str = "kubectl-tally";

impl Arguments {
    /// Reads the command line, or ends the process with what is wrong about it.
    pub(crate) fn read() -> Self {
        let words: Vec<OsString> = std::env::args_os().collect();
        let program = words.first().cloned().unwrap_or_default();
        let command = command_for(&program);
        let matches = command.clone().try_get_matches_from(&words);
        match matches.and_then(|matches| Self::from_arg_matches(&matches)) {
            Ok(arguments) => arguments,
            // `--help` and `--version` are errors to clap, and print to stdout.
            Err(error) if !error.use_stderr() => error.exit(),
            Err(error) => {
                tell(complaint(&error.render().to_string(), &command, &words).trim_end());
                process::exit(Exit::Usage as i32)
            }
        }
    }
}

/// What clap says about a wrong command line, in the form of all other failures.
fn complaint(text: &str, command: &clap::Command, words: &[OsString]) -> String {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let subcommand = words
        .iter()
        .skip(1)
        .filter_map(|word| word.to_str())
        .find(|word| command.get_subcommands().any(|subcommand| subcommand.get_name() == *word));
    let called = subcommand.map_or_else(|| name.to_owned(), |subcommand| format!("{name} {subcommand}"));
    // Without any words clap prints the whole help, which needs no frame.
    let Some(error) = text.strip_prefix("error: ") else { return text.to_owned() };
    // Below are tips, the usage, and where to read more.
    let (error, below) = error.split_once("\n\n").unwrap_or((error, ""));
    // What was meant instead is worth passing on; how to pass `-1` as a word is not.
    let similar =
        below.lines().find_map(|line| line.trim().strip_prefix("tip: ")).filter(|tip| tip.contains("similar"));
    let similar = similar.map(|tip| format!("{}; ", tip.replace('\'', "`"))).unwrap_or_default();
    format!("error: {}\n\nhint: {similar}`{called} --help` lists what can be said\n", error.trim_end())
}

/// The command as people call it: `tally`, or `kubectl tally` when it is called as kubectl's plugin.
pub(crate) fn command_for(program: &OsStr) -> clap::Command {
    let command = Arguments::command();
    let is_plugin = Path::new(program).file_stem() == Some(OsStr::new(PLUGIN));
    if is_plugin { command.name(PLUGIN).bin_name("kubectl tally").display_name(PLUGIN) } else { command }
}

#[cfg(test)]
mod tests {
    use batch_types::gates::Gates;

    use super::*;
    use crate::node_flags::NodeKind;
    use crate::parts::Controllers;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_exit_code_is_told() {
        use Exit::{BrokenPipe, Failed, HungUp, Interrupted, NotRunning, Terminated, TimedOut, Usage};
        for exit in [Failed, Usage, NotRunning, TimedOut, HungUp, Interrupted, BrokenPipe, Terminated] {
            let code = (exit as u8).to_string();
            assert!(EXIT_CODES.split(|char: char| !char.is_ascii_digit()).any(|word| word == code), "{exit:?}");
        }
    }

    #[test]
    fn a_benchmark_has_a_namespace_of_its_own() {
        let mut command = Arguments::command();
        let mut help = |name: &str| command.find_subcommand_mut(name).unwrap().render_help().to_string();
        assert!(help("bench").contains("A namespace that exists, for the Jobs [default: a new one]"));
        assert!(help("wait").contains("The namespace [default: the context's]"));
    }

    #[test]
    fn up_has_safe_defaults() {
        let Command::Up(up) = Arguments::parse_from(["tally", "up"]).command else { panic!("not `up`") };
        assert!(up.listen.ip().is_loopback());
        assert_eq!(up.feature_gates, Gates::DEFAULT);
        assert_eq!((up.node.node, up.controllers), (NodeKind::Process, Controllers::default()));
    }

    #[test]
    fn a_list_may_start_with_a_removal() {
        let Command::Up(up) = Arguments::parse_from(["tally", "up", "--controllers", "-gc,-ttl"]).command else {
            panic!("not `up`")
        };
        assert_eq!(up.controllers, "-gc,-ttl".parse().unwrap());
    }

    #[test]
    fn as_a_plugin_the_command_has_kubectls_name() {
        for (program, name) in
            [("/usr/bin/tally", "Usage: tally"), ("kubectl-tally", "Usage: kubectl tally"), ("", "Usage: tally")]
        {
            let mut command = command_for(OsStr::new(program));
            assert!(command.render_usage().to_string().starts_with(name), "{}", command.render_usage());
        }
    }
}
