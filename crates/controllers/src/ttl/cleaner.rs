//! Watches the objects of one kind and deletes each when its time is up.
//!
//! Of an object nothing is kept but its name and its expiry, and that only while it has one. What is deleted is decided
//! by a fresh read, and the deletion is bound to exactly the state that was read (INV-33).

use std::{collections::HashMap, marker::PhantomData, sync::Arc, time::Duration};

use batch_plan::{
    job::Uid,
    ttl::{Lifetime, Problem, Verdict, lifetime, verdict},
};
use jiff::Timestamp;
use kube::{Client, Error};
use parking_lot::Mutex;
use prometheus_client::metrics::histogram::Histogram;
use teeth::{Mutation, is};

use super::{
    COMPONENT, Options,
    projection::{Candidate, Finishable},
};
use crate::runtime::{
    Alarms, Change, ControllerContext, Environment, EventType, ObjectRef, Progress, Recorder, Reflector, RetryPolicy,
    Supervisor, WorkQueue, all_synced,
    requests::{self, DeleteOptions, Preconditions},
    retry_on_recovery,
};

/// Retries of one object. Upstream lets all objects together retry ten times a second; after an outage in which
/// thousands expired that would take hours (INV-34).
const RETRY: RetryPolicy = RetryPolicy::per_key(Duration::from_millis(5), Duration::from_secs(30));

pub(super) struct Cleaner<V> {
    client: Client,
    environment: Environment,
    recorder: Recorder,
    default_seconds: Option<i64>,
    /// How late deletions are.
    late: Option<Histogram>,
    limited: Mutex<HashMap<Uid, Limited>>,
    alarms: Alarms<Uid>,
    queue: WorkQueue<Uid>,
    kind: PhantomData<fn() -> V>,
}

/// An object that will have to go.
#[derive(Clone)]
struct Limited {
    /// `namespace/name`.
    key: Box<str>,
    expiry: Timestamp,
}

impl<V: Finishable> Cleaner<V> {
    fn new(context: &ControllerContext, options: &Options, late: Option<Histogram>) -> Self {
        Self {
            client: context.client.clone(),
            environment: context.environment.clone(),
            recorder: context.recorder.component(COMPONENT),
            default_seconds: options.default_seconds,
            late,
            limited: Mutex::default(),
            alarms: Alarms::new(context.environment.clone(), options.clock_check),
            queue: WorkQueue::new(V::QUEUE, RETRY, &context.metrics),
            kind: PhantomData,
        }
    }

    /// Starts to watch; the answer runs everything else until shutdown.
    pub(super) fn start(
        tasks: &mut Supervisor,
        context: &ControllerContext,
        options: &Options,
        late: Option<Histogram>,
    ) -> impl Future<Output = ()> + Send + use<V> {
        let cleaner = Arc::new(Self::new(context, options, late));
        let reflector = Reflector::<V>::new(context, V::source());
        let (mirrored, noted) = (reflector.progress(), cleaner.clone());
        tasks.spawn("ttl watch", reflector.run(context.shutdown.clone(), move |change| noted.note(change)));
        cleaner.run(context.clone(), options.workers, mirrored)
    }

    async fn run(self: Arc<Self>, context: ControllerContext, workers: usize, mirrored: Progress) {
        let shutdown = &context.shutdown;
        if !all_synced(&[&mirrored], shutdown).await {
            return;
        }
        let mut tasks = Supervisor::new(shutdown.clone());
        let queue = self.queue.clone();
        tasks.spawn("ttl alarms", self.alarms.clone().run(shutdown.clone(), move |uid| queue.add(uid)));
        tasks.spawn("ttl recovery", retry_on_recovery(self.queue.clone(), mirrored, shutdown.clone()));
        for _ in 0..workers.max(1) {
            let cleaner = self.clone();
            let act = move |uid| cleaner.clone().work(uid);
            tasks.spawn("ttl worker", self.queue.clone().work(shutdown.clone(), act));
        }
        if let Err(error) = tasks.run().await {
            tracing::error!(%error, kind = V::KIND, "ttl-after-finished controller");
        }
    }

