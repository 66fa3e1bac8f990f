//! The language of plan tests.
//!
//! ```text
//! job Indexed parallelism=2 completions=5 succeeded=1 completedIndexes=0 | pods 1R* 2F[1] x:3S-
//! ```
//!
//! A job has fields of its spec, flags (`Indexed`, `suspend`, `deleting`, `new`, …) and fields of its status. Unless it is
//! `new`, it started a minute ago and its status shows the active, ready and terminating pods.
//!
//! A pod is `[name:][index]phase[marks]` with phase `P`ending, `R`unning, `U`nknown, `S`ucceeded or `F`ailed, and marks
//! `!` being deleted, `*` ready, `-` without tracking finalizer, `+` marked as surplus, `~` labels that do not match,
//! `=` released by us though the cache does not show it, `[n]` or `[n+m]` failure counts, `@n` ended n seconds ago (an hour
//! unless given), `#n` exit code, `%C` condition, `^n` restarts.

use std::fmt::Write as _;

use expect_test::Expect;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use serde_json::{Map, Value, json};

use super::super::*;

/// The moment at which every test takes place.
pub(super) fn now() -> Timestamp {
    "2026-11-15T12:00:00Z".parse().unwrap()
}

fn ago(secs: i64) -> String {
    (now() - SignedDuration::from_secs(secs)).to_string()
}

/// What a text describes.
pub(super) struct Case {
    pub(super) job: Job,
    pub(super) tally: Tally,
    pub(super) settings: Settings,
}

impl Case {
    pub(super) fn new(text: &str, settings: Settings) -> Self {
        let mut job_words = Vec::new();
        let mut pods = Vec::new();
        let mut unseen = Vec::new();
        for part in text.split(['|', '\n']).map(str::trim).filter(|part| !part.is_empty()) {
            let (kind, rest) = part.split_once(' ').unwrap_or((part, ""));
            match kind {
                "job" => job_words.extend(rest.split_whitespace()),
                "pods" => {
                    for word in rest.split_whitespace() {
                        pods.extend(pod_words(word, pods.len()));
                    }
                }
                "unseen" => unseen.extend(rest.split_whitespace()),
                _ => panic!("`{part}` starts with neither `job`, `pods` nor `unseen`"),
            }
        }
        let job = job_of(&job_words, &pods);
        let mut tally = Tally::new(&job, settings.gates);
        for pod in &pods {
            tally.observe_pod(&serde_json::from_value(pod.json.clone()).unwrap(), now());
        }
        let released: Vec<PodRef> = pods.iter().filter(|pod| pod.released).map(|pod| pod.reference()).collect();
        tally.note_release(&released, &ReleaseOutcome::default());
        let creations: Vec<Creation> =
            unseen.iter().map(|name| Creation { name: (*name).into(), index: None, failure_counts: None }).collect();
        let done = vec![CallOutcome::Done; creations.len()];
        tally.note_action(&PodAction::Create { pods: creations, batches: Vec::new() }, &done, now());
        Self { job, tally, settings }
    }

    /// A pod is like this now.
    pub(super) fn observe(&mut self, word: &str) {
        let pod = pod_of(word, 0);
        self.tally.observe_pod(&serde_json::from_value(pod.json).unwrap(), now());
    }

    pub(super) fn snapshot(&self) -> Snapshot<'_> {
        Snapshot { job: &self.job, tally: &self.tally, now: now(), settings: &self.settings }
    }
}

/// Plans for the described Job, lets every call succeed, and compares the account of it.
pub(super) fn check(text: &str, expected: Expect) {
    check_with(text, Settings::default(), |_| CallOutcome::Done, expected);
}

/// The same with other settings or with calls that fail; `outcome` is asked for each pod of the action by name, and for
/// each release as `release NAME`.
pub(super) fn check_with(text: &str, settings: Settings, outcome: impl Fn(&str) -> CallOutcome, expected: Expect) {
    let case = Case::new(text, settings);
    expected.assert_eq(&account(&case, outcome));
}

