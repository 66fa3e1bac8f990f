//! A model checker of the Job controller: every history of a small world, with the real plan inside.
//!
//! One Job, a handful of pods, an API server that keeps promises, nodes, users, and a controller whose caches lag, whose
//! calls are refused or lose their answers, and which crashes between any two of them. Each transition is one call, one
//! event or one mishap. What the controller does is decided by `batch_plan::job::plan` itself; the shell around it is
//! rewritten here, call by call, in the order in which `controllers::job` makes them.
//!
//! | file | what |
//! |---|---|
//! | `config` | which Jobs, and how much of what may happen |
//! | `pod`, `job` | objects in a few bytes, and as the plan wants to see them |
//! | `state` | everything that can differ between two moments |
//! | `server` | what the API server does, and the promises that every write is held to |
//! | `controller` | one sync, replayed from its snapshot up to the next call |
//! | `actions` | what can happen next |
//! | `settle` | what must come of any state once nothing goes wrong any more |
//! | `coverage` | situations that a run must have met to prove anything |
//! | `check` | all of it as a stateright model, and the report |
//!
//! Time stands still, except that a deadline can pass: pod-failure delays are zero here, and proved in `batch-plan`.
//! Watches deliver everything up to some moment, so a cache is the world at any earlier time; updates may be merged.

mod actions;
mod check;
mod config;
mod controller;
mod coverage;
mod job;
mod pod;
mod server;
mod settle;
mod state;

pub use check::{Limits, Order, Report, check};
pub use config::{Config, nightly, per_commit, smallest};
pub use coverage::Row;
