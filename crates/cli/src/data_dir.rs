//! The directory in which a tally keeps everything: where it is, and that it can be used.

use std::fs;
use std::io;
use std::path::{self, Path, PathBuf};

use anyhow::{Context as _, anyhow};
use rustix::fs::{Access, access};
use store::private::{self, PrivateError};

use crate::environment::Environment;
use crate::failure::Failure;
use crate::kubeconfig::shell_word;

/// The directory that was asked for, else the user's, as an absolute path.
pub(crate) fn choose(asked: Option<&Path>, environment: &Environment) -> Result<PathBuf, Failure> {
    let data = asked.map(Path::to_owned).or_else(|| environment.data_dir()).ok_or_else(|| {
        Failure::usage(anyhow!("there is no user's data directory: `HOME` is not set"))
            .hint("pass one with `--data DIR`")
    })?;
    absolute(&data)
}

/// ` --data DIR` for commands that people are told to type, unless they mean this directory anyway.
pub(crate) fn flag(data: &Path, environment: &Environment) -> String {
    let is_default = environment.data_dir().is_some_and(|default| absolute(data).is_ok_and(|data| data == default));
    if is_default { String::new() } else { format!(" --data {}", shell_word(data)) }
}

pub(crate) fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    Ok(path::absolute(path).with_context(|| format!("find the absolute path of `{}`", path.display()))?)
}

/// Makes the directory, for its owner only, or says why it cannot be used (BI-120).
pub(crate) fn prepare(data: &Path) -> Result<(), Failure> {
    let failure = |error: anyhow::Error| {
        Failure::new(error.context(format!("use the data directory `{}`", data.display())))
            .hint("pass a directory you may write to with `--data DIR`")
    };
    take(data).map_err(|refused| match (remedy(&refused), refused) {
        (_, PrivateError::Io { source, .. }) => {
            let remedy = write_remedy(&source);
            failure(source.into()).hint(remedy)
        }
        (_, refused @ PrivateError::SymbolicLink { .. }) => {
            let target = fs::canonicalize(data).unwrap_or_else(|_| PathBuf::from("DIR"));
            failure(refused.into()).hint(format!("name the directory itself: `--data {}`", shell_word(&target)))
        }
        (Some(remedy), refused) => failure(refused.into()).hint(remedy),
        (None, refused) => failure(refused.into()),
    })?;
    access(data, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK).map_err(|error| failure(error.into()))
}

/// An empty directory is for us alone from now on. One with other things in it may be somebody's home, which others may
/// have to see into; what we put there is closed to them all the same.
fn take(data: &Path) -> Result<(), PrivateError> {
    private::owned_directory(data)?;
    let is_empty = fs::read_dir(data).is_ok_and(|mut entries| entries.next().is_none());
    if is_empty { private::directory(data) } else { Ok(()) }
}

/// What to do where a file of ours cannot be written.
pub(crate) fn write_remedy(error: &io::Error) -> String {
    match is_full(error) {
        true => "make room on the disk, or pass a directory on another one with `--data DIR`".to_owned(),
        false => "pass a directory you may write to with `--data DIR`".to_owned(),
    }
}

