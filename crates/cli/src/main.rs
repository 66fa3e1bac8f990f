//! The `tally` command: reads flags and environment, wires the other crates together, talks to the terminal.
//!
//! Data goes to stdout, everything else to stderr. Exit codes are in [`failure::Exit`].

mod arguments;
mod bench;
mod cluster;
mod control_plane;
mod controller;
mod data_dir;
mod detach;
mod down;
mod environment;
mod failure;
mod history;
mod instance;
mod job_view;
mod kubeconfig;
mod log_lines;
mod log_merge;
mod log_stream;
mod logging;
mod logs;
mod merge;
mod node_flags;
mod nodes;
mod output;
mod parts;
mod patience;
mod pod_view;
mod rerun;
mod run;
mod running;
mod server;
mod shell;
mod shutdown;
mod status;
mod text;
mod up;
mod version;
mod wait;
mod why;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use crate::arguments::{Arguments, Command};
use crate::environment::Environment;
use crate::failure::Failure;

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
    let environment = Environment::read();
    Failure::report_panics(&environment);
    let arguments = Arguments::read();
    logging::start(arguments.verbose, &environment);
    let done = match arguments.command {
        Command::Run(options) => run::run(&options, &environment),
        Command::Up(options) => up::run(*options, &environment),
        Command::Down(options) => down::run(&options, &environment),
        Command::Status(options) => status::run(&options, &environment),
        Command::Why(options) => why::run(&options, &environment),
        Command::Wait(options) => wait::run(&options, &environment),
        Command::Logs(options) => logs::run(&options, &environment),
        Command::History(options) => history::run(&options, &environment),
        Command::Rerun(options) => rerun::run(&options, &environment),
        Command::Bench(options) => bench::run(&options, &environment),
        Command::Controller(options) => controller::run(&options, &environment),
        Command::Version(options) => version::run(&options),
        Command::Completion(options) => shell::completion(&options),
        Command::Man(options) => shell::man(&options),
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
            output::tell(&format!("error: run the nursery: {error}"));
            ExitCode::FAILURE
        }
    }
}
