//! Concurrent clients, a disk that fails, and a store that is opened again: every answer must fit one order in which
//! operations took effect one at a time, and watchers must see exactly that order (INV-42, INV-43, INV-44).

#![allow(clippy::unwrap_used, reason = "in a test a panic is a failure with a backtrace")]

mod common;

use common::linear::{Answer, Kind, Operation, is_linearizable};
use common::*;
use futures_util::FutureExt;
use futures_util::future::join_all;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use store::testing::{Fault, ForgetfulDisk, Logged};
use store::{
    CommitError, Entry, Expect, History, Options, ReadError, Store, SyncTime, Transaction, Value, Watch, Writing,
};

const KEYS: [&str; 3] = ["t/a", "t/b", "u/c"];
const CLIENTS: usize = 5;
const WATCHERS: usize = 4;
const LIVES: u64 = 3;

/// Numbers from a seed (splitmix64).
#[derive(Clone)]
struct Random(Rc<Cell<u64>>);

impl Random {
    fn below(&self, bound: u64) -> u64 {
        let state = self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.0.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 17) % bound
    }
}

/// What clients and watchers write down.
#[derive(Default)]
struct Notes {
    /// A clock that never shows the same twice.
    time: u64,
    next_value: u32,
    histories: BTreeMap<&'static str, Vec<Operation>>,
    watches: Vec<Watched>,
    refused: usize,
    compacted: usize,
    /// Of this life.
    ending: bool,
}

/// What one watch has shown.
struct Watched {
    prefix: &'static str,
    from: u64,
    /// It was asked until it had nothing to say any more, and this was the revision then.
    through: u64,
    delivered: Vec<u64>,
}

impl Notes {
    fn tick(&mut self) -> u64 {
        self.time += 1;
        self.time
    }
}

fn value_of(entry: &Entry<Attributes>) -> u32 {
    text(&entry.value()).parse().unwrap()
}

async fn client(store: TestStore, random: Random, notes: Rc<RefCell<Notes>>) {
    loop {
        tokio::time::sleep(Duration::from_micros(random.below(3000))).await;
        let key = KEYS[random.below(KEYS.len() as u64) as usize];
        let began = notes.borrow_mut().tick();
        // A client acts on what it sees, or on nothing: then it hopes that there is nothing.
        let seen = store.get(key).filter(|_| random.below(4) > 0);
        let expected = seen.as_ref().map(|entry| value_of(entry));
        // Others get in between.
        if random.below(3) > 0 {
            tokio::time::sleep(Duration::from_micros(random.below(2500))).await;
        }
        let new = (seen.is_none() || random.below(4) > 0).then(|| {
            let mut notes = notes.borrow_mut();
            notes.next_value += 1;
            notes.next_value
        });
        let kind = if random.below(4) == 0 { Kind::Read } else { Kind::Set { expected, new } };
        // Written down before it is tried: when the power goes, nobody comes back to do so.
        let number = {
            let mut notes = notes.borrow_mut();
            let history = notes.histories.entry(key).or_default();
            history.push(Operation { kind, began, ended: u64::MAX, answer: Answer::Unknown });
            history.len() - 1
        };
        let answer = match kind {
            Kind::Read => Answer::Read(store.get(key).map(|entry| value_of(&entry))),
            Kind::Set { .. } => set(&store, key, seen.as_deref(), new).await,
        };
        let mut notes = notes.borrow_mut();
        let ended = notes.tick();
        notes.refused += usize::from(matches!(answer, Answer::Refused(_)));
        if answer == Answer::Unknown {
            return;
        }
        let operation = &mut notes.histories.get_mut(key).unwrap()[number];
        (operation.ended, operation.answer) = (ended, answer);
    }
}

async fn set(store: &TestStore, key: &str, seen: Option<&Entry<Attributes>>, new: Option<u32>) -> Answer {
    let expect = seen.map_or(Expect::Absent, |entry| Expect::AtRevision(entry.revision));
    let transaction = Transaction::new().require(key, expect);
    let transaction = match new {
        Some(value) => transaction.put(key, Value::plain(value.to_string())),
        None => transaction.delete(key, Value::plain("0")),
    };
    match store.commit(transaction).await {
        Ok(_) => Answer::Done,
        Err(CommitError::Conflict { current, .. }) => Answer::Refused(current.map(|entry| value_of(&entry))),
        Err(CommitError::Failed { .. } | CommitError::Closed) => Answer::Unknown,
        Err(CommitError::Invalid { reason }) => panic!("{reason}"),
    }
}

/// Watches until the life of the store ends; then it says once more all that there is to say.
async fn watcher(store: TestStore, random: Random, notes: Rc<RefCell<Notes>>) {
    while !notes.borrow().ending {
        tokio::time::sleep(Duration::from_micros(random.below(9000))).await;
        let prefix = ["t/", "t/a", "u/"][random.below(3) as usize];
        let from = random.below(store.revision() + 3);
        let watched = match store.watch(prefix, from) {
            Ok(watch) => look_on(&store, &random, watch).await,
            Err(error) => Err(error),
        };
        let mut notes = notes.borrow_mut();
        match watched {
            Ok((delivered, through)) => notes.watches.push(Watched { prefix, from, through, delivered }),
            Err(ReadError::Compacted { .. }) => notes.compacted += 1,
            Err(other) => panic!("{other}"),
        }
    }
}