/// Whatever could not be written: if the disk is full, nothing else needs to be done about it.
pub(crate) fn hint_if_full(failure: Failure) -> Failure {
    let full = failure.error.chain().find_map(|cause| cause.downcast_ref::<io::Error>().filter(|error| is_full(error)));
    match full.map(write_remedy) {
        Some(remedy) => failure.hint(remedy),
        None => failure,
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// What makes something of ours usable again, as a command; `None` where only the system knows.
pub(crate) fn remedy(refused: &PrivateError) -> Option<String> {
    Some(match refused {
        PrivateError::Io { .. } => return None,
        PrivateError::Writable { path, .. } => {
            let mode = if path.is_dir() { "700" } else { "600" };
            format!("if nobody has tampered with it, `chmod {mode} {}` makes it yours alone", shell_word(path))
        }
        PrivateError::Owner { path, user, .. } => {
            let word = shell_word(path);
            format!("`sudo chown -R {user} {word}` makes it yours; or run tally as the user it belongs to")
        }
        PrivateError::SymbolicLink { path } => match fs::canonicalize(path) {
            Ok(target) => {
                let (link, target) = (shell_word(path), shell_word(&target));
                format!("put there what it points to: `rm {link} && mv {target} {link}`")
            }
            Err(_) => format!("it points nowhere: `rm {}`", shell_word(path)),
        },
        PrivateError::NotADirectory { path } | PrivateError::NotAFile { path } => {
            let (word, away) = (shell_word(path), shell_word(&path.with_added_extension("old")));
            format!("it is in the way: `mv {word} {away}`, or pass another directory with `--data DIR`")
        }
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    use rustix::process::geteuid;

    use super::*;
    use crate::failure::Exit;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// What is wrong, and what to do about it.
    fn refusal(data: &Path) -> (String, String) {
        let failure = prepare(data).unwrap_err();
        assert_eq!(failure.exit, Exit::Failed);
        assert_eq!(failure.error.to_string(), format!("use the data directory `{}`", data.display()));
        (failure.error.root_cause().to_string(), failure.hint)
    }

    #[test]
    fn a_directory_that_others_can_write_is_refused_until_it_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let (data, shown) = (dir.path(), dir.path().display());
        for given in [0o777, 0o770, 0o720, 0o702] {
            set_mode(data, given);
            let (error, hint) = refusal(data);
            assert_eq!(error, format!("`{shown}` can be written by others (mode {given:o})"));
            assert_eq!(hint, format!("if nobody has tampered with it, `chmod 700 {shown}` makes it yours alone"));
            assert_eq!(mode(data), given);
            set_mode(data, 0o700);
            prepare(data).unwrap();
        }
    }

    #[test]
    fn a_directory_that_others_can_see_into_is_closed_only_if_nothing_else_is_in_it() {
        let dir = tempfile::tempdir().unwrap();
        for given in [0o755, 0o750, 0o711] {
            set_mode(dir.path(), given);
            prepare(dir.path()).unwrap();
            assert_eq!(mode(dir.path()), 0o700, "{given:o}");
        }
        fs::write(dir.path().join("thesis"), "").unwrap();
        set_mode(dir.path(), 0o755);
        prepare(dir.path()).unwrap();
        assert_eq!(mode(dir.path()), 0o755);
    }

    #[test]
    fn a_link_is_refused_and_what_it_points_to_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let dir = fs::canonicalize(dir.path()).unwrap();
        let (real, link) = (dir.join("real"), dir.join("link"));
        fs::create_dir(&real).unwrap();
        symlink("real", &link).unwrap();
        for written in [link.clone(), link.join(""), link.join(".")] {
            let (error, hint) = refusal(&absolute(&written).unwrap());
            assert_eq!(error, format!("`{}` is a symbolic link", link.display()));
            assert_eq!(hint, format!("name the directory itself: `--data {}`", real.display()));
        }
        assert_eq!(fs::read_dir(&real).unwrap().count(), 0);
        // A link further up is how people name their disks.
        prepare(&link.join("data")).unwrap();
        assert_eq!(mode(&real.join("data")), 0o700);
        fs::remove_dir_all(&real).unwrap();
        assert_eq!(refusal(&link).1, "name the directory itself: `--data DIR`");
    }

    #[test]
    fn somebody_elses_directory_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        // Only root can give directories away; for everybody else this one is root's.
        let theirs = if geteuid().is_root() {
            chown(dir.path(), Some(65_534), None).unwrap();
            dir.path()
        } else {
            Path::new("/")
        };
        let (error, hint) = refusal(theirs);
        let user = geteuid().as_raw();
        assert!(error.contains("belongs to user ") && error.ends_with(&format!("runs as user {user}")), "{error}");
        assert!(hint.contains(&format!("`sudo chown -R {user} {}`", theirs.display())), "{hint}");
    }

    #[test]
    fn a_file_in_its_place_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a file");
        fs::write(&file, "").unwrap();
        let (error, hint) = refusal(&file);
        assert_eq!(error, format!("`{}` is not a directory", file.display()));
        assert!(hint.contains(&format!("`mv '{0}' '{0}.old'`", file.display())), "{hint}");
    }

    #[test]
    fn a_full_disk_is_no_reason_to_remove_anything() {
        let full = io::Error::from(io::ErrorKind::StorageFull);
        assert!(write_remedy(&full).starts_with("make room on the disk"));
        assert!(write_remedy(&io::ErrorKind::PermissionDenied.into()).contains("you may write to"));
        let failure =
            |error| hint_if_full(Failure::new(anyhow!(io::Error::from(error)).context("write it")).hint("rm it"));
        assert!(failure(io::ErrorKind::StorageFull).hint.starts_with("make room on the disk"));
        assert_eq!(failure(io::ErrorKind::NotFound).hint, "rm it");
    }

    #[test]
    fn commands_name_a_directory_that_would_not_be_found() {
        let environment = Environment { data_home: Some("/data".into()), ..Environment::default() };
        assert_eq!(flag(Path::new("/data/tally"), &environment), "");
        assert_eq!(flag(Path::new("/other dir"), &environment), " --data '/other dir'");
        assert_eq!(flag(Path::new("/data/tally"), &Environment::default()), " --data /data/tally");
    }
}
