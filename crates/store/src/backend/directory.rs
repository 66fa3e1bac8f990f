//! The data directory: who may use it, and what is in it.
//!
//! Checked before the engine sees it: the directory is ours alone (BI-120), no other process uses it (BI-121), and its
//! format is one we know (BI-124).

use crate::private::{self, PrivateError};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use thiserror::Error;

const LOCK: &str = "LOCK";
/// The kernel lets go of a lock a moment after it has ended the process that held it, on a busy machine some milliseconds.
const LOCK_PATIENCE: Duration = Duration::from_millis(500);
const LOCK_PAUSE: Duration = Duration::from_millis(5);
const FORMAT: &str = "FORMAT";
const FORMAT_NEW: &str = "FORMAT.new";
/// The engine's own files.
const ENGINE: &str = "engine";

/// What `FORMAT` says once the directory is complete. Its number goes up when older versions could not read the data.
const FORMAT_TEXT: &str = "tally store 1\n";
/// What `FORMAT` says until then. Nothing was ever acknowledged from such a directory.
const FORMAT_TEXT_CREATING: &str = "tally store 1 creating\n";
/// What the format of every version starts with.
const FORMAT_FAMILY: &str = "tally store ";
/// More than any version writes.
const FORMAT_BYTES_MAX: u64 = 256;

/// Why a data directory cannot be used.
#[derive(Debug, Error)]
pub enum DirectoryError {
    #[error("{attempt} `{}`", path.display())]
    Io { attempt: &'static str, path: PathBuf, source: io::Error },
    /// It is not ours alone.
    #[error(transparent)]
    Private(#[from] PrivateError),
    #[error("`{}` is in use by process {holder}", path.display())]
    Locked { path: PathBuf, holder: String },
    #[error("`{}` says {found:?}, and this version only knows {known:?}", path.display(), known = FORMAT_TEXT.trim_end())]
    UnknownFormat { path: PathBuf, found: String },
    #[error("`{}` is not readable as a store format: it is damaged or belongs to something else", path.display())]
    NotAFormat { path: PathBuf },
    #[error("`{}` holds data, but its `FORMAT` file is missing", path.display())]
    NoFormat { path: PathBuf },
}

/// A directory that is ours until this is dropped.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    /// The lock goes with the file descriptor.
    _lock: File,
    new: bool,
}

impl Directory {
    /// Creates the directory if there is none, checks it, locks it, and reads its format.
    pub(super) fn open(path: &Path) -> Result<Self, DirectoryError> {
        private::directory(path)?;
        let lock = lock(path)?;
        let new = prepare(path)?;
        Ok(Self { path: path.to_owned(), _lock: lock, new })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn engine(&self) -> PathBuf {
        self.path.join(ENGINE)
    }

    /// Makes the directory of the engine, or closes it to others. The engine gives its files the modes that the umask
    /// leaves them; if the data directory were ever opened or moved, this still keeps others out (BI-122, INV-53).
    pub(super) fn close_engine(&self) -> Result<(), DirectoryError> {
        let engine = self.engine();
        let metadata = match std::fs::metadata(&engine) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(private::directory(&engine)?),
            found => found.map_err(io_error("look at", &engine))?,
        };
        // Older versions left this one to the umask too, so others writing to it is no reason to refuse it: so far ours
        // around it has kept them out.
        let is_ours = metadata.uid() == rustix::process::geteuid().as_raw();
        if is_ours && metadata.is_dir() && metadata.mode() & 0o077 != 0 {
            std::fs::set_permissions(&engine, Permissions::from_mode(0o700)).map_err(io_error("restrict", &engine))?;
        }
        Ok(())
    }

    /// Says that the directory is complete. Until then, opening it again starts over.
    pub(super) fn complete(&self) -> Result<(), DirectoryError> {
        if self.new { write_format(&self.path, FORMAT_TEXT) } else { Ok(()) }
    }
}

fn lock(directory: &Path) -> Result<File, DirectoryError> {
    let path = directory.join(LOCK);
    let attempt = || io_error("lock", &path);
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(attempt())?;
    match take(&file, Instant::now() + LOCK_PATIENCE, || std::thread::sleep(LOCK_PAUSE)) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            let mut holder = String::new();
            // Best effort: the lock decides, the number is only for the message.
            let _ = file.take(20).read_to_string(&mut holder);
            let holder = if holder.trim().is_empty() { "unknown".into() } else { holder.trim().to_owned() };
            return Err(DirectoryError::Locked { path: directory.to_owned(), holder });
        }
        Err(error) => return Err(attempt()(error.into())),
    }
    file.set_len(0).and_then(|()| file.rewind()).map_err(attempt())?;
    writeln!(file, "{}", std::process::id()).map_err(attempt())?;
    Ok(file)
}

/// Tries until the deadline, with a pause after each attempt.
fn take(file: &File, deadline: Instant, mut pause: impl FnMut()) -> Result<(), Errno> {
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if Instant::now() < deadline => pause(),
            done => return done,
        }
    }
}

/// Makes sure the directory is of our format; returns whether it is still to be filled.
fn prepare(directory: &Path) -> Result<bool, DirectoryError> {
    let engine = directory.join(ENGINE);
    match read_format(directory)?.as_deref() {
        Some(FORMAT_TEXT) => Ok(false),
        Some(FORMAT_TEXT_CREATING) => {
            // Stopped while the engine was creating its files; it cannot go on from halfway.
            if engine.exists() {
                std::fs::remove_dir_all(&engine).map_err(io_error("remove unfinished", &engine))?;
            }
            Ok(true)
        }
        Some(text) if text.starts_with(FORMAT_FAMILY) => {
            Err(DirectoryError::UnknownFormat { path: directory.join(FORMAT), found: text.trim_end().to_owned() })
        }
        Some(_) => Err(DirectoryError::NotAFormat { path: directory.join(FORMAT) }),
        None if engine.exists() => Err(DirectoryError::NoFormat { path: directory.to_owned() }),
        None => write_format(directory, FORMAT_TEXT_CREATING).map(|()| true),
    }
}

