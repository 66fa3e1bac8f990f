//! Writes the output of one instance to its log files, rotated and bounded (BI-107).

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::files::{Begins, ContainerLogs};
use super::line::{self, PART_MAX};

/// How much log an instance may keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    pub file_bytes_max: u64,
    pub files_max: u32,
}

impl Default for Bounds {
    /// What a kubelet keeps: 10 MiB a file, five files.
    fn default() -> Self {
        Self { file_bytes_max: 10 << 20, files_max: 5 }
    }
}

/// Files are made with the first output: most short jobs say nothing.
#[derive(Debug)]
pub(crate) struct LogWriter {
    pod: String,
    container: String,
    attempt: u32,
    bounds: Bounds,
    open: Option<Open>,
    /// How much was written before each file.
    begins: Begins,
    /// The beginning of a line whose end has not come yet.
    partial: Vec<u8>,
}

#[derive(Debug)]
struct Open {
    file: File,
    size: u64,
}

impl LogWriter {
    pub(crate) fn new(pod: &str, container: &str, attempt: u32, bounds: Bounds) -> Self {
        Self {
            pod: pod.to_owned(),
            container: container.to_owned(),
            attempt,
            bounds,
            open: None,
            begins: Begins::default(),
            partial: Vec::new(),
        }
    }

    /// Takes output as it comes. An error means that it is lost; the container does not suffer for it.
    pub(crate) fn write(&mut self, logs: &Path, output: &[u8], now: Timestamp) -> io::Result<()> {
        let stamp = line::stamp(now);
        let mut lines = Vec::with_capacity(output.len() + 64);
        for piece in output.split_inclusive(|byte| *byte == b'\n') {
            let (text, is_whole) = match piece.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (piece, false),
            };
            self.take(text, is_whole, &stamp, &mut lines);
        }
        self.append(logs, &lines)
    }

    /// The output has ended: what is left is a line too.
    pub(crate) fn finish(&mut self, logs: &Path, now: Timestamp) -> io::Result<()> {
        if self.partial.is_empty() {
            return Ok(());
        }
        let mut lines = Vec::new();
        self.take(&[], true, &line::stamp(now), &mut lines);
        self.append(logs, &lines)
    }

    fn take(&mut self, mut text: &[u8], is_whole: bool, stamp: &str, lines: &mut Vec<u8>) {
        while self.partial.len() + text.len() > PART_MAX {
            let (head, rest) = text.split_at(PART_MAX - self.partial.len());
            self.partial.extend_from_slice(head);
            line::push(lines, stamp, false, &self.partial);
            self.partial.clear();
            text = rest;
        }
        if is_whole && self.partial.is_empty() {
            line::push(lines, stamp, true, text);
        } else {
            self.partial.extend_from_slice(text);
            if is_whole {
                line::push(lines, stamp, true, &self.partial);
                self.partial = Vec::new();
            }
        }
    }

    /// Whole lines go to one file as long as they fit; a piece of output may fill several files.
    fn append(&mut self, logs: &Path, mut lines: &[u8]) -> io::Result<()> {
        while !lines.is_empty() {
            let size = self.open.as_ref().map_or(0, |open| open.size);
            let count = match fitting(lines, self.bounds.file_bytes_max.saturating_sub(size)) {
                // Not even one line: an empty file takes it all the same, since no line may get lost.
                0 if size == 0 => first_line(lines),
                count => count,
            };
            if count == 0 || self.open.is_none() {
                self.open_next(logs)?;
                continue;
            }
            let (now, later) = lines.split_at(count);
            if let Some(open) = &mut self.open {
                open.file.write_all(now)?;
                open.size += now.len() as u64;
            }
            lines = later;
        }
        Ok(())
    }

    /// Opens the file to write to; a full one is rotated away.
    fn open_next(&mut self, logs: &Path) -> io::Result<()> {
        let files = ContainerLogs::create(logs, &self.pod, &self.container, self.attempt)?;
        if let Some(open) = self.open.take() {
            let Begins { rotated, newest } = &mut self.begins;
            rotated.push((open.file.metadata()?.ino(), *newest));
            *newest += open.size;
            // The number of a file that is about to go may be given to the next one.
            let gone = rotated.len().saturating_sub(self.bounds.files_max.saturating_sub(1) as usize);
            rotated.drain(..gone);
            // Without it readers cannot tell how much they have missed; that is no reason to lose more.
            let _ = files.set_begins(&self.begins);
            files.rotate(self.bounds.files_max)?;
        }
        let file = files.append()?;
        let size = file.metadata()?.len();
        self.open = Some(Open { file, size });
        Ok(())
    }
}

