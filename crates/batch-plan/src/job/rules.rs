//! What sorting pods needs to know of their Job, read once per change of the Job instead of once per pod.

use std::collections::BTreeMap;

use batch_types::constants::value;
use batch_types::gates::Gates;
use batch_types::job::is_indexed;
use batch_types::selector::Selector;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobSpec};

use super::failure_policy::FailurePolicy;
use super::names::PodNames;
use super::{PodView, Uid};
use teeth::{Mutation, is};

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rules {
    pub(crate) indexed: bool,
    /// Indexes from here on do not exist. Anything goes for a Job that has no indexes.
    pub(crate) index_bound: u32,
    /// JC-701: terminating pods are replaced, and judged, only when they have ended.
    pub(crate) replace_only_failed: bool,
    /// `backoffLimitPerIndex` of an Indexed Job.
    pub(crate) index_limit: Option<u32>,
    pub(crate) policy: Option<FailurePolicy>,
    pub(crate) job_name: String,
    job_created: Option<Timestamp>,
    selector: Option<Selector>,
}

impl Rules {
    pub(crate) fn new(job: &Job, gates: Gates) -> Self {
        let empty = JobSpec::default();
        let spec = job.spec.as_ref().unwrap_or(&empty);
        let indexed = is_indexed(spec);
        let only_failed =
            gates.job_pod_replacement_policy && spec.pod_replacement_policy.as_deref() == Some(value::REPLACE_FAILED);
        Self {
            indexed,
            index_bound: if indexed { natural(spec.completions.unwrap_or(0)) } else { u32::MAX },
            replace_only_failed: only_failed || spec.pod_failure_policy.is_some() && !is(Mutation::B14),
            index_limit: spec.backoff_limit_per_index.filter(|_| indexed).map(natural),
            policy: spec.pod_failure_policy.as_ref().map(FailurePolicy::new),
            job_name: job.metadata.name.clone().unwrap_or_default(),
            job_created: job.metadata.creation_timestamp.as_ref().map(|created| created.0),
            selector: spec.selector.as_ref().and_then(|selector| Selector::from_label_selector(Some(selector))),
        }
    }

    /// Whether a pod that the Job controls is still one of its pods (JC-602). A Job without a usable selector, which the
    /// API does not let in, keeps what it has.
    pub(crate) fn keeps(&self, labels: &BTreeMap<String, String>) -> bool {
        self.selector.as_ref().is_none_or(|selector| selector.matches(labels))
    }

    /// Whether a pod without controller becomes one of its pods (JC-604).
    pub(crate) fn adopts(&self, labels: &BTreeMap<String, String>) -> bool {
        self.selector.as_ref().is_some_and(|selector| selector.matches(labels))
    }

    /// Whether a pod without controller has been made for the Job and dealt with. It holds the tracking finalizer from its
    /// first moment until it is on record, so one that has ended without it was counted, or let go for good (JC-603);
    /// only its owner was taken away since. Upstream counts it again when it adopts it (INV-1).
    pub(crate) fn has_settled(&self, pod: &PodView) -> bool {
        let names = PodNames::new(&self.job_name, &Uid::new(""));
        let is_own = pod.generate_name == names.prefix(pod.index.filter(|_| self.indexed));
        // Those of an earlier Job of its name were not.
        let is_own = is_own && pod.created >= self.job_created;
        is_own && pod.phase.is_terminal() && !pod.finalizer && !is(Mutation::I03)
    }

    /// JC-702, "index valid".
    pub(crate) fn index_valid(&self, index: Option<u32>) -> bool {
        !self.indexed || index.is_some_and(|index| index < self.index_bound)
    }
}

/// A count that the API keeps from being negative.
pub(crate) fn natural(count: i32) -> u32 {
    u32::try_from(count).unwrap_or(0)
}
