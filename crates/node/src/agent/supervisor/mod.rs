//! The node's loop: what the API, the nursery and time say goes into the pods' lifecycles; what these decide is done.
//!
//! One task owns all pods, so a pod's inputs are never processed at the same time (PL-138). Everything that waits —
//! API calls, probes, removing directories — runs beside it and comes back as a message.
//!
//! ```text
//!   watch ──► observe ─┐                       ┌─► act: signals, events, removal
//! nursery ──► hear ────┼─► input ─► lifecycle ─┼─► launching: volumes, processes
//!    time ──► tick ────┘     │                 └─► asking: probes, hooks
//!                            └─► flush: status
//! ```

mod act;
mod asking;
mod ends;
mod hear;
mod launching;
mod observe;
mod past;
mod space;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use self::asking::Asked;
use self::past::Ending;
use super::events::Recorder;
use super::options::{Capacity, Options};
use super::status::StatusState;
use super::watch::Change;
use crate::calls::{self, Answer};
use crate::history::{HistorySink, JobRef};
use crate::launch::Surroundings;
use crate::launch::downward::{Allocatable, PodFacts};
use crate::launch::fit::Requests;
use crate::launch::sources::Sources;
use crate::lifecycle::{Event, Index, Input, Observed, PodLifecycle};
use crate::logs::Running;
use crate::moment::{Clock, Moment};
use crate::nursery::protocol::{Abilities, InstanceId, Known, Launch, Report, Welcome};
use crate::nursery::{Layout, Nursery};
use crate::pod::{Phase, Pod};

/// Status writes and other calls under way at the same time.
const CALLS_MAX: usize = 64;
/// Of these, status writes that are not about the end of a pod. While there are that many, others wait, and often they
/// need not be written at all because the pod has ended.
const INTERIM_CALLS_MAX: usize = 8;
/// With more calls than this under way, interim statuses give way for up to a second.
const CALLS_BUSY: usize = 16;
/// Grace of containers when the node takes them down with it; people wait at a terminal meanwhile.
const DRAIN_GRACE: Duration = Duration::from_secs(10);
/// How often volumes are compared with what they were made from (PL-116).
const REFRESH_INTERVAL: Duration = Duration::from_secs(60);
/// Volumes with limits are looked at this often, as by a kubelet.
const MEASURE_INTERVAL: Duration = Duration::from_secs(10);
/// Messages that wait for the loop.
const MESSAGES: usize = 4096;

type Uid = Arc<str>;

/// What comes back to the loop.
#[derive(Debug)]
pub(super) enum Message {
    Input {
        uid: Uid,
        input: Input,
    },
    /// Something to tell people about a pod.
    Event {
        uid: Uid,
        event: Event,
    },
    /// Something that nobody waits for is done.
    Nothing,
    StatusSent {
        uid: Uid,
        phase: Phase,
        /// The pod had ended when the status was made.
        is_end: bool,
        answer: Answer,
    },
    DeleteSent {
        uid: Uid,
        answer: Answer,
    },
    /// The labels of the node, which a pod wants to know before it is taken on.
    Labels {
        uid: Uid,
        labels: Result<BTreeMap<String, String>, String>,
    },
    /// All volumes with limits have been looked at.
    Measured,
    /// A container's process can be started, or what is missing.
    Launch {
        uid: Uid,
        container: Index,
        attempt: u32,
        launch: Result<Box<Launch>, String>,
    },
}

/// A pod on this node.
struct Entry {
    life: PodLifecycle,
    facts: Arc<PodFacts>,
    /// What the watch showed last; most of its news are echoes of our own writes.
    observed: Observed,
    status: StatusState,
    requests: Requests,
    /// When the timer of this pod is set to.
    wake: Option<Duration>,
    /// There are volumes or other files to remove in the end.
    has_directory: bool,
    /// What the nursery is to forget in the end.
    instances: BTreeSet<InstanceId>,
    /// Whose pod it is.
    job: Option<JobRef>,
}

