//! How pods and their containers ended.

use batch_types::constants::annotation;

use super::{Case, Diagnosis};
use crate::answer::{Evidence, State};
use crate::object::Object;
use crate::words::{clause, foreign, span};

pub(super) fn succeeded(case: Case<'_>) -> Diagnosis {
    Diagnosis::new(State::Succeeded, "").since(finished(case.pod)).evidence(exits(case.pod, &case.about()))
}

pub(super) fn failed(case: Case<'_>) -> Diagnosis {
    let bad = terminated(case.pod).find(|(_, end)| end.int("/exitCode") != Some(0));
    let logs = bad.map_or_else(|| case.logs_argument(), |(container, _)| case.logs_argument_of(container));
    Diagnosis::new(State::Failed, failure(case.pod))
        .since(finished(case.pod))
        .action(format!("kubectl logs {logs}"))
        .actions(remedy(case.pod))
        .evidence(exits(case.pod, &case.about()))
}

/// Why a failed pod failed, in few words: what the pod itself says, else its first container that did not end well.
pub(crate) fn failure(pod: Object<'_>) -> String {
    if let Some(reason) = pod.text("/status/reason") {
        return match pod.text("/status/message") {
            Some(message) => format!("{}: {}", foreign(reason), clause(message)),
            None => foreign(reason),
        };
    }
    let bad = terminated(pod).find(|(_, end)| end.int("/exitCode") != Some(0));
    match bad {
        Some((container, end)) => format!("container `{}` {}", foreign(container), how_it_ended(end)),
        None => "nothing says why".to_owned(),
    }
}

/// What helps against failures whose cause is known.
pub(crate) fn remedy(pod: Object<'_>) -> Option<&'static str> {
    terminated(pod).find_map(|(_, end)| match (end.text("/reason").unwrap_or(""), end.int("/exitCode")?) {
        ("OOMKilled", _) => Some("raise the container's `resources.limits.memory`, in a new Job"),
        ("StartError" | "ContainerCannotRun", _) | (_, 126 | 127) => {
            Some("correct the container's `command`, in a new Job: the template of this one cannot be changed")
        }
        _ => None,
    })
}

/// `ended with exit code 1 (Error)`, with what the code usually means.
pub(super) fn how_it_ended(end: Object<'_>) -> String {
    let code = end.int("/exitCode").unwrap_or(-1);
    let reason = end.text("/reason").map(foreign).unwrap_or_default();
    let meaning = match (reason.as_str(), code) {
        ("OOMKilled", _) => "it used more memory than its limit".to_owned(),
        ("StartError" | "ContainerCannotRun", _) => {
            end.text("/message").map_or_else(|| "its command cannot be started".to_owned(), clause)
        }
        ("DeadlineExceeded" | "ContainerStatusUnknown", _) => end.text("/message").map(clause).unwrap_or_default(),
        (_, 126) => "its command is not executable".to_owned(),
        (_, 127) => "its command was not found".to_owned(),
        (_, 130) => "interrupted, SIGINT".to_owned(),
        (_, 134) => "aborted, SIGABRT".to_owned(),
        (_, 137) => "killed, SIGKILL".to_owned(),
        (_, 139) => "segmentation fault, SIGSEGV".to_owned(),
        (_, 143) => "terminated, SIGTERM".to_owned(),
        (_, 129..=192) => format!("killed by signal {}", code - 128),
        _ => String::new(),
    };
    let reason = if reason.is_empty() || reason == "Error" { String::new() } else { format!(" ({reason})") };
    let meaning = if meaning.is_empty() { meaning } else { format!(": {meaning}") };
    format!("ended with exit code {code}{reason}{meaning}")
}

/// One line for each ended container.
fn exits(pod: Object<'_>, about: &str) -> Vec<Evidence> {
    let index = pod.annotation(annotation::COMPLETION_INDEX).map(|index| format!("index {}, ", foreign(index)));
    let ends = terminated(pod).map(|(container, end)| {
        let at = end.time("/finishedAt");
        let ran = at.zip(end.time("/startedAt")).map(|(at, started)| span(at.duration_since(started)));
        let ran = ran.map(|ran| format!(" after {ran}")).unwrap_or_default();
        let index = index.as_deref().unwrap_or_default();
        Evidence::new(about, format!("{index}container `{}` {}{ran}", foreign(container), how_it_ended(end)), at)
    });
    ends.collect()
}

/// The containers that have ended, regular ones first.
fn terminated(pod: Object<'_>) -> impl Iterator<Item = (&str, Object<'_>)> {
    let regular = pod.list("/status/containerStatuses");
    let all = regular.chain(pod.list("/status/initContainerStatuses"));
    all.filter_map(|status| Some((status.text("/name").unwrap_or("?"), status.at("/state/terminated")?)))
}

fn finished(pod: Object<'_>) -> Option<jiff::Timestamp> {
    terminated(pod).filter_map(|(_, end)| end.time("/finishedAt")).max().or_else(|| pod.condition("Ready")?.since)
}
