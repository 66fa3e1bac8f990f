//! What failed, for people who have to do something about it: which indexes, how, and what they said last.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use batch_types::constants::label;
use kube::api::{ListParams, LogParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::progress::JobProgress;
use crate::job_view::{JobView, Outcome};
use crate::pod_view::{PodFailure, PodObject};

/// Failures of one Job that are told one by one; the rest are counted.
const SHOWN_MAX: usize = 10;

/// Of how many failures the logs are read, over all Jobs.
const LOGS_MAX: usize = 20;

/// Lines of each log.
const LINES_MAX: i64 = 10;

/// A log's last lines are at most this long.
const LOG_BYTES_MAX: i64 = 16 << 10;

const PAGE: u32 = 500;

/// Why one Job failed.
#[derive(Debug)]
pub(crate) struct JobReport {
    view: JobView,
    failures: Vec<Failed>,
    /// Failures that are not told one by one.
    others: usize,
}

/// The last failure of an index, or a failed pod of a Job without indexes.
#[derive(Debug, Clone)]
struct Failed {
    index: Option<u32>,
    pod: String,
    attempts: u32,
    failure: PodFailure,
    log: Vec<String>,
}

/// Gathers the failures of Jobs that failed. What cannot be read any more is left out.
pub(crate) async fn gather(client: &Client, jobs: &[&JobProgress]) -> Vec<JobReport> {
    let mut logs_left = LOGS_MAX;
    let mut reports = Vec::new();
    for job in jobs {
        let mut all = failures(client, &job.view).await.unwrap_or_else(|error| {
            tracing::warn!(%error, job = job.view.name, "find the pods that failed");
            Vec::new()
        });
        let others = all.len().saturating_sub(SHOWN_MAX);
        all.truncate(SHOWN_MAX);
        for failed in all.iter_mut().take(logs_left) {
            failed.log = last_lines(client, &job.view.namespace, failed).await;
        }
        logs_left = logs_left.saturating_sub(all.len());
        reports.push(JobReport { view: job.view.clone(), failures: all, others });
    }
    reports
}

async fn failures(client: &Client, job: &JobView) -> kube::Result<Vec<Failed>> {
    let pods: Api<PodObject> = Api::namespaced(client.clone(), &job.namespace);
    let mut page = ListParams::default()
        .labels(&format!("{}={}", label::CONTROLLER_UID, job.uid))
        .fields("status.phase=Failed")
        .limit(PAGE);
    let mut found = BTreeMap::new();
    loop {
        let list = pods.list(&page).await?;
        for pod in &list.items {
            collect(job, pod, &mut found);
        }
        match list.metadata.continue_.as_deref() {
            Some(token) if !token.is_empty() => page = page.continue_token(token),
            _ => return Ok(found.into_values().map(|(_, failed)| failed).collect()),
        }
    }
}

/// Indexes in their order, the pods of Jobs without indexes by their age; of an index the last pod counts.
type Found = BTreeMap<(Option<u32>, String), (String, Failed)>;

fn collect(job: &JobView, pod: &PodObject, found: &mut Found) {
    let (Some(failure), index) = (pod.failure(), pod.index()) else { return };
    // An index that was tried again and succeeded is no failure.
    if index.is_some_and(|index| job.completed_indexes.contains(index)) {
        return;
    }
    let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0.to_string()).unwrap_or_default();
    let key = (index, if index.is_some() { String::new() } else { format!("{created} {}", pod.name()) });
    let failed = Failed { index, pod: pod.name().to_owned(), attempts: 1, failure, log: Vec::new() };
    match found.entry(key) {
        std::collections::btree_map::Entry::Vacant(entry) => {
            entry.insert((created, failed));
        }
        std::collections::btree_map::Entry::Occupied(mut entry) => {
            let (latest, kept) = entry.get_mut();
            let attempts = kept.attempts + 1;
            if created >= *latest {
                (*latest, *kept) = (created, failed);
            }
            kept.attempts = attempts;
        }
    }
}

async fn last_lines(client: &Client, namespace: &str, failed: &Failed) -> Vec<String> {
    let pods: Api<PodObject> = Api::namespaced(client.clone(), namespace);
    let parameters = LogParams {
        container: failed.failure.container.clone(),
        tail_lines: Some(LINES_MAX),
        limit_bytes: Some(LOG_BYTES_MAX),
        ..LogParams::default()
    };
    match pods.logs(&failed.pod, &parameters).await {
        Ok(text) => text.lines().map(str::to_owned).collect(),
        Err(error) => {
            tracing::debug!(%error, pod = failed.pod, "read the last lines");
            Vec::new()
        }
    }
}

