//! What commands print: for people or for programs, on standard output.

use std::io::{self, Write as _};

use anyhow::anyhow;
use clap::ValueEnum;

use crate::failure::{Exit, Failure};

/// `-o`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Text,
    Json,
}

/// Writes all of `text` to standard output. `println!` would panic where this fails.
pub(crate) fn say(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(failure)
}

/// Writes a line for people to standard error. Nobody may be reading it, which changes nothing about the work;
/// `eprintln!` would panic.
pub(crate) fn tell(line: &str) {
    let _ = io::stderr().lock().write_all(format!("{line}\n").as_bytes());
}

/// Why output could not be written.
pub(crate) fn failure(error: io::Error) -> Failure {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return Failure::new(anyhow!("nobody reads the output any more"))
            .exit(Exit::BrokenPipe)
            .hint("let the reader take all of it, or write to a file");
    }
    Failure::new(anyhow!(error).context("write to standard output")).hint("is the disk full?")
}
