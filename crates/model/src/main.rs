//! Checks every history of the small worlds, and says how many states that were.
//!
//! Ends with an error if a promise is broken, if a situation that must be met was not, or if there were fewer states than
//! asked for with `--at-least`.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Parser;
use model::{Config, Limits, Order, Report, Row, check, nightly, per_commit};

/// Model checker of the Job controller.
#[derive(Debug, Parser)]
struct Options {
    /// After the usual set the larger one too, of more than 100 million states, the far ones first
    #[arg(long)]
    nightly: bool,
    /// Only configurations whose name contains this
    #[arg(long)]
    only: Option<String>,
    /// Distinct states of one configuration at most
    #[arg(long)]
    states: Option<u64>,
    /// Seconds for everything; what is left when they are over is not looked at
    #[arg(long)]
    seconds: Option<u64>,
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Demand that everything settles from one in so many states
    #[arg(long, default_value_t = 16)]
    settle_one_in: u64,
    /// Fail if fewer distinct states were seen in all
    #[arg(long, default_value_t = 0)]
    at_least: u64,
    /// List the configurations and stop
    #[arg(long)]
    list: bool,
}

/// States of each configuration that are looked at first at night: as many as with every change.
const NEAR_STATES: u64 = 500_000;

fn main() -> Result<()> {
    let options = Options::parse();
    let wanted = |config: &Config| options.only.as_deref().is_none_or(|part| config.name.contains(part));
    let searches = searches(&options).into_iter().filter(|(config, ..)| wanted(config));
    if options.list {
        searches.for_each(|(config, ..)| println!("{}", config.name));
        return Ok(());
    }
    let started = Instant::now();
    println!(
        "{:<28}{:>12}{:>12}{:>7}{:>11}{:>9}",
        "configuration", "states", "generated", "depth", "settled", "seconds"
    );
    let mut reports = Vec::new();
    for (config, order, states) in searches {
        let time = options.seconds.map(|seconds| Duration::from_secs(seconds).saturating_sub(started.elapsed()));
        let limits = Limits { order, threads: options.threads, states, time, settle_one_in: options.settle_one_in };
        let report = check(config, limits);
        print_row(&report);
        reports.push(report);
    }
    conclude(&options, &reports, started.elapsed())
}

/// What is searched, in which order, and how many states of it. Far ones alone would not meet every situation.
fn searches(options: &Options) -> Vec<(Config, Order, Option<u64>)> {
    let near = |states| per_commit().into_iter().map(move |config| (config, Order::Breadth, states));
    if !options.nightly {
        return near(options.states).collect();
    }
    let far = nightly().into_iter().map(|config| (config, Order::Depth, options.states));
    near(Some(NEAR_STATES)).chain(far).collect()
}

fn print_row(report: &Report) {
    let Report { name, states, generated, depth, settled, took, complete, .. } = report;
    let cut_off = if *complete { "" } else { "  (cut off)" };
    println!("{name:<28}{states:>12}{generated:>12}{depth:>7}{settled:>11}{:>9.1}{cut_off}", took.as_secs_f64());
    for (promise, path) in &report.broken {
        println!("\nBROKEN {promise}\n{path}\n");
    }
}

fn conclude(options: &Options, reports: &[Report], took: Duration) -> Result<()> {
    let states: u64 = reports.iter().map(|report| report.states).sum();
    let broken: usize = reports.iter().map(|report| report.broken.len()).sum();
    let properties = reports.first().map_or(0, |report| report.properties);
    let times = |row: Row| -> u64 {
        let of = |report: &Report| report.met.iter().find(|(met, _)| *met == row).map_or(0, |(_, times)| *times);
        reports.iter().map(of).sum()
    };
    println!();
    for row in Row::ALL {
        println!("situation: {} {}", times(*row), row.text());
    }
    let unmet: Vec<&str> = Row::ALL.iter().filter(|row| times(**row) == 0).map(|row| row.text()).collect();
    println!(
        "\n{} configurations, {properties} properties, {states} distinct states, {broken} broken promises, {:.1} s",
        reports.len(),
        took.as_secs_f64()
    );
    println!("measured: distinct states model-checked = {states}");
    println!("{} passed, {broken} failed", reports.iter().filter(|report| report.broken.is_empty()).count());
    if broken > 0 {
        bail!("{broken} promises are broken");
    }
    if options.only.is_none() && !unmet.is_empty() {
        bail!("never met: {}", unmet.join(", "));
    }
    if states < options.at_least {
        bail!("{states} states are fewer than {}", options.at_least);
    }
    Ok(())
}
