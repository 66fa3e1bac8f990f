//! One suite of behaviour, run over every backend.

#![allow(clippy::unwrap_used, reason = "in a test a panic is a failure with a backtrace")]

mod common;

use common::*;
use futures_util::FutureExt;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use store::{Clock, CommitError, Expect, History, ListQuery, Options, ReadError, Recent, Transaction, Value};

macro_rules! suite {
    ($($name:ident),* $(,)?) => {
        suite!(@on memory, Memory, $($name),*);
        suite!(@on fjall, Fjall, $($name),*);
        suite!(@on forgetful, Forgetful, $($name),*);
        suite!(@on memory_inline, Inline<Memory>, $($name),*);
        suite!(@on forgetful_inline, Inline<Forgetful>, $($name),*);
        suite!(@on forgetful_slow, Slow<Forgetful>, $($name),*);
    };
    (@on $module:ident, $disk:ty, $($name:ident),*) => {
        mod $module {
            use super::*;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name(<$disk>::new()).await;
            })*
        }
    };
}

suite!(
    what_is_put_can_be_got,
    conditions_decide_and_a_conflict_shows_what_is_there,
    a_transaction_takes_effect_whole_or_not_at_all,
    a_transaction_may_touch_a_key_twice,
    operations_of_one_transaction_have_consecutive_revisions,
    lists_are_ordered_and_stay_inside_their_prefix,
    lists_at_a_revision_show_the_past,
    pages_show_the_revision_of_the_first,
    lists_and_watches_need_a_topic,
    revisions_that_are_not_reached_are_told_from_compacted_ones,
    waiting_for_a_revision_ends_when_it_is_reached,
    the_revision_of_a_topic_changes_with_its_keys_only,
    a_watch_shows_every_change_with_what_it_replaced,
    a_watch_sees_its_prefix_only,
    a_watch_from_before_the_recent_events_reads_from_disk,
    a_batch_from_disk_is_bounded_by_bytes,
    a_batch_from_memory_is_bounded_by_bytes,
    watchers_who_are_behind_share_what_they_hold,
    a_watch_from_the_future_starts_there,
    a_cancelled_watch_loses_nothing,
    progress_moves_on_while_the_topic_is_idle,
    an_idle_watch_outlives_compaction_and_a_late_one_is_told,
    watches_around_the_compaction_revision,
    a_watch_ends_when_the_store_is_closed,
    compaction_keeps_what_is_current_and_forgets_the_rest,
    a_key_deleted_and_made_again_is_a_new_key,
    history_is_cut_by_count,
    history_is_cut_by_age,
    an_idle_store_cuts_all_that_has_aged,
    recent_events_stay_inside_their_budget,
    values_at_rest_are_packed_and_read_as_they_were_written,
    a_store_that_is_opened_lays_what_is_there_to_rest,
    everything_is_there_after_opening_again,
    revisions_never_go_back_when_deletions_are_compacted,
    a_frame_is_built_once,
    concurrent_increments_add_up,
    watchers_see_every_change_of_concurrent_writers,
);

async fn what_is_put_can_be_got(disk: impl Disk) {
    let store = disk.open(Options::default());
    assert_eq!(store.revision(), 0);
    assert!(store.get("pods/a").is_none());
    assert_eq!(put(&store, "pods/a", "one").await, 1);
    assert_eq!(put(&store, "pods/a", "two").await, 2);
    let entry = store.get("pods/a").unwrap();
    assert_eq!(text(&entry.value()), "two@2!");
    assert_eq!((entry.revision, entry.create_revision, *entry.attributes()), (2, 1, 6));
    assert_eq!(delete(&store, "pods/a", "last").await, 3);
    assert!(store.get("pods/a").is_none());
    assert_eq!(store.revision(), 3);
}

