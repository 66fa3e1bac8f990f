//! Stages of a run: each is timed, counted and listed at the end, also when an earlier one failed.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::counts::Counts;

/// How a stage ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed(Counts),
    Failed(Counts),
    /// Not run, and why.
    Skipped(String),
}

/// The stages so far.
#[derive(Debug, Default)]
pub(crate) struct Stages(Vec<Stage>);

#[derive(Debug)]
struct Stage {
    name: &'static str,
    outcome: Outcome,
    took: Duration,
}

impl Stages {
    /// Runs a stage. An error is its failure, not the end of the run.
    pub(crate) fn run(&mut self, name: &'static str, work: impl FnOnce() -> Result<Outcome>) -> bool {
        println!("\n=== {name}");
        let begin = Instant::now();
        let outcome = work().unwrap_or_else(|error| {
            println!("error: {error:#}");
            Outcome::Failed(Counts::default())
        });
        let passed = !matches!(outcome, Outcome::Failed(_));
        self.0.push(Stage { name, outcome, took: begin.elapsed() });
        passed
    }

    pub(crate) fn passed(&self) -> bool {
        !self.0.iter().any(|stage| matches!(stage.outcome, Outcome::Failed(_)))
    }

    /// The table of all stages and the totals, the last line in the form that CI reads.
    pub(crate) fn summary(&self) -> String {
        let mut text = String::from("\nstage           time     result\n");
        let mut total = Counts::default();
        for Stage { name, outcome, took } in &self.0 {
            let result = match outcome {
                Outcome::Passed(Counts { passed: 0, failed: 0 }) => "ok".to_owned(),
                Outcome::Passed(Counts { passed, failed: 0 }) => format!("ok, {passed} passed"),
                Outcome::Passed(Counts { passed, failed }) => format!("ok, {passed} passed, {failed} known to differ"),
                Outcome::Failed(counts) => format!("FAILED, {} passed, {} failed", counts.passed, counts.failed),
                Outcome::Skipped(why) => format!("skipped: {why}"),
            };
            match outcome {
                // What is listed as a known difference is no failure of the run.
                Outcome::Passed(counts) => total += Counts { failed: 0, ..*counts },
                // A stage may fail without a failed test: a lint, a crash.
                Outcome::Failed(counts) => total += Counts { failed: counts.failed.max(1), ..*counts },
                Outcome::Skipped(_) => {}
            }
            let _ = writeln!(text, "{name:<14} {:>5.1} s   {result}", took.as_secs_f64());
        }
        let _ = write!(text, "total: {} passed, {} failed", total.passed, total.failed);
        text
    }
}

/// Runs a command with its output passed on, and counts the tests it reports.
pub(crate) fn counted(command: &mut Command) -> Result<Outcome> {
    counted_and_heard(command, |_| {})
}

/// The same; every line of its standard output is told to `hear` as well.
pub(crate) fn counted_and_heard(command: &mut Command, mut hear: impl FnMut(&str)) -> Result<Outcome> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("start `{name}`"))?;
    let stderr = child.stderr.take().map(|stderr| thread::spawn(move || pass_on(stderr, |line| eprintln!("{line}"))));
    let mut counts = child.stdout.take().map_or(Counts::default(), |stdout| {
        pass_on(stdout, |line| {
            println!("{line}");
            hear(line);
        })
    });
    if let Some(Ok(more)) = stderr.map(thread::JoinHandle::join) {
        counts += more;
    }
    let status = child.wait().with_context(|| format!("wait for `{name}`"))?;
    Ok(if status.success() { Outcome::Passed(counts) } else { Outcome::Failed(counts) })
}

fn pass_on(output: impl Read, mut print: impl FnMut(&str)) -> Counts {
    let mut counts = Counts::default();
    for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        print(&line);
        if let Some(more) = Counts::of_line(&line) {
            counts += more;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(passed: u64, failed: u64) -> Counts {
        Counts { passed, failed }
    }

    #[test]
    fn the_last_line_totals_what_ran() {
        let mut stages = Stages::default();
        stages.run("format", || Ok(Outcome::Passed(Counts::default())));
        stages.run("tests", || Ok(Outcome::Passed(counts(10, 0))));
        stages.run("conformance", || Ok(Outcome::Passed(counts(98, 2))));
        stages.run("e2e", || Ok(Outcome::Skipped("no server".to_owned())));
        assert!(stages.passed());
        assert_eq!(stages.summary().lines().last(), Some("total: 108 passed, 0 failed"));
        stages.run("lints", || Ok(Outcome::Failed(Counts::default())));
        stages.run("soak", || Ok(Outcome::Failed(counts(3, 2))));
        assert!(!stages.passed());
        assert_eq!(stages.summary().lines().last(), Some("total: 111 passed, 3 failed"));
    }

    #[test]
    fn a_command_is_counted_by_its_closing_lines_and_judged_by_its_status() {
        let run = |script: &str| counted(Command::new("sh").args(["-c", script])).unwrap();
        assert_eq!(run("echo '3 passed, 0 failed'"), Outcome::Passed(counts(3, 0)));
        assert_eq!(run("echo '3 passed, 1 failed' >&2; exit 1"), Outcome::Failed(counts(3, 1)));
        assert_eq!(run("printf '\\377\\n'; exit 2"), Outcome::Failed(counts(0, 0)));
    }
}