    /// TTL-1: every change decides anew whether and until when an object is kept.
    fn note(&self, change: Change<V>) {
        match change {
            Change::Applied(object) => self.applied(object.candidate()),
            Change::Deleted(object) => self.forget(&Uid::new(&object.candidate().uid)),
            Change::Vanished { uid } => self.forget(&Uid::new(&uid)),
            Change::Synced => {}
        }
    }

    fn applied(&self, object: &Candidate) {
        let uid = Uid::new(&object.uid);
        match lifetime(&object.subject, self.default_seconds) {
            Lifetime::Until(expiry) => {
                self.tell_skew(object);
                let key = format!("{}/{}", object.namespace, object.name).into();
                self.limited.lock().insert(uid.clone(), Limited { key, expiry });
                self.alarms.set(uid, expiry);
            }
            Lifetime::Unlimited => self.forget(&uid),
            Lifetime::Unknown(problem) => {
                self.forget(&uid);
                self.tell_problem(object, &problem);
            }
        }
    }

    fn forget(&self, uid: &Uid) {
        if self.limited.lock().remove(uid).is_some() {
            self.alarms.cancel(uid);
            self.queue.discard(uid);
        }
    }

    /// Looks at an object again at a certain time, if it is still to go then.
    fn wake(&self, uid: &Uid, at: Timestamp) {
        let limited = self.limited.lock();
        if limited.contains_key(uid) {
            self.alarms.set(uid.clone(), at);
        }
    }

    async fn work(self: Arc<Self>, uid: Uid) -> Result<(), Error> {
        let outcome = self.sync(&uid).await;
        if let Some(error) = outcome.as_ref().err().filter(|error| !requests::is_not_found(error)) {
            tracing::warn!(%error, kind = V::KIND, %uid, "clean up after the time to live");
        }
        outcome
    }

    /// TTL-2…TTL-8. Nothing is left to do for an object that is gone, or that has been given more time.
    async fn sync(&self, uid: &Uid) -> Result<(), Error> {
        let Some(known) = self.limited.lock().get(uid).cloned() else { return Ok(()) };
        if let Verdict::Wait(until) = verdict(&Lifetime::Until(known.expiry), self.environment.now()) {
            self.wake(uid, until);
            return Ok(());
        }
        let (namespace, name) = known.key.split_once('/').unwrap_or(("", &known.key));
        let path = V::RESOURCE.object(namespace, name);
        // One that is not found is tried again like any other failure, until the watch shows that it is gone (INV-34).
        let fresh: V = requests::get(&self.client, &path).await?;
        let fresh = fresh.candidate();
        if Uid::new(&fresh.uid) != *uid {
            // A namesake has an entry of its own.
            return Ok(());
        }
        match verdict(&lifetime(&fresh.subject, self.default_seconds), self.environment.now()) {
            Verdict::Keep => Ok(()),
            Verdict::Wait(until) => {
                self.wake(uid, until);
                Ok(())
            }
            Verdict::Expired(late) => self.delete(&path, fresh, late).await,
        }
    }

    /// Upstream binds the deletion to the uid alone, so that a time to live raised a moment before comes too late
    /// (REG-G01).
    async fn delete(&self, path: &str, fresh: &Candidate, late: Duration) -> Result<(), Error> {
        let options = DeleteOptions {
            preconditions: Preconditions {
                uid: Some(fresh.uid.to_string()),
                resource_version: Some(fresh.resource_version.to_string()).filter(|_| !is(Mutation::G01)),
            },
            propagation_policy: Some(V::PROPAGATION),
            ..DeleteOptions::default()
        };
        requests::delete(&self.client, path, &options).await?;
        if let Some(histogram) = &self.late {
            histogram.observe(late.as_secs_f64());
        }
        let (namespace, name) = (&*fresh.namespace, &*fresh.name);
        tracing::info!(kind = V::KIND, namespace, name, ?late, "deleted after its time to live");
        Ok(())
    }

