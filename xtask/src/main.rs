//! All automation of the project: `cargo xtask COMMAND`.
//!
//! Nothing here is tested code of the product; what needs a running server or a Kubernetes client is a program of the
//! `testkit` crate or a script in `e2e/`, and this crate builds, sets up, runs and counts.

mod behaviour;
mod bench;
mod conformance;
mod counts;
mod demo;
mod e2e;
mod expectations;
mod project;
mod prove;
mod proxy;
mod setup;
mod soak;
mod stage;
mod supply;
mod test;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::prove::Extent;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "Automation of the tally workspace")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Starts a server and shows a Job being accepted by it.
    Demo,
    /// Everything that must pass before a change lands; installs what it needs.
    Test,
    /// What the product is built of: locked versions, checksums, licences.
    Supply,
    /// kubectl and the official Python client against `tally up`.
    E2e {
        /// Only cases whose name contains this.
        #[arg(long, value_name = "TEXT")]
        only: Option<String>,
    },
    /// The recorded answers of real Kubernetes against `tally up`.
    Conformance {
        /// Only cases whose AREA/NAME matches; differences are printed, expectations not checked.
        #[arg(long, value_name = "GLOB")]
        only: Vec<String>,
    },
    /// What real Kubernetes' controllers did with Jobs, against `tally controller`.
    Behaviour {
        /// Only scenarios whose AREA/NAME matches.
        #[arg(long, value_name = "GLOB")]
        only: Vec<String>,
    },
    /// Kill -9 under load, again and again.
    Soak {
        /// While Jobs of 500 pods run, instead of under write load.
        #[arg(long)]
        pods: bool,
        /// [default: 200, with --pods 20].
        #[arg(long)]
        rounds: Option<u32>,
        /// Repeats the choices of an earlier run.
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Faults between `tally controller` and an API server, both real processes, by a proxy.
    Proxy {
        /// For the program; `cargo xtask proxy -- --help` lists them.
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Every fault enumerated, the plan model-checked, the whole system simulated: five minutes.
    Prove {
        /// Only the simulation of this seed, told call by call.
        #[arg(long)]
        seed: Option<u64>,
        /// What every change must pass: more pairs of faults, and every old bug brought back to be caught.
        #[arg(long, conflicts_with = "seed")]
        all: bool,
        /// The same with twenty times as many states and seeds: about an hour.
        #[arg(long, conflicts_with_all = ["seed", "all"])]
        nightly: bool,
    },
    /// The figures of docs/benchmarks.md, measured on this machine.
    Bench,
}

/// Completions of the Jobs of a soak.
const SOAK_PODS: u32 = 500;

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether everything passed.
fn run(command: Command) -> Result<bool> {
    Ok(match command {
        Command::Demo => demo::run()?,
        Command::Test => test::run()?,
        Command::Supply => supply::run()?,
        Command::E2e { only } => e2e::run(only.as_deref())?,
        Command::Conformance { only } if only.is_empty() => conformance::run()?,
        Command::Conformance { only } => conformance::show(&only)?,
        Command::Behaviour { only } => behaviour::run(&only)?,
        Command::Soak { pods, rounds, seed } => {
            let load = if pods { soak::Load::Pods(SOAK_PODS) } else { soak::Load::Writes };
            soak::run(load, rounds, seed)?
        }
        Command::Proxy { arguments } => proxy::run(&arguments)?,
        Command::Prove { seed: Some(seed), .. } => prove::again(seed)?,
        Command::Prove { all, nightly, .. } => prove::run(match (all, nightly) {
            (_, true) => Extent::Night,
            (true, false) => Extent::All,
            (false, false) => Extent::Commit,
        })?,
        Command::Bench => bench::run()?,
    })
}
