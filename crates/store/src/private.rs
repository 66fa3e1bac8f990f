//! Directories and files that must be ours alone, checked before anything in them is believed (BI-120, BI-122).
//!
//! A link in the last place of a path is not followed, and what was checked is what is used: both go through one
//! descriptor. Links further up are the user's own way of naming things. What to do about a refusal is said elsewhere
//! (the `cli` crate tells people).

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use std::fs::{DirBuilder, File, Metadata, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Others may write: its group, or everybody.
const WRITABLE: u32 = 0o022;

/// Why a directory or file is not believed to be ours alone.
#[derive(Debug, Error)]
pub enum PrivateError {
    #[error("{attempt} `{}`", path.display())]
    Io { attempt: &'static str, path: PathBuf, source: io::Error },
    #[error("`{}` is not a directory", path.display())]
    NotADirectory { path: PathBuf },
    #[error("`{}` is not a file", path.display())]
    NotAFile { path: PathBuf },
    #[error("`{}` is a symbolic link", path.display())]
    SymbolicLink { path: PathBuf },
    #[error("`{}` belongs to user {owner}, and this process runs as user {user}", path.display())]
    Owner { path: PathBuf, owner: u32, user: u32 },
    #[error("`{}` can be written by others (mode {mode:03o})", path.display())]
    Writable { path: PathBuf, mode: u32 },
}

/// A directory that is ours and that nobody else can write, made if there is none. Others may see what is in it.
pub fn owned_directory(path: &Path) -> Result<(), PrivateError> {
    open_directory(path).map(drop)
}

/// A directory that nobody else can enter, made if there is none.
pub fn directory(path: &Path) -> Result<(), PrivateError> {
    let directory = open_directory(path)?;
    restrict(&directory, path, 0o700).map(drop)
}

/// The contents of a file that nobody else can read, `None` if there is no file.
pub fn read(path: &Path) -> Result<Option<Vec<u8>>, PrivateError> {
    let Some((mut file, metadata)) = look(path)? else { return Ok(None) };
    if !metadata.is_file() {
        return Err(PrivateError::NotAFile { path: path.to_owned() });
    }
    check(&metadata, path)?;
    if restrict(&file, path, 0o600)? {
        // No warning: mostly its directory has kept them out.
        tracing::info!(path = %path.display(), "closed to others");
    }
    let mut contents = Vec::new();
    file.read_to_end(&mut contents).map_err(io_error("read", path))?;
    Ok(Some(contents))
}

fn open_directory(path: &Path) -> Result<File, PrivateError> {
    // A slash at the end would follow a link.
    let path = &path.components().collect::<PathBuf>();
    let found = match look(path)? {
        None => {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
            made.map_err(io_error("create directory", path))?;
            look(path)?
        }
        found => found,
    };
    let (directory, metadata) = found.ok_or_else(|| io_error("open", path)(io::ErrorKind::NotFound.into()))?;
    if !metadata.is_dir() {
        return Err(PrivateError::NotADirectory { path: path.to_owned() });
    }
    check(&metadata, path)?;
    Ok(directory)
}

/// Opens what is there, whatever it is but a link. Does not wait for the other end of a pipe.
fn look(path: &Path) -> Result<Option<(File, Metadata)>, PrivateError> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match open(path, flags, Mode::empty()) {
        Ok(file) => {
            let file = File::from(file);
            let metadata = file.metadata().map_err(io_error("look at", path))?;
            Ok(Some((file, metadata)))
        }
        Err(Errno::NOENT) => Ok(None),
        // Also said of links in a circle further up.
        Err(Errno::LOOP) if path.is_symlink() => Err(PrivateError::SymbolicLink { path: path.to_owned() }),
        Err(error) => {
            // Whose it is says more than that it cannot be opened.
            if let (Errno::ACCESS, Ok(metadata)) = (error, path.symlink_metadata()) {
                check(&metadata, path)?;
            }
            Err(io_error("open", path)(error.into()))
        }
    }
}

fn check(metadata: &Metadata, path: &Path) -> Result<(), PrivateError> {
    let (owner, user) = (metadata.uid(), rustix::process::geteuid().as_raw());
    if owner != user {
        return Err(PrivateError::Owner { path: path.to_owned(), owner, user });
    }
    let mode = metadata.mode() & 0o777;
    if mode & WRITABLE != 0 {
        return Err(PrivateError::Writable { path: path.to_owned(), mode });
    }
    Ok(())
}

/// Objects may hold secrets: what others could read so far, they no longer can (INV-53). Says whether they could.
fn restrict(file: &File, path: &Path, mode: u32) -> Result<bool, PrivateError> {
    let attempt = || io_error("restrict", path);
    let given = file.metadata().map_err(attempt())?.mode() & 0o777;
    if given != mode {
        file.set_permissions(Permissions::from_mode(mode)).map_err(attempt())?;
    }
    Ok(given & 0o077 != 0)
}

fn io_error(attempt: &'static str, path: &Path) -> impl FnOnce(io::Error) -> PrivateError {
    let path = path.to_owned();
    move |source| PrivateError::Io { attempt, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{chown, symlink};

    const SOMEBODY_ELSE: u32 = 65_534;

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().mode() & 0o777
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_missing_directory_is_made_for_us_alone() {
        let dir = tempfile::tempdir().unwrap();
        for (name, make) in [("a/b", directory as fn(&Path) -> _), ("c/d/", owned_directory)] {
            let path = dir.path().join(name);
            make(&path).unwrap();
            assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o700, 0o700), "{name}");
        }
    }

    #[test]
    fn a_directory_that_others_write_is_refused_and_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        for given in [0o777, 0o770, 0o720, 0o702, 0o775] {
            set_mode(dir.path(), given);
            for refused in [directory(dir.path()), owned_directory(dir.path())] {
                let refused = refused.unwrap_err();
                assert!(
                    matches!(refused, PrivateError::Writable { mode, .. } if mode == given),
                    "{given:o}: {refused}"
                );
            }
            assert_eq!(mode(dir.path()), given);
        }
    }

    #[test]
    fn a_directory_that_others_read_is_taken_and_closed_to_them_if_it_must_be() {
        let dir = tempfile::tempdir().unwrap();
        for given in [0o755, 0o750, 0o711, 0o700] {
            set_mode(dir.path(), given);
            owned_directory(dir.path()).unwrap();
            assert_eq!(mode(dir.path()), given);
            directory(dir.path()).unwrap();
            assert_eq!(mode(dir.path()), 0o700, "{given:o}");
        }
    }

    #[test]
    fn links_are_not_followed_however_they_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        fs::create_dir(dir.join("target")).unwrap();
        fs::write(dir.join("target/file"), "x").unwrap();
        for (link, target) in [("link", "target"), ("nowhere", "missing"), ("file", "target/file")] {
            symlink(target, dir.join(link)).unwrap();
        }
        for path in ["link", "link/", "link/.", "nowhere", "nowhere/"] {
            let refused = directory(&dir.join(path)).unwrap_err();
            assert!(matches!(refused, PrivateError::SymbolicLink { .. }), "{path}: {refused}");
        }
        assert!(!dir.join("missing").exists());
        for path in ["file", "nowhere"] {
            let refused = read(&dir.join(path)).unwrap_err();
            assert!(matches!(refused, PrivateError::SymbolicLink { .. }), "{path}: {refused}");
        }
        // Further up they are fine.
        directory(&dir.join("link/inner")).unwrap();
        assert_eq!(read(&dir.join("link/file")).unwrap().unwrap(), b"x");
    }

    #[test]
    fn what_is_something_else_is_refused_without_waiting_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let (file, pipe) = (dir.path().join("file"), dir.path().join("pipe"));
        fs::write(&file, "").unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        for path in [&file, &pipe] {
            assert!(matches!(directory(path), Err(PrivateError::NotADirectory { .. })), "{}", path.display());
        }
        for path in [dir.path(), &pipe] {
            assert!(matches!(read(path), Err(PrivateError::NotAFile { .. })), "{}", path.display());
        }
        assert!(matches!(directory(&file.join("below")), Err(PrivateError::Io { .. })));
    }

    #[test]
    fn what_belongs_to_somebody_else_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "x").unwrap();
        // Only root can give things away; for everybody else these are root's.
        let (theirs, their_file) = match rustix::process::geteuid().is_root() {
            true => {
                chown(&file, Some(SOMEBODY_ELSE), None).unwrap();
                chown(dir.path(), Some(SOMEBODY_ELSE), None).unwrap();
                (dir.path(), file.as_path())
            }
            false => (Path::new("/"), Path::new("/etc/passwd")),
        };
        for refused in [directory(theirs), owned_directory(theirs), read(their_file).map(drop)] {
            let refused = refused.unwrap_err();
            assert!(matches!(refused, PrivateError::Owner { owner, user, .. } if owner != user), "{refused}");
        }
    }

    #[test]
    fn a_file_that_others_read_is_closed_to_them_and_one_that_they_write_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        assert!(read(&path).unwrap().is_none());
        fs::write(&path, "x").unwrap();
        for given in [0o644, 0o640, 0o604, 0o755, 0o600, 0o400] {
            set_mode(&path, given);
            assert_eq!(read(&path).unwrap().unwrap(), b"x", "{given:o}");
            assert_eq!(mode(&path), 0o600, "{given:o}");
        }
        for given in [0o666, 0o620, 0o602] {
            set_mode(&path, given);
            assert!(matches!(read(&path), Err(PrivateError::Writable { mode, .. }) if mode == given), "{given:o}");
            assert_eq!(mode(&path), given);
        }
    }
}
