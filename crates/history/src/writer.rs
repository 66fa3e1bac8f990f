//! Appends records: one thread, many runs at a time.
//!
//! **What "written" means.** A run is reported as written when its bytes are with the kernel, which outlives a kill -9
//! of this process; they are synced to the disk within [`SYNC_INTERVAL`], so a power cut costs at most that much. To
//! sync before every report would put a second stream of syncs beside the store's, and each pod's end would wait for
//! both of them, to protect evidence of runs whose results the same power cut may have destroyed. Whoever reports the
//! end of a run waits for the write only, which takes microseconds.
//!
//! **Pressure.** The queue is bounded. When runs end faster than they can be written, logs are cut to
//! [`PRESSED_LOG_MAX`] first; a record is dropped only when the queue is full. When the disk is full, records are
//! dropped and pods go on.

use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use jiff::{SignedDuration, Timestamp};

use crate::record::{LOG_MAX, Record, encode};
use crate::segment::{self, MAGIC, SEGMENT_MAX};

/// Runs that wait to be written. A node has at most some thousand containers that could end at once.
const QUEUE_MAX: usize = 4096;
/// With more runs than this waiting, logs are cut short.
const PRESSED: usize = 512;
/// What is kept of a log under pressure.
const PRESSED_LOG_MAX: usize = 4 << 10;
/// Runs that are written together; with whole logs they take 4 MiB.
const BATCH_MAX: usize = 64;
/// What is written is synced to the disk after at most this long.
pub(crate) const SYNC_INTERVAL: Duration = Duration::from_secs(1);
/// How often old files are looked for when nothing else happens.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(60);
/// Bounds are kept by removing whole files, so there are about this many.
const SEGMENTS_WANTED: u64 = 8;

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// All files together.
    pub bytes_max: u64,
    /// Files whose newest record is older are removed.
    pub age_max: Option<Duration>,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { bytes_max: 256 << 20, age_max: Some(Duration::from_secs(30 * 86_400)) }
    }
}

/// Reads the end of a log: at most that many bytes, and whether there was more.
type ReadLog = Box<dyn FnOnce(usize) -> (Vec<u8>, bool) + Send>;

/// An ended run on its way to the disk.
pub struct Run {
    pub record: Record,
    /// Called on the writer's thread.
    pub log: Option<ReadLog>,
    /// Dropped when the record is with the kernel, or cannot be kept.
    pub written: Box<dyn Send>,
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Run").field("record", &self.record).finish_non_exhaustive()
    }
}

#[derive(Debug, thiserror::Error)]
#[error("open the history in `{directory}`")]
pub struct OpenError {
    directory: String,
    #[source]
    source: io::Error,
}

/// The history, open for appending. Only one process may have it; the caller sees to that.
#[derive(Debug)]
pub struct Writer {
    queue: Option<SyncSender<Run>>,
    waiting: Arc<AtomicUsize>,
    /// The last run was dropped; people are told once.
    is_dropping: AtomicBool,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Makes the directory if it is missing, and cuts off what a crash left half written.
    pub fn open(directory: &Path, bounds: Bounds) -> Result<Self, OpenError> {
        let failed = |source| OpenError { directory: directory.display().to_string(), source };
        let files = Files::open(directory, bounds).map_err(failed)?;
        let (queue, runs) = sync_channel(QUEUE_MAX);
        let waiting = Arc::new(AtomicUsize::new(0));
        let worker = Worker { files, runs, waiting: Arc::clone(&waiting), buffer: Vec::new(), is_failing: false };
        let thread = thread::Builder::new().name("history".to_owned()).spawn(|| worker.run()).map_err(failed)?;
        Ok(Self { queue: Some(queue), waiting, is_dropping: AtomicBool::new(false), thread: Some(thread) })
    }

    /// Hands a run over. Never waits: a run that finds the queue full is dropped, and with it its `written`.
    pub fn append(&self, run: Run) {
        let Some(queue) = &self.queue else { return };
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let sent = queue.try_send(run);
        let was_dropping = self.is_dropping.swap(sent.is_err(), Ordering::Relaxed);
        if let Err(TrySendError::Full(run) | TrySendError::Disconnected(run)) = sent {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            if !was_dropping {
                tracing::warn!(pod = run.record.pod_name, "the history cannot keep up; runs are not recorded");
            }
        }
    }
}

