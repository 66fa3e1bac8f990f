//! The node's loop: what the API, the processes and time say goes into the pods' lifecycles; what these decide is done.
//!
//! A small shell of its own around `node::lifecycle`: the product's shell talks to a real nursery through a socket and
//! keeps directories, neither of which can be simulated in one thread.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::time::Duration;

use controllers::runtime::requests::{self, DeleteOptions, Ignored, PatchType, Preconditions};
use controllers::runtime::{Change, ControllerContext, Mirrored, Reflector, Resource, Source};
use node::lifecycle::{Action, Input, Observed, PodLifecycle};
use node::{Moment, Phase, Pod};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

use super::machine::{Instance, Machine};
use super::{Uid, Walls};

const ADDRESS: &str = "127.0.0.1";
/// A call that failed is tried again after this.
const RETRY: Duration = Duration::from_secs(1);

/// A pod as the watch shows it.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
struct Watched(Pod);

impl Mirrored for Watched {
    fn uid(&self) -> &str {
        self.0.metadata.uid.as_deref().unwrap_or_default()
    }

    fn resource_version(&self) -> &str {
        self.0.metadata.resource_version.as_deref().unwrap_or_default()
    }
}

enum Message {
    Change(Box<Change<Watched>>),
    StatusSent { uid: Uid, phase: Phase, is_end: bool, answer: Answer },
    DeleteSent { uid: Uid, answer: Answer },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Done,
    Gone,
    Failed,
}

struct Entry {
    life: PodLifecycle,
    observed: Observed,
    /// The status that the API has, or is about to get.
    sent: Option<Value>,
    is_sending: bool,
    retry_at: Option<Instant>,
}

/// The process that looks after the pods of one machine.
pub struct Agent {
    name: String,
    machine: Machine,
    context: ControllerContext,
    walls: Walls,
    started: Instant,
    pods: BTreeMap<Uid, Entry>,
    /// Ended and reported; the watch may still show them as they were before.
    finished: BTreeSet<Uid>,
    messages: mpsc::UnboundedSender<Message>,
    inbox: Option<mpsc::UnboundedReceiver<Message>>,
    has_listed: bool,
}

impl Agent {
    pub fn new(name: &str, machine: Machine, context: ControllerContext, walls: Walls) -> Self {
        // Not bounded: worlds are.
        let (messages, inbox) = mpsc::unbounded_channel();
        Self {
            name: name.to_owned(),
            machine,
            context,
            walls,
            started: Instant::now(),
            pods: BTreeMap::new(),
            finished: BTreeSet::new(),
            messages,
            inbox: Some(inbox),
            has_listed: false,
        }
    }

    pub async fn run(mut self) {
        let Some(mut inbox) = self.inbox.take() else { return };
        let source = Source { field_selector: format!("spec.nodeName={}", self.name), ..Source::all(Resource::PODS) };
        let changes = self.messages.clone();
        let reflector = Reflector::<Watched>::new(&self.context, source);
        let watching = reflector.run(self.context.shutdown.clone(), move |change| {
            // The loop ends together with this.
            let _ = changes.send(Message::Change(Box::new(change)));
        });
        let looking_after = async {
            loop {
                let wake = self.wake();
                tokio::select! {
                    biased;
                    message = inbox.recv() => match message {
                        Some(message) => self.message(message),
                        None => return,
                    },
                    () = sleep_until(wake) => self.tick(),
                }
            }
        };
        tokio::join!(watching, looking_after);
    }

    /// When to look at the processes and at the pods whose time has come.
    fn wake(&self) -> Instant {
        let pods = self.pods.values().flat_map(|entry| [entry.life.wake().map(|at| self.started + at), entry.retry_at]);
        let far = Instant::now() + Duration::from_secs(86_400);
        pods.flatten().chain(self.machine.next_end()).min().unwrap_or(far)
    }

    fn moment(&self) -> Moment {
        Moment { wall: (self.walls)(Instant::now()), elapsed: self.started.elapsed() }
    }