async fn conditions_decide_and_a_conflict_shows_what_is_there(disk: impl Disk) {
    let store = disk.open(Options::default());
    put(&store, "t/present", "x").await;
    let cases = [
        ("t/present", Expect::Present, true),
        ("t/present", Expect::Absent, false),
        ("t/present", Expect::AtRevision(1), true),
        ("t/present", Expect::AtRevision(2), false),
        ("t/present", Expect::AtRevision(0), false),
        ("t/absent", Expect::Present, false),
        ("t/absent", Expect::Absent, true),
        ("t/absent", Expect::AtRevision(1), false),
        ("without topic", Expect::Absent, true),
    ];
    for (key, expect, holds) in cases {
        let before = store.revision();
        // Without operations: the conditions alone.
        let answer = store.commit(Transaction::new().require(key, expect)).await;
        match answer {
            Ok(committed) => assert!(holds && committed.entries.is_empty(), "{key} {expect:?}"),
            Err(CommitError::Conflict { key: found, current }) => {
                assert!(!holds && *found == *key, "{key} {expect:?}");
                assert_eq!(current.map(|entry| text(&entry.value())), (key == "t/present").then(|| "x@1!".into()));
            }
            Err(other) => panic!("{key} {expect:?}: {other}"),
        }
        assert_eq!(store.revision(), before);
    }
    // A deletion demands what it deletes.
    let nothing = store.commit(Transaction::new().delete("t/absent", stamped("x"))).await;
    assert!(matches!(nothing, Err(CommitError::Conflict { current: None, .. })));
    let invalid = store.commit(Transaction::new().put("without topic", stamped("x"))).await;
    assert!(matches!(invalid, Err(CommitError::Invalid { .. })));
    assert_eq!(store.revision(), 1);
}

async fn a_transaction_takes_effect_whole_or_not_at_all(disk: impl Disk) {
    let store = disk.open(Options::default());
    let failing = Transaction::new().put("t/a", stamped("a")).delete("t/missing", stamped("x"));
    assert!(store.commit(failing).await.is_err());
    let failing = Transaction::new().require("t/b", Expect::Present).put("t/a", stamped("a"));
    assert!(store.commit(failing).await.is_err());
    assert_eq!(store.revision(), 0);
    assert!(store.get("t/a").is_none());

    commit(&store, Transaction::new().put("t/a", stamped("a")).put("u/b", stamped("b"))).await;
    assert_eq!((store.get("t/a").unwrap().revision, store.get("u/b").unwrap().revision), (1, 2));
}

async fn a_transaction_may_touch_a_key_twice(disk: impl Disk) {
    let store = disk.open(Options::default());
    let transaction = Transaction::create("t/a", stamped("one"))
        .put("t/a", stamped("two"))
        .delete("t/a", stamped("gone"))
        .put("t/a", stamped("three"));
    assert_eq!(commit(&store, transaction).await, 4);
    let mut watch = store.watch("t/", 0).unwrap();
    assert_eq!(
        watched(&mut watch, 4).await,
        ["1 + t/a one@1! ", "2 ~ t/a two@2! one@1!", "3 - t/a gone@3! two@2!", "4 + t/a three@4! "]
    );
    let twice = Transaction::new().delete("t/a", stamped("x")).delete("t/a", stamped("y"));
    assert!(matches!(store.commit(twice).await, Err(CommitError::Conflict { current: None, .. })));
    assert_eq!(store.get("t/a").unwrap().create_revision, 4);
}

