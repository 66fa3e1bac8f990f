//! Nodes that run nothing: pods start, last as long as they say, and end as they say.
//!
//! For load tests, and for people who test controllers. Annotations of a pod say how it behaves; see [`behaviour`].

mod behaviour;
mod pods;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use behaviour::Behaviour;

use self::pods::{Outcome, Shapes, SimulatedPod};
use crate::agent::watch::{self, Change};
use crate::agent::{Capacity, Error};
use crate::calls::{self, Answer};
use crate::moment::Clock;
use crate::nursery::protocol::{Abilities, Obstacles};
use crate::pod::{Phase, Pod};
use crate::registration::{self, Description};

/// Calls under way at the same time.
const CALLS_MAX: usize = 128;
const CHANGES: usize = 4096;
const MESSAGES: usize = 4096;
/// Failing pods that start again wait like real ones, so that they do not spin.
const RESTART_WAIT_INITIAL: Duration = Duration::from_secs(10);
const RESTART_WAIT_MAX: Duration = Duration::from_secs(300);
const RETRY: Duration = Duration::from_secs(1);
/// The address of all simulated pods and nodes.
const ADDRESS: &str = "127.0.0.1";

#[derive(Clone, Debug)]
pub struct SimulatedOptions {
    /// Names of the nodes.
    pub names: Vec<String>,
    /// Of each node.
    pub capacity: Capacity,
    pub behaviour: Behaviour,
}

impl SimulatedOptions {
    /// Nodes `simulated-0` to `simulated-(count - 1)`, with more room than anybody needs.
    pub fn new(count: usize) -> Self {
        Self {
            names: (0..count).map(|number| format!("simulated-{number}")).collect(),
            capacity: Capacity {
                cpu_millis: 1_000_000_000,
                memory_bytes: 1 << 50,
                ephemeral_storage_bytes: 1 << 50,
                pods: 1_000_000,
            },
            behaviour: Behaviour::default(),
        }
    }
}

/// Simulated nodes at work.
#[derive(Debug)]
pub struct SimulatedNodes {
    task: JoinHandle<()>,
    shutdown: CancellationToken,
}

impl SimulatedNodes {
    /// Registers the nodes and starts to "run" what is bound to them.
    pub async fn start(client: Client, options: SimulatedOptions) -> Result<Self, Error> {
        for name in &options.names {
            let description = Description {
                name: name.clone(),
                address: ADDRESS.to_owned(),
                capacity: options.capacity,
                runtime: "simulated",
                abilities: Abilities::default(),
                obstacles: Obstacles::default(),
            };
            registration::register(&client, &description)
                .await
                .map_err(|reason| Error::Register { name: name.clone(), reason })?;
        }
        let shutdown = CancellationToken::new();
        let stopping = shutdown.clone();
        let task = tokio::spawn(async move {
            let (changes_in, changes) = mpsc::channel(CHANGES);
            let selector = match &options.names[..] {
                [only] => format!("spec.nodeName={only}"),
                _ => "spec.nodeName!=".to_owned(),
            };
            let names = options.names.clone();
            let beats = names.iter().map(|name| registration::beat(&client, name));
            tokio::select! {
                () = stopping.cancelled() => {}
                () = Simulation::new(client.clone(), options).run(changes) => {}
                () = watch::pods(client.clone(), selector, changes_in) => {}
                _ = futures_util::future::join_all(beats), if !names.is_empty() => {}
            }
        });
        Ok(Self { task, shutdown })
    }

    /// Waits until the simulation has ended, which it does only after [`Self::stop`] or by a fault.
    pub async fn ended(&mut self) {
        let _ = (&mut self.task).await;
    }

    pub async fn stop(mut self) {
        self.shutdown.cancel();
        self.ended().await;
    }
}

type Uid = Arc<str>;

/// A pod and where it stands.
struct Entry {
    pod: SimulatedPod,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing has been written.
    New,
    /// Its Running status is being written. Writes of one pod never overlap: what is decided meanwhile waits.
    Starting,
    /// Ends at this moment.
    Running { until: Option<Duration> },
    /// Waits to start again.
    BackingOff { until: Duration },
    /// Its last status is being written.
    Ending { outcome: Outcome },
    /// Its last status is written, the final DELETE is not.
    Deleting,
}

enum Message {
    Reported { uid: Uid, phase: Phase, answer: Answer },
    Deleted { uid: Uid, answer: Answer },
}

