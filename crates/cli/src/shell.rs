//! What a shell and its manual need to know of the command: `tally completion` and `tally man`.

use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use clap_complete::Shell;

use crate::arguments::command_for;
use crate::failure::Failure;
use crate::output::say;

#[derive(Debug, Args)]
pub(crate) struct Completion {
    /// The shell to print a script for.
    shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Where to write the pages, one for each command.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

fn command() -> clap::Command {
    command_for(&std::env::args_os().next().unwrap_or_default())
}

pub(crate) fn completion(options: &Completion) -> Result<(), Failure> {
    let mut command = command();
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut command, name, &mut script);
    say(&String::from_utf8_lossy(&script))
}

pub(crate) fn man(options: &Man) -> Result<(), Failure> {
    let directory = &options.directory;
    let write = || fs::create_dir_all(directory).and_then(|()| clap_mangen::generate_to(command(), directory));
    write()
        .with_context(|| format!("write the manual pages to `{}`", directory.display()))
        .map_err(|error| Failure::new(error).hint("pass a directory you may write to"))
}
