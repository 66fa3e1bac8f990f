//! An API server on paper: as much of one as the Job controller needs for Jobs that take their course, and cheap enough for
//! ten thousand of them, or for one with a hundred thousand pods. Its watches are never behind.

use std::{collections::BTreeMap, ops::Range, sync::Arc, time::Duration};

use batch_plan::job::{Phase, PodView, Settings, Uid};
use batch_types::job::is_finished;
use http::{Method, Request, Response, StatusCode};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use kube::{Client, client::Body};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::NAMESPACE;
use crate::{
    job::{
        RETRY, WatchedPod,
        calls::PodCalls,
        release_orphan,
        shared::{Shared, uid_of},
        sync,
        sync::Syncer,
    },
    runtime::{Change, ControllerContext, Environment, Metrics, Reflector, Resource, Shutdown, Source, WorkQueue},
};

/// When the controller began; every Job is younger.
const START: Timestamp = Timestamp::constant(1_767_607_200, 0);

/// The server, its users and kubelets, and one worker of the Job controller.
pub(super) struct Paper {
    pub(super) shared: Arc<Shared>,
    stored: Arc<Mutex<Stored>>,
    client: Client,
    syncer: Arc<Syncer>,
    shutdown: Shutdown,
}

#[derive(Default)]
struct Stored {
    version: u64,
    jobs: BTreeMap<String, Job>,
    pods: BTreeMap<String, PodView>,
    /// How many of the Jobs have ended.
    finished: usize,
    calls: Vec<Call>,
    /// Whose every sync was, and which calls it made.
    syncs: Vec<(Uid, Range<usize>)>,
    /// One call in so many is answered with 500.
    refuses_one_in: Option<usize>,
}

/// A call that the controller has made.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) job: String,
    pub(super) what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Create,
    Release,
    Status,
    Read,
}

/// An answer, and what the watches show after it.
type Answer = (StatusCode, Vec<u8>, Vec<News>);

enum News {
    Job(Box<Change<Job>>),
    Pod(Box<Change<WatchedPod>>),
}

