//! Which Jobs are looked at, and how much of what may happen to them.

use std::time::Duration;

use batch_plan::job::Settings;
use k8s_openapi::api::batch::v1::Job;
use serde_json::{Value, json};

use crate::job::{JobState, WORK_QUEUE};
use crate::pod::Exit;
use crate::state::Budget;

/// A small world: one Job, and bounds on what happens.
#[derive(Debug, Clone)]
pub struct Config {
    pub name: &'static str,
    pub(crate) base: Job,
    pub(crate) parallelism: u8,
    pub(crate) completions: u8,
    /// How pods may end, besides well.
    pub(crate) failures: Vec<Exit>,
    /// Whether pods run as soon as they are created. Otherwise a node has to take them first.
    pub(crate) run_at_once: bool,
    /// Whether a creation can land after its controller has died. Where the Job may end meanwhile that makes a pod for a
    /// Job that is finished, which nobody can prevent.
    pub(crate) late_creations: bool,
    pub(crate) budget: Budget,
    pub(crate) settings: Settings,
}

impl Config {
    fn new(name: &'static str, spec: Value, budget: Budget) -> Self {
        let mut full = json!({
            "backoffLimit": 6, "completionMode": "NonIndexed", "selector": {"matchLabels": {"job": "a"}},
            "podReplacementPolicy": "TerminatingOrFailed", "template": {},
        });
        if let (Some(full), Some(spec)) = (full.as_object_mut(), spec.as_object()) {
            full.extend(spec.clone());
        }
        let number = |field: &str| full.get(field).and_then(Value::as_u64).and_then(|value| u8::try_from(value).ok());
        let (parallelism, completions) = (number("parallelism").unwrap_or(1), number("completions"));
        let metadata = json!({"namespace": "ns", "name": "a", "resourceVersion": "1"});
        let base = json!({"metadata": metadata, "spec": full});
        Self {
            name,
            base: serde_json::from_value(base).expect("a Job"),
            parallelism,
            completions: completions.unwrap_or(WORK_QUEUE),
            failures: vec![Exit::Plain],
            run_at_once: true,
            late_creations: true,
            budget,
            settings: Settings {
                // Delays are none of this model's business.
                pod_failure_backoff: Duration::ZERO,
                ..Settings::default()
            },
        }
    }

    fn failing(self, failures: &[Exit]) -> Self {
        Self { failures: failures.to_vec(), ..self }
    }

    fn with_nodes(self) -> Self {
        Self { run_at_once: false, ..self }
    }

    fn without_late_creations(self) -> Self {
        Self { late_creations: false, ..self }
    }

    fn with_bound(mut self, pods: usize) -> Self {
        self.settings.uncounted_pods_max = pods;
        self
    }

    pub(crate) fn is_indexed(&self) -> bool {
        self.spec("Indexed")
    }

    pub(crate) fn is_per_index(&self) -> bool {
        self.base.spec.as_ref().is_some_and(|spec| spec.backoff_limit_per_index.is_some())
    }

    /// Whether terminating pods count as live for the number of pods (INV-18).
    pub(crate) fn is_strict(&self) -> bool {
        let spec = self.base.spec.as_ref();
        spec.is_some_and(|spec| {
            spec.pod_failure_policy.is_some() || spec.pod_replacement_policy.as_deref() == Some("Failed")
        })
    }

    pub(crate) fn has_failure_policy(&self) -> bool {
        self.base.spec.as_ref().is_some_and(|spec| spec.pod_failure_policy.is_some())
    }

    pub(crate) fn has_deadline(&self) -> bool {
        self.base.spec.as_ref().is_some_and(|spec| spec.active_deadline_seconds.is_some())
    }

    /// The Job as it is created, for the first or the second time.
    pub(crate) fn job(&self, generation: u8) -> JobState {
        JobState {
            exists: true,
            generation,
            parallelism: self.parallelism,
            completions: self.completions,
            ..JobState::default()
        }
    }

    fn spec(&self, mode: &str) -> bool {
        self.base.spec.as_ref().is_some_and(|spec| spec.completion_mode.as_deref() == Some(mode))
    }
}

fn rules() -> Value {
    json!({"rules": [
        {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [7]}},
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
        {"action": "Count", "onExitCodes": {"operator": "In", "values": [1]}}]})
}

fn index_rules() -> Value {
    json!({"rules": [
        {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [7]}},
        {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [13]}}]})
}

/// What a test can afford.
pub fn smallest() -> Config {
    let budget = Budget { crashes: 1, lost: 1, failures: 1, ..Budget::default() };
    Config::new("small", json!({"parallelism": 1, "completions": 2, "backoffLimit": 1}), budget)
}

