//! Bugs that others had, as tests by their numbers (REG-S…).

#![allow(clippy::unwrap_used, reason = "in a test a panic is a failure with a backtrace")]

mod common;
#[path = "common/syncs.rs"]
mod syncs;

use common::*;
use futures_util::FutureExt;
use store::testing::{Fault, ForgetfulDisk};
use store::{History, Options, ReadError, Revision, Store, Watch, Writing};

fn open(disk: &ForgetfulDisk) -> TestStore {
    let options = Options { writing: Writing::Inline, ..Options::default() };
    Store::open(disk.mount(), options, derive()).unwrap()
}

/// Everything that a watch has to say now.
fn pending(watch: &mut Watch<Attributes>) -> Vec<Revision> {
    let mut revisions = Vec::new();
    while let Some(events) = watch.next_batch(100).now_or_never() {
        revisions.extend(events.unwrap().iter().map(|event| event.revision()));
    }
    revisions
}

/// Everything that a watch has to say now, in whole events; or why it cannot.
fn pending_lines(watch: &mut Watch<Attributes>) -> Result<Vec<String>, ReadError> {
    let mut lines = Vec::new();
    while let Some(events) = watch.next_batch(100).now_or_never() {
        lines.extend(events?.iter().map(|event| event_line(event)));
    }
    Ok(lines)
}

/// REG-S01, INV-42 (etcd #14370): the power goes right after each acknowledgement.
#[tokio::test]
async fn reg_s01_what_was_acknowledged_survives_a_disk_that_forgets() {
    let disk = ForgetfulDisk::default();
    for number in 1..=20 {
        let store = open(&disk);
        assert_eq!(put(&store, &format!("t/{number:02}"), "x").await, number);
        // The power goes while the process still runs.
        disk.lose_power(0);
        drop(store);
        assert_eq!(listed(&open(&disk), "t/", None).unwrap().len() as u64, number);
    }
}

/// REG-S01, INV-42: the same with the engine and its files, of which as much is left as it had asked to be synced.
#[tokio::test]
async fn reg_s01_what_was_acknowledged_survives_in_the_engines_files_if_only_what_was_synced_is_left() {
    let directory = tempfile::tempdir().unwrap();
    for number in 1..=5 {
        let options = Options { writing: Writing::Inline, ..Options::default() };
        let store = open_fjall(directory.path(), options.clone()).unwrap();
        assert_eq!(put(&store, &format!("t/{number:02}"), "x").await, number);
        // The power goes while the process still runs: what that does in its end is lost too.
        let synced = syncs::synced_journals(directory.path());
        drop(store);
        synced.lose_power();
        let store = open_fjall(directory.path(), options).unwrap();
        assert_eq!(listed(&store, "t/", None).unwrap().len() as u64, number, "acknowledged and lost");
    }
}

/// REG-S03, INV-44 (etcd #15271): a watcher comes back to a server that was restarted, once with a write nobody had heard of.
#[tokio::test]
async fn reg_s03_a_watch_that_reconnects_never_goes_back() {
    for (fault, kept) in
        [(None, 0), (Some(Fault::BeforeSync), 0), (Some(Fault::BeforeSync), 9999), (Some(Fault::AfterSync), 0)]
    {
        let disk = ForgetfulDisk::default();
        let store = open(&disk);
        let mut watch = store.watch("t/", 0).unwrap();
        for _ in 0..5 {
            put(&store, "t/a", "x").await;
        }
        let mut seen = pending(&mut watch);
        if let Some(fault) = fault {
            disk.fail_next(fault);
            let _ = store.commit(store::Transaction::new().put("t/a", stamped("unheard"))).await.unwrap_err();
            assert_eq!(pending(&mut watch), [], "nothing is shown that may not be there tomorrow");
        }
        disk.lose_power(kept);
        drop(store);
        let store = open(&disk);
        let mut watch = store.watch("t/", *seen.last().unwrap()).unwrap();
        for _ in 0..3 {
            put(&store, "t/a", "x").await;
        }
        seen.extend(pending(&mut watch));
        let all: Vec<Revision> = (1..=store.revision()).collect();
        assert_eq!(seen, all, "{fault:?}: each once, in order, none twice");
    }
}

