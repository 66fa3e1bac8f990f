//! Runs a command against a `tally up` of its own: `with-tally --binary tally --kubeconfig FILE -- COMMAND …`.
//!
//! The command finds the server through `KUBECONFIG`, its files through `TALLY_DATA` and its process through `TALLY_PID`, and
//! its exit status is handed on.
//! A server that panicked meanwhile is a failure whatever the command thought of it.

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use testkit::Tally;

/// The server promises to stop within two seconds; a loaded machine may need more.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, Parser)]
struct Arguments {
    /// The tally binary.
    #[arg(long)]
    binary: PathBuf,
    /// Where the server writes its kubeconfig.
    #[arg(long)]
    kubeconfig: PathBuf,
    /// Run the server as this user, which needs root; the kubeconfig stays in its data directory then.
    #[arg(long, value_name = "UID")]
    user: Option<u32>,
    /// Run controllers and node too; otherwise the API server is alone.
    #[arg(long)]
    whole: bool,
    /// A flag of `tally up`, such as `--flag=--pod-failure-backoff=1s`.
    #[arg(long)]
    flag: Vec<String>,
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

fn main() -> ExitCode {
    run(&Arguments::parse()).unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(arguments: &Arguments) -> Result<ExitCode> {
    let data = tempfile::Builder::new().prefix("tally-").tempdir().context("make a data directory")?;
    let kubeconfig = arguments.kubeconfig.to_str().context("the kubeconfig's path is not text")?;
    let mut flags: Vec<&str> = arguments.flag.iter().map(String::as_str).collect();
    if !arguments.whole {
        flags.extend(["--node", "none", "--controllers", "none"]);
    }
    let mut server = match arguments.user {
        Some(user) => Tally::start_as(user, &arguments.binary, data.path(), &flags)?,
        None => {
            flags.extend(["--kubeconfig-out", kubeconfig]);
            Tally::start(&arguments.binary, data.path(), &flags)?
        }
    };

    let [program, rest @ ..] = arguments.command.as_slice() else { unreachable!("clap requires a command") };
    let status = Command::new(program)
        .args(rest)
        .env("KUBECONFIG", server.kubeconfig())
        .env("TALLY_DATA", data.path())
        .env("TALLY_PID", server.pid().to_string())
        .status()
        .with_context(|| format!("run `{program}`"))?;

    let stopped = server.stop(STOP_PATIENCE);
    let stderr = server.stderr();
    if !stderr.is_empty() {
        eprintln!("--- the server wrote to stderr:\n{stderr}---");
    }
    let stopped = stopped?;
    ensure!(stopped.success(), "the server ended with {stopped}");
    ensure!(!stderr.contains("panicked at"), "the server panicked");
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}