impl JobReport {
    pub(crate) fn text(&self) -> String {
        let why = self.view.outcome.as_ref().map(Outcome::why).unwrap_or_default();
        let mut text = format!("\njob/{}: {why}\n", self.view.name);
        for failed in &self.failures {
            let _ = writeln!(text, "  {}", failed.line());
            for line in &failed.log {
                let _ = writeln!(text, "    | {line}");
            }
        }
        if self.others > 0 {
            let _ = writeln!(text, "  and {} more", self.others);
        }
        text
    }

    pub(crate) fn json(&self) -> Value {
        let failures: Vec<Value> = self.failures.iter().map(Failed::json).collect();
        json!({
            "namespace": self.view.namespace, "job": self.view.name, "failures": failures,
            "moreFailures": self.others, "failedIndexes": self.view.failed_indexes.to_string(),
        })
    }
}

impl Failed {
    fn line(&self) -> String {
        let mut line = match self.index {
            Some(index) => format!("index {index}: "),
            None => String::new(),
        };
        line.push_str(&self.how());
        let _ = write!(line, ", pod {}", self.pod);
        if let Some(container) = &self.failure.container {
            let _ = write!(line, ", container {container}");
        }
        if self.attempts > 1 {
            let _ = write!(line, ", {} attempts", self.attempts);
        }
        line
    }

    fn how(&self) -> String {
        let PodFailure { exit_code, reason, message, .. } = &self.failure;
        let mut how = match exit_code {
            Some(code) if reason.is_empty() || reason == "Error" => format!("exit code {code}"),
            Some(code) => format!("exit code {code} ({reason})"),
            None if reason.is_empty() => "failed".to_owned(),
            None => reason.clone(),
        };
        // A message may be the tail of a log, which is shown below.
        if let Some(first) = message.lines().next().filter(|line| !line.is_empty()) {
            let _ = write!(how, ": {first}");
        }
        how
    }

    fn json(&self) -> Value {
        json!({
            "index": self.index, "pod": self.pod, "container": self.failure.container, "attempts": self.attempts,
            "exitCode": self.failure.exit_code, "reason": self.failure.reason, "message": self.failure.message,
            "log": self.log,
        })
    }
}

#[cfg(test)]
mod tests {
    use batch_types::index_ranges::IndexSet;
    use expect_test::expect;

    use super::*;

    fn pod(name: &str, index: Option<u32>, second: u32, code: i32) -> PodObject {
        serde_json::from_value(json!({
            "metadata": {"name": name, "creationTimestamp": format!("2026-11-15T10:00:{second:02}Z"),
                "annotations": index.map(|it| json!({"batch.kubernetes.io/job-completion-index": it.to_string()}))},
            "spec": {"containers": [{"name": "c"}]},
            "status": {"phase": "Failed", "containerStatuses": [
                {"name": "c", "state": {"terminated": {"exitCode": code, "reason": "Error"}}}]},
        }))
        .unwrap()
    }

    fn report(job: &JobView, pods: &[PodObject]) -> String {
        let mut found = BTreeMap::new();
        pods.iter().for_each(|pod| collect(job, pod, &mut found));
        let failures = found.into_values().map(|(_, failed)| failed).collect();
        let outcome = Some(Outcome::Failed { reason: "Why".to_owned(), message: String::new() });
        let view = JobView { name: "j".to_owned(), outcome, ..job.clone() };
        JobReport { view, failures, others: 0 }.text()
    }

    #[test]
    fn each_index_that_did_not_succeed_is_told_once() {
        let job = JobView { completed_indexes: IndexSet::parse("0", 10), ..JobView::default() };
        let pods = [pod("j-0-a", Some(0), 0, 1), pod("j-7-b", Some(7), 5, 3), pod("j-7-c", Some(7), 1, 2)];
        expect![[r"

            job/j: Why
              index 7: exit code 3, pod j-7-b, 2 attempts
        "]]
        .assert_eq(&report(&job, &pods));
    }

    #[test]
    fn pods_without_an_index_are_told_in_order_of_age() {
        let pods = [pod("j-b", None, 2, 137), pod("j-a", None, 1, 1)];
        expect![[r"

            job/j: Why
              exit code 1, pod j-a
              exit code 137, pod j-b
        "]]
        .assert_eq(&report(&JobView::default(), &pods));
    }

    #[test]
    fn reasons_and_first_lines_of_messages_are_told() {
        let failure = PodFailure {
            container: Some("side".to_owned()),
            exit_code: None,
            reason: "CommandRequired".to_owned(),
            message: "set `command`\nmore".to_owned(),
        };
        let failed = Failed { index: None, pod: "p".to_owned(), attempts: 1, failure, log: Vec::new() };
        assert_eq!(failed.line(), "CommandRequired: set `command`, pod p, container side");
    }
}
