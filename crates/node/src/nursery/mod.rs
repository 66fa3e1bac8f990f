//! The nursery: a small process that owns the containers' processes and outlives the node (docs/decisions/0003).
//!
//! The node starts it from its own executable and speaks to it over a Unix socket. If the node is killed, the containers
//! go on, their output is written and their ends are recorded; the node that comes next connects again and is told
//! everything. If the nursery is killed, its containers die with it and the next one reports them as lost. It ends by
//! itself when nobody is connected and nothing runs.

mod client;
mod connection;
mod control_group;
mod family;
mod halt;
mod inherited;
mod isolation;
mod journal;
mod layout;
mod memory_watch;
mod process;
mod process_watch;
pub(crate) mod protocol;
mod server;
mod task;
mod work;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use jiff::Timestamp;
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::process::{Resource, Rlimit, getpid, getrlimit, set_child_subreaper, setrlimit, setsid};
use rustix::thread::CapabilitySet;

pub(crate) use client::{Nursery, NurseryError};
pub use halt::{Halted, halt};
pub(crate) use layout::{Layout, is_safe_uid};

use self::control_group::ControlGroups;
use self::journal::Journal;
use self::protocol::{Abilities, Obstacles};
use self::server::{Server, Settings};
use self::work::WorkDirectories;

/// A termination message (PL-56).
const MESSAGE_MAX: usize = 4096;

/// The hidden subcommand under which a program that embeds the node runs the nursery.
pub const SUBCOMMAND: &str = "__nursery";

/// The whole life of the nursery. `root` is the node's directory; stdin is the connection to the node that started it.
///
/// Must be called from the main thread of a process that has no other threads.
pub fn run(root: &Path) -> io::Result<()> {
    if fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("the nursery must be the only thread of its process"));
    }
    inherited::keep()?;
    let layout = Layout::new(root);
    layout.create()?;
    // Away from the terminal and the signals that it sends.
    let _ = setsid();
    let _lock = lock(&layout)?;
    set_child_subreaper(Some(getpid()))?;
    raise_file_limit();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let (journal, leftovers) = Journal::open(&layout.journal(), boot.trim(), Timestamp::now())?;
    process::kill_leftovers(&leftovers);
    // Sockets have short names only, so it is made where it shall be.
    std::env::set_current_dir(layout.nursery())?;
    let _ = fs::remove_file(Layout::SOCKET);
    let listener = UnixListener::bind(Layout::SOCKET)?;
    std::env::set_current_dir("/")?;
    let (control_groups, no_limits) = either(ControlGroups::open(&group_name(root)));
    let (mounts, no_mounts) = either(isolation::check_mounts(&layout.new_root()));
    let abilities = Abilities {
        mounts: mounts.is_some(),
        limits: control_groups.is_some(),
        users: is_allowed(CapabilitySet::SETUID | CapabilitySet::SETGID),
    };
    let obstacles = Obstacles { mounts: no_mounts, limits: no_limits };
    let first = first_connection()?;
    let work = WorkDirectories::open(layout.work())?;
    let settings = Settings { layout: layout.clone(), journal, listener, abilities, obstacles, control_groups, work };
    let ended = Server::new(settings)?.run(first);
    let _ = fs::remove_file(layout.nursery().join(Layout::SOCKET));
    ended.inspect_err(|error| complain(&format!("the nursery ends: {error}")))
}

/// What works, or why it does not.
fn either<T>(attempt: Result<T, String>) -> (Option<T>, Option<String>) {
    match attempt {
        Ok(works) => (Some(works), None),
        Err(reason) => {
            complain(&reason);
            (None, Some(reason))
        }
    }
}

/// Root does not always have root's privileges, and others may.
fn is_allowed(privileges: CapabilitySet) -> bool {
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(privileges))
}

/// What nobody is there to hear goes to stderr, which is a file, whose disk may be full.
fn complain(message: &str) {
    let _ = writeln!(io::stderr(), "{} {message}", Timestamp::now());
}

/// One nursery a directory.
fn lock(layout: &Layout) -> io::Result<File> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(layout.lock())?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| io::Error::other(format!("another nursery uses `{}`", layout.root.display())))?;
    Ok(file)
}

/// Stdin, if it is a socket.
fn first_connection() -> io::Result<Option<UnixStream>> {
    let stdin = io::stdin();
    let is_socket = rustix::fs::fstat(stdin.as_fd())
        .is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Socket);
    if !is_socket {
        return Ok(None);
    }
    let connection = UnixStream::from(stdin.as_fd().try_clone_to_owned()?);
    // A second copy would keep the connection open after it was closed.
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    Ok(Some(connection))
}

/// Three descriptors a container; the usual soft limit of 1,024 would be reached with a few hundred.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// A short name for a directory: FNV-1a.
fn group_name(root: &Path) -> String {
    let hash = root
        .as_os_str()
        .as_encoded_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}

/// What a container left in its termination message file, without following a symlink it may have put there.
fn read_message(path: &Path) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(MESSAGE_MAX as u64).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