pub(super) struct Supervisor {
    client: Client,
    /// The Node's.
    name: String,
    history: Option<Arc<dyn HistorySink>>,
    /// That of the node and of all its pods.
    address: IpAddr,
    surroundings: Arc<Surroundings>,
    nursery: Nursery,
    abilities: Abilities,
    capacity: Capacity,
    sources: Sources,
    recorder: Recorder,
    clock: Clock,
    running: Running,
    pods: HashMap<Uid, Entry>,
    /// New ones that wait for the labels of the node, as they were seen last.
    choosy: HashMap<Uid, Pod>,
    timers: BTreeSet<(Duration, Uid)>,
    /// Ended and reported; the watch may still show them as they were before.
    finished: HashSet<Uid>,
    /// What the nursery knew when it was connected, by pod, until the first list of pods.
    found: HashMap<String, Vec<Known>>,
    /// Directories of pods that were there when the node started, until the first list of pods.
    directories: Vec<PathBuf>,
    /// Uids of the list that is being read.
    listing: Option<HashSet<Uid>>,
    has_listed: bool,
    /// No new pods; the loop ends when the end of all is reported.
    is_draining: bool,
    /// Volumes are being looked at.
    is_measuring: bool,
    asked: HashMap<u64, Asked>,
    next_token: u64,
    calls: Arc<Semaphore>,
    /// Interim status writes under way.
    interim_calls: usize,
    messages: mpsc::Sender<Message>,
    /// Ends that the history has. There are never more of them than instances, so this needs no bound.
    kept_in: mpsc::UnboundedSender<(InstanceId, Ending)>,
    kept: mpsc::UnboundedReceiver<(InstanceId, Ending)>,
}

/// Where the loop hears from.
pub(super) struct Inbox {
    pub(super) changes: mpsc::Receiver<Change>,
    pub(super) reports: mpsc::Receiver<Report>,
    pub(super) messages: mpsc::Receiver<Message>,
    /// Stop at once, leave the containers running.
    pub(super) shutdown: CancellationToken,
    /// Stop the containers, report their end, then stop.
    pub(super) drain: CancellationToken,
}

impl Supervisor {
    pub(super) fn new(
        client: Client,
        options: Options,
        nursery: Nursery,
        welcome: Welcome,
        running: Running,
    ) -> (Self, mpsc::Receiver<Message>) {
        let (messages, inbox) = mpsc::channel(MESSAGES);
        let (kept_in, kept) = mpsc::unbounded_channel();
        let capacity = options.capacity;
        let Capacity { cpu_millis, memory_bytes, ephemeral_storage_bytes, .. } = capacity;
        let surroundings = Surroundings {
            layout: Layout::new(&options.directory),
            environment: options.environment,
            allocatable: Allocatable { cpu_millis, memory_bytes, ephemeral_storage_bytes },
            log: options.log,
            processes_max: options.processes_max,
        };
        let mut supervisor = Self {
            // Before anything is started: what is made from here on is no leftover, however late the sweep is.
            directories: surroundings.layout.directories_of_pods(),
            surroundings: Arc::new(surroundings),
            sources: Sources::new(client.clone()),
            recorder: Recorder::start(client.clone(), options.name.clone()),
            client,
            name: options.name,
            history: options.history,
            address: options.address,
            nursery,
            abilities: welcome.abilities,
            capacity,
            clock: Clock::start(),
            running,
            pods: HashMap::new(),
            choosy: HashMap::new(),
            timers: BTreeSet::new(),
            finished: HashSet::new(),
            found: HashMap::new(),
            listing: None,
            has_listed: false,
            is_draining: false,
            is_measuring: false,
            asked: HashMap::new(),
            next_token: 0,
            calls: Arc::new(Semaphore::new(CALLS_MAX)),
            interim_calls: 0,
            messages,
            kept_in,
            kept,
        };
        supervisor.remember(welcome.instances.into_iter());
        (supervisor, inbox)
    }

    /// Runs until it is told to stop or everybody else has.
    pub(super) async fn run(mut self, mut inbox: Inbox) {
        let mut refresh = tokio::time::interval(REFRESH_INTERVAL);
        refresh.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut measure = tokio::time::interval(MEASURE_INTERVAL);
        measure.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while !self.is_drained() {
            let timer = self.clock.reaches(self.timers.first().map(|(at, _)| *at));
            tokio::select! {
                biased;
                () = inbox.shutdown.cancelled() => return,
                () = inbox.drain.cancelled(), if !self.is_draining => self.drain().await,
                Some(message) = inbox.messages.recv() => self.message(message).await,
                Some((id, ending)) = self.kept.recv() => self.kept(id, ending).await,
                Some(report) = inbox.reports.recv() => self.report(report).await,
                Some(change) = inbox.changes.recv() => self.change(change).await,
                () = timer => self.tick().await,
                _ = refresh.tick() => self.refresh_volumes(),
                _ = measure.tick() => self.measure_volumes(),
                else => return,
            }
        }
    }

    async fn drain(&mut self) {
        self.is_draining = true;
        let uids: Vec<Uid> = self.pods.keys().cloned().collect();
        for uid in uids {
            self.input(&uid, Input::Shutdown { grace_max: DRAIN_GRACE }).await;
        }
    }

