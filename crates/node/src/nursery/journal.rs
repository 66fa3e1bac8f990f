//! The nursery's memory on disk: which instances were started, what became of them.
//!
//! One JSON record a line, appended. A start is on disk before the process exists, so that no crash, not even of the
//! machine, can lead to a second start (INV-49). The other records only have to survive the nursery itself, which a
//! completed write does: after a crash of the machine no process is left whose end could be known. Records gather until
//! [`Journal::write`], which comes before anybody is told of them.
//!
//! A disk may be full. Records that could not be written stay in memory, at most a few for each instance that exists, and
//! the file is cut back to the last whole record, so that it can be appended to as soon as there is room.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::protocol::{Cause, End, InstanceId};

/// The journal is written anew when it holds this many records more than instances.
const SLACK_MAX: usize = 20_000;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Record {
    /// The boot of the machine that the following process numbers belong to.
    Boot(String),
    Starting(InstanceId),
    Started {
        id: InstanceId,
        process: ProcessKey,
        at: Timestamp,
    },
    Ended {
        id: InstanceId,
        end: End,
    },
    Forgotten(InstanceId),
}

/// A process by more than its number, which may be given to another one later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ProcessKey {
    pub(super) pid: i32,
    /// In clock ticks since boot, as `/proc/PID/stat` says.
    pub(super) start_ticks: u64,
}

/// What the journal knows about one instance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) process: Option<ProcessKey>,
    pub(super) started_at: Option<Timestamp>,
    pub(super) end: Option<End>,
}

#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    boot: String,
    entries: Entries,
    records: usize,
    /// The file is written anew when it has more records than this and more than a few for each instance.
    rewrite_above: usize,
    /// What of the file is whole records.
    length: u64,
    /// The file may have more than that, which must go before anything is appended.
    is_torn: bool,
    /// The file's name may not survive a crash of the machine yet.
    is_new: bool,
    unwritten: Vec<u8>,
    /// Instances whose ends are not on disk.
    unwritten_ends: BTreeSet<InstanceId>,
}

/// What an earlier nursery left unfinished.
#[derive(Debug, Default)]
pub(super) struct Leftovers {
    /// Processes that may still be there.
    pub(super) processes: Vec<ProcessKey>,
    /// Instances that have just been marked as ended unseen.
    pub(super) instances: Vec<InstanceId>,
}

impl Journal {
    /// Reads what is there. Instances without an end get one: whoever watched them is gone.
    pub(super) fn open(path: &Path, boot: &str, now: Timestamp) -> io::Result<(Self, Leftovers)> {
        let Past { mut entries, boot: last_boot, length } = read(path)?;
        let mut leftovers = Leftovers::default();
        for (id, entry) in entries.iter_mut().filter(|(_, entry)| entry.end.is_none()) {
            if last_boot.as_deref() == Some(boot) {
                leftovers.processes.extend(entry.process);
            }
            entry.end = Some(End {
                cause: Cause::Unseen,
                started_at: entry.started_at,
                finished_at: now,
                message: None,
                log_tail: None,
            });
            leftovers.instances.push(id.clone());
        }
        let mut journal = Self {
            path: path.to_owned(),
            file: open_to_append(path)?,
            boot: boot.to_owned(),
            records: entries.len(),
            entries,
            rewrite_above: SLACK_MAX,
            length,
            is_torn: true,
            is_new: true,
            unwritten: Vec::new(),
            unwritten_ends: BTreeSet::new(),
        };
        if journal.rewrite().is_err() {
            journal.continue_old(&leftovers);
        }
        Ok((journal, leftovers))
    }

    /// There is no room for a new file: the old one gets what is new.
    fn continue_old(&mut self, leftovers: &Leftovers) {
        self.append(&Record::Boot(self.boot.clone()));
        for id in &leftovers.instances {
            if let Some(end) = self.entries.get(id).and_then(|entry| entry.end.clone()) {
                self.ended(id, &end);
            }
        }
    }

