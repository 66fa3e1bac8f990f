//! The same commands on a terminal: bars instead of lines, colours unless they are unwanted.

mod common;

use common::world::{World, indexed};
use common::{Sandbox, example, finish_on_terminal, signal, until};
use rustix::process::Signal;
use serde_json::json;

/// What is left on the screen when control sequences have done their work: the lines that were not erased.
fn screen(text: &str) -> Vec<String> {
    let (mut lines, mut row) = (vec![String::new()], 0);
    let mut rest = text;
    while let Some(char) = rest.chars().next() {
        rest = &rest[char.len_utf8()..];
        match char {
            '\n' => {
                row += 1;
                if row == lines.len() {
                    lines.push(String::new());
                }
            }
            '\r' => {}
            '\x1b' => {
                let end = rest.find(|char: char| char.is_ascii_alphabetic()).map_or(rest.len(), |at| at + 1);
                let (sequence, after) = rest.split_at(end);
                let number = sequence[1..end - 1].parse().unwrap_or(1);
                match sequence.chars().next_back() {
                    Some('A') => row = row.saturating_sub(number),
                    Some('B') => row = (row + number).min(lines.len() - 1),
                    Some('K') => lines[row].clear(),
                    _ => {}
                }
                rest = after;
            }
            _ => lines[row].push(char),
        }
    }
    lines.into_iter().map(|line| line.trim_end().to_owned()).filter(|line| !line.is_empty()).collect()
}

#[test]
fn bars_come_and_go_and_lines_stay() {
    let sandbox = Sandbox::new();
    let ran = sandbox.run_on_terminal(&["run", &example("indexed-job.yaml")]);
    assert_eq!(ran.code, Some(0), "{}", ran.stdout);
    assert!(ran.stdout.contains("pieces [----"), "a bar was drawn: {}", ran.stdout);
    assert!(ran.stdout.contains("\x1b[36m[pieces/3]\x1b[0m working on piece 3"), "{}", ran.stdout);
    let left = screen(&ran.stdout);
    assert!(left.iter().all(|line| !line.contains("[---")), "no bar is left: {left:?}");
    assert_eq!(left.iter().filter(|line| line.contains("working on piece")).count(), 10, "{left:?}");
    assert!(left.last().is_some_and(|line| line.starts_with("job/pieces complete in ")), "{left:?}");
}

#[test]
fn colours_can_be_unwanted() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.command(&["run", &example("indexed-job.yaml")]);
    command.env("NO_COLOR", "1");
    let (child, reader) = sandbox.on_terminal(command);
    let ran = finish_on_terminal(child, reader);
    assert!(ran.stdout.contains("[pieces/3] working on piece 3"), "{}", ran.stdout);
    assert!(!ran.stdout.contains("\x1b[36m"), "{}", ran.stdout);
}

/// One that only knows lines gets lines.
#[test]
fn a_dumb_terminal_gets_no_control_codes() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.command(&["run", &example("indexed-job.yaml")]);
    command.env("TERM", "dumb");
    let (child, reader) = sandbox.on_terminal(command);
    let ran = finish_on_terminal(child, reader);
    assert!(ran.stdout.contains("[pieces/3] working on piece 3"), "{}", ran.stdout);
    assert!(ran.stdout.contains("job/pieces complete in ") && !ran.stdout.contains('\x1b'), "{}", ran.stdout);
}

#[test]
fn quiet_means_no_bars() {
    let sandbox = Sandbox::new();
    let ran = sandbox.run_on_terminal(&["run", "--quiet", &example("indexed-job.yaml")]);
    assert_eq!(screen(&ran.stdout).len(), 10, "{}", ran.stdout);
}

#[test]
fn failures_read_the_same_on_a_terminal() {
    let sandbox = Sandbox::new();
    let ran = sandbox.run_on_terminal(&["run", "--logs=none", &example("failed-indexes.yaml")]);
    let left = screen(&ran.stdout);
    assert_eq!(ran.code, Some(1));
    assert!(left.contains(&"job/some-fail: FailedIndexes: Job has failed indexes".to_owned()), "{left:?}");
    assert!(left.contains(&"    | piece 3 is broken".to_owned()), "{left:?}");
    assert!(left.contains(&"error: the Job failed".to_owned()), "{left:?}");
}

