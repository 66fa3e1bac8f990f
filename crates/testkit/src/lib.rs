//! What tests and soaks share.
//!
//! For tests with real processes: a `tally up` process and clients for it, small objects, and waiting for conditions.
//! Everything stays on loopback with free ports and in temporary directories, and every process that is started here is
//! ended here.
//!
//! For proofs without any: a `world` in one thread and virtual time, a `node` with processes on paper, `faults` on the way
//! between controllers and server, an `oracle` that judges what happened, and the `enumeration` of all faults at all calls, with a
//! `rewind` to try them from one moment on.
//!
//! For both at once: such a world in a `cluster`, where the faults are those of a proxy.

pub mod cluster;
pub mod enumeration;
pub mod faults;
pub mod node;
mod objects;
pub mod oracle;
#[cfg(target_arch = "x86_64")]
pub mod rewind;
mod tally;
pub mod world;

pub use objects::{config_map, job, pod};
pub use tally::{Tally, client_for};
