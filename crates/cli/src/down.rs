//! `tally down`: ends the tally that runs on a data directory, and waits until it has.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use clap::Args;

use crate::environment::Environment;
use crate::failure::{Exit, Failure};
use crate::output::{say, tell};
use crate::running::duration;
use crate::{data_dir, instance};

/// How often the process is looked at. It is nobody's child here, so nobody is told of its end.
const LOOK: Duration = Duration::from_millis(10);

#[derive(Debug, Args)]
pub(crate) struct Down {
    /// The data directory of the tally to end [default: tally/ in the user's data directory].
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// How long to wait for its end.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    timeout: Duration,
}

pub(crate) fn run(options: &Down, environment: &Environment) -> Result<(), Failure> {
    let data = data_dir::choose(options.data.as_deref(), environment)?;
    let Some(instance) = instance::running(&data)? else {
        // What was asked for is so; scripts may ask twice.
        tell(&format!("no tally runs on `{}`", data.display()));
        return Ok(());
    };
    instance
        .terminate()
        .with_context(|| format!("end process {}", instance.pid))
        .map_err(|error| Failure::new(error).hint("it belongs to another user: ask them, or become that user"))?;
    let begin = Instant::now();
    while instance.is_alive() {
        if begin.elapsed() >= options.timeout {
            let error = anyhow!("process {} still runs after {:?}", instance.pid, options.timeout);
            return Err(Failure::new(error)
                .exit(Exit::TimedOut)
                .hint(format!("`kill -9 {}` ends it at once; nothing that was answered is lost", instance.pid)));
        }
        thread::sleep(LOOK);
    }
    say(&format!("stopped tally (process {})\n", instance.pid))
}
