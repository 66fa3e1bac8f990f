//! What the controllers decide, as pure functions: from a snapshot to a plan.
//!
//! No clock, no randomness, no IO and nothing asynchronous in here; time is an argument. Watching, calling the API and
//! waiting are in `controllers`.

pub mod cronjob;
pub mod gc;
pub mod job;
pub mod podgc;
pub mod ttl;
