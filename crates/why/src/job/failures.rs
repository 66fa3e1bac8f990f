//! What failed, by index where there are indexes.

use std::cmp::Reverse;

use batch_plan::job::Phase;

use super::case::{Case, Pod};
use crate::answer::Evidence;
use crate::pod;
use crate::words::foreign;

/// The newest failures tell most.
const SHOWN_MAX: usize = 5;

/// Why a pod failed, in few words.
pub(super) fn of(pod: &Pod<'_>) -> String {
    match pod.view.phase.is_terminal() {
        true => pod::failure(pod.object),
        false => "it is being deleted".to_owned(),
    }
}

/// The failed pods that still exist, newest first.
pub(super) fn evidence(case: &Case<'_>) -> Vec<Evidence> {
    let mut failed: Vec<&Pod<'_>> = case.pods.iter().filter(|pod| pod.view.phase == Phase::Failed).collect();
    failed.sort_by_key(|pod| Reverse(pod.view.finished));
    let mut lines: Vec<Evidence> = failed
        .iter()
        .take(SHOWN_MAX)
        .map(|pod| {
            let index = pod.view.index.map(|index| format!("index {index} ")).unwrap_or_default();
            let about = format!("pod/{}", foreign(pod.object.name()));
            Evidence::new(about, format!("{index}failed: {}", of(pod)), pod.view.finished)
        })
        .collect();
    if failed.len() > SHOWN_MAX {
        let text = format!("and {} more failed pods", failed.len() - SHOWN_MAX);
        lines.push(Evidence::new(case.about(), text, None));
    }
    if let Some(indexes) = case.job.text("/status/failedIndexes") {
        lines.push(Evidence::new(case.about(), format!("failed indexes: {}", foreign(indexes)), None));
    }
    lines
}
