//! Reads logs: the last lines, from a time on, up to a number of bytes, as they are written (PL-120 to PL-124).

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream;
use jiff::Timestamp;
use parking_lot::RwLock;

use super::files::ContainerLogs;
use super::line::{self, LINE_MAX, Line};

/// A followed log is looked at this often. Follower and writer are different processes.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(50);

/// At most this much is read at a time, and held by a reader.
const CHUNK: usize = 64 << 10;

/// A file that goes at the moment in which it is opened is let go, and the next one tried.
const TRIES_MAX: usize = 10;

/// Rotated files beyond this are not looked for.
const FILES_MAX: u32 = 100;

/// Which log, and what of it.
#[derive(Clone, Debug, Default)]
pub struct LogQuery {
    pub pod_uid: String,
    pub container: String,
    /// Which instance, by its restart count.
    pub attempt: u32,
    pub follow: bool,
    pub tail_lines: Option<u64>,
    pub limit_bytes: Option<u64>,
    /// Leave out lines from before.
    pub since: Option<Timestamp>,
    pub timestamps: bool,
}

#[derive(Debug, thiserror::Error)]
#[error("read the log of container `{container}` of pod `{pod_uid}`: {reason}")]
pub struct LogError {
    container: String,
    pod_uid: String,
    reason: io::Error,
}

impl LogError {
    fn new(query: &LogQuery, reason: io::Error) -> Self {
        Self { container: query.container.clone(), pod_uid: query.pod_uid.clone(), reason }
    }
}

/// Instances whose processes run: a follower waits for more of these only.
#[derive(Clone, Debug, Default)]
pub(crate) struct Running {
    instances: Arc<RwLock<HashSet<(String, String, u32)>>>,
}

impl Running {
    pub(crate) fn insert(&self, pod: &str, container: &str, attempt: u32) {
        self.instances.write().insert((pod.to_owned(), container.to_owned(), attempt));
    }

    pub(crate) fn remove(&self, pod: &str, container: &str, attempt: u32) {
        self.instances.write().remove(&(pod.to_owned(), container.to_owned(), attempt));
    }

    fn contains(&self, query: &LogQuery) -> bool {
        let key = (query.pod_uid.clone(), query.container.clone(), query.attempt);
        self.instances.read().contains(&key)
    }
}

/// Reads the logs of one node. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LogReader {
    logs: Arc<PathBuf>,
    running: Running,
}

impl LogReader {
    pub(crate) fn new(logs: PathBuf, running: Running) -> Self {
        Self { logs: Arc::new(logs), running }
    }

    /// Can the log be read? Whatever lies in its place, this neither opens what it points to nor waits (BI-89).
    pub fn check(&self, query: &LogQuery) -> Result<(), LogError> {
        let LogQuery { pod_uid, container, attempt, .. } = query;
        ContainerLogs::open(&self.logs, pod_uid, container, *attempt)
            .and_then(|files| files.as_ref().map_or(Ok(None), oldest))
            .map(drop)
            .map_err(|reason| LogError::new(query, reason))
    }

    /// The log as it would be sent, in pieces. Ends when everything asked for was read and, if following, when the
    /// container has stopped. A container that has written nothing has an empty log.
    pub fn read(&self, query: LogQuery) -> impl Stream<Item = Result<Bytes, LogError>> + Send + 'static {
        let reading = Reading::Begin { logs: Arc::clone(&self.logs), running: self.running.clone(), query };
        stream::unfold(reading, |mut reading| async move {
            loop {
                let (step, next) = match tokio::task::spawn_blocking(move || reading.step()).await {
                    Ok(done) => done,
                    Err(_) => return None,
                };
                reading = next;
                match step {
                    Step::Output(bytes) => return Some((Ok(bytes), reading)),
                    Step::Wait => tokio::time::sleep(FOLLOW_INTERVAL).await,
                    Step::Failed(error) => return Some((Err(error), Reading::Over)),
                    Step::Over => return None,
                }
            }
        })
    }
}

