//! Going on from one moment several times, in one process.
//!
//! A fork does the same: the child tries something and ends, and the parent goes on as if nothing had been tried. But a
//! new process pays for every page that it writes to or runs code from, and finds every cache empty; where a try takes
//! two milliseconds, that more than doubles it. So here the process goes back in time instead: all memory that it can
//! write to, and the registers, are copied when a try begins and put back when it ends.
//!
//! Why this is sound: a program consists of its memory, its registers and what the kernel keeps for it. When
//! [`Rewind::begin`] returns a second time, the first two are what they were when it returned for the first time, byte by byte,
//! stack and thread-local variables and the allocator's own lists included; nobody who runs then, compiled code with its
//! assumptions included, can tell the difference, but by what it returns. The kernel's part is not put back. So what
//! is tried must leave that alone: it may write to a file that is open, which is how it tells what came of it, but must not
//! open or close any, start threads, or map and unmap memory. Worlds do not; they have no driver but their own clock.
//!
//! | file | what is in it |
//! |---|---|
//! | `arena` | the allocator: all of the heap in one piece |
//! | `memory` | which memory there is, its copy, and how it is put back |
//! | `registers` | the few instructions that cannot be said in Rust |

mod arena;
mod memory;
mod registers;

use std::io;

pub use self::arena::Arena;

/// What [`Rewind::begin`] has come back from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Try {
    /// Nothing yet: from here on it is a try, until [`end`].
    Begun,
    /// The try, which ended with this.
    Over(u32),
}

/// A process that can go back.
#[derive(Debug, Clone, Copy)]
pub struct Rewind(());

impl Rewind {
    /// Fails if there is more than one thread, or if somebody else has done so.
    ///
    /// # Safety
    ///
    /// The whole heap of this process is in `arena`. From here on no thread is started, and what is mapped stays so.
    #[expect(unsafe_code, reason = "nobody else can know what the process will do")]
    pub unsafe fn prepare(arena: &'static Arena) -> io::Result<Self> {
        // SAFETY: it asks for the same.
        unsafe { memory::prepare(arena) }.map(Self)
    }

    /// Returns once to begin a try, and when that has ended once more, with everything as it was. There can be tries within
    /// a try.
    pub fn begin(self) -> io::Result<Try> {
        memory::begin()
    }
}

/// Whether this is a try.
pub fn is_trying() -> bool {
    memory::is_trying()
}

/// Ends the last try that was begun: its [`Rewind::begin`] returns.
///
/// # Panics
///
/// If there is none.
pub fn end(value: u32) -> ! {
    memory::end(value)
}
