//! Processes of this machine: starting one for a container, and telling one from another.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, kill_process_group, pidfd_open, set_parent_process_death_signal,
    setsid, umask, waitpid,
};

use super::isolation::Isolation;
use super::journal::{Leftovers, ProcessKey};
use super::protocol::{InstanceId, Variables};

/// Marks the processes of an instance, wherever they move to. It is also a way for a process to learn who it is.
pub(super) const INSTANCE_VARIABLE: &str = "TALLY_INSTANCE";

/// A child of the nursery that has been started.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) pid: Pid,
    /// Readable when the process has ended.
    pub(super) handle: OwnedFd,
    /// What it writes to stdout and stderr; does not block.
    pub(super) output: OwnedFd,
}

/// What to start.
#[derive(Debug)]
pub(super) struct Start<'a> {
    pub(super) id: &'a InstanceId,
    pub(super) command: &'a [String],
    /// How messages call the program.
    pub(super) program_shown: &'a str,
    pub(super) environment: &'a Variables,
    pub(super) isolation: Isolation,
}

/// Starts a process in a session of its own, with nothing of the nursery but what it is given (see also `inherited`).
pub(super) fn start(start: Start<'_>) -> Result<Process, String> {
    let Some((program, arguments)) = start.command.split_first() else {
        return Err("no command specified".to_owned());
    };
    let directory = start.isolation.directory();
    if !start.isolation.has_namespace() && !directory.is_dir() {
        return Err(format!("chdir to cwd ({directory:?}) failed: no such directory"));
    }
    let (output, input) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| format!("make a pipe: {error}"))?;
    let second = input.try_clone().map_err(|error| format!("make a pipe: {error}"))?;
    fcntl_setfl(&output, OFlags::NONBLOCK).map_err(|error| format!("make a pipe: {error}"))?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .envs(start.environment.0.iter().map(|(name, value)| (name, value)))
        .env(INSTANCE_VARIABLE, start.id.to_string())
        .stdin(Stdio::null())
        .stdout(input)
        .stderr(second);
    let complaints = start.isolation.complaints();
    prepare_child(&mut command, start.isolation);
    let child = command.spawn();
    drop(command);
    match child {
        Ok(child) => {
            let pid = Pid::from_child(&child);
            // Race-free: the number stays taken until the nursery waits for the process.
            let handle = pidfd_open(pid, PidfdFlags::empty()).map_err(|error| {
                let _ = kill_process_group(pid, Signal::KILL);
                format!("watch the process: {error}")
            })?;
            Ok(Process { pid, handle, output })
        }
        Err(error) => Err(complaints
            .and_then(|complaints| complaints.read())
            .unwrap_or_else(|| refusal(&Refused { program, shown: start.program_shown }, start.environment, &error))),
    }
}

/// Whatever that of the node is: files of containers have the modes that their programs expect.
const UMASK: Mode = Mode::WGRP.union(Mode::WOTH);

/// What the child does between fork and exec.
#[expect(unsafe_code, reason = "a session, a namespace and limits can only be set by the child itself, before exec")]
fn prepare_child(command: &mut Command, mut isolation: Isolation) {
    if !isolation.has_namespace() {
        command.current_dir(isolation.directory());
    }
    let prepare = move || {
        setsid()?;
        umask(UMASK);
        isolation.enter()?;
        // If the nursery is killed there is nobody left who knows the container. Last, since a change of user undoes it.
        set_parent_process_death_signal(Some(Signal::KILL))?;
        Ok(())
    };
    // SAFETY: code after fork must not rely on locks or state that other threads of the parent held at that moment.
    // The nursery has no other threads: it is a process of its own whose `main` runs `nursery::run`, which starts none
    // and fails at once if it finds any. The child is therefore an ordinary single-threaded process until it calls
    // exec; allocating and file operations are fine in it.
    unsafe {
        command.pre_exec(prepare);
    }
}

/// A program by its name and by how messages call it.
struct Refused<'a> {
    program: &'a str,
    shown: &'a str,
}