/// The set that every change has to pass: more than five million states.
pub fn per_commit() -> Vec<Config> {
    let faults = Budget { crashes: 2, lost: 1, failures: 1, deletions: 1, interleaved: 1, ..Budget::default() };
    let quiet = Budget { crashes: 1, failures: 1, ..Budget::default() };
    vec![
        smallest(),
        Config::new("two pods", json!({"parallelism": 2, "completions": 2, "backoffLimit": 1}), faults),
        Config::new(
            "two indexes",
            json!({"parallelism": 2, "completions": 2, "completionMode": "Indexed", "backoffLimit": 0}),
            faults,
        ),
        Config::new(
            "three indexes, limit 0",
            json!({"parallelism": 2, "completions": 3, "completionMode": "Indexed", "backoffLimit": 0}),
            Budget { crashes: 1, lost: 1, failures: 1, ..Budget::default() },
        ),
        Config::new(
            "three pods",
            json!({"parallelism": 3, "completions": 3, "backoffLimit": 0}),
            Budget { crashes: 1, lost: 1, failures: 1, ..Budget::default() },
        ),
        Config::new("work queue", json!({"parallelism": 2, "backoffLimit": 1}), faults),
        Config::new(
            "policy Failed",
            json!({"parallelism": 2, "completions": 2, "podReplacementPolicy": "Failed", "backoffLimit": 1}),
            faults,
        ),
        Config::new(
            "policy Failed, indexes",
            json!({"parallelism": 2, "completions": 2, "podReplacementPolicy": "Failed", "completionMode": "Indexed"}),
            Budget { lost: 1, late: 1, deletions: 1, failures: 1, ..Budget::default() },
        )
        .with_nodes(),
        Config::new(
            "failure policy",
            json!({"parallelism": 2, "completions": 2, "backoffLimit": 1, "podFailurePolicy": rules(),
                   "podReplacementPolicy": "Failed"}),
            Budget { crashes: 1, lost: 1, failures: 2, ..Budget::default() },
        )
        .failing(&[Exit::Plain, Exit::Ignored, Exit::FailsJob]),
        Config::new(
            "limit per index",
            json!({"parallelism": 2, "completions": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 1,
                   "podFailurePolicy": index_rules(), "podReplacementPolicy": "Failed", "backoffLimit": 100}),
            Budget { crashes: 1, lost: 1, failures: 2, ..Budget::default() },
        )
        .failing(&[Exit::Plain, Exit::Ignored, Exit::FailsIndex]),
        Config::new(
            "success policy",
            json!({"parallelism": 3, "completions": 3, "completionMode": "Indexed",
                   "successPolicy": {"rules": [{"succeededIndexes": "0"}]}}),
            Budget { crashes: 1, lost: 1, late: 1, ..Budget::default() },
        )
        .without_late_creations(),
        Config::new(
            "suspension",
            json!({"parallelism": 2, "completions": 2}),
            Budget { suspensions: 2, lost: 1, ..quiet },
        )
        .with_nodes(),
        Config::new(
            "elastic",
            json!({"parallelism": 2, "completions": 2, "completionMode": "Indexed"}),
            Budget { resizes: 2, ..quiet },
        ),
        Config::new("scaling", json!({"parallelism": 2, "completions": 3}), Budget { scalings: 2, ..quiet }),
        Config::new(
            "deletion and namesake",
            json!({"parallelism": 1, "completions": 1}),
            Budget {
                crashes: 1,
                lost: 1,
                late: 1,
                job_deletions: 1,
                namesakes: 1,
                interleaved: 1,
                ..Budget::default()
            },
        ),
        Config::new(
            "deadline",
            json!({"parallelism": 2, "completions": 2, "activeDeadlineSeconds": 60}),
            Budget { crashes: 1, lost: 1, interleaved: 1, ..Budget::default() },
        ),
        Config::new(
            "labels",
            json!({"parallelism": 2, "completions": 2}),
            Budget { relabels: 2, crashes: 1, job_deletions: 1, ..Budget::default() },
        ),
        // A pod that comes back to a Job after its end.
        Config::new(
            "labels, work queue",
            json!({"parallelism": 2}),
            Budget { relabels: 2, job_deletions: 1, ..Budget::default() },
        ),
        Config::new(
            "one at a time",
            json!({"parallelism": 3, "completions": 3}),
            Budget { crashes: 1, refused: 1, failures: 1, ..Budget::default() },
        )
        .with_bound(1),
    ]
}

/// The same worlds with more of everything.
pub fn nightly() -> Vec<Config> {
    let more = |config: Config| {
        let budget = config.budget;
        let one_more = |value: u8| if value > 0 { value + 1 } else { 0 };
        let budget = Budget {
            crashes: budget.crashes.max(1) + 1,
            lost: 1,
            refused: budget.refused.max(1),
            interleaved: budget.interleaved + 1,
            failures: one_more(budget.failures),
            deletions: budget.deletions.max(1),
            ..budget
        };
        Config { budget, ..config }
    };
    per_commit().into_iter().map(more).collect()
}