struct Simulation {
    client: Client,
    nodes: HashSet<String>,
    behaviour: Behaviour,
    clock: Clock,
    shapes: Shapes,
    namespaces: HashSet<Arc<str>>,
    pods: HashMap<Uid, Entry>,
    timers: BTreeSet<(Duration, Uid)>,
    /// Ended; the watch may still show them as they were before.
    finished: HashSet<Uid>,
    listing: Option<HashSet<Uid>>,
    calls: Arc<Semaphore>,
    messages: mpsc::Sender<Message>,
    inbox: Option<mpsc::Receiver<Message>>,
}

impl Simulation {
    fn new(client: Client, options: SimulatedOptions) -> Self {
        let (messages, inbox) = mpsc::channel(MESSAGES);
        Self {
            client,
            nodes: options.names.into_iter().collect(),
            behaviour: options.behaviour,
            clock: Clock::start(),
            shapes: Shapes::default(),
            namespaces: HashSet::new(),
            pods: HashMap::new(),
            timers: BTreeSet::new(),
            finished: HashSet::new(),
            listing: None,
            calls: Arc::new(Semaphore::new(CALLS_MAX)),
            messages,
            inbox: Some(inbox),
        }
    }

    async fn run(mut self, mut changes: mpsc::Receiver<Change>) {
        let Some(mut inbox) = self.inbox.take() else { return };
        loop {
            let timer = self.clock.reaches(self.timers.first().map(|(at, _)| *at));
            tokio::select! {
                biased;
                Some(message) = inbox.recv() => self.message(message),
                () = timer => self.tick(),
                Some(change) = changes.recv() => self.change(change),
                else => return,
            }
        }
    }

    fn change(&mut self, change: Change) {
        match change {
            Change::Restarted => self.listing = Some(HashSet::new()),
            Change::Applied(pod) => self.applied(&pod),
            Change::Deleted(pod) => {
                if let Some(uid) = pod.metadata.uid.as_deref() {
                    self.forget(uid);
                    self.finished.remove(uid);
                }
            }
            Change::Listed => {
                let Some(listing) = self.listing.take() else { return };
                let gone: Vec<Uid> = self.pods.keys().filter(|uid| !listing.contains(*uid)).cloned().collect();
                for uid in gone {
                    self.forget(&uid);
                }
                self.finished.retain(|uid| listing.contains(uid));
            }
        }
    }

    fn applied(&mut self, pod: &Pod) {
        let is_ours = pod.spec.node_name.as_ref().is_some_and(|node| self.nodes.contains(node));
        let Some(uid) = pod.metadata.uid.as_deref().filter(|_| is_ours) else { return };
        let uid = Uid::from(uid);
        if let Some(listing) = &mut self.listing {
            listing.insert(Arc::clone(&uid));
        }
        let is_deleted = pod.metadata.deletion_timestamp.is_some();
        if pod.status.phase.is_terminal() {
            self.finished.remove(&uid);
            // A DELETE that came before the end waits for the node to confirm it (PL-48).
            let awaits = is_deleted && pod.metadata.deletion_grace_period_seconds.is_some_and(|grace| grace > 0);
            if awaits && !self.pods.contains_key(&uid) {
                self.insert(Arc::clone(&uid), pod, Stage::Deleting);
                self.delete(&uid, Duration::ZERO);
            }
            return;
        }
        if self.finished.contains(&uid) {
            return;
        }
        if !self.pods.contains_key(&uid) {
            self.meet(Arc::clone(&uid), pod);
        }
        if is_deleted {
            self.stop(&uid);
        }
    }

    fn insert(&mut self, uid: Uid, pod: &Pod, stage: Stage) {
        let meta = &pod.metadata;
        let namespace = self.interned(meta.namespace.as_deref().unwrap_or_default());
        let behaviour = match &meta.annotations {
            Some(annotations) => self.behaviour.with_annotations(annotations),
            None => self.behaviour,
        };
        let pod = SimulatedPod {
            namespace,
            name: meta.name.as_deref().unwrap_or_default().into(),
            shape: self.shapes.of(&pod.spec),
            behaviour,
            start_time: pod.status.start_time.as_ref().map_or_else(|| self.clock.now().wall, |time| time.0),
            attempt: attempt_of(pod),
            generation: meta.generation,
            is_deleted: false,
        };
        self.pods.insert(uid, Entry { pod, stage });
    }

