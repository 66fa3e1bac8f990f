//! What the nursery has from whoever started `tally`, and containers must not have: open files, ignored signals.

use std::fs;
use std::io;

use rustix::fd::BorrowedFd;
use rustix::io::{FdFlags, fcntl_setfd};
use tokio::signal::unix::{SignalKind, signal};

/// The standard library sees to this one itself, in every child.
const SIGPIPE: i32 = 13;

/// Keeps all that is inherited to the nursery. Called before it opens anything and before it has children.
pub(super) fn keep() -> io::Result<()> {
    keep_files()?;
    keep_ignored_signals()
}

/// Everything but stdin, stdout and stderr is closed when a child becomes a program.
#[expect(unsafe_code, reason = "descriptors that came with the process belong to no value that could be borrowed")]
fn keep_files() -> io::Result<()> {
    for entry in fs::read_dir("/proc/self/fd")?.flatten() {
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let Some(number) = number.filter(|number| *number > 2) else { continue };
        // SAFETY: the descriptor must stay open while it is borrowed, which is for this one call. It was open when it was
        // listed, and nobody has closed it since: the nursery has no other threads (`nursery::run` checks it), and the
        // listing itself, which is one of them, is open until the end of the loop. The call changes only a flag that
        // owners of descriptors do not rely upon, and that theirs have already.
        let file = unsafe { BorrowedFd::borrow_raw(number) };
        let _ = fcntl_setfd(file, FdFlags::CLOEXEC);
    }
    Ok(())
}

/// A new program goes on ignoring what its parent ignores, but takes the default for what its parent handles. So the
/// nursery handles, by doing nothing, what it was started to ignore (`nohup`, shells in the background).
fn keep_ignored_signals() -> io::Result<()> {
    let ignored = ignored(&fs::read_to_string("/proc/self/status")?);
    // Handlers are for the whole process, and stay when what they were made with is gone. It has no threads.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _entered = runtime.enter();
    for number in ignored {
        // Some cannot be handled: they mean that the process itself is at fault, or belong to the C library.
        let _ = signal(SignalKind::from_raw(number));
    }
    Ok(())
}

/// The signals that a process ignores, by its `/proc/PID/status`.
fn ignored(status: &str) -> Vec<i32> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    (1..=64).filter(|number| mask & (1 << (number - 1)) != 0 && *number != SIGPIPE).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_mask() {
        assert_eq!(ignored("Name:\tx\nSigIgn:\t8000000000001007\nSigCgt:\tffff\n"), [1, 2, 3, 64]);
        assert_eq!(ignored("SigIgn:\t0000000000000000\n"), [0; 0]);
        assert_eq!(ignored(""), [0; 0]);
    }
}
