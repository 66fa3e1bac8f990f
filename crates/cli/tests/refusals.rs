//! Whatever is wrong, every command says `error: …` and `hint: …`, and ends with a code that scripts can tell apart.
//!
//! Each test is one kind of trouble, tried on the commands that can meet it. What a command says in detail is compared
//! where that command is tested.

mod common;

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc;
use std::thread;

use common::{PATIENCE, Ran, Sandbox, example, signal, wait};
use expect_test::expect;
use rustix::process::Signal;
use serde_json::json;
use testkit::Tally;

/// Commands that talk to a server, with enough words to get that far.
const CLIENTS: [&[&str]; 6] = [
    &["why", "job/x"],
    &["wait", "job/x"],
    &["logs", "job/x"],
    &["rerun", "job/x"],
    &["bench", "--jobs", "1"],
    &["controller", "--leader-elect=false"],
];

/// The form that all refusals have: nothing on stdout, no stack trace, no number of the system.
fn check_form(what: &str, ran: &Ran, code: i32) {
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(code), ""), "{what}: {ran:?}");
    assert!(ran.stderr.starts_with("error: "), "{what}: {ran:?}");
    let (error, hint) = ran.stderr.split_once("\n\nhint: ").unwrap_or_else(|| panic!("{what}: no hint: {ran:?}"));
    assert!(!hint.trim().is_empty() && hint.trim_end().lines().count() == 1, "{what}: {ran:?}");
    for unwanted in ["os error", "panicked", "stack backtrace", "RUST_BACKTRACE"] {
        assert!(!ran.stderr.contains(unwanted), "{what}: {ran:?}");
    }
    assert!(error.lines().skip(1).all(|line| line.starts_with("  ")), "{what}: {ran:?}");
}

fn kubeconfig(server: &str, user: serde_json::Value) -> String {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server, "insecure-skip-tls-verify": true}}],
        "users": [{"name": "c", "user": user}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
    })
    .to_string()
}

#[test]
fn a_kubeconfig_that_cannot_be_used() {
    let sandbox = Sandbox::new();
    sandbox.file("torn", "x: [");
    sandbox.file("empty-context", "apiVersion: v1\nkind: Config\ncurrent-context: gone\n");
    fs::write(sandbox.path().join("bytes"), [0xff, 0xfe, 0]).unwrap();
    fs::create_dir(sandbox.path().join("folder")).unwrap();
    for command in CLIENTS {
        for file in ["missing", "torn", "empty-context", "bytes", "folder"] {
            let ran = sandbox.run(&[command, &["--kubeconfig", file]].concat());
            check_form(&format!("{command:?} {file}"), &ran, 1);
            assert!(ran.stderr.starts_with(&format!("error: read the kubeconfig `{file}`\n")), "{ran:?}");
        }
        check_form(&format!("{command:?} without a cluster"), &sandbox.run(command), 1);
    }
}

#[test]
fn a_server_that_has_gone_away() {
    let sandbox = Sandbox::new();
    // Nobody listens on a port that was free a moment ago.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    sandbox.file("config", &kubeconfig(&format!("https://{free}"), json!({})));
    for command in CLIENTS {
        let ran = sandbox.run(&[command, &["--kubeconfig", "config"]].concat());
        check_form(&format!("{command:?}"), &ran, 1);
        assert!(ran.stderr.contains("Connection refused"), "{ran:?}");
    }
}

/// It accepts connections and never says a word. What has no limit of its own is given up after half a minute (the unit
/// tests of `patience`, whose clock is faster).
#[test]
fn a_server_that_never_answers() {
    let sandbox = Sandbox::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    sandbox.file("config", &kubeconfig(&format!("http://{address}"), json!({})));
    let (told, asked) = mpsc::channel();
    thread::spawn(move || {
        let mut kept = Vec::new();
        for stream in listener.incoming() {
            kept.push(stream);
            let _ = told.send(());
        }
    });
    for command in [&["wait", "job/x", "--timeout", "1s"][..], &["bench", "--timeout", "1s"]] {
        let ran = sandbox.run(&[command, &["--kubeconfig", "config"]].concat());
        check_form(&format!("{command:?}"), &ran_without_notes(ran, address), 124);
    }
    while asked.try_recv().is_ok() {}
    for (command, stop, code) in [
        (&["bench"][..], Signal::INT, 130),
        (&["bench"], Signal::TERM, 143),
        (&["controller"], Signal::INT, 0),
        (&["controller"], Signal::TERM, 0),
    ] {
        let mut command = sandbox.command(&[command, &["--kubeconfig", "config"]].concat());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // It asks something, so it listens to signals.
        asked.recv_timeout(PATIENCE).unwrap();
        signal(&child, stop);
        assert_eq!(wait(&mut child).code(), Some(code), "{command:?}");
        while asked.try_recv().is_ok() {}
    }
}

