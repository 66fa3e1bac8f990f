//! A process that is killed in the middle of its work, and the next one on the same directory.
//!
//! The test runs itself as the victim: the child writes, compacts all the time and prints every revision that was
//! acknowledged; the parent kills it, opens the directory and compares.

#![allow(clippy::unwrap_used, reason = "in a test a panic is a failure with a backtrace")]

mod common;

use common::*;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use store::{History, ListQuery, Options};

const DIRECTORY_VARIABLE: &str = "STORE_KILL_TEST_DIRECTORY";
const WRITERS: usize = 8;
const ROUNDS: usize = 4;
const ACKNOWLEDGED_PER_ROUND: usize = 400;

fn options() -> Options {
    Options { history: History { events_max: 64, ..History::default() }, ..Options::default() }
}

/// Writes until killed. Only does anything when it is run as the victim.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn victim() {
    let Ok(directory) = std::env::var(DIRECTORY_VARIABLE) else { return };
    let store = open_fjall(Path::new(&directory), options()).unwrap();
    let writers = (0..WRITERS).map(|writer| {
        let store = store.clone();
        tokio::spawn(async move {
            for number in 0.. {
                let key = format!("t/{writer}-{}", number % 5);
                let revision = match store.get(&key) {
                    Some(_) if number % 11 == 0 => delete(&store, &key, "x").await,
                    _ => put(&store, &key, &"x".repeat(300)).await,
                };
                let present = u8::from(store.get(&key).is_some());
                println!("ack {revision} {key} {present}");
                std::io::stdout().flush().unwrap();
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
}

#[test]
fn what_was_acknowledged_before_a_kill_is_there_after_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut newest = BTreeMap::new();
    let mut highest = 0;
    for round in 0..ROUNDS {
        let mut victim = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "victim", "--nocapture"])
            .env(DIRECTORY_VARIABLE, directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(victim.stdout.take().unwrap()).lines();
        let mut count = 0;
        for line in lines {
            // What the harness prints itself shares the stream.
            let line = line.unwrap();
            let Some(at) = line.find("ack ") else { continue };
            let fields: Vec<&str> = line[at..].split(' ').collect();
            let &["ack", revision, key, present] = fields.as_slice() else { continue };
            let revision: u64 = revision.parse().unwrap();
            assert!(revision > highest || count > 0, "round {round}: {revision} after {highest}");
            newest.insert(key.to_owned(), (revision, present == "1"));
            count += 1;
            if count == ACKNOWLEDGED_PER_ROUND {
                victim.kill().unwrap();
            }
        }
        victim.wait().unwrap();
        let store = open_fjall(directory.path(), options()).unwrap();
        highest = store.revision();
        // Each writer can have made one change more than it could tell.
        let mut untold: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (key, (revision, present)) in &newest {
            assert!(highest >= *revision);
            let changed = match store.get(key) {
                Some(entry) => {
                    assert!(entry.revision >= *revision, "{key}");
                    assert!(text(&entry.value()).ends_with(&format!("@{}!", entry.revision)));
                    entry.revision > *revision
                }
                None => *present,
            };
            if changed {
                untold.entry(key.split('-').next().unwrap()).or_default().push(key);
            }
        }
        assert!(untold.values().all(|keys| keys.len() <= 1), "round {round}: not as acknowledged: {untold:?}");
        let list = store.list(&ListQuery::new("t/")).unwrap();
        assert_eq!(list.entries.len(), store.stats().keys);
        newest = list.entries.iter().map(|entry| (entry.key.to_string(), (entry.revision, true))).collect();
    }
}
