//! The logs of many pods as they are written.
//!
//! Running containers are followed, at most [`FOLLOWED_MAX`] at a time; the others are read when they have ended, a few
//! at a time. So the work in hand is bounded however many pods there are, and no log is forgotten: what could not be
//! followed is read later.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::AsyncBufReadExt as _;
use kube::api::LogParams;
use kube::{Api, Client};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::log_lines::{LogOrigin, LogPiece, Splitter};
use crate::pod_view::{Instance, PodObject};

/// Each costs a connection on a cluster and a look at a file every 50 ms on this machine.
const FOLLOWED_MAX: usize = 128;

/// Logs of ended containers that are read at the same time.
const READ_MAX: usize = 16;

/// Pieces that wait to be shown; whoever reads logs waits when there are more.
pub(crate) const PIECES_MAX: usize = 256;

/// Which logs to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Wanted {
    /// Of all pods, as they are written.
    All,
    /// Of pods that failed, when they have.
    Failed,
    None,
}

/// One log to read.
#[derive(Debug)]
struct Reading {
    origin: LogOrigin,
    is_previous: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    Following,
    Reading,
}

/// Reads the logs of the pods it is shown.
pub(crate) struct LogStreamer {
    client: Client,
    wanted: Wanted,
    pieces: mpsc::Sender<LogPiece>,
    /// Instances whose logs have been asked for, by the pod's uid.
    begun: HashMap<Box<str>, Vec<Box<str>>>,
    waiting: VecDeque<Reading>,
    tasks: JoinSet<Lane>,
    following: usize,
    reading: usize,
    /// Bytes that were gone before they were read.
    lost: Arc<AtomicU64>,
}

impl LogStreamer {
    pub(crate) fn new(client: Client, wanted: Wanted) -> (Self, mpsc::Receiver<LogPiece>) {
        let (pieces, receiver) = mpsc::channel(PIECES_MAX);
        let streamer = Self {
            client,
            wanted,
            pieces,
            begun: HashMap::new(),
            waiting: VecDeque::new(),
            tasks: JoinSet::new(),
            following: 0,
            reading: 0,
            lost: Arc::default(),
        };
        (streamer, receiver)
    }

    /// Looks at a pod as it is now.
    pub(crate) fn observe(&mut self, pod: &PodObject) {
        match self.wanted {
            Wanted::None => return,
            Wanted::Failed if !pod.has_failed() => return,
            Wanted::Failed | Wanted::All => {}
        }
        for instance in pod.instances() {
            if self.has_begun(pod, &instance) {
                continue;
            }
            if !instance.is_running {
                self.note(pod, &instance);
                self.waiting.push_back(reading(pod, &instance));
            } else if self.following < FOLLOWED_MAX {
                self.note(pod, &instance);
                self.spawn(reading(pod, &instance), Lane::Following);
            }
        }
        self.begin_waiting();
    }

    /// The pod is gone, and its logs with it.
    pub(crate) fn forget(&mut self, pod: &PodObject) {
        self.begun.remove(pod.uid());
    }

    /// How much of the logs was gone before it was read, in bytes.
    pub(crate) fn lost_bytes(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Nothing is being read and nothing waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.tasks.is_empty() && self.waiting.is_empty()
    }

    /// Ready when a log has been read to its end; at once if none is being read.
    pub(crate) async fn progress(&mut self) {
        match self.tasks.join_next().await {
            Some(Ok(Lane::Following)) => self.following -= 1,
            Some(Ok(Lane::Reading)) => self.reading -= 1,
            Some(Err(error)) => tracing::error!(%error, "a reader of logs died"),
            None => {}
        }
        self.begin_waiting();
    }

    fn has_begun(&self, pod: &PodObject, instance: &Instance<'_>) -> bool {
        self.begun.get(pod.uid()).is_some_and(|ids| ids.iter().any(|id| **id == *instance.id))
    }

    fn note(&mut self, pod: &PodObject, instance: &Instance<'_>) {
        self.begun.entry(pod.uid().into()).or_default().push(instance.id.into());
    }

    fn begin_waiting(&mut self) {
        while self.reading < READ_MAX
            && let Some(reading) = self.waiting.pop_front()
        {
            self.spawn(reading, Lane::Reading);
        }
    }

    fn spawn(&mut self, reading: Reading, lane: Lane) {
        match lane {
            Lane::Following => self.following += 1,
            Lane::Reading => self.reading += 1,
        }
        let (client, pieces, lost) = (self.client.clone(), self.pieces.clone(), Arc::clone(&self.lost));
        self.tasks.spawn(async move {
            let (pod, container) = (reading.origin.pod.clone(), reading.origin.container.clone());
            if let Err(error) = read(client, reading, lane == Lane::Following, &pieces, &lost).await {
                // The pod may be gone by now; its end is shown elsewhere.
                tracing::debug!(error = &*error, pod, container, "read a log");
            }
            lane
        });
    }
}

fn reading(pod: &PodObject, instance: &Instance<'_>) -> Reading {
    Reading { origin: origin(pod, instance), is_previous: instance.is_previous }
}

/// Whose log an instance's is.
pub(crate) fn origin(pod: &PodObject, instance: &Instance<'_>) -> LogOrigin {
    LogOrigin {
        namespace: pod.namespace().to_owned(),
        job: pod.job().map(|(_, name)| name).unwrap_or_default().to_owned(),
        pod: pod.name().to_owned(),
        index: pod.index(),
        label: pod.label(),
        container: instance.container.to_owned(),
        names_container: pod.has_several_containers(),
    }
}

type BoxedError = Box<dyn std::error::Error + Send + Sync>;

async fn read(
    client: Client,
    reading: Reading,
    follow: bool,
    pieces: &mpsc::Sender<LogPiece>,
    lost: &AtomicU64,
) -> Result<(), BoxedError> {
    let Reading { origin, is_previous } = reading;
    let pods: Api<PodObject> = Api::namespaced(client, &origin.namespace);
    let container = Some(origin.container.clone());
    let parameters = LogParams { container, follow, previous: is_previous, ..LogParams::default() };
    let mut stream = Box::pin(pods.log_stream(&origin.pod, &parameters).await?);
    let origin = Arc::new(origin);
    let mut splitter = Splitter::default();
    loop {
        let bytes = stream.fill_buf().await?;
        if bytes.is_empty() {
            break;
        }
        let (lines, count) = (splitter.push(bytes), bytes.len());
        stream.as_mut().consume_unpin(count);
        // Our own node says so where something is missing; others do not.
        let missing = lines.split(|byte| *byte == b'\n').filter_map(node::logs::lost_bytes).sum();
        lost.fetch_add(missing, Ordering::Relaxed);
        if !lines.is_empty() && pieces.send(LogPiece { origin: origin.clone(), lines }).await.is_err() {
            return Ok(());
        }
    }
    let lines = splitter.finish();
    if !lines.is_empty() {
        let _ = pieces.send(LogPiece { origin, lines }).await;
    }
    Ok(())
}