/// Why the command could not be executed, in the words of container runtimes.
fn refusal(refused: &Refused<'_>, environment: &Variables, error: &io::Error) -> String {
    let Refused { program, shown } = *refused;
    let is_path = program.contains('/');
    // The search also fails this way if a directory on the way may not be read.
    let is_in_path = || {
        let path = environment.0.iter().find(|(name, _)| name == "PATH").map_or("", |(_, value)| value);
        path.split(':').any(|directory| Path::new(directory).join(program).exists())
    };
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT) if is_path => format!("exec: \"{shown}\": stat {shown}: no such file or directory"),
        Some(Errno::NOENT) => format!("exec: \"{shown}\": executable file not found in $PATH"),
        Some(Errno::ACCESS) if is_path && Path::new(program).is_dir() => format!("exec: \"{shown}\": is a directory"),
        Some(Errno::ACCESS) if !is_path && !is_in_path() => {
            format!("exec: \"{shown}\": executable file not found in $PATH")
        }
        Some(Errno::ACCESS) => format!("exec: \"{shown}\": permission denied"),
        Some(Errno::NOEXEC) => format!("exec {shown}: exec format error"),
        Some(Errno::TOOBIG) => format!("exec {shown}: argument list too long"),
        _ => format!("exec: \"{shown}\": {error}"),
    }
}

/// Takes the exit status of a child that has ended; `None` while it runs.
pub(super) fn reap(pid: Pid) -> io::Result<Option<WaitStatus>> {
    match waitpid(Some(pid), WaitOptions::NOHANG) {
        Ok(found) => Ok(found.map(|(_, status)| status)),
        Err(error) => Err(error.into()),
    }
}

/// The identity of a running process; `None` if there is none of that number.
pub(super) fn identify(pid: Pid) -> Option<ProcessKey> {
    let stat = read_stat(pid)?;
    Some(ProcessKey { pid: pid.as_raw_nonzero().get(), start_ticks: start_ticks(&stat)? })
}

/// The 22nd field.
fn start_ticks(stat: &str) -> Option<u64> {
    field_behind_name(stat, 19)?.parse().ok()
}

/// Fields of `/proc/PID/stat` from the third on. The second, the command's name, is in parentheses and may contain
/// anything.
fn field_behind_name(stat: &str, index: usize) -> Option<&str> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(index)
}

/// The search for leftovers ends when it finds none, and at the latest after this many times: processes that fork
/// faster than they can be killed are a matter for control groups.
const SEARCHES_MAX: usize = 100;

/// Kills everything of an earlier nursery: the processes it started, and what these have started. The kernel kills only
/// the former when a nursery dies.
pub(super) fn kill_leftovers(leftovers: &Leftovers) {
    for key in &leftovers.processes {
        kill_leftover(*key);
    }
    let instances: HashSet<String> = leftovers.instances.iter().map(ToString::to_string).collect();
    let belongs = |pid: Pid| instance_of(pid).is_some_and(|instance| instances.contains(&instance));
    for _ in 0..SEARCHES_MAX {
        let found: Vec<Pid> = all().unwrap_or_default().into_iter().filter(|pid| belongs(*pid)).collect();
        if instances.is_empty() || found.is_empty() {
            return;
        }
        found.into_iter().for_each(|pid| signal_if(pid, Signal::KILL, belongs));
        std::thread::yield_now();
    }
}

/// Sends a signal to those of the processes that bear the mark of an instance.
pub(super) fn signal_marked(pids: &[Pid], id: &InstanceId, signal: Signal) {
    let instance = id.to_string();
    let belongs = |pid: Pid| instance_of(pid).is_some_and(|mark| mark == instance);
    pids.iter().for_each(|pid| signal_if(*pid, signal, belongs));
}

/// Looked at through the handle's eyes: from the question on the number cannot change hands unnoticed.
fn signal_if(pid: Pid, signal: Signal, belongs: impl Fn(Pid) -> bool) {
    if let Ok(handle) = pidfd_open(pid, PidfdFlags::empty())
        && belongs(pid)
    {
        let _ = rustix::process::pidfd_send_signal(&handle, signal);
    }
}

/// Kills a process that an earlier nursery started, and its group, if it is still the same process.
fn kill_leftover(key: ProcessKey) {
    let Some(pid) = Pid::from_raw(key.pid) else { return };
    let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    if identify(pid) != Some(key) {
        return;
    }
    // Stopped, it cannot end and give its number away before its group has got the signal.
    let _ = rustix::process::pidfd_send_signal(&handle, Signal::STOP);
    if identify(pid) == Some(key) {
        let _ = kill_process_group(pid, Signal::KILL);
    }
    let _ = rustix::process::pidfd_send_signal(&handle, Signal::KILL);
}