/// For a while as it comes, then everything up to a revision.
async fn look_on(
    store: &TestStore,
    random: &Random,
    mut watch: Watch<Attributes>,
) -> Result<(Vec<u64>, u64), ReadError> {
    let mut delivered = Vec::new();
    for _ in 0..random.below(6) {
        match tokio::time::timeout(Duration::from_millis(4), watch.next_batch(1 + random.below(5) as usize)).await {
            Ok(events) => delivered.extend(events?.iter().map(|event| event.revision())),
            // It was not woken, so there must be nothing.
            Err(_) => assert!(watch.next_batch(1).now_or_never().is_none_or(|events| events.is_err()), "slept on"),
        }
    }
    while let Some(events) = watch.next_batch(100).now_or_never() {
        delivered.extend(events?.iter().map(|event| event.revision()));
    }
    Ok((delivered, store.revision()))
}

/// A few lives of a store on one disk, with several clients each.
async fn live(seed: u64) -> (Vec<Logged>, Notes) {
    let random = Random(Rc::new(Cell::new(seed)));
    let notes = Rc::new(RefCell::new(Notes::default()));
    let disk = ForgetfulDisk::default();
    let mut highest = 0;
    for _ in 0..LIVES {
        let sync_micros = random.below(4000);
        let writing = match sync_micros {
            ..1000 => Writing::Inline,
            _ => Writing::InlineAfter(SyncTime::new(move || Duration::from_micros(sync_micros))),
        };
        let history = History { events_max: 4 + random.below(40) as usize, ..History::default() };
        let store = Store::open(disk.mount(), Options { history, writing, ..Options::default() }, derive()).unwrap();
        assert!(store.revision() >= highest, "seed {seed}: back from {highest} to {}", store.revision());
        let tasks = tokio::task::LocalSet::new();
        for _ in 0..CLIENTS {
            tasks.spawn_local(client(store.clone(), random.clone(), notes.clone()));
        }
        notes.borrow_mut().ending = false;
        let watchers: Vec<_> =
            (0..WATCHERS).map(|_| tasks.spawn_local(watcher(store.clone(), random.clone(), notes.clone()))).collect();
        let lasts = Duration::from_micros(8000 + random.below(30_000));
        let _ = tasks.run_until(tokio::time::timeout(lasts / 2, std::future::pending::<()>())).await;
        let torn = random.below(200) as usize;
        disk.fail_next(match random.below(5) {
            0 => Fault::BeforeWrite,
            1 => Fault::BeforeSync,
            2 => Fault::AfterSync,
            3 => Fault::Torn(torn),
            // Only the power goes.
            _ => Fault::Torn(0),
        });
        // Clients that wait for an answer have not got one when the power goes.
        let _ = tasks.run_until(tokio::time::timeout(lasts / 2, std::future::pending::<()>())).await;
        notes.borrow_mut().ending = true;
        tasks.run_until(join_all(watchers)).await.into_iter().for_each(|watcher| watcher.unwrap());
        highest = store.revision();
        drop((tasks, store));
        disk.lose_power(random.below(300) as usize);
    }
    let history = disk.history(0).0;
    (history, Rc::into_inner(notes).unwrap().into_inner())
}

#[test]
fn concurrent_histories_with_crashes_are_linearizable_and_watches_show_them() {
    let (mut refused, mut unknown, mut compacted, mut delivered, mut operations) = (0, 0, 0, 0, 0);
    for seed in 0..150 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let (log, notes) = runtime.block_on(live(seed));
        for (position, change) in log.iter().enumerate() {
            assert_eq!(change.revision, position as u64 + 1, "seed {seed}: INV-43");
        }
        for (key, history) in &notes.histories {
            operations += history.len();
            unknown += history.iter().filter(|operation| operation.answer == Answer::Unknown).count();
            assert!(is_linearizable(history), "seed {seed}: INV-42 of {key}: {history:#?}");
        }
        for watched in &notes.watches {
            let Watched { prefix, from, through, .. } = watched;
            let shown = log.iter().filter(|change| (*from + 1..=*through).contains(&change.revision));
            let shown = shown.filter(|change| change.key.starts_with(prefix));
            let expected: Vec<u64> = shown.map(|change| change.revision).collect();
            assert_eq!(watched.delivered, expected, "seed {seed}: INV-44 of {prefix} from {from} to {through}");
            delivered += expected.len();
        }
        refused += notes.refused;
        compacted += notes.compacted;
    }
    // Otherwise this proves nothing.
    assert!(
        refused > 500 && unknown > 500 && compacted > 100 && delivered > 2000 && operations > 5000,
        "{refused} refused, {unknown} unknown, {compacted} compacted, {delivered} delivered, {operations} in all"
    );
}

#[test]
fn the_checker_finds_what_cannot_be() {
    let operation = |kind, began, ended, answer| Operation { kind, began, ended, answer };
    let set = |expected, new| Kind::Set { expected, new };
    let first = operation(set(None, Some(1)), 0, 1, Answer::Done);
    // A value that is gone without anybody having taken it away.
    let lost = operation(Kind::Read, 2, 3, Answer::Read(None));
    assert!(!is_linearizable(&[first.clone(), lost]));
    // Two that both found nothing.
    let twice = operation(set(None, Some(2)), 2, 3, Answer::Done);
    assert!(!is_linearizable(&[first.clone(), twice]));
    // An answer nobody heard explains what is read, but only once it has begun.
    let unheard = |began| operation(set(Some(1), Some(3)), began, 9, Answer::Unknown);
    let read = operation(Kind::Read, 4, 5, Answer::Read(Some(3)));
    assert!(is_linearizable(&[first.clone(), unheard(2), read.clone()]));
    assert!(!is_linearizable(&[first.clone(), unheard(6), read]));
    // Overlapping ones may come in either order.
    let read = operation(Kind::Read, 0, 3, Answer::Read(None));
    assert!(is_linearizable(&[first, read]));
}
