//! Which finished Jobs are too many (CJ-13).

use std::sync::Arc;

use super::{Ending, JobView, Spec};

/// The Jobs to delete: of each outcome the oldest beyond its limit. Those that are being deleted already count, and are
/// left alone.
pub(super) fn surplus(spec: &Spec, jobs: &[Arc<JobView>]) -> Vec<Arc<JobView>> {
    let limits =
        [(Ending::Complete, spec.successful_jobs_history_limit), (Ending::Failed, spec.failed_jobs_history_limit)];
    let beyond = |(ending, limit): (Ending, Option<i32>)| {
        let limit = usize::try_from(limit?).unwrap_or(0);
        let mut finished: Vec<_> = jobs.iter().filter(|job| job.ending == Some(ending)).collect();
        let excess = finished.len().saturating_sub(limit);
        finished.sort_by(|a, b| started(a).cmp(&started(b)).then_with(|| a.name.cmp(&b.name)));
        finished.truncate(excess);
        Some(finished)
    };
    let surplus = limits.into_iter().filter_map(beyond).flatten();
    surplus.filter(|job| !job.terminating).cloned().collect()
}

/// By start time, those without one last.
fn started(job: &JobView) -> (bool, Option<jiff::Timestamp>) {
    (job.start_time.is_none(), job.start_time)
}