/// The instance that a process was started for, by the mark in its environment.
pub(super) fn instance_of(pid: Pid) -> Option<String> {
    let environment = std::fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).ok()?;
    environment
        .split(|byte| *byte == 0)
        .find_map(|variable| variable.strip_prefix(INSTANCE_VARIABLE.as_bytes())?.strip_prefix(b"="))
        .map(|value| OsStr::from_bytes(value).to_string_lossy().into_owned())
}

/// The children of the nursery, whether it started them or inherited them.
pub(super) fn children() -> io::Result<Vec<Pid>> {
    let own = rustix::process::getpid();
    match std::fs::read_to_string(format!("/proc/self/task/{own}/children")) {
        Ok(text) => Ok(text.split_ascii_whitespace().filter_map(parse_pid).collect()),
        // Kernels can be built without that file.
        Err(_) => children_by_search(own),
    }
}

pub(super) fn parse_pid(text: &str) -> Option<Pid> {
    Pid::from_raw(text.parse().ok()?)
}

fn children_by_search(parent_number: Pid) -> io::Result<Vec<Pid>> {
    Ok(all()?.into_iter().filter(|pid| parent(*pid) == Some(parent_number)).collect())
}

/// Every process of the machine.
pub(super) fn all() -> io::Result<Vec<Pid>> {
    let names = std::fs::read_dir("/proc")?.flatten().map(|entry| entry.file_name());
    Ok(names.filter_map(|name| name.to_str().and_then(parse_pid)).collect())
}

/// The parent of a process that runs. The fourth field.
pub(super) fn parent(pid: Pid) -> Option<Pid> {
    parse_pid(field_behind_name(&read_stat(pid)?, 1)?)
}

/// The first process of its session. The sixth field.
pub(super) fn session(pid: Pid) -> Option<Pid> {
    parse_pid(field_behind_name(&read_stat(pid)?, 3)?)
}

/// What it does, by one letter: `T` is stopped, `Z` has ended. The third field; `None` if there is no such process.
pub(super) fn state(pid: Pid) -> Option<char> {
    field_behind_name(&read_stat(pid)?, 0)?.chars().next()
}

fn read_stat(pid: Pid) -> Option<String> {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_ticks_are_found_behind_any_name() {
        let tail = "S 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 1 2";
        for name in ["sh", "a b", "x) S 1 (", "()"] {
            assert_eq!(start_ticks(&format!("12 ({name}) {tail}")), Some(98_765), "{name}");
        }
        assert_eq!(start_ticks("nonsense"), None);
        assert_eq!(field_behind_name(&format!("12 (x) {tail}"), 0), Some("S"));
    }

    #[test]
    fn children_are_found_both_ways() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = Pid::from_child(&child);
        let own = rustix::process::getpid();
        assert_eq!((parent(pid), session(pid)), (Some(own), session(own)));
        assert!(children_by_search(own).unwrap().contains(&pid));
        assert_eq!(identify(pid).unwrap().pid, pid.as_raw_nonzero().get());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(identify(pid), None);
    }

    #[test]
    fn refusals_say_what_is_wrong() {
        let error = |errno: Errno| io::Error::from_raw_os_error(errno.raw_os_error());
        for (program, errno, text) in [
            ("nope", Errno::NOENT, "exec: \"nope\": executable file not found in $PATH"),
            ("/nope", Errno::NOENT, "exec: \"/nope\": stat /nope: no such file or directory"),
            ("/tmp", Errno::ACCESS, "exec: \"/tmp\": is a directory"),
            ("/etc/passwd", Errno::ACCESS, "exec: \"/etc/passwd\": permission denied"),
            ("odd", Errno::NOEXEC, "exec odd: exec format error"),
            ("nope", Errno::ACCESS, "exec: \"nope\": executable file not found in $PATH"),
            ("passwd", Errno::ACCESS, "exec: \"passwd\": permission denied"),
        ] {
            let environment = Variables(vec![("PATH".to_owned(), "/nonexistent:/etc".to_owned())]);
            assert_eq!(refusal(&Refused { program, shown: program }, &environment, &error(errno)), text);
            let hidden = refusal(&Refused { program, shown: "$(SECRET)" }, &environment, &error(errno));
            assert!(hidden.contains("$(SECRET)") && !hidden.contains(program), "INV-53: {hidden}");
        }
    }
}
