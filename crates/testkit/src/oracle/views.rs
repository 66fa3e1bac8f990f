//! Pods, Jobs and CronJobs as the oracle reads them from the store's log: fields of the API, and nothing that a
//! controller's code has decided about them.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Deserializer};

pub(super) const TRACKING: &str = "batch.kubernetes.io/job-tracking";
const INDEX: &str = "batch.kubernetes.io/job-completion-index";
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// How a pod is marked that is removed because there are too many.
const SURPLUS: &str = "tally.dev/surplus";
const BUILT_IN: &str = "kubernetes.io/job-controller";

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Metadata {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) finalizers: Vec<String>,
    pub(super) owner_references: Vec<Owner>,
    pub(super) creation_timestamp: Option<Timestamp>,
    pub(super) deletion_timestamp: Option<Timestamp>,
    pub(super) deletion_grace_period_seconds: Option<i64>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Owner {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) uid: String,
    pub(super) controller: bool,
}

impl Metadata {
    pub(super) fn controller(&self) -> Option<&Owner> {
        self.owner_references.iter().find(|owner| owner.controller)
    }

    pub(super) fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }
}

// ---- pods

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Pod {
    pub(super) metadata: Metadata,
    pub(super) status: PodStatus,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodStatus {
    pub(super) phase: String,
    pub(super) conditions: Vec<Condition>,
    pub(super) init_container_statuses: Vec<Container>,
    pub(super) container_statuses: Vec<Container>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Container {
    pub(super) name: String,
    pub(super) restart_count: u64,
    pub(super) state: State,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct State {
    pub(super) terminated: Option<Terminated>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Terminated {
    pub(super) exit_code: i32,
    pub(super) finished_at: Option<Timestamp>,
}

/// On which side something counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    Succeeded,
    Failed,
}

impl Pod {
    /// The Job that controls it, by uid.
    pub(super) fn job(&self) -> Option<&str> {
        let owner = self.metadata.controller()?;
        (owner.kind == "Job" && owner.api_version.starts_with("batch/")).then_some(&*owner.uid)
    }

    pub(super) fn is_tracked(&self) -> bool {
        self.metadata.finalizers.iter().any(|finalizer| finalizer == TRACKING)
    }

    pub(super) fn is_surplus(&self) -> bool {
        self.metadata.annotations.contains_key(SURPLUS)
    }

    pub(super) fn index(&self) -> Option<u32> {
        self.metadata.annotations.get(INDEX)?.parse().ok()
    }

    /// How it ended; nothing while it is live.
    pub(super) fn ended(&self) -> Option<Side> {
        match &*self.status.phase {
            "Succeeded" => Some(Side::Succeeded),
            "Failed" => Some(Side::Failed),
            _ => None,
        }
    }

    /// Neither ended nor going.
    pub(super) fn is_active(&self) -> bool {
        self.ended().is_none() && !self.metadata.is_deleting()
    }

    pub(super) fn is_ready(&self) -> bool {
        self.status.conditions.iter().any(|one| one.kind == "Ready" && one.status == "True")
    }

    pub(super) fn finished_at(&self) -> Option<Timestamp> {
        let ended = |container: &Container| container.state.terminated.as_ref().and_then(|end| end.finished_at);
        self.status.container_statuses.iter().filter_map(ended).max()
    }

    /// Restarts in place, as far as they count against the back-off limit: those of a pod that has ended do not (JC-903).
    pub(super) fn restarts(&self) -> u64 {
        if !matches!(&*self.status.phase, "Pending" | "Running") {
            return 0;
        }
        let all = self.status.init_container_statuses.iter().chain(&self.status.container_statuses);
        all.map(|container| container.restart_count).sum()
    }
}

// ---- Jobs

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Job {
    pub(super) metadata: Metadata,
    pub(super) spec: JobSpec,
    pub(super) status: JobStatus,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct JobSpec {
    pub(super) parallelism: Option<u64>,
    pub(super) completions: Option<u64>,
    pub(super) completion_mode: Option<String>,
    pub(super) backoff_limit: Option<u64>,
    pub(super) backoff_limit_per_index: Option<u64>,
    pub(super) max_failed_indexes: Option<u64>,
    pub(super) active_deadline_seconds: Option<i64>,
    pub(super) ttl_seconds_after_finished: Option<i64>,
    pub(super) suspend: bool,
    pub(super) managed_by: Option<String>,
    pub(super) pod_replacement_policy: Option<String>,
    pub(super) pod_failure_policy: Option<FailurePolicy>,
    pub(super) success_policy: Option<SuccessPolicy>,
    pub(super) selector: Selector,
    pub(super) template: Template,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Selector {
    pub(super) match_labels: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Template {
    pub(super) spec: TemplateSpec,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct TemplateSpec {
    pub(super) restart_policy: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct FailurePolicy {
    pub(super) rules: Vec<FailureRule>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct FailureRule {
    pub(super) action: String,
    pub(super) on_exit_codes: Option<ExitCodes>,
    #[serde(deserialize_with = "list")]
    pub(super) on_pod_conditions: Vec<Condition>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ExitCodes {
    pub(super) container_name: Option<String>,
    pub(super) operator: String,
    pub(super) values: Vec<i32>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct SuccessPolicy {
    pub(super) rules: Vec<SuccessRule>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SuccessRule {
    pub(super) succeeded_indexes: Option<String>,
    pub(super) succeeded_count: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct JobStatus {
    pub(super) conditions: Vec<Condition>,
    pub(super) start_time: Option<Timestamp>,
    pub(super) completion_time: Option<Timestamp>,
    pub(super) active: u64,
    pub(super) ready: Option<u64>,
    pub(super) terminating: Option<u64>,
    pub(super) succeeded: u64,
    pub(super) failed: u64,
    pub(super) completed_indexes: String,
    pub(super) failed_indexes: Option<String>,
    pub(super) uncounted_terminated_pods: Uncounted,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Uncounted {
    pub(super) succeeded: Vec<String>,
    pub(super) failed: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Condition {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) status: String,
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) last_transition_time: Option<Timestamp>,
}

impl Uncounted {
    pub(super) fn of(&self, side: Side) -> &[String] {
        match side {
            Side::Succeeded => &self.succeeded,
            Side::Failed => &self.failed,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.succeeded.is_empty() && self.failed.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.succeeded.len() + self.failed.len()
    }
}

impl JobStatus {
    /// The condition of this type, if it is true.
    pub(super) fn holds(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|one| one.kind == kind && one.status == "True")
    }

    /// The interim condition, if there is one.
    pub(super) fn verdict(&self) -> Option<&Condition> {
        self.holds("FailureTarget").or_else(|| self.holds("SuccessCriteriaMet"))
    }

    pub(super) fn finished(&self) -> Option<&Condition> {
        self.holds("Complete").or_else(|| self.holds("Failed"))
    }
}

impl Job {
    pub(super) fn is_indexed(&self) -> bool {
        self.spec.completion_mode.as_deref() == Some("Indexed")
    }

    pub(super) fn is_foreign(&self) -> bool {
        self.spec.managed_by.as_deref().is_some_and(|name| name != BUILT_IN)
    }

    pub(super) fn parallelism(&self) -> u64 {
        self.spec.parallelism.unwrap_or(1)
    }

    /// Pods are replaced only when they have ended (KEP-3939).
    pub(super) fn replaces_only_failed(&self) -> bool {
        match self.spec.pod_replacement_policy.as_deref() {
            Some(policy) => policy == "Failed",
            None => self.spec.pod_failure_policy.is_some(),
        }
    }

    pub(super) fn is_valid_index(&self, index: Option<u32>) -> bool {
        !self.is_indexed() || index.is_some_and(|index| u64::from(index) < self.spec.completions.unwrap_or(0))
    }

    /// Whether a pod has the labels of this Job's pods.
    pub(super) fn selects(&self, pod: &Pod) -> bool {
        self.spec.selector.match_labels.iter().all(|(key, value)| pod.metadata.labels.get(key) == Some(value))
    }

    pub(super) fn completed(&self) -> BTreeSet<u32> {
        indexes(&self.status.completed_indexes).unwrap_or_default()
    }

    pub(super) fn failed_indexes(&self) -> BTreeSet<u32> {
        self.status.failed_indexes.as_deref().and_then(indexes).unwrap_or_default()
    }

    pub(super) fn scheduled(&self) -> Option<&str> {
        self.metadata.annotations.get(SCHEDULED).map(String::as_str)
    }

    pub(super) fn cron_job(&self) -> Option<&str> {
        self.metadata.controller().filter(|owner| owner.kind == "CronJob").map(|owner| &*owner.uid)
    }

    /// What the failure policy says about a pod that has failed.
    pub(super) fn policy_action(&self, pod: &Pod) -> Option<&str> {
        if pod.ended() != Some(Side::Failed) {
            return None;
        }
        self.rule_for(pod)
    }

    /// What the failure policy says of a pod as it is, whether it has ended or not.
    pub(super) fn rule_for(&self, pod: &Pod) -> Option<&str> {
        let policy = self.spec.pod_failure_policy.as_ref()?;
        policy.rules.iter().find(|rule| rule.matches(pod)).map(|rule| &*rule.action)
    }
}

impl FailureRule {
    fn matches(&self, pod: &Pod) -> bool {
        if let Some(codes) = &self.on_exit_codes {
            let of = |container: &&Container| codes.container_name.as_ref().is_none_or(|name| *name == container.name);
            return pod.status.container_statuses.iter().filter(of).any(|container| {
                let code = container.state.terminated.as_ref().map_or(0, |end| end.exit_code);
                code != 0 && codes.values.contains(&code) == (codes.operator == "In")
            });
        }
        self.on_pod_conditions.iter().any(|wanted| {
            let status = if wanted.status.is_empty() { "True" } else { &wanted.status };
            pod.status.conditions.iter().any(|found| found.kind == wanted.kind && found.status == status)
        })
    }
}

/// Reads `1,3-5`. Nothing if it is not in the one form that the API allows: ascending, and runs of more than two joined.
pub(super) fn indexes(text: &str) -> Option<BTreeSet<u32>> {
    let mut found = BTreeSet::new();
    let mut last: Option<u32> = None;
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let (first, end) = match part.split_once('-') {
            Some((first, end)) => (first.parse::<u32>().ok()?, end.parse::<u32>().ok()?),
            None => (part.parse::<u32>().ok()?, part.parse::<u32>().ok()?),
        };
        if first > end || last.is_some_and(|last| first <= last) || (part.contains('-') && end < first + 2) {
            return None;
        }
        found.extend(first..=end);
        last = Some(end);
    }
    Some(found)
}

// ---- CronJobs

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct CronJob {
    pub(super) metadata: Metadata,
    pub(super) spec: CronJobSpec,
    pub(super) status: CronJobStatus,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct CronJobSpec {
    pub(super) concurrency_policy: String,
    pub(super) successful_jobs_history_limit: Option<usize>,
    pub(super) failed_jobs_history_limit: Option<usize>,
}

impl CronJobSpec {
    /// How many Jobs that ended in this way are kept; all, if there is no limit.
    pub(super) fn history_limit(&self, end: &str) -> usize {
        let limit = match end {
            "Complete" => self.successful_jobs_history_limit,
            _ => self.failed_jobs_history_limit,
        };
        limit.unwrap_or(usize::MAX)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct CronJobStatus {
    pub(super) active: Vec<Reference>,
    pub(super) last_schedule_time: Option<Timestamp>,
    pub(super) last_successful_time: Option<Timestamp>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Reference {
    pub(super) uid: String,
}

/// `null` stands for an empty list.
fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_sets_have_one_form() {
        let set = |text| indexes(text).map(|set| set.into_iter().collect::<Vec<u32>>());
        assert_eq!(set(""), Some(vec![]));
        assert_eq!(set("1,3-5,7"), Some(vec![1, 3, 4, 5, 7]));
        for wrong in ["3,1", "1,1", "2-1", "0-1", "a", "1,", "1-"] {
            assert_eq!(set(wrong), None, "{wrong}");
        }
    }
}
