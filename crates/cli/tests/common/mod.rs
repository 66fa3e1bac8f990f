//! What the tests of the command share: running it in a clean environment, on a pipe or on a terminal.

#![allow(dead_code, reason = "every test file is a crate of its own and uses a part of this")]

pub mod world;

use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use expect_test::Expect;
use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tempfile::TempDir;

/// Far longer than anything here takes; a test that needs it has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A home directory and a temporary directory of the test's own.
#[derive(Debug)]
pub struct Sandbox {
    dir: TempDir,
}

impl Sandbox {
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a temporary directory") }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Writes a file and says where it is.
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path
    }

    /// `tally` with nothing of the developer's environment.
    pub fn command(&self, arguments: &[&str]) -> Command {
        self.program(env!("CARGO_BIN_EXE_tally"), arguments)
    }

    /// Any program, in the same environment.
    pub fn program(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        for name in ["RUST_LOG", "RUST_BACKTRACE", "KUBECONFIG", "KUBERNETES_SERVICE_HOST", "NO_COLOR", "XDG_DATA_HOME"]
        {
            command.env_remove(name);
        }
        command
            .env("HOME", self.path())
            .env("TMPDIR", self.path())
            .env("TERM", "xterm")
            .current_dir(self.path())
            .args(arguments);
        command
    }

    /// Runs `tally` to its end on pipes.
    pub fn run(&self, arguments: &[&str]) -> Ran {
        self.run_with_input(arguments, "")
    }

    pub fn run_with_input(&self, arguments: &[&str], input: &str) -> Ran {
        let file = self.file("stdin", input);
        let stdin = File::open(file).expect("the input");
        let output = self.command(arguments).stdin(stdin).output().expect("run tally");
        Ran::new(&output, self.path())
    }

    /// Runs `tally` to its end on a terminal of 80 columns.
    pub fn run_on_terminal(&self, arguments: &[&str]) -> Ran {
        let (child, reader) = self.start_on_terminal(arguments);
        finish_on_terminal(child, reader)
    }

    pub fn start_on_terminal(&self, arguments: &[&str]) -> (Child, thread::JoinHandle<String>) {
        self.on_terminal(self.command(arguments))
    }

    pub fn on_terminal(&self, mut command: Command) -> (Child, thread::JoinHandle<String>) {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
        grantpt(&master).and_then(|()| unlockpt(&master)).expect("a terminal to use");
        tcsetwinsize(&master, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 }).expect("a size");
        let name = ptsname(&master, Vec::new()).expect("the terminal's name").into_string().expect("text");
        let flags = i32::try_from(OFlags::NOCTTY.bits()).expect("a flag");
        let end = OpenOptions::new().read(true).write(true).custom_flags(flags).open(name).expect("its other end");
        let copy = || Stdio::from(end.try_clone().expect("a copy"));
        let child = command.stdin(copy()).stdout(copy()).stderr(copy()).spawn().expect("start tally");
        drop((command, end));
        let reader = thread::spawn(move || {
            let (mut text, mut buffer, mut master) = (Vec::new(), [0; 4096], File::from(master));
            // Reading fails when the last program on the terminal has ended.
            while let Ok(count @ 1..) = master.read(&mut buffer) {
                text.extend_from_slice(&buffer[..count]);
            }
            String::from_utf8_lossy(&text).into_owned()
        });
        (child, reader)
    }
}

pub fn finish_on_terminal(mut child: Child, reader: thread::JoinHandle<String>) -> Ran {
    let status = wait(&mut child);
    let text = reader.join().expect("what the terminal showed");
    Ran { code: status.code(), stdout: text, stderr: String::new() }
}

/// What a command printed and how it ended.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    fn new(output: &Output, dir: &Path) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(&dir.display().to_string(), "DIR");
        Self { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }

    /// Compares everything, with times and the endings of pods' names filtered.
    pub fn check(&self, code: i32, expected: Expect) {
        let shown = format!("{}--- stderr ---\n{}", filtered(&self.stdout), filtered(&self.stderr));
        expected.assert_eq(&shown);
        assert_eq!(self.code, Some(code));
    }

    /// A refusal: nothing on stdout, `error:` and `hint:` on stderr.
    pub fn check_refused(&self, code: i32, expected: Expect) {
        expected.assert_eq(&filtered(&self.stderr));
        assert_eq!((self.code, self.stdout.as_str()), (Some(code), ""));
        assert!(self.stderr.starts_with("error: ") && self.stderr.contains("\nhint: "), "{}", self.stderr);
    }
}

/// `in 0.4s` becomes `in TIME`, `pod a-x7k2p` becomes `pod a-POD`.
pub fn filtered(text: &str) -> String {
    let mut result = String::new();
    let mut after_pod = false;
    for word in text.split_inclusive([' ', '\n']) {
        let (bare, space) = word.split_at(word.trim_end_matches([' ', '\n']).len());
        let (bare, mark) = bare.split_at(bare.trim_end_matches([':', ',']).len());
        let is_time = bare.strip_suffix('s').is_some_and(|number| number.parse::<f64>().is_ok());
        match bare.rsplit_once('-') {
            _ if is_time => result.push_str("TIME"),
            Some((base, _)) if after_pod => result.push_str(&format!("{base}-POD")),
            _ => result.push_str(bare),
        }
        result.push_str(mark);
        result.push_str(space);
        after_pod = bare == "pod";
    }
    result
}

/// Waits for the end of a process, not forever.
pub fn wait(child: &mut Child) -> ExitStatus {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().expect("its end") {
            return status;
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            panic!("it did not end within {PATIENCE:?}");
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until something is so.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

pub fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("a signal");
}

pub fn example(name: &str) -> String {
    examples().join(name).display().to_string()
}

pub fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}