/// The server is named; that something may be left behind is said apart.
fn ran_without_notes(ran: Ran, address: SocketAddr) -> Ran {
    let (notes, error): (Vec<&str>, Vec<&str>) = ran.stderr.lines().partition(|line| line.starts_with("note: "));
    assert!(notes.iter().all(|note| note.contains("may be left behind")), "{notes:?}");
    let stderr = error.join("\n") + "\n";
    assert!(stderr.starts_with(&format!("error: http://{address} has not answered within 1.0s\n")), "{stderr}");
    Ran { stderr, ..ran }
}

/// Wrong credentials, and right ones without permission.
#[test]
fn a_server_that_refuses() {
    let sandbox = Sandbox::new();
    let data = sandbox.path().join("data");
    let server = Tally::start(env!("CARGO_BIN_EXE_tally").as_ref(), &data, &["--node", "none"]).unwrap();
    let (_, url) = server.ready_line().split_once("ready at ").unwrap();
    let url = url.split(',').next().unwrap();
    let token = fs::read_to_string(data.join("token")).unwrap();
    sandbox.file("stranger", &kubeconfig(url, json!({"token": "0".repeat(64)})));
    sandbox.file("nobody", &kubeconfig(url, json!({"token": token.trim(), "as": "nobody"})));
    for command in CLIENTS {
        for (file, said) in [("stranger", "Unauthorized"), ("nobody", "nobody")] {
            let ran = sandbox.run(&[command, &["--kubeconfig", file]].concat());
            check_form(&format!("{command:?} as {file}"), &ran, 1);
            assert!(!ran.stderr.contains("Status {"), "{ran:?}");
            // The controller names what it may not do; the others pass on what the server says.
            assert!(ran.stderr.contains(said) || ran.stderr.contains("lack permissions"), "{ran:?}");
        }
    }
}

#[test]
fn directories_that_are_not_one_or_hold_something_else() {
    let sandbox = Sandbox::new();
    sandbox.file("file", "");
    let listen = ["--listen", "127.0.0.1:0"];
    for (what, data) in [("below a file", "file/data"), ("a file", "file"), ("of the kernel", "/proc/tally")] {
        for command in [&[&["up"], &listen[..]].concat()[..], &[&["up", "-d"], &listen[..]].concat(), &["run"]] {
            let more: &[&str] = if command[0] == "run" { &["--", "true"] } else { &[] };
            let ran = sandbox.run(&[command, &["--data", data], more].concat());
            check_form(&format!("{command:?} on a directory {what}"), &ran, 1);
        }
    }
    for (file, text) in [("token", "short"), ("pki/service-account.key", "nonsense"), ("tally.json/x", "")] {
        let data = sandbox.path().join(file.replace('/', "-"));
        let path = data.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::set_permissions(&data, fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(&path, text).unwrap();
        let ran = sandbox.run(&[&["up", "--data", data.to_str().unwrap()], &listen[..]].concat());
        check_form(&format!("up with `{file}`"), &ran, 1);
        assert!(ran.stderr.contains(file.split('/').next().unwrap()), "it is named: {ran:?}");
    }
}

/// A store whose files are not what was written.
#[test]
fn a_store_that_is_damaged() {
    let sandbox = Sandbox::new();
    let kept = ["run", "-q", "--data", "kept", "--", "true"];
    assert_eq!(sandbox.run(&kept).code, Some(0));
    let store = sandbox.path().join("kept/store");
    let mut spoilt = 0;
    for entry in files(&store) {
        let mut bytes = fs::read(&entry).unwrap();
        let middle = bytes.len() / 2;
        if let Some(byte) = bytes.get_mut(middle) {
            *byte ^= 0xff;
            spoilt += 1;
            fs::write(&entry, bytes).unwrap();
        }
    }
    assert!(spoilt > 0);
    let ran = sandbox.run(&["up", "--data", "kept", "--listen", "127.0.0.1:0"]);
    check_form("up", &ran, 1);
    assert!(ran.stderr.starts_with("error: open the store in `DIR/kept/store`\n"), "{ran:?}");
}

fn files(directory: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).expect("a directory") {
        let entry = entry.expect("an entry");
        match entry.path().is_dir() {
            true => found.extend(files(&entry.path())),
            false => found.push(entry.path()),
        }
    }
    found
}

