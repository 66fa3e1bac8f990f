//! A disk that forgets what was not synced, tears what was being written, fills up, and fails when told to (P-17).
//!
//! Keeps a log of framed batches as bytes, the way a real engine does, so that a crash can cut it anywhere. Slow syncs
//! are not here but in [`Writing::InlineAfter`](crate::Writing): a call of [`Backend::apply`] cannot wait for a paused
//! clock.

use crate::record;
use crate::{Backend, BackendError, Batch, EventKind, Revision};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use teeth::{Mutation, is};

/// Clones are the same disk.
#[derive(Clone, Debug, Default)]
pub struct ForgetfulDisk {
    disk: Arc<Mutex<Disk>>,
    /// The life of the machine that this handle belongs to; `None` for any.
    life: Option<u64>,
}

/// One change as the disk has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    pub revision: Revision,
    pub kind: EventKind,
    pub key: String,
    /// What the key was changed to, or was last.
    pub value: Bytes,
}

#[derive(Debug, Default)]
struct Disk {
    /// Power losses so far.
    life: u64,
    log: Vec<u8>,
    /// How much of the log survives power loss for sure.
    synced: usize,
    /// Batches since the last power loss.
    applied: usize,
    fault: Option<(usize, Fault)>,
    /// Records that cannot be read.
    unreadable: Unreadable,
    /// How long the log may get; 0 for any length.
    capacity: usize,
    stored: Stored,
}

#[derive(Debug, Default)]
struct Stored {
    records: BTreeMap<Revision, Bytes>,
    checkpoint: Option<Bytes>,
}

/// Where applying a batch stops, and with it everything after.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    BeforeWrite,
    /// Only this many bytes get out.
    Torn(usize),
    BeforeSync,
    /// The sync succeeded, but nobody hears of it.
    AfterSync,
    /// A bug.
    Panic,
}

/// Which records a disk fails to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unreadable {
    #[default]
    None,
    One(Revision),
    All,
}

impl ForgetfulDisk {
    /// Fails the batch number `apply`, counted from 0 since the last power loss, and all after it.
    pub fn fail_at(&self, apply: usize, fault: Fault) {
        self.disk.lock().fault = Some((apply, fault));
    }

    /// Fails the next batch and all after it.
    pub fn fail_next(&self, fault: Fault) {
        let mut disk = self.disk.lock();
        disk.fault = Some((disk.applied, fault));
    }

    /// Takes back what [`Self::fail_at`], [`Self::leave_room_for`] and [`Self::fail_reads`] asked for.
    pub fn mend(&self) {
        let mut disk = self.disk.lock();
        (disk.fault, disk.capacity, disk.unreadable) = (None, 0, Unreadable::None);
    }

    /// Loses what was not synced but for its first `kept` bytes, and starts anew without faults.
    ///
    /// The size of the disk stays: what is full is full after a restart too. Says whether the end of the log was torn.
    pub fn lose_power(&self, kept: usize) -> bool {
        let mut disk = self.disk.lock();
        let left = disk.log.len().min(disk.synced.saturating_add(kept));
        disk.log.truncate(left);
        let (stored, whole) = replay(&disk.log);
        disk.log.truncate(whole);
        let (log, capacity, life) = (std::mem::take(&mut disk.log), disk.capacity, disk.life + 1);
        *disk = Disk { life, synced: whole, log, stored, capacity, ..Disk::default() };
        whole < left
    }

    /// A handle that works until the next power loss, as a process does: what is left of the old one cannot write
    /// behind the back of the new one.
    #[must_use]
    pub fn mount(&self) -> Self {
        Self { disk: self.disk.clone(), life: Some(self.disk.lock().life) }
    }

    /// Every change that is durable, from a position in the log on, in order; and the position to go on from. What
    /// compaction removed is still here, so that a judge can see the whole history.
    pub fn history(&self, from: usize) -> (Vec<Logged>, usize) {
        let disk = self.disk.lock();
        let mut changes = Vec::new();
        let mut position = from;
        while let Some((batch, bytes)) = disk.log.get(position..disk.synced).and_then(frame) {
            changes.extend(batch.puts.iter().filter_map(|(revision, bytes)| logged(*revision, bytes)));
            position += bytes;
        }
        (changes, position)
    }

    /// Leaves room for this many more bytes.
    pub fn leave_room_for(&self, bytes: usize) {
        let mut disk = self.disk.lock();
        disk.capacity = disk.log.len().saturating_add(bytes).max(1);
    }

    pub fn fail_reads(&self, unreadable: Unreadable) {
        self.disk.lock().unreadable = unreadable;
    }

    pub fn applied(&self) -> usize {
        self.disk.lock().applied
    }

    /// Bytes that were written but would not survive a power loss for sure.
    pub fn unsynced(&self) -> usize {
        let disk = self.disk.lock();
        disk.log.len() - disk.synced
    }

    /// A number that tells two disks apart by their bytes.
    pub fn digest(&self) -> u64 {
        xxhash_rust::xxh3::xxh3_64(&self.disk.lock().log)
    }
}

impl Backend for ForgetfulDisk {
    fn place(&self) -> String {
        "a forgetful disk".into()
    }

    fn checkpoint(&self) -> Result<Option<Bytes>, BackendError> {
        Ok(self.disk.lock().stored.checkpoint.clone())
    }

