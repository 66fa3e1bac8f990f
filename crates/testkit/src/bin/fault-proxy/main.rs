//! Scenarios of the enumeration over real sockets and processes: an API server, controllers of Jobs in a process of their
//! own, and between them a proxy that deals out the faults.
//!
//! By default each run has a `tally up` of its own, without controllers and without a node. With `--kubeconfig` it is any
//! other API server, such as a kube-apiserver; nobody else may run Jobs or pods there. With `--controllers` other
//! controllers are put through the same, for comparison: one column each.

mod cases;
mod site;

use std::{
    path::PathBuf,
    process::{Command, ExitCode, Stdio},
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use testkit::{
    enumeration::{Baseline, Scenario, baseline_of, parse_points, replay_line_through_proxy, run_within, shown},
    faults::Point,
};

use self::{
    cases::{chosen, eligible},
    site::Site,
};

const KUBECONFIG: &str = "{kubeconfig}";

#[derive(Debug, Parser)]
#[command(about = "Puts controllers of Jobs through faults of the network, in processes of their own")]
struct Options {
    /// The `tally` to use.
    #[arg(long, default_value = "target/debug/tally")]
    binary: PathBuf,
    /// An API server to use instead of one `tally up` a run. Everything in its namespace `default` is deleted.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Controllers to run, as `NAME=PROGRAM ARGUMENT…` with `{kubeconfig}` among the arguments [default: `tally
    /// controller`]. Those that are named first must pass; others are for comparison.
    #[arg(long, value_name = "NAME=COMMAND")]
    controllers: Vec<String>,
    /// Only scenarios whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// So many faults of each scenario.
    #[arg(long, default_value_t = 8)]
    runs: usize,
    /// Which ones: another number, other faults.
    #[arg(long, default_value_t = 0)]
    turn: usize,
    /// Run one case: `12:crash-after`.
    #[arg(long)]
    replay: Option<String>,
    /// So many runs at the same time; they mostly wait.
    #[arg(long, default_value_t = 12)]
    parallel: usize,
}

/// One run that is to be made.
#[derive(Debug, Clone)]
struct Case {
    scenario: Scenario,
    points: Vec<Point>,
    baseline: Option<Baseline>,
}

/// What came of it.
#[derive(Debug)]
struct Verdict {
    case: Case,
    /// Empty if all is well.
    violations: Vec<String>,
    /// Whether the fault found a call to strike.
    struck: bool,
    took: Duration,
    /// Of an undisturbed run.
    learnt: Option<Baseline>,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<bool> {
    let columns = match &options.controllers[..] {
        [] => vec![("tally".to_owned(), own_controllers(options)?)],
        given => given.iter().map(|text| parse_controllers(text)).collect::<Result<_>>()?,
    };
    for (_, command) in &columns {
        can_be_started(&command[0])?;
    }
    let started = Instant::now();
    let scenarios: Vec<Scenario> = eligible()
        .into_iter()
        .filter(|one| options.only.as_deref().is_none_or(|part| one.name.contains(part)))
        .collect();
    ensure!(!scenarios.is_empty(), "no scenario has such a name");
    let mut clean = true;
    for (number, (name, command)) in columns.iter().enumerate() {
        let site = Site::new(&options.binary, options.kubeconfig.as_deref(), command);
        let (passed, failed) = column(options, name, &site, &scenarios)?;
        println!("\n{name}: {passed} passed, {failed} failed, {:.0} s", started.elapsed().as_secs_f64());
        if number == 0 {
            clean = failed == 0;
            println!("{passed} passed, {failed} failed");
        }
    }
    Ok(clean)
}

/// All scenarios with one sort of controllers: undisturbed, then with faults.
fn column(options: &Options, name: &str, site: &Site, scenarios: &[Scenario]) -> Result<(usize, usize)> {
    let undisturbed = scenarios.iter().map(|scenario| Case { scenario: *scenario, points: Vec::new(), baseline: None });
    let (mut passed, mut failed) = (0, 0);
    let mut cases = Vec::new();
    for verdict in all(options, site, undisturbed.collect(), |_| {})? {
        let Verdict { case, violations, learnt, .. } = verdict;
        let Some(baseline) = learnt else {
            failed += 1;
            println!("{name}: {} fails undisturbed\n  {}", case.scenario.name, violations.join("\n  "));
            continue;
        };
        passed += 1;
        let faults = match &options.replay {
            Some(text) => vec![parse_points(text).map_err(anyhow::Error::msg)?],
            None => chosen(&baseline, options.runs, options.turn),
        };
        let disturbed = |points| Case { points, baseline: Some(baseline.clone()), ..case.clone() };
        cases.extend(faults.into_iter().map(disturbed));
    }
    println!("{:<28}{:<36}{:>8}{:>9}", format!("scenario, {name}"), "fault", "result", "seconds");
    let verdicts = all(options, site, cases, print_row)?;
    let (clean, broken): (Vec<_>, Vec<_>) = verdicts.iter().partition(|verdict| verdict.violations.is_empty());
    Ok((passed + clean.len(), failed + broken.len()))
}

fn print_row(Verdict { case, violations, struck, took, .. }: &Verdict) {
    let result = match (violations.is_empty(), struck) {
        (true, true) => "ok",
        (true, false) => "missed",
        (false, _) => "FAILED",
    };
    let seconds = took.as_secs_f64();
    println!("{:<28}{:<36}{result:>8}{seconds:>9.1}", case.scenario.name, shown(&case.points));
    if !violations.is_empty() {
        println!("  {}\n  {}", violations.join("\n  "), replay_line_through_proxy(case.scenario.name, &case.points));
    }
}

/// Runs cases side by side, and tells of each when it is over.
fn all(options: &Options, site: &Site, cases: Vec<Case>, tell: impl Fn(&Verdict) + Sync) -> Result<Vec<Verdict>> {
    let (queue, done) = (Mutex::new(cases.into_iter()), Mutex::new(Vec::new()));
    let worker = || -> Result<()> {
        loop {
            let Some(case) = queue.lock().expect("nobody panicked").next() else { return Ok(()) };
            let verdict = one(site, case)?;
            let mut done = done.lock().expect("nobody panicked");
            tell(&verdict);
            done.push(verdict);
        }
    };
    thread::scope(|scope| {
        let workers = if site.is_shared() { 1 } else { options.parallel.max(1) };
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a run does not panic"))
    })?;
    Ok(done.into_inner().expect("nobody panicked"))
}

fn one(site: &Site, case: Case) -> Result<Verdict> {
    let begin = Instant::now();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start a runtime")?;
    let Case { scenario, points, baseline } = &case;
    let (outcome, struck) = runtime.block_on(async {
        let place = site.place().await?;
        run_within(place.cluster(), scenario, points, baseline.as_ref()).await
    })?;
    let took = begin.elapsed();
    // Watches and connections that are still open.
    runtime.shutdown_timeout(Duration::from_secs(1));
    let violations = outcome.violations.iter().map(ToString::to_string).collect();
    let (learnt, violations) = match baseline {
        Some(_) => (None, violations),
        None => match baseline_of(scenario, outcome) {
            Ok(baseline) => (Some(baseline), violations),
            Err(violations) => (None, violations.iter().map(ToString::to_string).collect()),
        },
    };
    Ok(Verdict { case, violations, struck, took, learnt })
}

fn own_controllers(options: &Options) -> Result<Vec<String>> {
    let binary = options.binary.to_str().context("the path of the binary is not text")?;
    let arguments = "controller --replace-built-in --leader-elect=false --kube-api-qps 0 --pod-failure-backoff 300ms";
    let words = std::iter::once(binary).chain(arguments.split(' ')).chain(["--kubeconfig", KUBECONFIG]);
    Ok(words.map(str::to_owned).collect())
}

/// Better found out now than in the middle of a run.
fn can_be_started(program: &str) -> Result<()> {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().map(drop).with_context(|| format!("start `{program}`"))
}

fn parse_controllers(text: &str) -> Result<(String, Vec<String>)> {
    let (name, command) = text.split_once('=').with_context(|| format!("`{text}` is not `NAME=COMMAND`"))?;
    let command: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
    let says_where = command.iter().skip(1).any(|argument| argument.contains(KUBECONFIG));
    ensure!(says_where, "`{text}` does not say where `{KUBECONFIG}` goes");
    Ok((name.to_owned(), command))
}
