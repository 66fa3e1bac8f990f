//! An allocator that keeps everything in one piece of memory, from its beginning on without large gaps.
//!
//! That is what it is for: whoever wants to put all memory back in place has to know where it is, and has less to copy the
//! less of it there is. Blocks come in sizes, each size has a list of free ones, and what was freed last is given out
//! first. Nothing is ever given back to the kernel.

use std::{
    alloc::{GlobalAlloc, Layout},
    cell::UnsafeCell,
    hint, ptr,
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

/// How far it can grow. The kernel sets nothing aside for what is not used.
pub(super) const RESERVED: usize = 32 << 30;

/// Every block begins at a multiple of this, and has a multiple of this as its size.
const GRAIN: usize = 16;
/// Up to here there is a size for every multiple of the grain, and beyond it [`STEPS`] for every doubling.
const SMALL_MAX: usize = 1 << SMALL_BITS;
const SMALL_BITS: u32 = 10;
const STEPS_BITS: u32 = 2;
const STEPS: usize = 1 << STEPS_BITS;
/// As many as there are up to [`RESERVED`].
const SIZES: usize = SMALL_MAX / GRAIN + STEPS * (RESERVED.ilog2() - SMALL_BITS) as usize;

/// The greatest alignment that blocks have because of their size.
const ALIGN_MAX: usize = 4096;

/// See the module's text. For a `#[global_allocator]`.
pub struct Arena {
    /// There is one thread, and there will be no other.
    alone: AtomicBool,
    locked: AtomicBool,
    blocks: UnsafeCell<Blocks>,
}

/// What is given out, and what is free.
struct Blocks {
    /// Nothing before the first block.
    base: *mut u8,
    /// How much of it has ever been given out.
    used: usize,
    /// The free blocks of each size, each of which begins with the address of the next.
    free: [*mut u8; SIZES],
}

#[expect(unsafe_code, reason = "an allocator hands out memory that nothing else describes")]
// SAFETY: blocks are only reached while `locked` is held, by one thread at a time, or by the only thread there is.
unsafe impl Sync for Arena {}

impl Arena {
    pub const fn new() -> Self {
        let blocks = Blocks { base: ptr::null_mut(), used: 0, free: [ptr::null_mut(); SIZES] };
        Self { alone: AtomicBool::new(false), locked: AtomicBool::new(false), blocks: UnsafeCell::new(blocks) }
    }

    /// From here on nothing is locked.
    ///
    /// # Safety
    ///
    /// There is one thread, and there will be no other.
    #[expect(unsafe_code, reason = "two threads would get the same block")]
    pub(super) unsafe fn leave_unlocked(&self) {
        self.alone.store(true, Ordering::Relaxed);
    }

    /// The piece of memory that has ever been given out: where it begins, and how much it is.
    pub fn extent(&self) -> (usize, usize) {
        self.with(|blocks| (blocks.base as usize, blocks.used))
    }

    #[expect(unsafe_code, reason = "an allocator cannot use locks that allocate")]
    #[inline]
    fn with<T>(&self, then: impl FnOnce(&mut Blocks) -> T) -> T {
        let alone = self.alone.load(Ordering::Relaxed);
        while !alone && self.locked.swap(true, Ordering::Acquire) {
            hint::spin_loop();
        }
        // SAFETY: nobody else has the lock or could ask for it, and nobody keeps what it was given here beyond it.
        let result = then(unsafe { &mut *self.blocks.get() });
        if !alone {
            self.locked.store(false, Ordering::Release);
        }
        result
    }
}

impl Default for Arena {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Arena {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Arena").field("extent", &self.extent()).finish()
    }
}

#[expect(unsafe_code, reason = "this is what an allocator is")]
// SAFETY: a block is given out when it is on no free list and behind all others, so to one owner at a time; it has the size
// of its class, which is at least the one asked for, and `Class::of` says why the alignment holds. Nothing unwinds: sizes
// beyond what is reserved are answered with null.
unsafe impl GlobalAlloc for Arena {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(class) = Class::of(layout) else { return ptr::null_mut() };
        self.with(|blocks| {
            let free = blocks.free[class.number];
            if free.is_null() {
                return blocks.cut(class.size);
            }
            // SAFETY: a free block has at least the size of an address, was aligned for one, and began with one since it
            // was put on the list.
            blocks.free[class.number] = unsafe { free.cast::<*mut u8>().read() };
            free
        })
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // What was given out for this layout had a class.
        let Some(class) = Class::of(layout) else { return };
        self.with(|blocks| {
            // SAFETY: the caller gives the block up, so its bytes are ours, and there are enough of them.
            unsafe { block.cast::<*mut u8>().write(blocks.free[class.number]) };
            blocks.free[class.number] = block;
        });
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller says that the size does not overflow when it is rounded up to the alignment, which was valid.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        if let (Some(old), Some(new)) = (Class::of(layout), Class::of(wanted))
            && old.number == new.number
        {
            return block;
        }
        // SAFETY: two blocks that are both ours do not overlap, and both have at least the smaller size.
        unsafe {
            let moved = self.alloc(wanted);
            if !moved.is_null() {
                ptr::copy_nonoverlapping(block, moved, layout.size().min(size));
                self.dealloc(block, layout);
            }
            moved
        }
    }
}

