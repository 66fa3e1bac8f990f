//! The language of these tests, and a sync as the shell does it, without a server.
//!
//! A setup is a list of words, such as `ran due F` or `job c-24394200 running`; [`World::parse`] knows them. Times are
//! on 19 May 2016, the day of upstream's own tests.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use serde_json::{Value, json};

use crate::cronjob::{
    ActiveJob, CronJobView, Existing, JobView, Next, Snapshot, Start, decide, observe, questions, with_status,
};
use crate::job::Uid;

pub(super) struct World {
    cron_job: Value,
    jobs: Vec<Value>,
    /// Jobs that the server has and the cache does not.
    unseen: Vec<Value>,
    now: Timestamp,
    create: Create,
    /// The next status that is written after a Job was started does not get through.
    lose_status: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Create {
    Works,
    /// A Job of that name exists and belongs to the CronJob.
    ExistsOurs,
    ExistsForeign,
}

/// Checks what one sync of a setup does.
#[track_caller]
pub(super) fn check(setup: &str, expected: &str) {
    let found = World::parse(setup).sync();
    let expected: Vec<&str> = expected.split('|').map(str::trim).filter(|line| !line.is_empty()).collect();
    let found: Vec<&str> = found.lines().collect();
    assert_eq!(found, expected, "{setup}");
}

pub(super) fn time(text: &str) -> Timestamp {
    let text = if text.contains('T') { text.to_owned() } else { format!("2016-05-19T{text}") };
    format!("{text}Z").parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

impl World {
    pub(super) fn parse(setup: &str) -> Self {
        let metadata = json!({"name": "c", "namespace": "ns", "uid": "cron", "resourceVersion": "5",
            "creationTimestamp": time("09:59:00").to_string()});
        let spec = json!({"schedule": "0 * * * ?", "jobTemplate": {"spec": {}}});
        let mut world = Self {
            cron_job: json!({"metadata": metadata, "spec": spec, "status": {"active": []}}),
            jobs: Vec::new(),
            unseen: Vec::new(),
            now: time("10:01:00"),
            create: Create::Works,
            lose_status: false,
        };
        for phrase in setup.split('|') {
            let words: Vec<&str> = phrase.split_whitespace().collect();
            match words.as_slice() {
                ["job", name, facts @ ..] => world.add_job(name, facts),
                words => words.iter().for_each(|word| world.apply(word)),
            }
        }
        world
    }

    pub(super) fn apply(&mut self, word: &str) {
        let (spec, status) = ("spec", "status");
        match word.split_once('=') {
            Some(("schedule", text)) => self.cron_job[spec]["schedule"] = json!(text.replace('_', " ")),
            Some(("zone", text)) => self.cron_job[spec]["timeZone"] = json!(text),
            Some(("deadline", text)) => {
                self.cron_job[spec]["startingDeadlineSeconds"] = json!(text.parse::<i64>().unwrap());
            }
            Some(("keep", text)) => {
                let (successful, failed) = text.split_once('/').unwrap();
                self.cron_job[spec]["successfulJobsHistoryLimit"] = json!(successful.parse::<i32>().unwrap());
                self.cron_job[spec]["failedJobsHistoryLimit"] = json!(failed.parse::<i32>().unwrap());
            }
            Some(("created", text)) => {
                self.cron_job["metadata"]["creationTimestamp"] = json!(time(text).to_string());
            }
            Some(("last", text)) => self.cron_job[status]["lastScheduleTime"] = json!(time(text).to_string()),
            Some(("now", text)) => self.now = time(text),
            Some(("create", "ours")) => self.create = Create::ExistsOurs,
            Some(("create", "foreign")) => self.create = Create::ExistsForeign,
            Some(("active", name)) => self.list(name),
            Some(("lose", "status")) => self.lose_status = true,
            None => self.apply_bare(word),
            _ => panic!("{word}"),
        }
    }

    fn apply_bare(&mut self, word: &str) {
        match word {
            "never" => {}
            "ran" => ["created=08:59:00", "last=09:01:00"].iter().for_each(|word| self.apply(word)),
            "before" => self.apply("now=09:59:00"),
            "due" => self.apply("now=10:01:00"),
            "week" => self.apply("now=2016-05-26T10:00:00"),
            "A" => self.cron_job["spec"]["concurrencyPolicy"] = json!("Allow"),
            "F" => self.cron_job["spec"]["concurrencyPolicy"] = json!("Forbid"),
            "R" => self.cron_job["spec"]["concurrencyPolicy"] = json!("Replace"),
            "resumed" => self.cron_job["spec"]["suspend"] = json!(false),
            "suspended" => self.cron_job["spec"]["suspend"] = json!(true),
            "deleting" => self.cron_job["metadata"]["deletionTimestamp"] = json!(time("10:00:00").to_string()),
            _ => panic!("{word}"),
        }
    }

    fn list(&mut self, name: &str) {
        let entry = json!({"apiVersion": "batch/v1", "kind": "Job", "name": name, "namespace": "ns",
            "uid": format!("uid-{name}"), "resourceVersion": "1"});
        self.list_entry(entry);
    }

    /// Puts an entry on the list as somebody may have written it.
    pub(super) fn list_entry(&mut self, entry: Value) {
        self.cron_job["status"]["active"].as_array_mut().unwrap().push(entry);
    }

    /// `running`, `complete=TIME`, `failed`, `listed`, `for=TIME`, `start=TIME`, `of=UID`, `kind=KIND`, `unseen`,
    /// `deleting`.
    fn add_job(&mut self, name: &str, facts: &[&str]) {
        let owner = json!([{"kind": "CronJob", "name": "c", "uid": "cron", "controller": true}]);
        let metadata = json!({"name": name, "namespace": "ns", "uid": format!("uid-{name}"), "resourceVersion": "1",
            "ownerReferences": owner});
        let mut job = json!({"metadata": metadata, "status": {}});
        let condition = |kind: &str| json!([{"type": kind, "status": "True"}]);
        for fact in facts {
            match fact.split_once('=').unwrap_or((fact, "")) {
                ("running", _) => {}
                ("complete", at) => {
                    job["status"]["conditions"] = condition("Complete");
                    if !at.is_empty() {
                        job["status"]["completionTime"] = json!(time(at).to_string());
                    }
                }
                ("failed", at) => {
                    job["status"]["conditions"] = condition("Failed");
                    if !at.is_empty() {
                        job["status"]["completionTime"] = json!(time(at).to_string());
                    }
                }
                ("start", at) => job["status"]["startTime"] = json!(time(at).to_string()),
                ("for", at) => {
                    job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"] =
                        json!(time(at).to_string());
                }
                ("of", uid) => job["metadata"]["ownerReferences"][0]["uid"] = json!(uid),
                ("kind", kind) => job["metadata"]["ownerReferences"][0]["kind"] = json!(kind),
                ("deleting", _) => job["metadata"]["deletionTimestamp"] = json!(time("10:00:00").to_string()),
                ("listed", _) => self.list(name),
                ("unseen", _) => {}
                _ => panic!("{fact}"),
            }
        }
        if facts.contains(&"unseen") { self.unseen.push(job) } else { self.jobs.push(job) }
    }

    fn cron_job(&self) -> CronJobView {
        serde_json::from_value(self.cron_job.clone()).unwrap()
    }

    fn jobs(&self) -> Vec<Arc<JobView>> {
        let all = self.jobs.iter().map(|job| serde_json::from_value::<JobView>(job.clone()).unwrap());
        let mut owned: Vec<_> = all.filter(|job| job.owner == Some(Uid::new("cron"))).map(Arc::new).collect();
        owned.sort_by(|a, b| a.name.cmp(&b.name));
        owned
    }

    /// One sync, with everything written back. The answer says what was done, a line each.
    pub(super) fn sync(&mut self) -> String {
        let (cron_job, jobs) = (self.cron_job(), self.jobs());
        let snapshot = Snapshot { cron_job: &cron_job, jobs: &jobs, now: self.now, local_zone: &TimeZone::UTC };
        let stored = self.jobs.iter().chain(&self.unseen);
        let stored: HashSet<&str> = stored.map(|job| job["metadata"]["uid"].as_str().unwrap()).collect();
        let asked = questions(&snapshot).jobs;
        // The address of anything else is not that of a Job.
        assert!(asked.iter().all(|entry| *entry.namespace == *"ns" && !entry.name.is_empty() && *entry.name != *".."));
        let asked = asked.into_iter().map(|entry| entry.uid);
        let gone: HashSet<Uid> = asked.filter(|uid| !stored.contains(uid.to_string().as_str())).collect();
        let mut said = String::new();
        let mut observation = observe(&snapshot, &gone);
        tell(&mut said, &observation.events);
        let draft = &mut observation.draft;
        if !observation.deletions.is_empty() && draft.is_changed() {
            self.write(&mut said, &cron_job, draft);
        }
        for job in &observation.deletions {
            let _ = writeln!(said, "delete {}", job.name);
            self.jobs.retain(|stored| stored["metadata"]["name"] != *job.name);
        }
        let decision = decide(&snapshot, draft);
        tell(&mut said, &decision.events);
        let wake = match decision.next {
            Next::Rest { wake } => wake,
            Next::Impossible(error) => panic!("{error}"),
            Next::Start(start) => {
                self.start(&mut said, &start, draft);
                start.wake
            }
        };
        if draft.is_changed() {
            self.write(&mut said, &cron_job, draft);
        }
        if let Some(wake) = wake {
            let _ = writeln!(said, "wake {}", wait(wake.duration_since(self.now)));
        }
        said
    }

    fn start(&mut self, said: &mut String, start: &Start, draft: &mut crate::cronjob::Draft) {
        for entry in &start.replace {
            let _ = writeln!(said, "replace {}", entry.name);
            self.jobs.retain(|stored| stored["metadata"]["name"] != *entry.name);
            draft.unlist(&entry.uid);
        }
        let uid = Uid::new(&format!("uid-{}", start.name));
        let in_the_way = self.unseen.iter().find(|job| job["metadata"]["name"] == *start.name);
        if let Some(job) = in_the_way {
            let job: JobView = serde_json::from_value(job.clone()).unwrap();
            start.exists(draft, &job, &Uid::new("cron"));
            let _ = writeln!(said, "exists {}", start.name);
            return;
        }
        match self.create {
            Create::Works => {
                let _ = writeln!(said, "create {}", start.name);
                let job = ActiveJob {
                    name: start.name.as_str().into(),
                    namespace: "ns".into(),
                    uid,
                    resource_version: "9".into(),
                    ..ActiveJob::default()
                };
                start.created(draft, job);
                let mut job = start.object.clone();
                job["metadata"]["uid"] = json!(format!("uid-{}", start.name));
                job["metadata"]["resourceVersion"] = json!("9");
                self.jobs.push(job);
            }
            kind => {
                let owner = if kind == Create::ExistsOurs { "cron" } else { "other" };
                let mut other = Self::parse("");
                other.add_job(&start.name, &["running", &format!("of={owner}")]);
                let job: JobView = serde_json::from_value(other.jobs[0].clone()).unwrap();
                let existing = start.exists(draft, &job, &Uid::new("cron"));
                assert_eq!(existing == Existing::Ours, kind == Create::ExistsOurs);
                let _ = writeln!(said, "exists {}", start.name);
            }
        }
    }

    /// What `status.active` says, as the server has it.
    pub(super) fn active(&self) -> &Value {
        &self.cron_job["status"]["active"]
    }

    /// The names of the Jobs that the server has.
    pub(super) fn job_names(&self) -> Vec<&str> {
        let stored = self.jobs.iter().chain(&self.unseen);
        stored.map(|job| job["metadata"]["name"].as_str().unwrap()).collect()
    }

    /// The cache falls behind: it does not show the Jobs that there are any more.
    pub(super) fn lag(&mut self) {
        self.unseen.append(&mut self.jobs);
    }

    fn write(&mut self, said: &mut String, cron_job: &CronJobView, draft: &mut crate::cronjob::Draft) {
        if std::mem::take(&mut self.lose_status) {
            said.push_str("status lost\n");
            return;
        }
        let object = with_status(cron_job, draft.status());
        let active = object["status"]["active"].as_array().cloned().unwrap_or_default();
        let names: Vec<&str> = active.iter().filter_map(|entry| entry["name"].as_str()).collect();
        let short = |value: &Value| value.as_str().map(|text| text.replace("2016-05-19T", "").replace('Z', ""));
        let _ = write!(said, "status active=[{}]", names.join(" "));
        for (word, field) in [("last", "lastScheduleTime"), ("successful", "lastSuccessfulTime")] {
            if let Some(text) = short(&object["status"][field]) {
                let _ = write!(said, " {word}={text}");
            }
        }
        said.push('\n');
        let mut status = object["status"].clone();
        status["active"] = json!(active);
        self.cron_job["status"] = status;
        tell(said, &draft.recorded());
    }
}

fn tell(said: &mut String, events: &[crate::cronjob::Event]) {
    for event in events {
        let _ = writeln!(said, "{} {}: {}", event.kind.as_str(), event.reason, event.message);
    }
}

/// `59m`, `1h`, `58m59s`.
fn wait(duration: SignedDuration) -> String {
    format!("{duration:#}").replace(' ', "")
}