    fn scan(&self, visit: &mut dyn FnMut(Revision, &[u8]) -> bool) -> Result<(), BackendError> {
        let disk = self.disk.lock();
        for (revision, bytes) in &disk.stored.records {
            disk.unreadable.check(*revision)?;
            if !visit(*revision, bytes) {
                break;
            }
        }
        Ok(())
    }

    fn apply(&self, batch: Batch) -> Result<(), BackendError> {
        let mut disk = self.disk.lock();
        disk.check(self.life)?;
        let number = disk.applied;
        disk.applied += 1;
        let frame = encode(&batch);
        let fault = disk.fault.filter(|(at, _)| *at <= number).map(|(_, fault)| fault);
        match fault {
            Some(Fault::Panic) => panic!("a bug in the backend"),
            Some(Fault::BeforeWrite) => return Err(BackendError::new("no space left on device")),
            Some(Fault::Torn(bytes)) => {
                disk.write(&frame, bytes);
                return Err(BackendError::new("short write"));
            }
            Some(Fault::BeforeSync) => {
                disk.write(&frame, frame.len());
                return Err(BackendError::new("sync failed"));
            }
            Some(Fault::AfterSync) | None => {
                if let Some(room) = disk.room()
                    && room < frame.len()
                {
                    disk.write(&frame, room);
                    return Err(BackendError::new("no space left on device"));
                }
                disk.write(&frame, frame.len());
                if !is(Mutation::S01) {
                    disk.synced = disk.log.len();
                }
            }
        }
        if fault.is_some() {
            return Err(BackendError::new("killed after the sync"));
        }
        disk.stored.apply(batch);
        Ok(())
    }

    fn read(&self, revision: Revision) -> Result<Option<Bytes>, BackendError> {
        let disk = self.disk.lock();
        disk.check(self.life)?;
        disk.unreadable.check(revision)?;
        Ok(disk.stored.records.get(&revision).cloned())
    }
}

impl Disk {
    fn check(&self, life: Option<u64>) -> Result<(), BackendError> {
        match life {
            Some(life) if life != self.life => Err(BackendError::new("no such device")),
            _ => Ok(()),
        }
    }

    fn write(&mut self, frame: &[u8], bytes: usize) {
        self.log.extend_from_slice(&frame[..bytes.min(frame.len())]);
    }

    fn room(&self) -> Option<usize> {
        (self.capacity > 0).then(|| self.capacity.saturating_sub(self.log.len()))
    }
}

impl Unreadable {
    fn check(self, revision: Revision) -> Result<(), BackendError> {
        let fails = match self {
            Self::None => false,
            Self::One(one) => one == revision,
            Self::All => true,
        };
        if fails { Err(BackendError::new("input/output error")) } else { Ok(()) }
    }
}

impl Stored {
    fn apply(&mut self, batch: Batch) {
        self.records.extend(batch.puts);
        for revision in batch.removes {
            self.records.remove(&revision);
        }
        if batch.checkpoint.is_some() {
            self.checkpoint = batch.checkpoint;
        }
    }
}

fn logged(revision: Revision, bytes: &Bytes) -> Option<Logged> {
    let decoded = record::decode(revision, bytes).ok()?;
    let value = bytes.slice(decoded.value_start..);
    Some(Logged { revision, kind: decoded.header.kind, key: decoded.key.to_owned(), value })
}

/// Frame: length, crc32, body. Body: items of tag, number, length, bytes.
fn encode(batch: &Batch) -> Vec<u8> {
    let mut body = Vec::new();
    let mut item = |tag: u8, number: u64, bytes: &[u8]| {
        body.push(tag);
        body.extend_from_slice(&number.to_be_bytes());
        body.extend_from_slice(&length(bytes).to_be_bytes());
        body.extend_from_slice(bytes);
    };
    batch.puts.iter().for_each(|(revision, bytes)| item(1, *revision, bytes));
    batch.removes.iter().for_each(|revision| item(2, *revision, &[]));
    batch.checkpoint.iter().for_each(|bytes| item(3, 0, bytes));
    let mut frame = length(&body).to_be_bytes().to_vec();
    frame.extend_from_slice(&crc32fast::hash(&body).to_be_bytes());
    frame.extend_from_slice(&body);
    frame
}

fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("batches are bounded far below 4 GiB")
}

/// Everything that whole frames say, and where they end.
fn replay(log: &[u8]) -> (Stored, usize) {
    let mut stored = Stored::default();
    let mut whole = 0;
    while let Some((batch, bytes)) = frame(&log[whole..]) {
        stored.apply(batch);
        whole += bytes;
    }
    (stored, whole)
}

/// The batch in the first frame, and how long that is; `None` if there is no whole one.
fn frame(log: &[u8]) -> Option<(Batch, usize)> {
    let (size, rest) = log.split_first_chunk::<4>()?;
    let (crc, rest) = rest.split_first_chunk::<4>()?;
    let body = rest.get(..u32::from_be_bytes(*size) as usize)?;
    if crc32fast::hash(body) != u32::from_be_bytes(*crc) {
        return None;
    }
    decode(body).map(|batch| (batch, 8 + body.len()))
}

fn decode(mut body: &[u8]) -> Option<Batch> {
    let mut batch = Batch::default();
    while let Some((tag, rest)) = body.split_first() {
        let (number, rest) = rest.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (bytes, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        let (number, bytes) = (u64::from_be_bytes(*number), Bytes::copy_from_slice(bytes));
        match tag {
            1 => batch.puts.push((number, bytes)),
            2 => batch.removes.push(number),
            _ => batch.checkpoint = Some(bytes),
        }
        body = rest;
    }
    Some(batch)
}