    pub(super) fn get(&self, id: &InstanceId) -> Option<&Entry> {
        self.entries.get(id)
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (&InstanceId, &Entry)> {
        self.entries.iter()
    }

    /// How much waits to be written.
    pub(super) fn unwritten(&self) -> usize {
        self.unwritten.len()
    }

    /// Could the end of this instance still be forgotten? Then nobody may be told of it.
    pub(super) fn has_unwritten_end(&self, id: &InstanceId) -> bool {
        self.unwritten_ends.contains(id)
    }

    /// Puts on disk that these instances are about to start. Unless it succeeds, they must not, and are not known.
    pub(super) fn starting<'a>(&mut self, ids: impl Iterator<Item = &'a InstanceId> + Clone) -> io::Result<()> {
        let (before, records) = (self.unwritten.len(), self.records);
        for id in ids.clone() {
            self.append(&Record::Starting(id.clone()));
        }
        if let Err(error) = self.write_durably() {
            self.unwritten.truncate(before);
            self.records = records;
            return Err(error);
        }
        self.entries.extend(ids.map(|id| (id.clone(), Entry::default())));
        Ok(())
    }

    pub(super) fn started(&mut self, id: &InstanceId, process: ProcessKey, at: Timestamp) {
        if let Some(entry) = self.entries.get_mut(id) {
            entry.process = Some(process);
            entry.started_at = Some(at);
        }
        self.append(&Record::Started { id: id.clone(), process, at });
    }

    pub(super) fn ended(&mut self, id: &InstanceId, end: &End) {
        if let Some(entry) = self.entries.get_mut(id) {
            entry.process = None;
            entry.end = Some(end.clone());
        }
        self.unwritten_ends.insert(id.clone());
        self.append(&Record::Ended { id: id.clone(), end: end.clone() });
    }

    /// Only what ended can be forgotten, and only by somebody who was told.
    pub(super) fn forget(&mut self, id: &InstanceId) {
        if self.has_unwritten_end(id) || self.entries.get(id).is_none_or(|entry| entry.end.is_none()) {
            return;
        }
        self.entries.remove(id);
        self.append(&Record::Forgotten(id.clone()));
        if self.records > self.entries.len() * 3 + self.rewrite_above && self.rewrite().is_err() {
            // The old file is as good as before. Not again at once: it takes long, and the disk may be full.
            self.rewrite_above = self.records + SLACK_MAX;
        }
    }

    /// Hands what was recorded to the kernel: from here on it survives the nursery.
    pub(super) fn write(&mut self) -> io::Result<()> {
        if self.unwritten.is_empty() {
            return Ok(());
        }
        self.write_with(|_| Ok(()))
    }

    /// The same so that it also survives the machine.
    fn write_durably(&mut self) -> io::Result<()> {
        self.sync_name()?;
        self.write_with(File::sync_data)
    }

    /// All or nothing: what a failure leaves in the file is cut off again, now or before the next attempt.
    fn write_with(&mut self, finish: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
        if self.is_torn {
            self.file.set_len(self.length)?;
            self.is_torn = false;
        }
        if let Err(error) = self.file.write_all(&self.unwritten).and_then(|()| finish(&self.file)) {
            self.is_torn = self.file.set_len(self.length).is_err();
            return Err(error);
        }
        self.length += self.unwritten.len() as u64;
        self.unwritten.clear();
        self.unwritten_ends.clear();
        Ok(())
    }

    fn sync_name(&mut self) -> io::Result<()> {
        if self.is_new
            && let Some(parent) = self.path.parent()
        {
            File::open(parent)?.sync_all()?;
        }
        self.is_new = false;
        Ok(())
    }

    fn append(&mut self, record: &Record) {
        self.records += 1;
        push(&mut self.unwritten, record);
    }

    /// A new file with what is known now takes the place of the old one, which stays if that fails.
    fn rewrite(&mut self) -> io::Result<()> {
        let bytes = self.summary();
        let next = self.path.with_extension("next");
        let file = write_new(&next, &bytes).and_then(|file| fs::rename(&next, &self.path).map(|()| file));
        // Half a file is of no use, and takes room.
        self.file = file.inspect_err(|_| drop(fs::remove_file(&next)))?;
        self.length = bytes.len() as u64;
        self.is_torn = false;
        self.is_new = true;
        self.records = self.entries.len();
        self.rewrite_above = SLACK_MAX;
        self.unwritten.clear();
        self.unwritten_ends.clear();
        // If this fails it is made up for before the next start.
        let _ = self.sync_name();
        Ok(())
    }

    fn summary(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        push(&mut bytes, &Record::Boot(self.boot.clone()));
        for (id, entry) in &self.entries {
            push(&mut bytes, &Record::Starting(id.clone()));
            if let (Some(process), Some(at)) = (entry.process, entry.started_at) {
                push(&mut bytes, &Record::Started { id: id.clone(), process, at });
            }
            if let Some(end) = &entry.end {
                push(&mut bytes, &Record::Ended { id: id.clone(), end: end.clone() });
            }
        }
        bytes
    }
}

