//! The controllers: watch, decide with `batch-plan`, act through the API.
//!
//! Everything goes through a `kube::Client` (design D1), so that the same code runs against the embedded server and
//! against any cluster. Decisions are pure functions in `batch-plan`; here is the shell around them.

pub mod cronjob;
pub mod gc;
pub mod job;
pub mod namespace;
pub mod podgc;
pub mod runtime;
pub mod scheduler;
pub mod ttl;

#[cfg(test)]
mod faults;
#[cfg(test)]
mod regressions;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod wire;