/// Carries a plan out on paper.
pub(super) fn account(case: &Case, outcome: impl Fn(&str) -> CallOutcome) -> String {
    let mut out = String::new();
    let act = match plan(&case.snapshot()) {
        Plan::Skip(skip) => return format!("skip    {skip:?}"),
        Plan::Claim(claims) => return format!("adopt   {}\ndisown  {}", adopted(&claims.adopt), names(&claims.disown)),
        Plan::Release(pods) => return format!("release {}", names(&pods)),
        Plan::Act(act) => act,
    };
    let (line, pods) = describe(&act.action);
    out += &line;
    let outcomes: Vec<CallOutcome> = pods.iter().map(|name| outcome(name)).collect();
    let before = case.job.status.clone().unwrap_or_default();
    let record = act.record(&outcomes);
    events(&mut out, &record.events);
    let first = record.status.clone().unwrap_or_else(|| before.clone());
    if record.status.is_some() {
        assert_valid(case, &before, &first);
        writeln!(out, "status  {}", difference(&before, &first)).unwrap();
    }
    if let Some(wait) = record.wake_after {
        writeln!(out, "wake    {}s", wait.as_secs_f64()).unwrap();
    }
    if !record.let_go.is_empty() {
        writeln!(out, "let go  {}", names(&record.let_go)).unwrap();
    }
    if !record.release.is_empty() {
        writeln!(out, "release {}", names(&record.release)).unwrap();
    }
    let failed =
        record.let_go.iter().chain(&record.release).filter_map(|pod| match outcome(&format!("release {}", pod.name)) {
            CallOutcome::Failed(error) => Some((pod.uid.clone(), error)),
            _ => None,
        });
    let failed = ReleaseOutcome { failed: failed.collect() };
    let close = record.close(&failed);
    if let Some(second) = &close.status {
        assert_valid(case, &first, second);
        writeln!(out, "status  {}", difference(&first, second)).unwrap();
    }
    events(&mut out, &close.events);
    out.trim_end().to_owned()
}

/// INV-27.
fn assert_valid(case: &Case, before: &JobStatus, after: &JobStatus) {
    let with = |status: &JobStatus| Job { status: Some(status.clone()), ..case.job.clone() };
    let errors = batch_types::job::validate_status_update(&with(after), &with(before), &case.settings.gates);
    let texts: Vec<String> = errors.iter().map(|error| error.to_string()).collect();
    assert!(texts.is_empty(), "the API would refuse the status: {texts:?}\n{after:#?}");
}

fn names(pods: &[PodRef]) -> String {
    pods.iter().map(|pod| &*pod.name).collect::<Vec<_>>().join(" ")
}

fn adopted(adoptions: &[Adoption]) -> String {
    names(&adoptions.iter().map(|adoption| adoption.pod.clone()).collect::<Vec<_>>())
}

fn describe(action: &PodAction) -> (String, Vec<String>) {
    let of = |pods: &[PodRef]| pods.iter().map(|pod| pod.name.to_string()).collect();
    match action {
        PodAction::None => (String::new(), Vec::new()),
        PodAction::Remove(pods) => (format!("remove  {}\n", names(pods)), of(pods)),
        PodAction::End(pods) => (format!("end     {}\n", names(pods)), of(pods)),
        PodAction::Create { pods, .. } => {
            let indexes: Vec<String> = pods.iter().filter_map(index_and_counts).collect();
            let text = match indexes.is_empty() {
                true => format!("{} pod{}", pods.len(), if pods.len() == 1 { "" } else { "s" }),
                false => indexes.join(" "),
            };
            (format!("create  {text}\n"), pods.iter().map(|pod| pod.name.to_string()).collect())
        }
    }
}

