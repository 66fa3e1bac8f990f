//! The node's loop: what the API, the nursery and time say goes into the pods' lifecycles; what these decide is done.
//!
//! One task owns all pods, so a pod's inputs are never processed at the same time (PL-138). Everything that waits —
//! API calls, probes, removing directories — runs beside it and comes back as a message.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use super::events::{Recorder, Subject};
use super::options::Options;
use super::probing;
use super::status::StatusState;
use super::watch::Change;
use crate::calls::{self, Answer};
use crate::launch::downward::{Allocatable, PodFacts};
use crate::launch::sources::Sources;
use crate::launch::{self, admission, volumes};
use crate::lifecycle::{
    Action, Event, Exit, Hook, Index, Input, Observed, PodLifecycle, ProbeKind, Record, StartFailure,
};
use crate::logs::Running;
use crate::moment::{Clock, Moment};
use crate::nursery::protocol::{Abilities, Cause, End, Exec, ExecOutcome, InstanceId, Known, Report, Request, Welcome};
use crate::nursery::{Layout, Nursery, is_safe_uid};
use crate::pod::{Phase, Pod};

/// Status writes and other calls under way at the same time.
const CALLS_MAX: usize = 64;
/// Messages that wait for the loop.
const MESSAGES: usize = 4096;
/// A hook without a limit of its own is cut off after this; a stop never waits longer anyway.
const HOOK_TIMEOUT: Duration = Duration::from_secs(3600);

type Uid = Arc<str>;

/// What comes back to the loop.
#[derive(Debug)]
pub(super) enum Message {
    Input {
        uid: Uid,
        input: Input,
    },
    StatusSent {
        uid: Uid,
        phase: Phase,
        answer: Answer,
    },
    DeleteSent {
        uid: Uid,
        answer: Answer,
    },
    /// A container's process can be started, or what is missing.
    Launch {
        uid: Uid,
        container: Index,
        attempt: u32,
        launch: Result<Box<crate::nursery::protocol::Launch>, String>,
    },
}

/// A pod on this node.
struct Entry {
    life: PodLifecycle,
    facts: Arc<PodFacts>,
    status: StatusState,
    /// When the timer of this pod is set to.
    wake: Option<Duration>,
    /// What the nursery is to forget in the end.
    instances: BTreeSet<InstanceId>,
}

/// What an answer of the nursery to a command is for.
#[derive(Clone, Debug)]
struct Asked {
    uid: Uid,
    container: Index,
    attempt: u32,
    purpose: Purpose,
}

#[derive(Clone, Copy, Debug)]
enum Purpose {
    Hook(Hook),
    Probe(ProbeKind),
}

pub(super) struct Supervisor {
    client: Client,
    options: Options,
    layout: Layout,
    nursery: Nursery,
    abilities: Abilities,
    allocatable: Arc<Allocatable>,
    sources: Sources,
    recorder: Recorder,
    clock: Clock,
    running: Running,
    pods: HashMap<Uid, Entry>,
    timers: BTreeSet<(Duration, Uid)>,
    /// Ended and reported; the watch may still show them as they were before.
    finished: HashSet<Uid>,
    /// What the nursery knew when it was connected, by pod, until the first list of pods.
    found: HashMap<String, Vec<Known>>,
    /// Uids of the list that is being read.
    listing: Option<HashSet<Uid>>,
    has_listed: bool,
    asked: HashMap<u64, Asked>,
    next_token: u64,
    calls: Arc<Semaphore>,
    messages: mpsc::Sender<Message>,
}

