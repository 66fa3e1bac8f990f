//! The `tally` command: reads flags and environment, wires the other crates together, talks to the terminal.
//!
//! Data goes to stdout, everything else to stderr. Exit codes are in [`failure::Exit`].

mod arguments;
mod controller;
mod environment;
mod failure;
mod kubeconfig;
mod logging;
mod nodes;
mod parts;
mod running;
mod server;
mod shutdown;
mod up;
mod version;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser as _;

use crate::arguments::{Arguments, Command};
use crate::environment::Environment;

/// Small objects come and go by the hundred with every request, on several threads; the system's allocator spends more
/// time on them than the rest of the server.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // The nursery must be the only thread of its process, so it comes before everything else.
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|word| word == node::nursery::SUBCOMMAND) {
        return nursery(words.next());
    }
    let arguments = Arguments::parse();
    let environment = Environment::read();
    logging::start(arguments.verbose, &environment);
    let done = match arguments.command {
        Command::Up(options) => up::run(*options, &environment),
        Command::Controller(options) => controller::run(&options),
        Command::Version(options) => version::run(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// The hidden subcommand that owns the processes of pods and outlives the server.
fn nursery(directory: Option<OsString>) -> ExitCode {
    let Some(directory) = directory else { return ExitCode::FAILURE };
    match node::nursery::run(Path::new(&directory)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: run the nursery: {error}");
            ExitCode::FAILURE
        }
    }
}