#[test]
fn ctrl_c_on_a_terminal_leaves_no_bar() {
    let sandbox = Sandbox::new();
    let mark = sandbox.path().join("begun");
    let script = "touch begun; trap 'exit 0' TERM; while :; do sleep 0.05; done";
    let (child, reader) = sandbox.start_on_terminal(&["run", "--", "sh", "-c", script]);
    until("the pod runs", || mark.exists());
    signal(&child, Signal::INT);
    let ran = finish_on_terminal(child, reader);
    assert_eq!(ran.code, Some(130), "{}", ran.stdout);
    let left = screen(&ran.stdout);
    assert!(left.iter().all(|line| !line.contains("[---")), "{left:?}");
    assert!(left.contains(&"error: interrupted: 1 Job did not finish".to_owned()), "{left:?}");
}

#[test]
fn errors_read_the_same_on_a_terminal() {
    let sandbox = Sandbox::new();
    for arguments in [&["run", "missing.yaml"][..], &["run"], &["wait", "pod/x"], &["status"], &["logs"]] {
        let ran = sandbox.run_on_terminal(arguments);
        let left = screen(&ran.stdout);
        assert!(left.first().is_some_and(|line| line.starts_with("error: ")), "{arguments:?}: {left:?}");
        assert!(left.iter().any(|line| line.starts_with("hint: ")), "{arguments:?}: {left:?}");
    }
}

/// The words of a text, whatever its lines, with all numbers alike: times pass between two runs.
fn words(text: &str) -> Vec<String> {
    let is_number = |char: char| char.is_ascii_digit() || char == '.';
    let alike = |word: &str| {
        let mut parts: Vec<&str> = word.split(is_number).collect();
        parts.dedup();
        parts.join("#")
    };
    // What happened within this second happened one second ago when asked again.
    let text = text.replace("now", "0s ago");
    text.split_whitespace().map(alike).collect()
}

/// Whoever reads it, a command says the same and ends the same.
#[tokio::test(flavor = "multi_thread")]
async fn commands_say_the_same_on_a_terminal_as_on_a_pipe() {
    let world = World::new().await;
    world.create("good", indexed(2), "echo said by $JOB_COMPLETION_INDEX").await;
    world.create("bad", json!({"backoffLimit": 0}), "echo broken; exit 3").await;
    world.create("held", json!({"suspend": true}), "true").await;
    assert_eq!(world.run(&["wait", "job/good", "job/bad"]).code, Some(1));
    let data = world.sandbox.path().join("data").display().to_string();
    let server = ["--kubeconfig", world.server.kubeconfig().to_str().unwrap()];
    let folder = ["--data", data.as_str()];
    let cases: [(&[&str], &[&str], &str); 13] = [
        (&["wait", "job/good"], &server, "job.batch/good complete"),
        (&["wait", "job/bad"], &server, "error: job/bad failed: BackoffLimitExceeded"),
        (&["wait", "job/held", "--timeout", "10ms"], &server, "error: job/held has not finished"),
        (&["logs", "job/good"], &server, "[good/1] said by 1"),
        (&["logs", "job/bad", "--failed"], &server, "broken"),
        (&["why", "job/good"], &server, "job/good"),
        (&["why", "job/bad"], &server, "job/bad"),
        (&["why", "job/held"], &server, "suspended"),
        (&["why", "job/nope"], &server, "error: "),
        (&["history", "job/bad"], &folder, "bad"),
        (&["status"], &folder, "running"),
        // Last: what it starts changes what `status` shows.
        (&["rerun", "job/good"], &server, "good-rerun-"),
        (&["version"], &[], "tally"),
    ];
    for (command, target, told) in cases {
        let arguments = [command, target].concat();
        let piped = world.sandbox.run(&arguments);
        let shown = world.sandbox.run_on_terminal(&arguments);
        let text = screen(&shown.stdout).join("\n").replace(&world.sandbox.path().display().to_string(), "DIR");
        let both = format!("{}{}", piped.stdout, piped.stderr);
        assert!(both.contains(told) && text.contains(told), "{command:?}: {both}\n{text}");
        assert_eq!((words(&text), shown.code), (words(&both), piped.code), "{command:?}");
        assert!(!both.contains('\x1b'), "{command:?}: no colours on a pipe");
    }
    let bench = ["bench", "--jobs", "1", "--completions", "2"];
    let bench = world.sandbox.run_on_terminal(&[&bench[..], &server].concat());
    assert!(screen(&bench.stdout).iter().any(|line| line.starts_with("throughput ")), "{}", bench.stdout);
    assert_eq!(bench.code, Some(0));
    let down = world.sandbox.run_on_terminal(&[&["down"][..], &folder].concat());
    assert!(screen(&down.stdout)[0].starts_with("stopped tally (process "), "{}", down.stdout);
    assert_eq!(down.code, Some(0));
}