/// A file that is on disk as a whole, open to append.
fn write_new(path: &Path, bytes: &[u8]) -> io::Result<File> {
    let _ = fs::remove_file(path);
    let mut file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_data()?;
    Ok(file)
}

fn open_to_append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

fn push(bytes: &mut Vec<u8>, record: &Record) {
    serde_json::to_writer(&mut *bytes, record).expect("records are plain data, and memory takes them");
    bytes.push(b'\n');
}

type Entries = BTreeMap<InstanceId, Entry>;

/// What the file says.
#[derive(Default)]
struct Past {
    entries: Entries,
    boot: Option<String>,
    /// How much of it is whole records.
    length: u64,
}

/// All whole records. A record that a crash cut off is the last one, and was not acted upon.
fn read(path: &Path) -> io::Result<Past> {
    let mut past = Past::default();
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(past),
        Err(error) => return Err(error),
    };
    let mut reader = BufReader::new(file);
    let mut text = Vec::new();
    // Without its newline it is not whole: the next record would be appended to the same line.
    while reader.read_until(b'\n', &mut text)? > 0 && text.ends_with(b"\n") {
        let Ok(record) = serde_json::from_slice(&text) else { break };
        past.take(record);
        past.length += text.len() as u64;
        text.clear();
    }
    Ok(past)
}

impl Past {
    fn take(&mut self, record: Record) {
        let entries = &mut self.entries;
        match record {
            Record::Boot(id) => self.boot = Some(id),
            Record::Starting(id) => drop(entries.insert(id, Entry::default())),
            Record::Started { id, process, at } => {
                let entry = entries.entry(id).or_default();
                entry.process = Some(process);
                entry.started_at = Some(at);
            }
            Record::Ended { id, end } => {
                let entry = entries.entry(id).or_default();
                entry.process = None;
                entry.end = Some(end);
            }
            Record::Forgotten(id) => drop(entries.remove(&id)),
        }
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn id(attempt: u32) -> InstanceId {
        InstanceId { pod: "u".to_owned(), container: "c".to_owned(), attempt }
    }

    fn end(code: i32) -> End {
        let at = Timestamp::UNIX_EPOCH;
        End { cause: Cause::Code(code), started_at: Some(at), finished_at: at, message: None, log_tail: None }
    }

    fn open(directory: &TempDir, boot: &str) -> (Journal, Leftovers) {
        Journal::open(&directory.path().join("journal"), boot, Timestamp::UNIX_EPOCH).unwrap()
    }

    const PROCESS: ProcessKey = ProcessKey { pid: 42, start_ticks: 7 };

    #[test]
    fn ends_survive_and_forgotten_instances_do_not() {
        let directory = TempDir::new().unwrap();
        let (mut journal, _) = open(&directory, "b");
        for attempt in 0..3 {
            journal.starting([&id(attempt)].into_iter()).unwrap();
            journal.started(&id(attempt), PROCESS, Timestamp::UNIX_EPOCH);
        }
        journal.ended(&id(0), &end(0));
        journal.ended(&id(1), &end(5));
        journal.forget(&id(0));
        assert!(journal.get(&id(0)).is_some(), "nobody can have been told of it");
        journal.write().unwrap();
        journal.forget(&id(0));
        journal.forget(&id(2));
        journal.write().unwrap();
        drop(journal);
        let (journal, leftovers) = open(&directory, "b");
        assert_eq!(journal.get(&id(0)), None);
        assert_eq!(journal.get(&id(1)).unwrap().end, Some(end(5)));
        assert_eq!(journal.get(&id(2)).unwrap().end.as_ref().unwrap().cause, Cause::Unseen, "it ran, so it is kept");
        assert_eq!(leftovers.processes, [PROCESS]);
        assert_eq!(leftovers.instances, [id(2)]);
    }

    #[test]
    fn processes_of_another_boot_are_not_looked_for() {
        let directory = TempDir::new().unwrap();
        let (mut journal, _) = open(&directory, "before");
        journal.starting([&id(0)].into_iter()).unwrap();
        journal.started(&id(0), PROCESS, Timestamp::UNIX_EPOCH);
        journal.write().unwrap();
        drop(journal);
        let (journal, leftovers) = open(&directory, "after");
        assert!(leftovers.processes.is_empty());
        assert_eq!(journal.get(&id(0)).unwrap().end.as_ref().unwrap().cause, Cause::Unseen);
    }

    #[test]
    fn a_journal_cut_anywhere_loses_at_most_its_last_record() {
        let directory = TempDir::new().unwrap();
        let (mut journal, _) = open(&directory, "b");
        journal.starting([&id(0)].into_iter()).unwrap();
        journal.ended(&id(0), &end(1));
        journal.write().unwrap();
        drop(journal);
        let path = directory.path().join("journal");
        let whole = fs::read(&path).unwrap();
        let last_record = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
        for cut in last_record..whole.len() - 1 {
            fs::write(&path, &whole[..cut]).unwrap();
            let (journal, _) = open(&directory, "b");
            assert_eq!(journal.get(&id(0)).unwrap().end.as_ref().unwrap().cause, Cause::Unseen, "cut at {cut}");
        }
    }

    #[test]
    fn the_file_does_not_grow_without_bound() {
        let directory = TempDir::new().unwrap();
        let (mut journal, _) = open(&directory, "b");
        let ids: Vec<InstanceId> = (0..20_000).map(id).collect();
        for ids in ids.chunks(100) {
            journal.starting(ids.iter()).unwrap();
            ids.iter().for_each(|id| journal.ended(id, &end(0)));
            journal.write().unwrap();
            ids.iter().for_each(|id| journal.forget(id));
        }
        assert!(journal.records <= SLACK_MAX + 300, "{}", journal.records);
    }

    /// Nothing can be written to what this is, nor cut off it.
    fn full() -> File {
        OpenOptions::new().append(true).open("/dev/full").unwrap()
    }

    #[test]
    fn what_a_full_disk_did_not_take_is_written_when_there_is_room() {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("journal");
        let (mut journal, _) = open(&directory, "b");
        journal.starting([id(0), id(1)].iter()).unwrap();
        let file = std::mem::replace(&mut journal.file, full());
        journal.ended(&id(0), &end(5));
        assert!(journal.write().is_err() && journal.has_unwritten_end(&id(0)));
        // As much as there was room for.
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"Ended\":{\"id\"").unwrap();
        assert!(journal.starting([id(2)].iter()).is_err());
        assert_eq!(journal.get(&id(2)), None, "it must not start");
        let unwritten = journal.unwritten();
        assert!(journal.write().is_err() && journal.unwritten() == unwritten, "a retry costs nothing");

        journal.file = file;
        journal.starting([id(3)].iter()).unwrap();
        assert!(!journal.has_unwritten_end(&id(0)) && journal.unwritten() == 0);
        journal.ended(&id(1), &end(6));
        journal.write().unwrap();
        drop(journal);
        let (journal, leftovers) = open(&directory, "b");
        let causes: Vec<_> =
            journal.entries().map(|(id, entry)| (id.attempt, entry.end.clone().unwrap().cause)).collect();
        assert_eq!(causes, [(0, Cause::Code(5)), (1, Cause::Code(6)), (3, Cause::Unseen)]);
        assert_eq!(leftovers.instances, [id(3)]);
    }

