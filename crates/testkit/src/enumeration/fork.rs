//! Going on as two processes.

use std::{fs, io};

use rustix::process::{Pid, WaitOptions, WaitStatus, waitpid};

/// Which of the two one is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Forked {
    /// The new one, with a copy of everything.
    Child,
    /// The old one. The new one has ended, and so.
    Ended(WaitStatus),
}

/// Ends this process at once. What it leaves behind is of no use to anybody, and to take it apart takes longer than to make it.
#[expect(unsafe_code, reason = "no safe crate ends a process without what others have asked for at its end")]
pub(super) fn leave(code: i32) -> ! {
    // SAFETY: it takes a number, touches nothing of this process and does not come back.
    unsafe { libc::_exit(code) }
}

/// Makes a second process of this one and waits for its end.
#[expect(unsafe_code, reason = "no safe crate forks, because a second thread would make it unsound")]
pub(super) fn fork() -> io::Result<Forked> {
    if fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("a process with several threads must not be forked"));
    }
    // SAFETY: what a child may not touch is what threads that it has no copy of had in hands, such as locks. There is no
    // other thread: that was counted, and the only one that there is does nothing else meanwhile.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child),
        child => {
            let (_, status) = loop {
                match waitpid(Pid::from_raw(child), WaitOptions::empty()) {
                    Ok(Some(ended)) => break ended,
                    Ok(None) | Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            };
            Ok(Forked::Ended(status))
        }
    }
}
