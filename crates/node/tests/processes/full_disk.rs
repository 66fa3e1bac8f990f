//! The nursery cannot write its journal for a while (PL-3.5, PL-15).
//!
//! A limit on the size of files stands for the full disk: the kernel then writes as much of a record as fits, like there.

use std::path::Path;

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::Value;

use crate::support::{self, Cluster, until};
use crate::{script, terminated};

/// A few bytes of the next record fit.
const ROOM: u64 = 20;

async fn cluster() -> Cluster {
    Cluster::start_with(|options| {
        // Without this the limit would end the nursery by a signal, which a full disk does not send.
        let shell = ["sh", "-c", "trap '' XFSZ; exec \"$0\" \"$1\""].map(Into::into);
        options.nursery_command.splice(0..0, shell);
    })
    .await
}

fn limit_files(cluster: &Cluster, bytes: Option<u64>) {
    let limit = Rlimit { current: bytes, maximum: None };
    prlimit(Pid::from_raw(cluster.nursery()), Resource::Fsize, limit).expect("the nursery is ours");
}

/// The journal has no more room than for a part of a record.
fn fill(cluster: &Cluster) {
    limit_files(cluster, Some(cluster.journal().len() as u64 + ROOM));
}

fn is_running(pod: &Value) -> bool {
    pod["status"]["phase"] == "Running"
}

fn waits_for(file: &Path, code: u32) -> Value {
    script(&format!("echo $$$$; until test -e {}; do sleep 0.02; done; exit {code}", file.display()))
}

async fn says(cluster: &Cluster, text: &str) {
    let errors = cluster.node_directory().join("nursery/errors");
    until(text, || async { std::fs::read_to_string(&errors).unwrap_or_default().contains(text) }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_go_on_and_their_ends_are_told_when_there_is_room() {
    let cluster = cluster().await;
    let (first, second) = (cluster.directory().join("first"), cluster.directory().join("second"));
    cluster.create_pod("ends", waits_for(&first, 7)).await;
    cluster.create_pod("goes-on", waits_for(&second, 8)).await;
    for name in ["ends", "goes-on"] {
        cluster.wait_for(name, is_running).await;
        until("it says its number", || async { cluster.log(name).await.ends_with('\n') }).await;
    }
    let pid: i32 = cluster.log("goes-on").await.trim().parse().unwrap();
    let (nursery, before) = (cluster.nursery(), cluster.journal());

    fill(&cluster);
    std::fs::write(&first, "").unwrap();
    says(&cluster, "directory cannot be written").await;
    assert_eq!(cluster.journal(), before, "no torn record stays");
    cluster.create_pod("starts-later", script("exit 9")).await;
    cluster.wait_for("starts-later", |pod| pod["status"]["containerStatuses"][0]["state"]["waiting"].is_object()).await;
    assert!(support::is_alive(pid) && cluster.nursery() == nursery);
    assert!(is_running(&cluster.pod("ends").await.unwrap()), "an end that could be forgotten is not told");

    limit_files(&cluster, None);
    std::fs::write(&second, "").unwrap();
    for (name, code) in [("ends", 7), ("goes-on", 8), ("starts-later", 9)] {
        let pod = cluster.wait_for_end(name).await;
        assert_eq!(terminated(&pod)["exitCode"], code, "{name}: {pod:#}");
    }
    says(&cluster, "directory can be written again").await;
    assert!(cluster.journal().lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{}", cluster.journal());
}

/// The node is killed meanwhile: the next one is not told either, until it is on disk.
#[tokio::test(flavor = "multi_thread")]
async fn the_next_node_is_told_when_there_is_room() {
    let mut cluster = cluster().await;
    let go = cluster.directory().join("go");
    cluster.create_pod("p", waits_for(&go, 7)).await;
    cluster.wait_for("p", is_running).await;
    fill(&cluster);
    std::fs::write(&go, "").unwrap();
    says(&cluster, "directory cannot be written").await;
    cluster.crash_node().await;
    cluster.start_node().await;
    cluster.create_pod("q", script("exit 9")).await;
    cluster.wait_for("q", |pod| pod["status"]["containerStatuses"][0]["state"]["waiting"].is_object()).await;
    assert!(is_running(&cluster.pod("p").await.unwrap()));
    limit_files(&cluster, None);
    for (name, code) in [("p", 7), ("q", 9)] {
        let pod = cluster.wait_for_end(name).await;
        assert_eq!(terminated(&pod)["exitCode"], code, "{name}: {pod:#}");
    }
}
