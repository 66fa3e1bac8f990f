//! A Job that goes on: what its pods do, and why those that should be there are not.

use batch_types::constants::value;

use super::case::Case;
use super::hold::{Hold, combine};
use super::{backoff, creation, failures};
use crate::answer::{Answer, State};
use crate::object::Object;
use crate::pod::{self, Diagnosis, PATIENCE_SECS};
use crate::words::{counted, foreign, verb};

pub(super) fn explain(case: &Case<'_>) -> Answer {
    let mut groups = groups(case);
    let missing = missing(case);
    let running = running(case, &mut groups);
    let mut holds: Vec<Hold> = running.into_iter().collect();
    holds.extend(groups.into_iter().map(|group| trouble(case, group)));
    if missing > 0 {
        holds.extend(why_missing(case, missing));
    }
    if holds.is_empty() {
        holds.push(between_steps(case));
    }
    let answer = combine(case.snapshot, holds)
        .unwrap_or_else(|| Answer::new(case.snapshot, State::Starting, "Nothing is known about its pods."));
    answer.evidence(failures::evidence(case))
}

/// Active pods that share a state and a cause.
struct Group<'a> {
    diagnosis: Diagnosis,
    pods: Vec<Object<'a>>,
}

/// The largest first.
fn groups<'a>(case: &Case<'a>) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    for pod in case.pods.iter().filter(|pod| pod.is_active()) {
        let diagnosis = pod::diagnose(case.snapshot, pod.object);
        // Running pods are one group whatever their probes say.
        let same = |group: &&mut Group<'_>| {
            group.diagnosis.state == diagnosis.state
                && (diagnosis.state == State::Running || group.diagnosis.cause == diagnosis.cause)
        };
        match groups.iter_mut().find(same) {
            Some(group) => {
                group.diagnosis.since = group.diagnosis.since.into_iter().chain(diagnosis.since).min();
                group.pods.push(pod.object);
            }
            None => groups.push(Group { diagnosis, pods: vec![pod.object] }),
        }
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.pods.len()));
    groups
}

fn running(case: &Case<'_>, groups: &mut Vec<Group<'_>>) -> Option<Hold> {
    let position = groups.iter().position(|group| group.diagnosis.state == State::Running);
    let (count, diagnosis) = match position {
        Some(position) => {
            let group = groups.remove(position);
            (group.pods.len() as u64, Some(group.diagnosis))
        }
        // Pods that could not be seen are counted by the controller.
        None if case.snapshot.pods.is_none() => (case.job.count("/status/active"), None),
        None => (0, None),
    };
    if count == 0 {
        return None;
    }
    let progress = case.progress();
    let separator = if progress.is_empty() { "" } else { ", " };
    let sentence = format!("It runs: {}{separator}{progress}.", active(count, diagnosis.is_some()));
    let since = case.job.time("/status/startTime");
    let hold = Hold::new(State::Running, sentence).since(since).next("it ends when its pods have", None);
    let hold = hold.action(format!("tally logs {}", case.argument()));
    Some(match diagnosis {
        Some(diagnosis) => hold.evidence(diagnosis.evidence),
        None => hold,
    })
}

fn active(count: u64, are_seen: bool) -> String {
    let state = if are_seen { "running" } else { "active" };
    format!("{} {} {state}", counted(count, "pod"), verb(count, "is", "are"))
}

fn trouble(case: &Case<'_>, group: Group<'_>) -> Hold {
    let count = group.pods.len() as u64;
    let Diagnosis { state, ref cause, since, .. } = group.diagnosis;
    let separator = if cause.is_empty() { "" } else { ": " };
    let sentence = format!("{} {}{separator}{cause}.", counted(count, "pod"), group.diagnosis.phrase(count));
    let mut hold = Hold::new(state, sentence).since(since);
    hold.next = group.diagnosis.next;
    hold.actions = group.diagnosis.actions;
    hold.evidence = group.diagnosis.evidence;
    if let Some(count) = restarts(case).filter(|_| state == State::Restarting) {
        hold = hold.next(count, None);
    }
    match group.pods.first().filter(|_| hold.actions.is_empty()) {
        Some(example) => hold.action(format!("tally why pod/{}{}", foreign(example.name()), case.flag())),
        None => hold,
    }
}