/// Where the loop hears from.
pub(super) struct Inbox {
    pub(super) changes: mpsc::Receiver<Change>,
    pub(super) reports: mpsc::Receiver<Report>,
    pub(super) messages: mpsc::Receiver<Message>,
    pub(super) shutdown: CancellationToken,
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
        let capacity = options.capacity;
        let mut supervisor = Self {
            layout: Layout::new(&options.directory),
            sources: Sources::new(client.clone()),
            recorder: Recorder::start(client.clone(), options.name.clone()),
            allocatable: Arc::new(Allocatable { cpu_millis: capacity.cpu_millis, memory_bytes: capacity.memory_bytes }),
            client,
            options,
            nursery,
            abilities: welcome.abilities,
            clock: Clock::start(),
            running,
            pods: HashMap::new(),
            timers: BTreeSet::new(),
            finished: HashSet::new(),
            found: HashMap::new(),
            listing: None,
            has_listed: false,
            asked: HashMap::new(),
            next_token: 0,
            calls: Arc::new(Semaphore::new(CALLS_MAX)),
            messages,
        };
        supervisor.remember(welcome);
        (supervisor, inbox)
    }

    /// Runs until it is told to stop or everybody else has.
    pub(super) async fn run(mut self, mut inbox: Inbox) {
        loop {
            let wake = self.timers.first().map(|(at, _)| self.clock.instant(*at).into());
            let timer = async {
                match wake {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = inbox.shutdown.cancelled() => return,
                Some(message) = inbox.messages.recv() => self.message(message).await,
                Some(report) = inbox.reports.recv() => self.report(report).await,
                Some(change) = inbox.changes.recv() => self.change(change).await,
                () = timer => self.tick().await,
                else => return,
            }
        }
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

    // What the API says.

    async fn change(&mut self, change: Change) {
        match change {
            Change::Restarted => self.listing = Some(HashSet::new()),
            Change::Applied(pod) => self.applied(&pod).await,
            Change::Deleted(pod) => {
                if let Some(uid) = pod.metadata.uid.as_deref() {
                    self.gone(&Uid::from(uid)).await;
                }
            }
            Change::Listed => self.listed().await,
        }
    }

    async fn applied(&mut self, pod: &Pod) {
        let Some(uid) = pod.metadata.uid.as_deref().filter(|uid| is_safe_uid(uid)) else {
            tracing::warn!(pod = pod.metadata.name, "a pod with an impossible uid is left alone");
            return;
        };
        let uid = Uid::from(uid);
        if let Some(listing) = &mut self.listing {
            listing.insert(Arc::clone(&uid));
        }
        if let Some(entry) = self.pods.get_mut(&uid) {
            entry.facts = Arc::new(PodFacts::of(pod, &self.options.address.to_string()));
            return self.input(&uid, Input::Observed(Observed::of(pod))).await;
        }
        let is_terminal = pod.status.phase.is_terminal();
        if self.finished.contains(&uid) {
            if !is_terminal {
                return;
            }
            self.finished.remove(&uid);
        }
        let records = self.found.remove(&*uid).unwrap_or_default();
        // A DELETE that came before the end waits for the node to confirm it (PL-48).
        let awaits_delete = pod.metadata.deletion_timestamp.is_some()
            && pod.metadata.deletion_grace_period_seconds.is_some_and(|grace| grace > 0);
        if !is_terminal || awaits_delete || !records.is_empty() {
            self.adopt(uid, pod, &records).await;
        }
    }

    async fn adopt(&mut self, uid: Uid, pod: &Pod, known: &[Known]) {
        let now = self.clock.now();
        let rejection = match known.is_empty() && !pod.status.phase.is_terminal() {
            true => admission::check(&pod.spec, self.abilities).err(),
            false => None,
        };
        let life = match &rejection {
            Some(rejection) => {
                let (life, event) = PodLifecycle::rejected(pod, rejection.reason, &rejection.text, now);
                (life, Some(event))
            }
            None => (PodLifecycle::adopt(pod, &known.iter().map(record).collect::<Vec<_>>(), now), None),
        };
        let (life, event) = life;
        for instance in known.iter().filter(|instance| instance.end.is_none()) {
            self.running.insert(&instance.id.pod, &instance.id.container, instance.id.attempt);
        }
        let entry = Entry {
            life,
            facts: Arc::new(PodFacts::of(pod, &self.options.address.to_string())),
            status: StatusState::default(),
            wake: None,
            instances: known.iter().map(|known| known.id.clone()).collect(),
        };
        self.pods.insert(Arc::clone(&uid), entry);
        if let Some(event) = event {
            self.event(&uid, event);
        }
        self.input(&uid, Input::Tick).await;
    }

    async fn listed(&mut self) {
        let Some(listing) = self.listing.take() else { return };
        let gone: Vec<Uid> = self.pods.keys().filter(|uid| !listing.contains(*uid)).cloned().collect();
        for uid in gone {
            self.gone(&uid).await;
        }
        self.finished.retain(|uid| listing.contains(uid));
        if !std::mem::replace(&mut self.has_listed, true) {
            self.sweep(&listing).await;
        }
    }

    async fn gone(&mut self, uid: &Uid) {
        self.finished.remove(uid);
        if self.pods.contains_key(uid) {
            self.input(uid, Input::Gone).await;
        }
        if !self.pods.contains_key(uid) {
            self.remove_logs(uid);
        }
    }

    fn remove_logs(&self, uid: &Uid) {
        let (layout, uid) = (self.layout.clone(), Arc::clone(uid));
        tokio::task::spawn_blocking(move || {
            if let Err(error) = layout.remove_logs(&uid) {
                tracing::warn!(%error, pod = &*uid, "logs cannot be removed");
            }
        });
    }

    /// After the first list: what is left of pods that do not exist any more ends here (PL-139).
    async fn sweep(&mut self, listing: &HashSet<Uid>) {
        let strangers: Vec<Known> = std::mem::take(&mut self.found).into_values().flatten().collect();
        for known in &strangers {
            if known.end.is_none() {
                self.nursery.send(Request::Kill(known.id.clone())).await;
            }
        }
        let ended = strangers.into_iter().filter(|known| known.end.is_some()).map(|known| known.id).collect();
        self.nursery.send(Request::Forget(ended)).await;
        let (layout, kept) = (self.layout.clone(), listing.clone());
        tokio::task::spawn_blocking(move || {
            for directory in [layout.pods(), layout.logs()] {
                for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
                    let name = entry.file_name();
                    if !name.to_str().is_some_and(|uid| kept.contains(uid)) {
                        let _ = std::fs::remove_dir_all(entry.path());
                    }
                }
            }
        });
    }

    // What the nursery says.

    async fn report(&mut self, report: Report) {
        match report {
            Report::Welcome(welcome) => self.welcomed_again(welcome).await,
            Report::Started { id, at } => {
                self.running.insert(&id.pod, &id.container, id.attempt);
                self.instance_input(&id, |container, attempt| Input::Started { container, attempt, at }).await;
            }
            Report::NotStarted { id, message, at } => {
                let failure = StartFailure::Start { message, at };
                self.instance_input(&id, |container, attempt| Input::NotStarted { container, attempt, failure }).await;
            }
            Report::Exited { id, end } => self.exited(id, end).await,
            Report::ExecFinished { token, outcome } => self.exec_finished(token, outcome).await,
        }
    }

    async fn exited(&mut self, id: InstanceId, end: End) {
        self.running.remove(&id.pod, &id.container, id.attempt);
        if self.pods.contains_key(&*id.pod) {
            let exit = exit(&end);
            self.instance_input(&id, |container, attempt| Input::Exited { container, attempt, exit }).await;
        } else {
            self.nursery.send(Request::Forget(vec![id])).await;
        }
    }

    async fn instance_input(&mut self, id: &InstanceId, input: impl FnOnce(Index, u32) -> Input) {
        let uid = Uid::from(id.pod.as_str());
        let index = self.pods.get(&uid).and_then(|entry| entry.life.index_of(&id.container));
        if let Some(index) = index {
            self.input(&uid, input(index, id.attempt)).await;
        }
    }

    fn remember(&mut self, welcome: Welcome) {
        for known in welcome.instances {
            self.found.entry(known.id.pod.clone()).or_default().push(known);
        }
    }

    /// The nursery was lost and is back, or another one took its place: what it knows is the truth.
    async fn welcomed_again(&mut self, welcome: Welcome) {
        self.abilities = welcome.abilities;
        let known: HashMap<InstanceId, Known> =
            welcome.instances.into_iter().map(|known| (known.id.clone(), known)).collect();
        let all: Vec<(InstanceId, Option<Known>)> = self
            .pods
            .values()
            .flat_map(|entry| &entry.instances)
            .map(|id| (id.clone(), known.get(id).cloned()))
            .collect();
        for (id, known) in all {
            match known {
                Some(Known { end: Some(end), .. }) => self.exited(id, end).await,
                Some(Known { started_at: Some(at), .. }) => {
                    self.instance_input(&id, |container, attempt| Input::Started { container, attempt, at }).await;
                }
                Some(_) => {}
                // It never heard of the order; the order is repeated.
                None => {
                    let failure = StartFailure::Config("the nursery was restarted".to_owned());
                    self.instance_input(&id, |container, attempt| Input::NotStarted { container, attempt, failure })
                        .await;
                }
            }
        }
    }

    async fn exec_finished(&mut self, token: u64, outcome: ExecOutcome) {
        let Some(asked) = self.asked.remove(&token) else { return };
        let result = match outcome {
            ExecOutcome::Exited { code: 0, .. } => Ok(()),
            ExecOutcome::Exited { output, .. } => Err(output),
            ExecOutcome::TimedOut { .. } => Err("command timed out".to_owned()),
            ExecOutcome::Failed(reason) => Err(reason),
        };
        self.input(&asked.uid.clone(), answer(&asked, result)).await;
    }

    // What came of it.

    async fn message(&mut self, message: Message) {
        match message {
            Message::Input { uid, input } => self.input(&uid, input).await,
            Message::StatusSent { uid, phase, answer } => self.status_sent(&uid, phase, answer).await,
            Message::DeleteSent { uid, answer } => match answer {
                Answer::Done => {}
                Answer::Gone => self.gone(&uid).await,
                Answer::Failed(reason) => {
                    tracing::warn!(reason, pod = &*uid, "a pod that has ended cannot be deleted; trying again");
                    self.delete_later(&uid);
                }
            },
            Message::Launch { uid, container, attempt, launch } => {
                self.launch(&uid, container, attempt, launch).await;
            }
        }
    }

    async fn status_sent(&mut self, uid: &Uid, phase: Phase, answer: Answer) {
        let now = self.clock.now();
        let Some(entry) = self.pods.get_mut(uid) else { return };
        match answer {
            Answer::Done => {
                entry.status.sent();
                self.input(uid, Input::Reported(phase)).await;
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
        if entry.status.is_due(now.elapsed, entry.life.has_ended()) {
            let phase = entry.life.reported_phase();
            let patch = entry.life.status_patch(&entry.facts.host_ip, now);
            if entry.status.begin(&patch) {
                let (client, facts, uid) = (self.client.clone(), Arc::clone(&entry.facts), Arc::clone(uid));
                self.spawn_call(async move {
                    let answer = calls::patch_status(&client, &facts.namespace, &facts.name, &patch).await;
                    Message::StatusSent { uid, phase, answer }
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

    // What has to be done.

    async fn act(&mut self, uid: &Uid, action: Action) {
        match action {
            Action::Prepare => self.prepare(uid),
            Action::Start { container, attempt } => self.start(uid, container, attempt).await,
            Action::Terminate { container, attempt } => {
                if let Some(id) = self.instance(uid, container, attempt) {
                    self.nursery.send(Request::Terminate(id)).await;
                }
            }
            Action::Kill { container, attempt } => {
                if let Some(id) = self.instance(uid, container, attempt) {
                    self.nursery.send(Request::Kill(id)).await;
                }
            }
            Action::RunHook { container, attempt, hook } => self.run_hook(uid, container, attempt, hook).await,
            Action::Probe { container, attempt, probe } => self.probe(uid, container, attempt, probe).await,
            Action::Event(event) => self.event(uid, event),
            Action::CleanUp => self.clean_up(uid),
            Action::Delete => self.delete(uid, Duration::ZERO),
            Action::Forget => self.forget(uid).await,
        }
    }

    fn instance(&self, uid: &Uid, container: Index, attempt: u32) -> Option<InstanceId> {
        let container = self.pods.get(uid)?.life.container_spec(container).name.clone();
        Some(InstanceId { pod: uid.to_string(), container, attempt })
    }

    fn prepare(&self, uid: &Uid) {
        let Some(entry) = self.pods.get(uid) else { return };
        let directory = launch::volumes_directory(&self.layout, uid);
        let (facts, spec) = (Arc::clone(&entry.facts), Arc::clone(entry.life.spec()));
        let (allocatable, sources, uid) = (Arc::clone(&self.allocatable), self.sources.clone(), Arc::clone(uid));
        self.spawn_call(async move {
            let inputs = volumes::Inputs { facts: &facts, spec: &spec, allocatable: &allocatable };
            let result = volumes::prepare(&directory, inputs, &sources).await;
            Message::Input { uid, input: Input::Prepared(result) }
        });
    }

    async fn start(&mut self, uid: &Uid, container: Index, attempt: u32) {
        let Some(entry) = self.pods.get(uid) else { return };
        let inputs = launch::Inputs {
            facts: &entry.facts,
            spec: entry.life.spec(),
            container: entry.life.container_spec(container),
            allocatable: &self.allocatable,
            base: &self.options.environment,
            layout: &self.layout,
            log: self.options.log,
            attempt,
            can_mount: self.abilities.mounts,
        };
        if launch::is_self_contained(inputs.container) {
            let launch = launch::launch_self_contained(inputs).map(Box::new);
            return Box::pin(self.launch(uid, container, attempt, launch)).await;
        }
        let (facts, spec) = (Arc::clone(&entry.facts), Arc::clone(entry.life.spec()));
        let (allocatable, sources, uid) = (Arc::clone(&self.allocatable), self.sources.clone(), Arc::clone(uid));
        let (layout, base, log) = (self.layout.clone(), self.options.environment.clone(), self.options.log);
        let can_mount = self.abilities.mounts;
        self.spawn_call(async move {
            let init = spec.init_containers.len();
            let own = spec.init_containers.get(container).unwrap_or_else(|| &spec.containers[container - init]);
            let inputs = launch::Inputs {
                facts: &facts,
                spec: &spec,
                container: own,
                allocatable: &allocatable,
                base: &base,
                layout: &layout,
                log,
                attempt,
                can_mount,
            };
            let launch = launch::launch(inputs, &sources).await.map(Box::new);
            Message::Launch { uid, container, attempt, launch }
        });
    }

    async fn launch(
        &mut self,
        uid: &Uid,
        container: Index,
        attempt: u32,
        launch: Result<Box<crate::nursery::protocol::Launch>, String>,
    ) {
        match launch {
            Ok(launch) => {
                let Some(entry) = self.pods.get_mut(uid) else { return };
                entry.instances.insert(launch.id.clone());
                self.nursery.send(Request::Start(launch)).await;
            }
            Err(message) => {
                let failure = StartFailure::Config(message);
                Box::pin(self.input(uid, Input::NotStarted { container, attempt, failure })).await;
            }
        }
    }

    async fn run_hook(&mut self, uid: &Uid, container: Index, attempt: u32, hook: Hook) {
        let Some(entry) = self.pods.get(uid) else { return };
        let lifecycle = entry.life.container_spec(container).lifecycle.as_deref();
        let handler = lifecycle.and_then(|lifecycle| match hook {
            Hook::PostStart => lifecycle.post_start.clone(),
            Hook::PreStop => lifecycle.pre_stop.clone(),
        });
        let Some(handler) = handler else { return };
        let asked = Asked { uid: Arc::clone(uid), container, attempt, purpose: Purpose::Hook(hook) };
        let address = self.options.address;
        if let Some(exec) = handler.exec {
            return self.exec(asked, exec.command.unwrap_or_default(), HOOK_TIMEOUT).await;
        }
        // Hooks may last: they do not take a permit from status writes.
        let messages = self.messages.clone();
        tokio::spawn(async move {
            let result = if let Some(sleep) = handler.sleep {
                tokio::time::sleep(Duration::from_secs(u64::try_from(sleep.seconds).unwrap_or(0))).await;
                Ok(())
            } else if let Some(get) = handler.http_get {
                probing::http(&get, address, HOOK_TIMEOUT).await
            } else if let Some(tcp) = handler.tcp_socket {
                probing::tcp(&tcp, address, HOOK_TIMEOUT).await
            } else {
                Err("the hook has no action".to_owned())
            };
            let _ = messages.send(Message::Input { uid: Arc::clone(&asked.uid), input: answer(&asked, result) }).await;
        });
    }

    async fn probe(&mut self, uid: &Uid, container: Index, attempt: u32, kind: ProbeKind) {
        let Some(entry) = self.pods.get(uid) else { return };
        let Some(probe) = kind.of(entry.life.container_spec(container)).cloned() else { return };
        let seconds = probe.timeout_seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(1).max(1);
        let limit = Duration::from_secs(seconds);
        let asked = Asked { uid: Arc::clone(uid), container, attempt, purpose: Purpose::Probe(kind) };
        let address = self.options.address;
        if let Some(exec) = probe.exec {
            return self.exec(asked, exec.command.unwrap_or_default(), limit).await;
        }
        let messages = self.messages.clone();
        tokio::spawn(async move {
            let result = if let Some(get) = probe.http_get {
                probing::http(&get, address, limit).await
            } else if let Some(tcp) = probe.tcp_socket {
                probing::tcp(&tcp, address, limit).await
            } else {
                Err("this node has no probes of this kind".to_owned())
            };
            let _ = messages.send(Message::Input { uid: Arc::clone(&asked.uid), input: answer(&asked, result) }).await;
        });
    }

    async fn exec(&mut self, asked: Asked, command: Vec<String>, limit: Duration) {
        let Some(id) = self.instance(&asked.uid, asked.container, asked.attempt) else { return };
        let token = self.next_token;
        self.next_token += 1;
        self.asked.insert(token, asked);
        let timeout_millis = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        self.nursery.send(Request::Exec(Box::new(Exec { token, id, command, timeout_millis }))).await;
    }

    fn event(&mut self, uid: &Uid, event: Event) {
        let Some(entry) = self.pods.get(uid) else { return };
        let field_path = event.container.map(|index| {
            let list = if index < entry.life.spec().init_containers.len() { "initContainers" } else { "containers" };
            format!("spec.{list}{{{}}}", entry.life.container_spec(index).name)
        });
        let subject = Subject {
            namespace: entry.facts.namespace.clone(),
            name: entry.facts.name.clone(),
            uid: uid.to_string(),
            field_path,
        };
        self.recorder.record(subject, event.is_warning, event.reason, event.message);
    }

    fn clean_up(&self, uid: &Uid) {
        let (layout, messages, uid) = (self.layout.clone(), self.messages.clone(), Arc::clone(uid));
        tokio::task::spawn_blocking(move || {
            if let Err(error) = layout.remove_pod(&uid) {
                tracing::warn!(%error, pod = &*uid, "the pod's directory cannot be removed");
            }
            let _ = messages.blocking_send(Message::Input { uid, input: Input::CleanedUp });
        });
    }

    fn delete_later(&self, uid: &Uid) {
        self.delete(uid, Duration::from_secs(1));
    }

    fn delete(&self, uid: &Uid, after: Duration) {
        let Some(entry) = self.pods.get(uid) else { return };
        let (client, facts, uid) = (self.client.clone(), Arc::clone(&entry.facts), Arc::clone(uid));
        self.spawn_call(async move {
            tokio::time::sleep(after).await;
            let answer = calls::delete_pod(&client, &facts.namespace, &facts.name, &facts.uid).await;
            Message::DeleteSent { uid, answer }
        });
    }

    async fn forget(&mut self, uid: &Uid) {
        let Some(entry) = self.pods.remove(uid) else { return };
        if let Some(at) = entry.wake {
            self.timers.remove(&(at, Arc::clone(uid)));
        }
        self.asked.retain(|_, asked| asked.uid != *uid);
        if !entry.instances.is_empty() {
            self.nursery.send(Request::Forget(entry.instances.into_iter().collect())).await;
        }
        self.finished.insert(Arc::clone(uid));
    }
}

fn answer(asked: &Asked, result: Result<(), String>) -> Input {
    let Asked { container, attempt, .. } = *asked;
    match asked.purpose {
        Purpose::Hook(hook) => Input::HookFinished { container, attempt, hook, result },
        Purpose::Probe(probe) => Input::Probed { container, attempt, probe, result },
    }
}

fn record(known: &Known) -> Record {
    Record {
        container: known.id.container.clone(),
        attempt: known.id.attempt,
        started_at: known.started_at,
        exit: known.end.as_ref().map(exit),
    }
}

/// How an end looks in the API (PL-53, PL-56).
fn exit(end: &End) -> Exit {
    let message = match (&end.message, &end.log_tail) {
        (Some(message), _) if !message.is_empty() => Some(message.clone()),
        (_, tail) => tail.clone().filter(|tail| !tail.is_empty()),
    };
    let base = |code| Exit { message: message.clone(), ..Exit::with_code(code, end.started_at, end.finished_at) };
    match end.cause {
        Cause::Code(code) => base(code),
        Cause::Signal(signal) => base(128 + signal),
        Cause::OutOfMemory => Exit { reason: "OOMKilled".into(), ..base(137) },
        Cause::NotStarted => Exit { reason: "StartError".into(), started_at: Some(Timestamp::UNIX_EPOCH), ..base(128) },
        Cause::Unseen => Exit::lost(),
    }
}
