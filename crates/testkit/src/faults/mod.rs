//! Trouble on the way between controllers and the server: every call, list and watch passes here and can be made to
//! fail, to arrive late, to arrive and not be answered, or to show the past (invariants, section 2: P-1…P-9, P-13).
//!
//! Which fault happens where is chosen by `enumeration`; what must hold nevertheless is judged by `oracle`.

mod approach;
mod call;
mod events;
mod fault;
mod lag;
mod wire;

#[cfg(test)]
pub(crate) use approach::Consulted;
pub(crate) use approach::{Approach, Standing};
pub use call::Call;
pub use fault::{Fault, How, Lag, Outage, OutageKind, Past, Watched};
pub use wire::{Announcement, Authored, Point, Read, Wire};
pub(crate) use wire::{Choice, TOUCHED};
