//! Disks that fill up, cannot be read, or take their time (P-17).

#![allow(clippy::unwrap_used, reason = "in a test a panic is a failure with a backtrace")]

mod common;

use common::*;
use futures_util::future::join_all;
use std::time::Duration;
use store::testing::{ForgetfulDisk, Unreadable};
use store::{CommitError, OpenError, Options, ReadError, Recent, Store, SyncTime, Transaction, Writing};
use tokio::time::Instant;

fn open(disk: &ForgetfulDisk, options: Options) -> TestStore {
    Store::open(disk.mount(), options, derive()).unwrap()
}

fn slow(time: Duration) -> Options {
    Options { writing: Writing::InlineAfter(SyncTime::new(move || time)), ..Options::default() }
}

#[tokio::test]
async fn a_full_disk_loses_nothing_that_was_acknowledged_and_goes_on_when_there_is_room() {
    for room in (0..1500).step_by(83) {
        let disk = ForgetfulDisk::default();
        disk.leave_room_for(room);
        let store = open(&disk, Options::default());
        let mut acknowledged = 0;
        let refusal = loop {
            match store.commit(Transaction::new().put(format!("t/{acknowledged}"), stamped("x"))).await {
                Ok(_) => acknowledged += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(refusal.to_string(), "the store takes no more writes: no space left on device");
        assert_eq!(store.revision(), acknowledged, "reads go on");
        drop(store);

        // Still full: it opens, shows everything, and takes nothing.
        disk.lose_power(usize::MAX);
        let store = open(&disk, Options::default());
        assert_eq!(store.revision(), acknowledged);
        let full = store.commit(Transaction::new().put("t/more", stamped("x".repeat(2000).as_str()))).await;
        assert!(matches!(full, Err(CommitError::Failed { .. })));
        drop(store);

        disk.lose_power(0);
        disk.leave_room_for(usize::MAX);
        let store = open(&disk, Options::default());
        assert_eq!(put(&store, "t/next", "x").await, acknowledged + 1);
        assert_eq!(listed(&store, "t/", None).unwrap().len(), usize::try_from(acknowledged).unwrap() + 1);
    }
}

#[tokio::test]
async fn a_read_that_fails_is_told_and_nothing_is_skipped() {
    let disk = ForgetfulDisk::default();
    let nothing_recent = Options { recent: Recent { events_max: 0, ..Recent::default() }, ..Options::default() };
    let store = open(&disk, nothing_recent);
    for value in ["one", "two", "three"] {
        put(&store, "t/a", value).await;
    }
    let mut watch = store.watch("t/", 0).unwrap();
    assert_eq!(watched(&mut watch, 1).await, ["1 + t/a one@1! "]);
    for unreadable in [Unreadable::One(2), Unreadable::All] {
        disk.fail_reads(unreadable);
        for _ in 0..2 {
            let failed = watch.next_batch(10).await.unwrap_err();
            assert!(matches!(failed, ReadError::Stored { revision: 2, .. }), "{failed}");
        }
        assert!(matches!(listed(&store, "t/", Some(2)), Err(ReadError::Stored { revision: 2, .. })));
        assert_eq!(listed(&store, "t/", None).unwrap(), ["t/a=three@3!"], "what is current is in memory");
    }
    disk.fail_reads(Unreadable::None);
    assert_eq!(watched(&mut watch, 2).await, ["2 ~ t/a two@2! one@1!", "3 ~ t/a three@3! two@2!"]);
    assert_eq!(store.health(), Ok(()), "a read that failed is no reason to stop writing");
    drop(store);

    disk.fail_reads(Unreadable::One(2));
    let refused = Store::open(disk.mount(), Options::default(), derive()).unwrap_err();
    assert!(matches!(refused, OpenError::Backend { .. }), "{refused}");
    disk.fail_reads(Unreadable::None);
    assert_eq!(open(&disk, Options::default()).revision(), 3);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_answered_or_visible_before_a_slow_sync_and_what_comes_meanwhile_shares_it() {
    let disk = ForgetfulDisk::default();
    let store = open(&disk, slow(Duration::from_secs(5)));
    let begin = Instant::now();
    let mut watch = store.watch("t/", 0).unwrap();
    let commits: Vec<_> = (0..50)
        .map(|number| {
            let store = store.clone();
            tokio::spawn(async move { put(&store, &format!("t/{number:02}"), "x").await })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!((store.revision(), disk.applied()), (0, 0));
    assert!(commits.iter().all(|commit| !commit.is_finished()));
    let revisions: Vec<_> = join_all(commits).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(begin.elapsed(), Duration::from_secs(5));
    assert_eq!(revisions, (1..=50).collect::<Vec<_>>());
    assert_eq!(disk.applied(), 1);
    assert_eq!(watched(&mut watch, 50).await.len(), 50);
}

#[tokio::test(start_paused = true)]
async fn what_is_queued_takes_effect_although_its_caller_has_gone_and_the_store_is_closed() {
    let disk = ForgetfulDisk::default();
    let store = open(&disk, slow(Duration::from_secs(5)));
    let impatient = tokio::time::timeout(Duration::from_secs(1), put(&store, "t/a", "x")).await;
    assert!(impatient.is_err());
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(listed(&store, "t/", None).unwrap(), ["t/a=x@1!"]);
    let impatient = tokio::time::timeout(Duration::from_secs(1), put(&store, "t/b", "x")).await;
    assert!(impatient.is_err());
    drop(store);
    assert_eq!(open(&disk, Options::default()).revision(), 2);
}

#[tokio::test]
async fn what_is_left_of_a_dead_process_cannot_write() {
    let disk = ForgetfulDisk::default();
    let old = open(&disk, Options::default());
    put(&old, "t/a", "x").await;
    disk.lose_power(0);
    let new = open(&disk, Options::default());
    assert!(old.commit(Transaction::new().put("t/b", stamped("x"))).await.is_err());
    assert_eq!(put(&new, "t/c", "x").await, 2);
    drop((old, new));
    assert_eq!(listed(&open(&disk, Options::default()), "t/", None).unwrap(), ["t/a=x@1!", "t/c=x@2!"]);
}
