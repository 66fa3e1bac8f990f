//! Damaged files (BI-124): truncated or with one bit flipped, in every file of a populated directory. The store either
//! refuses and names the directory, or shows everything that was acknowledged; never less without saying so, and never
//! anything else.

#![allow(clippy::unwrap_used, reason = "in a test a panic is a failure with a backtrace")]

mod common;

use common::model::Model;
use common::*;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use store::{FjallBackend, FjallOptions, OpenError, Options, Store, Transaction};

/// What is done to a file.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Truncate(u64),
    FlipBit { byte: u64, bit: u8 },
    Append,
}

/// Where the engine keeps what is written.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kept {
    /// Mostly in tables: the write buffers are small.
    InTables,
    /// All in the journal: nothing fills a write buffer.
    InTheJournal,
}

fn open(path: &Path, kept: Kept) -> Result<TestStore, OpenError> {
    if kept == Kept::InTables {
        return open_fjall(path, Options::default());
    }
    let backend = FjallBackend::open(path, &FjallOptions::default())
        .map_err(|source| OpenError::Backend { place: path.display().to_string(), source })?;
    Store::open(backend, Options::default(), derive())
}

/// A directory with history, compacted up to the middle, and closed.
async fn populate(path: &Path, kept: Kept) -> Model {
    let mut model = Model::default();
    for round in 0..6 {
        let store = open(path, kept).unwrap();
        for number in 0..40 {
            let key = format!("{}/{}", ["t", "u"][number % 2], number % 25);
            let value = format!("{round}-{number}-{}", "x".repeat(700));
            let exists = model.at(model.revision()).contains_key(&key);
            if exists && number % 5 == 0 {
                model.delete(&key, &value);
                commit(&store, Transaction::new().delete(&*key, stamped(&value))).await;
            } else {
                model.put(&key, &value);
                commit(&store, Transaction::new().put(&*key, stamped(&value))).await;
            }
        }
        if round == 3 {
            store.compact(model.revision() / 2).await.unwrap();
        }
    }
    // Opening once more cuts the journal to what is used, which makes copies cheap.
    drop(open(path, kept).unwrap());
    model
}

fn newest_journal(directory: &Path) -> PathBuf {
    files(directory).into_iter().filter(|file| is_journal(file)).max().unwrap()
}

fn is_journal(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "jnl")
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// How many files hold records.
fn tables(directory: &Path) -> usize {
    files(directory).iter().filter(|file| file.to_string_lossy().contains("/keyspaces/1/tables/")).count()
}

fn copy(from: &Path, to: &Path) {
    for file in files(from) {
        let target = to.join(file.strip_prefix(from).unwrap());
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(file, target).unwrap();
    }
}

fn damage(file: &Path, damage: Damage) {
    let mut bytes = fs::read(file).unwrap();
    match damage {
        Damage::Truncate(length) => bytes.truncate(length as usize),
        Damage::FlipBit { byte, bit } => bytes[byte as usize] ^= 1 << bit,
        Damage::Append => bytes.extend_from_slice(&[1, 0, 0, 0, 2, 9, 9]),
    }
    fs::write(file, bytes).unwrap();
}

/// Damages spread over a file of this length, with more in its first bytes, where headers are.
fn damages(length: u64) -> Vec<Damage> {
    if length == 0 {
        return vec![Damage::Append];
    }
    let spots = (0..2).chain((1..=7).map(|part| (length - 1) * part / 7)).filter(|spot| *spot < length);
    let flips = spots.clone().map(|byte| Damage::FlipBit { byte, bit: (byte % 8) as u8 });
    let cuts = spots.step_by(4).map(Damage::Truncate);
    flips.chain(cuts).collect()
}

fn chain(error: &dyn Error) -> String {
    let cause = error.source().map_or(String::new(), |source| format!(": {}", chain(source)));
    format!("{error}{cause}")
}

fn assert_shows(store: &TestStore, model: &Model, what: &str) {
    for prefix in ["t/", "u/"] {
        for at in (store.compacted_revision()..=model.revision()).step_by(9).chain([model.revision()]) {
            let list = listed(store, prefix, Some(at)).unwrap();
            assert_eq!(list, model.listed(prefix, at), "{what}: {prefix} at {at}");
        }
    }
}

/// What came of opening damaged directories.
#[derive(Debug, Default)]
struct Outcomes {
    refused: usize,
    whole: usize,
    shortened: usize,
}

