//! Looks over the engine's journals before the engine does.
//!
//! The engine cuts a journal where it stops making sense, whatever follows, and refuses one whose last batch came to
//! disk in pieces. Both are wrong for us. Every batch was synced before the next was begun, so power loss can only leave
//! the last one in pieces: that one was never acknowledged and is cut off here. Damage with an intact batch behind it is
//! no power loss, and nothing may be cut.
//!
//! The layout read here is that of fjall 3 (`src/journal/entry.rs` there): batches of a start, items, and an end with a
//! checksum over the items; a new file is all zeros. Whether an acknowledged batch is missing at the end is not seen
//! here, but by the note in `acknowledged.rs`.

use super::{BackendError, DirectoryError};
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::Xxh3;

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const CLEAR: u8 = 4;
/// Item count and sequence number.
const START_BYTES: usize = 4 + 8;
/// Value type, compression, keyspace, lengths of key, value, and value on disk.
const ITEM_BYTES: usize = 1 + 1 + 8 + 2 + 4 + 4;
const CLEAR_BYTES: usize = 8;
/// Checksum and magic.
const END_BYTES: usize = 8 + 4;
const END_MAGIC: [u8; 4] = *b"FJL\x03";
const BUFFER_BYTES: usize = 64 << 10;

/// Checks all journals, oldest first, and cuts an unfinished batch off the newest.
pub(super) fn check(engine: &Path) -> Result<(), BackendError> {
    let journals = find(engine).map_err(io_error("look at", engine))?;
    let newest = journals.last().cloned();
    for path in journals {
        let is_newest = newest.as_ref() == Some(&path);
        match judge(&path).map_err(io_error("read", &path))? {
            Verdict::Sound => {}
            Verdict::Unfinished(offset) if is_newest => {
                tracing::warn!(path = %path.display(), offset, "cutting an unfinished batch off the journal");
                cut(&path, offset).map_err(io_error("cut", &path))?;
            }
            Verdict::Unfinished(offset) | Verdict::Damaged(offset) => {
                return Err(BackendError::Journal { path, offset });
            }
        }
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// Whole batches, then zeros or nothing.
    Sound,
    /// Whole batches up to here, then something that is none.
    Unfinished(u64),
    /// The same, but with a whole batch behind it.
    Damaged(u64),
}

fn find(engine: &Path) -> io::Result<Vec<PathBuf>> {
    let mut journals = Vec::<(u64, PathBuf)>::new();
    let entries = match engine.read_dir() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        let number = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".jnl")?.parse().ok());
        journals.extend(number.map(|number| (number, path)));
    }
    journals.sort_unstable();
    Ok(journals.into_iter().map(|(_, path)| path).collect())
}

fn judge(path: &Path) -> io::Result<Verdict> {
    let mut reader = BufReader::with_capacity(BUFFER_BYTES, File::open(path)?);
    let mut whole = 0;
    while let Some(bytes) = read_batch(&mut reader)? {
        whole += bytes;
    }
    if only_zeros(reader.get_ref(), whole)? {
        return Ok(Verdict::Sound);
    }
    let mut rest = Vec::new();
    reader.seek(SeekFrom::Start(whole))?;
    reader.read_to_end(&mut rest)?;
    for start in (1..rest.len()).filter(|start| rest[*start] == START) {
        if read_batch(&mut &rest[start..])?.is_some() {
            return Ok(Verdict::Damaged(whole));
        }
    }
    Ok(Verdict::Unfinished(whole))
}

fn cut(path: &Path, length: u64) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    file.set_len(length)?;
    file.sync_all()
}

/// Reads one batch and returns its length; `None` if what comes is no whole batch.
fn read_batch(reader: &mut impl Read) -> io::Result<Option<u64>> {
    match try_read_batch(reader) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        read => read,
    }
}

fn try_read_batch(reader: &mut impl Read) -> io::Result<Option<u64>> {
    if read_array(reader)? != [START] {
        return Ok(None);
    }
    let start: [u8; START_BYTES] = read_array(reader)?;
    let items = u32::from_le_bytes(*start.first_chunk().expect("a start is longer"));
    let mut bytes = 1 + START_BYTES as u64;
    let mut checksum = Xxh3::new();
    for _ in 0..items {
        match read_item(reader, &mut checksum)? {
            Some(item) => bytes += item,
            None => return Ok(None),
        }
    }
    if read_array(reader)? != [END] {
        return Ok(None);
    }
    let end: [u8; END_BYTES] = read_array(reader)?;
    let whole = end.starts_with(&checksum.digest().to_le_bytes()) && end.ends_with(&END_MAGIC);
    Ok(whole.then_some(bytes + 1 + END_BYTES as u64))
}

fn read_item(reader: &mut impl Read, checksum: &mut Xxh3) -> io::Result<Option<u64>> {
    let tag: [u8; 1] = read_array(reader)?;
    checksum.update(&tag);
    match tag {
        [ITEM] => {
            let header: [u8; ITEM_BYTES] = read_array(reader)?;
            checksum.update(&header);
            let key = u16::from_le_bytes(*header[10..].first_chunk().expect("a header is longer"));
            let value = u32::from_le_bytes(*header[16..].first_chunk().expect("a header is longer"));
            let body = u64::from(key) + u64::from(value);
            read_through(reader, body, checksum)?;
            Ok(Some(1 + ITEM_BYTES as u64 + body))
        }
        [CLEAR] => {
            checksum.update(&read_array::<CLEAR_BYTES>(reader)?);
            Ok(Some(1 + CLEAR_BYTES as u64))
        }
        _ => Ok(None),
    }
}