enum Step {
    Output(Bytes),
    Wait,
    Failed(LogError),
    Over,
}

/// The state between two pieces.
enum Reading {
    Begin { logs: Arc<PathBuf>, running: Running, query: LogQuery },
    Open(Box<Open>),
    Over,
}

struct Open {
    logs: Arc<PathBuf>,
    running: Running,
    query: LogQuery,
    files: Option<ContainerLogs>,
    /// The file being read.
    file: Option<File>,
    /// How much was written before it, as far as that is known.
    begin: Option<u64>,
    /// So much is missing before what comes next.
    lost: Option<u64>,
    /// Bytes of a line whose end has not been read.
    rest: Vec<u8>,
    /// The line before was a part: what follows belongs to it.
    continues: bool,
    left: Option<u64>,
    /// The container had stopped before the last look at the file.
    saw_stop: bool,
}

impl Reading {
    fn step(self) -> (Step, Self) {
        let mut open = match self {
            Self::Over => return (Step::Over, Self::Over),
            Self::Open(open) => open,
            Self::Begin { logs, running, query } => {
                let left = query.limit_bytes;
                let open = Open {
                    logs,
                    running,
                    query,
                    files: None,
                    file: None,
                    begin: None,
                    lost: None,
                    rest: Vec::new(),
                    continues: false,
                    left,
                    saw_stop: false,
                };
                Box::new(open)
            }
        };
        match open.step() {
            Ok(Some(step)) => (step, Self::Open(open)),
            Ok(None) => (Step::Over, Self::Over),
            Err(reason) => (Step::Failed(LogError::new(&open.query, reason)), Self::Over),
        }
    }
}

impl Open {
    /// `None`: there is nothing more to come.
    fn step(&mut self) -> io::Result<Option<Step>> {
        if self.left == Some(0) {
            return Ok(None);
        }
        // Asked before reading: what is written before a container stops must not be missed.
        let is_running = self.query.follow && self.running.contains(&self.query);
        if self.file.is_none() && !self.open()? {
            return Ok(is_running.then_some(Step::Wait));
        }
        if let Some(output) = self.tell_lost() {
            return Ok(Some(Step::Output(output.into())));
        }
        let output = self.read()?;
        if !output.is_empty() {
            return Ok(Some(Step::Output(output.into())));
        }
        if self.next_file()? {
            return self.step();
        }
        if is_running {
            return Ok(Some(Step::Wait));
        }
        let one_more_look = self.query.follow && !std::mem::replace(&mut self.saw_stop, true);
        Ok(one_more_look.then_some(Step::Wait))
    }

    /// Finds the first line to send. False: there is no log yet.
    fn open(&mut self) -> io::Result<bool> {
        let LogQuery { pod_uid, container, attempt, .. } = &self.query;
        let Some(files) = ContainerLogs::open(&self.logs, pod_uid, container, *attempt)? else { return Ok(false) };
        for _ in 0..TRIES_MAX {
            self.file = match self.query.tail_lines {
                Some(count) => last_lines(&files, count)?,
                None => oldest(&files)?,
            };
            let Some(file) = &self.file else { break };
            self.begin = files.begin_of(file)?;
            if self.begin.is_some() {
                break;
            }
        }
        let is_all_wanted = self.query.tail_lines.is_none() && self.query.since.is_none();
        self.lost = self.begin.filter(|begin| *begin > 0 && is_all_wanted);
        self.files = Some(files);
        Ok(self.file.is_some())
    }

    /// Reads on until there is something to send or the file ends.
    fn read(&mut self) -> io::Result<Vec<u8>> {
        let mut output = Vec::new();
        let mut chunk = vec![0; CHUNK];
        while output.is_empty() {
            let Some(file) = &mut self.file else { break };
            let count = file.read(&mut chunk)?;
            if count == 0 {
                break;
            }
            self.take(&chunk[..count], &mut output);
        }
        Ok(output)
    }