    fn tick(&mut self) {
        for (instance, exit) in self.machine.see_ends() {
            let index = self.pods.get(&instance.pod).and_then(|entry| entry.life.index_of(&instance.container));
            if let Some(container) = index {
                self.input(&instance.pod, Input::Exited { container, attempt: instance.attempt, exit });
            }
        }
        let now = Instant::now();
        let is_due = |entry: &Entry| {
            entry.retry_at.is_some_and(|at| at <= now) || entry.life.wake().is_some_and(|at| self.started + at <= now)
        };
        let due: Vec<Uid> = self.pods.iter().filter(|(_, entry)| is_due(entry)).map(|(uid, _)| uid.clone()).collect();
        for uid in due {
            if let Some(entry) = self.pods.get_mut(&uid) {
                entry.retry_at = entry.retry_at.filter(|at| *at > now);
            }
            self.input(&uid, Input::Tick);
        }
    }

    fn message(&mut self, message: Message) {
        match message {
            Message::Change(change) => match *change {
                Change::Applied(Watched(pod)) => self.applied(&pod),
                Change::Deleted(Watched(pod)) => self.gone(&pod.metadata.uid.unwrap_or_default().into()),
                Change::Vanished { uid } => self.gone(&uid.into()),
                Change::Synced => self.sweep(),
            },
            Message::StatusSent { uid, phase, is_end, answer } => self.status_sent(&uid, phase, is_end, answer),
            Message::DeleteSent { uid, answer } => match answer {
                Answer::Done => {}
                Answer::Gone => self.gone(&uid),
                Answer::Failed => self.delete(&uid, RETRY),
            },
        }
    }

    fn applied(&mut self, pod: &Pod) {
        let Some(uid) = pod.metadata.uid.as_deref().map(Uid::from) else { return };
        if let Some(entry) = self.pods.get_mut(&uid) {
            let observed = Observed::of(pod);
            if entry.observed != observed {
                entry.observed = observed.clone();
                self.input(&uid, Input::Observed(observed));
            }
            return;
        }
        let is_terminal = pod.status.phase.is_terminal();
        if self.finished.contains(&uid) {
            if !is_terminal {
                return;
            }
            self.finished.remove(&uid);
        }
        let records = self.machine.records(&uid);
        // A DELETE that came before the end waits for the node to confirm it (PL-48).
        let awaits_delete = pod.metadata.deletion_timestamp.is_some()
            && pod.metadata.deletion_grace_period_seconds.is_some_and(|grace| grace > 0);
        if !is_terminal || awaits_delete || !records.is_empty() {
            let life = PodLifecycle::adopt(pod, &records, self.moment());
            let entry = Entry { life, observed: Observed::of(pod), sent: None, is_sending: false, retry_at: None };
            self.pods.insert(uid.clone(), entry);
            self.input(&uid, Input::Tick);
        }
    }

    fn gone(&mut self, uid: &Uid) {
        self.finished.remove(uid);
        self.input(uid, Input::Gone);
    }

    /// After the first list: processes of pods that do not exist any more end (PL-139).
    fn sweep(&mut self) {
        if !std::mem::replace(&mut self.has_listed, true) {
            for uid in self.machine.pods() {
                if !self.pods.contains_key(&uid) {
                    self.machine.forget(&uid);
                }
            }
        }
    }

    fn status_sent(&mut self, uid: &Uid, phase: Phase, is_end: bool, answer: Answer) {
        let Some(entry) = self.pods.get_mut(uid) else { return };
        entry.is_sending = false;
        match answer {
            Answer::Done => self.input(uid, Input::Reported { phase, is_end }),
            Answer::Gone => self.gone(uid),
            Answer::Failed => {
                entry.sent = None;
                entry.retry_at = Some(Instant::now() + RETRY);
            }
        }
    }

