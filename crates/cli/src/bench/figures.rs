//! What a benchmark found out, as a table and as JSON. No clock, no IO.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::calls::ServerCalls;
use super::process::Usage;

#[derive(Debug)]
pub(super) struct Figures {
    pub(super) jobs: u32,
    pub(super) completions: u32,
    pub(super) parallelism: u32,
    /// The pods were finished by the benchmark itself.
    pub(super) finished_by_bench: bool,
    pub(super) elapsed: Duration,
    pub(super) job_times: Vec<Duration>,
    pub(super) probe_times: Vec<Duration>,
    pub(super) own_calls: Vec<(&'static str, u64)>,
    pub(super) server_calls: ServerCalls,
    pub(super) processes: Vec<Usage>,
}

/// The percentiles that are told.
const PERCENTILES: [u32; 4] = [50, 90, 99, 100];

/// The smallest value that is not below `percent` of all; values must be sorted.
fn percentile(sorted: &[Duration], percent: u32) -> Option<Duration> {
    let rank = (sorted.len() * percent as usize).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

fn percentiles(times: &[Duration]) -> Vec<(u32, Duration)> {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    PERCENTILES.iter().filter_map(|percent| Some((*percent, percentile(&sorted, *percent)?))).collect()
}

impl Figures {
    fn pods(&self) -> u64 {
        u64::from(self.jobs) * u64::from(self.completions)
    }

    fn pods_per_second(&self) -> f64 {
        self.pods() as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    pub(super) fn table(&self) -> String {
        let mut table = String::new();
        let mut row = |name: &str, value: String| {
            let _ = writeln!(table, "{name:<16}{value}");
        };
        let finisher = if self.finished_by_bench { "finished by this program" } else { "run by nodes" };
        row("load", format!("{} × {} pods, {} at a time, {finisher}", self.jobs, self.completions, self.parallelism));
        row("time", format!("{:.3} s", self.elapsed.as_secs_f64()));
        row("throughput", format!("{:.1} pods/s", self.pods_per_second()));
        row("Job", times_text(&self.job_times));
        if !self.probe_times.is_empty() {
            row("probe", format!("{} ({})", times_text(&self.probe_times), self.probe_times.len()));
        }
        row("own calls", calls_text(self.own_calls.iter().map(|(verb, count)| (*verb, *count))));
        if !self.server_calls.by_verb.is_empty() {
            let calls = self.server_calls.by_verb.iter();
            row("server's calls", calls_text(calls.map(|(verb, count)| (verb.as_str(), *count))));
        }
        for process in &self.processes {
            let per_pod = process.cpu.as_secs_f64() * 1000.0 / self.pods() as f64;
            let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
            row(
                &format!("process {}", process.pid),
                format!(
                    "{}: {:.2} s of CPU ({per_pod:.3} ms a pod), {:.1} MiB of memory, {:.1} MiB at most",
                    process.name,
                    process.cpu.as_secs_f64(),
                    mib(process.memory),
                    mib(process.memory_peak),
                ),
            );
        }
        table
    }

    pub(super) fn json(&self) -> Value {
        let calls = |pairs: Vec<(String, u64)>| -> Map<String, Value> {
            pairs.into_iter().map(|(verb, count)| (verb, json!(count))).collect()
        };
        json!({
            "jobs": self.jobs, "completions": self.completions, "parallelism": self.parallelism,
            "finishedByBench": self.finished_by_bench,
            "seconds": self.elapsed.as_secs_f64(), "podsPerSecond": self.pods_per_second(),
            "jobSeconds": times_json(&self.job_times), "probeSeconds": times_json(&self.probe_times),
            "probes": self.probe_times.len(),
            "ownCalls": calls(self.own_calls.iter().map(|(verb, count)| ((*verb).to_owned(), *count)).collect()),
            "serverCalls": calls(self.server_calls.by_verb.clone().into_iter().collect()),
            "processes": self.processes.iter().map(Usage::json).collect::<Vec<_>>(),
        })
    }
}

fn times_text(times: &[Duration]) -> String {
    let parts = percentiles(times).into_iter().map(|(percent, time)| {
        let name = if percent == 100 { "max".to_owned() } else { format!("p{percent}") };
        format!("{name} {:.3} s", time.as_secs_f64())
    });
    parts.collect::<Vec<_>>().join(", ")
}

fn times_json(times: &[Duration]) -> Value {
    let members = percentiles(times).into_iter().map(|(percent, time)| {
        let name = if percent == 100 { "max".to_owned() } else { format!("p{percent}") };
        (name, json!(time.as_secs_f64()))
    });
    Value::Object(members.collect())
}

fn calls_text<'a>(calls: impl Iterator<Item = (&'a str, u64)>) -> String {
    let parts: Vec<String> =
        calls.filter(|(_, count)| *count > 0).map(|(verb, count)| format!("{count} {verb}")).collect();
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn seconds(values: &[u64]) -> Vec<Duration> {
        values.iter().map(|value| Duration::from_secs(*value)).collect()
    }

    #[test]
    fn percentiles_are_values_that_were_seen() {
        let times = seconds(&(1..=200).rev().collect::<Vec<_>>());
        let found: Vec<u64> = percentiles(&times).iter().map(|(_, time)| time.as_secs()).collect();
        assert_eq!(found, [100, 180, 198, 200]);
        assert_eq!(percentiles(&seconds(&[7])).len(), 4);
        assert_eq!(percentiles(&[]), []);
    }

    #[test]
    fn the_table_has_a_row_for_what_was_measured() {
        let figures = Figures {
            jobs: 2,
            completions: 50,
            parallelism: 10,
            finished_by_bench: true,
            elapsed: Duration::from_millis(500),
            job_times: seconds(&[1, 2]),
            probe_times: Vec::new(),
            own_calls: vec![("create", 2), ("patch", 100)],
            server_calls: ServerCalls::default(),
            processes: vec![Usage {
                pid: 7,
                name: "tally".to_owned(),
                cpu: Duration::from_millis(100),
                memory: 1 << 20,
                memory_peak: 3 << 20,
            }],
        };
        expect![[r"
            load            2 × 50 pods, 10 at a time, finished by this program
            time            0.500 s
            throughput      200.0 pods/s
            Job             p50 1.000 s, p90 2.000 s, p99 2.000 s, max 2.000 s
            own calls       2 create, 100 patch
            process 7       tally: 0.10 s of CPU (1.000 ms a pod), 1.0 MiB of memory, 3.0 MiB at most
        "]]
        .assert_eq(&figures.table());
        assert_eq!(figures.json()["podsPerSecond"], 200.0);
    }
}