    fn take(&mut self, mut bytes: &[u8], output: &mut Vec<u8>) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            if self.rest.is_empty() {
                self.take_line(&bytes[..end], output);
            } else {
                self.rest.extend_from_slice(&bytes[..end]);
                let line = std::mem::take(&mut self.rest);
                self.take_line(&line, output);
            }
            bytes = &bytes[end + 1..];
        }
        // What is longer than any line of ours was put there by somebody else.
        if self.rest.len() + bytes.len() <= LINE_MAX {
            self.rest.extend_from_slice(bytes);
        }
    }

    fn take_line(&mut self, bytes: &[u8], output: &mut Vec<u8>) {
        let Some(line) = Line::parse(bytes) else { return };
        let continues = std::mem::replace(&mut self.continues, !line.is_whole);
        if let Some(since) = self.query.since
            && line.timestamp().is_none_or(|time| time < since)
        {
            return;
        }
        if self.query.timestamps && !continues {
            self.push(output, line.time);
            self.push(output, b" ");
        }
        self.push(output, line.text);
        if line.is_whole {
            self.push(output, b"\n");
        }
    }

    fn push(&mut self, output: &mut Vec<u8>, bytes: &[u8]) {
        let count = match &mut self.left {
            Some(left) => {
                let count = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= count as u64;
                count
            }
            None => bytes.len(),
        };
        output.extend_from_slice(&bytes[..count]);
    }

    /// The file that was read to its end may have been rotated; then the next one is newer by one. If so many came after
    /// it that it is gone, those between may be gone too.
    fn next_file(&mut self) -> io::Result<bool> {
        let (Some(files), Some(file)) = (&self.files, &self.file) else { return Ok(false) };
        let own = file.metadata()?;
        let end = self.begin.map(|begin| begin + own.len());
        let mut newer = None;
        for age in 0..FILES_MAX {
            // Files become older while we look, so none is passed over, but one may be seen twice.
            let Some(other) = files.read(age)? else { break };
            if other.metadata()?.ino() == own.ino() {
                let Some(next) = newer else { return Ok(false) };
                (self.file, self.begin) = (Some(next), end);
                return Ok(true);
            }
            newer = Some(other);
        }
        // Rotated out of existence while it was read. Whoever reads on from here must know what is missing.
        let (mut next, mut begin) = (newer, None);
        for _ in 0..TRIES_MAX {
            let Some(file) = &next else { break };
            begin = files.begin_of(file)?;
            if begin.is_some() {
                break;
            }
            next = oldest(files)?;
        }
        let Some(next) = next else { return Ok(false) };
        self.lost = match (end, begin) {
            (Some(end), Some(begin)) => Some(begin.saturating_sub(end)).filter(|lost| *lost > 0),
            _ => None,
        };
        (self.file, self.begin) = (Some(next), begin);
        Ok(true)
    }

    /// Says what is missing, in a line of its own.
    fn tell_lost(&mut self) -> Option<Vec<u8>> {
        let lost = self.lost.take()?;
        let mut output = Vec::new();
        if std::mem::take(&mut self.continues) {
            self.push(&mut output, b"\n");
        }
        if self.query.timestamps {
            self.push(&mut output, line::stamp(Timestamp::now()).as_bytes());
            self.push(&mut output, b" ");
        }
        self.push(&mut output, lost_line(lost).as_bytes());
        Some(output)
    }
}

const LOST_BEFORE: &str = "[tally: ";
const LOST_AFTER: &str = " bytes of this log are missing here: they were rotated away before they were read]";

fn lost_line(bytes: u64) -> String {
    format!("{LOST_BEFORE}{bytes}{LOST_AFTER}\n")
}

