//! Processes act on the API as the ServiceAccount of their pod (AS-222).

use serde_json::{Value, json};

use crate::support::Cluster;
use crate::{script, terminated};

const PLACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// What admission of a server with a door adds to pods.
fn with_credentials(text: &str) -> Value {
    let mut spec = script(text);
    spec["serviceAccountName"] = json!("worker");
    spec["volumes"] = json!([{"name": "kube-api-access-x2x4z", "projected": {"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ]}}]);
    spec["containers"][0]["volumeMounts"] =
        json!([{"name": "kube-api-access-x2x4z", "readOnly": true, "mountPath": PLACE}]);
    spec
}

async fn cluster() -> Cluster {
    let cluster = Cluster::start_with(|options| {
        let api = [("KUBERNETES_SERVICE_HOST", "127.0.0.1"), ("KUBERNETES_SERVICE_PORT", "6443")];
        options.environment.extend(api.map(|(name, value)| (name.to_owned(), value.to_owned())));
    })
    .await;
    cluster.create("serviceaccounts", json!({"metadata": {"name": "worker"}})).await;
    cluster.create("configmaps", json!({"metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": "PEM"}})).await;
    cluster
}

/// The files are those of a cluster, wherever the volume can be seen; the token is for this pod.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_finds_the_credentials_of_its_account() {
    let cluster = cluster().await;
    let text = r#"
        cd "$(dirname "$KUBECONFIG")" || exit 1
        test "$(cat namespace)" = default && test "$(cat ca.crt)" = PEM || exit 2
        grep -q 'server: https://127.0.0.1:6443' kubeconfig && grep -q 'tokenFile: token' kubeconfig || exit 3
        cut -d. -f2 token | tr '_-' '/+' | base64 -d 2>/dev/null | grep -q '"pod":{"name":"p"' || exit 4
        exit 5"#;
    cluster.create_pod("p", with_credentials(text)).await;
    let pod = cluster.wait_for_end("p").await;
    assert_eq!(terminated(&pod)["exitCode"], 5, "{pod:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubeconfig_of_the_pods_own_stays() {
    let cluster = cluster().await;
    let mut spec = with_credentials("test \"$KUBECONFIG\" = /mine && exit 5");
    spec["containers"][0]["env"] = json!([{"name": "KUBECONFIG", "value": "/mine"}]);
    cluster.create_pod("p", spec).await;
    assert_eq!(terminated(&cluster.wait_for_end("p").await)["exitCode"], 5);
}

/// Without an account there is no token; the pod waits and says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_account_is_told_in_an_event() {
    let cluster = cluster().await;
    let mut spec = with_credentials("exit 5");
    spec["serviceAccountName"] = json!("late");
    cluster.create_pod("p", spec).await;
    let told = || async {
        let events = cluster.get("/api/v1/namespaces/default/events").await.unwrap_or_default();
        events.to_string().contains(r#"failed to fetch token: serviceaccounts \"late\" not found"#)
            || events.to_string().contains(r#"failed to fetch token: serviceaccounts \\\"late\\\" not found"#)
    };
    crate::support::until("an event tells what is missing", told).await;
    cluster.create("serviceaccounts", json!({"metadata": {"name": "late"}})).await;
    assert_eq!(terminated(&cluster.wait_for_end("p").await)["exitCode"], 5);
}