/// Writes and syncs what waits.
impl Drop for Writer {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the history's writer had panicked");
        }
    }
}

struct Worker {
    files: Files,
    runs: Receiver<Run>,
    waiting: Arc<AtomicUsize>,
    buffer: Vec<u8>,
    /// The last write failed; people are told once.
    is_failing: bool,
}

impl Worker {
    fn run(mut self) {
        let mut unsynced_since: Option<Instant> = None;
        let mut next_expiry = Instant::now();
        loop {
            if Instant::now() >= next_expiry {
                self.files.expire(Timestamp::now());
                next_expiry = Instant::now() + EXPIRY_INTERVAL;
            }
            let wake = unsynced_since.map_or(next_expiry, |since| next_expiry.min(since + SYNC_INTERVAL));
            match self.runs.recv_timeout(wake.saturating_duration_since(Instant::now())) {
                Ok(first) => {
                    self.write(first);
                    unsynced_since.get_or_insert_with(Instant::now);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if unsynced_since.is_some_and(|since| since.elapsed() >= SYNC_INTERVAL) {
                self.sync();
                unsynced_since = None;
            }
        }
        self.sync();
    }

    /// Writes this run and those that came meanwhile.
    fn write(&mut self, first: Run) {
        let now = Timestamp::now();
        let mut runs: Vec<Run> = vec![first];
        runs.extend(self.runs.try_iter().take(BATCH_MAX - 1));
        let waiting = self.waiting.fetch_sub(runs.len(), Ordering::Relaxed).saturating_sub(runs.len());
        let log_max = if waiting > PRESSED { PRESSED_LOG_MAX } else { LOG_MAX };
        let mut written = Vec::with_capacity(runs.len());
        for Run { record, log, written: report } in runs {
            self.encode(record, log, log_max, now);
            written.push(report);
            if self.buffer.len() as u64 >= self.files.segment_max() / 2 {
                self.flush(now);
            }
        }
        self.flush(now);
        drop(written);
    }

    fn encode(&mut self, mut record: Record, log: Option<ReadLog>, log_max: usize, now: Timestamp) {
        let (mut log, truncated) = log.map_or_else(Default::default, |read| read(log_max));
        let surplus = log.len().saturating_sub(log_max);
        log.drain(..surplus);
        record.log_truncated = truncated || surplus > 0;
        record.log_bytes = log.len() as u64;
        record.recorded_at = now;
        if !encode(&record, &log, &mut self.buffer) {
            tracing::warn!(pod = record.pod_name, "a record is too long to be kept");
        }
    }

    fn flush(&mut self, now: Timestamp) {
        let result = match self.buffer.is_empty() {
            true => Ok(()),
            false => self.files.append(&self.buffer, now),
        };
        self.buffer.clear();
        self.tell(result, "the history cannot be written; runs are not recorded");
    }

    fn sync(&mut self) {
        let result = self.files.sync();
        self.tell(result, "the history cannot be synced to the disk");
    }

    fn tell(&mut self, result: io::Result<()>, what: &str) {
        match result {
            Ok(()) => self.is_failing = false,
            Err(error) if !std::mem::replace(&mut self.is_failing, true) => tracing::warn!(%error, "{what}"),
            Err(_) => {}
        }
    }
}

/// The files of a history and how full they are.
#[derive(Debug)]
struct Files {
    directory: PathBuf,
    bounds: Bounds,
    /// Oldest first; the last one is written to.
    segments: VecDeque<Segment>,
    active: Option<File>,
}

#[derive(Debug)]
struct Segment {
    number: u64,
    bytes: u64,
    /// When the first record was written, if that is known.
    first: Option<Timestamp>,
    last: Timestamp,
}

impl Files {
    fn open(directory: &Path, bounds: Bounds) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let mut files = Self { directory: directory.to_owned(), bounds, segments: VecDeque::new(), active: None };
        let numbers = segment::list(directory)?;
        for number in &numbers {
            let metadata = fs::metadata(segment::path(directory, *number))?;
            let last = metadata.modified().ok().and_then(|time| Timestamp::try_from(time).ok());
            let last = last.or_else(|| Timestamp::try_from(SystemTime::now()).ok()).unwrap_or_default();
            files.segments.push_back(Segment { number: *number, bytes: metadata.len(), first: None, last });
        }
        if let Some(newest) = numbers.last() {
            files.recover(*newest)?;
        }
        files.make_room(0);
        Ok(files)
    }

    /// Cuts off the torn end of the newest file and goes on there.
    fn recover(&mut self, number: u64) -> io::Result<()> {
        let Some(bytes) = segment::read(&self.directory, number)? else { return Ok(()) };
        let sound = segment::sound_length(&bytes);
        let file = OpenOptions::new().append(true).open(segment::path(&self.directory, number))?;
        if sound == 0 {
            // Not even its beginning was written, or it is not ours to append to.
            return if bytes.len() < MAGIC.len() { self.remove_last() } else { Ok(()) };
        }
        if sound < bytes.len() {
            tracing::info!(bytes = bytes.len() - sound, "the history's torn end is cut off");
            file.set_len(sound as u64)?;
            file.sync_data()?;
        }
        if let Some(segment) = self.segments.back_mut() {
            segment.bytes = sound as u64;
            let first = segment::frames(&bytes).next().and_then(|(_, frame)| {
                serde_json::from_slice::<Record>(frame.json).ok().map(|record| record.recorded_at)
            });
            segment.first = first;
        }
        self.active = Some(file);
        Ok(())
    }

    fn remove_last(&mut self) -> io::Result<()> {
        let Some(segment) = self.segments.pop_back() else { return Ok(()) };
        fs::remove_file(segment::path(&self.directory, segment.number))
    }

    fn segment_max(&self) -> u64 {
        (self.bounds.bytes_max / SEGMENTS_WANTED).clamp(1, SEGMENT_MAX)
    }

    fn append(&mut self, bytes: &[u8], now: Timestamp) -> io::Result<()> {
        let size = bytes.len() as u64;
        if size + MAGIC.len() as u64 > self.bounds.bytes_max {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the bound on the history is too small"));
        }
        let is_full = self.segments.back().is_some_and(|segment| segment.bytes + size > self.segment_max());
        if self.active.is_none() || is_full || self.is_aged(now) {
            self.roll(now)?;
        }
        self.make_room(size);
        let (Some(file), Some(segment)) = (&mut self.active, self.segments.back_mut()) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        if let Err(error) = file.write_all(bytes) {
            // What follows half a record could not be read; if it cannot be undone, the next run begins a new file.
            if file.set_len(segment.bytes).is_err() {
                self.active = None;
            }
            return Err(error);
        }
        segment.bytes += size;
        segment.first.get_or_insert(now);
        segment.last = now;
        Ok(())
    }

    /// A file that goes on for too long would keep its oldest records beyond their time.
    fn is_aged(&self, now: Timestamp) -> bool {
        let first = self.segments.back().and_then(|segment| segment.first);
        let age = first.and_then(|first| Duration::try_from(now.duration_since(first)).ok());
        let share = self.bounds.age_max.map(|age| age / u32::try_from(SEGMENTS_WANTED).unwrap_or(1));
        age.zip(share).is_some_and(|(age, share)| age > share)
    }

    /// Begins a new file.
    fn roll(&mut self, now: Timestamp) -> io::Result<()> {
        self.sync()?;
        self.active = None;
        let number = self.segments.back().map_or(1, |segment| segment.number + 1);
        let path = segment::path(&self.directory, number);
        let mut file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(MAGIC)?;
        // The file's name must not be lost when its content is not.
        File::open(&self.directory)?.sync_all()?;
        let bytes = MAGIC.len() as u64;
        self.segments.push_back(Segment { number, bytes, first: None, last: now });
        self.active = Some(file);
        Ok(())
    }

    /// Removes the oldest files until this many bytes more are within the bound.
    fn make_room(&mut self, size: u64) {
        let total = |files: &Self| files.segments.iter().map(|segment| segment.bytes).sum::<u64>();
        while self.segments.len() > 1 && total(self) + size > self.bounds.bytes_max {
            self.remove_oldest();
        }
    }

    fn expire(&mut self, now: Timestamp) {
        let Some(age) = self.bounds.age_max.and_then(|age| SignedDuration::try_from(age).ok()) else { return };
        while self.segments.front().is_some_and(|segment| now.duration_since(segment.last) > age) {
            if self.segments.len() == 1 {
                self.active = None;
            }
            self.remove_oldest();
        }
    }

    fn remove_oldest(&mut self) {
        let Some(segment) = self.segments.pop_front() else { return };
        match fs::remove_file(segment::path(&self.directory, segment.number)) {
            // Somebody may have been faster.
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, "an old file of the history cannot be removed");
            }
            _ => {}
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.active.as_ref().map_or(Ok(()), File::sync_data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(bytes_max: u64, age_secs: Option<u64>) -> Bounds {
        Bounds { bytes_max, age_max: age_secs.map(Duration::from_secs) }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn bytes_on_disk(directory: &Path) -> u64 {
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
    }

    fn append(files: &mut Files, number: i64, log: &[u8]) {
        let mut bytes = Vec::new();
        let record = Record { pod_name: number.to_string(), recorded_at: at(number), ..Record::default() };
        assert!(encode(&record, log, &mut bytes));
        files.append(&bytes, at(number)).unwrap();
    }

    #[test]
    fn the_files_never_exceed_their_bound_and_keep_the_newest() {
        let dir = tempfile::tempdir().unwrap();
        let bound = 64 << 10;
        let mut files = Files::open(dir.path(), bounds(bound, None)).unwrap();
        for number in 0..1000 {
            append(&mut files, number, &[b'x'; 700]);
            assert!(bytes_on_disk(dir.path()) <= bound, "after {number}");
        }
        assert!(bytes_on_disk(dir.path()) > bound / 2, "most of the room is used");
        let numbers = segment::list(dir.path()).unwrap();
        let newest = segment::read(dir.path(), *numbers.last().unwrap()).unwrap().unwrap();
        let (_, last) = segment::frames(&newest).last().unwrap();
        assert_eq!(serde_json::from_slice::<Record>(last.json).unwrap().pod_name, "999");
    }

    #[test]
    fn a_smaller_bound_takes_effect_at_the_next_start() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = Files::open(dir.path(), bounds(1 << 20, None)).unwrap();
        (0..1000).for_each(|number| append(&mut files, number, &[b'x'; 900]));
        drop(files);
        assert!(bytes_on_disk(dir.path()) > 500_000);
        let mut files = Files::open(dir.path(), bounds(300_000, None)).unwrap();
        assert!(bytes_on_disk(dir.path()) <= 300_000);
        append(&mut files, 1000, b"");
        assert!(bytes_on_disk(dir.path()) <= 300_000);
    }

    #[test]
    fn what_is_too_old_goes_with_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = Files::open(dir.path(), bounds(1 << 20, Some(800))).unwrap();
        (0..20).for_each(|step| append(&mut files, step * 100, b""));
        files.expire(at(1900));
        let left: Vec<i64> =
            files.segments.iter().map(|segment| segment.last.as_second() - at(0).as_second()).collect();
        assert!(left.iter().all(|last| *last >= 1100), "{left:?}");
        assert!(left.len() <= 10, "{left:?}");
        files.expire(at(10_000));
        assert_eq!(segment::list(dir.path()).unwrap(), Vec::<u64>::new());
        append(&mut files, 10_001, b"");
        assert_eq!(segment::list(dir.path()).unwrap().len(), 1);
    }

    #[test]
    fn a_record_above_the_bound_is_refused_and_nothing_breaks() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = Files::open(dir.path(), bounds(1000, None)).unwrap();
        assert!(files.append(&[0; 2000], at(0)).is_err());
        append(&mut files, 1, b"");
        assert!(bytes_on_disk(dir.path()) <= 1000);
    }
}
