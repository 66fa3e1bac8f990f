//! Power loss at every point of every write, and a disk that fails: acknowledged is durable (INV-42, REG-S01), the rest
//! is there whole or not at all, and revisions go on where they were (INV-43, REG-S05).

#![allow(clippy::unwrap_used, reason = "in a test a panic is a failure with a backtrace")]

mod common;

use common::model::Model;
use common::*;
use store::testing::{Fault, ForgetfulDisk};
use store::{CommitError, History, Options, Store, Transaction};

/// A short life with puts, deletes, transactions of several operations, and compaction in between.
fn script() -> Vec<Vec<(&'static str, bool)>> {
    let puts = |keys: &[&'static str]| keys.iter().map(|key| (*key, false)).collect::<Vec<_>>();
    vec![
        puts(&["t/a"]),
        puts(&["t/a", "t/b", "u/c"]),
        vec![("t/a", true)],
        puts(&["t/b"]),
        vec![("t/b", true), ("u/c", true), ("t/d", false)],
        puts(&["t/a"]),
        puts(&["t/b", "t/d"]),
        vec![("t/d", true)],
        puts(&["u/e"]),
    ]
}

/// Compacts all the time.
fn options() -> Options {
    Options { history: History { events_max: 4, ..History::default() }, ..Options::default() }
}

fn operations(step: &[(&str, bool)], number: usize, model: &mut Model) -> Transaction {
    step.iter().fold(Transaction::new(), |transaction, (key, delete)| {
        let value = format!("{number}");
        if *delete {
            model.delete(key, &value);
            transaction.delete(*key, stamped(&value))
        } else {
            model.put(key, &value);
            transaction.put(*key, stamped(&value))
        }
    })
}

/// Runs the script until the disk fails. Returns what was acknowledged, and that plus what was not.
async fn live(store: &TestStore) -> (Model, Model) {
    let mut acknowledged = Model::default();
    for (number, step) in script().iter().enumerate() {
        let mut attempted = acknowledged.clone();
        match store.commit(operations(step, number, &mut attempted)).await {
            Ok(_) => acknowledged = attempted,
            Err(CommitError::Failed { .. }) => return (acknowledged, attempted),
            Err(other) => panic!("{other}"),
        }
    }
    (acknowledged.clone(), acknowledged)
}

fn assert_shows(store: &TestStore, model: &Model) {
    for revision in store.compacted_revision()..=model.revision() {
        for prefix in ["t/", "u/"] {
            assert_eq!(listed(store, prefix, Some(revision)).unwrap(), model.listed(prefix, revision), "at {revision}");
        }
    }
}

async fn crash(apply: usize, fault: Fault, kept: usize) -> bool {
    let disk = ForgetfulDisk::default();
    disk.fail_at(apply, fault);
    let store = Store::open(disk.clone(), options(), derive()).unwrap();
    let (acknowledged, attempted) = live(&store).await;
    settle(&store).await;

    // Reads go on with what is durable; writes are refused and say why.
    assert_eq!(store.revision(), acknowledged.revision());
    assert_shows(&store, &acknowledged);
    let reached = store.health().is_err();
    if reached {
        let refused = store.commit(Transaction::new().put("t/x", stamped("x"))).await.unwrap_err();
        assert!(matches!(refused, CommitError::Failed { .. }));
        assert_eq!(disk.applied(), apply + 1, "nothing is written after a failure");
    }
    drop(store);

    disk.lose_power(kept);
    let store = Store::open(disk, options(), derive()).unwrap();
    settle(&store).await;
    let found = match store.revision() {
        revision if revision == acknowledged.revision() => acknowledged,
        revision if revision == attempted.revision() => attempted,
        revision => panic!("{revision} is neither {} nor {}", acknowledged.revision(), attempted.revision()),
    };
    assert_shows(&store, &found);
    assert_eq!(put(&store, "t/next", "x").await, found.revision() + 1);
    reached
}

#[tokio::test]
async fn power_loss_at_every_point_of_every_write() {
    let mut faults = vec![(Fault::BeforeWrite, 0), (Fault::AfterSync, 0), (Fault::BeforeSync, 0)];
    // Torn while writing, or written and then torn by the power loss.
    faults.extend((0..400).step_by(7).map(|bytes| (Fault::Torn(bytes), bytes)));
    faults.extend((0..400).step_by(7).map(|bytes| (Fault::BeforeSync, bytes)));
    faults.push((Fault::BeforeSync, usize::MAX >> 1));
    let mut reached = 0;
    for apply in 0.. {
        let mut any = false;
        for (fault, kept) in &faults {
            any |= crash(apply, *fault, *kept).await;
        }
        if !any {
            break;
        }
        reached = apply + 1;
    }
    assert!(reached > script().len(), "{reached}: compaction must be among the writes");
}

#[tokio::test]
async fn a_writer_that_panics_fails_the_store_and_leaves_nobody_waiting() {
    let disk = ForgetfulDisk::default();
    let store = Store::open(disk.clone(), Options::default(), derive()).unwrap();
    put(&store, "t/a", "a").await;
    disk.fail_at(1, Fault::Panic);
    for _ in 0..2 {
        let failed = store.commit(Transaction::new().put("t/b", stamped("b"))).await.unwrap_err();
        assert_eq!(failed.to_string(), "the store takes no more writes: the writer thread panicked");
    }
    assert!(store.health().is_err());
    assert_eq!(listed(&store, "t/", None).unwrap(), ["t/a=a@1!"]);
}

#[tokio::test]
async fn a_failed_store_says_why_and_goes_on_reading() {
    let disk = ForgetfulDisk::default();
    let store = Store::open(disk.clone(), Options::default(), derive()).unwrap();
    put(&store, "t/a", "a").await;
    let mut watch = store.watch("t/", 0).unwrap();
    assert_eq!(store.health(), Ok(()));
    disk.fail_at(1, Fault::BeforeWrite);
    let failed = store.commit(Transaction::new().put("t/b", stamped("b"))).await.unwrap_err();
    assert_eq!(failed.to_string(), "the store takes no more writes: no space left on device");
    assert_eq!(store.health().unwrap_err().as_ref(), "no space left on device");
    assert_eq!(listed(&store, "t/", None).unwrap(), ["t/a=a@1!"]);
    assert_eq!(watched(&mut watch, 1).await, ["1 + t/a a@1! "]);
    assert_eq!(store.compact(1).await.unwrap(), 0);
}
