//! Kills a real `tally up` again and again while clients write, and checks after each restart that it kept its word:
//! every acknowledged write is there, revisions never go back, watches resume without a gap.
//!
//! `cargo xtask soak` builds the server and runs this. A failure prints the seed and keeps the data directory.

mod model;
mod random;
mod round;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use clap::Parser;

use crate::round::Soak;

#[derive(Debug, Parser)]
struct Arguments {
    /// The tally binary.
    #[arg(long)]
    binary: PathBuf,
    /// How often the server is killed.
    #[arg(long, default_value_t = 200)]
    rounds: u32,
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
    eprintln!("soak: {} rounds, {} writers, seed {seed}", arguments.rounds, arguments.writers);

    let mut soak = Soak::new(&arguments.binary, data.path(), arguments.writers, seed);
    for round in 1..=arguments.rounds {
        if let Err(error) = soak.round(round).await {
            let kept = data.keep();
            eprintln!("error: round {round}, seed {seed}, data kept in `{}`: {error:#}", kept.display());
            println!("{} passed, 1 failed", round - 1);
            return Ok(ExitCode::FAILURE);
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