async fn operations_of_one_transaction_have_consecutive_revisions(disk: impl Disk) {
    let store = disk.open(Options::default());
    let tasks = (0..20).map(|task| {
        let store = store.clone();
        tokio::spawn(async move {
            let keys = [format!("t/{task}a"), format!("t/{task}b"), format!("t/{task}c")];
            let transaction = keys.iter().fold(Transaction::new(), |all, key| all.put(&**key, stamped("x")));
            let committed = store.commit(transaction).await.unwrap();
            let revisions: Vec<_> = committed.entries.iter().map(|entry| entry.revision).collect();
            assert_eq!(revisions, [committed.revision - 2, committed.revision - 1, committed.revision]);
            for (key, entry) in keys.iter().zip(&committed.entries) {
                assert_eq!(*key, *entry.key);
                assert_eq!(text(&entry.value()), stamped_as("x", entry.revision));
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    assert_eq!(store.revision(), 60);
}

async fn lists_are_ordered_and_stay_inside_their_prefix(disk: impl Disk) {
    let store = disk.open(Options::default());
    for key in ["pods/b/y", "pods/a/z", "pods/a-b/x", "podsets/a/x", "pods/a/x", "jobs/a/x", "pods/b/x"] {
        put(&store, key, "v").await;
    }
    let keys = |query: &ListQuery<'_>| -> Vec<String> {
        store.list(query).unwrap().entries.iter().map(|entry| entry.key.to_string()).collect()
    };
    let all = ["pods/a-b/x", "pods/a/x", "pods/a/z", "pods/b/x", "pods/b/y"];
    assert_eq!(keys(&ListQuery::new("pods/")), all);
    assert_eq!(keys(&ListQuery::new("pods/a/")), ["pods/a/x", "pods/a/z"]);
    assert_eq!(keys(&ListQuery::new("pods/a/z")), ["pods/a/z"]);
    assert_eq!(keys(&ListQuery::new("secrets/")), [""; 0]);
    let from = |start| keys(&ListQuery { start, ..ListQuery::new("pods/a/") });
    assert_eq!(from(Bound::Excluded("pods/a/x")), ["pods/a/z"]);
    assert_eq!(from(Bound::Included("pods/a/x")), ["pods/a/x", "pods/a/z"]);
    assert_eq!(from(Bound::Included("pods/a/x\0")), ["pods/a/z"]);
    assert_eq!(from(Bound::Included("aaa")), ["pods/a/x", "pods/a/z"], "a start before the prefix");
    assert_eq!(from(Bound::Excluded("zzz")), [""; 0], "a start after the prefix");
}

async fn lists_at_a_revision_show_the_past(disk: impl Disk) {
    let store = disk.open(Options::default());
    put(&store, "t/a", "a").await;
    put(&store, "t/b", "b").await;
    put(&store, "u/x", "x").await;
    put(&store, "t/a", "A").await;
    delete(&store, "t/b", "gone").await;
    put(&store, "t/b", "B").await;
    let expected: [&[&str]; 7] = [
        &[],
        &["t/a=a@1!"],
        &["t/a=a@1!", "t/b=b@2!"],
        &["t/a=a@1!", "t/b=b@2!"],
        &["t/a=A@4!", "t/b=b@2!"],
        &["t/a=A@4!"],
        &["t/a=A@4!", "t/b=B@6!"],
    ];
    for (at, expected) in expected.iter().enumerate() {
        assert_eq!(listed(&store, "t/", Some(at as u64)).unwrap(), *expected, "at {at}");
    }
}

async fn pages_show_the_revision_of_the_first(disk: impl Disk) {
    let store = disk.open(Options::default());
    for number in 0..10 {
        put(&store, &format!("t/{number}"), "old").await;
    }
    let first = store.list(&ListQuery { limit: Some(4), ..ListQuery::new("t/") }).unwrap();
    assert_eq!((first.revision, first.remaining, first.entries.len()), (10, 6, 4));
    // What happens between the pages does not show.
    put(&store, "t/3a", "new").await;
    put(&store, "t/5", "new").await;
    delete(&store, "t/6", "gone").await;
    let mut pages = shown(&first);
    let mut last = first;
    while last.remaining > 0 {
        let start = Bound::Excluded(&*last.entries.last().unwrap().key);
        let at = Some(last.revision);
        let page = store.list(&ListQuery { start, at, limit: Some(4), ..ListQuery::new("t/") }).unwrap();
        assert_eq!(page.revision, 10);
        pages.extend(shown(&page));
        last = page;
    }
    assert_eq!(pages, listed(&store, "t/", Some(10)).unwrap());
    assert_eq!(pages.len(), 10);
    let none = store.list(&ListQuery { limit: Some(0), ..ListQuery::new("t/") }).unwrap();
    assert_eq!((none.entries.len(), none.remaining), (0, 10));
}

async fn lists_and_watches_need_a_topic(disk: impl Disk) {
    let store = disk.open(Options::default());
    for prefix in ["", "pods", "/pods"] {
        assert!(matches!(listed(&store, prefix, None), Err(ReadError::NoTopic { .. })), "{prefix:?}");
        assert!(matches!(store.watch(prefix, 0), Err(ReadError::NoTopic { .. })), "{prefix:?}");
    }
}

async fn revisions_that_are_not_reached_are_told_from_compacted_ones(disk: impl Disk) {
    let store = disk.open(Options::default());
    for _ in 0..5 {
        put(&store, "t/a", "a").await;
    }
    let future = listed(&store, "t/", Some(6)).unwrap_err();
    assert!(matches!(future, ReadError::Future { requested: 6, current: 5 }));
    assert_eq!(store.compact(3).await.unwrap(), 3);
    let compacted = listed(&store, "t/", Some(2)).unwrap_err();
    assert!(matches!(compacted, ReadError::Compacted { requested: 2, oldest: 3 }));
    assert_eq!(listed(&store, "t/", Some(3)).unwrap(), ["t/a=a@3!"]);
}

async fn waiting_for_a_revision_ends_when_it_is_reached(disk: impl Disk) {
    let store = disk.open(Options::default());
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.wait_for_revision(2, Duration::from_secs(60)).await }
    });
    put(&store, "t/a", "a").await;
    put(&store, "t/a", "a").await;
    assert_eq!(waiting.await.unwrap().unwrap(), 2);
    let late = store.wait_for_revision(3, Duration::from_millis(1)).await;
    assert!(matches!(late, Err(ReadError::Future { requested: 3, current: 2 })));
}

async fn the_revision_of_a_topic_changes_with_its_keys_only(disk: impl Disk) {
    let store = disk.open(Options::default());
    assert_eq!(store.topic_revision("t"), 0);
    put(&store, "t/a", "a").await;
    put(&store, "other/a", "a").await;
    assert_eq!((store.topic_revision("t"), store.topic_revision("other")), (1, 2));
    delete(&store, "t/a", "gone").await;
    put(&store, "other/a", "b").await;
    assert_eq!(store.topic_revision("t"), 3);
    store.compact(4).await.unwrap();
    assert_eq!(store.topic_revision("t"), 3, "compaction is no change");
}

async fn a_watch_shows_every_change_with_what_it_replaced(disk: impl Disk) {
    let store = disk.open(Options::default());
    let mut watch = store.watch("t/", 0).unwrap();
    put(&store, "t/a", "one").await;
    put(&store, "t/a", "two").await;
    delete(&store, "t/a", "last").await;
    put(&store, "t/a", "new").await;
    let expected = ["1 + t/a one@1! ", "2 ~ t/a two@2! one@1!", "3 - t/a last@3! two@2!", "4 + t/a new@4! "];
    assert_eq!(watched(&mut watch, 4).await, expected);
    for from in 0..4 {
        let mut watch = store.watch("t/", from).unwrap();
        assert_eq!(watched(&mut watch, 4 - from as usize).await, expected[from as usize..], "from {from}");
    }
}

async fn a_watch_sees_its_prefix_only(disk: impl Disk) {
    let store = disk.open(Options::default());
    let mut one = store.watch("pods/a/", 0).unwrap();
    let mut other = store.watch("pods/b/", 0).unwrap();
    for key in ["pods/a/x", "pods/ab/x", "jobs/a/x", "pods/b/x", "pods/a/y"] {
        put(&store, key, "v").await;
    }
    assert_eq!(watched(&mut one, 2).await, ["1 + pods/a/x v@1! ", "5 + pods/a/y v@5! "]);
    assert_eq!(watched(&mut other, 1).await, ["4 + pods/b/x v@4! "]);
    assert!(one.next_batch(1).now_or_never().is_none());
    assert!(other.next_batch(1).now_or_never().is_none());
}

/// Keeps no event in memory.
fn nothing_recent() -> Options {
    Options { recent: Recent { bytes_max: 0, events_max: 0 }, ..Options::default() }
}

async fn a_watch_from_before_the_recent_events_reads_from_disk(disk: impl Disk) {
    let store = disk.open(nothing_recent());
    let mut watch = store.watch("t/", 0).unwrap();
    for number in 0..300 {
        put(&store, "t/a", &number.to_string()).await;
        put(&store, "u/a", "other").await;
    }
    delete(&store, "t/a", "last").await;
    assert_eq!(store.stats().recent_events, 0);
    let events = watched(&mut watch, 301).await;
    assert_eq!(events[0], "1 + t/a 0@1! ");
    assert_eq!(events[299], "599 ~ t/a 299@599! 298@597!");
    assert_eq!(events[300], "601 - t/a last@601! 299@599!");
    assert_eq!(watch.progress(), 601);
}

/// INV-54.
async fn a_batch_from_disk_is_bounded_by_bytes(disk: impl Disk) {
    assert_batches_are_bounded(&disk.open(nothing_recent())).await;
}

/// INV-54, BI-85.
async fn a_batch_from_memory_is_bounded_by_bytes(disk: impl Disk) {
    assert_batches_are_bounded(&disk.open(Options::default())).await;
}

async fn assert_batches_are_bounded(store: &TestStore) {
    let mut watch = store.watch("t/", 0).unwrap();
    for _ in 0..10 {
        put(store, "t/a", &"x".repeat(1 << 20)).await;
    }
    let mut batches = Vec::new();
    let mut seen = Vec::new();
    while seen.len() < 10 {
        let events = watch.next_batch(100).await.unwrap();
        batches.push(events.len());
        seen.extend(events.iter().map(|event| event.revision()));
    }
    assert!(batches.iter().all(|events| *events <= 1), "{batches:?}");
    assert_eq!(seen, (1..=10).collect::<Vec<_>>());
    // Small ones still come together.
    for _ in 0..10 {
        put(store, "t/b", "x").await;
    }
    assert_eq!(watch.next_batch(100).await.unwrap().len(), 10);
}

/// BI-85: a thousand watchers who are not read hold what one of them holds.
async fn watchers_who_are_behind_share_what_they_hold(disk: impl Disk) {
    let store = disk.open(nothing_recent());
    put(&store, "t/a", "x").await;
    let mut watches = [store.watch("t/", 0).unwrap(), store.watch("t/a", 0).unwrap()];
    let mut held = Vec::new();
    for watch in &mut watches {
        held.extend(watch.next_batch(1).await.unwrap());
    }
    assert!(Arc::ptr_eq(&held[0], &held[1]));
    drop(held);
    let mut late = store.watch("t/", 0).unwrap();
    assert_eq!(watched(&mut late, 1).await, ["1 + t/a x@1! "], "read again once nobody has it");
}

async fn a_watch_from_the_future_starts_there(disk: impl Disk) {
    // REG-S07.
    let store = disk.open(Options::default());
    let mut watch = store.watch("t/", 3).unwrap();
    assert_eq!(watch.progress(), 3);
    for _ in 0..3 {
        put(&store, "t/a", "a").await;
        assert!(watch.next_batch(10).now_or_never().is_none());
    }
    put(&store, "t/a", "a").await;
    assert_eq!(watched(&mut watch, 1).await, ["4 ~ t/a a@4! a@3!"]);
}

async fn a_cancelled_watch_loses_nothing(disk: impl Disk) {
    let store = disk.open(nothing_recent());
    let mut watch = store.watch("t/", 0).unwrap();
    let mut seen = Vec::new();
    for number in 0..50_u64 {
        assert!(watch.next_batch(1).now_or_never().is_none(), "nothing yet");
        put(&store, "t/a", "a").await;
        // Reading from disk may or may not be done at the first poll.
        if let Some(events) = watch.next_batch(1).now_or_never() {
            seen.extend(events.unwrap().iter().map(|event| event.revision()));
        }
        while seen.len() as u64 <= number {
            seen.extend(watch.next_batch(1).await.unwrap().iter().map(|event| event.revision()));
        }
    }
    assert_eq!(seen, (1..=50).collect::<Vec<_>>());
}

async fn progress_moves_on_while_the_topic_is_idle(disk: impl Disk) {
    let store = disk.open(Options::default());
    let mut idle = store.watch("quiet/", 0).unwrap();
    let mut narrow = store.watch("busy/x/", 0).unwrap();
    let mut behind = store.watch("busy/", 0).unwrap();
    for _ in 0..5 {
        put(&store, "busy/a", "a").await;
    }
    assert_eq!((idle.progress(), narrow.progress(), behind.progress()), (5, 5, 0));
    watched(&mut behind, 2).await;
    assert_eq!(behind.progress(), 2, "not past what was not handed out");
    watched(&mut behind, 3).await;
    assert_eq!(behind.progress(), 5);
}

async fn an_idle_watch_outlives_compaction_and_a_late_one_is_told(disk: impl Disk) {
    let store = disk.open(Options::default());
    let mut idle = store.watch("quiet/", 0).unwrap();
    let mut late = store.watch("busy/", 0).unwrap();
    for _ in 0..5 {
        put(&store, "busy/a", "a").await;
    }
    store.compact(4).await.unwrap();
    put(&store, "quiet/a", "a").await;
    assert_eq!(watched(&mut idle, 1).await, ["6 + quiet/a a@6! "]);
    for _ in 0..2 {
        let told = late.next_batch(10).await.unwrap_err();
        assert!(matches!(told, ReadError::Compacted { requested: 0, oldest: 4 }));
        assert_eq!(late.progress(), 0);
    }
}

async fn watches_around_the_compaction_revision(disk: impl Disk) {
    // REG-S09, with deletes at, just below and just above the compaction revision.
    let store = disk.open(nothing_recent());
    for key in ["t/a", "t/b", "t/c", "t/d"] {
        put(&store, key, "v").await;
    }
    for key in ["t/a", "t/b", "t/c"] {
        delete(&store, key, "gone").await;
    }
    put(&store, "t/d", "w").await;
    assert_eq!(store.compact(6).await.unwrap(), 6);
    for from in 0..6 {
        let told = store.watch("t/", from).unwrap_err();
        assert!(matches!(told, ReadError::Compacted { oldest: 6, .. }), "from {from}");
    }
    let expected = ["7 - t/c gone@7! v@3!", "8 ~ t/d w@8! v@4!"];
    assert_eq!(watched(&mut store.watch("t/", 6).unwrap(), 2).await, expected);
    assert_eq!(watched(&mut store.watch("t/", 7).unwrap(), 1).await, expected[1..]);
    assert_eq!(listed(&store, "t/", Some(6)).unwrap(), ["t/c=v@3!", "t/d=v@4!"]);
}

async fn a_watch_ends_when_the_store_is_closed(disk: impl Disk) {
    let store = disk.open(Options::default());
    let mut waiting = store.watch("t/", 0).unwrap();
    let mut later = store.watch("t/", 0).unwrap();
    let ended = tokio::spawn(async move { waiting.next_batch(1).await });
    tokio::task::yield_now().await;
    drop(store);
    assert!(matches!(ended.await.unwrap(), Err(ReadError::Closed)));
    assert!(matches!(later.next_batch(1).await, Err(ReadError::Closed)));
    // The forgotten watch does not keep the disk.
    disk.open(Options::default());
}

async fn compaction_keeps_what_is_current_and_forgets_the_rest(disk: impl Disk) {
    let store = disk.open(Options::default());
    for round in 0..3 {
        for key in ["t/a", "t/b", "u/c"] {
            put(&store, key, &round.to_string()).await;
        }
    }
    delete(&store, "t/b", "gone").await;
    assert_eq!(store.compact(100).await.unwrap(), 10, "not beyond what there is");
    assert_eq!(store.compact(5).await.unwrap(), 10, "never back");
    assert_eq!(listed(&store, "t/", None).unwrap(), ["t/a=2@7!"]);
    assert_eq!(listed(&store, "u/", Some(10)).unwrap(), ["u/c=2@9!"]);
    assert_eq!(store.stats().keys, 2);
    put(&store, "t/a", "3").await;
    assert_eq!(watched(&mut store.watch("t/", 10).unwrap(), 1).await, ["11 ~ t/a 3@11! 2@7!"]);
}

async fn a_key_deleted_and_made_again_is_a_new_key(disk: impl Disk) {
    let store = disk.open(nothing_recent());
    put(&store, "t/a", "one").await;
    delete(&store, "t/a", "gone").await;
    put(&store, "t/a", "two").await;
    store.compact(2).await.unwrap();
    assert_eq!(store.get("t/a").unwrap().create_revision, 3);
    assert_eq!(watched(&mut store.watch("t/", 2).unwrap(), 1).await, ["3 + t/a two@3! "]);
    drop(store);
    let store = disk.open(Options::default());
    assert_eq!(store.get("t/a").unwrap().create_revision, 3);
    assert_eq!(watched(&mut store.watch("t/", 2).unwrap(), 1).await, ["3 + t/a two@3! "]);
}

/// INV-54.
async fn history_is_cut_by_count(disk: impl Disk) {
    let history = History { events_max: 32, ..History::default() };
    let store = disk.open(Options { history, ..Options::default() });
    for number in 0..200 {
        put(&store, &format!("t/{}", number % 7), "a").await;
        let kept = store.revision() - store.compacted_revision();
        // The cut happens between two batches, in steps of 2.
        assert!(kept <= 32 + 2 + 1, "{kept}");
        assert!(kept >= 32.min(store.revision()), "{kept}");
    }
    assert_eq!(store.stats().keys, 7);
}

async fn history_is_cut_by_age(disk: impl Disk) {
    let seconds = Arc::new(AtomicU64::new(1000));
    let now = seconds.clone();
    let clock = Clock::new(move || Duration::from_secs(now.load(Ordering::SeqCst)));
    let history = History { age_max: Duration::from_secs(64), ..History::default() };
    let store = disk.open(Options { history, clock, ..Options::default() });
    put(&store, "t/a", "at 1000").await;
    seconds.store(1032, Ordering::SeqCst);
    put(&store, "t/a", "at 1032").await;
    seconds.store(1063, Ordering::SeqCst);
    put(&store, "t/b", "at 1063").await;
    settle(&store).await;
    assert_eq!(store.compacted_revision(), 0);
    seconds.store(1064, Ordering::SeqCst);
    put(&store, "t/b", "at 1064").await;
    settle(&store).await;
    assert_eq!(store.compacted_revision(), 1);
    seconds.store(1096, Ordering::SeqCst);
    put(&store, "t/b", "at 1096").await;
    settle(&store).await;
    assert_eq!(store.compacted_revision(), 2);
}

async fn an_idle_store_cuts_all_that_has_aged(disk: impl Disk) {
    let seconds = Arc::new(AtomicU64::new(1000));
    let now = seconds.clone();
    let clock = Clock::new(move || Duration::from_secs(now.load(Ordering::SeqCst)));
    let store = disk.open(Options { clock, ..Options::default() });
    // Three steps of compaction.
    for _ in 0..20 {
        commit(&store, (0..250).fold(Transaction::new(), |all, key| all.put(format!("t/{key}"), stamped("x")))).await;
        seconds.fetch_add(10, Ordering::SeqCst);
    }
    seconds.store(5000, Ordering::SeqCst);
    // The last one to wake the writer.
    put(&store, "u/a", "x").await;
    let cut = async {
        while store.compacted_revision() < 5000 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), cut).await.unwrap();
    assert_eq!(store.stats().keys, 251);
}