/// JC-903: with `restartPolicy: OnFailure` the restarts of all pods together count against backoffLimit.
fn restarts(case: &Case<'_>) -> Option<String> {
    if case.job.text("/spec/template/spec/restartPolicy") != Some(value::RESTART_ON_FAILURE) {
        return None;
    }
    let unfinished = case.pods.iter().filter(|pod| !pod.view.phase.is_terminal());
    let restarts: u64 = unfinished.map(|pod| pod.view.restarts.sum).sum();
    let limit = case.job.int("/spec/backoffLimit").unwrap_or(6).max(1);
    Some(format!("the Job fails with restart number {limit} of its pods' containers; there have been {restarts}"))
}

/// Pods that should be active and are not.
fn missing(case: &Case<'_>) -> u64 {
    let active = match case.snapshot.pods {
        Some(_) => case.pods.iter().filter(|pod| pod.is_active()).count() as u64,
        None => case.job.count("/status/active"),
    };
    let failed_indexes = case.indexes("/status/failedIndexes").len() as u64;
    let wanted = match case.completions() {
        // Failed indexes are not tried again (JC-1504).
        Some(completions) if failed_indexes > 0 => {
            let done = case.job.count("/status/succeeded") + failed_indexes;
            case.wanted().min(u64::from(completions.unsigned_abs()).saturating_sub(done))
        }
        _ => case.wanted(),
    };
    wanted.saturating_sub(active)
}

fn why_missing(case: &Case<'_>, missing: u64) -> Option<Hold> {
    None.or_else(|| creation::refused(case, missing))
        .or_else(|| waiting_for_terminating(case, missing))
        .or_else(|| backoff::waiting(case))
}

/// JC-1009: with `podReplacementPolicy: Failed`, or any podFailurePolicy, a replacement waits for the old pod's end.
fn waiting_for_terminating(case: &Case<'_>, missing: u64) -> Option<Hold> {
    let terminating: Vec<_> = case.terminating().collect();
    let first = terminating.first().filter(|_| case.replaces_only_failed())?;
    let because = match case.job.at("/spec/podFailurePolicy") {
        Some(_) => "a podFailurePolicy is set",
        None => "podReplacementPolicy is Failed",
    };
    let count = terminating.len() as u64;
    let diagnosis = pod::diagnose(case.snapshot, first.object);
    let sentence = format!(
        "{} {} for {} to end first, because {because}: {}.",
        counted(missing, "new pod"),
        verb(missing, "waits", "wait"),
        counted(count, "terminating pod"),
        diagnosis.cause
    );
    let mut hold = Hold::new(State::WaitingForTerminatingPods, sentence).since(diagnosis.since);
    hold.next = diagnosis.next;
    hold.actions = diagnosis.actions;
    hold.evidence = diagnosis.evidence;
    Some(hold.action(format!("tally why pod/{}{}", foreign(first.object.name()), case.flag())))
}

/// No pod is there, none is missing for a known reason.
fn between_steps(case: &Case<'_>) -> Hold {
    let latest = case.pods.iter().filter_map(|pod| pod.view.finished).max();
    let since = latest.or(case.job.time("/status/startTime")).or(case.job.created());
    let quiet_secs = since.map_or(0, |since| case.now.duration_since(since).as_secs());
    let manager = case
        .job
        .text("/spec/managedBy")
        .map_or_else(|| "the Job controller".to_owned(), |name| format!("controller `{}`", foreign(name)));
    if case.job.int("/spec/parallelism") == Some(0) {
        return Hold::new(State::Suspended, "It has `parallelism: 0`, so no pods are made.")
            .since(since)
            .action(format!("kubectl patch {} -p '{{\"spec\":{{\"parallelism\":1}}}}'", case.argument()));
    }
    if quiet_secs < PATIENCE_SECS {
        // Whether anybody is at work on a new Job is not known yet.
        let summary = match latest.or(case.job.time("/status/startTime")) {
            None => format!("It was just created: {manager} has not looked at it yet."),
            Some(_) => format!("It has just begun, or goes on in a moment: {manager} is at work."),
        };
        return Hold::new(State::Starting, summary).since(since).next("pods are made, or the Job ends", None);
    }
    Hold::new(
        State::NoController,
        format!("It has no pods to wait for and nothing goes on: {manager} may be behind or not running."),
    )
    .since(since)
    .action(format!("check that {manager} runs, and its log"))
}
