//! All memory of this process, and its copy.

use std::{
    ffi::c_void,
    fs, io, mem, ptr,
    sync::atomic::{AtomicPtr, Ordering},
};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

use super::{
    Try,
    arena::{self, Arena},
    registers::{Registers, note, put_back},
};

/// Room for everything that is kept. The kernel sets nothing aside for what is not used.
const RESERVED: usize = 8 << 30;
/// Of that, for what is known about the copies.
const HEAD: usize = 1 << 14;
/// And for the stack of those who put the memory back, since the ordinary one is what they put back.
const STACK: usize = 1 << 16;

/// More than there are writable pieces in any process: a few for each library.
const PIECES_MAX: usize = 128;

/// How many tries can be begun within each other.
const DEPTH_MAX: usize = 4;

/// The copies, once there can be any. Nothing changes here any more before a try begins, so going back leaves it as it is.
static KEPT: AtomicPtr<Kept> = AtomicPtr::new(ptr::null_mut());

/// What is known of the copies, at the beginning of a mapping that is no part of them. It does not go back in time.
struct Kept {
    arena: &'static Arena,
    /// Statics, thread-local variables, what C libraries have allocated; not the stack, and not the arena.
    pieces: [Piece; PIECES_MAX],
    pieces_count: usize,
    stack_top: usize,
    /// One for every try that was begun and has not ended.
    moments: [Moment; DEPTH_MAX],
    depth: usize,
}

/// A moment to go back to.
#[derive(Clone, Copy)]
struct Moment {
    registers: Registers,
    /// What there was of the stack and of the arena.
    stack: Piece,
    heap: Piece,
    /// Where the copy of everything is.
    copy: Piece,
}

/// Some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Piece {
    begin: usize,
    end: usize,
}

const _: () = assert!(mem::size_of::<Kept>() <= HEAD);

/// Makes room for copies.
///
/// # Safety
///
/// See [`super::Rewind::prepare`].
#[expect(unsafe_code, reason = "no safe crate maps memory")]
pub(super) unsafe fn prepare(arena: &'static Arena) -> io::Result<()> {
    if fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("a process with several threads cannot go back"));
    }
    if !KEPT.load(Ordering::Relaxed).is_null() {
        return Err(io::Error::other("a process has one past"));
    }
    let (access, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
    // SAFETY: the kernel chooses where, so nothing else is there.
    let kept: *mut Kept = unsafe { mmap_anonymous(ptr::null_mut(), RESERVED, access, kind) }?.cast();
    let nothing = Piece::of(0, 0);
    let moment = Moment { registers: Registers::default(), stack: nothing, heap: nothing, copy: nothing };
    // SAFETY: a mapping is aligned to pages and was just made, nobody else knows of it, and it is large enough.
    unsafe {
        kept.write(Kept {
            arena,
            pieces: [nothing; PIECES_MAX],
            pieces_count: 0,
            stack_top: 0,
            moments: [moment; DEPTH_MAX],
            depth: 0,
        });
    }
    KEPT.store(kept, Ordering::Relaxed);
    // SAFETY: threads were counted, and the caller starts no other.
    unsafe { arena.leave_unlocked() };
    Ok(())
}

/// See [`super::Rewind::begin`].
#[expect(unsafe_code, reason = "to come back twice is nothing that Rust knows of")]
pub(super) fn begin() -> io::Result<Try> {
    let kept = KEPT.load(Ordering::Relaxed);
    assert!(!kept.is_null(), "nothing was prepared");
    // SAFETY: the mapping is never undone, nobody else uses it, and there is one thread, as was counted in the beginning.
    let depth = unsafe { (*kept).depth };
    match depth {
        // SAFETY: as above.
        0 => unsafe { (*kept).look_around()? },
        1..DEPTH_MAX => {}
        _ => return Err(io::Error::other("too many tries within tries")),
    }
    // SAFETY: as above; and `keep` is called with what it is for. When `note` returns for the second time, `restore` has
    // put back all that `keep` has copied: everything that can be written to but for this very mapping.
    let came_back = unsafe {
        (*kept).depth = depth + 1;
        note(&raw mut (*kept).moments[depth].registers, keep, kept.cast())
    };
    Ok(match came_back {
        0 => Try::Begun,
        value => {
            // SAFETY: as above.
            unsafe { (*kept).depth = depth };
            Try::Over((value - 1) as u32)
        }
    })
}