/// The format's text; what is not text is no format of ours and comes back as such.
fn read_format(directory: &Path) -> Result<Option<String>, DirectoryError> {
    let path = directory.join(FORMAT);
    let attempt = || io_error("read", &path);
    let file = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(attempt())?,
    };
    let mut bytes = Vec::new();
    file.take(FORMAT_BYTES_MAX).read_to_end(&mut bytes).map_err(attempt())?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

fn write_format(directory: &Path, text: &str) -> Result<(), DirectoryError> {
    let new = directory.join(FORMAT_NEW);
    let path = directory.join(FORMAT);
    let write = || {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, &path)?;
        File::open(directory)?.sync_all()
    };
    write().map_err(io_error("write", &path))
}

fn io_error(attempt: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DirectoryError {
    let path = path.to_owned();
    move |source| DirectoryError::Io { attempt, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn temporary() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().mode() & 0o777
    }

    #[test]
    fn a_missing_directory_is_created_for_us_alone() {
        let parent = temporary();
        let path = parent.path().join("a/b");
        Directory::open(&path).unwrap();
        assert_eq!(mode(&path), 0o700);
        assert_eq!(mode(&path.join(LOCK)), 0o600);
        assert_eq!(mode(&path.join(FORMAT)), 0o600);
    }

    /// BI-122: whatever the umask was when the engine's directory was made.
    #[test]
    fn the_engines_directory_is_ours_alone() {
        let parent = temporary();
        let directory = Directory::open(parent.path()).unwrap();
        directory.close_engine().unwrap();
        assert_eq!(mode(&directory.engine()), 0o700, "made");
        for given in [0o777, 0o775, 0o755, 0o700] {
            std::fs::set_permissions(directory.engine(), Permissions::from_mode(given)).unwrap();
            directory.close_engine().unwrap();
            assert_eq!(mode(&directory.engine()), 0o700, "was {given:o}");
        }
    }

    #[test]
    fn a_second_opener_is_refused_and_told_who_is_first() {
        let parent = temporary();
        let first = Directory::open(parent.path()).unwrap();
        let refused = Directory::open(parent.path()).unwrap_err().to_string();
        let expected = format!("`{}` is in use by process {}", parent.path().display(), std::process::id());
        assert_eq!(refused, expected);
        drop(first);
        Directory::open(parent.path()).unwrap();
    }

    /// As after a kill: whoever held it is gone, and the lock follows.
    #[test]
    fn a_lock_that_is_about_to_be_let_go_is_waited_for() {
        let parent = temporary();
        let mut first = Some(Directory::open(parent.path()).unwrap());
        let file = File::open(parent.path().join(LOCK)).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        assert_eq!(take(&file, deadline, || drop(first.take())), Ok(()));
        assert!(first.is_none(), "the first attempt found it held");
    }

    #[test]
    fn links_files_and_directories_that_others_write_are_refused() {
        let parent = temporary();
        let target = parent.path().join("target");
        std::fs::create_dir(&target).unwrap();
        let link = parent.path().join("link");
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(matches!(Directory::open(&link), Err(DirectoryError::Private(PrivateError::SymbolicLink { .. }))));

        let file = parent.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(matches!(Directory::open(&file), Err(DirectoryError::Private(PrivateError::NotADirectory { .. }))));

        for (given, allowed) in [(0o777, false), (0o770, false), (0o702, false), (0o755, true), (0o700, true)] {
            std::fs::set_permissions(&target, Permissions::from_mode(given)).unwrap();
            assert_eq!(Directory::open(&target).is_ok(), allowed, "mode {given:o}");
            assert_eq!(mode(&target) == 0o700, allowed, "mode {given:o}");
        }
    }

    #[test]
    fn a_format_that_is_not_ours_is_refused_by_name() {
        let cases = [
            ("tally store 2\n", r#"says "tally store 2", and this version only knows "tally store 1""#),
            ("tally store 1", "only knows"),
            ("ext4", "is not readable as a store format"),
            ("\u{0}\u{0}", "is not readable as a store format"),
            ("", "is not readable as a store format"),
        ];
        for (text, expected) in cases {
            let parent = temporary();
            std::fs::write(parent.path().join(FORMAT), text).unwrap();
            let refused = Directory::open(parent.path()).unwrap_err().to_string();
            assert!(refused.contains(expected) && refused.contains("FORMAT"), "{text:?}: {refused}");
        }
    }

    #[test]
    fn data_without_a_format_is_left_alone_and_a_half_made_store_is_made_again() {
        let parent = temporary();
        let data = parent.path().join(ENGINE).join("data");
        std::fs::create_dir(parent.path().join(ENGINE)).unwrap();
        std::fs::write(&data, "x").unwrap();
        assert!(matches!(Directory::open(parent.path()), Err(DirectoryError::NoFormat { .. })));
        assert!(data.exists());

        std::fs::write(parent.path().join(FORMAT), FORMAT_TEXT_CREATING).unwrap();
        let directory = Directory::open(parent.path()).unwrap();
        assert!(!data.exists());
        directory.complete().unwrap();
        drop(directory);
        std::fs::create_dir(parent.path().join(ENGINE)).unwrap();
        std::fs::write(&data, "x").unwrap();
        Directory::open(parent.path()).unwrap();
        assert!(data.exists());
    }
}
