//! A Job that waits before it tries again (JC section 11).

use batch_plan::job::{Phase, Settings, backoff_remaining};
use jiff::{SignedDuration, Timestamp};

use super::case::{Case, Pod};
use super::failures;
use super::hold::Hold;
use crate::answer::State;
use crate::pod;
use crate::words::{counted, listed, relative, verb};

/// The delay before the next pod, if there is one. As in the controller it follows from when pods ended; those that
/// have been deleted since are not known any more.
pub(super) fn waiting(case: &Case<'_>) -> Option<Hold> {
    match case.job.int("/spec/backoffLimitPerIndex") {
        Some(limit) => per_index(case, limit),
        None => whole_job(case),
    }
}

fn whole_job(case: &Case<'_>) -> Option<Hold> {
    let succeeded = case.pods.iter().filter(|pod| pod.view.phase == Phase::Succeeded);
    let last_success = succeeded.filter_map(|pod| pod.view.finished).max();
    let after = |at: &Timestamp| last_success.is_none_or(|success| *at > success);
    let failures: Vec<Timestamp> = case.failed().filter_map(|pod| pod.view.finished).filter(after).collect();
    let last = *failures.iter().max()?;
    let at = retry_at(failures.len() as u64, last, case.now)?;
    let newest = case.failed().filter(|pod| pod.view.finished == Some(last)).last()?;
    let count = failures.len() as u64;
    let failed = match count {
        1 => "its pod failed".to_owned(),
        _ => format!("{} failed in a row, the last one", counted(count, "pod")),
    };
    let when = relative(last, case.now);
    let sentence = format!("It waits before it tries again: {failed} {when}: {}.", failures::of(newest));
    Some(
        Hold::new(State::BackingOff, sentence)
            .since(Some(last))
            .next(format!("a new pod is created; {}", retries_left(case)), Some(at))
            .action(format!("tally logs {} --failed", case.argument()))
            .actions(pod::remedy(newest.object)),
    )
}

/// JC-1107: each index waits by itself.
fn per_index(case: &Case<'_>, limit: i64) -> Option<Hold> {
    let is_active = |index: u32| case.pods.iter().any(|pod| pod.is_active() && pod.view.index == Some(index));
    let (completed, failed) = (case.indexes("/status/completedIndexes"), case.indexes("/status/failedIndexes"));
    let is_open = |index: u32| !completed.contains(index) && !failed.contains(index) && !is_active(index);
    let waiting = |pod: &Pod<'_>| {
        let index = pod.view.index.filter(|index| is_open(*index))?;
        let counts = pod.view.failure_counts;
        let at = retry_at(counts.total() + 1, pod.view.finished?, case.now)?;
        Some((at, index, u64::from(counts.counted) + 1))
    };
    let mut found: Vec<_> = case.failed().filter_map(waiting).collect();
    // The newest pod of an index counts; it is the one that waits longest.
    found.sort_unstable_by_key(|(at, index, _)| (*index, std::cmp::Reverse(*at)));
    found.dedup_by_key(|(_, index, _)| *index);
    found.sort_unstable();
    let (first, index, failures) = *found.first()?;
    let mut indexes: Vec<u32> = found.iter().map(|(_, index, _)| *index).collect();
    indexes.sort_unstable();
    let names: Vec<String> = indexes.iter().take(5).map(u32::to_string).collect();
    let more = if found.len() > names.len() { ", …" } else { "" };
    let noun = verb(found.len() as u64, "Index", "Indexes");
    let sentence = format!(
        "{noun} {}{more} {} before being tried again.",
        listed(&names),
        verb(found.len() as u64, "waits", "wait")
    );
    let left = u64::try_from(limit).unwrap_or(0).saturating_add(1).saturating_sub(failures);
    Some(
        Hold::new(State::BackingOff, sentence)
            .since(case.failed().filter_map(|pod| pod.view.finished).max())
            .next(
                format!("a new pod for index {index} is created; backoffLimitPerIndex allows {left} more"),
                Some(first),
            )
            .action(format!("tally logs {} --failed", case.argument())),
    )
}

/// When the delay after these failures is over; `None` if it is.
fn retry_at(failures: u64, last: Timestamp, now: Timestamp) -> Option<Timestamp> {
    let left = backoff_remaining(failures, last, now, &Settings::default());
    let left = SignedDuration::try_from(left).ok().filter(|left| !left.is_zero())?;
    now.checked_add(left).ok()
}

/// JC-901 #4: the Job fails when more pods have failed than the limit.
fn retries_left(case: &Case<'_>) -> String {
    let limit = case.job.int("/spec/backoffLimit").unwrap_or(6).max(0).unsigned_abs();
    // The Job was read before its pods, one of which may have been counted and released in between. Whether a policy
    // let a released pod count is not known.
    let policy = case.job.at("/spec/podFailurePolicy").is_some();
    let shown = case.failed().filter(|pod| pod.view.finalizer || !policy).count() as u64;
    let failed = case.job.count("/status/failed").max(shown);
    let left = limit.saturating_add(1).saturating_sub(failed);
    match left {
        0 => "no retry is left".to_owned(),
        1 => "it is the last one that backoffLimit allows".to_owned(),
        _ => format!("backoffLimit allows {left} more"),
    }
}
