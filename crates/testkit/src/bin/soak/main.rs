//! Kills a real `tally up` again and again while clients write, and checks after each restart that it kept its word:
//! every acknowledged write is there, revisions never go back, watches resume without a gap.
//!
//! With `--pods` it is killed while it runs Jobs instead, and must have run every pod once and to its end.
//!
//! `cargo xtask soak` builds the server and runs this. A failure prints the seed and keeps the data directory.

mod ledger;
mod model;
mod pods;
mod random;
mod round;
mod traces;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use clap::Parser;
use tempfile::TempDir;

use crate::pods::{PodSoak, Totals};
use crate::round::Soak;

#[derive(Debug, Parser)]
struct Arguments {
    /// The tally binary.
    #[arg(long)]
    binary: PathBuf,
    /// How often the server is killed; with `--pods`, how many Jobs run.
    #[arg(long, default_value_t = 200)]
    rounds: u32,
    /// Jobs of this many pods run while the server is killed, instead of writers.
    #[arg(long, value_name = "COMPLETIONS")]
    pods: Option<u32>,
    /// Clients that write at the same time.
    #[arg(long, default_value_t = 8)]
    writers: usize,
    /// Chooses what is written and when the server is killed; the outcome still depends on the machine's timing.
    #[arg(long)]
    seed: Option<u64>,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seed = arguments.seed.unwrap_or(u64::from(now.subsec_nanos()) ^ now.as_secs());
    let data = tempfile::Builder::new().prefix("tally-soak-").tempdir().context("make a data directory")?;
    if let Some(completions) = arguments.pods {
        return run_pods(&arguments, completions, seed, data).await;
    }
    eprintln!("soak: {} rounds, {} writers, seed {seed}", arguments.rounds, arguments.writers);

    let mut soak = Soak::new(&arguments.binary, data.path(), arguments.writers, seed);
    for round in 1..=arguments.rounds {
        if let Err(error) = soak.round(round).await {
            return Ok(failed(&error, round, seed, data));
        }
        if round % 20 == 0 {
            eprintln!("soak: {round} rounds, {} acknowledged writes", soak.acknowledged());
        }
    }
    soak.finish().await.context("after the last round")?;
    let mut starts = soak.starts().to_vec();
    starts.sort();
    let nth = |percent: usize| starts.get((starts.len() * percent / 100).min(starts.len().saturating_sub(1)));
    println!(
        "kill -9 soak: {} acknowledged writes, none lost; {} watch events, none missing; ready p50 {:.0?}, p99 {:.0?}",
        soak.acknowledged(),
        soak.watched(),
        nth(50).copied().unwrap_or(Duration::ZERO),
        nth(99).copied().unwrap_or(Duration::ZERO),
    );
    println!("{} passed, 0 failed", arguments.rounds);
    Ok(ExitCode::SUCCESS)
}

async fn run_pods(arguments: &Arguments, completions: u32, seed: u64, data: TempDir) -> Result<ExitCode> {
    eprintln!("soak: {} Jobs of {completions} pods, seed {seed}", arguments.rounds);
    let mut soak = PodSoak::new(&arguments.binary, data.path(), completions, seed);
    for round in 1..=arguments.rounds {
        if let Err(error) = soak.round(round).await {
            return Ok(failed(&error, round, seed, data));
        }
        let Totals { kills, pods, lost } = soak.totals;
        eprintln!("soak: {round} Jobs, {pods} pods, {kills} kills, {lost} pods lost with their nursery");
    }
    let Totals { kills, pods, lost } = soak.totals;
    println!(
        "kill -9 soak: {pods} pods of {} Jobs, {kills} kills; each ran once and to its end but {lost} that died with \
         their nursery; counters exact, nothing left behind",
        arguments.rounds,
    );
    println!("{} passed, 0 failed", arguments.rounds);
    Ok(ExitCode::SUCCESS)
}

fn failed(error: &anyhow::Error, round: u32, seed: u64, data: TempDir) -> ExitCode {
    let kept = data.keep();
    eprintln!("error: round {round}, seed {seed}, data kept in `{}`: {error:#}", kept.display());
    println!("{} passed, 1 failed", round - 1);
    ExitCode::FAILURE
}
