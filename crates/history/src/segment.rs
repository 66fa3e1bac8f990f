//! One file of the history: its name, and the sound records in it.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use crate::record::{Frame, decode};

/// The first bytes of every file. Another format would have another number.
pub(crate) const MAGIC: &[u8; 8] = b"tallyhi1";

/// A file never grows beyond this.
pub(crate) const SEGMENT_MAX: u64 = 8 << 20;

/// The path of a segment; numbers ascend.
pub(crate) fn path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:016}.history"))
}

/// The numbers of the segments in a directory, ascending. Other files are not ours.
pub(crate) fn list(directory: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        let number: Option<u64> = name.to_str().and_then(|name| name.strip_suffix(".history")?.parse().ok());
        numbers.extend(number);
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// The bytes of a segment; `None` if it was removed meanwhile.
pub(crate) fn read(directory: &Path, number: u64) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path(directory, number)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    // Somebody may have put a huge file in the place of ours.
    file.take(SEGMENT_MAX * 2).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// The sound records from the beginning on, with where they begin. What follows the first unsound one is not looked at:
/// where the next one begins can only be guessed.
pub(crate) fn frames(bytes: &[u8]) -> impl Iterator<Item = (usize, Frame<'_>)> {
    let start = if bytes.starts_with(MAGIC) { MAGIC.len() } else { bytes.len() };
    let mut offset = start;
    std::iter::from_fn(move || {
        let frame = decode(bytes.get(offset..)?)?;
        let at = offset;
        offset += frame.size;
        Some((at, frame))
    })
}

/// How many bytes are sound; 0 if not even the beginning is.
pub(crate) fn sound_length(bytes: &[u8]) -> usize {
    if !bytes.starts_with(MAGIC) {
        return 0;
    }
    frames(bytes).last().map_or(MAGIC.len(), |(offset, frame)| offset + frame.size)
}
