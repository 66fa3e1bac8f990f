//! What the controllers share: watching, queueing, recording, measuring, electing and supervising.
//!
//! Nothing here knows a kind of object beyond what its own job needs (Events, Leases), and nothing here decides
//! anything about Jobs or pods.

pub mod alarms;
pub mod backoff;
pub mod cache;
pub mod context;
mod correlator;
pub mod discovery;
pub mod endpoint;
pub mod environment;
pub mod intern;
mod known;
pub mod leader;
pub mod limiter;
pub(crate) mod lru;
pub mod metrics;
pub mod queue;
mod queue_metrics;
pub mod recorder;
pub mod recovery;
pub mod reflector;
pub mod requests;
pub mod resource;
pub mod supervise;
mod watch_stream;

pub use self::{
    alarms::Alarms,
    backoff::Backoff,
    cache::{Cache, Delta},
    context::ControllerContext,
    environment::Environment,
    metrics::Metrics,
    queue::{RetryPolicy, Work, WorkQueue},
    recorder::{EventType, ObjectRef, Recorder},
    recovery::retry_on_recovery,
    reflector::{Change, Mirrored, Progress, Reflector, Source, all_synced},
    resource::Resource,
    supervise::{Shutdown, Supervisor, TaskError},
};
