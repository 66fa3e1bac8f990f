//! Where log files are, and how they are opened without being led astray (INV-52, BI-89).
//!
//! `LOGS/<pod uid>/<container>/<attempt>.log`, rotated to `….log.1`, `….log.2` and so on, oldest last. Containers may
//! run as the same user as the node, so every step of the path is opened without following symlinks, and only regular
//! files are read or written.
//!
//! `<attempt>.begins` beside them says how much was written before each: so readers know what they have missed.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fd::OwnedFd;
use rustix::fs::{FileType, Mode, OFlags, fstat, mkdirat, openat, renameat, unlinkat};
use rustix::io::Errno;

/// The directory of one container's logs.
#[derive(Debug)]
pub(crate) struct ContainerLogs {
    directory: OwnedFd,
    attempt: u32,
}

impl ContainerLogs {
    /// `None` if the container has no logs yet.
    pub(crate) fn open(logs: &Path, pod: &str, container: &str, attempt: u32) -> io::Result<Option<Self>> {
        check_name(pod)?;
        check_name(container)?;
        let root = open_root(logs)?;
        let found = directory(&root, pod).and_then(|pod| directory(&pod, container));
        match found {
            Ok(directory) => Ok(Some(Self { directory, attempt })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes what is missing.
    pub(crate) fn create(logs: &Path, pod: &str, container: &str, attempt: u32) -> io::Result<Self> {
        check_name(pod)?;
        check_name(container)?;
        let mut directory = open_root(logs)?;
        for name in [pod, container] {
            directory = made_directory(&directory, name)?;
        }
        Ok(Self { directory, attempt })
    }

    /// The file that is written, or the one that was rotated `age` times.
    pub(crate) fn read(&self, age: u32) -> io::Result<Option<File>> {
        match openat(&self.directory, self.name(age), OFlags::RDONLY | SAFE, Mode::empty()) {
            Ok(file) => regular(file).map(Some),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn append(&self) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | SAFE;
        regular(openat(&self.directory, self.name(0), flags, Mode::RUSR | Mode::WUSR)?)
    }

    /// Makes room for a new file; of the old ones at most `files_max - 1` stay.
    pub(crate) fn rotate(&self, files_max: u32) -> io::Result<()> {
        let oldest = files_max.saturating_sub(1);
        ignore_missing(unlinkat(&self.directory, self.name(oldest), rustix::fs::AtFlags::empty()))?;
        for age in (0..oldest).rev() {
            ignore_missing(renameat(&self.directory, self.name(age), &self.directory, self.name(age + 1)))?;
        }
        Ok(())
    }

    /// How much was written before a file of this instance. `None`: it is going, or nobody knows.
    pub(crate) fn begin_of(&self, file: &File) -> io::Result<Option<u64>> {
        // In this order: what is rotated meanwhile is listed then.
        let is_newest = |other: File| Ok::<_, io::Error>(other.metadata()?.ino() == file.metadata()?.ino());
        let is_newest = self.read(0)?.map(is_newest).transpose()?.unwrap_or_default();
        let Some(begins) = self.begins()? else { return Ok(is_newest.then_some(0)) };
        let listed = begins.of_rotated(file.metadata()?.ino());
        Ok(listed.or_else(|| is_newest.then_some(begins.newest)))
    }

    fn begins(&self) -> io::Result<Option<Begins>> {
        let file = match openat(&self.directory, self.begins_name(), OFlags::RDONLY | SAFE, Mode::empty()) {
            Ok(file) => regular(file)?,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let mut text = String::new();
        file.take(BEGINS_MAX).read_to_string(&mut text)?;
        Ok(Begins::parse(&text))
    }

    /// Said before files are rotated, in one step: whoever opens a file and reads this then finds it here.
    pub(crate) fn set_begins(&self, begins: &Begins) -> io::Result<()> {
        let (name, new) = (self.begins_name(), format!("{}.new", self.begins_name()));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | SAFE;
        let mut file = regular(openat(&self.directory, &new, flags, Mode::RUSR | Mode::WUSR)?)?;
        file.write_all(begins.text().as_bytes())?;
        Ok(renameat(&self.directory, &new, &self.directory, &name)?)
    }

    fn begins_name(&self) -> String {
        format!("{}.begins", self.attempt)
    }

    /// Removes the files of this attempt.
    pub(crate) fn remove(&self, files_max: u32) -> io::Result<()> {
        ignore_missing(unlinkat(&self.directory, self.begins_name(), rustix::fs::AtFlags::empty()))?;
        for age in 0..=files_max {
            ignore_missing(unlinkat(&self.directory, self.name(age), rustix::fs::AtFlags::empty()))?;
        }
        Ok(())
    }

    fn name(&self, age: u32) -> String {
        match age {
            0 => format!("{}.log", self.attempt),
            age => format!("{}.log.{age}", self.attempt),
        }
    }
}

/// No file of ours is longer.
const BEGINS_MAX: u64 = 64 << 10;

/// How much was written before each file of an instance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Begins {
    /// Of rotated files that still exist, by inode number, oldest first.
    pub(crate) rotated: Vec<(u64, u64)>,
    /// Of the file that is newer than these.
    pub(crate) newest: u64,
}

impl Begins {
    /// Of a rotated file that was opened before this was read. `None`: it is about to go.
    fn of_rotated(&self, number: u64) -> Option<u64> {
        self.rotated.iter().find(|(rotated, _)| *rotated == number).map(|(_, begin)| *begin)
    }

    fn text(&self) -> String {
        let rotated = self.rotated.iter().map(|(number, begin)| format!("{number} {begin}\n"));
        rotated.chain([format!("{}\n", self.newest)]).collect()
    }

    fn parse(text: &str) -> Option<Self> {
        let (rotated, newest) = text.trim_end().rsplit_once('\n').unwrap_or(("", text.trim_end()));
        let pair = |line: &str| {
            let (number, begin) = line.split_once(' ')?;
            Some((number.parse().ok()?, begin.parse().ok()?))
        };
        Some(Self { rotated: rotated.lines().map(pair).collect::<Option<_>>()?, newest: newest.parse().ok()? })
    }
}

/// Not led astray by a symlink, not held up by a FIFO.
const SAFE: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC).union(OFlags::NOCTTY);

fn open_root(logs: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(logs, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

fn directory(parent: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    Ok(openat(parent, name, OFlags::RDONLY | OFlags::DIRECTORY | SAFE, Mode::empty())?)
}

fn made_directory(parent: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    match mkdirat(parent, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => directory(parent, name),
        Err(error) => Err(error.into()),
    }
}

fn check_name(name: &str) -> io::Result<()> {
    match name {
        "" | "." | ".." => Err(io::Error::new(io::ErrorKind::InvalidInput, "not the name of a directory")),
        name if name.contains(['/', '\0']) => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "a name with a slash is not the name of a directory"))
        }
        _ => Ok(()),
    }
}

fn regular(file: OwnedFd) -> io::Result<File> {
    let stat = fstat(&file)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(file.into()),
        _ => Err(io::Error::other("the log is not a regular file")),
    }
}

fn ignore_missing(result: rustix::io::Result<()>) -> io::Result<()> {
    match result {
        Err(Errno::NOENT) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        let logs = TempDir::new().unwrap();
        for (pod, container) in [("..", "c"), ("u", ".."), ("u/../..", "c"), ("", "c"), ("u", "a/b"), ("u", "a\0b")] {
            assert!(ContainerLogs::open(logs.path(), pod, container, 0).is_err(), "{pod:?} {container:?}");
            assert!(ContainerLogs::create(logs.path(), pod, container, 0).is_err(), "{pod:?} {container:?}");
        }
    }

    #[test]
    fn begins_are_read_as_they_were_written() {
        for rotated in [vec![], vec![(7, 0)], vec![(7, 0), (3, 1000)]] {
            let begins = Begins { rotated, newest: 2000 };
            assert_eq!(Begins::parse(&begins.text()), Some(begins));
        }
        for wrong in ["", "x", "1 2\n", "1\n2\n", "1 2\n-3\n"] {
            assert_eq!(Begins::parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn symlinks_fifos_and_directories_are_not_logs() {
        let logs = TempDir::new().unwrap();
        let secret = logs.path().join("secret");
        fs::write(&secret, "s").unwrap();
        let own = ContainerLogs::create(logs.path(), "u", "c", 0).unwrap();
        let path = logs.path().join("u/c/0.log");
        symlink(&secret, &path).unwrap();
        assert!(own.read(0).is_err() && own.append().is_err());
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(own.read(0).is_err() && own.append().is_err());
        fs::remove_dir(&path).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
        assert!(own.read(0).is_err() && own.append().is_err(), "and nobody waits for a FIFO's other end");
        fs::remove_file(&path).unwrap();
        fs::remove_dir(logs.path().join("u/c")).unwrap();
        symlink(logs.path(), logs.path().join("u/c")).unwrap();
        assert!(ContainerLogs::open(logs.path(), "u", "c", 0).is_err());
    }
}
