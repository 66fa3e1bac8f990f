//! How containers ended and what they printed last, kept after their pods and Jobs are gone.
//!
//! One [`Record`] for every ended run of a container, with the end of its log, in append-only files:
//!
//! - `record` is what is kept and how it looks in a file: length, checksum, JSON, log;
//! - `segment` is one file: its name, finding where its sound part ends;
//! - [`Writer`] is one thread that appends, syncs, and removes the oldest files when a bound is reached;
//! - [`Reader`] finds records without taking part: it needs no lock, and works while a writer is at work.
//!
//! The crate knows nothing of Kubernetes' API; who calls it decides what a run is.

mod reader;
mod record;
mod segment;
mod writer;

pub use reader::{Found, Query, ReadError, Reader};
pub use record::{LOG_MAX, Record};
pub use writer::{Bounds, OpenError, Run, Writer};
