//! What is tried: small worlds, one for each way in which Jobs, CronJobs and collectors work.
//!
//! Small, because every fault is tried at every call; each has the least that its subject needs.

mod collectors;
mod cron_jobs;
mod ends;
mod jobs;
mod nodes;
mod owners;
mod policies;
mod sizes;

use serde_json::{Value, json};

use crate::faults::Fault;
use crate::world::{Behaviours, Controllers, JOBS, NODE, Step, What, When};

/// A world and how it ends if nothing goes wrong.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    pub name: &'static str,
    pub controllers: Controllers,
    pub behaviours: Behaviours,
    pub script: fn() -> Vec<Step>,
    /// A part of the summary of an undisturbed run.
    pub ends: &'static str,
    /// Whether the Job controller's metrics are looked at.
    pub keep_metrics: bool,
    /// Whether `failed` may differ: pods that a success ends count as failed if they end before it is on record.
    pub failed_varies: bool,
    /// Whether the end depends on what caches show in time: then it is not compared where they lag.
    pub lag_matters: bool,
    /// Whether the end depends on what is done within minutes: then it is not compared where an answer never comes.
    pub stalls_matter: bool,
    /// Whether the condition `Suspended` may stay: a Job that ends before its resumption was noticed keeps it, as upstream.
    pub suspended_varies: bool,
    /// Faults that leave nothing by which a controller could know better. They are not tried.
    pub unknowable: fn(&Fault) -> bool,
}

impl Scenario {
    const fn job(name: &'static str, behaviours: Behaviours, script: fn() -> Vec<Step>, ends: &'static str) -> Self {
        let controllers = Controllers::JOB;
        Self {
            name,
            controllers,
            behaviours,
            script,
            ends,
            keep_metrics: false,
            failed_varies: false,
            lag_matters: false,
            stalls_matter: false,
            suspended_varies: false,
            unknowable: |_| false,
        }
    }
}

/// All of them.
pub fn all() -> Vec<Scenario> {
    [
        jobs::SCENARIOS,
        ends::SCENARIOS,
        policies::SCENARIOS,
        sizes::SCENARIOS,
        owners::SCENARIOS,
        cron_jobs::SCENARIOS,
        collectors::SCENARIOS,
        nodes::SCENARIOS,
    ]
    .concat()
}

/// A Job `a` with these fields of its spec.
fn job(spec: Value) -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}, "spec": job_spec(spec)})
}

fn job_spec(fields: Value) -> Value {
    let mut spec = json!({"template": {"spec": pod_spec("Never")}});
    if let (Some(spec), Value::Object(fields)) = (spec.as_object_mut(), fields) {
        spec.extend(fields);
    }
    spec
}

/// On a node, so that a deletion is graceful.
fn pod_spec(restart_policy: &str) -> Value {
    json!({"restartPolicy": restart_policy, "nodeName": NODE, "containers": [{"name": "main", "image": "busybox"}]})
}

/// The first step of most: a user makes the Job, when the controllers have been at work for a while.
fn start(spec: Value) -> Vec<Step> {
    vec![Step::new(When::After(2_000), What::Create(JOBS, job(spec)))]
}

fn then(mut steps: Vec<Step>, more: impl IntoIterator<Item = Step>) -> Vec<Step> {
    steps.extend(more);
    steps
}
