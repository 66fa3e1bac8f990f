//! Which parts `tally up` runs beside the API server: controllers and a node.
//!
//! "All" means all that this version has; a part that is asked for by name and missing is refused, so that nobody waits
//! for work that nothing does.

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;

/// A controller by the name `--controllers` knows it by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Controller {
    Job,
    Ttl,
    CronJob,
    Gc,
    PodGc,
    Namespace,
    Scheduler,
}

impl Controller {
    pub(crate) const ALL: [Self; 7] =
        [Self::Job, Self::Ttl, Self::CronJob, Self::Gc, Self::PodGc, Self::Namespace, Self::Scheduler];

    fn name(self) -> &'static str {
        match self {
            Self::Job => "job",
            Self::Ttl => "ttl",
            Self::CronJob => "cronjob",
            Self::Gc => "gc",
            Self::PodGc => "podgc",
            Self::Namespace => "namespace",
            Self::Scheduler => "scheduler",
        }
    }
}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Controller {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|controller| controller.name() == text).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            format!("`{text}` is no controller (known: {known})")
        })
    }
}

/// What runs pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum NodeKind {
    /// Containers are processes of this machine.
    Process,
    /// Pods succeed without running anything.
    Simulated,
    /// Pods stay pending.
    None,
}

/// The value of `--controllers`, as in kube-controller-manager: `*`, names, `-names`, or `none`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Controllers {
    all: bool,
    named: Vec<Controller>,
    removed: Vec<Controller>,
}

impl Default for Controllers {
    fn default() -> Self {
        Self { all: true, named: Vec::new(), removed: Vec::new() }
    }
}

impl FromStr for Controllers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut list = Self { all: false, named: Vec::new(), removed: Vec::new() };
        let elements: Vec<&str> = text.split(',').map(str::trim).filter(|element| !element.is_empty()).collect();
        if elements.contains(&"none") {
            return if elements.len() == 1 { Ok(list) } else { Err("`none` stands alone".to_owned()) };
        }
        for element in &elements {
            match element.strip_prefix('-') {
                _ if *element == "*" => list.all = true,
                Some(name) => list.removed.push(name.parse()?),
                None => list.named.push(element.parse()?),
            }
        }
        if elements.is_empty() {
            return Err("say `none` to run no controllers".to_owned());
        }
        // Only removals: they are removed from all. kube-controller-manager would run nothing, which nobody means.
        list.all |= list.named.is_empty();
        Ok(list)
    }
}

/// What this version of tally has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Available {
    pub(crate) controllers: &'static [Controller],
    /// Best first.
    pub(crate) nodes: &'static [NodeKind],
}

/// The parts to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parts {
    pub(crate) controllers: Vec<Controller>,
    pub(crate) node: NodeKind,
}

impl Available {
    /// The parts that the flags ask for, or the first one that was named and does not exist.
    pub(crate) fn choose(&self, controllers: &Controllers, node: Option<NodeKind>) -> Result<Parts, Missing> {
        let exists = |controller: &Controller| self.controllers.contains(controller);
        if let Some(missing) = controllers.named.iter().find(|named| !exists(named)) {
            return Err(Missing::Controller(*missing));
        }
        let wanted = |controller: &Controller| {
            (controllers.all || controllers.named.contains(controller)) && !controllers.removed.contains(controller)
        };
        let node = match node {
            None => self.nodes.first().copied().unwrap_or(NodeKind::None),
            Some(node) if node == NodeKind::None || self.nodes.contains(&node) => node,
            Some(node) => return Err(Missing::Node(node)),
        };
        Ok(Parts { controllers: self.controllers.iter().copied().filter(wanted).collect(), node })
    }
}

/// A part that was asked for by name and that this version does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    Controller(Controller),
    Node(NodeKind),
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Controller(controller) => write!(f, "this version of tally has no controller `{controller}` yet"),
            Self::Node(node) => {
                let node = node.to_possible_value().expect("no variant is skipped");
                write!(f, "this version of tally has no node `{}` yet", node.get_name())
            }
        }
    }
}

impl std::error::Error for Missing {}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: Available = Available {
        controllers: &[Controller::Job, Controller::Ttl],
        nodes: &[NodeKind::Process, NodeKind::Simulated],
    };

    fn choose(list: &str) -> String {
        let controllers = match list.parse() {
            Ok(controllers) => controllers,
            Err(error) => return error,
        };
        match SOME.choose(&controllers, None) {
            Ok(parts) => parts.controllers.iter().map(|one| one.name()).collect::<Vec<_>>().join(" "),
            Err(missing) => missing.to_string(),
        }
    }

    #[test]
    fn lists_choose_among_what_exists() {
        for (list, chosen) in [
            ("*", "job ttl"),
            ("job", "job"),
            (" job , ttl ", "job ttl"),
            ("*,-job", "ttl"),
            ("-job", "ttl"),
            ("-gc", "job ttl"),
            ("job,-job", ""),
            ("none", ""),
        ] {
            assert_eq!(choose(list), chosen, "{list}");
        }
    }

    #[test]
    fn what_is_named_must_exist() {
        for (list, refusal) in [
            ("*,gc", "this version of tally has no controller `gc` yet"),
            ("none,job", "`none` stands alone"),
            ("", "say `none` to run no controllers"),
            ("jobs", "`jobs` is no controller (known: job, ttl, cronjob, gc, podgc, namespace, scheduler)"),
            ("-", "`` is no controller (known: job, ttl, cronjob, gc, podgc, namespace, scheduler)"),
        ] {
            assert_eq!(choose(list), refusal, "{list}");
        }
    }

    #[test]
    fn the_default_node_is_the_best_that_exists() {
        let nothing = Available { controllers: &[], nodes: &[] };
        let node = |available: &Available, node| available.choose(&Controllers::default(), node).map(|it| it.node);
        assert_eq!(node(&SOME, None), Ok(NodeKind::Process));
        assert_eq!(node(&SOME, Some(NodeKind::None)), Ok(NodeKind::None));
        assert_eq!(node(&nothing, None), Ok(NodeKind::None));
        assert_eq!(node(&nothing, Some(NodeKind::None)), Ok(NodeKind::None));
        assert_eq!(node(&nothing, Some(NodeKind::Process)), Err(Missing::Node(NodeKind::Process)));
        let message = Missing::Node(NodeKind::Simulated).to_string();
        assert_eq!(message, "this version of tally has no node `simulated` yet");
    }
}
