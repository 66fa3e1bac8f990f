//! What a process finds around it: its working directory, its descriptors, its signals (PL-133).

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::Cluster;
use crate::{script, terminated};

/// A pod whose container starts in `directory` and mounts a volume `v` at `/tally-v`.
fn working_in(directory: &str, volume: Value, text: &str) -> Value {
    let mut spec = script(text);
    spec["containers"][0]["workingDir"] = json!(directory);
    spec["volumes"] = json!([volume]);
    spec["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/tally-v"}]);
    spec
}

fn empty_volume() -> Value {
    json!({"name": "v", "emptyDir": {}})
}

/// The directories above it are closed to that user; a hook comes to the same place.
#[tokio::test(flavor = "multi_thread")]
async fn another_user_can_use_the_path_of_its_working_directory() {
    if !rustix::process::geteuid().is_root() {
        // Rejected at once otherwise, which the rules of admission test.
        return;
    }
    let cluster = Cluster::start().await;
    let mut spec = script(
        "until test -e hooked; do sleep 0.02; done; touch x && touch \"$PWD/y\" && cd .. && ls \"$OLDPWD\"; \
         stat -c %u:%a \"$OLDPWD\"",
    );
    spec["securityContext"] = json!({"runAsUser": 12345, "runAsGroup": 23456});
    spec["containers"][0]["lifecycle"] =
        json!({"postStart": {"exec": {"command": ["sh", "-c", "touch \"$PWD/hooked\""]}}});
    for name in ["first", "second"] {
        cluster.create_pod(name, spec.clone()).await;
        let pod = cluster.wait_for_end(name).await;
        assert_eq!(cluster.log(name).await, "hooked\nx\ny\n12345:700\n", "{pod:#}");
    }
    for closed in ["", "work", "nursery", "logs", "pods"] {
        let mode = std::fs::metadata(cluster.node_directory().join(closed)).unwrap().mode();
        assert_eq!(mode & 0o777, 0o700, "{closed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_user_can_open_its_output() {
    if !rustix::process::geteuid().is_root() {
        // As above.
        return;
    }
    let cluster = Cluster::start().await;
    let mut spec = script("echo a >/dev/stdout; echo b >/dev/stderr");
    spec["securityContext"] = json!({"runAsUser": 12345});
    cluster.create_pod("p", spec).await;
    let pod = cluster.wait_for_end("p").await;
    assert_eq!(cluster.log("p").await, "a\nb\n", "{pod:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_working_directory_is_made_where_the_machine_does_not_notice() {
    let cluster = Cluster::start().await;
    for (name, directory) in
        [("volume", "/tally-v/a/b"), ("root", "/tally-none/a"), ("above", "/tally-v/../tally-none")]
    {
        let text = "stat -c %a .; cd \"$PWD\" && touch file && echo wrote";
        cluster.create_pod(name, working_in(directory, empty_volume(), text)).await;
        let pod = cluster.wait_for_end(name).await;
        assert_eq!(cluster.log(name).await, "755\nwrote\n", "{pod:#}");
        assert!(!Path::new("/tally-none").exists() && !Path::new("/tally-v").exists());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_working_directory_of_the_machine_is_an_error() {
    let cluster = Cluster::start().await;
    let outside = cluster.directory().join("outside");
    std::fs::create_dir(&outside).unwrap();
    cluster.create("configmaps", json!({"metadata": {"name": "m"}, "data": {"k": "v"}})).await;
    let map = json!({"name": "v", "configMap": {"name": "m"}});
    let machine = outside.join("none").display().to_string();
    let link = json!([{
        "name": "i", "image": "i", "command": ["ln", "-s", &outside, "/tally-v/link"],
        "volumeMounts": [{"name": "v", "mountPath": "/tally-v"}],
    }]);
    for (name, directory, volume) in [
        ("machine", machine.as_str(), empty_volume()),
        ("read-only", "/tally-v/none", map),
        ("link", "/tally-v/link/none", empty_volume()),
    ] {
        let mut spec = working_in(directory, volume, "true");
        if name == "link" {
            spec["initContainers"] = link.clone();
        }
        cluster.create_pod(name, spec).await;
        let pod = cluster.wait_for_end(name).await;
        assert_eq!(terminated(&pod)["reason"], "StartError", "{name}: {pod:#}");
        let message = terminated(&pod)["message"].as_str().unwrap();
        assert!(message.contains(&format!("chdir to cwd ({directory:?}) failed")), "{message}");
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0, "{name}");
    }
}

/// `nohup`, a shell with a strict umask, a supervisor that leaves files open.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_comes_down_from_whoever_started_the_node() {
    let cluster = Cluster::start_with(|options| {
        let text = "trap '' HUP INT QUIT USR1 CHLD TERM; umask 077; exec 7</dev/zero; exec \"$0\" \"$1\"";
        options.nursery_command.splice(0..0, ["sh", "-c", text].map(Into::into));
    })
    .await;
    let text = "umask; readlink /proc/self/fd/7 || echo none; grep SigIgn /proc/self/status";
    cluster.create_pod("p", script(text)).await;
    let pod = cluster.wait_for_end("p").await;
    let log = cluster.log("p").await;
    let mask = log.strip_prefix("0022\nnone\nSigIgn:\t").unwrap_or_else(|| panic!("{log}: {pod:#}"));
    let ignored = u64::from_str_radix(mask.trim(), 16).unwrap();
    // The two behind the first 31 are the C library's own; nobody else can change them.
    assert_eq!(ignored & 0x7fff_ffff, 0, "{log}");
}
