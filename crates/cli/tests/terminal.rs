//! The same commands on a terminal: bars instead of lines, colours unless they are unwanted.

mod common;

use common::{Sandbox, example, finish_on_terminal, signal, until};
use rustix::process::Signal;

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
