//! The Node object and its Lease (PL-136).

use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};

use crate::agent::Capacity;
use crate::calls::{self, Answer};
use crate::nursery::protocol::{Abilities, Obstacles};

/// As kubelets do: a lease of 40 seconds, renewed every 10.
const LEASE_SECONDS: i64 = 40;
const RENEW_INTERVAL: Duration = Duration::from_secs(10);

const NOT_READY_TAINT: &str = "node.kubernetes.io/not-ready";

/// Tells what runs pods here, for people and for node selectors.
const RUNTIME_LABEL: &str = "tally.dev/runtime";

/// What is said about a node.
#[derive(Clone, Debug)]
pub(crate) struct Description {
    pub(crate) name: String,
    pub(crate) address: String,
    pub(crate) capacity: Capacity,
    /// `process` or `simulated`.
    pub(crate) runtime: &'static str,
    pub(crate) abilities: Abilities,
    pub(crate) obstacles: Obstacles,
}

/// Makes or updates the Node and takes its Lease. Errors are the text of what went wrong.
pub(crate) async fn register(client: &Client, description: &Description) -> Result<(), String> {
    let path = format!("/api/v1/nodes/{}", description.name);
    // One from an earlier run is kept: labels are ours to keep up to date, the rest may be somebody else's.
    let labels = json!({"metadata": {"labels": labels(description)}});
    match calls::merge_patch(client, &path, &labels).await {
        Answer::Gone => done(calls::create(client, "/api/v1/nodes", &node(description)).await)?,
        answer => done(answer)?,
    }
    let status = json!({"status": status(description, Timestamp::now())});
    done(calls::merge_patch(client, &format!("{path}/status"), &status).await)?;
    remove_not_ready_taint(client, &path).await?;
    renew(client, &description.name).await
}

/// New nodes carry a taint until somebody has seen them ready. On a cluster the node lifecycle controller does that; here
/// there is none, and nobody knows better than the node itself.
async fn remove_not_ready_taint(client: &Client, path: &str) -> Result<(), String> {
    let request = http::Request::get(path).body(Vec::new()).map_err(|error| error.to_string())?;
    let node: Value = client.request(request).await.map_err(|error| error.to_string())?;
    let Some(taints) = node["spec"]["taints"].as_array() else { return Ok(()) };
    let kept: Vec<&Value> = taints.iter().filter(|taint| taint["key"] != NOT_READY_TAINT).collect();
    if kept.len() == taints.len() {
        return Ok(());
    }
    let version = &node["metadata"]["resourceVersion"];
    let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"taints": kept}});
    done(calls::merge_patch(client, path, &patch).await)
}

/// Renews the Lease, or makes it.
pub(crate) async fn renew(client: &Client, name: &str) -> Result<(), String> {
    let spec = json!({
        "holderIdentity": name,
        "leaseDurationSeconds": LEASE_SECONDS,
        "renewTime": micro_time(Timestamp::now()),
    });
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    match calls::merge_patch(client, &format!("{leases}/{name}"), &json!({"spec": spec})).await {
        Answer::Gone => {
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": name, "namespace": "kube-node-lease"},
                "spec": spec,
            });
            done(calls::create(client, leases, &lease).await)
        }
        answer => done(answer),
    }
}

/// Renews the Lease for as long as the node lives.
pub(crate) async fn beat(client: &Client, name: &str) {
    let mut interval = tokio::time::interval(RENEW_INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    interval.tick().await;
    loop {
        interval.tick().await;
        if let Err(reason) = renew(client, name).await {
            tracing::warn!(reason, node = name, "the node's lease is not renewed");
        }
    }
}

fn done(answer: Answer) -> Result<(), String> {
    match answer {
        Answer::Done => Ok(()),
        Answer::Gone => Err("it does not exist".to_owned()),
        Answer::Failed(reason) => Err(reason),
    }
}

fn labels(description: &Description) -> Value {
    json!({
        "kubernetes.io/hostname": description.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": architecture(),
        RUNTIME_LABEL: description.runtime,
    })
}

fn node(description: &Description) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": description.name, "labels": labels(description)},
    })
}

fn status(description: &Description, now: Timestamp) -> Value {
    let Capacity { cpu_millis, memory_bytes, ephemeral_storage_bytes, pods } = description.capacity;
    let resources = json!({
        "cpu": format!("{cpu_millis}m"),
        "memory": format!("{}Ki", memory_bytes / 1024),
        "ephemeral-storage": format!("{}Ki", ephemeral_storage_bytes / 1024),
        "pods": pods.to_string(),
    });
    json!({
        "capacity": resources,
        "allocatable": resources,
        "addresses": [
            {"type": "InternalIP", "address": description.address},
            {"type": "Hostname", "address": description.name},
        ],
        "conditions": conditions(description, now),
        "nodeInfo": {
            "machineID": "", "systemUUID": "", "bootID": "", "osImage": "", "kubeProxyVersion": "",
            "kernelVersion": kernel_version(),
            "containerRuntimeVersion": format!("tally-{}://{}", description.runtime, env!("CARGO_PKG_VERSION")),
            "kubeletVersion": concat!("tally-", env!("CARGO_PKG_VERSION")),
            "operatingSystem": "linux",
            "architecture": architecture(),
        },
    })
}

