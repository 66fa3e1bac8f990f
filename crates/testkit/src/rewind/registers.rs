//! What of a running function is not in memory, and the two ways through it.

use std::{arch::naked_asm, ffi::c_void, mem::offset_of};

/// What the System V calling convention says that a called function preserves, and where it returns to. Everything else
/// its caller expects to be lost. The instructions below know these by their offsets.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(super) struct Registers {
    rbx: u64,
    rbp: u64,
    r12: u64,
    r13: u64,
    r14: u64,
    r15: u64,
    /// After the return.
    rsp: u64,
    /// The address of the instruction after the call.
    rip: u64,
}

const _: () = assert!(offset_of!(Registers, rsp) == 48 && offset_of!(Registers, rip) == 56);

impl Registers {
    /// Where the stack of the caller ends; all of it is above.
    pub(super) fn stack_end(&self) -> usize {
        self.rsp as usize
    }
}

/// Writes down the registers, calls `keep(kept)` and returns 0. [`put_back`] returns from here again.
///
/// # Safety
///
/// `registers` can be written to, and `keep` may be called with `kept`.
#[allow(unsafe_code, reason = "what it does cannot be said in Rust")]
#[unsafe(naked)]
pub(super) unsafe extern "sysv64" fn note(
    registers: *mut Registers,
    keep: unsafe extern "sysv64" fn(*mut c_void),
    kept: *mut c_void,
) -> u64 {
    naked_asm!(
        "mov [rdi], rbx",
        "mov [rdi + 8], rbp",
        "mov [rdi + 16], r12",
        "mov [rdi + 24], r13",
        "mov [rdi + 32], r14",
        "mov [rdi + 40], r15",
        "lea rax, [rsp + 8]",
        "mov [rdi + 48], rax",
        "mov rax, [rsp]",
        "mov [rdi + 56], rax",
        "mov rax, rsi",
        "mov rdi, rdx",
        // A function begins with a stack that is off by the return address.
        "sub rsp, 8",
        "call rax",
        "add rsp, 8",
        "xor eax, eax",
        "ret",
    )
}

/// Goes over to the stack that ends at `stack`, calls `restore(kept)`, and returns `value` from the call of [`note`] that
/// wrote these registers.
///
/// # Safety
///
/// The new stack is large enough for `restore`, which may be called with `kept`. Neither it nor the registers are in memory
/// that `restore` writes to; and when it returns, all memory that the caller of [`note`] knows of is as it was then.
#[allow(unsafe_code, reason = "what it does cannot be said in Rust")]
#[unsafe(naked)]
pub(super) unsafe extern "sysv64" fn put_back(
    registers: *const Registers,
    restore: unsafe extern "sysv64" fn(*mut c_void),
    kept: *mut c_void,
    stack: *mut c_void,
    value: u64,
) -> ! {
    naked_asm!(
        "mov rsp, rcx",
        "and rsp, -16",
        "mov rbx, rdi",
        "mov rbp, r8",
        "mov rdi, rdx",
        "call rsi",
        "mov rax, rbp",
        "mov rdi, rbx",
        "mov rbx, [rdi]",
        "mov rbp, [rdi + 8]",
        "mov r12, [rdi + 16]",
        "mov r13, [rdi + 24]",
        "mov r14, [rdi + 32]",
        "mov r15, [rdi + 40]",
        "mov rsp, [rdi + 48]",
        "jmp [rdi + 56]",
    )
}
