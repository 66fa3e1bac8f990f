//! Garbage collection by owner references (PL-91…PL-98).
//!
//! `graph` knows who depends on whom and which news make an object worth judging; `verdict` says what becomes of an
//! object once it is known how its owners stand. Watching, asking the server about owners and acting are in
//! `controllers`.

mod graph;
mod object;
mod verdict;

pub use graph::{Graph, Situation, Step};
pub use object::{Deletion, Kind, Object, OwnerReference, Propagation, Uid};
pub use verdict::{Standing, Verdict, verdict};