impl Paper {
    /// Every call takes this long.
    pub(super) fn new(calls_at_once: usize, call_takes: Duration) -> Self {
        let (metrics, started) = (Metrics::new(), Instant::now());
        let now = move || START + SignedDuration::try_from(started.elapsed()).unwrap();
        let environment = Environment::new(now, || 0);
        let queues = (WorkQueue::new("job", RETRY, &metrics), WorkQueue::new("job_orphan_pod", RETRY, &metrics));
        let shared = Shared::new(Settings::default(), environment.clone(), &metrics, queues.0, queues.1);
        let (shared, stored) = (Arc::new(shared), Arc::new(Mutex::new(Stored::default())));
        shared.job_changed(Change::Synced);
        let (watching, serving) = (shared.clone(), stored.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (watching, serving) = (watching.clone(), serving.clone());
            async move {
                if !call_takes.is_zero() {
                    tokio::time::sleep(call_takes).await;
                }
                let (parts, body) = request.into_parts();
                let body = body.collect_bytes().await?;
                let (code, answer, news) = serving.lock().answer(&parts.method, parts.uri.path(), &body);
                deliver(&watching, news);
                let mut response = Response::new(Body::from(answer));
                *response.status_mut() = code;
                Ok::<_, kube::Error>(response)
            }
        });
        let client = Client::new(service, NAMESPACE);
        let shutdown = Shutdown::new();
        let (context, _) = ControllerContext::new(client.clone(), metrics, environment, shutdown.clone());
        let pods_seen = Reflector::<WatchedPod>::new(&context, Source::all(Resource::PODS)).progress();
        let calls = PodCalls { client: client.clone(), at_once: calls_at_once };
        let syncer = Arc::new(Syncer::new(calls, context.recorder, shared.clone(), pods_seen));
        Self { shared, stored, client, syncer, shutdown }
    }

    pub(super) fn refuse_one_in(&self, calls: usize) {
        self.stored.lock().refuses_one_in = Some(calls);
    }

    /// Starts a worker for Jobs and one for orphans, as `run` does.
    pub(super) fn start(&self) {
        let (syncer, stored) = (self.syncer.clone(), self.stored.clone());
        let act = move |uid: Uid| {
            let (syncer, stored) = (syncer.clone(), stored.clone());
            async move {
                let first = stored.lock().calls.len();
                let outcome = sync(syncer, uid.clone()).await;
                let mut stored = stored.lock();
                let calls = first..stored.calls.len();
                stored.syncs.push((uid, calls));
                outcome
            }
        };
        tokio::spawn(self.shared.jobs.clone().work(self.shutdown.clone(), act));
        let (client, shared) = (self.client.clone(), self.shared.clone());
        let act = move |orphan| release_orphan(client.clone(), shared.clone(), orphan);
        tokio::spawn(self.shared.orphans.clone().work(self.shutdown.clone(), act));
    }

    /// A user makes a Job.
    pub(super) fn create_job(&self, name: &str, spec: &Value) {
        let labels = json!({"job": name});
        let template = json!({"metadata": {"labels": labels}, "spec": {"restartPolicy": "Never"}});
        let mut job = json!({
            "metadata": {"name": name, "namespace": NAMESPACE, "uid": format!("uid-of-{name}"), "generation": 1,
                         "creationTimestamp": "2026-01-05T10:00:01Z"},
            "spec": {"parallelism": 1, "completions": 1, "backoffLimit": 6, "selector": {"matchLabels": labels},
                     "template": template},
        });
        job["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let news = self.stored.lock().put_job(serde_json::from_value(job).unwrap());
        deliver(&self.shared, vec![news]);
    }

    /// Puts a pod there that the Job has made before.
    pub(super) fn place_pod(&self, pod: PodView) {
        let change = self.stored.lock().put_pod(pod);
        self.shared.pod_changed(change);
    }

    /// The kubelet tells how a pod has ended.
    pub(super) fn end_pod(&self, name: &str, phase: Phase) {
        let pod = self.stored.lock().pods[name].clone();
        self.place_pod(PodView { phase, ..pod });
    }

    /// Somebody deletes a Job, and the collector its pods. The watches tell, or only show that they are gone.
    pub(super) fn delete_job(&self, name: &str, vanishes: bool) {
        let news = self.stored.lock().delete_job(name, vanishes);
        deliver(&self.shared, news);
    }

    pub(super) fn pod_count(&self) -> usize {
        self.stored.lock().pods.len()
    }

    pub(super) fn pods(&self) -> Vec<PodView> {
        self.stored.lock().pods.values().cloned().collect()
    }

    /// How many of the Jobs that there are have ended.
    pub(super) fn finished_count(&self) -> usize {
        self.stored.lock().finished
    }

    /// The calls of every sync of a Job that has ended, one sync after the other.
    pub(super) fn syncs(&self, job: &str) -> Vec<Vec<What>> {
        let (uid, stored) = (Uid::new(&format!("uid-of-{job}")), self.stored.lock());
        let own = stored.syncs.iter().filter(|(of, _)| *of == uid);
        own.map(|(_, calls)| stored.calls[calls.clone()].iter().map(|call| call.what).collect()).collect()
    }

    pub(super) fn calls(&self) -> Vec<Call> {
        self.stored.lock().calls.clone()
    }

    /// Lets time pass until something is true.
    pub(super) async fn until(&self, about: &str, is_true: impl Fn(&Self) -> bool) {
        let hour = async {
            while !is_true(self) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        assert!(tokio::time::timeout(Duration::from_secs(3600), hour).await.is_ok(), "{about}");
    }
}

impl Drop for Paper {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

fn deliver(shared: &Shared, news: Vec<News>) {
    for news in news {
        match news {
            News::Job(change) => shared.job_changed(*change),
            News::Pod(change) => shared.pod_changed(*change),
        }
    }
}

impl Stored {
    fn answer(&mut self, method: &Method, path: &str, body: &[u8]) -> Answer {
        let (above, name) = path.rsplit_once('/').unwrap_or_default();
        let job_of = |pod: &PodView| pod.controller.as_ref().map(|owner| owner.name.clone()).unwrap_or_default();
        let created = (*method == Method::POST).then(|| serde_json::from_slice::<PodView>(body).unwrap());
        let (job, what) = match *method {
            Method::POST => (created.as_ref().map(job_of), What::Create),
            Method::PATCH => (self.pods.get(name).map(job_of), What::Release),
            Method::PUT => (above.rsplit('/').next().map(str::to_owned), What::Status),
            Method::GET => (Some(name.to_owned()), What::Read),
            _ => panic!("{method} {path}"),
        };
        let job = job.unwrap_or_default();
        self.calls.push(Call { job: job.clone(), what });
        if self.refuses_one_in.is_some_and(|calls| self.calls.len().is_multiple_of(calls)) {
            return refusal(500);
        }
        match (what, created) {
            (What::Status, _) => self.write_status(&job, body),
            (What::Create, Some(pod)) if self.jobs.contains_key(&job) => {
                let uid = Uid::new(&format!("uid-of-{}", pod.name));
                (StatusCode::CREATED, b"{}".into(), self.show_pod(PodView { uid, phase: Phase::Running, ..pod }))
            }
            (What::Release, _) if self.pods.contains_key(name) => {
                let pod = PodView { finalizer: false, ..self.pods[name].clone() };
                (StatusCode::OK, b"{}".into(), self.show_pod(pod))
            }
            // Whether a pod is there after all.
            (What::Read, _) if name == "pods" => {
                (StatusCode::OK, br#"{"metadata": {}, "items": []}"#.into(), Vec::new())
            }
            (What::Read, _) if self.jobs.contains_key(name) => {
                (StatusCode::OK, serde_json::to_vec(&self.jobs[name]).unwrap(), Vec::new())
            }
            _ => refusal(404),
        }
    }

    fn write_status(&mut self, name: &str, body: &[u8]) -> Answer {
        let Update { metadata, status } = serde_json::from_slice(body).unwrap();
        let Some(job) = self.jobs.get(name).filter(|job| job.metadata.uid == metadata.uid) else { return refusal(404) };
        if job.metadata.resource_version != metadata.resource_version {
            return refusal(409);
        }
        let had_finished = is_finished(job);
        let job = Job { metadata: job.metadata.clone(), spec: job.spec.clone(), status: Some(status) };
        self.finished += usize::from(!had_finished && is_finished(&job));
        let news = self.put_job(job);
        let Job { metadata, status, .. } = &self.jobs[name];
        let (uid, resource_version) = (metadata.uid.clone(), metadata.resource_version.clone());
        let metadata = Identity { uid, resource_version };
        let written = Update { metadata, status: status.clone().unwrap_or_default() };
        (StatusCode::OK, serde_json::to_vec(&written).unwrap(), vec![news])
    }

    fn put_job(&mut self, mut job: Job) -> News {
        self.version += 1;
        job.metadata.resource_version = Some(self.version.to_string());
        self.jobs.insert(job.metadata.name.clone().unwrap(), job.clone());
        News::Job(Change::Applied(job).into())
    }

    fn show_pod(&mut self, pod: PodView) -> Vec<News> {
        vec![News::Pod(self.put_pod(pod).into())]
    }

    /// A pod that is being deleted is gone when nothing holds it.
    fn put_pod(&mut self, mut pod: PodView) -> Change<WatchedPod> {
        self.version += 1;
        (pod.namespace, pod.resource_version) = (NAMESPACE.to_owned(), self.version.to_string());
        if pod.deleting && !pod.finalizer {
            self.pods.remove(&pod.name);
            return Change::Deleted(pod.into());
        }
        self.pods.insert(pod.name.clone(), pod.clone());
        Change::Applied(pod.into())
    }

    fn delete_job(&mut self, name: &str, vanishes: bool) -> Vec<News> {
        let job = self.jobs.remove(name).unwrap();
        self.finished -= usize::from(is_finished(&job));
        let prefix = format!("{name}-");
        let named = self.pods.range(prefix.clone()..).take_while(|(pod, _)| pod.starts_with(&prefix));
        let pods: Vec<PodView> = named.map(|(_, pod)| pod.clone()).collect();
        let gone = match vanishes {
            true => Change::Vanished { uid: uid_of(&job).to_string().into() },
            false => Change::Deleted(job),
        };
        let mut news = vec![News::Job(gone.into())];
        for pod in pods {
            let change = match self.put_pod(PodView { deleting: true, ..pod }) {
                Change::Deleted(pod) if vanishes => Change::Vanished { uid: pod.view.uid.to_string().into() },
                other => other,
            };
            news.push(News::Pod(change.into()));
        }
        news
    }
}

fn refusal(code: u16) -> Answer {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "no"});
    (code.try_into().unwrap(), status.to_string().into_bytes(), Vec::new())
}

/// What is read of a status write, and answered to it.
#[derive(Deserialize, Serialize)]
struct Update {
    metadata: Identity,
    status: JobStatus,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Identity {
    uid: Option<String>,
    resource_version: Option<String>,
}
