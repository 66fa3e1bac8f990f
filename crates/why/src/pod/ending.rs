//! A pod that is being deleted and is still there.

use batch_types::constants::finalizer;

use super::{Case, Diagnosis, PATIENCE_SECS, placement};
use crate::answer::{Evidence, State};
use crate::words::{foreign, listed};

pub(super) fn diagnose(case: Case<'_>) -> Diagnosis {
    let pod = case.pod;
    // The API writes the moment at which the grace period is over.
    let end_of_grace = pod.time("/metadata/deletionTimestamp");
    let grace = jiff::SignedDuration::from_secs(pod.int("/metadata/deletionGracePeriodSeconds").unwrap_or(0).max(0));
    let asked = end_of_grace.and_then(|end| end.checked_sub(grace).ok());
    let finalizers: Vec<String> = pod.finalizers().into_iter().map(foreign).collect();
    let evidence: Vec<Evidence> = match finalizers.is_empty() {
        true => Vec::new(),
        false => vec![Evidence::new(case.about(), format!("has finalizers {}", listed(&finalizers)), None)],
    };
    let has_ended = matches!(pod.text("/status/phase"), Some("Succeeded" | "Failed"));
    if has_ended || case.node().is_none() {
        return kept_by_finalizers(case, &finalizers).since(end_of_grace).evidence(evidence);
    }
    let is_over = end_of_grace.is_some_and(|end| case.now.duration_since(end).as_secs() > PATIENCE_SECS);
    if !is_over {
        return Diagnosis::new(State::Deleting, "its processes have been asked to stop and still run")
            .since(asked)
            .next("what still runs is killed", end_of_grace)
            .evidence(evidence);
    }
    let node = foreign(case.node().unwrap_or_default());
    if let Some(lost) = placement::lost_node(case) {
        return Diagnosis { state: State::Deleting, ..lost }.since(end_of_grace).evidence(evidence);
    }
    Diagnosis::new(
        State::Deleting,
        format!("node `{node}` has not confirmed its end although the grace period is over"),
    )
    .since(end_of_grace)
    .action(format!("look at node `{node}`: whatever runs pods there must be working"))
    .evidence(evidence)
}

/// Nothing runs any more; the object stays until every finalizer is gone.
fn kept_by_finalizers(case: Case<'_>, finalizers: &[String]) -> Diagnosis {
    let argument = case.argument();
    match finalizers {
        [] => Diagnosis::new(State::Deleting, "nothing runs any more and its object is about to go"),
        [only] if only == finalizer::JOB_TRACKING => Diagnosis::new(
            State::Deleting,
            format!("it has ended and finalizer `{only}` keeps it until the Job controller has counted it"),
        )
        .action("check that the Job controller runs; it removes this finalizer by itself"),
        _ => {
            let others: Vec<String> = finalizers
                .iter()
                .filter(|name| *name != finalizer::JOB_TRACKING)
                .map(|name| format!("`{name}`"))
                .collect();
            Diagnosis::new(
                State::Deleting,
                format!("it has ended and stays until finalizer {} is removed by whoever set it", listed(&others)),
            )
            .action("find out who sets that finalizer and why it is not removed")
            .action(format!(
                "if nobody will: kubectl patch {argument} --type=merge -p '{{\"metadata\":{{\"finalizers\":null}}}}'"
            ))
        }
    }
}