impl Kept {
    /// Finds out what there is to copy.
    fn look_around(&mut self) -> io::Result<()> {
        let (heap, _) = self.arena.extent();
        let apart = [Piece::of(ptr::from_ref(self).addr(), RESERVED), Piece::of(heap, arena::RESERVED)];
        let (pieces, stack_top) = writable(&fs::read_to_string("/proc/self/maps")?, &apart)?;
        let room = self.pieces.get_mut(..pieces.len()).ok_or_else(|| io::Error::other("too many pieces of memory"))?;
        room.copy_from_slice(&pieces);
        (self.pieces_count, self.stack_top) = (pieces.len(), stack_top);
        Ok(())
    }

    /// Where the copies end that there are.
    fn free_room(&self) -> usize {
        let outer = self.moments[..self.depth - 1].last();
        outer.map_or(ptr::from_ref(self).addr() + HEAD + STACK, |moment| moment.copy.end)
    }

    /// All that is copied at the last moment, each with the place of its copy.
    fn copies(&self) -> impl Iterator<Item = (Piece, Piece)> {
        let moment = &self.moments[self.depth - 1];
        let pieces = self.pieces[..self.pieces_count].iter().copied().chain([moment.stack, moment.heap]);
        pieces.scan(moment.copy.begin, |next, piece| {
            let copy = Piece::of(*next, piece.size());
            *next = copy.end;
            Some((piece, copy))
        })
    }
}

/// See [`super::is_trying`].
#[expect(unsafe_code, reason = "the mapping is known by its address only")]
pub(super) fn is_trying() -> bool {
    let kept = KEPT.load(Ordering::Relaxed);
    // SAFETY: what is stored there is a mapping that is never undone.
    !kept.is_null() && unsafe { (*kept).depth > 0 }
}

/// See [`super::end`].
#[expect(unsafe_code, reason = "to come back twice is nothing that Rust knows of")]
pub(super) fn end(value: u32) -> ! {
    assert!(is_trying(), "nothing was begun that could end");
    let kept = KEPT.load(Ordering::Relaxed);
    // SAFETY: the stack for `restore` is between what it reads and what is known about that, and nothing that it puts back
    // is there. The registers are those of the `begin` whose memory it is, and whoever called that is on the stack again
    // when that is put back.
    unsafe {
        let stack = kept.cast::<u8>().add(HEAD + STACK);
        let registers = &raw const (*kept).moments[(*kept).depth - 1].registers;
        put_back(registers, restore, kept.cast(), stack.cast(), u64::from(value) + 1)
    }
}

/// Copies everything.
///
/// # Safety
///
/// It is called by [`note`], with a [`Kept`] at the beginning of its mapping.
#[expect(unsafe_code, reason = "all of memory belongs to others")]
unsafe extern "sysv64" fn keep(kept: *mut c_void) {
    // SAFETY: that is what it was called with, and the only one who knows it waits for us.
    let kept = unsafe { &mut *kept.cast::<Kept>() };
    let (begin, stack_top, (heap, used)) = (kept.free_room(), kept.stack_top, kept.arena.extent());
    let moment = &mut kept.moments[kept.depth - 1];
    moment.stack = Piece { begin: moment.registers.stack_end(), end: stack_top };
    moment.heap = Piece::of(heap, used);
    moment.copy = Piece::of(begin, 0);
    let copies = kept.copies();
    let end = copies.last().map_or(begin, |(_, copy)| copy.end);
    assert!(end <= ptr::from_ref(kept).addr() + RESERVED, "there is too much memory to keep");
    kept.moments[kept.depth - 1].copy.end = end;
    for (piece, copy) in kept.copies() {
        // SAFETY: the kernel says that this is mapped and can be read; there is room for it, and it is elsewhere.
        unsafe { piece.copy_to(copy) };
    }
}

