//! What the controller is told once at start: gates, tunables, and which Jobs are its own.

use std::time::Duration;

use batch_types::constants::value::BUILT_IN_CONTROLLER;
use batch_types::gates::Gates;
use k8s_openapi::api::batch::v1::Job;

/// JC-106; every number can be changed for tests.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub gates: Gates,
    pub manager: Manager,
    /// The shortest delay of a wake-up that is only waiting for a pod-failure delay to pass.
    pub sync_batch_period: Duration,
    /// Delay of a replacement after the first failure; doubles with each further one (JC-1104).
    pub pod_failure_backoff: Duration,
    pub pod_failure_backoff_max: Duration,
    /// Pods put into `uncountedTerminatedPods` or newly completed indexes per sync, so that a status stays below some
    /// 20 kB (JC-1308).
    pub uncounted_pods_max: usize,
    /// Finalizers removed per sync. Upstream has no such bound where pods need no counting; with it one huge Job cannot
    /// keep a worker busy for long (INV-29).
    pub releases_max: usize,
    /// Creations, or deletions of surplus pods, per sync (JC-1010).
    pub create_delete_max: usize,
    /// Creations in the first of the doubling batches (JC-1009).
    pub slow_start_batch: usize,
    /// How long our own writes may stay unseen in the cache before we stop waiting for them (JC-402).
    pub expectations_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            gates: Gates::DEFAULT,
            manager: Manager::BuiltIn,
            sync_batch_period: Duration::from_secs(1),
            pod_failure_backoff: Duration::from_secs(10),
            pod_failure_backoff_max: Duration::from_secs(600),
            uncounted_pods_max: 500,
            releases_max: 500,
            create_delete_max: 500,
            slow_start_batch: 1,
            expectations_timeout: Duration::from_secs(300),
        }
    }
}

impl Settings {
    /// Whether the terminal condition is preceded by an interim one and waits for terminating pods (JC-1904).
    pub fn delays_terminal_condition(&self) -> bool {
        self.gates.job_managed_by || self.gates.job_pod_replacement_policy
    }
}

/// In whose name this controller works (KEP-4368).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Manager {
    /// As the cluster's own Job controller: Jobs without `managedBy`, or with the reserved value.
    BuiltIn,
    /// As an external controller: only Jobs that name it.
    External(String),
}

/// Whether this controller runs the Job (JC-504, JC-2501). It does not touch other Jobs at all (INV-15).
pub fn owns(job: &Job, settings: &Settings) -> bool {
    let managed_by = job.spec.as_ref().and_then(|spec| spec.managed_by.as_deref());
    match &settings.manager {
        Manager::BuiltIn if !settings.gates.job_managed_by => true,
        Manager::BuiltIn => managed_by.is_none_or(|name| name == BUILT_IN_CONTROLLER),
        Manager::External(name) => settings.gates.job_managed_by && managed_by == Some(name),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::batch::v1::JobSpec;

    use super::*;

    fn owned(managed_by: Option<&str>, manager: &Manager, gate: bool) -> bool {
        let job = Job {
            spec: Some(JobSpec { managed_by: managed_by.map(str::to_owned), ..JobSpec::default() }),
            ..Job::default()
        };
        let gates = Gates { job_managed_by: gate, ..Gates::DEFAULT };
        owns(&job, &Settings { gates, manager: manager.clone(), ..Settings::default() })
    }

    /// JC-2501, SC-32…37, SC-114…117.
    #[test]
    fn a_job_belongs_to_the_controller_it_names() {
        let external = Manager::External("tally.dev/job-controller".to_owned());
        let cases = [
            (None, true, false),
            (Some("kubernetes.io/job-controller"), true, false),
            (Some("tally.dev/job-controller"), false, true),
            (Some("example.com/queue"), false, false),
        ];
        for (managed_by, built_in, ours) in cases {
            assert_eq!(owned(managed_by, &Manager::BuiltIn, true), built_in, "{managed_by:?}");
            assert_eq!(owned(managed_by, &external, true), ours, "{managed_by:?}");
            assert!(owned(managed_by, &Manager::BuiltIn, false), "{managed_by:?}: the gate is off");
            assert!(!owned(managed_by, &external, false), "{managed_by:?}: the gate is off");
        }
        assert!(owns(&Job::default(), &Settings::default()));
    }
}
