//! What is asked about: `job/NAME`, `cronjob/NAME`, `pod/NAME`, or a name of any kind.

use std::fmt;
use std::str::FromStr;

use ::why::Kind;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Subject {
    kind: Option<Kind>,
    pub(crate) name: String,
}

impl Subject {
    /// Where to look, in this order.
    pub(crate) fn kinds(&self) -> &[Kind] {
        match self.kind {
            Some(Kind::Job) => &[Kind::Job],
            Some(Kind::CronJob) => &[Kind::CronJob],
            Some(Kind::Pod) => &[Kind::Pod],
            None => &[Kind::Job, Kind::CronJob, Kind::Pod],
        }
    }

    /// The same kind with another name.
    pub(crate) fn renamed(&self, name: &str) -> Self {
        Self { kind: self.kind, name: name.to_owned() }
    }

    /// As `tally history` takes it; CronJobs themselves have no runs.
    pub(crate) fn history_argument(&self) -> String {
        let kind = if self.kind == Some(Kind::Pod) { "pod" } else { "job" };
        format!("{kind}/{}", self.name)
    }
}

impl FromStr for Subject {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (kind, name) = match text.split_once('/') {
            None => (None, text),
            Some((kind, name)) => {
                let kind = match kind.to_ascii_lowercase().as_str() {
                    "job" | "jobs" | "jobs.batch" | "job.batch" => Kind::Job,
                    "cronjob" | "cronjobs" | "cj" | "cronjobs.batch" | "cronjob.batch" => Kind::CronJob,
                    "pod" | "pods" | "po" => Kind::Pod,
                    _ => return Err("the kinds are job, cronjob and pod".to_owned()),
                };
                (Some(kind), name)
            }
        };
        // The name becomes a part of a path.
        if !batch_types::names::dns_subdomain(name).is_empty() {
            return Err(format!("`{name}` cannot be the name of an object"));
        }
        Ok(Self { kind, name: name.to_owned() })
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Some(kind) => write!(f, "{}/{}", kind.argument(), self.name),
            None => write!(f, "{}", self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_kubectls_names() {
        for (text, kinds, shown) in [
            ("job/pi", 1, "job/pi"),
            ("jobs.batch/pi", 1, "job/pi"),
            ("cj/nightly", 1, "cronjob/nightly"),
            ("po/pi-x", 1, "pod/pi-x"),
            ("pi", 3, "pi"),
        ] {
            let subject: Subject = text.parse().unwrap();
            assert_eq!((subject.kinds().len(), subject.to_string().as_str()), (kinds, shown));
        }
        for wrong in ["", "job/", "node/n1", "job/a/b", "../x", "Pi"] {
            assert!(wrong.parse::<Subject>().is_err(), "{wrong}");
        }
    }
}