    /// TTL-5: the clocks of whoever finished it and of this process differ. The arithmetic waits as long as it takes.
    fn tell_skew(&self, object: &Candidate) {
        let finished = object.subject.finish.and_then(|finish| finish.at);
        if finished.is_some_and(|finished| finished > self.environment.now()) {
            let (namespace, name) = (&*object.namespace, &*object.name);
            tracing::info!(kind = V::KIND, namespace, name, "finished in the future, probably by another clock");
        }
    }

    /// Only about what upstream does not have: about Jobs and their field no event is ever told.
    fn tell_problem(&self, object: &Candidate, problem: &Problem) {
        let (namespace, name) = (&*object.namespace, &*object.name);
        tracing::warn!(kind = V::KIND, namespace, name, %problem, "cannot tell when to clean up");
        if let Problem::Unreadable { .. } = problem {
            let object = ObjectRef {
                api_version: V::API_VERSION.to_owned(),
                kind: V::KIND.to_owned(),
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                uid: object.uid.to_string(),
                resource_version: object.resource_version.to_string(),
            };
            self.recorder.event(&object, EventType::Warning, "InvalidTTL", format!("Not cleaning up: {problem}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{runtime::Metrics, runtime::Shutdown, ttl::projection::JobView};

    fn cleaner() -> Cleaner<JobView> {
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            Ok::<_, std::convert::Infallible>(http::Response::new(kube::client::Body::empty()))
        });
        let client = Client::new(service, "default");
        let environment = Environment::new(|| Timestamp::UNIX_EPOCH, || 0);
        let (context, _) = ControllerContext::new(client, Metrics::new(), environment, Shutdown::new());
        Cleaner::new(&context, &Options::default(), None)
    }

    fn job(number: u32, version: u32, fields: Value) -> JobView {
        let mut job = json!({"spec": {"ttlSecondsAfterFinished": 3600}, "status": {"conditions": [
            {"type": "Complete", "status": "True", "lastTransitionTime": "2024-01-01T00:00:00Z"},
        ]}});
        job.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let deletion = job["deleted"].take();
        job["metadata"] = json!({"name": "j", "namespace": "ns", "uid": number.to_string(),
            "resourceVersion": version.to_string(), "deletionTimestamp": deletion});
        serde_json::from_value(job).unwrap()
    }

    fn assert_empty(cleaner: &Cleaner<JobView>) {
        assert!(cleaner.limited.lock().is_empty() && cleaner.alarms.is_empty());
        assert_eq!(cleaner.queue.remembered(), 0);
    }

    /// REG-A14, TTL-10: an object that need not go any more leaves nothing behind, not even an alarm years away.
    #[tokio::test]
    async fn reg_a14_nothing_is_remembered_of_what_is_gone_or_stays() {
        const JOBS: u32 = 10_000;
        let cleaner = cleaner();
        let ways: [fn(u32) -> Change<JobView>; 4] = [
            |number| Change::Deleted(job(number, 2, json!({}))),
            |number| Change::Vanished { uid: number.to_string().into() },
            |number| Change::Applied(job(number, 2, json!({"spec": {}}))),
            |number| Change::Applied(job(number, 2, json!({"deleted": "2024-01-01T00:00:00Z"}))),
        ];
        for number in 0..JOBS {
            cleaner.note(Change::Applied(job(number, 1, json!({}))));
            if number.is_multiple_of(7) {
                cleaner.queue.add_rate_limited(Uid::new(&number.to_string()));
            }
        }
        assert_eq!((cleaner.limited.lock().len(), cleaner.alarms.len()), (JOBS as usize, JOBS as usize));
        for number in 0..JOBS {
            cleaner.note(ways[number as usize % ways.len()](number));
            // A sync that ends only now.
            cleaner.wake(&Uid::new(&number.to_string()), Timestamp::UNIX_EPOCH);
        }
        assert_empty(&cleaner);
    }

    #[tokio::test]
    async fn a_shorter_time_rings_earlier() {
        let cleaner = cleaner();
        cleaner.note(Change::Applied(job(1, 1, json!({}))));
        cleaner.note(Change::Applied(job(1, 2, json!({"spec": {"ttlSecondsAfterFinished": 60}}))));
        assert_eq!(cleaner.alarms.earliest(), Some("2024-01-01T00:01:00Z".parse().unwrap()));
    }
}
