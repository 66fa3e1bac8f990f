//! What failed because the server could not be reached need not wait out its delay when it can be again (REG-C25).
//!
//! Delays double (JC-105), so after an outage of ten seconds the next attempt may be as many away. Watches are opened
//! again much sooner, and the first that is tells that it is over.

use super::{
    queue::{Key, WorkQueue},
    reflector::Progress,
    supervise::Shutdown,
};

/// Until shutdown: work of the queue that failed is tried again as soon as a mirror hears of the server again.
pub async fn retry_on_recovery<K: Key>(queue: WorkQueue<K>, mut mirror: Progress, shutdown: Shutdown) {
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            () = mirror.recovered() => queue.retry_now(),
        }
    }
}
