//! Brings every old bug back in turn and demands that something turns red (invariants 3.10).
//!
//! For each mutation of the crate `teeth` the regression of its number runs in a process of its own, or a case of the
//! enumeration of faults; for bugs of the plan the model checker looks too. Ends with an error if a bug survives its
//! regression, whatever else notices it.

use std::collections::HashMap;
use std::io::Read as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser;
use model::{Config, Limits, check, per_commit};
use serde_json::Value;
use teeth::{Judge, Mutation, select};

/// A mutation may keep a test from ever ending, which is as good as a failure.
const PATIENCE: Duration = Duration::from_secs(25);

/// Shows that the tests can fail.
#[derive(Debug, Parser)]
struct Options {
    /// Only mutations whose number contains this
    #[arg(long)]
    only: Option<String>,
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
    ensure!(teeth::POSSIBLE, "without debug assertions no bug can be brought back: use --profile prove");
    let started = Instant::now();
    let wanted = |mutation: &Mutation| options.only.as_deref().is_none_or(|part| mutation.id().contains(part));
    let mutations: Vec<Mutation> = Mutation::ALL.iter().copied().filter(wanted).collect();
    let programs = Programs::build()?;
    programs.ensure_healthy(&mutations)?;

    let mut caught = by_programs(&programs, &mutations)?;
    if !options.no_model {
        let broken = by_model(None, options.states);
        ensure!(broken.is_none(), "without any mutation the model is broken: {broken:?}");
        // The model knows the Job controller's plan only.
        let is_known = |mutation: Mutation| is_of_plan(mutation) && !mutation.id().starts_with("REG-F");
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
        if caught.tests.is_empty() {
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

/// Whether a bug lives in what is planned.
fn is_of_plan(mutation: Mutation) -> bool {
    matches!(mutation.judge(), Judge::Tests(programs) if programs.contains(&"batch_plan"))
}

/// The programs that judge.
struct Programs {
    /// Of tests, by their names.
    tests: HashMap<String, PathBuf>,
    enumerate: PathBuf,
}

impl Programs {
    /// As `cargo test --workspace` builds them, so that they need not be built twice.
    fn build() -> Result<Self> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let arguments = "test --workspace --no-run --message-format=json";
        let output = Command::new(cargo)
            .args(arguments.split(' '))
            .stderr(Stdio::inherit())
            .output()
            .context("build the tests")?;
        ensure!(output.status.success(), "the tests do not build");
        let messages = String::from_utf8_lossy(&output.stdout);
        let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let program = |message: Value| {
            let name = message["target"]["name"].as_str()?.to_owned();
            Some((name, PathBuf::from(message["executable"].as_str()?)))
        };
        let enumerate = std::env::current_exe().context("find this program")?.with_file_name("enumerate");
        ensure!(enumerate.exists(), "`{}` is to be built first", enumerate.display());
        Ok(Self { tests: messages.filter_map(program).collect(), enumerate })
    }

    fn tests(&self, name: &str) -> Result<&Path> {
        Ok(self.tests.get(name).with_context(|| format!("cargo named no test program `{name}`"))?)
    }

    /// Without any mutation everything passes that is to fail with one.
    fn ensure_healthy(&self, mutations: &[Mutation]) -> Result<()> {
        let mut judged: Vec<&str> = Vec::new();
        for judge in mutations.iter().map(|mutation| mutation.judge()) {
            let judges = match judge {
                Judge::Tests(names) => names,
                Judge::Faults(scenario, _) => &[scenario],
            };
            for name in judges {
                if judged.contains(name) {
                    continue;
                }
                judged.push(name);
                let (healthy, failed) = match judge {
                    Judge::Tests(_) => run_tests(self.tests(name)?, None, &["reg_", "inv_"])?,
                    Judge::Faults(scenario, points) => self.replay(None, scenario, points)?,
                };
                ensure!(healthy, "without any mutation these fail: {}", failed.join(", "));
            }
        }
        Ok(())
    }

    fn judge(&self, mutation: Mutation) -> Result<Caught> {
        // `REG-D03` is `reg_d01_and_d03_…`, `INV-9` is `inv_9_…`.
        let number = mutation.id().trim_start_matches("REG").to_lowercase().replace('-', "_");
        // The regression of that number has to notice; that another test does shows nothing about it.
        let mut tests = Vec::new();
        match mutation.judge() {
            Judge::Faults(scenario, points) => tests = self.replay(Some(mutation), scenario, points)?.1,
            Judge::Tests(names) => {
                for name in names {
                    let (_, failed) = run_tests(self.tests(name)?, Some(mutation), &[&number])?;
                    if failed.is_empty() {
                        return Ok(Caught::default());
                    }
                    tests.extend(failed);
                }
            }
        }
        Ok(Caught { tests, model: None })
    }

    /// Whether a case of the enumeration passes, and which it is if not.
    fn replay(&self, mutation: Option<Mutation>, scenario: &str, points: &str) -> Result<(bool, Vec<String>)> {
        let mut command = Command::new(&self.enumerate);
        command.args(["--only", scenario, "--replay", points]).stdout(Stdio::null()).stderr(Stdio::null());
        if let Some(mutation) = mutation {
            command.env(MUTATION, mutation.id());
        }
        let passed = command.status().with_context(|| format!("start `{}`", self.enumerate.display()))?.success();
        Ok((passed, if passed { Vec::new() } else { vec![format!("{scenario} with {points}")] }))
    }
}

/// Names the bug that is back.
const MUTATION: &str = "TALLY_MUTATION";

/// So many at a time. Most of those that fail do so by waiting in vain, which costs no processor.
const PROCESSES: usize = 4;

fn by_programs(programs: &Programs, mutations: &[Mutation]) -> Result<Vec<Caught>> {
    let next = AtomicUsize::new(0);
    let found: Mutex<Vec<Result<Caught>>> = Mutex::new(mutations.iter().map(|_| Ok(Caught::default())).collect());
    std::thread::scope(|scope| {
        for _ in 0..PROCESSES {
            scope.spawn(|| {
                loop {
                    let position = next.fetch_add(1, Ordering::Relaxed);
                    let Some(mutation) = mutations.get(position) else { break };
                    let caught = programs.judge(*mutation);
                    if let Ok(mut found) = found.lock() {
                        found[position] = caught;
                    }
                }
            });
        }
    });
    found.into_inner().unwrap_or_default().into_iter().collect()
}

/// Whether all passed, and which did not.
fn run_tests(tests: &Path, mutation: Option<Mutation>, filters: &[&str]) -> Result<(bool, Vec<String>)> {
    let mut command = Command::new(tests);
    command.args(filters).arg("--test-threads=1").stdout(Stdio::piped()).stderr(Stdio::null());
    // The property tests repeat themselves so that every run of this program is the same.
    command.env("HISTORY_SEED", "1").env("RUST_BACKTRACE", "0").env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1");
    if let Some(mutation) = mutation {
        command.env(MUTATION, mutation.id());
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
