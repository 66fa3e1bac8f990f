//! What came of the runs, as a table.

use std::{collections::BTreeMap, io::Write, time::Duration};

use testkit::enumeration::{Coverage, Report, replay_line};

use crate::cases::{Case, Kind};

/// All scenarios' lines.
#[derive(Default)]
pub(crate) struct Tallies {
    lines: BTreeMap<&'static str, Tally>,
    coverage: Coverage,
    /// How many failing cases are printed of each scenario.
    show: usize,
}

/// The line of one scenario.
#[derive(Default)]
struct Tally {
    calls: usize,
    singles: usize,
    pairs: usize,
    /// How many of these two were not run, because they would have been the same run as another one.
    same: usize,
    /// Pairs that strike where the world was before, and how many of them were run all the same.
    known: usize,
    known_run: usize,
    /// How many of those went on in another way than the world did then.
    unlike: usize,
    failing: usize,
    violations: BTreeMap<String, usize>,
    examples: Vec<String>,
}

impl Tallies {
    pub(crate) fn new(show: usize) -> Self {
        Self { show, ..Self::default() }
    }

    pub(crate) fn add_scenario(&mut self, name: &'static str, calls: usize) {
        self.lines.insert(name, Tally { calls, ..Tally::default() });
    }

    pub(crate) fn add_known(&mut self, name: &'static str, pairs: usize) {
        self.lines.entry(name).or_default().known += pairs;
    }

    pub(crate) fn add_unlike(&mut self, name: &'static str) {
        self.lines.entry(name).or_default().unlike += 1;
    }

    pub(crate) fn coverage(&mut self) -> &mut Coverage {
        &mut self.coverage
    }

    pub(crate) fn note(&mut self, name: &'static str, case: &Case, report: Report) {
        self.coverage.merge(report.coverage);
        let tally = self.lines.entry(name).or_default();
        match case.kind {
            Kind::Single => tally.singles += 1,
            Kind::Pair => tally.pairs += 1,
            Kind::Known(_) => tally.known_run += 1,
            // It counts where it is run for its own sake.
            Kind::Model => {}
        }
        tally.same += usize::from(report.same.is_some());
        if report.violations.is_empty() {
            return;
        }
        tally.failing += 1;
        for (invariant, what) in report.violations {
            let times = tally.violations.entry(invariant).or_default();
            *times += 1;
            if *times == 1 || tally.examples.len() < self.show {
                tally.examples.push(format!("{what}\n    {}", replay_line(name, &case.points)));
                break;
            }
        }
    }

    /// Prints everything. Says how many runs there were, how many of them failed, and whether all situations were met.
    pub(crate) fn print(&self, elapsed: Duration, out: &mut impl Write) -> std::io::Result<(usize, usize, bool)> {
        let (mut runs, mut failing) = (0, 0);
        let heads = ["calls", "singles", "pairs", "same", "known", "run too", "unlike", "failing"]
            .map(|head| format!("{head:>10}"));
        writeln!(out, "{:<28}{}", "scenario", heads.concat())?;
        for (name, tally) in &self.lines {
            runs += tally.singles + tally.pairs - tally.same + tally.known_run;
            failing += tally.failing;
            let violations: Vec<String> =
                tally.violations.iter().map(|(name, times)| format!("{name}×{times}")).collect();
            let Tally { calls, singles, pairs, same, known, known_run, unlike, failing, .. } = tally;
            let numbers = [calls, singles, pairs, same, known, known_run, unlike, failing];
            let numbers = numbers.map(|number| format!("{number:>10}")).concat();
            writeln!(out, "{name:<28}{numbers}  {}", violations.join(" "))?;
        }
        let per_second = runs as f64 / elapsed.as_secs_f64();
        writeln!(out, "{runs} runs in {elapsed:.1?} ({per_second:.0} a second), {failing} failing\n")?;
        for (name, tally) in self.lines.iter().filter(|(_, tally)| !tally.examples.is_empty()) {
            writeln!(out, "{name}:")?;
            tally.examples.iter().try_for_each(|example| writeln!(out, "  {example}"))?;
        }
        let missing = self.coverage.missing();
        write!(out, "{}", self.coverage.table())?;
        missing.iter().try_for_each(|one| writeln!(out, "never happened: {one}"))?;
        let sum = |part: fn(&Tally) -> usize| self.lines.values().map(part).sum::<usize>();
        for (what, number) in [
            ("single faults enumerated", sum(|tally| tally.singles)),
            ("pairs of faults enumerated", sum(|tally| tally.pairs)),
            ("of these two, the same run as another one", sum(|tally| tally.same)),
            ("pairs that strike where the world was before", sum(|tally| tally.known)),
            ("of these, run all the same", sum(|tally| tally.known_run)),
            ("of these, gone on in another way", sum(|tally| tally.unlike)),
        ] {
            writeln!(out, "measured: {what} = {number}")?;
        }
        Ok((runs, failing, missing.is_empty()))
    }
}