    fn interned(&mut self, namespace: &str) -> Arc<str> {
        if let Some(known) = self.namespaces.get(namespace) {
            return Arc::clone(known);
        }
        let namespace: Arc<str> = namespace.into();
        self.namespaces.insert(Arc::clone(&namespace));
        namespace
    }

    /// A pod that is new here, or that ran under an earlier simulation.
    fn meet(&mut self, uid: Uid, pod: &Pod) {
        self.insert(Arc::clone(&uid), pod, Stage::New);
        if pod.metadata.deletion_timestamp.is_some() && pod.status.phase == Phase::Pending {
            return;
        }
        let Some(entry) = self.pods.get_mut(&uid) else { return };
        let now = self.clock.now();
        let left = entry.pod.behaviour.duration.map(|duration| match pod.status.phase {
            Phase::Running => duration.saturating_sub(now.since_wall(entry.pod.start_time)),
            _ => duration,
        });
        match (pod.status.phase, left) {
            (Phase::Running, left) => self.run_until(&uid, left.map(|left| now.elapsed + left)),
            // Over before anybody could see it run: one report will do.
            (_, Some(Duration::ZERO)) => self.end(&uid),
            _ => self.begin(&uid),
        }
    }

    fn begin(&mut self, uid: &Uid) {
        if let Some(entry) = self.pods.get_mut(uid) {
            entry.stage = Stage::Starting;
            self.report(uid, Outcome::Running);
        }
    }

    fn run_until(&mut self, uid: &Uid, until: Option<Duration>) {
        if let Some(entry) = self.pods.get_mut(uid) {
            entry.stage = Stage::Running { until };
            if let Some(at) = until {
                self.timers.insert((at, Arc::clone(uid)));
            }
        }
    }

    fn tick(&mut self) {
        let now = self.clock.now();
        while let Some((at, uid)) = self.timers.first().cloned() {
            if at > now.elapsed {
                return;
            }
            self.timers.pop_first();
            match self.pods.get(&uid).map(|entry| entry.stage) {
                Some(Stage::Running { .. }) => self.end(&uid),
                Some(Stage::BackingOff { .. }) => {
                    if let Some(entry) = self.pods.get_mut(&uid) {
                        entry.pod.attempt += 1;
                    }
                    self.begin(&uid);
                }
                _ => {}
            }
        }
    }

    /// One run of the pod is over.
    fn end(&mut self, uid: &Uid) {
        let now = self.clock.now().elapsed;
        let Some(entry) = self.pods.get_mut(uid) else { return };
        let code = entry.pod.behaviour.exit_code_of(uid, entry.pod.attempt);
        if entry.pod.restarts_after(code) {
            let wait = RESTART_WAIT_INITIAL * 2_u32.pow(entry.pod.attempt.saturating_sub(1).min(5));
            let wait = if entry.pod.attempt == 0 { Duration::ZERO } else { wait.min(RESTART_WAIT_MAX) };
            entry.stage = Stage::BackingOff { until: now + wait };
            self.timers.insert((now + wait, Arc::clone(uid)));
            return;
        }
        self.finish(uid, Outcome::Ended(code));
    }

    /// The pod is being deleted: whatever it does, it ends now, as after SIGTERM.
    fn stop(&mut self, uid: &Uid) {
        let Some(entry) = self.pods.get_mut(uid) else { return };
        if std::mem::replace(&mut entry.pod.is_deleted, true) {
            return;
        }
        match entry.stage {
            Stage::New => self.finish(uid, Outcome::NeverRan),
            Stage::Running { until } => {
                self.unset_timer(uid, until);
                self.finish(uid, Outcome::Ended(143));
            }
            Stage::BackingOff { until } => {
                self.unset_timer(uid, Some(until));
                self.finish(uid, Outcome::Ended(143));
            }
            Stage::Starting | Stage::Ending { .. } | Stage::Deleting => {}
        }
    }

    fn unset_timer(&mut self, uid: &Uid, at: Option<Duration>) {
        if let Some(at) = at {
            self.timers.remove(&(at, Arc::clone(uid)));
        }
    }

    fn finish(&mut self, uid: &Uid, outcome: Outcome) {
        if let Some(entry) = self.pods.get_mut(uid) {
            entry.stage = Stage::Ending { outcome };
            self.report(uid, outcome);
        }
    }

