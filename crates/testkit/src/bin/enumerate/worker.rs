//! A process that runs units, seen from outside.

use std::{
    io::{BufRead, BufReader, Lines, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use anyhow::{Context, bail};
use testkit::enumeration::{Answer, Report, Unit};

/// Ends when it is dropped.
pub(crate) struct Worker {
    process: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    /// Another process of this program.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut process = command.arg("--worker").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let orders = process.stdin.take().context("it has no input")?;
        let answers = BufReader::new(process.stdout.take().context("it has no output")?).lines();
        Ok(Self { process, orders, answers })
    }

    /// Has a unit run, and tells `hear` of each run.
    pub(crate) fn run(&mut self, unit: &Unit, mut hear: impl FnMut(Report)) -> anyhow::Result<()> {
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

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