impl Blocks {
    /// A block that was never given out.
    #[cold]
    #[expect(unsafe_code, reason = "no safe function makes memory out of nothing")]
    fn cut(&mut self, size: usize) -> *mut u8 {
        if self.base.is_null() {
            let (access, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
            // SAFETY: the kernel chooses where, so nothing else is there.
            match unsafe { mmap_anonymous(ptr::null_mut(), RESERVED, access, kind) } {
                Ok(base) => self.base = base.cast(),
                Err(_) => return ptr::null_mut(),
            }
        }
        let at = self.used.next_multiple_of(natural_alignment(size));
        if size > RESERVED - at {
            return ptr::null_mut();
        }
        self.used = at + size;
        // SAFETY: it is within what was mapped, as was compared just now.
        unsafe { self.base.add(at) }
    }
}

/// A size of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Class {
    number: usize,
    size: usize,
}

impl Class {
    /// The smallest one whose blocks can hold this. They are aligned as well as their size is ([`natural_alignment`]), so
    /// that a size which is a multiple of the alignment is enough.
    #[inline]
    fn of(layout: Layout) -> Option<Self> {
        if layout.align() > ALIGN_MAX || layout.size() > RESERVED / 2 {
            return None;
        }
        // Alignments are powers of two, and a division takes longer than all the rest.
        let last = layout.align().max(GRAIN) - 1;
        let size = (layout.size().max(1) + last) & !last;
        if size <= SMALL_MAX {
            return Some(Self { number: size / GRAIN - 1, size });
        }
        Some(Self::large(size, layout.align()))
    }

    fn large(size: usize, align: usize) -> Self {
        // Steps beyond the small sizes are multiples of this; larger alignments take whole doublings.
        let size = if align > SMALL_MAX >> STEPS_BITS { size.next_power_of_two() } else { size };
        let doublings = (size - 1).ilog2();
        let step = 1 << (doublings - STEPS_BITS);
        let steps = (size - (1 << doublings)).div_ceil(step);
        let number = SMALL_MAX / GRAIN - 1 + (doublings - SMALL_BITS) as usize * STEPS + steps;
        Self { number, size: (1 << doublings) + steps * step }
    }
}

