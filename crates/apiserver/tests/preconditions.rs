//! What writes must meet, and which of several refusals comes first.

mod common;

use common::{Api, JOBS, job};
use serde_json::{Value, json};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";

/// Kinds that a PUT does not create are missing before anything is asked of them (AS-111).
#[tokio::test]
async fn what_is_missing_has_no_preconditions() {
    let api = Api::new().await;
    let mut absent = job("a");
    absent["metadata"]["uid"] = json!("abc");
    absent["metadata"]["resourceVersion"] = json!("abc");
    for path in [format!("{JOBS}/a"), format!("{JOBS}/a/status")] {
        let refused = api.put(&path, absent.clone()).await.expect(404);
        assert_eq!(refused.body["message"], "jobs.batch \"a\" not found", "{path}");
    }
    api.post(JOBS, job("a")).await.expect(201);
    api.put(&format!("{JOBS}/a"), absent.clone()).await.expect(409);
    absent["metadata"].as_object_mut().unwrap().remove("uid");
    api.put(&format!("{JOBS}/a"), absent).await.expect(500);
}

/// A patch may not take the version away that an update of a Lease needs (AS-110).
#[tokio::test]
async fn a_lease_is_never_changed_without_its_version() {
    let api = Api::new().await;
    api.post(LEASES, json!({"metadata": {"name": "l"}})).await.expect(201);
    let path = format!("{LEASES}/l");
    for version in [Value::Null, json!("0"), json!("")] {
        let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"holderIdentity": "me"}});
        let refused = api.merge(&path, patch).await.expect(422);
        let expected = "leases.coordination.k8s.io \"l\" is invalid: metadata.resourceVersion: Invalid value: 0: must be \
                        specified for an update";
        assert_eq!(refused.body["message"], expected, "{version}");
    }
    api.merge(&path, json!({"spec": {"holderIdentity": "me"}})).await.expect(200);
}