/// REG-S05, INV-43 (etcd #17780): the power goes at every write that compaction makes, and between them, again and again.
#[tokio::test]
async fn reg_s05_compaction_that_is_killed_never_takes_a_revision_back() {
    let disk = ForgetfulDisk::default();
    let mut acknowledged = 0;
    for round in 0..96_usize {
        // At first all that there is goes in one step at the end of a life; later lives compact as they go.
        let events_max = if round < 48 { History::default().events_max } else { 3 };
        let history = History { events_max, ..History::default() };
        let options = Options { history, writing: Writing::Inline, ..Options::default() };
        let store =
            Store::open(disk.mount(), options, derive()).unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert!(store.revision() >= acknowledged, "round {round}: from {acknowledged} back to {}", store.revision());
        assert!(store.compacted_revision() <= store.revision());
        // All are deleted in the end: only the checkpoint knows how far revisions had come.
        for key in ["t/a", "t/b"] {
            if store.get(key).is_none() {
                put(&store, key, "x").await;
            }
            acknowledged = delete(&store, key, "gone").await;
        }
        let fault = [Fault::BeforeWrite, Fault::Torn(round), Fault::BeforeSync, Fault::AfterSync][round % 4];
        disk.fail_at(disk.applied() + round / 4 % 3, fault);
        let _ = store.compact(u64::MAX).await;
        drop(store);
        disk.lose_power(round * 7 % 200);
    }
    assert!(acknowledged > 200, "{acknowledged}");
}

/// REG-S07, INV-44 (etcd #20221): a watch from a revision that is not reached yet.
#[tokio::test]
async fn reg_s07_a_watch_from_the_future_shows_nothing_up_to_there() {
    let store = open(&ForgetfulDisk::default());
    for _ in 0..5 {
        put(&store, "t/a", "x").await;
    }
    let from = store.revision() + 10;
    let mut watch = store.watch("t/", from).unwrap();
    for _ in 0..15 {
        put(&store, "t/a", "x").await;
        assert!(pending(&mut watch).iter().all(|revision| *revision > from));
    }
    let mut again = store.watch("t/", from).unwrap();
    assert_eq!(pending(&mut again), (from + 1..=store.revision()).collect::<Vec<_>>());
}

/// REG-S09, INV-44 (etcd #19179): watches at, just below and just above the compaction revision, with deletions there.
#[tokio::test]
async fn reg_s09_a_watch_around_the_compaction_revision_is_whole_or_told_so() {
    for through in 1..=8_u64 {
        let store = open(&ForgetfulDisk::default());
        // Every second change is a deletion, so that one is at, below and above each point.
        for _ in 0..4 {
            put(&store, "t/a", "x").await;
            delete(&store, "t/a", "last").await;
        }
        let around = through.saturating_sub(2)..=through + 2;
        let before: Vec<_> = around.map(|from| (from, store.watch("t/", from))).collect();
        let compacted = store.compact(through).await.unwrap();
        assert_eq!(compacted, through);
        let after: Vec<_> = before.iter().map(|(from, _)| (*from, store.watch("t/", *from))).collect();
        for (from, watch) in before.into_iter().chain(after) {
            match watch.and_then(|mut watch| pending_lines(&mut watch)) {
                Err(ReadError::Compacted { requested, oldest }) => {
                    assert!(from < through);
                    assert_eq!((requested, oldest), (from, through));
                }
                Err(other) => panic!("{other}"),
                Ok(lines) => {
                    // With its value and the one before, also where that is below the compaction revision.
                    let expected = (from + 1..=8).map(|revision| match revision % 2 {
                        1 => format!("{revision} + t/a x@{revision}! "),
                        _ => format!("{revision} - t/a last@{revision}! x@{}!", revision - 1),
                    });
                    assert_eq!(lines, expected.collect::<Vec<_>>(), "from {from} compacted at {through}");
                    assert!(from >= through, "from {from} compacted at {through}");
                }
            }
        }
    }
}