    fn report(&self, uid: &Uid, outcome: Outcome) {
        let Some(entry) = self.pods.get(uid) else { return };
        let (patch, phase) = entry.pod.report(uid, outcome, ADDRESS, self.clock.now());
        let (client, uid) = (self.client.clone(), Arc::clone(uid));
        let (namespace, name) = (Arc::clone(&entry.pod.namespace), entry.pod.name.clone());
        self.spawn_call(async move {
            let answer = calls::patch_status(&client, &namespace, &name, &patch).await;
            Message::Reported { uid, phase, answer }
        });
    }

    fn delete(&self, uid: &Uid, after: Duration) {
        let Some(entry) = self.pods.get(uid) else { return };
        let (client, uid) = (self.client.clone(), Arc::clone(uid));
        let (namespace, name) = (Arc::clone(&entry.pod.namespace), entry.pod.name.clone());
        self.spawn_call(async move {
            tokio::time::sleep(after).await;
            let answer = calls::delete_pod(&client, &namespace, &name, &uid).await;
            Message::Deleted { uid, answer }
        });
    }

    fn spawn_call(&self, call: impl Future<Output = Message> + Send + 'static) {
        let (calls, messages) = (Arc::clone(&self.calls), self.messages.clone());
        tokio::spawn(async move {
            let Ok(_permit) = calls.acquire_owned().await else { return };
            let _ = messages.send(call.await).await;
        });
    }

    fn message(&mut self, message: Message) {
        match message {
            Message::Reported { uid, phase, answer } => self.reported(&uid, phase, answer),
            Message::Deleted { uid, answer } => match answer {
                Answer::Done | Answer::Gone => self.forget(&uid),
                Answer::Failed(_) => self.delete(&uid, RETRY),
            },
        }
    }

    fn reported(&mut self, uid: &Uid, phase: Phase, answer: Answer) {
        let now = self.clock.now().elapsed;
        let Some(entry) = self.pods.get_mut(uid) else { return };
        match (answer, entry.stage) {
            (Answer::Gone, _) => self.forget(uid),
            (Answer::Failed(reason), _) => {
                tracing::warn!(reason, pod = &*entry.pod.name, "a status is not taken; trying again");
                self.retry(uid);
            }
            (Answer::Done, Stage::Starting) if entry.pod.is_deleted => self.finish(uid, Outcome::Ended(143)),
            (Answer::Done, Stage::Starting) => {
                let until = entry.pod.behaviour.duration.map(|duration| now + duration);
                self.run_until(uid, until);
            }
            (Answer::Done, Stage::Ending { .. }) if phase.is_terminal() => {
                if entry.pod.is_deleted {
                    entry.stage = Stage::Deleting;
                    self.delete(uid, Duration::ZERO);
                } else {
                    self.finished.insert(Arc::clone(uid));
                    self.forget(uid);
                }
            }
            (Answer::Done, _) => {}
        }
    }

    /// Sends the report of the present stage again, after a moment.
    fn retry(&self, uid: &Uid) {
        let Some(entry) = self.pods.get(uid) else { return };
        let outcome = match entry.stage {
            Stage::Ending { outcome } => outcome,
            Stage::Deleting => return,
            _ => Outcome::Running,
        };
        let (patch, phase) = entry.pod.report(uid, outcome, ADDRESS, self.clock.now());
        let (client, uid) = (self.client.clone(), Arc::clone(uid));
        let (namespace, name) = (Arc::clone(&entry.pod.namespace), entry.pod.name.clone());
        self.spawn_call(async move {
            tokio::time::sleep(RETRY).await;
            let answer = calls::patch_status(&client, &namespace, &name, &patch).await;
            Message::Reported { uid, phase, answer }
        });
    }

    fn forget(&mut self, uid: &str) {
        let Some((uid, entry)) = self.pods.remove_entry(uid) else { return };
        match entry.stage {
            Stage::Running { until } => self.unset_timer(&uid, until),
            Stage::BackingOff { until } => self.unset_timer(&uid, Some(until)),
            _ => {}
        }
    }
}

fn attempt_of(pod: &Pod) -> u32 {
    let count = pod.status.container_statuses.iter().map(|status| status.restart_count).max();
    count.and_then(|count| u32::try_from(count).ok()).unwrap_or(0)
}
