//! Everything one answer may look at.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::Value;

use crate::object::Object;

/// The kinds of objects that can be asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Job,
    CronJob,
    Pod,
}

impl Kind {
    /// As the API writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Job => "Job",
            Self::CronJob => "CronJob",
            Self::Pod => "Pod",
        }
    }

    /// As people type it before the slash.
    pub fn argument(self) -> &'static str {
        match self {
            Self::Job => "job",
            Self::CronJob => "cronjob",
            Self::Pod => "pod",
        }
    }
}

/// The object in question and what surrounds it, at one moment. Lists that could not be read are `None`: nothing may be
/// concluded from their emptiness.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub kind: Kind,
    pub object: Value,
    /// The pods of a Job.
    pub pods: Option<Vec<Value>>,
    /// The Jobs of a CronJob.
    pub jobs: Option<Vec<Value>>,
    /// Events about the object and its pods.
    pub events: Option<Vec<Value>>,
    pub nodes: Option<Vec<Value>>,
    /// Leases by which controllers say that they are alive.
    pub leases: Option<Vec<Value>>,
    /// ResourceQuotas of the namespace.
    pub quotas: Option<Vec<Value>>,
    /// What could not be looked at and why, in words.
    pub unseen: Vec<String>,
    pub now: Timestamp,
    /// The zone of schedules that name none: that of the process that runs them.
    pub zone: TimeZone,
}

impl Snapshot {
    /// Only the object, nothing around it seen.
    pub fn new(kind: Kind, object: Value, now: Timestamp) -> Self {
        Self {
            kind,
            object,
            pods: None,
            jobs: None,
            events: None,
            nodes: None,
            leases: None,
            quotas: None,
            unseen: Vec::new(),
            now,
            zone: TimeZone::UTC,
        }
    }

    pub(crate) fn subject(&self) -> Object<'_> {
        Object(&self.object)
    }
}

/// The objects of a list; none of one that was not seen.
pub(crate) fn objects(list: Option<&Vec<Value>>) -> impl Iterator<Item = Object<'_>> {
    list.into_iter().flatten().map(Object)
}
