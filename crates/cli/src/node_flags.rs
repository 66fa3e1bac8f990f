//! What runs pods, as the command line says it: `--node` and how simulated pods behave.

use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use node::{Behaviour, SimulatedOptions};

/// Simulated nodes: each is an object, a Lease and a heartbeat.
const SIMULATED_MAX: u16 = 1000;

/// Flags of the node beside the embedded server.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Node")]
pub(crate) struct NodeFlags {
    /// What runs pods: `process` runs containers as processes of this machine; `simulated`, or `simulated=COUNT` for
    /// several nodes, only pretends to; with `none` pods stay pending.
    #[arg(long, value_name = "KIND", default_value = "process")]
    pub(crate) node: NodeKind,
    /// How long simulated pods run, for example `1.5s`, or `forever`. An annotation `tally.dev/simulate-duration` on a
    /// pod says it for that pod; the same goes for the other two.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = simulated_duration)]
    simulate_duration: SimulatedDuration,
    /// The exit code of simulated pods that fail; without a failure share, of all.
    #[arg(long, value_name = "CODE", value_parser = clap::value_parser!(i32).range(0..=255))]
    simulate_exit_code: Option<i32>,
    /// Which share of simulated pods fails, from 0 to 1.
    #[arg(long, value_name = "SHARE", value_parser = share)]
    simulate_failure_share: Option<f64>,
}

/// What runs pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeKind {
    /// Containers are processes of this machine.
    Process,
    /// So many nodes that pretend to run pods.
    Simulated { count: u16 },
    /// Pods stay pending.
    None,
}

impl FromStr for NodeKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.strip_prefix("simulated=")) {
            ("process", _) => Ok(Self::Process),
            ("simulated", _) => Ok(Self::Simulated { count: 1 }),
            ("none", _) => Ok(Self::None),
            (_, Some(count)) => match count.parse() {
                Ok(count @ 1..=SIMULATED_MAX) => Ok(Self::Simulated { count }),
                _ => Err(format!("say how many simulated nodes, from 1 to {SIMULATED_MAX}")),
            },
            _ => Err("say `process`, `simulated`, `simulated=COUNT` or `none`".to_owned()),
        }
    }
}

impl NodeFlags {
    /// The nodes that pretend to run pods.
    pub(crate) fn simulated(&self, count: u16) -> SimulatedOptions {
        SimulatedOptions { behaviour: self.behaviour(), ..SimulatedOptions::new(count.into()) }
    }

    fn behaviour(&self) -> Behaviour {
        let SimulatedDuration(duration) = self.simulate_duration;
        Behaviour { duration, ..Behaviour::default() }.failing(self.simulate_exit_code, self.simulate_failure_share)
    }
}

/// `None`: until the pod is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SimulatedDuration(Option<Duration>);

fn simulated_duration(text: &str) -> Result<SimulatedDuration, String> {
    let wrong = || format!("`{text}` is no duration: say `forever`, or a number and a unit, as in `1.5s`, `200ms`");
    Behaviour::parse_duration(text).map(SimulatedDuration).ok_or_else(wrong)
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "say a number from 0 to 1".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Only {
        #[command(flatten)]
        flags: NodeFlags,
    }

    fn flags(words: &[&str]) -> Result<NodeFlags, String> {
        let words = ["x"].iter().chain(words);
        Only::try_parse_from(words).map(|only| only.flags).map_err(|error| error.to_string())
    }

    #[test]
    fn nodes_have_a_kind_and_simulated_ones_a_count() {
        for (text, kind) in [
            ("process", NodeKind::Process),
            ("none", NodeKind::None),
            ("simulated", NodeKind::Simulated { count: 1 }),
            ("simulated=20", NodeKind::Simulated { count: 20 }),
        ] {
            assert_eq!(flags(&["--node", text]).unwrap().node, kind);
        }
        for wrong in ["simulated=0", "simulated=1001", "simulated=-1", "simulated=", "cloud", ""] {
            assert!(flags(&["--node", wrong]).is_err(), "{wrong}");
        }
        assert_eq!(flags(&[]).unwrap().node, NodeKind::Process);
    }

    #[test]
    fn simulated_pods_behave_as_flags_say() {
        let behaviour = |words: &[&str]| flags(words).map(|flags| flags.behaviour());
        assert_eq!(behaviour(&[]), Ok(Behaviour::default()));
        let some = behaviour(&["--simulate-duration", "200ms", "--simulate-failure-share", "0.25"]).unwrap();
        assert_eq!((some.duration, some.exit_code, some.failure_share), (Some(Duration::from_millis(200)), 1, 0.25));
        let all = behaviour(&["--simulate-duration", "forever", "--simulate-exit-code", "42"]).unwrap();
        assert_eq!((all.duration, all.exit_code, all.failure_share), (None, 42, 1.0));
        for wrong in
            [["--simulate-duration", "soon"], ["--simulate-failure-share", "2"], ["--simulate-exit-code", "256"]]
        {
            assert!(behaviour(&wrong).is_err(), "{wrong:?}");
        }
    }
}
