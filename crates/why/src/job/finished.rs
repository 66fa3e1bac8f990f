//! A Job that is over, or whose end is decided.

use batch_plan::ttl::{self, AFTER_FAILURE, AFTER_SUCCESS, Finish, Lifetime, Outcome, Seconds, Subject};
use batch_types::constants::{condition, reason};

use super::case::Case;
use super::failures;
use crate::answer::{Answer, Evidence, State};
use crate::object::{Condition, Object};
use crate::pod;
use crate::words::{clause, counted, foreign, seconds, span, verb};

pub(super) fn explain(case: &Case<'_>) -> Option<Answer> {
    let job = case.job;
    if let Some(complete) = job.is_true(condition::COMPLETE) {
        return Some(with_lifetime(case, completed(case, complete), Outcome::Succeeded, complete));
    }
    let failed = job.is_true(condition::FAILED)?;
    Some(with_lifetime(case, failed_answer(case, failed), Outcome::Failed, failed))
}

/// A verdict that waits for the last pods (JC-1904).
pub(super) fn ending(case: &Case<'_>) -> Option<Answer> {
    let success = case.job.is_true(condition::SUCCESS_CRITERIA_MET);
    let failure = case.job.is_true(condition::FAILURE_TARGET);
    let (state, verdict, word) = match (success, failure) {
        (Some(verdict), _) => (State::Completing, verdict, "Complete"),
        (None, Some(verdict)) => (State::Failing, verdict, "Failed"),
        _ => return None,
    };
    let alive: Vec<_> = case.pods.iter().filter(|pod| !pod.view.phase.is_terminal()).collect();
    let count = match case.snapshot.pods {
        Some(_) => alive.len() as u64,
        None => case.job.count("/status/terminating") + case.job.count("/status/active"),
    };
    let decided = format!("Its end is decided ({})", because(case, verdict));
    let summary = match count {
        0 => format!("{decided}; the Job controller is about to mark it {word}."),
        _ => format!(
            "{decided}, and it is marked {word} when {} still ending {} gone.",
            counted(count, "pod"),
            verb(count, "is", "are")
        ),
    };
    let mut answer = Answer::new(case.snapshot, state, summary).since(verdict.since);
    answer = answer.next(format!("the Job becomes {word}"), None);
    if let Some(first) = alive.first() {
        let diagnosis = pod::diagnose(case.snapshot, first.object);
        let name = foreign(first.object.name());
        let text = format!("{}: {}", diagnosis.phrase(1), diagnosis.cause);
        answer.next.extend(diagnosis.next);
        answer = answer
            .evidence([Evidence::new(format!("pod/{name}"), text, diagnosis.since)])
            .evidence(diagnosis.evidence)
            .action(format!("tally why pod/{name}{}", case.flag()));
        answer = diagnosis.actions.into_iter().fold(answer, Answer::action);
    }
    Some(answer.evidence(rule(case, verdict)).evidence(failures::evidence(case)))
}

fn completed(case: &Case<'_>, complete: Condition<'_>) -> Answer {
    let took = case.job.time("/status/completionTime").zip(case.job.time("/status/startTime"));
    let took = took.map(|(end, start)| format!(" after {}", span(end.duration_since(start)))).unwrap_or_default();
    let succeeded = counted(case.job.count("/status/succeeded"), "pod");
    let failed = match case.job.count("/status/failed") {
        0 => String::new(),
        failed => format!(", {} failed on the way", counted(failed, "pod")),
    };
    let policy = match complete.reason {
        reason::SUCCESS_POLICY => ", because its success policy was met",
        _ => "",
    };
    let summary = format!("It is complete{took}: {succeeded} succeeded{failed}{policy}.");
    Answer::new(case.snapshot, State::Complete, summary).evidence(rule(case, complete))
}

