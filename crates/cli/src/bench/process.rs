//! What a process has used, from /proc.

use std::fs;
use std::time::Duration;

use anyhow::anyhow;
use rustix::param::clock_ticks_per_second;
use serde_json::{Value, json};

use crate::failure::Failure;

/// CPU time and memory of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) pid: u32,
    pub(super) name: String,
    pub(super) cpu: Duration,
    /// Memory now, in bytes.
    pub(super) memory: u64,
    /// The most there ever was.
    pub(super) memory_peak: u64,
}

pub(super) fn usage(pid: u32) -> Result<Usage, Failure> {
    let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}"));
    let (Ok(stat), Ok(status)) = (read("stat"), read("status")) else {
        return Err(Failure::usage(anyhow!("there is no process {pid}")).hint("`pgrep -a tally` lists some"));
    };
    let usage = parse(pid, &stat, &status, clock_ticks_per_second());
    usage.ok_or_else(|| Failure::new(anyhow!("/proc does not say what process {pid} uses")))
}

fn parse(pid: u32, stat: &str, status: &str, ticks_per_second: u64) -> Option<Usage> {
    let (head, after_name) = stat.rsplit_once(')')?;
    let (_, name) = head.split_once('(')?;
    // Fields 14 and 15, user and system time; the state after the name is field 3.
    let fields: Vec<&str> = after_name.split_ascii_whitespace().collect();
    let ticks = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    let kib = |key: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        line.trim_start_matches(':').trim().strip_suffix(" kB")?.trim().parse().ok()
    };
    Some(Usage {
        pid,
        name: name.to_owned(),
        cpu: Duration::from_millis(ticks * 1000 / ticks_per_second.max(1)),
        memory: kib("VmRSS")? * 1024,
        memory_peak: kib("VmHWM")? * 1024,
    })
}

impl Usage {
    /// CPU time since then; memory as it is.
    pub(super) fn since(self, before: &Self) -> Self {
        Self { cpu: self.cpu.saturating_sub(before.cpu), ..self }
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "pid": self.pid, "name": self.name, "cpuSeconds": self.cpu.as_secs_f64(), "memoryBytes": self.memory,
            "memoryPeakBytes": self.memory_peak,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_after_the_name() {
        let stat = "7 (a (b) c) S 1 7 7 0 -1 0 0 0 0 0 150 50 0 0 20 0 4 0 99 0 0";
        let status = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        let usage = parse(7, stat, status, 100).unwrap();
        assert_eq!(usage.name, "a (b) c");
        assert_eq!(usage.cpu, Duration::from_secs(2));
        assert_eq!((usage.memory, usage.memory_peak), (1 << 20, 2 << 20));
        let earlier = Usage { cpu: Duration::from_secs(1), ..usage.clone() };
        assert_eq!(usage.since(&earlier).cpu, Duration::from_secs(1));
    }

    #[test]
    fn this_process_uses_something() {
        assert!(usage(std::process::id()).unwrap().memory > 0);
        assert!(usage(u32::MAX).is_err());
    }
}