/// The length of as many whole lines as fit.
fn fitting(lines: &[u8], room: u64) -> usize {
    match usize::try_from(room) {
        Ok(room) if room < lines.len() => {
            lines[..room].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1)
        }
        _ => lines.len(),
    }
}

fn first_line(lines: &[u8]) -> usize {
    lines.iter().position(|byte| *byte == b'\n').map_or(lines.len(), |end| end + 1)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    const BOUNDS: Bounds = Bounds { file_bytes_max: 1000, files_max: 3 };

    fn text(logs: &TempDir, name: &str) -> String {
        fs::read_to_string(logs.path().join("u/c").join(name)).unwrap_or_default()
    }

    #[test]
    fn lines_are_stamped_and_pieces_put_together() {
        let logs = TempDir::new().unwrap();
        let mut writer = LogWriter::new("u", "c", 0, BOUNDS);
        let now = Timestamp::from_second(0).unwrap();
        for piece in [&b"a\nb"[..], b"c\n", b"", b"\n", b"end"] {
            writer.write(logs.path(), piece, now).unwrap();
        }
        writer.finish(logs.path(), now).unwrap();
        let stamp = "1970-01-01T00:00:00.000000000Z";
        assert_eq!(text(&logs, "0.log"), format!("{stamp} F a\n{stamp} F bc\n{stamp} F \n{stamp} F end\n"));
    }

    #[test]
    fn silence_leaves_no_files() {
        let logs = TempDir::new().unwrap();
        let mut writer = LogWriter::new("u", "c", 0, BOUNDS);
        writer.finish(logs.path(), Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(fs::read_dir(logs.path()).unwrap().count(), 0);
    }

    #[test]
    fn long_lines_are_cut_into_parts() {
        let logs = TempDir::new().unwrap();
        let mut writer = LogWriter::new("u", "c", 0, Bounds { file_bytes_max: 1 << 20, files_max: 2 });
        let long = "x".repeat(PART_MAX * 2 + 5) + "\n";
        writer.write(logs.path(), long.as_bytes(), Timestamp::UNIX_EPOCH).unwrap();
        let text = text(&logs, "0.log");
        let tags: Vec<&str> = text.lines().map(|line| line.split(' ').nth(1).unwrap()).collect();
        assert_eq!(tags, ["P", "P", "F"]);
        let lengths: usize = text.lines().map(|line| line.splitn(3, ' ').nth(2).unwrap().len()).sum();
        assert_eq!(lengths, PART_MAX * 2 + 5);
    }

    #[test]
    fn files_are_rotated_and_their_sum_is_bounded() {
        let logs = TempDir::new().unwrap();
        let mut writer = LogWriter::new("u", "c", 0, BOUNDS);
        for number in 0..200 {
            writer.write(logs.path(), format!("line {number}\n").as_bytes(), Timestamp::UNIX_EPOCH).unwrap();
        }
        let sizes = ["0.log", "0.log.1", "0.log.2", "0.log.3"].map(|name| text(&logs, name).len());
        assert!(sizes[0] > 0 && sizes[..3].iter().all(|size| *size <= 1000), "{sizes:?}");
        assert!(sizes[1] > 900 && sizes[2] > 900 && sizes[3] == 0, "{sizes:?}");
        assert!(text(&logs, "0.log").ends_with("line 199\n"));
    }

    #[test]
    fn one_piece_of_output_may_fill_many_files() {
        let logs = TempDir::new().unwrap();
        let mut writer = LogWriter::new("u", "c", 0, BOUNDS);
        let all: String = (0..2000).map(|number| format!("line {number}\n")).collect();
        writer.write(logs.path(), all.as_bytes(), Timestamp::UNIX_EPOCH).unwrap();
        let sizes = ["0.log", "0.log.1", "0.log.2", "0.log.3"].map(|name| text(&logs, name).len());
        assert!(sizes[..3].iter().all(|size| (1..=1000).contains(size)) && sizes[3] == 0, "{sizes:?}");
        assert!(text(&logs, "0.log").ends_with("line 1999\n"));
    }

    #[test]
    fn a_line_longer_than_a_file_is_kept_whole() {
        let logs = TempDir::new().unwrap();
        let mut writer = LogWriter::new("u", "c", 0, BOUNDS);
        let long = "x".repeat(3000);
        writer.write(logs.path(), format!("a\n{long}\nb\n").as_bytes(), Timestamp::UNIX_EPOCH).unwrap();
        assert!(text(&logs, "0.log").ends_with("F b\n"));
        assert!(text(&logs, "0.log.1").ends_with(&format!("F {long}\n")));
        assert!(text(&logs, "0.log.2").ends_with("F a\n"));
    }
}
