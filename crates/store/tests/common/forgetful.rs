//! A disk that forgets what was not synced, tears what was being written, and fails when told to.
//!
//! Keeps a log of framed batches as bytes, the way a real engine does, so that a crash can cut it anywhere.

use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use store::{Backend, BackendError, Batch, Revision};

#[derive(Clone, Default)]
pub struct ForgetfulBackend {
    disk: Arc<Mutex<Disk>>,
}

#[derive(Default)]
struct Disk {
    log: Vec<u8>,
    /// How much of the log survives power loss for sure.
    synced: usize,
    applied: usize,
    fault: Option<(usize, Fault)>,
    stored: Stored,
}

#[derive(Default)]
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

impl ForgetfulBackend {
    /// Fails the batch number `apply`, counted from 0 since the last power loss.
    pub fn fail_at(&self, apply: usize, fault: Fault) {
        self.disk.lock().fault = Some((apply, fault));
    }

    /// Loses what was not synced but for its first `kept` bytes, and starts anew without faults.
    pub fn lose_power(&self, kept: usize) {
        let mut disk = self.disk.lock();
        let left = disk.log.len().min(disk.synced + kept);
        disk.log.truncate(left);
        let (stored, whole) = replay(&disk.log);
        disk.log.truncate(whole);
        *disk = Disk { synced: whole, log: std::mem::take(&mut disk.log), stored, ..Disk::default() };
    }

    pub fn applied(&self) -> usize {
        self.disk.lock().applied
    }
}

impl Backend for ForgetfulBackend {
    fn place(&self) -> String {
        "a forgetful disk".into()
    }

    fn checkpoint(&self) -> Result<Option<Bytes>, BackendError> {
        Ok(self.disk.lock().stored.checkpoint.clone())
    }

    fn scan(&self, visit: &mut dyn FnMut(Revision, &[u8]) -> bool) -> Result<(), BackendError> {
        for (revision, bytes) in &self.disk.lock().stored.records {
            if !visit(*revision, bytes) {
                break;
            }
        }
        Ok(())
    }

    fn apply(&self, batch: Batch) -> Result<(), BackendError> {
        let mut disk = self.disk.lock();
        let number = disk.applied;
        disk.applied += 1;
        let fault = disk.fault.filter(|(at, _)| *at <= number).map(|(_, fault)| fault);
        let frame = encode(&batch);
        match fault {
            Some(Fault::Panic) => panic!("a bug in the backend"),
            Some(Fault::BeforeWrite) => return Err(BackendError::new("no space left on device")),
            Some(Fault::Torn(bytes)) => {
                let torn = bytes.min(frame.len());
                disk.log.extend_from_slice(&frame[..torn]);
                return Err(BackendError::new("short write"));
            }
            Some(Fault::BeforeSync) => {
                disk.log.extend_from_slice(&frame);
                return Err(BackendError::new("sync failed"));
            }
            Some(Fault::AfterSync) | None => {
                disk.log.extend_from_slice(&frame);
                disk.synced = disk.log.len();
            }
        }
        if fault.is_some() {
            return Err(BackendError::new("killed after the sync"));
        }
        disk.stored.apply(batch);
        Ok(())
    }

    fn read(&self, revision: Revision) -> Result<Option<Bytes>, BackendError> {
        Ok(self.disk.lock().stored.records.get(&revision).cloned())
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

/// Frame: length, crc32, body. Body: items of tag, number, length, bytes.
fn encode(batch: &Batch) -> Vec<u8> {
    let mut body = Vec::new();
    let mut item = |tag: u8, number: u64, bytes: &[u8]| {
        body.push(tag);
        body.extend_from_slice(&number.to_be_bytes());
        body.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
        body.extend_from_slice(bytes);
    };
    batch.puts.iter().for_each(|(revision, bytes)| item(1, *revision, bytes));
    batch.removes.iter().for_each(|revision| item(2, *revision, &[]));
    batch.checkpoint.iter().for_each(|bytes| item(3, 0, bytes));
    let mut frame = (body.len() as u32).to_be_bytes().to_vec();
    frame.extend_from_slice(&crc32fast::hash(&body).to_be_bytes());
    frame.extend_from_slice(&body);
    frame
}

/// Everything that whole frames say, and where they end.
fn replay(log: &[u8]) -> (Stored, usize) {
    let mut stored = Stored::default();
    let mut whole = 0;
    while let Some((header, rest)) = log[whole..].split_first_chunk::<8>() {
        let number = |at: usize| u32::from_be_bytes(*header[at..].first_chunk().unwrap());
        let Some(body) = rest.get(..number(0) as usize) else { break };
        if crc32fast::hash(body) != number(4) {
            break;
        }
        stored.apply(decode(body));
        whole += 8 + body.len();
    }
    (stored, whole)
}

fn decode(mut body: &[u8]) -> Batch {
    let mut batch = Batch::default();
    while let Some((tag, rest)) = body.split_first() {
        let (number, rest) = rest.split_first_chunk().unwrap();
        let (length, rest) = rest.split_first_chunk().unwrap();
        let (bytes, rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
        let (number, bytes) = (u64::from_be_bytes(*number), Bytes::copy_from_slice(bytes));
        match tag {
            1 => batch.puts.push((number, bytes)),
            2 => batch.removes.push(number),
            _ => batch.checkpoint = Some(bytes),
        }
        body = rest;
    }
    batch
}