/// INV-54.
async fn recent_events_stay_inside_their_budget(disk: impl Disk) {
    let by_count = Recent { events_max: 10, ..Recent::default() };
    let store = disk.open(Options { recent: by_count, ..Options::default() });
    put(&store, "quiet/a", "a").await;
    for _ in 0..100 {
        put(&store, "busy/a", "a").await;
    }
    assert_eq!(store.stats().recent_events, 10);
    drop(store);
    let by_bytes = Recent { bytes_max: 10_000, ..Recent::default() };
    let store = disk.open(Options { recent: by_bytes, ..Options::default() });
    for _ in 0..20 {
        put(&store, "busy/a", &"x".repeat(1000)).await;
    }
    let stats = store.stats();
    assert!((1..=10_000).contains(&stats.recent_bytes), "{stats:?}");
    assert!((1..=5).contains(&stats.recent_events), "{stats:?}");
    store.compact(u64::MAX).await.unwrap();
    let stats = store.stats();
    assert_eq!((stats.recent_events, stats.recent_bytes), (0, 0));
}

/// Long, and hardly different from another one.
fn alike(name: &str) -> String {
    (0..100).map(|field| format!("field-{field}: {}, ", field * field)).chain([name.to_owned()]).collect()
}

async fn values_at_rest_are_packed_and_read_as_they_were_written(disk: impl Disk) {
    let store = disk.open(nothing_recent());
    let mut watch = store.watch("t/", 0).unwrap();
    let names: Vec<String> = (0..20).map(|number| format!("n{number:02}")).collect();
    for name in &names {
        put(&store, &format!("t/{name}"), &alike(name)).await;
    }
    // All but the one that describes them.
    until_packed(&store, 19).await;
    let expected = |name: &String, at: usize| format!("{}@{}!", alike(name), at + 1);
    let lines: Vec<String> =
        names.iter().enumerate().map(|(at, name)| format!("t/{name}={}", expected(name, at))).collect();
    assert_eq!(listed(&store, "t/", None).unwrap(), lines);
    let seen = watched(&mut watch, 20).await;
    assert_eq!(seen[7], format!("8 + t/n07 {} ", expected(&names[7], 7)));
    // What describes the others may go, and what is packed may be changed.
    delete(&store, "t/n00", "last").await;
    put(&store, "t/n07", "short").await;
    let seen = watched(&mut watch, 2).await;
    assert_eq!(seen[0], format!("21 - t/n00 last@21! {}", expected(&names[0], 0)));
    assert_eq!(seen[1], format!("22 ~ t/n07 short@22! {}", expected(&names[7], 7)));
    let mut lines = lines;
    lines[7] = "t/n07=short@22!".to_owned();
    assert_eq!(listed(&store, "t/", None).unwrap(), lines[1..]);
}

