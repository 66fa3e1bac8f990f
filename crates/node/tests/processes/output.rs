//! What a container says: kept, rotated, capped.

use node::logs::Bounds;

use crate::support::{self, Cluster, until};
use crate::{script, terminated};

#[tokio::test(flavor = "multi_thread")]
async fn output_can_be_read() {
    let cluster = Cluster::start().await;
    cluster.create_pod("p", script("echo out; echo err >&2; echo no newline at the end | tr -d '\\n'")).await;
    cluster.wait_for_end("p").await;
    assert_eq!(cluster.log("p").await, "out\nerr\nno newline at the end\n");
}

/// BI-107: 5 MB into files of 20 kB.
#[tokio::test(flavor = "multi_thread")]
async fn loud_containers_are_rotated_and_capped() {
    let cluster = Cluster::start_with(|options| options.log = Bounds { file_bytes_max: 20_000, files_max: 3 }).await;
    cluster.create_pod("p", script("yes 0123456789 | head -c 5000000; seq 1 20000")).await;
    cluster.wait_for_end("p").await;
    let log = cluster.log("p").await;
    assert!(log.ends_with("\n19999\n20000\n"), "the end is kept");
    let kept = support::bytes_below(&cluster.node_directory().join("logs"));
    assert!((20_000..60_001).contains(&kept), "{kept}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exit_is_noticed_without_outputs_too() {
    let cluster = Cluster::start().await;
    cluster.create_pod("p", script("echo before; exec >&- 2>&-; sleep 0.1; exit 3")).await;
    let pod = cluster.wait_for_end("p").await;
    assert_eq!(terminated(&pod)["exitCode"], 3, "BI-107");
    assert_eq!(cluster.log("p").await, "before\n");
}

/// A daemon that keeps the outputs open does not keep the container alive.
#[tokio::test(flavor = "multi_thread")]
async fn an_exit_is_noticed_while_others_hold_the_outputs() {
    let cluster = Cluster::start().await;
    cluster.create_pod("p", script("setsid sleep 1000 & echo $!; exit 3")).await;
    let pod = cluster.wait_for_end("p").await;
    assert_eq!(terminated(&pod)["exitCode"], 3, "BI-107");
    let daemon: i32 = cluster.log("p").await.trim().parse().unwrap();
    until("the daemon is gone", || async { !support::is_alive(daemon) }).await;
}

/// BI-89: whatever a container puts in the place of its log, nothing else is read, and nobody hangs.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_was_replaced_is_not_read() {
    let cluster = Cluster::start().await;
    cluster.create_pod("p", script("echo mine")).await;
    let pod = cluster.wait_for_end("p").await;
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    let log = cluster.node_directory().join("logs").join(uid).join("c/0.log");
    let outside = cluster.directory().join("outside");
    std::fs::write(&outside, "2026-01-01T00:00:00.000000000Z F not yours\n").unwrap();
    let replacements: [(&str, &dyn Fn()); 3] = [
        ("symlink", &|| std::os::unix::fs::symlink(&outside, &log).unwrap()),
        ("directory", &|| std::fs::create_dir(&log).unwrap()),
        ("FIFO", &|| {
            let kind = rustix::fs::FileType::Fifo;
            rustix::fs::mknodat(rustix::fs::CWD, &log, kind, rustix::fs::Mode::RWXU, 0).unwrap();
        }),
    ];
    for (what, replace) in replacements {
        std::fs::remove_file(&log).or_else(|_| std::fs::remove_dir(&log)).unwrap();
        replace();
        let error = cluster.try_log("p").await.unwrap_err();
        assert!(error.starts_with("read the log of container `c`"), "{what}: {error}");
    }
}
