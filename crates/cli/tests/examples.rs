//! Every manifest in `examples/` runs as it is, and ends as its first line says.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use common::{Sandbox, example, examples};

/// A manifest, how a run of it ends, and what one sees.
const EXAMPLES: [(&str, i32, &[&str]); 14] = [
    ("config.yaml", 0, &["] good morning\n", "] Dear reader,\n", "] the token has 14 characters\n"]),
    ("cronjob.yaml", 0, &["[nightly/"]),
    ("deadline.yaml", 1, &["] this takes forever\n"]),
    ("failed-indexes.yaml", 1, &["[some-fail/0] piece 0 is fine\n", "[some-fail/3] piece 3 is broken\n"]),
    ("failing.yaml", 1, &["] cannot reach the database\n"]),
    ("failure-policy.yaml", 1, &["] the input is wrong\n"]),
    ("hello.yaml", 0, &["] hello from hello-"]),
    ("indexed-job.yaml", 0, &["[pieces/0] working on piece 0\n", "[pieces/9] working on piece 9\n"]),
    ("job.yaml", 0, &["] hello from hello-"]),
    ("pipeline/", 0, &["[extract/", "[load/"]),
    ("retries.yaml", 0, &["] not this time\n", "] it works now\n"]),
    ("sidecar.yaml", 0, &[" helper] helping\n", " main] working\n"]),
    ("success-policy.yaml", 0, &["[success-policy/0] found it\n"]),
    ("work-queue.yaml", 0, &["] the queue is empty\n"]),
];

#[test]
fn all_examples_are_known_here() {
    let names = fs::read_dir(examples()).unwrap().map(|entry| {
        let entry = entry.unwrap();
        let slash = if entry.file_type().unwrap().is_dir() { "/" } else { "" };
        format!("{}{slash}", entry.file_name().to_str().unwrap())
    });
    let known = EXAMPLES.iter().map(|(name, ..)| (*name).to_owned());
    assert_eq!(names.collect::<BTreeSet<_>>(), known.collect::<BTreeSet<_>>());
}

#[test]
fn examples_end_as_they_say() {
    let sandbox = Sandbox::new();
    for (name, code, lines) in EXAMPLES {
        let ran = sandbox.run(&["run", "--pod-failure-backoff", "100ms", &example(name)]);
        assert_eq!(ran.code, Some(code), "{name}: {ran:?}");
        for line in lines {
            assert!(ran.stdout.contains(line), "{name} shows {line:?}: {ran:?}");
        }
    }
    let left: Vec<_> = fs::read_dir(sandbox.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["stdin"], "runs leave nothing behind");
}

/// What a pod says is shown while it runs. How soon, the benchmarks tell (`cargo xtask bench`).
#[test]
fn the_first_line_does_not_wait_for_the_end() {
    let sandbox = Sandbox::new();
    let script = "echo first; while ! [ -e gate ]; do sleep 0.02; done; echo last";
    let arguments = ["run", "-q", "--", "sh", "-c", script];
    let mut child = sandbox.command(&arguments).stdout(Stdio::piped()).spawn().expect("start tally");
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.next().is_some_and(|line| line.ends_with("] first")));
    sandbox.file("gate", "");
    assert!(lines.next().is_some_and(|line| line.ends_with("] last")));
    assert!(common::wait(&mut child).success());
}