#[test]
fn a_description_of_the_running_process_that_makes_no_sense() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path().join("data")).unwrap();
    sandbox.file("data/tally.json", "{");
    for command in [&["status"][..], &["down"], &["wait", "job/x"], &["why", "job/x"], &["logs", "job/x"]] {
        sandbox.run(&[command, &["--data", "data"]].concat()).check_refused(
            1,
            match command[0] {
                "status" | "down" => expect![[r#"
                    error: understand `DIR/data/tally.json`
                      caused by: EOF while parsing an object at line 1 column 1

                    hint: the file only says which process runs here: remove it if none does
                "#]],
                _ => expect![[r#"
                    error: understand `data/tally.json`
                      caused by: EOF while parsing an object at line 1 column 1

                    hint: the file only says which process runs here: remove it if none does
                "#]],
            },
        );
    }
}

/// `/dev/full` is a disk without room.
#[test]
fn output_that_nobody_takes() {
    let sandbox = Sandbox::new();
    let commands: [&[&str]; 6] = [
        &["version"],
        &["version", "-o", "json"],
        &["completion", "bash"],
        &["run", "--dry-run=client", "--", "true"],
        &["run", "-q", "--", "echo", "something"],
        &["status", "-o", "json"],
    ];
    for command in commands {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = sandbox.command(command).stdout(Stdio::from(full)).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{command:?}: {stderr}");
        assert_eq!(
            stderr,
            "error: write to standard output\n  caused by: No space left on device\n\nhint: is the disk full?\n",
            "{command:?}"
        );
        // A reader that has gone away before the first byte.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = sandbox.command(command).stdout(writer).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(141), "{command:?}: {stderr}");
        assert!(stderr.starts_with("error: nobody reads the output any more"), "{command:?}: {stderr}");
    }
}

/// What is said beside the work may get lost; the work goes on.
#[test]
fn words_that_nobody_hears() {
    let sandbox = Sandbox::new();
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = sandbox.command(&["run", "-v", &example("indexed-job.yaml")]);
    let output = command.stderr(Stdio::from(full())).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 10);
    let failed = sandbox.command(&["run", "missing.yaml"]).stderr(Stdio::from(full())).output().unwrap();
    assert_eq!(failed.status.code(), Some(2));
}

#[test]
fn words_that_mean_nothing() {
    let sandbox = Sandbox::new();
    for words in [
        &["run", "--completions", "-1", "--", "true"][..],
        &["run", "--parallelism", "999999999999", "--", "true"],
        &["run", "--node", "cloud", "--", "true"],
        &["run", "--node", "simulated=0", "--", "true"],
        &["up", "--simulate-failure-share", "2"],
        &["up", "--listen", "127.0.0.1:80:1"],
        &["up", "--feature-gates", "X=1"],
        &["up", "--controllers", "jobs"],
        &["down", "--timeout", "soon"],
        &["status", "-o", "yaml"],
        &["why"],
        &["why", "node/x"],
        &["why", "job/"],
        &["wait"],
        &["wait", "job/x", "--timeout", "soon"],
        &["logs", "job/x", "--index", "3-1"],
        &["history", "node/x"],
        &["history", "--index", "z"],
        &["history", "--since", "yesterday"],
        &["rerun", "pod/x"],
        &["rerun", "job/x", "--name", "Bad_"],
        &["bench", "--jobs", "0"],
        &["controller", "--managed-by", "jobs"],
        &["controller", "--kube-api-qps", "-1"],
        &["completion"],
        &["man"],
        &["version", "extra"],
        &["help"],
    ] {
        check_form(&format!("{words:?}"), &sandbox.run(words), 2);
    }
}
