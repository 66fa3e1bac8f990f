//! The patches that the controller sends to pods: strategic merge patches, each tied to one pod by its UID.
//!
//! A UID in a patch is a precondition: a pod re-created under the name makes it fail with 409, which means the same as
//! "not found" (JC-605, INV-31). Upstream leaves it out where only the finalizer is removed; our pod names can come back.

use batch_types::constants::finalizer;
use serde_json::{Value, json};

use super::Uid;
use super::pod_view::SURPLUS_ANNOTATION;

/// Takes the pod over: owner and finalizer in one request (JC-604).
pub fn adopt(pod: &Uid, job_name: &str, job: &Uid) -> Value {
    json!({"metadata": {
        "uid": pod,
        "ownerReferences": [owner_reference(job_name, job)],
        "finalizers": [finalizer::JOB_TRACKING],
    }})
}

/// Takes back a pod that is settled already: its owner, without the finalizer that would have it counted (INV-1).
pub fn reclaim(pod: &Uid, job_name: &str, job: &Uid) -> Value {
    json!({"metadata": {"uid": pod, "ownerReferences": [owner_reference(job_name, job)]}})
}

/// Lets a pod go whose labels no longer match: owner and finalizer in one request (JC-603).
pub fn disown(pod: &Uid, job: &Uid) -> Value {
    json!({"metadata": {
        "uid": pod,
        "ownerReferences": [{"$patch": "delete", "uid": job}],
        "$deleteFromPrimitiveList/finalizers": [finalizer::JOB_TRACKING],
    }})
}

/// Removes the tracking finalizer (JC-1311).
pub fn release(pod: &Uid) -> Value {
    json!({"metadata": {"uid": pod, "$deleteFromPrimitiveList/finalizers": [finalizer::JOB_TRACKING]}})
}

/// Ties a patch to the version of the pod that was judged; any other makes it fail with 409.
///
/// An orphan is released so, because a Job may just be adopting it and relies on the finalizer from then on (INV-4), and so
/// is a live pod that no longer counts, because it may just have ended and has to count then (INV-1).
pub fn at_version(mut patch: Value, version: &str) -> Value {
    patch["metadata"]["resourceVersion"] = json!(version);
    patch
}

/// Marks a pod as surplus: the first of the three calls that remove it (INV-23).
pub fn mark_surplus(pod: &Uid) -> Value {
    json!({"metadata": {"uid": pod, "annotations": {SURPLUS_ANNOTATION: "true"}}})
}

/// Removes the tracking finalizer and the mark of a surplus pod that has been deleted: the last of the three calls.
pub fn release_surplus(pod: &Uid) -> Value {
    json!({"metadata": {
        "uid": pod,
        "annotations": {SURPLUS_ANNOTATION: null},
        "$deleteFromPrimitiveList/finalizers": [finalizer::JOB_TRACKING],
    }})
}

/// The reference that makes a Job the controller of a pod (JC-1204).
pub(crate) fn owner_reference(job_name: &str, job: &Uid) -> Value {
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": job_name,
        "uid": job,
        "controller": true,
        "blockOwnerDeletion": true,
    })
}