fn index_and_counts(pod: &Creation) -> Option<String> {
    let index = pod.index?;
    Some(match pod.failure_counts {
        None => index.to_string(),
        Some(FailureCounts { counted, ignored: 0 }) => format!("{index}[{counted}]"),
        Some(FailureCounts { counted, ignored }) => format!("{index}[{counted}+{ignored}]"),
    })
}

/// Events about single pods are left out; they follow from the action.
fn events(out: &mut String, events: &[Event]) {
    for event in events.iter().filter(|event| !matches!(&*event.reason, "SuccessfulCreate" | "SuccessfulDelete")) {
        writeln!(out, "event   {} {}: {}", event.kind.as_str(), event.reason, event.message).unwrap();
    }
}

/// The fields of a status that changed.
pub(super) fn difference(before: &JobStatus, after: &JobStatus) -> String {
    let (before, after) = (fields(before), fields(after));
    let changed = after.iter().filter(|(key, value)| before.get(*key) != Some(value));
    changed.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect::<Vec<_>>().join(" ")
}

fn fields(status: &JobStatus) -> Map<String, Value> {
    let number = |value: Option<i32>| value.map_or("null".to_owned(), |value| value.to_string());
    let count = |value: Option<i32>| value.unwrap_or(0).to_string();
    let uncounted = status.uncounted_terminated_pods.clone().unwrap_or_default();
    let list = |uids: Option<Vec<String>>| format!("[{}]", uids.unwrap_or_default().join(","));
    let time = |at: &Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>| {
        at.as_ref().map_or("null".to_owned(), |at| match at.0.duration_since(now()).as_secs() {
            0 => "now".to_owned(),
            secs => format!("{secs}s"),
        })
    };
    let conditions = status.conditions.iter().flatten();
    let conditions = conditions.map(|item| {
        let status = if item.status == "True" { String::new() } else { format!("={}", item.status) };
        format!("{}{status}/{}", item.type_, item.reason.as_deref().unwrap_or(""))
    });
    let fields = json!({
        "active": count(status.active),
        "ready": number(status.ready),
        "terminating": number(status.terminating),
        "succeeded": count(status.succeeded),
        "failed": count(status.failed),
        "completedIndexes": status.completed_indexes.clone().unwrap_or_default(),
        "failedIndexes": status.failed_indexes.clone().unwrap_or("null".to_owned()),
        "uncounted.succeeded": list(uncounted.succeeded),
        "uncounted.failed": list(uncounted.failed),
        "startTime": time(&status.start_time),
        "completionTime": time(&status.completion_time),
        "conditions": format!("[{}]", conditions.collect::<Vec<_>>().join(",")),
    });
    fields.as_object().unwrap().clone()
}

struct PodText {
    json: Value,
    active: bool,
    ready: bool,
    terminating: bool,
    released: bool,
}

impl PodText {
    fn reference(&self) -> PodRef {
        let text = |key: &str| self.json["metadata"][key].as_str().unwrap();
        PodRef { name: text("name").into(), uid: Uid::new(text("uid")) }
    }
}

/// One pod, or several as in `10*R`.
fn pod_words(word: &str, already: usize) -> Vec<PodText> {
    match word.split_once('x').and_then(|(count, rest)| Some((count.parse::<usize>().ok()?, rest))) {
        Some((count, rest)) => (0..count).map(|number| pod_of(rest, already + number)).collect(),
        None => vec![pod_of(word, already)],
    }
}

/// A pod as the watch shows it.
pub(super) fn pod_view(word: &str) -> PodView {
    serde_json::from_value(pod_of(word, 0).json).unwrap()
}

