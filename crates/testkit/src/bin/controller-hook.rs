//! Starts and stops a `tally controller` process, for tests that need it gone for a while.
//!
//! `controller-hook … start` returns when the controllers work, `stop` kills them as a power cut would, and
//! `around -- COMMAND …` runs a command between the two. What the three share is a folder with the process id and the
//! process' output. The first two are what the conformance kit's `--restart-controller` calls.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Parser, Subcommand};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

/// How long the controllers may take to begin their work, and to be gone. Both take a moment; a loaded machine may need
/// more.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Parser)]
struct Arguments {
    /// The tally binary.
    #[arg(long)]
    binary: PathBuf,
    #[arg(long)]
    kubeconfig: PathBuf,
    /// Where the process id and the output are kept.
    #[arg(long)]
    state: PathBuf,
    /// Which controllers to run. The kit plays the node and wants nobody to collect its pods.
    #[arg(long, default_value = "job,ttl,cronjob,gc")]
    controllers: String,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Start,
    Stop,
    Around {
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
}

fn main() -> ExitCode {
    run(&Arguments::parse()).unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.action {
        Action::Start => start(arguments)?,
        Action::Stop => stop(arguments)?,
        Action::Around { command } => {
            start(arguments)?;
            let [program, rest @ ..] = command.as_slice() else { unreachable!("clap requires a command") };
            let status = Command::new(program).args(rest).status().with_context(|| format!("run `{program}`"));
            let stopped = stop(arguments);
            let log = fs::read_to_string(arguments.state.join("stderr")).unwrap_or_default();
            if !log.is_empty() {
                eprintln!("--- the controllers wrote to stderr:\n{log}---");
            }
            ensure!(!log.contains("panicked at"), "a controller panicked");
            stopped?;
            return Ok(status?
                .code()
                .and_then(|code| u8::try_from(code).ok())
                .map_or(ExitCode::FAILURE, ExitCode::from));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn start(arguments: &Arguments) -> Result<()> {
    fs::create_dir_all(&arguments.state).context("make the folder")?;
    let append = |name: &str| File::options().create(true).append(true).open(arguments.state.join(name));
    // The log goes on over restarts; the ready line must be of this one.
    let stdout = arguments.state.join("stdout");
    let mut child = Command::new(&arguments.binary)
        .args(["controller", "--replace-built-in", "--leader-elect=false", "--kube-api-qps", "0", "--controllers"])
        .arg(&arguments.controllers)
        .arg("--kubeconfig")
        .arg(&arguments.kubeconfig)
        .stdin(Stdio::null())
        .stdout(File::create(&stdout).context("make a file for stdout")?)
        .stderr(append("stderr").context("make a file for stderr")?)
        .spawn()
        .with_context(|| format!("start `{}`", arguments.binary.display()))?;
    fs::write(arguments.state.join("pid"), child.id().to_string()).context("note the process id")?;
    wait_until(|| {
        ensure_running(&mut child)?;
        Ok(fs::read_to_string(&stdout).is_ok_and(|text| text.ends_with('\n')))
    })
    .context("wait for the controllers to work")
}

fn ensure_running(child: &mut Child) -> Result<()> {
    match child.try_wait().context("look after the controllers")? {
        Some(status) => bail!("the controllers ended with {status}"),
        None => Ok(()),
    }
}

fn stop(arguments: &Arguments) -> Result<()> {
    let path = arguments.state.join("pid");
    let pid = fs::read_to_string(&path).context("read the process id")?;
    let pid = pid.trim().parse().ok().and_then(Pid::from_raw).with_context(|| format!("`{pid}` is no process id"))?;
    kill_process(pid, Signal::KILL).with_context(|| format!("kill process {pid:?}"))?;
    fs::remove_file(&path).context("forget the process id")?;
    wait_until(|| Ok(is_gone(pid))).context("wait for the controllers to be gone")
}

/// Whether the process does nothing any more: it is gone, or a zombie whose parent has not looked yet.
fn is_gone(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    test_kill_process(pid).is_err() || stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z'))
}

fn wait_until(mut condition: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !condition()? {
        ensure!(Instant::now() < deadline, "not within {PATIENCE:?}");
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