/// In pieces: a damaged length must not make us allocate what it says.
fn read_through(reader: &mut impl Read, mut left: u64, checksum: &mut Xxh3) -> io::Result<()> {
    let mut buffer = [0; 8 << 10];
    while left > 0 {
        let piece = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        reader.read_exact(&mut buffer[..piece])?;
        checksum.update(&buffer[..piece]);
        left -= piece as u64;
    }
    Ok(())
}

fn read_array<const N: usize>(reader: &mut impl Read) -> io::Result<[u8; N]> {
    let mut array = [0; N];
    reader.read_exact(&mut array)?;
    Ok(array)
}

/// Whether nothing but zeros follows `offset`. Skips holes: a new journal is 64 MB of them.
fn only_zeros(file: &File, mut offset: u64) -> io::Result<bool> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let zeros = vec![0; BUFFER_BYTES];
    loop {
        offset = match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(offset)) {
            Ok(data) => data,
            Err(rustix::io::Errno::NXIO) => return Ok(true),
            // Not every file system knows its holes.
            Err(_) => offset,
        };
        match file.read_at(&mut buffer, offset)? {
            0 => return Ok(true),
            read if buffer[..read] != zeros[..read] => return Ok(false),
            read => offset += read as u64,
        }
    }
}

fn io_error(attempt: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DirectoryError {
    let path = path.to_owned();
    move |source| DirectoryError::Io { attempt, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fjall::{Database, KeyspaceCreateOptions, PersistMode};

    /// A journal that the engine itself wrote: three batches, the last over several pages. Returns where they begin.
    fn journal() -> (tempfile::TempDir, PathBuf, Vec<u8>, Vec<usize>) {
        let directory = tempfile::tempdir().unwrap();
        let database =
            Database::builder(directory.path()).journal_compression(fjall::CompressionType::None).open().unwrap();
        let keyspace = database.keyspace("k", KeyspaceCreateOptions::default).unwrap();
        for (number, value) in [vec![7; 10], vec![8; 100], vec![1; 40_000]].into_iter().enumerate() {
            let mut batch = database.batch().durability(Some(PersistMode::SyncAll));
            batch.insert(&keyspace, format!("key {number}"), value);
            batch.remove(&keyspace, "other");
            batch.commit().unwrap();
        }
        drop((keyspace, database));
        let path = directory.path().join("0.jnl");
        let mut bytes = Vec::new();
        File::open(&path).unwrap().take(100_000).read_to_end(&mut bytes).unwrap();
        let used = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        let mut starts = vec![0];
        while let Some(length) = read_batch(&mut &bytes[*starts.last().unwrap()..]).unwrap() {
            starts.push(starts.last().unwrap() + length as usize);
        }
        assert_eq!((starts.len(), *starts.last().unwrap()), (4, used));
        bytes.truncate(used + 4096);
        (directory, path, bytes, starts)
    }

    fn verdict(path: &Path, bytes: &[u8]) -> Verdict {
        std::fs::write(path, bytes).unwrap();
        judge(path).unwrap()
    }

    #[test]
    fn what_the_engine_writes_is_sound() {
        let (_directory, path, bytes, starts) = journal();
        assert_eq!(verdict(&path, &bytes), Verdict::Sound);
        assert_eq!(verdict(&path, &bytes[..starts[3]]), Verdict::Sound, "without zeros behind");
        assert_eq!(verdict(&path, &bytes[..starts[1]]), Verdict::Sound);
        assert_eq!(verdict(&path, &[]), Verdict::Sound);
        assert_eq!(verdict(&path, &[0; 100]), Verdict::Sound);
    }

    #[test]
    fn a_last_batch_in_pieces_is_unfinished_however_it_is_torn() {
        let (_directory, path, bytes, starts) = journal();
        let unfinished = Verdict::Unfinished(starts[2] as u64);
        for cut in (starts[2] + 1..starts[3]).step_by(997).chain([starts[3] - 1]) {
            assert_eq!(verdict(&path, &bytes[..cut]), unfinished, "cut at {cut}");
        }
        for page in (starts[2]..starts[3]).step_by(4096) {
            let mut torn = bytes.clone();
            torn[page..(page + 4096).min(starts[3])].fill(0);
            assert_eq!(verdict(&path, &torn), unfinished, "page at {page} did not reach the disk");
        }
    }

    #[test]
    fn damage_before_an_intact_batch_is_told_apart() {
        let (_directory, path, bytes, starts) = journal();
        for batch in 0..2 {
            for at in (starts[batch]..starts[batch + 1]).step_by(3) {
                let mut damaged = bytes.clone();
                damaged[at] ^= 0x10;
                let verdict = verdict(&path, &damaged);
                // The sequence number is the one thing the checksum leaves out.
                let unchecked = (5..13).contains(&(at - starts[batch]));
                let expected = if unchecked { Verdict::Sound } else { Verdict::Damaged(starts[batch] as u64) };
                assert_eq!(verdict, expected, "byte {at}");
            }
        }
    }

    #[test]
    fn only_the_newest_journal_may_end_unfinished() {
        let (directory, path, bytes, starts) = journal();
        std::fs::write(&path, &bytes[..starts[3] - 1]).unwrap();
        check(directory.path()).unwrap();
        assert_eq!(path.metadata().unwrap().len(), starts[2] as u64, "cut");

        std::fs::write(&path, &bytes[..starts[3] - 1]).unwrap();
        std::fs::write(directory.path().join("10.jnl"), &bytes[..starts[1]]).unwrap();
        let refused = check(directory.path()).unwrap_err();
        assert!(matches!(&refused, BackendError::Journal { path: told, .. } if *told == path), "{refused}");
        assert_eq!(path.metadata().unwrap().len(), starts[3] as u64 - 1, "left alone");
    }
}
