//! A pod on its node: starting, unable to start, restarting, or running.

use jiff::{SignedDuration, Timestamp};

use super::exit::how_it_ended;
use super::{Case, Diagnosis, PATIENCE_SECS};
use crate::answer::{Evidence, State};
use crate::events;
use crate::object::Object;
use crate::words::{clause, foreign};

/// Reasons of waiting containers that do not go away by waiting alone.
const STUCK: [&str; 12] = [
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "InvalidImageName",
    "ErrImagePull",
    "ImagePullBackOff",
    "ErrImageNeverPull",
    "ImageInspectError",
    "RegistryUnavailable",
    "PreStartHookError",
    "PostStartHookError",
    "StartError",
];

/// Events of pods whose volumes or network are not there.
const NOT_READY: [&str; 5] =
    ["FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox", "NetworkNotReady", "FailedPrepareDynamicResources"];

pub(super) fn diagnose(case: Case<'_>) -> Diagnosis {
    let statuses = || case.pod.list("/status/initContainerStatuses").chain(case.pod.list("/status/containerStatuses"));
    let waiting = |status: Object<'_>| status.text("/state/waiting/reason").map(str::to_owned);
    if let Some(status) = statuses().find(|status| waiting(*status).is_some_and(|it| STUCK.contains(&it.as_str()))) {
        return cannot_start(case, status);
    }
    if let Some(status) = statuses().find(|status| waiting(*status).as_deref() == Some("CrashLoopBackOff")) {
        return restarting(case, status);
    }
    if let Some(event) = events::last(case.events, &NOT_READY).filter(|_| !has_started(case.pod)) {
        return Diagnosis::new(State::CannotStart, clause(event.message))
            .since(case.pod.time("/status/startTime").or(case.pod.created()))
            .next("the node tries again", None)
            .action("create what is missing, or correct its name in the pod template")
            .evidence([event.evidence()]);
    }
    let init = case.pod.list("/status/initContainerStatuses").find(|status| {
        status.at("/state/running").is_some() && !is_sidecar(case.pod, status.text("/name").unwrap_or(""))
    });
    if let Some(init) = init {
        let name = foreign(init.text("/name").unwrap_or("?"));
        return Diagnosis::new(State::Starting, format!("init container `{name}` runs"))
            .since(init.time("/state/running/startedAt"))
            .action(format!("kubectl logs {} -c {name}", case.logs_argument()));
    }
    if case.pod.text("/status/phase") == Some("Running") {
        return running(case);
    }
    starting(case)
}

fn starting(case: Case<'_>) -> Diagnosis {
    let node = foreign(case.node().unwrap_or_default());
    if case.pod.list("/status/containerStatuses").next().is_none() && case.age_secs() > PATIENCE_SECS {
        return Diagnosis::new(State::Starting, format!("node `{node}` has not acknowledged it"))
            .since(scheduled(case.pod))
            .action(format!("check that whatever runs pods on node `{node}` is working"));
    }
    let last = case.events.last().map(events::Event::evidence);
    Diagnosis::new(State::Starting, format!("node `{node}` is preparing its containers"))
        .since(scheduled(case.pod))
        .evidence(last)
}

fn running(case: Case<'_>) -> Diagnosis {
    let since =
        case.pod.list("/status/containerStatuses").filter_map(|status| status.time("/state/running/startedAt")).min();
    let unready: Vec<&str> = case
        .pod
        .list("/status/containerStatuses")
        .filter(|status| status.at("/state/running").is_some() && !status.flag("/ready"))
        .filter_map(|status| status.text("/name"))
        .collect();
    let probe = events::last(case.events, &["Unhealthy"]).map(|event| event.evidence());
    let (cause, probe) = match (unready.first(), probe) {
        (Some(name), Some(probe)) => (format!("container `{}` does not pass its probe", foreign(name)), Some(probe)),
        _ => (String::new(), None),
    };
    let killed = case.pod.list("/status/containerStatuses").filter_map(|status| {
        let (name, end) = (status.text("/name")?, status.at("/lastState/terminated")?);
        let text = format!("container `{}` was restarted: it {}", foreign(name), how_it_ended(end));
        Some(Evidence::new(case.about(), text, end.time("/finishedAt")))
    });
    let found = Diagnosis::new(State::Running, cause).since(since).evidence(probe).evidence(killed);
    let deadline = case.pod.int("/spec/activeDeadlineSeconds").zip(case.pod.time("/status/startTime"));
    match deadline.and_then(|(seconds, start)| start.checked_add(SignedDuration::from_secs(seconds)).ok()) {
        Some(at) => found.next("its activeDeadlineSeconds are over and it is stopped", Some(at)),
        None => found,
    }
}