/// Copies everything back.
///
/// # Safety
///
/// It is called by [`put_back`], with a [`Kept`] at the beginning of its mapping that [`keep`] has been called with.
#[expect(unsafe_code, reason = "all of memory belongs to others")]
unsafe extern "sysv64" fn restore(kept: *mut c_void) {
    // SAFETY: that is what it was called with, and nobody else will ever run but with what is put back.
    let kept = unsafe { &*kept.cast::<Kept>() };
    for (piece, copy) in kept.copies() {
        // SAFETY: it was mapped when it was copied, nothing is unmapped, and whatever is there now is given up.
        unsafe { copy.copy_to(piece) };
    }
}

impl Piece {
    fn of(begin: usize, size: usize) -> Self {
        Self { begin, end: begin + size }
    }

    fn size(self) -> usize {
        self.end - self.begin
    }

    /// Copies its bytes to another one of the same size.
    ///
    /// # Safety
    ///
    /// This one can be read and the other one written to, whoever thinks that it is theirs, and they do not overlap.
    #[expect(unsafe_code, reason = "all of memory belongs to others")]
    unsafe fn copy_to(self, other: Self) {
        let from = ptr::with_exposed_provenance::<u8>(self.begin);
        let to = ptr::with_exposed_provenance_mut::<u8>(other.begin);
        // SAFETY: the caller says so.
        unsafe { ptr::copy_nonoverlapping(from, to, self.size()) };
    }

    /// What is left of it without another one.
    fn without(self, other: &Self) -> impl Iterator<Item = Self> + use<> {
        let before = Self { begin: self.begin, end: self.end.min(other.begin) };
        let after = Self { begin: self.begin.max(other.end), end: self.end };
        [before, after].into_iter().filter(|piece| piece.begin < piece.end)
    }
}

/// All that can be written to and is nobody else's, but for what is apart and the stack; and where that begins.
fn writable(maps: &str, apart: &[Piece]) -> io::Result<(Vec<Piece>, usize)> {
    let unreadable = || io::Error::other("the list of mappings cannot be read");
    let mut pieces = Vec::new();
    let mut stack_top = None;
    for line in maps.lines() {
        let mut words = line.split_ascii_whitespace();
        let (range, access) = words.next().zip(words.next()).ok_or_else(unreadable)?;
        let (begin, end) = range.split_once('-').ok_or_else(unreadable)?;
        let address = |text| usize::from_str_radix(text, 16).map_err(|_| unreadable());
        let piece = Piece { begin: address(begin)?, end: address(end)? };
        if line.ends_with("[stack]") {
            stack_top = Some(piece.end);
        } else if access.starts_with("rw") && access.ends_with('p') {
            let mut left = vec![piece];
            for other in apart {
                left = left.into_iter().flat_map(|piece| piece.without(other)).collect();
            }
            pieces.extend(left);
        }
    }
    Ok((pieces, stack_top.ok_or_else(unreadable)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_written_to_is_found() {
        let maps = "\
5500-5600 r--p 00000000 fe:00 12 /bin/program
5600-5700 rw-p 00001000 fe:00 12 /bin/program
5700-5800 rw-p 00000000 00:00 0 [heap]
7000-7900 rw-p 00000000 00:00 0
7a00-7b00 rw-s 00000000 00:01 9 /dev/shm/shared
7b00-7c00 ---p 00000000 00:00 0
7c00-7d00 rw-p 00000000 00:00 0 [stack]
7d00-7e00 r-xp 00000000 00:00 0 [vdso]
";
        let piece = |begin, end| Piece { begin, end };
        let (pieces, stack_top) = writable(maps, &[piece(0x7100, 0x7200), piece(0x7800, 0x7a00)]).unwrap();
        let expected = [piece(0x5600, 0x5700), piece(0x5700, 0x5800), piece(0x7000, 0x7100), piece(0x7200, 0x7800)];
        assert_eq!((&pieces[..], stack_top), (&expected[..], 0x7d00));
        assert!(writable("what is this", &[]).is_err() && writable("", &[]).is_err());
    }
}
