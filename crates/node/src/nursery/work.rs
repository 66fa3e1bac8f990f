//! Working directories for containers that ask for none of their own.
//!
//! Every instance gets an empty directory, which is gone when it has ended. Most leave nothing in it, so an empty one is
//! handed on instead of being removed and made again: on ext4 a thousand new directories a second are slow, since it
//! avoids inodes that were just freed.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

const MODE: u32 = 0o700;

#[derive(Debug)]
pub(super) struct WorkDirectories {
    root: PathBuf,
    /// Numbers of directories that exist and are empty.
    free: Vec<u32>,
    next: u32,
    owner: u32,
}

/// A directory in use. Must be given back.
#[derive(Debug)]
pub(super) struct WorkDirectory {
    number: u32,
    path: PathBuf,
}

impl WorkDirectory {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl WorkDirectories {
    /// Starts without anything that an earlier nursery left.
    pub(super) fn open(root: PathBuf) -> io::Result<Self> {
        match fs::remove_dir_all(&root) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => DirBuilder::new().mode(MODE).create(&root)?,
        }
        Ok(Self { root, free: Vec::new(), next: 0, owner: rustix::process::geteuid().as_raw() })
    }

    /// Makes sure that so many can be taken, whatever becomes of the disk.
    pub(super) fn reserve(&mut self, count: usize) -> io::Result<()> {
        while self.free.len() < count {
            match DirBuilder::new().mode(MODE).create(self.path(self.next)) {
                Ok(()) => self.free.push(self.next),
                // Somebody else's, and in nobody's way.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
            self.next += 1;
        }
        Ok(())
    }

    pub(super) fn take(&mut self) -> io::Result<WorkDirectory> {
        self.reserve(1)?;
        let number = self.free.pop().ok_or(io::ErrorKind::NotFound)?;
        Ok(WorkDirectory { number, path: self.path(number) })
    }

    /// Nothing uses the directory any more.
    pub(super) fn give_back(&mut self, directory: WorkDirectory) {
        let WorkDirectory { number, path } = directory;
        if self.is_as_new(&path) {
            self.free.push(number);
            return;
        }
        // A directory that cannot be emptied is left behind and not used again.
        if fs::remove_dir_all(&path).is_ok() && DirBuilder::new().mode(MODE).create(&path).is_ok() {
            self.free.push(number);
        }
    }

    fn is_as_new(&self, path: &Path) -> bool {
        let is_untouched = fs::symlink_metadata(path)
            .is_ok_and(|it| it.is_dir() && it.uid() == self.owner && it.mode() & 0o7777 == MODE);
        is_untouched && fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
    }

    fn path(&self, number: u32) -> PathBuf {
        self.root.join(number.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use tempfile::TempDir;

    use super::*;

    #[test]
    fn a_directory_is_empty_whatever_was_done_to_it_before() {
        let temporary = TempDir::new().unwrap();
        let outside = temporary.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "").unwrap();
        let root = temporary.path().join("work");
        fs::create_dir(&root).unwrap();
        fs::write(root.join("leftover"), "").unwrap();
        let mut directories = WorkDirectories::open(root).unwrap();
        let spoil: [&dyn Fn(&Path); 5] = [
            &|_| {},
            &|path| fs::write(path.join("file"), "x").unwrap(),
            &|path| fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap(),
            &|path| fs::remove_dir(path).unwrap(),
            &|path| {
                fs::remove_dir(path).unwrap();
                symlink(&outside, path).unwrap();
            },
        ];
        for change in spoil {
            let directory = directories.take().unwrap();
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
            assert_eq!(fs::symlink_metadata(directory.path()).unwrap().mode() & 0o7777, MODE);
            change(directory.path());
            directories.give_back(directory);
        }
        assert!(outside.join("kept").exists(), "links are not followed");
        let (one, two) = (directories.take().unwrap(), directories.take().unwrap());
        assert_ne!(one.path(), two.path());
    }

    #[test]
    fn what_is_reserved_can_be_taken_without_room() {
        let temporary = TempDir::new().unwrap();
        let root = temporary.path().join("work");
        let mut directories = WorkDirectories::open(root.clone()).unwrap();
        fs::write(root.join("1"), "not ours").unwrap();
        directories.reserve(2).unwrap();
        // No directory can be made where there is none.
        let away = temporary.path().join("away");
        fs::rename(&root, &away).unwrap();
        let taken = [directories.take().unwrap(), directories.take().unwrap()];
        assert!(directories.reserve(1).is_err() && directories.take().is_err());
        fs::rename(&away, &root).unwrap();
        assert!(taken.iter().all(|it| it.path().is_dir()));
        directories.take().unwrap();
    }
}
