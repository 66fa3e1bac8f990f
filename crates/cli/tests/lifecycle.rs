//! A tally in the background: `up -d`, `status`, `down`, and how client commands find it.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use common::Sandbox;
use expect_test::expect;
use serde_json::Value;

const QUICK: [&str; 4] = ["up", "-d", "--listen", "127.0.0.1:0"];

/// Ends the tally of a sandbox whatever the test did.
struct Down<'a>(&'a Sandbox);

impl Drop for Down<'_> {
    fn drop(&mut self) {
        self.0.run(&["down"]);
    }
}

#[test]
fn it_starts_is_found_and_ends() {
    let sandbox = Sandbox::new();
    let _down = Down(&sandbox);
    let up = sandbox.run(&QUICK);
    assert!(up.stdout.starts_with("export KUBECONFIG=DIR/.local/share/tally/kubeconfig # tally "), "{up:?}");
    assert_eq!((up.code, up.stderr.as_str()), (Some(0), ""));

    let status: Value = serde_json::from_str(&sandbox.run(&["status", "-o", "json"]).stdout).unwrap();
    assert_eq!((&status["running"], &status["jobs"]["complete"]), (&true.into(), &0.into()));
    let text = sandbox.run(&["status"]);
    assert!(text.stdout.starts_with(&format!("running     process {}, v", status["pid"])), "{text:?}");
    assert!(text.stdout.contains("\nJobs        none\n"), "{text:?}");

    // Client commands find it without being told.
    let missing = sandbox.run(&["wait", "job/nope"]);
    assert!(
        missing.stderr.starts_with("error: there is no job/nope in namespace `default` on https://127"),
        "{missing:?}"
    );
    assert_eq!(missing.code, Some(2));

    let again = sandbox.run(&QUICK);
    assert_eq!(again.code, Some(1));
    assert!(again.stderr.contains("hint: another tally has it: `tally down --data "), "{again:?}");

    let down = sandbox.run(&["down"]);
    assert_eq!(down.stdout, format!("stopped tally (process {})\n", status["pid"]));
    sandbox.run(&["status"]).check_refused(
        3,
        expect![[r#"
            error: no tally runs on `DIR/.local/share/tally`

            hint: start one with `tally up -d`
        "#]],
    );
    let twice = sandbox.run(&["down"]);
    assert_eq!((twice.code, twice.stderr.as_str()), (Some(0), "no tally runs on `DIR/.local/share/tally`\n"));
}

#[test]
fn what_keeps_it_from_starting_is_said_at_once() {
    let sandbox = Sandbox::new();
    sandbox.file("file", "");
    sandbox.run(&["up", "-d", "--data", "file/x"]).check_refused(
        1,
        expect![[r#"
            error: use the data directory `DIR/file/x`
              caused by: Not a directory

            hint: pass a directory you may write to with `--data DIR`
        "#]],
    );
}

#[test]
fn a_killed_tally_does_not_run() {
    let sandbox = Sandbox::new();
    let _down = Down(&sandbox);
    sandbox.run(&QUICK);
    let status: Value = serde_json::from_str(&sandbox.run(&["status", "-o", "json"]).stdout).unwrap();
    let pid = rustix::process::Pid::from_raw(i32::try_from(status["pid"].as_i64().unwrap()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    common::until("it is gone", || sandbox.run(&["status"]).code == Some(3));
    let again = sandbox.run(&QUICK);
    assert_eq!(again.code, Some(0), "and can be started again: {again:?}");
}

#[test]
fn a_context_is_added_to_the_users_own_kubeconfig() {
    let sandbox = Sandbox::new();
    let _down = Down(&sandbox);
    fs::create_dir(sandbox.path().join(".kube")).unwrap();
    let theirs = "apiVersion: v1\nkind: Config\ncurrent-context: prod\ncontexts:\n- {name: prod, context: {cluster: c, user: u}}\n";
    let config = sandbox.file(".kube/config", theirs);
    assert_eq!(sandbox.run(&[&QUICK[..], &["--merge-kubeconfig"]].concat()).code, Some(0));
    let merged: Value = serde_saphyr::from_str(&fs::read_to_string(&config).unwrap()).unwrap();
    assert_eq!((&merged["current-context"], &merged["contexts"][1]["name"]), (&"prod".into(), &"tally".into()));
    assert_eq!(fs::metadata(&config).unwrap().permissions().mode() & 0o777, 0o600);
    let kubeconfig = config.to_str().unwrap();
    let found = sandbox.run(&["wait", "--kubeconfig", kubeconfig, "--context", "tally", "job/nope"]);
    assert!(found.stderr.contains("there is no job/nope"), "{found:?}");
}