    /// Takes an input and all that follow from it at once.
    fn input(&mut self, uid: &Uid, input: Input) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let now = self.moment();
            let Some(entry) = self.pods.get_mut(uid) else { return };
            for action in entry.life.step(input, now) {
                inputs.extend(self.act(uid, action));
            }
        }
        self.flush(uid);
    }

    /// Does what was decided; what comes of it at once is the next input.
    fn act(&mut self, uid: &Uid, action: Action) -> Option<Input> {
        match action {
            Action::Prepare => Some(Input::Prepared(Ok(()))),
            Action::Start { container, attempt } => {
                let instance = self.instance(uid, container, attempt)?;
                let arguments = self.pods.get(uid)?.life.container_spec(container).args.clone();
                let at = self.machine.start(&instance, &arguments);
                Some(Input::Started { container, attempt, at })
            }
            Action::Terminate { container, attempt } => {
                self.machine.stop(&self.instance(uid, container, attempt)?, false);
                None
            }
            Action::Kill { container, attempt } => {
                self.machine.stop(&self.instance(uid, container, attempt)?, true);
                None
            }
            Action::RunHook { container, attempt, hook } => {
                Some(Input::HookFinished { container, attempt, hook, result: Ok(()) })
            }
            Action::Probe { container, attempt, probe } => {
                Some(Input::Probed { container, attempt, probe, result: Ok(()) })
            }
            Action::Event(_) => None,
            Action::CleanUp => Some(Input::CleanedUp),
            Action::Delete => {
                self.delete(uid, Duration::ZERO);
                None
            }
            Action::Forget => {
                let entry = self.pods.remove(uid)?;
                self.machine.forget(uid);
                if !entry.life.is_gone() {
                    self.finished.insert(uid.clone());
                }
                None
            }
        }
    }

    fn instance(&self, uid: &Uid, container: usize, attempt: u32) -> Option<Instance> {
        let container = self.pods.get(uid)?.life.container_spec(container).name.clone();
        Some(Instance { pod: uid.clone(), container, attempt })
    }

    /// Sends the status if it is news; one at a time.
    fn flush(&mut self, uid: &Uid) {
        let now = self.moment();
        let Some(entry) = self.pods.get_mut(uid) else { return };
        if entry.is_sending || entry.retry_at.is_some() {
            return;
        }
        let (phase, is_end) = (entry.life.reported_phase(), entry.life.has_ended());
        let patch = entry.life.status_patch(ADDRESS, now);
        if entry.sent.as_ref() == Some(&patch) {
            return;
        }
        entry.sent = Some(patch.clone());
        entry.is_sending = true;
        let path = Resource::PODS.subresource(entry.life.namespace(), entry.life.name(), "status");
        let (client, messages, uid) = (self.context.client.clone(), self.messages.clone(), uid.clone());
        tokio::spawn(async move {
            let sent = requests::patch::<Ignored>(&client, &path, PatchType::Strategic, &patch).await;
            let _ = messages.send(Message::StatusSent { uid, phase, is_end, answer: answer(sent.map(drop)) });
        });
    }

    fn delete(&self, uid: &Uid, after: Duration) {
        let Some(entry) = self.pods.get(uid) else { return };
        let path = Resource::PODS.object(entry.life.namespace(), entry.life.name());
        let (client, messages, uid) = (self.context.client.clone(), self.messages.clone(), uid.clone());
        tokio::spawn(async move {
            sleep(after).await;
            let preconditions = Preconditions::uid(&uid);
            let options = DeleteOptions { grace_period_seconds: Some(0), preconditions, ..DeleteOptions::default() };
            let answer = answer(requests::delete(&client, &path, &options).await);
            let _ = messages.send(Message::DeleteSent { uid, answer });
        });
    }
}

/// As the product's node understands answers: a conflict is about the uid only if it says so (PL-141).
fn answer(answered: Result<(), kube::Error>) -> Answer {
    match answered {
        Ok(()) => Answer::Done,
        Err(error) if requests::is_not_found(&error) => Answer::Gone,
        Err(kube::Error::Api(status)) if status.code == 409 && status.message.contains("UID in ") => Answer::Gone,
        Err(_) => Answer::Failed,
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent").field("name", &self.name).field("machine", &self.machine).finish_non_exhaustive()
    }
}