    fn is_drained(&self) -> bool {
        self.is_draining && self.choosy.is_empty() && self.pods.values().all(|entry| entry.life.has_reported_end())
    }

    async fn tick(&mut self) {
        let now = self.clock.now();
        while let Some((at, uid)) = self.timers.first().cloned() {
            if at > now.elapsed {
                return;
            }
            self.timers.pop_first();
            if let Some(entry) = self.pods.get_mut(&uid) {
                entry.wake = None;
            }
            self.input(&uid, Input::Tick).await;
        }
    }

    async fn message(&mut self, message: Message) {
        match message {
            Message::Input { uid, input } => self.input(&uid, input).await,
            Message::Event { uid, event } => self.event(&uid, event),
            Message::Nothing => {}
            Message::StatusSent { uid, phase, is_end, answer } => {
                self.status_sent(&uid, phase, is_end, answer).await;
            }
            Message::DeleteSent { uid, answer } => match answer {
                Answer::Done => {}
                Answer::Gone => self.gone(&uid).await,
                Answer::Failed(reason) => {
                    tracing::warn!(reason, pod = &*uid, "a pod that has ended cannot be deleted; trying again");
                    self.delete_later(&uid);
                }
            },
            Message::Labels { uid, labels } => self.labels_read(uid, labels).await,
            Message::Measured => self.is_measuring = false,
            Message::Launch { uid, container, attempt, launch } => {
                self.launch(&uid, container, attempt, launch).await;
            }
        }
    }

    async fn status_sent(&mut self, uid: &Uid, phase: Phase, is_end: bool, answer: Answer) {
        let now = self.clock.now();
        self.interim_calls -= usize::from(!phase.is_terminal());
        let Some(entry) = self.pods.get_mut(uid) else { return };
        match answer {
            Answer::Done => {
                entry.status.sent();
                self.input(uid, Input::Reported { phase, is_end }).await;
            }
            // Force-deleted, or another pod has its name (PL-141).
            Answer::Gone => {
                entry.status.sent();
                self.gone(uid).await;
            }
            Answer::Failed(reason) => {
                tracing::warn!(reason, pod = entry.facts.name, "a status is not taken; trying again");
                entry.status.failed(now.elapsed);
                self.flush(uid, now);
            }
        }
    }

    async fn input(&mut self, uid: &Uid, input: Input) {
        let now = self.clock.now();
        let Some(entry) = self.pods.get_mut(uid) else { return };
        let actions = entry.life.step(input, now);
        entry.status.touch(now.elapsed);
        for action in actions {
            self.act(uid, action).await;
        }
        self.flush(uid, now);
    }

    /// Sends the status if it is due, and sets the timer.
    fn flush(&mut self, uid: &Uid, now: Moment) {
        let Some(entry) = self.pods.get_mut(uid) else { return };
        let phase = entry.life.reported_phase();
        let is_interim = !phase.is_terminal();
        if is_interim && self.interim_calls >= INTERIM_CALLS_MAX {
            entry.status.postpone(now.elapsed);
        } else if is_interim && self.calls.available_permits() < CALLS_MAX - CALLS_BUSY {
            entry.status.give_way(now.elapsed);
        }
        let is_end = entry.life.has_ended();
        if entry.status.is_due(now.elapsed, is_end) {
            let patch = entry.life.status_patch(&entry.facts.host_ip, now);
            if entry.status.begin(&patch) {
                self.interim_calls += usize::from(is_interim);
                let (client, facts, uid) = (self.client.clone(), Arc::clone(&entry.facts), Arc::clone(uid));
                self.spawn_call(async move {
                    let answer = calls::patch_status(&client, &facts.namespace, &facts.name, &patch).await;
                    Message::StatusSent { uid, phase, is_end, answer }
                });
            }
        }
        let Some(entry) = self.pods.get_mut(uid) else { return };
        let wake = [entry.life.wake(), entry.status.wake()].into_iter().flatten().min();
        if wake != entry.wake {
            if let Some(old) = entry.wake.take() {
                self.timers.remove(&(old, Arc::clone(uid)));
            }
            entry.wake = wake;
            if let Some(at) = wake {
                self.timers.insert((at, Arc::clone(uid)));
            }
        }
    }

    /// Runs a call beside the loop, a bounded number at a time.
    fn spawn_call(&self, call: impl Future<Output = Message> + Send + 'static) {
        let (calls, messages) = (Arc::clone(&self.calls), self.messages.clone());
        tokio::spawn(async move {
            let Ok(_permit) = calls.acquire_owned().await else { return };
            let message = call.await;
            // Nobody listens any more when the node stops.
            let _ = messages.send(message).await;
        });
    }
}
