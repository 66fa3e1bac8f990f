//! A Job that is being deleted and is still there.

use batch_types::constants::finalizer;

use super::case::Case;
use crate::answer::{Answer, Evidence, State};
use crate::pod;
use crate::words::{counted, foreign, listed, verb};

pub(super) fn explain(case: &Case<'_>) -> Option<Answer> {
    if !case.job.is_deleting() {
        return None;
    }
    let since = case.job.time("/metadata/deletionTimestamp");
    let finalizers = case.job.finalizers();
    let foreign_ones: Vec<String> = finalizers
        .iter()
        .filter(|name| ![finalizer::FOREGROUND_DELETION, finalizer::ORPHAN_DEPENDENTS].contains(name))
        .map(|name| format!("`{}`", foreign(name)))
        .collect();
    let answer = if !foreign_ones.is_empty() {
        let summary = format!(
            "It is being deleted and stays until finalizer {} is removed by whoever set it.",
            listed(&foreign_ones)
        );
        Answer::new(case.snapshot, State::Deleting, summary)
            .action("find out who sets that finalizer and why it is not removed")
            .action(format!(
                "if nobody will: kubectl patch {} --type=merge -p '{{\"metadata\":{{\"finalizers\":null}}}}'",
                case.argument()
            ))
    } else if finalizers.contains(&finalizer::FOREGROUND_DELETION) {
        foreground(case)
    } else {
        let summary = "It is being deleted and is about to go.";
        Answer::new(case.snapshot, State::Deleting, summary).next("the garbage collector removes it", None)
    };
    let names: Vec<String> = finalizers.into_iter().map(foreign).collect();
    let fact =
        (!names.is_empty()).then(|| Evidence::new(case.about(), format!("has finalizers {}", listed(&names)), None));
    Some(answer.since(since).evidence(fact))
}

/// Foreground deletion: the Job's pods go first (TTL-9).
fn foreground(case: &Case<'_>) -> Answer {
    let count = case.pods.len() as u64;
    let Some(first) = case.pods.first() else {
        let summary = "It is being deleted, its dependents first; none of its pods is left.";
        return Answer::new(case.snapshot, State::Deleting, summary).next("the garbage collector removes it", None);
    };
    let summary = format!(
        "It is being deleted, its pods first: {} {} still there.",
        counted(count, "pod"),
        verb(count, "is", "are")
    );
    let diagnosis = pod::diagnose(case.snapshot, first.object);
    let name = foreign(first.object.name());
    let text = format!("{}: {}", diagnosis.phrase(1), diagnosis.cause);
    let mut answer = Answer::new(case.snapshot, State::Deleting, summary)
        .next("the garbage collector removes it when they are gone", None)
        .evidence([Evidence::new(format!("pod/{name}"), text, diagnosis.since)])
        .evidence(diagnosis.evidence)
        .action(format!("tally why pod/{name}{}", case.flag()));
    answer.next.extend(diagnosis.next);
    diagnosis.actions.into_iter().fold(answer, Answer::action)
}