/// How much is missing, if a line of a log says that something is.
pub fn lost_bytes(line: &[u8]) -> Option<u64> {
    let line = line.strip_prefix(LOST_BEFORE.as_bytes())?;
    let number = line.strip_suffix(LOST_AFTER.as_bytes())?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

fn oldest(files: &ContainerLogs) -> io::Result<Option<File>> {
    let mut found = None;
    for age in 0..FILES_MAX {
        match files.read(age)? {
            Some(file) => found = Some(file),
            None => break,
        }
    }
    Ok(found)
}

/// The file in which the last `count` lines begin, positioned there.
fn last_lines(files: &ContainerLogs, count: u64) -> io::Result<Option<File>> {
    let mut left = count;
    let mut found = None;
    for age in 0..FILES_MAX {
        let Some(mut file) = files.read(age)? else { break };
        let (position, lines) = line_from_end(&mut file, left)?;
        file.seek(SeekFrom::Start(position))?;
        found = Some(file);
        left -= lines;
        if left == 0 {
            break;
        }
    }
    Ok(found)
}

/// Where the last `count` lines of a file begin, and how many there are if they are fewer.
fn line_from_end(file: &mut File, count: u64) -> io::Result<(u64, u64)> {
    let length = file.metadata()?.len();
    if count == 0 {
        return Ok((length, 0));
    }
    let mut end = length;
    let mut ends_seen = 0;
    let mut chunk = vec![0; CHUNK];
    while end > 0 {
        let size = end.min(CHUNK as u64);
        let part = &mut chunk[..usize::try_from(size).expect("a chunk fits in memory")];
        file.seek(SeekFrom::Start(end - size))?;
        file.read_exact(part)?;
        for (offset, _) in part.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
            let position = end - size + offset as u64 + 1;
            // The end of the last line is not the beginning of another one.
            if position < length && ends_seen + 1 == count {
                return Ok((position, count));
            }
            if position < length {
                ends_seen += 1;
            }
        }
        end -= size;
    }
    let lines = if length == 0 { 0 } else { ends_seen + 1 };
    Ok((0, lines))
}

