//! The end of a log as the container printed it, without the times: what outlives the log itself.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;

use super::files::ContainerLogs;
use super::line::{LINE_MAX, Line};

/// Short lines take many times their length in a file. More than this many times what is wanted is not looked through.
const RAW_FACTOR: u64 = 16;

/// Enough for some of the longest lines, however little is wanted.
const RAW_MIN: u64 = 4 * LINE_MAX as u64;

/// Rotated files that may hold a part of the end.
const FILES_MAX: u32 = 16;

/// The log of one ended run of a container.
#[derive(Clone, Debug)]
pub struct LogTail {
    pub(crate) logs: PathBuf,
    pub(crate) pod_uid: String,
    pub(crate) container: String,
    pub(crate) attempt: u32,
}

/// The end of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tail {
    pub bytes: Vec<u8>,
    /// There was more.
    pub is_cut: bool,
}

impl LogTail {
    /// At most the last `bytes_max` bytes. Blocks; a container that printed nothing has an empty log.
    pub fn read(&self, bytes_max: usize) -> io::Result<Tail> {
        match ContainerLogs::open(&self.logs, &self.pod_uid, &self.container, self.attempt)? {
            Some(files) => read(&files, bytes_max),
            None => Ok(Tail::default()),
        }
    }
}

fn read(files: &ContainerLogs, bytes_max: usize) -> io::Result<Tail> {
    let mut tail = Tail::default();
    let mut raw_left = (bytes_max as u64).saturating_mul(RAW_FACTOR).max(RAW_MIN);
    for age in 0..FILES_MAX {
        let Some(mut file) = files.read(age)? else { break };
        if tail.bytes.len() >= bytes_max || raw_left == 0 {
            tail.is_cut = true;
            break;
        }
        let length = file.metadata()?.len();
        // Most logs have lines long enough for twice the text to be enough.
        let first_try = (bytes_max as u64).saturating_mul(2).min(raw_left);
        let mut part = last_lines(&mut file, length, first_try)?;
        if part.len() + tail.bytes.len() < bytes_max && first_try < length.min(raw_left) {
            part = last_lines(&mut file, length, raw_left)?;
        }
        tail.is_cut |= length > raw_left;
        raw_left = raw_left.saturating_sub(length);
        part.append(&mut tail.bytes);
        tail.bytes = part;
    }
    let surplus = tail.bytes.len().saturating_sub(bytes_max);
    tail.is_cut |= surplus > 0;
    tail.bytes.drain(..surplus);
    Ok(tail)
}

/// The text of the whole lines within the last `raw` bytes of a file.
fn last_lines(file: &mut File, length: u64, raw: u64) -> io::Result<Vec<u8>> {
    let start = length.saturating_sub(raw);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(raw).read_to_end(&mut bytes)?;
    let whole = match start {
        0 => bytes.as_slice(),
        _ => bytes.iter().position(|byte| *byte == b'\n').map_or(&[][..], |end| &bytes[end + 1..]),
    };
    let mut text = Vec::with_capacity(whole.len());
    for line in whole.split(|byte| *byte == b'\n').filter_map(Line::parse) {
        text.extend_from_slice(line.text);
        if line.is_whole {
            text.push(b'\n');
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use tempfile::TempDir;

    use super::super::writer::{Bounds, LogWriter};
    use super::*;

    fn tail(lines: &[String], bytes_max: usize, bounds: Bounds) -> (String, bool) {
        let logs = TempDir::new().unwrap();
        let mut writer = LogWriter::new("u", "c", 0, bounds);
        for line in lines {
            writer.write(logs.path(), line.as_bytes(), Timestamp::UNIX_EPOCH).unwrap();
        }
        let tail = LogTail { logs: logs.path().to_owned(), pod_uid: "u".into(), container: "c".into(), attempt: 0 };
        let Tail { bytes, is_cut } = tail.read(bytes_max).unwrap();
        (String::from_utf8(bytes).unwrap(), is_cut)
    }

    #[test]
    fn the_end_is_read_across_rotated_files_and_short_lines() {
        let lines: Vec<String> = (0..2000).map(|number| format!("{number}\n")).collect();
        let all = lines.concat();
        for bounds in [Bounds { file_bytes_max: 1 << 20, files_max: 5 }, Bounds { file_bytes_max: 4000, files_max: 15 }]
        {
            for bytes_max in [1, 100, 3000] {
                let (text, is_cut) = tail(&lines, bytes_max, bounds);
                assert!(all.ends_with(&text) && is_cut, "{bytes_max} {bounds:?}");
                assert_eq!(text.len(), bytes_max, "{bounds:?}");
            }
        }
        let few = &lines[..10];
        assert_eq!(tail(few, 1000, Bounds::default()), (few.concat(), false));
        assert_eq!(tail(&[], 1000, Bounds::default()), (String::new(), false));
    }
}