async fn damage_everything(kept: Kept) -> Outcomes {
    let original = tempfile::tempdir().unwrap();
    let model = populate(original.path(), kept).await;
    let mut outcomes = Outcomes::default();
    for file in &files(original.path()) {
        let name = file.strip_prefix(original.path()).unwrap();
        for spot in damages(file.metadata().unwrap().len()) {
            // With the note of what was acknowledged, a loss is told. A journal damaged on a disk that has lost the note
            // as well must still give a prefix.
            for noted in if is_journal(name) { &[true, false][..] } else { &[true] } {
                let copied = tempfile::tempdir().unwrap();
                copy(original.path(), copied.path());
                damage(&copied.path().join(name), spot);
                if !*noted {
                    fs::remove_file(copied.path().join("ACKNOWLEDGED")).unwrap();
                }
                let what = format!("{kept:?} {} {spot:?} noted={noted}", name.display());
                match open(copied.path(), kept) {
                    Err(error) => {
                        outcomes.refused += 1;
                        let text = chain(&error);
                        assert!(text.contains(&copied.path().display().to_string()), "{what}: {text}");
                        assert_eq!(tables(copied.path()), tables(original.path()), "{what}: {text}: data was removed");
                    }
                    Ok(store) if store.revision() == model.revision() => {
                        outcomes.whole += 1;
                        assert_shows(&store, &model, &what);
                    }
                    Ok(store) => {
                        outcomes.shortened += 1;
                        assert!(is_journal(name) && !*noted, "{what}: {} is not all", store.revision());
                        assert_shows(&store, &model.until(store.revision()), &what);
                    }
                }
            }
        }
    }
    outcomes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_tables_are_never_served() {
    let outcomes = damage_everything(Kept::InTables).await;
    assert!(outcomes.refused > 50 && outcomes.whole > 10, "{outcomes:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_journal_is_never_served() {
    let outcomes = damage_everything(Kept::InTheJournal).await;
    assert!(outcomes.refused > 30 && outcomes.whole > 5 && outcomes.shortened > 0, "{outcomes:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_torn_end_of_the_journal_is_cut_off_and_work_goes_on() {
    let original = tempfile::tempdir().unwrap();
    let mut model = populate(original.path(), Kept::InTables).await;
    for round in 0..3 {
        damage(&newest_journal(original.path()), Damage::Append);
        let store = open(original.path(), Kept::InTables).unwrap();
        assert_shows(&store, &model, "torn");
        let value = format!("after {round}");
        model.put("t/after", &value);
        assert_eq!(put(&store, "t/after", &value).await, model.revision());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_reached_the_disk_in_pieces_is_as_if_it_had_not() {
    let original = tempfile::tempdir().unwrap();
    let model = populate(original.path(), Kept::InTheJournal).await;
    let journal = newest_journal(original.path());
    let start = journal.metadata().unwrap().len() as usize;
    let note = original.path().join("ACKNOWLEDGED");
    let noted = fs::read(&note).unwrap();
    let store = open(original.path(), Kept::InTheJournal).unwrap();
    put(&store, "t/large", &"x".repeat(20_000)).await;
    drop(store);
    let bytes = fs::read(&journal).unwrap();
    for page in (start..bytes.len()).step_by(4096) {
        let mut torn = bytes.clone();
        torn[page..bytes.len().min(page + 4096)].fill(0);
        let copied = tempfile::tempdir().unwrap();
        copy(original.path(), copied.path());
        fs::write(newest_journal(copied.path()), torn).unwrap();
        // Power was lost before the sync, so nothing was noted.
        fs::write(copied.path().join("ACKNOWLEDGED"), &noted).unwrap();
        let store = open(copied.path(), Kept::InTheJournal).unwrap();
        assert_eq!(store.revision(), model.revision());
        assert_shows(&store, &model, "in pieces");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_in_the_middle_of_the_journal_is_refused_and_nothing_is_cut() {
    let original = tempfile::tempdir().unwrap();
    populate(original.path(), Kept::InTheJournal).await;
    let journal = newest_journal(original.path());
    let length = journal.metadata().unwrap().len();
    // Inside a value; a batch's sequence number, for one, is not checked and does not matter.
    let bytes = fs::read(&journal).unwrap();
    let middle = bytes.windows(8).skip(length as usize / 2).position(|window| window == b"xxxxxxxx").unwrap();
    damage(&journal, Damage::FlipBit { byte: length / 2 + middle as u64, bit: 3 });
    let damaged = fs::read(&journal).unwrap();
    let refused = chain(&open(original.path(), Kept::InTheJournal).unwrap_err());
    assert!(refused.contains(&format!("the journal `{}` is damaged at byte", journal.display())), "{refused}");
    assert_eq!(fs::read(&journal).unwrap(), damaged);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_journal_that_ends_before_what_was_acknowledged_is_refused_by_number() {
    let original = tempfile::tempdir().unwrap();
    let model = populate(original.path(), Kept::InTheJournal).await;
    let journal = newest_journal(original.path());
    let length = journal.metadata().unwrap().len();
    damage(&journal, Damage::Truncate(length - 1));
    let lost = open(original.path(), Kept::InTheJournal).unwrap_err();
    let acknowledged = model.revision();
    let OpenError::Lost { acknowledged: told, found, .. } = &lost else { panic!("{}", chain(&lost)) };
    assert_eq!((*told, *found), (acknowledged, acknowledged - 1));
    // As the message says, removing the note accepts the loss.
    fs::remove_file(original.path().join("ACKNOWLEDGED")).unwrap();
    let store = open(original.path(), Kept::InTheJournal).unwrap();
    assert_shows(&store, &model.until(acknowledged - 1), "accepted");
}