fn cannot_start(case: Case<'_>, status: Object<'_>) -> Diagnosis {
    let (name, reason) = (status.text("/name").unwrap_or("?"), status.text("/state/waiting/reason").unwrap_or("?"));
    let message = status.text("/state/waiting/message").map(clause);
    // While pulls are backed off the message says only that; the event has the registry's own words.
    let pulling = ["ImagePullBackOff", "ErrImagePull"].contains(&reason);
    let failed = events::last(case.events, &["Failed"]).filter(|_| pulling);
    let detail =
        failed.map(|event| clause(event.message)).or(message).map(|text| format!(": {text}")).unwrap_or_default();
    let remedy = match reason {
        "CreateContainerConfigError" => {
            "create the ConfigMap or Secret that is missing, or correct its name in the pod template"
        }
        "InvalidImageName" => "correct `image` of the pod template",
        "ErrImageNeverPull" => "bring the image to the node, or change `imagePullPolicy`",
        _ if pulling => "check the image's name and tag, and `imagePullSecrets` if the registry asks for credentials",
        _ => "correct the container's `command`, `args` or `workingDir` in the pod template",
    };
    Diagnosis::new(State::CannotStart, format!("container `{}`: {}{detail}", foreign(name), foreign(reason)))
        .since(scheduled(case.pod))
        .next("the node tries again by itself; the Job does not count this as a failure", None)
        .action(remedy)
        .evidence(failed.map(|event| event.evidence()))
}

fn restarting(case: Case<'_>, status: Object<'_>) -> Diagnosis {
    let container = status.text("/name").unwrap_or("?");
    let name = foreign(container);
    let end = status.at("/lastState/terminated");
    let how = end.map_or_else(|| "keeps ending".to_owned(), how_it_ended);
    let finished = end.and_then(|end| end.time("/finishedAt"));
    let wait = status.text("/state/waiting/message").and_then(wait_of);
    let at = finished.zip(wait).and_then(|(finished, wait)| finished.checked_add(wait).ok());
    let count = status.int("/restartCount").unwrap_or(0);
    Diagnosis::new(State::Restarting, format!("container `{name}` {how}"))
        .since(finished)
        .next("the container is started again", at)
        .action(format!("kubectl logs {} --previous", case.logs_argument_of(container)))
        .evidence([Evidence::new(
            case.about(),
            format!("container `{name}` has been restarted {count} times"),
            finished,
        )])
}

/// The time in `back-off 1m20s restarting failed container=…`.
fn wait_of(message: &str) -> Option<SignedDuration> {
    let text = message.strip_prefix("back-off ")?.split(' ').next()?;
    let mut total = SignedDuration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|char: char| !char.is_ascii_digit())?;
        let number: i64 = rest[..digits].parse().ok()?;
        let (seconds, unit) = match rest[digits..].chars().next()? {
            'h' => (3600, 1),
            'm' => (60, 1),
            's' => (1, 1),
            _ => return None,
        };
        total = total.checked_add(SignedDuration::from_secs(number.checked_mul(seconds)?))?;
        rest = &rest[digits + unit..];
    }
    Some(total)
}

fn has_started(pod: Object<'_>) -> bool {
    pod.list("/status/containerStatuses")
        .any(|status| status.at("/state/running").is_some() || status.at("/state/terminated").is_some())
}

fn is_sidecar(pod: Object<'_>, name: &str) -> bool {
    pod.list("/spec/initContainers")
        .any(|it| it.text("/name") == Some(name) && it.text("/restartPolicy") == Some("Always"))
}

fn scheduled(pod: Object<'_>) -> Option<Timestamp> {
    pod.is_true("PodScheduled").and_then(|condition| condition.since).or(pod.created())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_back_off_is_read_from_the_kubelets_words() {
        let wait = |text: &str| wait_of(text).map(|wait| wait.as_secs());
        assert_eq!(wait("back-off 20s restarting failed container=c pod=p_ns(uid)"), Some(20));
        assert_eq!(wait("back-off 1m20s restarting"), Some(80));
        assert_eq!(wait("back-off 99999999999999999999s"), None);
        assert_eq!([wait("back-off soon"), wait("something else"), wait("back-off 5")], [None, None, None]);
    }
}
