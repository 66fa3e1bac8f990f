//! Runs the pods that are bound to this node: as local processes, or, for load tests, by pretending to.
//!
//! - [`lifecycle`] decides, without clock or IO, what happens to a pod next;
//! - `nursery` is the process that owns the containers' processes and outlives the rest (docs/decisions/0003);
//! - `agent` connects both with the API: watches pods, carries out decisions, reports statuses;
//! - [`logs`] writes and reads the output of containers;
//! - [`history`] is where others hear of ended containers before they are forgotten;
//! - `simulated` plays a node without processes.
//!
//! Everything goes through a `kube::Client` (design D1); which node a pod runs on is the scheduler's business.

mod agent;
mod calls;
pub mod history;
mod launch;
pub mod lifecycle;
pub mod logs;
mod moment;
pub mod nursery;
mod pod;
mod registration;
mod simulated;

pub use agent::{Capacity, Error, Options, ProcessNode};
pub use moment::{Clock, Moment};
pub use pod::{Phase, Pod};
pub use simulated::{Behaviour, SimulatedNodes, SimulatedOptions};