fn failed_answer(case: &Case<'_>, failed: Condition<'_>) -> Answer {
    let newest = case.failed().max_by_key(|pod| pod.view.finished).map(failures::of);
    let cause = newest.filter(|_| failed.reason != reason::POD_FAILURE_POLICY);
    let cause = cause.map(|cause| format!(" The last failure: {cause}.")).unwrap_or_default();
    let summary = format!("It failed: {}.{cause}", because(case, failed));
    let indexed = if case.is_indexed() { " --failed" } else { "" };
    let remedy = case.failed().max_by_key(|pod| pod.view.finished).and_then(|pod| pod::remedy(pod.object));
    let answer = Answer::new(case.snapshot, State::Failed, summary);
    remedy
        .into_iter()
        .fold(answer, Answer::action)
        .action(format!("tally logs {} --failed", case.argument()))
        .action(format!("tally history {}", case.argument()))
        .action(format!("tally rerun {}{indexed}", case.argument()))
        .evidence([Evidence::new(
            case.about(),
            format!("condition Failed, {}: {}", foreign(failed.reason), clause(failed.message)),
            failed.since,
        )])
        .evidence(rule(case, failed))
        .evidence(failures::evidence(case))
}

/// A verdict's reason in words, with the numbers of this Job.
fn because(case: &Case<'_>, verdict: Condition<'_>) -> String {
    let (job, failed) = (case.job, case.job.count("/status/failed"));
    match verdict.reason {
        reason::BACKOFF_LIMIT_EXCEEDED => {
            let limit = job.int("/spec/backoffLimit").unwrap_or(6);
            format!("{} failed, more than backoffLimit {limit} allows", counted(failed, "pod"))
        }
        reason::DEADLINE_EXCEEDED => {
            let limit = job.int("/spec/activeDeadlineSeconds").map(|limit| format!(" ({})", seconds(limit)));
            format!("it ran longer than activeDeadlineSeconds{}", limit.unwrap_or_default())
        }
        reason::FAILED_INDEXES => {
            format!("indexes {} failed for good", foreign(job.text("/status/failedIndexes").unwrap_or("?")))
        }
        reason::MAX_FAILED_INDEXES_EXCEEDED => format!(
            "indexes {} failed, more than maxFailedIndexes {} allows",
            foreign(job.text("/status/failedIndexes").unwrap_or("?")),
            job.int("/spec/maxFailedIndexes").unwrap_or(0)
        ),
        reason::POD_FAILURE_POLICY => format!("its pod failure policy says so: {}", clause(verdict.message)),
        reason::SUCCESS_POLICY => "its success policy is met".to_owned(),
        reason::COMPLETIONS_REACHED => "all completions are reached".to_owned(),
        other => {
            let message = clause(verdict.message);
            if message.is_empty() { foreign(other) } else { format!("{}: {message}", foreign(other)) }
        }
    }
}

/// The rule that a message refers to by its index, as the spec has it.
fn rule(case: &Case<'_>, verdict: Condition<'_>) -> Option<Evidence> {
    let list = match verdict.reason {
        reason::POD_FAILURE_POLICY => "/spec/podFailurePolicy/rules",
        reason::SUCCESS_POLICY => "/spec/successPolicy/rules",
        _ => return None,
    };
    let (_, number) = verdict.message.rsplit_once("at index ")?;
    let number: usize = number.split(|char: char| !char.is_ascii_digit()).next()?.parse().ok()?;
    let rule: Object<'_> = case.job.list(list).nth(number)?;
    Some(Evidence::new(case.about(), format!("rule {number}: {}", foreign(&rule.0.to_string())), None))
}

/// Until when the object is kept (TTL-3).
fn with_lifetime(case: &Case<'_>, answer: Answer, outcome: Outcome, condition: Condition<'_>) -> Answer {
    let annotated = |key: &str| case.job.annotation(key).map(Seconds::parse);
    let subject = Subject {
        terminating: false,
        finish: Some(Finish { outcome, at: condition.since }),
        after_finished: case.job.int("/spec/ttlSecondsAfterFinished").map(Seconds::Number),
        after_success: annotated(AFTER_SUCCESS),
        after_failure: annotated(AFTER_FAILURE),
    };
    let answer = answer.since(condition.since);
    match ttl::lifetime(&subject, None) {
        Lifetime::Until(at) => {
            let what = match at > case.now {
                true => "the Job and its pods are deleted, its time to live is over",
                false => {
                    "its time to live is over: the Job and its pods are deleted as soon as the TTL controller comes by"
                }
            };
            answer.next(what, Some(at))
        }
        Lifetime::Unlimited => answer.next("nothing: it is kept until somebody deletes it", None),
        Lifetime::Unknown(problem) => answer.next(format!("nothing: it is kept, because {problem}"), None),
    }
}