    /// A directory in its place keeps the new file from being made.
    #[test]
    fn a_journal_that_cannot_be_written_anew_goes_on_as_it_is() {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("journal");
        let (mut journal, _) = open(&directory, "before");
        journal.starting([id(0), id(1)].iter()).unwrap();
        journal.started(&id(0), PROCESS, Timestamp::UNIX_EPOCH);
        journal.ended(&id(1), &end(5));
        journal.write().unwrap();
        fs::create_dir(directory.path().join("journal.next")).unwrap();
        assert!(journal.rewrite().is_err());
        journal.forget(&id(1));
        journal.write().unwrap();
        drop(journal);
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"Ended\":{\"id\"").unwrap();

        let (mut journal, leftovers) = open(&directory, "before");
        assert_eq!((leftovers.processes, leftovers.instances), (vec![PROCESS], vec![id(0)]));
        assert!(journal.has_unwritten_end(&id(0)), "so nobody is told");
        journal.starting([id(2)].iter()).unwrap();
        drop(journal);
        let past = read(&path).unwrap();
        assert_eq!(past.length, fs::metadata(&path).unwrap().len());
        assert_eq!(past.entries.keys().map(|id| id.attempt).collect::<Vec<_>>(), [0, 2]);
        assert_eq!(past.entries[&id(0)].end.as_ref().unwrap().cause, Cause::Unseen);
        assert_eq!(past.boot.as_deref(), Some("before"));
    }
}