fn pod_of(word: &str, number: usize) -> PodText {
    let (name, rest) = match word.split_once(':') {
        Some((name, rest)) => (name.to_owned(), rest),
        None => (format!("p{number:03}"), word),
    };
    let digits = rest.find(|character: char| !character.is_ascii_digit()).unwrap();
    let (index, rest) = rest.split_at(digits);
    let (phase, mut marks) = rest.split_at(1);
    let phase = match phase {
        "P" => "Pending",
        "R" => "Running",
        "U" => "Unknown",
        "S" => "Succeeded",
        "F" => "Failed",
        _ => panic!("`{word}` has no known phase"),
    };
    let mut pod = PodText {
        json: json!({
            "metadata": {"namespace": "ns", "name": name, "uid": name, "creationTimestamp": ago(7200),
                         "labels": {"job": "a"}, "annotations": {},
                         "finalizers": ["batch.kubernetes.io/job-tracking"],
                         "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "job",
                                              "controller": true}]},
            "spec": {},
            "status": {"phase": phase, "conditions": []},
        }),
        active: !matches!(phase, "Succeeded" | "Failed"),
        ready: false,
        terminating: false,
        released: false,
    };
    if !index.is_empty() {
        pod.json["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] = json!(index);
    }
    let (mut finished_ago, mut exit_code, mut restarts) = (3600, None, 0);
    while let Some(mark) = marks.chars().next() {
        let rest = &marks[1..];
        let end = rest.find(['!', '*', '-', '+', '~', '=', '[', '@', '#', '%', '^']).unwrap_or(rest.len());
        let (argument, mut after) = rest.split_at(end);
        match mark {
            '!' => {
                pod.json["metadata"]["deletionTimestamp"] = json!(ago(finished_ago));
                pod.terminating = pod.active;
                pod.active = false;
            }
            '*' => {
                let condition = json!({"type": "Ready", "status": "True", "lastTransitionTime": ago(3600)});
                pod.json["status"]["conditions"].as_array_mut().unwrap().push(condition);
                pod.ready = pod.active;
            }
            '-' if argument.is_empty() => pod.json["metadata"]["finalizers"] = json!([]),
            '+' => pod.json["metadata"]["annotations"][SURPLUS_ANNOTATION] = json!("true"),
            '~' => pod.json["metadata"]["labels"] = json!({}),
            '=' => pod.released = true,
            '[' => {
                let (counts, rest) = rest.split_once(']').unwrap();
                let (counted, ignored) = counts.split_once('+').unwrap_or((counts, "0"));
                let annotations = &mut pod.json["metadata"]["annotations"];
                annotations["batch.kubernetes.io/job-index-failure-count"] = json!(counted);
                annotations["batch.kubernetes.io/job-index-ignored-failure-count"] = json!(ignored);
                after = rest;
            }
            '@' => finished_ago = argument.parse().unwrap(),
            '#' => {
                // A minus sign belongs to the number.
                let negative = argument.is_empty() && after.starts_with('-');
                let digits = if negative { &after[1..] } else { argument };
                let end = digits.find(|character: char| !character.is_ascii_digit()).unwrap_or(digits.len());
                let code: i32 = digits[..end].parse().unwrap();
                exit_code = Some(if negative { -code } else { code });
                if negative {
                    after = &digits[end..];
                }
            }
            '%' => {
                let condition = json!({"type": argument, "status": "True"});
                pod.json["status"]["conditions"].as_array_mut().unwrap().push(condition);
            }
            '^' => restarts = argument.parse().unwrap(),
            _ => panic!("`{word}` has no known mark at `{marks}`"),
        }
        marks = after;
    }
    let ended = matches!(phase, "Succeeded" | "Failed");
    let code = exit_code.unwrap_or(if phase == "Failed" { 1 } else { 0 });
    let state = match ended || exit_code.is_some() {
        true => json!({"terminated": {"exitCode": code, "finishedAt": ago(finished_ago)}}),
        false => json!({"running": {}}),
    };
    pod.json["status"]["containerStatuses"] = json!([{"name": "main", "restartCount": restarts, "state": state}]);
    pod
}