fn conditions(description: &Description, now: Timestamp) -> Value {
    let time = Timestamp::from_second(now.as_second()).unwrap_or(now).to_string();
    let condition = |kind: &str, status: bool, reason: &str, message: &str| {
        json!({
            "type": kind,
            "status": if status { "True" } else { "False" },
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": time,
            "lastTransitionTime": time,
        })
    };
    let ready = match description.runtime {
        "simulated" => "pods are simulated: nothing is executed",
        _ => "pods run as processes of this machine; images are not used",
    };
    let mut conditions = vec![condition("Ready", true, "KubeletReady", ready)];
    if description.runtime == "process" {
        let offers = offers(description).into_iter();
        conditions.extend(offers.map(|Offer { kind, status, reason, message }| {
            condition(&format!("tally.dev/{kind}"), status, reason, &message)
        }));
    }
    conditions.into()
}

/// Something that pods may want and that not every machine or user can give them.
struct Offer {
    kind: &'static str,
    status: bool,
    reason: &'static str,
    message: String,
}

/// What processes can and cannot have here, so that nobody has to find out by trying.
fn offers(description: &Description) -> [Offer; 4] {
    let Description { abilities: Abilities { mounts, limits, users }, obstacles, .. } = description;
    let offer = |kind, status, (reason, message): (&'static str, &str), obstacle: &Option<String>| {
        let message = match obstacle {
            Some(obstacle) => format!("{message} ({obstacle})"),
            None => message.to_owned(),
        };
        Offer { kind, status, reason, message }
    };
    let images = ("NotUsed", "containers need a `command`; `image` is not pulled or executed");
    let mounting = match mounts {
        true => ("MountNamespaces", "volumes are mounted in a namespace of the container"),
        false => ("NotPermitted", "needs root or user namespaces; pods that mount are rejected"),
    };
    let limiting = match limits {
        true => ("ControlGroups", "limits of cpu and memory are enforced"),
        false => (
            "NoControlGroups",
            "memory is watched and its limits enforced; limits of cpu need writable control groups (v2)",
        ),
    };
    let running_as = match users {
        true => ("Root", "pods may run as any user"),
        false => ("NotRoot", "pods run as the node's own user; others are rejected"),
    };
    [
        offer("ContainerImages", false, images, &None),
        offer("VolumeMounts", *mounts, mounting, &obstacles.mounts),
        offer("ResourceLimits", *limits, limiting, &obstacles.limits),
        offer("RunAsUser", *users, running_as, &None),
    ]
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn kernel_version() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

fn micro_time(now: Timestamp) -> String {
    let micros = Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now);
    jiff::fmt::temporal::DateTimePrinter::new().precision(Some(6)).timestamp_to_string(&micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description() -> Description {
        Description {
            name: "n".to_owned(),
            address: "127.0.0.1".to_owned(),
            capacity: Capacity { cpu_millis: 1500, memory_bytes: 4096, ephemeral_storage_bytes: 9000, pods: 1 },
            runtime: "process",
            abilities: Abilities { mounts: true, limits: false, users: false },
            obstacles: Obstacles { limits: Some("no controller `cpu`".to_owned()), mounts: None },
        }
    }

    /// What is not listed no pod can ask for (PL-103).
    #[test]
    fn a_node_lists_all_that_pods_may_ask_for() {
        let status = status(&description(), Timestamp::UNIX_EPOCH);
        let resources = json!({"cpu": "1500m", "memory": "4Ki", "ephemeral-storage": "8Ki", "pods": "1"});
        assert_eq!((&status["capacity"], &status["allocatable"]), (&resources, &resources));
    }

    #[test]
    fn what_a_machine_does_not_let_us_do_is_said_with_the_reason() {
        let conditions = conditions(&description(), Timestamp::UNIX_EPOCH);
        let shown = |kind: &str| {
            let found = conditions.as_array().unwrap().iter().find(|it| it["type"] == format!("tally.dev/{kind}"));
            let found = found.unwrap();
            format!("{} {}: {}", found["status"], found["reason"], found["message"]).replace('"', "")
        };
        assert_eq!(shown("VolumeMounts"), "True MountNamespaces: volumes are mounted in a namespace of the container");
        assert_eq!(
            shown("ResourceLimits"),
            "False NoControlGroups: memory is watched and its limits enforced; limits of cpu need writable control groups \
             (v2) (no controller `cpu`)"
        );
        assert!(shown("RunAsUser").starts_with("False NotRoot: "));
        assert!(shown("ContainerImages").starts_with("False NotUsed: "));
    }
}
