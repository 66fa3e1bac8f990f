//! Nodes: the product's own pod lifecycle, over processes that only exist on paper (P-18).
//!
//! [`Machine`] is what outlives the node's process: the containers. [`Agent`] is the process, which finds them again.

mod agent;
mod machine;

use std::sync::Arc;

use jiff::Timestamp;
use tokio::time::Instant;

pub use agent::Agent;
pub use machine::{Fate, Fates, Instance, Machine};

/// What the node's clock shows at a moment.
pub type Walls = Arc<dyn Fn(Instant) -> Timestamp + Send + Sync>;

/// What the parts of this module call a pod.
pub type Uid = Arc<str>;
