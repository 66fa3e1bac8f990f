//! Leader election by a Lease, as client-go's `leaderelection` does it (JC-109).
//!
//! One of several processes works at a time. Times on the Lease are for people: who holds it is judged by how long
//! *this* process has seen it unchanged, on its own monotonic clock, so clocks that disagree do no harm (P-11).

use std::time::Duration;

use jiff::Timestamp;
use kube::{Client, Error};
use prometheus_client::metrics::{family::Family, gauge::Gauge};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    context::ControllerContext,
    environment::Environment,
    requests,
    resource::Resource,
    supervise::{Shutdown, TaskError},
};

/// Where the Lease is and how it is kept. The defaults are kube-controller-manager's.
#[derive(Debug, Clone)]
pub struct LeaderOptions {
    pub namespace: String,
    pub name: String,
    /// Who we are: unique among all processes that may hold the Lease.
    pub identity: String,
    /// How long others wait for a leader that has fallen silent.
    pub lease_duration: Duration,
    /// How long a leader that cannot renew goes on; shorter than `lease_duration`.
    pub renew_deadline: Duration,
    pub retry_period: Duration,
}

impl LeaderOptions {
    pub fn new(namespace: &str, name: &str, identity: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity: identity.to_owned(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// Why leading ended.
#[derive(Debug, thiserror::Error)]
pub enum LeaderError {
    /// Somebody else may lead by now; the process should end and start over with fresh memory.
    #[error("lost the lease `{lease}`: {why}")]
    Lost { lease: String, why: String },
    #[error(transparent)]
    Task(#[from] TaskError),
}

/// Waits for the Lease, then runs `work` for as long as it is held. `stands_by` is told who holds it, if it has to be waited
/// for.
///
/// `work` is given a token that is cancelled at shutdown. When the Lease cannot be renewed in time, `work` is dropped
/// where it stands, so that nothing is written any more; a [`Supervisor`](super::Supervisor) inside it takes its tasks
/// along. When `work` has ended by itself, the Lease is released for the next leader.
pub async fn lead<F, W>(
    context: &ControllerContext,
    options: LeaderOptions,
    stands_by: impl FnOnce(&str),
    work: F,
) -> Result<(), LeaderError>
where
    F: FnOnce(Shutdown) -> W,
    W: Future<Output = Result<(), TaskError>>,
{
    let status: Family<[(&str, String); 1], Gauge> = context.metrics.register(
        "leader_election_master_status",
        "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master.",
        Family::default(),
    );
    let status = status.get_or_create_owned(&[("name", options.name.clone())]);
    let mut elector = Elector::new(context.client.clone(), context.environment.clone(), options);
    let renewed = tokio::select! {
        biased;
        () = context.shutdown.cancelled() => None,
        renewed = elector.acquire(stands_by) => Some(renewed),
    };
    let Some(renewed) = renewed else {
        // The answer was not waited for, and the Lease may be ours.
        if elector.is_writing {
            elector.release().await;
        }
        return Ok(());
    };
    tracing::info!(lease = elector.options.name, identity = elector.options.identity, "became leader");
    status.set(1);
    let outcome = tokio::select! {
        // Work that has ended by itself counts, also when the Lease is lost at the same moment.
        biased;
        ended = work(context.shutdown.child_token()) => Ok(ended),
        why = elector.renew(renewed) => Err(why),
    };
    status.set(0);
    match outcome {
        Ok(ended) => {
            elector.release().await;
            Ok(ended?)
        }
        Err(why) => Err(LeaderError::Lost { lease: elector.options.name, why }),
    }
}

struct Elector {
    client: Client,
    environment: Environment,
    options: LeaderOptions,
    /// The Lease as last seen, and since when it looks like this.
    observed: Option<(Value, Instant)>,
    /// Whether a write is under way.
    is_writing: bool,
}

impl Elector {
    fn new(client: Client, environment: Environment, options: LeaderOptions) -> Self {
        Self { client, environment, options, observed: None, is_writing: false }
    }

    /// Tries until the Lease is ours; the answer is when the successful attempt began.
    async fn acquire(&mut self, stands_by: impl FnOnce(&str)) -> Instant {
        let mut stands_by = Some(stands_by);
        loop {
            let started = Instant::now();
            match self.attempt().await {
                Ok(true) => return started,
                Ok(false) => {
                    if let Some(tell) = stands_by.take_if(|_| self.is_held_by_another()) {
                        tell(self.holder());
                    }
                }
                Err(error) => tracing::warn!(%error, lease = self.options.name, "acquire the lease"),
            }
            tokio::time::sleep(self.environment.jittered(self.options.retry_period, 1.2)).await;
        }
    }

    /// Keeps the Lease; when it was not renewed in time or is somebody else's, says so.
    async fn renew(&mut self, mut renewed: Instant) -> String {
        let mut trouble = "no answer".to_owned();
        loop {
            tokio::time::sleep(self.options.retry_period).await;
            let deadline = renewed + self.options.renew_deadline;
            let started = Instant::now();
            match tokio::time::timeout_at(deadline, self.attempt()).await {
                Ok(Ok(true)) => renewed = started,
                Ok(Ok(false)) if !self.is_ours() => return format!("`{}` holds it", self.holder()),
                Ok(Ok(false)) => {}
                Ok(Err(error)) => {
                    tracing::warn!(%error, lease = self.options.name, "renew the lease");
                    trouble = error.to_string();
                }
                Err(_) => {}
            }
            if Instant::now() >= deadline {
                return format!("not renewed within {:?}: {trouble}", self.options.renew_deadline);
            }
        }
    }

    /// One attempt to get or to keep the Lease.
    async fn attempt(&mut self) -> Result<bool, Error> {
        // A leader writes at once: nobody else should have touched its Lease, and if so the write fails.
        if self.is_ours()
            && let Some((lease, _)) = &self.observed
        {
            let renewed = self.claimed(lease.clone());
            if let Ok(lease) = self.replace(&renewed).await {
                self.observe(lease);
                return Ok(true);
            }
        }
        let lease: Value = match requests::get(&self.client, &self.path()).await {
            Ok(lease) => lease,
            Err(error) if requests::is_not_found(&error) => return self.create().await,
            Err(error) => return Err(error),
        };
        self.observe(lease.clone());
        if self.is_held_by_another() {
            return Ok(false);
        }
        match self.replace(&self.claimed(lease)).await {
            Ok(lease) => {
                self.observe(lease);
                Ok(true)
            }
            // Somebody else was faster.
            Err(error) if requests::is_conflict(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn create(&mut self) -> Result<bool, Error> {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self.options.name, "namespace": self.options.namespace},
        });
        let path = Resource::LEASES.collection(Some(&self.options.namespace));
        let mut lease = self.claimed(lease);
        lease["spec"]["leaseTransitions"] = json!(0);
        self.is_writing = true;
        let created = requests::create(&self.client, &path, &lease).await;
        self.is_writing = false;
        match created {
            Ok(lease) => {
                self.observe(lease);
                Ok(true)
            }
            Err(error) if requests::is_already_exists(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Lets others lead without waiting for the Lease to run out.
    async fn release(&mut self) {
        match tokio::time::timeout(self.options.renew_deadline, self.give_up()).await {
            Ok(Ok(true)) => tracing::info!(lease = self.options.name, "released the lease"),
            Ok(Ok(false)) => {}
            Ok(Err(error)) => tracing::warn!(%error, lease = self.options.name, "release the lease"),
            Err(_) => tracing::warn!(lease = self.options.name, "release the lease: no answer in time"),
        }
    }

    /// Says whether there was anything to release.
    ///
    /// What was last seen is not enough: the write that was under way when the work ended may have landed, even now.
    async fn give_up(&mut self) -> Result<bool, Error> {
        match self.write_released().await {
            Err(error) if requests::is_conflict(&error) => self.write_released().await,
            written => written,
        }
    }

    /// Writes the Lease with nobody who holds it, if we did.
    async fn write_released(&mut self) -> Result<bool, Error> {
        let mut lease: Value = match requests::get(&self.client, &self.path()).await {
            Ok(lease) => lease,
            Err(error) if requests::is_not_found(&error) => return Ok(false),
            Err(error) => return Err(error),
        };
        if holder(&lease) != self.options.identity {
            return Ok(false);
        }
        let now = micro_time(self.environment.now());
        lease["spec"]["holderIdentity"] = json!("");
        lease["spec"]["leaseDurationSeconds"] = json!(1);
        lease["spec"]["renewTime"] = json!(now);
        lease["spec"]["acquireTime"] = json!(now);
        self.replace(&lease).await.map(|_| true)
    }

    async fn replace(&mut self, lease: &Value) -> Result<Value, Error> {
        self.is_writing = true;
        let replaced = requests::replace(&self.client, &self.path(), lease).await;
        self.is_writing = false;
        replaced
    }

    /// The Lease as we want it: ours, renewed now.
    fn claimed(&self, mut lease: Value) -> Value {
        let now = json!(micro_time(self.environment.now()));
        let spec = &mut lease["spec"];
        if spec["holderIdentity"].as_str() != Some(&self.options.identity) {
            let transitions = spec["leaseTransitions"].as_i64().unwrap_or(0);
            spec["leaseTransitions"] = json!(transitions.saturating_add(1));
            spec["acquireTime"] = now.clone();
        }
        spec["holderIdentity"] = json!(self.options.identity);
        spec["leaseDurationSeconds"] = json!(self.options.lease_duration.as_secs());
        spec["renewTime"] = now;
        lease
    }

    fn observe(&mut self, lease: Value) {
        if self.observed.as_ref().is_none_or(|(known, _)| known["spec"] != lease["spec"]) {
            self.observed = Some((lease, Instant::now()));
        } else if let Some((known, _)) = &mut self.observed {
            // Same claim, but perhaps a newer resourceVersion.
            *known = lease;
        }
    }

    fn holder(&self) -> &str {
        self.observed.as_ref().map_or("", |(lease, _)| holder(lease))
    }

    fn is_ours(&self) -> bool {
        self.holder() == self.options.identity
    }

    fn is_held_by_another(&self) -> bool {
        let Some((lease, since)) = &self.observed else { return false };
        let holder = holder(lease);
        let seconds = lease["spec"]["leaseDurationSeconds"].as_u64();
        let duration = seconds.map_or(self.options.lease_duration, Duration::from_secs);
        !holder.is_empty() && holder != self.options.identity && since.elapsed() < duration
    }

    fn path(&self) -> String {
        Resource::LEASES.object(&self.options.namespace, &self.options.name)
    }
}

fn holder(lease: &Value) -> &str {
    lease["spec"]["holderIdentity"].as_str().unwrap_or("")
}

/// `metav1.MicroTime`.
fn micro_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };

    use super::*;
    use crate::testing::World;

    fn options(identity: &str) -> LeaderOptions {
        LeaderOptions {
            lease_duration: Duration::from_secs(2),
            renew_deadline: Duration::from_millis(300),
            retry_period: Duration::from_millis(20),
            ..LeaderOptions::new("default", "tally", identity)
        }
    }

    fn held_by(identity: &str) -> impl Fn(Option<&Value>) -> bool {
        move |lease| lease.is_some_and(|lease| holder(lease) == identity)
    }

    #[tokio::test]
    async fn one_leads_and_the_next_takes_over_when_it_stops() {
        let world = World::new().await;
        let first = world.context.with_shutdown(Shutdown::new());
        let stop = first.shutdown.clone();
        let waits = |shutdown: Shutdown| async move {
            shutdown.cancelled().await;
            Ok(())
        };
        // What is released must not depend on how busy the machine is.
        let patient = |identity| LeaderOptions { renew_deadline: Duration::from_secs(60), ..options(identity) };
        let a = tokio::spawn(async move { lead(&first, patient("a"), |_| {}, waits).await });
        // Perhaps it has not been told yet.
        world.wait(&Resource::LEASES, "default", "tally", held_by("a")).await;
        let second = world.context.clone();
        let (told, hears) = tokio::sync::oneshot::channel();
        let stands_by = |holder: &str| drop(told.send(holder.to_owned()));
        let b = tokio::spawn(async move { lead(&second, patient("b"), stands_by, waits).await });
        assert_eq!(hears.await.unwrap(), "a");
        stop.cancel();
        a.await.unwrap().unwrap();
        let lease = world.get(&Resource::LEASES, "default", "tally").await.unwrap();
        assert_ne!(holder(&lease), "a", "nobody has to wait for it to run out");
        let lease = world.wait(&Resource::LEASES, "default", "tally", held_by("b")).await.unwrap();
        // It changed hands once; that nobody held it in between does not count.
        assert_eq!(lease["spec"]["leaseTransitions"], 1);
        assert_eq!(lease["spec"]["leaseDurationSeconds"], 2);
        assert_eq!(lease["spec"]["renewTime"].as_str().unwrap().len(), "2024-01-01T00:00:00.000000Z".len());
        world.context.shutdown.cancel();
        b.await.unwrap().unwrap();
        let lease = world.get(&Resource::LEASES, "default", "tally").await.unwrap();
        assert_eq!(holder(&lease), "");
    }

    /// A renewal can land although nobody waits for its answer any more.
    #[tokio::test]
    async fn a_lease_that_was_renewed_unheard_is_released_all_the_same() {
        let world = World::new().await;
        let client = world.context.client.clone();
        let work = |_| async move {
            let renewed = json!({"spec": {"renewTime": micro_time(jiff::Timestamp::now())}});
            let path = Resource::LEASES.object("default", "tally");
            requests::patch::<requests::Ignored>(&client, &path, requests::PatchType::Merge, &renewed).await.unwrap();
            Ok(())
        };
        let (retry_period, renew_deadline) = (Duration::from_secs(100), Duration::from_secs(200));
        let rarely = LeaderOptions { retry_period, renew_deadline, ..options("a") };
        lead(&world.context, rarely, |_| {}, work).await.unwrap();
        let lease = world.get(&Resource::LEASES, "default", "tally").await.unwrap();
        assert_eq!(holder(&lease), "");
    }

    #[tokio::test]
    async fn a_leader_that_cannot_renew_stops_working() {
        let world = World::new().await;
        let context = world.context.clone();
        let stopped = Arc::new(AtomicBool::new(false));
        let guard = OnDrop(stopped.clone());
        let work = |_| async move {
            let _guard = guard;
            std::future::pending().await
        };
        let leading = tokio::spawn(async move { lead(&context, options("a"), |_| {}, work).await });
        world.wait(&Resource::LEASES, "default", "tally", held_by("a")).await;
        world.server.stop();
        let lost = leading.await.unwrap().unwrap_err().to_string();
        assert!(lost.starts_with("lost the lease `tally`: not renewed within 300ms: "), "{lost}");
        assert!(stopped.load(Ordering::SeqCst), "the work was dropped");
    }

    #[tokio::test]
    async fn a_lease_that_was_taken_away_is_lost_at_once() {
        let world = World::new().await;
        let context = world.context.clone();
        let long = LeaderOptions { renew_deadline: Duration::from_secs(1000), ..options("a") };
        let leading = tokio::spawn(async move { lead(&context, long, |_| {}, |_| std::future::pending()).await });
        world.wait(&Resource::LEASES, "default", "tally", held_by("a")).await;
        let thief = json!({"spec": {"holderIdentity": "thief"}});
        world.patch(&Resource::LEASES, "default", "tally", thief).await;
        assert_eq!(leading.await.unwrap().unwrap_err().to_string(), "lost the lease `tally`: `thief` holds it");
    }

    struct OnDrop(Arc<AtomicBool>);

    impl Drop for OnDrop {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
}
