//! The directory in which a tally keeps everything: where it is, and that it can be used.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{self, Path, PathBuf};

use anyhow::{Context as _, anyhow};
use rustix::fs::{Access, access};

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

/// Makes the directory, for its owner only, or says why it cannot be used.
pub(crate) fn prepare(data: &Path) -> Result<(), Failure> {
    let failure = |error: anyhow::Error| {
        Failure::new(error.context(format!("use the data directory `{}`", data.display())))
            .hint("pass a directory you may write to with `--data DIR`")
    };
    DirBuilder::new().recursive(true).mode(0o700).create(data).map_err(|error| failure(error.into()))?;
    access(data, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK).map_err(|error| failure(error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_name_a_directory_that_would_not_be_found() {
        let environment = Environment { data_home: Some("/data".into()), ..Environment::default() };
        assert_eq!(flag(Path::new("/data/tally"), &environment), "");
        assert_eq!(flag(Path::new("/other dir"), &environment), " --data '/other dir'");
        assert_eq!(flag(Path::new("/data/tally"), &Environment::default()), " --data /data/tally");
    }
}
