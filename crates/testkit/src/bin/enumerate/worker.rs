//! Those who run units, seen from outside.

use std::{
    io::{BufRead, BufReader, Lines, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use anyhow::{Context, bail};
use testkit::enumeration::{Answer, Report, Unit};

/// Runs units, one after the other.
///
/// Each scenario has a process of its own: whatever there is in its memory is put back after every run.
#[derive(Default)]
pub(crate) struct Worker {
    /// The process, and the scenario that it knows.
    present: Option<(Process, String)>,
}

impl Worker {
    /// Has a unit run, and tells `hear` of each run.
    pub(crate) fn run(&mut self, unit: &Unit, hear: impl FnMut(Report)) -> anyhow::Result<()> {
        self.present.take_if(|(_, scenario)| *scenario != unit.scenario);
        let (process, _) = match &mut self.present {
            Some(present) => present,
            none => none.insert((Process::start()?, unit.scenario.clone())),
        };
        process.run(unit, hear)
    }
}

/// Ends when it is dropped.
struct Process {
    process: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Another process of this program.
    fn start() -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut process = command.arg("--worker").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let orders = process.stdin.take().context("it has no input")?;
        let answers = BufReader::new(process.stdout.take().context("it has no output")?).lines();
        Ok(Self { process, orders, answers })
    }

    fn run(&mut self, unit: &Unit, mut hear: impl FnMut(Report)) -> anyhow::Result<()> {
        let mut line = serde_json::to_vec(unit)?;
        line.push(b'\n');
        self.orders.write_all(&line)?;
        loop {
            let Some(line) = self.answers.next().transpose()? else { bail!("a worker has ended, see above") };
            match serde_json::from_str(&line)? {
                Answer::Ran(report) => hear(*report),
                Answer::Done => return Ok(()),
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