/// The end of a log as plain text, for termination messages (PL-56).
pub(crate) fn tail_text(files: &ContainerLogs, lines_max: u64, bytes_max: usize) -> io::Result<String> {
    let Some(mut file) = last_lines(files, lines_max)? else { return Ok(String::new()) };
    let mut raw = Vec::new();
    // Eighty of the longest lines would be more than a megabyte; only the end is wanted.
    let length = file.metadata()?.len();
    let start = file.stream_position()?.max(length.saturating_sub((bytes_max + LINE_MAX) as u64 * 2));
    file.seek(SeekFrom::Start(start))?;
    file.take((bytes_max + LINE_MAX) as u64 * 2).read_to_end(&mut raw)?;
    let mut text = Vec::new();
    for line in raw.split(|byte| *byte == b'\n').filter_map(Line::parse) {
        text.extend_from_slice(line.text);
        if line.is_whole {
            text.push(b'\n');
        }
    }
    let start = text.len().saturating_sub(bytes_max);
    Ok(String::from_utf8_lossy(&text[start..]).into_owned())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use futures_util::StreamExt as _;
    use proptest::prelude::*;
    use tempfile::TempDir;

    use super::super::writer::{Bounds, LogWriter};
    use super::*;

    const LARGE: Bounds = Bounds { file_bytes_max: 1 << 20, files_max: 5 };

    /// Lines `0` … `count - 1`, one a second.
    fn write(logs: &Path, count: i64, bounds: Bounds) -> LogWriter {
        let mut writer = LogWriter::new("u", "c", 0, bounds);
        for number in 0..count {
            let text = format!("{number}\n");
            writer.write(logs, text.as_bytes(), Timestamp::from_second(number).unwrap()).unwrap();
        }
        writer
    }

    fn query() -> LogQuery {
        LogQuery { pod_uid: "u".to_owned(), container: "c".to_owned(), ..LogQuery::default() }
    }

    async fn text(logs: &TempDir, query: LogQuery) -> String {
        let reader = LogReader::new(logs.path().to_owned(), Running::default());
        let pieces: Vec<_> = reader.read(query).collect().await;
        let bytes: Vec<u8> = pieces.into_iter().flat_map(|piece| piece.unwrap()).collect();
        String::from_utf8(bytes).unwrap()
    }

    #[tokio::test]
    async fn filters_are_applied_in_order() {
        let logs = TempDir::new().unwrap();
        write(logs.path(), 10, LARGE);
        let at = |second| Some(Timestamp::from_second(second).unwrap());
        for (query, expected) in [
            (query(), "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n"),
            (LogQuery { tail_lines: Some(2), ..query() }, "8\n9\n"),
            (LogQuery { tail_lines: Some(0), ..query() }, ""),
            (LogQuery { tail_lines: Some(100), since: at(8), ..query() }, "8\n9\n"),
            (LogQuery { tail_lines: Some(3), since: at(8), ..query() }, "8\n9\n"),
            (LogQuery { limit_bytes: Some(5), ..query() }, "0\n1\n2"),
            (LogQuery { tail_lines: Some(1), timestamps: true, ..query() }, "1970-01-01T00:00:09.000000000Z 9\n"),
            (LogQuery { tail_lines: Some(1), timestamps: true, limit_bytes: Some(4), ..query() }, "1970"),
            (LogQuery { attempt: 1, ..query() }, ""),
            (LogQuery { container: "other".to_owned(), ..query() }, ""),
        ] {
            assert_eq!(text(&logs, query.clone()).await, expected, "{query:?}");
        }
    }

    #[tokio::test]
    async fn rotated_files_are_read_too() {
        let logs = TempDir::new().unwrap();
        write(logs.path(), 20, Bounds { file_bytes_max: 200, files_max: 100 });
        let all: String = (0..20).map(|number| format!("{number}\n")).collect();
        assert_eq!(text(&logs, query()).await, all);
        for count in 0..=20 {
            let tail: String = (20 - count..20).map(|number| format!("{number}\n")).collect();
            assert_eq!(text(&logs, LogQuery { tail_lines: Some(count), ..query() }).await, tail);
        }
    }

    #[tokio::test]
    async fn parts_of_one_line_get_one_time() {
        let logs = TempDir::new().unwrap();
        let mut writer = LogWriter::new("u", "c", 0, LARGE);
        let long = "x".repeat(40_000) + "\nnext\n";
        writer.write(logs.path(), long.as_bytes(), Timestamp::UNIX_EPOCH).unwrap();
        let stamp = "1970-01-01T00:00:00.000000000Z ";
        let text = text(&logs, LogQuery { timestamps: true, ..query() }).await;
        assert_eq!(text, format!("{stamp}{}\n{stamp}next\n", "x".repeat(40_000)));
    }

    #[tokio::test]
    async fn following_ends_with_the_container_and_survives_rotation() {
        let logs = TempDir::new().unwrap();
        let running = Running::default();
        running.insert("u", "c", 0);
        let reader = LogReader::new(logs.path().to_owned(), running.clone());
        let mut stream = Box::pin(reader.read(LogQuery { follow: true, ..query() }));
        let mut writer = LogWriter::new("u", "c", 0, Bounds { file_bytes_max: 100, files_max: 10 });
        let mut seen = String::new();
        for number in 0..10 {
            let line = format!("line {number}\n");
            writer.write(logs.path(), line.as_bytes(), Timestamp::UNIX_EPOCH).unwrap();
            while !seen.ends_with(&line) {
                let piece = tokio::time::timeout(Duration::from_secs(10), stream.next()).await.unwrap();
                seen.push_str(std::str::from_utf8(&piece.unwrap().unwrap()).unwrap());
            }
        }
        writer.write(logs.path(), b"last\n", Timestamp::UNIX_EPOCH).unwrap();
        running.remove("u", "c", 0);
        while let Some(piece) = tokio::time::timeout(Duration::from_secs(10), stream.next()).await.unwrap() {
            seen.push_str(std::str::from_utf8(&piece.unwrap()).unwrap());
        }
        let all: String = (0..10).map(|number| format!("line {number}\n")).collect();
        assert_eq!(seen, all + "last\n");
    }

    /// What is shown and what is said to be missing is all that was written.
    #[tokio::test]
    async fn what_a_follower_is_too_slow_for_is_said_to_be_missing() {
        let logs = TempDir::new().unwrap();
        let running = Running::default();
        running.insert("u", "c", 0);
        let reader = LogReader::new(logs.path().to_owned(), running.clone());
        let mut stream = Box::pin(reader.read(LogQuery { follow: true, ..query() }));
        let mut writer = LogWriter::new("u", "c", 0, Bounds { file_bytes_max: 400, files_max: 3 });
        let mut write = |numbers: std::ops::Range<u32>| {
            for number in numbers {
                let line = format!("{number:04}\n");
                writer.write(logs.path(), line.as_bytes(), Timestamp::UNIX_EPOCH).unwrap();
            }
        };
        // Of 2 lines at first, so that the follower holds the first file; then of so many that it is gone.
        write(0..2);
        let first = stream.next().await.unwrap().unwrap();
        assert_eq!(first, "0000\n0001\n");
        write(2..1000);
        running.remove("u", "c", 0);
        let mut text = String::new();
        while let Some(piece) = tokio::time::timeout(Duration::from_secs(60), stream.next()).await.unwrap() {
            text.push_str(std::str::from_utf8(&piece.unwrap()).unwrap());
        }
        let lost: Vec<u64> = text.lines().filter_map(|line| lost_bytes(line.as_bytes())).collect();
        let shown: Vec<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
        let [lost] = lost[..] else { panic!("it is said once: {text}") };
        assert_eq!(shown.last(), Some(&999), "{text}");
        let line_length = line::stamp(Timestamp::UNIX_EPOCH).len() as u64 + " F 0000\n".len() as u64;
        assert_eq!(lost / line_length + shown.len() as u64 + 2, 1000, "{lost} bytes are missing: {text}");
        assert_eq!(lost % line_length, 0);

        // Whoever comes too late for the beginning is told as well, unless only the end was asked for.
        let late = super::tests::text(&logs, query()).await;
        let missing = lost_bytes(late.lines().next().unwrap().as_bytes()).unwrap();
        assert_eq!(missing / line_length + late.lines().count() as u64 - 1, 1000, "{late}");
        assert_eq!(super::tests::text(&logs, LogQuery { tail_lines: Some(1), ..query() }).await, "0999\n");
    }

    #[tokio::test]
    async fn a_log_that_is_no_file_is_an_error() {
        let logs = TempDir::new().unwrap();
        std::fs::create_dir_all(logs.path().join("u/c/0.log")).unwrap();
        let reader = LogReader::new(logs.path().to_owned(), Running::default());
        let pieces: Vec<_> = reader.read(query()).collect().await;
        assert!(matches!(&pieces[..], [Err(_)]), "{pieces:?}");
    }

    #[test]
    fn the_tail_is_bounded_in_lines_and_bytes() {
        let logs = TempDir::new().unwrap();
        write(logs.path(), 1000, LARGE);
        let files = ContainerLogs::open(logs.path(), "u", "c", 0).unwrap().unwrap();
        let tail = tail_text(&files, 80, 2048).unwrap();
        assert_eq!(tail.lines().count(), 80);
        assert!(tail.ends_with("998\n999\n"));
        assert_eq!(tail_text(&files, 80, 6).unwrap(), "8\n999\n");
    }

    proptest! {
        #[test]
        fn any_tail_is_the_end_of_the_whole(lines in 0..60_i64, count in 0..80_u64, size in 50..2000_u64) {
            let logs = TempDir::new().unwrap();
            write(logs.path(), lines, Bounds { file_bytes_max: size, files_max: 100 });
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let tail = runtime.block_on(text(&logs, LogQuery { tail_lines: Some(count), ..query() }));
            let first = lines - i64::try_from(count).unwrap().min(lines);
            let expected: String = (first..lines).map(|number| format!("{number}\n")).collect();
            prop_assert_eq!(tail, expected);
        }
    }
}
