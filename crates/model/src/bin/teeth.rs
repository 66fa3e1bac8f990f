//! Brings every old bug back in turn and demands that something turns red (invariants 3.10).
//!
//! For each mutation of `batch_plan::teeth` the tests of `batch-plan` run in a process of their own, first the regression
//! of that number, then all; afterwards the model checker looks for it too. Ends with an error if a bug survives the tests.

use std::io::Read as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use batch_plan::teeth::{Mutation, select};
use clap::Parser;
use model::{Config, Limits, check, per_commit};
use serde_json::Value;

/// A mutation may keep a test from ever ending, which is as good as a failure.
const PATIENCE: Duration = Duration::from_secs(25);

/// Shows that the tests of the plan can fail.
#[derive(Debug, Parser)]
struct Options {
    /// Only mutations whose number contains this
    #[arg(long)]
    only: Option<String>,
    /// The test program of `batch-plan` with the feature `teeth`; built if not given
    #[arg(long)]
    tests: Option<PathBuf>,
    /// Leave the model checker out
    #[arg(long)]
    no_model: bool,
    /// States that the model checker looks at for one mutation, in each configuration
    #[arg(long, default_value_t = 1_000)]
    states: u64,
}

/// What noticed a bug.
#[derive(Debug, Default, Clone)]
struct Caught {
    tests: Vec<String>,
    model: Option<String>,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let started = Instant::now();
    let wanted = |mutation: &Mutation| options.only.as_deref().is_none_or(|part| mutation.id().contains(part));
    let mutations: Vec<Mutation> = Mutation::ALL.iter().copied().filter(wanted).collect();
    let tests = options.tests.clone().map_or_else(build_tests, Ok)?;
    let (healthy, failed) = run_tests(&tests, None, &[])?;
    ensure!(healthy, "without any mutation these fail: {}", failed.join(", "));

    let mut caught = by_tests(&tests, &mutations)?;
    if !options.no_model {
        let broken = by_model(None, options.states);
        ensure!(broken.is_none(), "without any mutation the model is broken: {broken:?}");
        // The model knows the Job controller only.
        let is_known = |mutation: Mutation| !mutation.id().starts_with("REG-F") && mutation != Mutation::H07;
        for (mutation, caught) in mutations.iter().zip(&mut caught).filter(|(mutation, _)| is_known(**mutation)) {
            caught.model = by_model(Some(*mutation), options.states);
        }
        select(None);
    }
    let mut survivors = Vec::new();
    for (mutation, caught) in mutations.iter().zip(&caught) {
        println!("{:<9}{}", mutation.id(), mutation.about());
        let first = caught.tests.first().map_or("NOTHING", String::as_str);
        let more = caught.tests.len().saturating_sub(1);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        println!("         tests  {first}{more}");
        if let Some(found) = &caught.model {
            println!("         model  {found}");
        }
        if caught.tests.is_empty() && caught.model.is_none() {
            survivors.push(mutation.id());
        }
    }
    let modelled = caught.iter().filter(|caught| caught.model.is_some()).count();
    println!(
        "\n{} mutations, {} survive, {modelled} found by the model checker too, {:.0} s",
        mutations.len(),
        survivors.len(),
        started.elapsed().as_secs_f64()
    );
    println!("measured: old bugs brought back and caught = {}", mutations.len() - survivors.len());
    println!("{} passed, {} failed", mutations.len() - survivors.len(), survivors.len());
    if !survivors.is_empty() {
        bail!("nothing notices {}", survivors.join(", "));
    }
    Ok(())
}

/// Two processes at a time.
fn by_tests(tests: &Path, mutations: &[Mutation]) -> Result<Vec<Caught>> {
    let next = AtomicUsize::new(0);
    let found: Mutex<Vec<Result<Caught>>> = Mutex::new(mutations.iter().map(|_| Ok(Caught::default())).collect());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(mutation) = mutations.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let caught = try_tests(tests, *mutation);
                    let position = mutations.iter().position(|other| other == mutation).unwrap_or_default();
                    if let Ok(mut found) = found.lock() {
                        found[position] = caught;
                    }
                }
            });
        }
    });
    found.into_inner().unwrap_or_default().into_iter().collect()
}

