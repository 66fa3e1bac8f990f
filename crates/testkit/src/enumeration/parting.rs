//! How a run parts from others that begin as it does.
//!
//! It goes on in the same process, which goes back to where it was when the run is over ([`crate::rewind`]); or, where
//! nobody has taught that to the processor, in a process of its own.

use std::io;

use rustix::process::WaitStatus;

use super::fork::{Forked, fork, leave};
#[cfg(target_arch = "x86_64")]
use crate::rewind::{self, Arena, Rewind, Try};

/// In which way.
#[derive(Debug, Clone, Copy)]
pub enum Manner {
    /// In this process, whose global allocator this is.
    #[cfg(target_arch = "x86_64")]
    Rewinding(&'static Arena),
    /// In processes of their own.
    Forking,
}

/// Where a run has got to that others part from.
#[derive(Debug, Clone, Copy)]
pub(super) enum Road {
    #[cfg(target_arch = "x86_64")]
    Rewinding(Rewind),
    Forking,
}

/// Which of the two that go on from a parting one is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Parting {
    /// The one that parts.
    Off,
    /// The one that goes on as before. The other one is over, with the number it ended with or in another way.
    Over(Result<usize, String>),
}

impl Road {
    /// For a process that does nothing but to run worlds.
    #[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "what worlds do is known here only"))]
    pub(super) fn prepare(manner: Manner) -> io::Result<Self> {
        match manner {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: whoever chose this manner says that this is the heap. Worlds have one thread, and their runtime has no
            // driver and no threads for blocking work; the arena keeps what it has mapped.
            Manner::Rewinding(arena) => unsafe { Rewind::prepare(arena) }.map(Self::Rewinding),
            Manner::Forking => Ok(Self::Forking),
        }
    }

    /// Comes back twice.
    pub(super) fn part(self) -> io::Result<Parting> {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Rewinding(rewind) => Ok(match rewind.begin()? {
                Try::Begun => Parting::Off,
                Try::Over(code) => Parting::Over(number(code as i32)),
            }),
            Self::Forking => Ok(match fork()? {
                Forked::Child => Parting::Off,
                Forked::Ended(status) => Parting::Over(ended(status)),
            }),
        }
    }
}

/// A run that came to its end says so with a small number; all codes beyond this are other ends.
const NUMBER_MAX: usize = 64;
/// What could be said could not be heard.
const UNHEARD: i32 = 70;

/// Ends what has parted, or the process, with a number of which only the small ones are told apart.
pub(super) fn finish(number: io::Result<usize>) -> ! {
    let code = number.map_or(UNHEARD, |number| number.min(NUMBER_MAX) as i32);
    #[cfg(target_arch = "x86_64")]
    if rewind::is_trying() {
        rewind::end(code as u32);
    }
    leave(code)
}

fn number(code: i32) -> Result<usize, String> {
    match usize::try_from(code) {
        Ok(number) if number <= NUMBER_MAX => Ok(number),
        _ => Err(format!("it ended with {code}")),
    }
}

fn ended(status: WaitStatus) -> Result<usize, String> {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => number(code),
        (_, Some(signal)) => Err(format!("the process was ended by signal {signal}")),
        _ => Err("the process ended".to_owned()),
    }
}