fn packed(store: &TestStore) -> usize {
    store.list(&ListQuery::new("t/")).unwrap().entries.iter().filter(|entry| entry.is_packed()).count()
}

/// The writer packs when it has nothing else to do.
async fn until_packed(store: &TestStore, count: usize) {
    let reached = async {
        while packed(store) != count {
            settle(store).await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), reached).await.unwrap();
}

async fn a_store_that_is_opened_lays_what_is_there_to_rest(disk: impl Disk) {
    let store = disk.open(Options::default());
    for number in 0..20 {
        put(&store, &format!("t/{number}"), &alike("x")).await;
    }
    let before = listed(&store, "t/", None).unwrap();
    assert_eq!(packed(&store), 0, "they are recent");
    drop(store);
    let store = disk.open(nothing_recent());
    until_packed(&store, 19).await;
    assert_eq!(listed(&store, "t/", None).unwrap(), before);
    drop(store);
    let store = disk.open(Options::default());
    settle(&store).await;
    assert_eq!(packed(&store), 0, "a small store is left as it is");
    assert_eq!(listed(&store, "t/", None).unwrap(), before);
}

async fn everything_is_there_after_opening_again(disk: impl Disk) {
    let mut store = disk.open(Options::default());
    put(&store, "t/a", "one").await;
    put(&store, "t/b", "two").await;
    put(&store, "t/a", "three").await;
    delete(&store, "t/b", "gone").await;
    put(&store, "u/c", "four").await;
    for compacted in [0, 3] {
        store.compact(compacted).await.unwrap();
        drop(store);
        store = disk.open(Options::default());
        assert_eq!((store.revision(), store.compacted_revision()), (5, compacted));
        assert_eq!(listed(&store, "t/", None).unwrap(), ["t/a=three@3!"]);
        assert_eq!(listed(&store, "t/", Some(3)).unwrap(), ["t/a=three@3!", "t/b=two@2!"]);
        assert_eq!(store.get("t/a").unwrap().create_revision, 1);
        let mut watch = store.watch("t/", 3).unwrap();
        assert_eq!(watched(&mut watch, 1).await, ["4 - t/b gone@4! two@2!"]);
    }
    assert_eq!(put(&store, "t/a", "five").await, 6);
}