/// How blocks of a size are aligned: by the largest power of two that divides it.
fn natural_alignment(size: usize) -> usize {
    (1 << size.trailing_zeros()).min(ALIGN_MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_grow_with_their_numbers_and_waste_little() {
        let class = |size, align| Class::of(Layout::from_size_align(size, align).expect("a layout")).expect("a class");
        let mut last = class(1, 1);
        assert_eq!(last, Class { number: 0, size: GRAIN });
        for size in 1..100_000 {
            let class = class(size, 1);
            assert!(class.size >= size && class.size - size < (size / STEPS + 1).max(GRAIN), "{size}: {class:?}");
            let same = class == last;
            assert!(same || class.number == last.number + 1 && class.size > last.size, "{last:?} {class:?}");
            last = class;
        }
        let most = class(RESERVED / 2, 1);
        assert!(most.number < SIZES && most.size >= RESERVED / 2);
        assert_eq!(Class::of(Layout::from_size_align(RESERVED / 2 + 1, 1).expect("a layout")), None);
        assert_eq!(Class::of(Layout::from_size_align(8, 2 * ALIGN_MAX).expect("a layout")), None);
    }

    #[derive(Debug, Clone, Copy)]
    enum Deed {
        Alloc { size: usize, align: u32 },
        Realloc { which: usize, size: usize },
        Free { which: usize },
    }

    fn deed() -> impl Strategy<Value = Deed> {
        let size = prop_oneof![4 => 1..300_usize, 1 => 300..20_000_usize];
        prop_oneof![
            3 => (size.clone(), 0..=12_u32).prop_map(|(size, align)| Deed::Alloc { size, align }),
            1 => (any::<usize>(), size).prop_map(|(which, size)| Deed::Realloc { which, size }),
            2 => any::<usize>().prop_map(|which| Deed::Free { which }),
        ]
    }

    proptest! {
        /// Every block is aligned and keeps what its owner wrote, whatever others do.
        #[test]
        #[expect(unsafe_code, reason = "an allocator can be used in no other way")]
        fn blocks_have_one_owner(deeds in prop::collection::vec(deed(), 1..200)) {
            static ARENA: Arena = Arena::new();
            let mut owned: Vec<(*mut u8, Layout, u8)> = Vec::new();
            // SAFETY (all below): blocks are used within their layout, by whom they were given to, until they are freed.
            let holds = |(block, layout, mark): &(*mut u8, Layout, u8)| {
                (0..layout.size()).all(|at| unsafe { block.add(at).read() } == *mark)
            };
            for (number, deed) in deeds.into_iter().enumerate() {
                let mark = number as u8;
                match deed {
                    Deed::Alloc { size, align } => {
                        let layout = Layout::from_size_align(size, 1 << align).expect("a layout");
                        let block = unsafe { ARENA.alloc(layout) };
                        prop_assert!(!block.is_null() && block.addr() % layout.align() == 0);
                        unsafe { block.write_bytes(mark, size) };
                        owned.push((block, layout, mark));
                    }
                    Deed::Realloc { which, size } if !owned.is_empty() => {
                        let at = which % owned.len();
                        let (block, layout, mark) = owned.swap_remove(at);
                        let moved = unsafe { ARENA.realloc(block, layout, size) };
                        let new = Layout::from_size_align(size, layout.align()).expect("a layout");
                        prop_assert!(moved.addr() % layout.align() == 0);
                        let kept = Layout::from_size_align(size.min(layout.size()), 1).expect("a layout");
                        prop_assert!(holds(&(moved, kept, mark)));
                        unsafe { moved.write_bytes(mark, size) };
                        owned.push((moved, new, mark));
                    }
                    Deed::Free { which } if !owned.is_empty() => {
                        let one = owned.swap_remove(which % owned.len());
                        prop_assert!(holds(&one));
                        unsafe { ARENA.dealloc(one.0, one.1) };
                    }
                    Deed::Realloc { .. } | Deed::Free { .. } => {}
                }
                prop_assert!(owned.iter().all(holds));
            }
            owned.into_iter().for_each(|(block, layout, _)| unsafe { ARENA.dealloc(block, layout) });
        }
    }
}
