//! Which parts run beside the API server: controllers and a node.

use std::fmt;
use std::str::FromStr;

use crate::node_flags::NodeFlags;

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

/// The parts to run.
#[derive(Debug, Clone)]
pub(crate) struct Parts {
    pub(crate) controllers: Vec<Controller>,
    pub(crate) node: NodeFlags,
}

impl Controllers {
    /// The controllers of the list, in the order of [`Controller::ALL`].
    pub(crate) fn chosen(&self) -> Vec<Controller> {
        let wanted = |controller: &Controller| {
            (self.all || self.named.contains(controller)) && !self.removed.contains(controller)
        };
        Controller::ALL.into_iter().filter(wanted).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(list: &str) -> String {
        match list.parse::<Controllers>() {
            Ok(controllers) => controllers.chosen().iter().map(|one| one.name()).collect::<Vec<_>>().join(" "),
            Err(error) => error,
        }
    }

    #[test]
    fn lists_choose_among_all() {
        for (list, expected) in [
            ("*", "job ttl cronjob gc podgc namespace scheduler"),
            ("job", "job"),
            (" ttl , job ", "job ttl"),
            ("*,-job,-gc,-podgc", "ttl cronjob namespace scheduler"),
            ("-job,-gc,-podgc", "ttl cronjob namespace scheduler"),
            ("job,-job", ""),
            ("none", ""),
        ] {
            assert_eq!(chosen(list), expected, "{list}");
        }
    }

    #[test]
    fn what_is_named_must_exist() {
        for (list, refusal) in [
            ("none,job", "`none` stands alone"),
            ("", "say `none` to run no controllers"),
            ("jobs", "`jobs` is no controller (known: job, ttl, cronjob, gc, podgc, namespace, scheduler)"),
            ("-", "`` is no controller (known: job, ttl, cronjob, gc, podgc, namespace, scheduler)"),
        ] {
            assert_eq!(chosen(list), refusal, "{list}");
        }
    }
}
