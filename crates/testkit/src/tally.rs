//! A `tally up` process of a test's own.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::NamedTempFile;

/// How long a process may take to say that it is ready. It takes a tenth of a second; a loaded machine may need more.
const START_PATIENCE: Duration = Duration::from_secs(30);

const ANY_PORT: &str = "127.0.0.1:0";

/// A running server. Dropping it kills the process.
#[derive(Debug)]
pub struct Tally {
    child: Child,
    /// Lines of stdout; disconnected when the process has ended.
    stdout: Receiver<String>,
    stderr: NamedTempFile,
    ready_line: String,
    kubeconfig: PathBuf,
    started_in: Duration,
}

impl Tally {
    /// Starts `binary up` on `data` and any free port, and waits until it is ready.
    pub fn start(binary: &Path, data: &Path, more: &[&str]) -> Result<Self> {
        Self::spawn(Command::new(binary), data, ANY_PORT, more)
    }

    /// The same at an address, such as the one that it had before it was killed.
    pub fn start_at(address: &str, binary: &Path, data: &Path, more: &[&str]) -> Result<Self> {
        Self::spawn(Command::new(binary), data, address, more)
    }

    /// The same as another user, who is given the data directory. Needs root.
    pub fn start_as(user: u32, binary: &Path, data: &Path, more: &[&str]) -> Result<Self> {
        chown(data, Some(user), Some(user)).context("give the data directory away")?;
        let mut command = Command::new(binary);
        // Leaves root's groups behind too.
        command.uid(user).gid(user).current_dir(data).env("HOME", data);
        Self::spawn(command, data, ANY_PORT, more)
    }

    fn spawn(mut command: Command, data: &Path, address: &str, more: &[&str]) -> Result<Self> {
        let begin = Instant::now();
        let stderr = NamedTempFile::new().context("make a file for stderr")?;
        let mut child = command
            .args(["up", "--listen", address, "--data"])
            .arg(data)
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(stderr.reopen().context("share the file for stderr")?)
            .spawn()
            .with_context(|| format!("start {:?}", command.get_program()))?;
        let stdout = lines_of(child.stdout.take().expect("stdout is piped"));
        let ready_line = match stdout.recv_timeout(START_PATIENCE) {
            Ok(line) => line,
            Err(_) => {
                child.kill().context("kill a server that did not get ready")?;
                let status = child.wait().context("wait for a server that did not get ready")?;
                bail!("`tally up` did not get ready ({status}):\n{}", read_all(&stderr));
            }
        };
        let started_in = begin.elapsed();
        let kubeconfig = kubeconfig_of(&ready_line)
            .with_context(|| format!("`{ready_line}` does not say where the kubeconfig is"))?;
        Ok(Self { child, stdout, stderr, ready_line, kubeconfig, started_in })
    }

    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    pub fn ready_line(&self) -> &str {
        &self.ready_line
    }

    /// Where it listens: `127.0.0.1:PORT`.
    pub fn address(&self) -> Result<&str> {
        let rest = self.ready_line.split_once("https://").map(|(_, rest)| rest);
        let address = rest.and_then(|rest| rest.split([',', ' ', '/']).next());
        address.with_context(|| format!("`{}` does not say where the server is", self.ready_line))
    }

    /// From starting the process to reading its ready line.
    pub fn started_in(&self) -> Duration {
        self.started_in
    }

    /// A client over HTTPS with the credentials of the kubeconfig.
    pub async fn client(&self) -> Result<Client> {
        client_for(&self.kubeconfig).await
    }

    /// Everything the process has written to stderr.
    pub fn stderr(&self) -> String {
        read_all(&self.stderr)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).with_context(|| format!("send {signal:?} to process {pid:?}"))
    }

    /// Ends the process as a power cut would.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill().context("kill tally")?;
        self.child.wait().context("wait for tally")?;
        Ok(())
    }

    /// Asks the process to end and waits for it, at most for `patience`.
    pub fn stop(&mut self, patience: Duration) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        self.wait(patience)
    }

    /// Waits until the process has ended.
    pub fn wait(&mut self, patience: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + patience;
        loop {
            match self.stdout.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(_line) => {}
                // Stdout is closed, which the kernel does a moment before the process can be waited for.
                Err(RecvTimeoutError::Disconnected) => return self.child.wait().context("wait for tally"),
                Err(RecvTimeoutError::Timeout) => {
                    bail!("tally still runs after {patience:?}:\n{}", self.stderr())
                }
            }
        }
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        // Both fail only if the process has been waited for already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client over HTTPS with the credentials of a kubeconfig.
pub async fn client_for(kubeconfig: &Path) -> Result<Client> {
    let file = Kubeconfig::read_from(kubeconfig).context("read the kubeconfig")?;
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    // A proxy of the machine must not see loopback traffic.
    config.proxy_url = None;
    Client::try_from(config).context("make a client")
}

fn lines_of(stdout: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// The path in `export KUBECONFIG=PATH # …`. Test directories need no quotes.
fn kubeconfig_of(ready_line: &str) -> Option<PathBuf> {
    let path = ready_line.strip_prefix("export KUBECONFIG=")?.split(' ').next()?;
    Some(PathBuf::from(path))
}

fn read_all(file: &NamedTempFile) -> String {
    fs::read_to_string(file.path()).unwrap_or_else(|error| format!("(cannot read stderr: {error})"))
}