async fn revisions_never_go_back_when_deletions_are_compacted(disk: impl Disk) {
    // INV-43.
    let store = disk.open(Options::default());
    put(&store, "t/a", "a").await;
    delete(&store, "t/a", "gone").await;
    assert_eq!(store.compact(2).await.unwrap(), 2);
    drop(store);
    let store = disk.open(Options::default());
    assert_eq!((store.revision(), store.stats().keys), (2, 0));
    assert_eq!(put(&store, "t/a", "a").await, 3);
}

async fn a_frame_is_built_once(disk: impl Disk) {
    let store = disk.open(Options::default());
    let mut watches = [store.watch("t/", 0).unwrap(), store.watch("t/a", 0).unwrap()];
    put(&store, "t/a", "a").await;
    let built = AtomicU64::new(0);
    let mut frames = Vec::new();
    for watch in &mut watches {
        let event = watch.next_batch(1).await.unwrap().remove(0);
        frames.push(event.frame(|event| {
            built.fetch_add(1, Ordering::SeqCst);
            event.entry.value()
        }));
    }
    assert_eq!(built.into_inner(), 1);
    assert_eq!(frames[0], frames[1]);
    assert_eq!(frames[0].as_ptr(), frames[1].as_ptr());
}

async fn concurrent_increments_add_up(disk: impl Disk) {
    const WRITERS: u64 = 16;
    const EACH: u64 = 25;
    let store = disk.open(Options::default());
    commit(&store, Transaction::new().put("t/count", Value::plain("0"))).await;
    let writers = (0..WRITERS).map(|_| {
        let store = store.clone();
        tokio::spawn(async move {
            for _ in 0..EACH {
                let mut current = store.get("t/count");
                loop {
                    let entry = current.unwrap();
                    let next = text(&entry.value()).parse::<u64>().unwrap() + 1;
                    let update = Transaction::update("t/count", entry.revision, Value::plain(next.to_string()));
                    match store.commit(update).await {
                        Ok(_) => break,
                        Err(CommitError::Conflict { current: found, .. }) => current = found,
                        Err(error) => panic!("{error}"),
                    }
                }
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    assert_eq!(text(&store.get("t/count").unwrap().value()), (WRITERS * EACH).to_string());
    assert_eq!(store.revision(), WRITERS * EACH + 1, "a lost race costs no revision");
}

async fn watchers_see_every_change_of_concurrent_writers(disk: impl Disk) {
    const WRITERS: u64 = 8;
    const EACH: u64 = 60;
    // Few recent events, so that watchers go back and forth between memory and disk.
    let recent = Recent { events_max: 20, ..Recent::default() };
    let store = disk.open(Options { recent, ..Options::default() });
    let watchers: Vec<_> = (0..6)
        .map(|watcher| {
            let mut watch = store.watch("t/", watcher).unwrap();
            tokio::spawn(async move {
                let mut seen = Vec::new();
                while seen.last() != Some(&(WRITERS * EACH)) {
                    let events = watch.next_batch(1 + watcher as usize * 3).await.unwrap();
                    seen.extend(events.iter().map(|event| event.revision()));
                    let newest = *seen.last().unwrap();
                    assert!(watch.progress() >= newest);
                }
                assert_eq!(seen, (watcher + 1..=WRITERS * EACH).collect::<Vec<_>>());
            })
        })
        .collect();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                for number in 0..EACH {
                    put(&store, &format!("t/{}", (writer + number) % 10), "x").await;
                }
            })
        })
        .collect();
    for task in writers.into_iter().chain(watchers) {
        tokio::time::timeout(Duration::from_secs(60), task).await.unwrap().unwrap();
    }
}
