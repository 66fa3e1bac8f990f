//! What tests and soaks share: a real `tally up` process and clients for it, small objects, and waiting for conditions.
//!
//! Everything stays on loopback with free ports and in temporary directories, and every process that is started here is
//! ended here.

mod objects;
mod tally;

pub use objects::{config_map, job, pod};
pub use tally::{Tally, client_for};