/// The regression of that number first, then all of them, then every test, the slow ones last.
fn try_tests(tests: &Path, mutation: Mutation) -> Result<Caught> {
    // `REG-D03` is `reg_d01_and_d03_…`, `INV-9` is `inv_9_…`.
    let number = mutation.id().trim_start_matches("REG").to_lowercase().replace('-', "_");
    let stages: [&[&str]; 4] = [&[&number], &["reg_"], &["--skip", "properties"], &["properties"]];
    for stage in stages {
        let (passed, failed) = run_tests(tests, Some(mutation), stage)?;
        if !passed {
            return Ok(Caught { tests: failed, model: None });
        }
    }
    Ok(Caught::default())
}

/// Whether all passed, and which did not.
fn run_tests(tests: &Path, mutation: Option<Mutation>, filters: &[&str]) -> Result<(bool, Vec<String>)> {
    let mut command = Command::new(tests);
    command.args(filters).arg("--test-threads=1").stdout(Stdio::piped()).stderr(Stdio::null());
    // The property tests repeat themselves so that every run of this program is the same.
    command.env("HISTORY_SEED", "1").env("RUST_BACKTRACE", "0").env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1");
    if let Some(mutation) = mutation {
        command.env("TALLY_MUTATION", mutation.id());
    }
    let mut child = command.spawn().with_context(|| format!("start `{}`", tests.display()))?;
    let mut stdout = child.stdout.take().context("the output of the tests")?;
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        stdout.read_to_string(&mut text).map(|_| text)
    });
    let begun = Instant::now();
    let passed = loop {
        match child.try_wait().context("wait for the tests")? {
            Some(status) => break status.success(),
            None if mutation.is_some() && begun.elapsed() > PATIENCE => {
                child.kill().context("end tests that do not end")?;
                child.wait().context("wait for the tests")?;
                break false;
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let text = reader.join().ok().context("read the output of the tests")??;
    let mut failed: Vec<String> = text.lines().filter_map(failed_test).collect();
    if !passed && failed.is_empty() {
        failed.push(format!("{} does not end", text.lines().last().unwrap_or("the first test").trim_end()));
    }
    Ok((passed, failed))
}

/// `test a::b ... FAILED`
fn failed_test(line: &str) -> Option<String> {
    let name = line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?;
    Some(name.rsplit("::").next().unwrap_or(name).to_owned())
}

/// The first promise that the model checker finds broken.
fn by_model(mutation: Option<Mutation>, states: u64) -> Option<String> {
    select(mutation);
    let limits = Limits { states: Some(states), settle_one_in: 2, ..Limits::default() };
    let look = |config: Config| {
        let name = config.name;
        // A plan with a bug may also panic.
        match catch_unwind(AssertUnwindSafe(|| check(config, limits))) {
            Ok(report) => report.broken.first().map(|(promise, _)| format!("{promise} ({name})")),
            Err(_) => Some(format!("panic ({name})")),
        }
    };
    std::panic::set_hook(Box::new(|_| {}));
    let found = per_commit().into_iter().find_map(look);
    let _ = std::panic::take_hook();
    found
}

/// Builds the tests of the plan with the feature, and says where they are.
fn build_tests() -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = "test -p batch-plan --features teeth --lib --no-run --message-format=json";
    let output = Command::new(cargo)
        .args(arguments.split(' '))
        .stderr(Stdio::inherit())
        .output()
        .context("build the tests of batch-plan")?;
    ensure!(output.status.success(), "the tests of batch-plan do not build");
    let messages = String::from_utf8_lossy(&output.stdout);
    let programs = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut programs = programs.filter_map(|message| Some(PathBuf::from(message.get("executable")?.as_str()?)));
    programs.next_back().context("cargo named no test program")
}
