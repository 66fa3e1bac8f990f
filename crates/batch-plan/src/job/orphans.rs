//! Tracking finalizers whose Job is gone or finished (JC section 3).
//!
//! While a Job is there and running its own syncs release its pods; everything else ends up here.

use batch_types::job::is_finished;
use k8s_openapi::api::batch::v1::Job;

use super::{PodView, Settings, Uid, owns};

/// Whether the pod's tracking finalizer has to go because no sync will ever remove it (JC-304).
///
/// `job` is the Job that the pod's controller reference names, by name and namespace, if there is one.
pub fn is_orphan(pod: &PodView, job: Option<&Job>, settings: &Settings) -> bool {
    if !pod.finalizer {
        return false;
    }
    // A plain owner reference does not protect a pod: only a controller counts.
    let Some(controller) = &pod.controller else { return true };
    if !controller.is_job() {
        return false;
    }
    let same = |job: &&Job| job.metadata.uid.as_deref().map(Uid::new).as_ref() == Some(&controller.uid);
    match job.filter(same) {
        None => true,
        Some(job) => owns(job, settings) && is_finished(job),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn orphan(owners: Value, job: Option<Value>) -> bool {
        let finalizers = json!(["batch.kubernetes.io/job-tracking"]);
        let pod = json!({"metadata": {"ownerReferences": owners, "finalizers": finalizers}});
        let job = job.map(|job| serde_json::from_value::<Job>(job).unwrap());
        is_orphan(&serde_json::from_value(pod).unwrap(), job.as_ref(), &Settings::default())
    }

    fn owner(api_version: &str, kind: &str, controller: bool) -> Value {
        json!([{"apiVersion": api_version, "kind": kind, "name": "a", "uid": "j", "controller": controller}])
    }

    fn job(uid: &str, spec: Value, finished: bool) -> Option<Value> {
        let conditions = if finished { json!([{"type": "Complete", "status": "True"}]) } else { json!([]) };
        Some(json!({"metadata": {"name": "a", "uid": uid}, "spec": spec, "status": {"conditions": conditions}}))
    }

    /// V-15, JC-2502, JC-608.
    #[test]
    fn a_finalizer_goes_when_no_running_job_of_ours_will_remove_it() {
        let by_job = || owner("batch/v1", "Job", true);
        let spec = || json!({"template": {}});
        assert!(!orphan(by_job(), job("j", spec(), false)), "running");
        assert!(orphan(by_job(), job("j", spec(), true)), "finished");
        assert!(orphan(by_job(), None), "gone");
        assert!(orphan(by_job(), job("other", spec(), false)), "re-created under the name");
        assert!(!orphan(owner("batch/v1", "CronJob", true), None), "another kind");
        assert!(!orphan(owner("example.com/v1", "Job", true), None), "another group");
        assert!(orphan(json!([]), None), "no owner");
        assert!(orphan(owner("batch/v1", "Job", false), job("j", spec(), false)), "not the controller");
        assert!(orphan(owner("v1", "ConfigMap", false), None), "not the controller");
        let external = || json!({"template": {}, "managedBy": "example.com/queue"});
        for finished in [false, true] {
            assert!(!orphan(by_job(), job("j", external(), finished)), "managed by another controller");
        }
        let bare = PodView { finalizer: false, ..serde_json::from_value(json!({})).unwrap() };
        assert!(!is_orphan(&bare, None, &Settings::default()), "nothing to remove");
    }
}