fn job_of(words: &[&str], pods: &[PodText]) -> Job {
    let count = |test: fn(&PodText) -> bool| pods.iter().filter(|pod| test(pod)).count();
    let mut spec = json!({
        "parallelism": 1, "backoffLimit": 6,
        "selector": {"matchLabels": {"job": "a"}},
        "template": {"metadata": {"labels": {"job": "a"}},
                     "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i"}]}},
    });
    let mut status = json!({
        "startTime": ago(60), "ready": count(|pod| pod.ready), "terminating": count(|pod| pod.terminating),
        "uncountedTerminatedPods": {}, "conditions": [],
    });
    if count(|pod| pod.active) > 0 {
        status["active"] = json!(count(|pod| pod.active));
    }
    let mut metadata = json!({"namespace": "ns", "name": "a", "uid": "job", "resourceVersion": "1"});
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let number = || json!(value.parse::<i64>().unwrap_or_else(|_| panic!("`{word}` needs a number")));
        let uids = || json!(value.trim_matches(['[', ']']).split(',').collect::<Vec<_>>());
        match key {
            "new" => status = json!({}),
            "Indexed" => spec["completionMode"] = json!("Indexed"),
            "suspend" => spec["suspend"] = json!(true),
            "deleting" => metadata["deletionTimestamp"] = json!(ago(1)),
            "onFailure" => spec["template"]["spec"]["restartPolicy"] = json!("OnFailure"),
            "parallelism" | "completions" | "backoffLimit" | "backoffLimitPerIndex" | "maxFailedIndexes" => {
                spec[key] = number();
            }
            "deadline" => spec["activeDeadlineSeconds"] = number(),
            "replace" => spec["podReplacementPolicy"] = json!(value),
            "managedBy" | "completionMode" => spec[key] = json!(value),
            "rules" => spec["podFailurePolicy"] = json!({"rules": failure_rules(value)}),
            "success" => spec["successPolicy"] = json!({"rules": success_rules(value)}),
            "started" => status["startTime"] = json!(ago(value.parse().unwrap())),
            "active" | "ready" | "terminating" | "succeeded" | "failed" => status[key] = number(),
            "completedIndexes" | "failedIndexes" => status[key] = json!(value),
            "uncounted.succeeded" => status["uncountedTerminatedPods"]["succeeded"] = uids(),
            "uncounted.failed" => status["uncountedTerminatedPods"]["failed"] = uids(),
            "Suspended" | "SuccessCriteriaMet" | "FailureTarget" | "Complete" | "Failed" => {
                let (state, reason) = value.split_once('/').unwrap_or((value, "Because"));
                let condition = json!({"type": key, "status": state, "reason": reason, "message": "Said before"});
                status["conditions"].as_array_mut().unwrap().push(condition);
            }
            _ => panic!("`{word}` is no known word about a job"),
        }
    }
    if spec.get("completionMode").is_none() {
        spec["completionMode"] = json!("NonIndexed");
    }
    serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
}

/// `FailJob:In:5,6;Ignore:DisruptionTarget` as rules of a pod failure policy.
fn failure_rules(text: &str) -> Vec<Value> {
    let rules = text.split(';').filter(|rule| !rule.is_empty());
    rules
        .map(|rule| match rule.split(':').collect::<Vec<_>>()[..] {
            [action, operator, codes] => {
                let values: Vec<i32> = codes.split(',').map(|code| code.parse().unwrap()).collect();
                json!({"action": action, "onExitCodes": {"operator": operator, "values": values}})
            }
            [action, condition] => {
                json!({"action": action, "onPodConditions": [{"type": condition, "status": "True"}]})
            }
            _ => panic!("`{rule}` is no rule"),
        })
        .collect()
}

/// `0-2#2;*#1` as rules of a success policy: indexes, then a count.
fn success_rules(text: &str) -> Vec<Value> {
    let rules = text.split(';').map(|rule| {
        let (indexes, count) = rule.split_once('#').unwrap_or((rule, ""));
        let mut rule = json!({});
        if indexes != "*" {
            rule["succeededIndexes"] = json!(indexes);
        }
        if let Ok(count) = count.parse::<i32>() {
            rule["succeededCount"] = json!(count);
        }
        rule
    });
    rules.collect()
}
