//! The ends of containers, as whoever keeps them hears of them.

use std::sync::{Arc, Mutex};

use node::history::{EndedRun, HistorySink, JobRef, Kept};
use serde_json::json;

use crate::script;
use crate::support::{Cluster, until};

/// Keeps runs in memory; says that they are kept only when it is let.
#[derive(Debug, Default)]
struct Memory {
    runs: Mutex<Vec<(EndedRun, Option<Kept>)>>,
}

impl HistorySink for Memory {
    fn ended(&self, run: EndedRun, kept: Kept) {
        self.runs.lock().expect("nobody panics with the lock").push((run, Some(kept)));
    }
}

impl Memory {
    fn count(&self) -> usize {
        self.runs.lock().expect("nobody panics with the lock").len()
    }

    /// The runs, as kept from now on.
    fn take(&self) -> Vec<EndedRun> {
        self.runs.lock().expect("nobody panics with the lock").drain(..).map(|(run, _)| run).collect()
    }
}

async fn cluster() -> (Cluster, Arc<Memory>) {
    let memory = Arc::new(Memory::default());
    let sink = Arc::clone(&memory);
    (Cluster::start_with(|options| options.history = Some(sink)).await, memory)
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_learns_of_an_end_that_is_not_kept() {
    let (cluster, memory) = cluster().await;
    cluster.create_pod("p", script("echo last words; exit 3")).await;
    until("the sink hears of it", || async { memory.count() == 1 }).await;
    // Whatever else the node does, the end waits for the sink.
    cluster.create_pod("other", script("exec sleep 1000")).await;
    cluster.wait_for("other", |pod| pod["status"]["phase"] == "Running").await;
    let pod = cluster.pod("p").await.unwrap();
    assert_ne!(pod["status"]["phase"], "Failed", "{pod:#}");
    let runs = memory.take();
    cluster.wait_for_end("p").await;
    let run = &runs[0];
    assert_eq!((run.pod_name.as_str(), run.node_name.as_str(), run.attempt), ("p", "here", 0));
    assert_eq!((run.exit_code, run.signal, run.reason.as_str()), (Some(3), None, "Error"));
    assert_eq!(run.container.as_deref(), Some("c"));
    assert!(run.started_at.is_some() && run.finished_at.is_some());
    let tail = run.log.as_ref().unwrap().read(1000).unwrap();
    assert_eq!((tail.bytes.as_slice(), tail.is_cut), (&b"last words\n"[..], false));
    // The other one does not end by itself.
    cluster.kill_nursery();
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_know_their_job_and_why_they_were_stopped() {
    let (cluster, memory) = cluster().await;
    let mut spec = script("echo up; sleep 1000");
    spec["nodeName"] = json!("here");
    let metadata = json!({
        "name": "p", "annotations": {"batch.kubernetes.io/job-completion-index": "7"},
        "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "pi", "uid": "u-1", "controller": true}],
    });
    cluster.create_pod_with(metadata, spec).await;
    cluster.wait_for("p", |pod| pod["status"]["phase"] == "Running").await;
    cluster.delete_pod("p", 1).await;
    until("the sink hears of it", || async { memory.count() == 1 }).await;
    let runs = memory.take();
    cluster.wait_until_gone("p").await;
    assert_eq!(runs[0].job, Some(JobRef { name: "pi".to_owned(), uid: "u-1".to_owned() }));
    assert_eq!(runs[0].index, Some(7));
    assert_eq!(runs[0].pod_reason.as_deref(), Some("Deleted"));
    assert!(runs[0].signal.is_some(), "{:?}", runs[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_never_ran_is_on_record_as_well() {
    let (cluster, memory) = cluster().await;
    let container = |command: &[&str]| json!({"name": "c", "image": "i", "command": command});
    let spec = |command: &[&str]| json!({"restartPolicy": "Never", "containers": [container(command)]});
    cluster.create_pod("missing", spec(&["/no/such"])).await;
    until("the sink hears of it", || async { memory.count() == 1 }).await;
    let run = memory.take().remove(0);
    assert_eq!((run.exit_code, run.reason.as_str()), (Some(128), "StartError"));
    assert!(run.message.unwrap().contains("no such file or directory"));
    cluster.wait_for_end("missing").await;
    cluster.create_pod("rejected", spec(&[])).await;
    until("the sink hears of it", || async { memory.count() == 1 }).await;
    let run = memory.take().remove(0);
    assert_eq!((run.container, run.exit_code, run.reason.as_str()), (None, None, "CommandRequired"));
}
