//! A note of the newest durable revision, beside the engine's own files.
//!
//! An engine that finds its log damaged cuts it there and starts as if nothing had followed. This note is how the next
//! process tells a log that ends early from one that was cut. It is written after each sync and not synced itself: after
//! a power loss it may be older than the truth, never newer, so it can only miss a loss and not invent one.

use crate::Revision;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

pub(super) const FILE_NAME: &str = "ACKNOWLEDGED";
/// The revision and a CRC of it.
const NOTE_BYTES: usize = 8 + 4;

#[derive(Debug)]
pub(super) struct Acknowledged {
    file: File,
    /// What the previous process noted.
    found: Option<Revision>,
}

impl Acknowledged {
    pub(super) fn open(directory: &Path) -> io::Result<Self> {
        let path = directory.join(FILE_NAME);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path)?;
        let mut note = [0; NOTE_BYTES];
        let found = match file.read_exact_at(&mut note, 0) {
            Ok(()) => decode(note),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => None,
            Err(error) => return Err(error),
        };
        if found.is_none() && file.metadata()?.len() > 0 {
            tracing::warn!(path = %path.display(), "the note of the newest revision is unreadable and ignored");
        }
        Ok(Self { file, found })
    }

    pub(super) fn found(&self) -> Option<Revision> {
        self.found
    }

    pub(super) fn note(&self, revision: Revision) -> io::Result<()> {
        self.file.write_all_at(&encode(revision), 0)
    }
}

fn encode(revision: Revision) -> [u8; NOTE_BYTES] {
    let mut note = [0; NOTE_BYTES];
    let (number, crc) = note.split_at_mut(8);
    number.copy_from_slice(&revision.to_be_bytes());
    crc.copy_from_slice(&crc32fast::hash(number).to_be_bytes());
    note
}

fn decode(note: [u8; NOTE_BYTES]) -> Option<Revision> {
    let revision = Revision::from_be_bytes(*note.first_chunk()?);
    (encode(revision) == note).then_some(revision)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_note_is_found_again_and_a_damaged_one_is_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let first = Acknowledged::open(directory.path()).unwrap();
        assert_eq!(first.found(), None);
        first.note(7).unwrap();
        first.note(1 << 40).unwrap();
        assert_eq!(Acknowledged::open(directory.path()).unwrap().found(), Some(1 << 40));
        for bit in 0..NOTE_BYTES * 8 {
            let mut note = encode(1 << 40);
            note[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(note), None, "bit {bit}");
        }
        std::fs::write(directory.path().join(FILE_NAME), b"short").unwrap();
        assert_eq!(Acknowledged::open(directory.path()).unwrap().found(), None);
    }
}
