//! The nursery's memory on disk: which instances were started, what became of them.
//!
//! One JSON record a line, appended. A start is on disk before the process exists, so that no crash, not even of the
//! machine, can lead to a second start (INV-49). The other records only have to survive the nursery itself, which a
//! completed write does: after a crash of the machine no process is left whose end could be known. Records gather until
//! [`Journal::write`], which comes before anybody is told of them.

use std::collections::BTreeMap;
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
    entries: BTreeMap<InstanceId, Entry>,
    records: usize,
    unwritten: Vec<u8>,
    is_dirty: bool,
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
        let (mut entries, last_boot) = read(path)?;
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
        let file = open_to_append(path)?;
        let mut journal = Self {
            path: path.to_owned(),
            file,
            boot: boot.to_owned(),
            entries,
            records: 0,
            unwritten: Vec::new(),
            is_dirty: false,
        };
        journal.rewrite()?;
        Ok((journal, leftovers))
    }

    pub(super) fn get(&self, id: &InstanceId) -> Option<&Entry> {
        self.entries.get(id)
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (&InstanceId, &Entry)> {
        self.entries.iter()
    }

    /// Intends to start an instance. [`Self::sync`] must succeed before it is.
    pub(super) fn starting(&mut self, id: &InstanceId) -> io::Result<()> {
        self.append(&Record::Starting(id.clone()))?;
        self.entries.insert(id.clone(), Entry::default());
        self.is_dirty = true;
        Ok(())
    }

    pub(super) fn started(&mut self, id: &InstanceId, process: ProcessKey, at: Timestamp) -> io::Result<()> {
        if let Some(entry) = self.entries.get_mut(id) {
            entry.process = Some(process);
            entry.started_at = Some(at);
        }
        self.append(&Record::Started { id: id.clone(), process, at })
    }

    pub(super) fn ended(&mut self, id: &InstanceId, end: &End) -> io::Result<()> {
        if let Some(entry) = self.entries.get_mut(id) {
            entry.process = None;
            entry.end = Some(end.clone());
        }
        self.append(&Record::Ended { id: id.clone(), end: end.clone() })
    }

    pub(super) fn forget(&mut self, id: &InstanceId) -> io::Result<()> {
        if self.entries.get(id).is_none_or(|entry| entry.end.is_none()) {
            return Ok(());
        }
        self.entries.remove(id);
        self.append(&Record::Forgotten(id.clone()))?;
        if self.records > self.entries.len() * 3 + SLACK_MAX { self.rewrite() } else { Ok(()) }
    }

    /// Hands what was recorded to the kernel: from here on it survives the nursery.
    pub(super) fn write(&mut self) -> io::Result<()> {
        if !self.unwritten.is_empty() {
            self.file.write_all(&self.unwritten)?;
            self.unwritten.clear();
        }
        Ok(())
    }

    /// Makes starts that were recorded durable.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.write()?;
        if self.is_dirty {
            self.file.sync_data()?;
            self.is_dirty = false;
        }
        Ok(())
    }

    fn append(&mut self, record: &Record) -> io::Result<()> {
        self.records += 1;
        push(&mut self.unwritten, record)
    }

    /// A new file with what is known now takes the place of the old one.
    fn rewrite(&mut self) -> io::Result<()> {
        let mut bytes = Vec::new();
        push(&mut bytes, &Record::Boot(self.boot.clone()))?;
        for (id, entry) in &self.entries {
            push(&mut bytes, &Record::Starting(id.clone()))?;
            if let (Some(process), Some(at)) = (entry.process, entry.started_at) {
                push(&mut bytes, &Record::Started { id: id.clone(), process, at })?;
            }
            if let Some(end) = &entry.end {
                push(&mut bytes, &Record::Ended { id: id.clone(), end: end.clone() })?;
            }
        }
        let next = self.path.with_extension("next");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&next)?;
        file.write_all(&bytes)?;
        file.sync_data()?;
        fs::rename(&next, &self.path)?;
        if let Some(parent) = self.path.parent() {
            File::open(parent)?.sync_all()?;
        }
        self.file = open_to_append(&self.path)?;
        self.records = self.entries.len();
        self.unwritten.clear();
        self.is_dirty = false;
        Ok(())
    }
}

fn open_to_append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

fn push(bytes: &mut Vec<u8>, record: &Record) -> io::Result<()> {
    serde_json::to_writer(&mut *bytes, record)?;
    bytes.push(b'\n');
    Ok(())
}

type Entries = BTreeMap<InstanceId, Entry>;

/// All whole records. A record that a crash cut off is the last one, and was not acted upon.
fn read(path: &Path) -> io::Result<(Entries, Option<String>)> {
    let mut entries = Entries::new();
    let mut boot = None;
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((entries, boot)),
        Err(error) => return Err(error),
    };
    let mut reader = BufReader::new(file);
    let mut text = Vec::new();
    while reader.read_until(b'\n', &mut text)? > 0 {
        let Ok(record) = serde_json::from_slice(&text) else { break };
        match record {
            Record::Boot(id) => boot = Some(id),
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
        text.clear();
    }
    Ok((entries, boot))
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
            journal.starting(&id(attempt)).unwrap();
            journal.started(&id(attempt), PROCESS, Timestamp::UNIX_EPOCH).unwrap();
        }
        journal.sync().unwrap();
        journal.ended(&id(0), &end(0)).unwrap();
        journal.ended(&id(1), &end(5)).unwrap();
        journal.forget(&id(0)).unwrap();
        journal.forget(&id(2)).unwrap();
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
        journal.starting(&id(0)).unwrap();
        journal.started(&id(0), PROCESS, Timestamp::UNIX_EPOCH).unwrap();
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
        journal.starting(&id(0)).unwrap();
        journal.ended(&id(0), &end(1)).unwrap();
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
        for attempt in 0..20_000 {
            journal.starting(&id(attempt)).unwrap();
            journal.ended(&id(attempt), &end(0)).unwrap();
            journal.forget(&id(attempt)).unwrap();
        }
        assert!(journal.records <= SLACK_MAX + 3, "{}", journal.records);
    }
}
