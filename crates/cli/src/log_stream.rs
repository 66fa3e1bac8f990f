//! The logs of many pods as they are written.
//!
//! Running containers are followed, at most [`FOLLOWED_MAX`] at a time; the others are read when they have ended, a few
//! at a time. So the work in hand is bounded however many pods there are, and no log is forgotten: what could not be
//! followed is read later. Of one pod, what has ended is shown before what came after it.
//!
//! A server on a network may go away and come back. Logs that break off are taken up where they were; what cannot be is
//! told.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use futures_util::AsyncBufReadExt as _;
use kube::api::LogParams;
use kube::{Api, Client};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::failure::plain;
use crate::log_lines::{Bookmark, LogOrigin, LogPiece, Splitter};
use crate::pod_view::{Instance, PodObject};

/// Each costs a connection on a cluster and a look at a file every 50 ms on this machine.
const FOLLOWED_MAX: usize = 128;

/// Logs of ended containers that are read at the same time.
const READ_MAX: usize = 16;

/// Pieces that wait to be shown; whoever reads logs waits when there are more.
pub(crate) const PIECES_MAX: usize = 256;

/// How long a server may be away before its logs are given up.
pub(crate) const AWAY_MAX: Duration = Duration::from_secs(120);

/// One that has just come back may not have its logs at hand yet; what it refuses for longer it does not have.
const REFUSAL_MAX: Duration = Duration::from_secs(5);

/// Between two tries to take a log up again.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(2);

/// Logs that are named one by one when they were not read to their end.
const NAMED_MAX: usize = 10;

/// Which logs to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Wanted {
    /// Of all pods, as they are written.
    All,
    /// Of pods that failed, when they have.
    Failed,
    None,
}

/// Where the logs come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// From this very process, which does not go away.
    InProcess,
    Network,
}

/// One log to read.
#[derive(Debug)]
struct Reading {
    pod_uid: Box<str>,
    /// The instance whose log it is.
    id: Box<str>,
    origin: LogOrigin,
    is_previous: bool,
    is_running: bool,
}

/// The logs of one pod.
#[derive(Debug, Default)]
struct PodLogs {
    /// Instances whose logs have been asked for.
    begun: Vec<Box<str>>,
    /// Those of them that have not been read to their end.
    unread: Vec<Unread>,
    /// Those of them that wait for what came before.
    held: Vec<Held>,
}

#[derive(Debug)]
struct Unread {
    id: Box<str>,
    prefix: String,
}

/// A log that is shown behind others of its pod.
#[derive(Debug)]
struct Held {
    reading: Reading,
    after: Vec<Box<str>>,
}

impl PodLogs {
    fn has_begun(&self, id: &str) -> bool {
        self.begun.iter().any(|begun| **begun == *id)
    }

    fn is_unread(&self, id: &str) -> bool {
        self.unread.iter().any(|unread| *unread.id == *id)
    }

    /// Takes the instances that are new, and says which of them can be read now. Those that have ended come before all
    /// behind them: earlier attempts, and init containers. One that runs beside the others, as sidecars do, holds nobody
    /// up. No more than `follow_max` of those that run are taken; the rest come again.
    fn take(&mut self, pod: &PodObject, follow_max: usize) -> Vec<Reading> {
        let (mut ready, mut ahead, mut following): (Vec<Reading>, Vec<&str>, usize) = (Vec::new(), Vec::new(), 0);
        for instance in pod.instances() {
            if self.has_begun(instance.id) {
                self.look_again(&instance);
            } else if !instance.is_running || following < follow_max {
                following += usize::from(instance.is_running);
                let reading = reading(pod, &instance);
                let unread = ahead.iter().filter(|id| self.is_unread(id));
                let after: Vec<Box<str>> = unread.map(|id| (*id).into()).collect();
                self.begun.push(instance.id.into());
                self.unread.push(Unread { id: instance.id.into(), prefix: reading.origin.prefix() });
                if after.is_empty() {
                    ready.push(reading);
                } else {
                    self.held.push(Held { reading, after });
                }
            }
            if !instance.is_running {
                ahead.push(instance.id);
            }
        }
        ready
    }

    /// What waits may have ended, or be the one before the current by now.
    fn look_again(&mut self, instance: &Instance<'_>) {
        if let Some(Held { reading, .. }) = self.held.iter_mut().find(|held| *held.reading.id == *instance.id) {
            (reading.is_previous, reading.is_running) = (instance.is_previous, instance.is_running);
        }
    }

    /// This one has been read; says which can be read now.
    fn done(&mut self, id: &str) -> Vec<Reading> {
        self.unread.retain(|unread| *unread.id != *id);
        for held in &mut self.held {
            held.after.retain(|ahead| **ahead != *id);
        }
        self.held.extract_if(.., |held| held.after.is_empty()).map(|held| held.reading).collect()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    Following,
    Reading,
}

/// How the reading of a log ended.
struct Ended {
    lane: Lane,
    pod_uid: Box<str>,
    id: Box<str>,
    /// What is wrong with what was shown of it.
    fault: Option<String>,
}

/// Reads the logs of the pods it is shown.
pub(crate) struct LogStreamer {
    source: Source,
    wanted: Wanted,
    /// By the pod's uid.
    pods: HashMap<Box<str>, PodLogs>,
    waiting: VecDeque<Reading>,
    tasks: JoinSet<Ended>,
    following: usize,
    reading: usize,
    /// What is to be told of logs that are not complete.
    faults: Vec<String>,
    /// How many logs are known not to be complete.
    incomplete: usize,
}

impl LogStreamer {
    pub(crate) fn new(client: Client, wanted: Wanted, way: Way) -> (Self, mpsc::Receiver<LogPiece>) {
        let (pieces, receiver) = mpsc::channel(PIECES_MAX);
        let streamer = Self {
            source: Source { client, way, pieces, lost: Arc::default() },
            wanted,
            pods: HashMap::new(),
            waiting: VecDeque::new(),
            tasks: JoinSet::new(),
            following: 0,
            reading: 0,
            faults: Vec::new(),
            incomplete: 0,
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
        let follow_max = FOLLOWED_MAX.saturating_sub(self.following);
        let ready = self.pods.entry(pod.uid().into()).or_default().take(pod, follow_max);
        self.begin(ready);
    }

    /// The pod is gone, and its logs with it.
    pub(crate) fn forget(&mut self, pod: &PodObject) {
        if let Some(logs) = self.pods.remove(pod.uid()) {
            // Asked for now or never.
            self.begin(logs.held.into_iter().map(|held| held.reading).collect());
        }
    }

    /// How much of the logs was gone before it was read, in bytes.
    pub(crate) fn lost_bytes(&self) -> u64 {
        self.source.lost.load(Ordering::Relaxed)
    }

    /// Nothing is being read and nothing waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.tasks.is_empty() && self.waiting.is_empty()
    }

    /// Lines about logs that are not complete, each once.
    pub(crate) fn take_faults(&mut self) -> Vec<String> {
        std::mem::take(&mut self.faults)
    }

    /// Those that are being read, or wait for it, will not be read any further.
    pub(crate) fn give_up(&mut self) {
        self.tasks.abort_all();
        self.waiting.clear();
        let unread: Vec<String> =
            self.pods.drain().flat_map(|(_, logs)| logs.unread).map(|unread| unread.prefix).collect();
        self.incomplete += unread.len();
        let others = unread.len().saturating_sub(NAMED_MAX);
        let named = unread.iter().take(NAMED_MAX);
        self.faults.extend(named.map(|prefix| format!("{prefix} (the log was not read to its end)")));
        if others > 0 {
            self.faults.push(format!("and {others} more logs were not read to their end"));
        }
    }

    /// How many logs are known not to be complete.
    pub(crate) fn incomplete(&self) -> usize {
        self.incomplete
    }

    /// Ready when a log has been read to its end; at once if none is being read.
    pub(crate) async fn progress(&mut self) {
        match self.tasks.join_next().await {
            Some(Ok(ended)) => self.ended(ended),
            Some(Err(error)) if error.is_cancelled() => {}
            Some(Err(error)) => tracing::error!(%error, "a reader of logs died"),
            None => {}
        }
        self.begin_waiting();
    }

    fn ended(&mut self, ended: Ended) {
        match ended.lane {
            Lane::Following => self.following -= 1,
            Lane::Reading => self.reading -= 1,
        }
        self.incomplete += usize::from(ended.fault.is_some());
        self.faults.extend(ended.fault);
        let ready = self.pods.get_mut(&ended.pod_uid).map(|logs| logs.done(&ended.id));
        self.begin(ready.unwrap_or_default());
    }

    fn begin(&mut self, readings: Vec<Reading>) {
        for reading in readings {
            match reading.is_running {
                true => self.spawn(reading, Lane::Following),
                false => self.waiting.push_back(reading),
            }
        }
        self.begin_waiting();
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
        let source = self.source.clone();
        self.tasks.spawn(async move {
            let (pod_uid, id) = (reading.pod_uid.clone(), reading.id.clone());
            let fault = source.read(reading).await;
            Ended { lane, pod_uid, id, fault }
        });
    }
}

fn reading(pod: &PodObject, instance: &Instance<'_>) -> Reading {
    Reading {
        pod_uid: pod.uid().into(),
        id: instance.id.into(),
        origin: origin(pod, instance),
        is_previous: instance.is_previous,
        is_running: instance.is_running,
    }
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

/// Where logs come from and go to.
#[derive(Clone)]
struct Source {
    client: Client,
    way: Way,
    pieces: mpsc::Sender<LogPiece>,
    /// Bytes that were gone before they were read.
    lost: Arc<AtomicU64>,
}

/// A log as far as it was read.
struct Progress {
    origin: Arc<LogOrigin>,
    bookmark: Bookmark,
    /// Lines are missing where it was taken up again.
    has_gap: bool,
    /// The server has begun to send it since this was last looked at.
    was_sent: bool,
}

impl Progress {
    /// What of these whole lines has not been shown.
    fn news(&mut self, lines: Vec<u8>, way: Way) -> Vec<u8> {
        match way {
            Way::InProcess => lines,
            Way::Network => {
                let (news, is_seamless) = self.bookmark.turn(&lines);
                self.has_gap |= !is_seamless;
                news
            }
        }
    }
}

/// Why reading a log ended before the log did.
enum Break {
    /// The server has an answer, and it is no log.
    Refused(anyhow::Error),
    /// The pod is gone, and the log with it.
    Gone(anyhow::Error),
    /// The server could not be asked, or went away.
    Away(anyhow::Error),
    /// Nobody wants the lines any more.
    Unwanted,
}

impl From<kube::Error> for Break {
    fn from(error: kube::Error) -> Self {
        match &error {
            kube::Error::Api(status) if status.code == 404 => Self::Gone(plain(error)),
            kube::Error::Api(status) if (400..429).contains(&status.code) => Self::Refused(plain(error)),
            _ => Self::Away(plain(error)),
        }
    }
}

impl Source {
    /// Shows a log, and says what is wrong with what was shown.
    async fn read(&self, mut reading: Reading) -> Option<String> {
        let origin = Arc::new(reading.origin.clone());
        let mut progress = Progress { origin, bookmark: Bookmark::default(), has_gap: false, was_sent: false };
        let outcome = match self.way {
            Way::InProcess => self.read_once(&reading, &mut progress).await,
            Way::Network => self.read_on(&mut reading, &mut progress).await,
        };
        let prefix = reading.origin.prefix();
        match outcome {
            Ok(rest) => {
                let last = progress.news(rest.finish(), self.way);
                progress.has_gap |= progress.bookmark.is_lost();
                let _ = self.show(&progress.origin, last).await;
            }
            Err(Break::Unwanted) => return None,
            // Its end is shown elsewhere.
            Err(Break::Gone(error)) if self.way == Way::InProcess => {
                tracing::debug!(%error, pod = reading.origin.pod, "read a log");
                return None;
            }
            Err(Break::Refused(error) | Break::Gone(error) | Break::Away(error)) => {
                let what = if progress.bookmark.since().is_some() { "the log breaks off here" } else { "no log" };
                return Some(format!("{prefix} ({what}: {error:#})"));
            }
        }
        progress
            .has_gap
            .then(|| format!("{prefix} (lines are missing: they were gone when the log could be read again)"))
    }

    /// Reads a log from a server that may go away, however often, until the log has ended. What is left is a line without
    /// an end.
    async fn read_on(&self, reading: &mut Reading, progress: &mut Progress) -> Result<Splitter, Break> {
        let mut trouble: Option<Trouble> = None;
        loop {
            let read = self.read_once(reading, progress).await;
            let is_first = trouble.is_none() && progress.bookmark.since().is_none();
            if std::mem::take(&mut progress.was_sent) {
                trouble = None;
            }
            let was_followed = reading.is_running;
            let error = match read {
                Ok(rest) if !was_followed => return Ok(rest),
                // The container has ended, or the server has.
                Ok(rest) => match self.look(reading).await {
                    Ok(true) => None,
                    // It was read to its end, and there is nothing more to read.
                    Ok(false) | Err(Break::Gone(_)) => return Ok(rest),
                    Err(error) => Some(error),
                },
                // It never had one.
                Err(error @ Break::Refused(_)) if is_first => return Err(error),
                Err(error) => Some(error),
            };
            if let Some(error) = error {
                self.until_back(reading, error, &mut trouble).await?;
            } else if reading.is_running {
                // Its end is not known yet; what the server knows lags behind.
                sleep(RETRY_MIN).await;
            }
            progress.bookmark.resume();
        }
    }

    /// Ready when the server answers again; an error if it is not worth waiting any longer.
    async fn until_back(
        &self,
        reading: &mut Reading,
        mut error: Break,
        trouble: &mut Option<Trouble>,
    ) -> Result<(), Break> {
        loop {
            let Trouble { since, pause } = trouble.get_or_insert_with(Trouble::new);
            let is_over = match &error {
                Break::Gone(_) | Break::Unwanted => true,
                Break::Refused(_) => since.elapsed() >= REFUSAL_MAX,
                Break::Away(_) => since.elapsed() >= AWAY_MAX,
            };
            if is_over {
                return Err(error);
            }
            sleep(*pause).await;
            *pause = (*pause * 2).min(RETRY_MAX);
            error = match self.look(reading).await {
                Ok(true) => return Ok(()),
                Ok(false) => Break::Gone(anyhow!("the container has been started anew since")),
                Err(error) => error,
            };
        }
    }

    /// Asks what has become of the instance. False: the server does not know of it any more.
    async fn look(&self, reading: &mut Reading) -> Result<bool, Break> {
        let pods: Api<PodObject> = Api::namespaced(self.client.clone(), &reading.origin.namespace);
        let pod = pods.get(&reading.origin.pod).await?;
        let Some(instance) = pod.instances().find(|instance| *instance.id == *reading.id) else { return Ok(false) };
        (reading.is_previous, reading.is_running) = (instance.is_previous, instance.is_running);
        Ok(true)
    }

    /// Reads until the stream ends. What is left is a line without an end.
    async fn read_once(&self, reading: &Reading, progress: &mut Progress) -> Result<Splitter, Break> {
        let pods: Api<PodObject> = Api::namespaced(self.client.clone(), &reading.origin.namespace);
        let parameters = LogParams {
            container: Some(reading.origin.container.clone()),
            follow: reading.is_running,
            previous: reading.is_previous,
            since_time: progress.bookmark.since(),
            timestamps: self.way == Way::Network,
            ..LogParams::default()
        };
        let mut stream = Box::pin(pods.log_stream(&reading.origin.pod, &parameters).await?);
        progress.was_sent = true;
        let mut splitter = Splitter::default();
        loop {
            let bytes = stream.fill_buf().await.map_err(|error| Break::Away(error.into()))?;
            if bytes.is_empty() {
                return Ok(splitter);
            }
            let (lines, count) = (splitter.push(bytes), bytes.len());
            stream.as_mut().consume_unpin(count);
            let news = progress.news(lines, self.way);
            self.show(&progress.origin, news).await?;
        }
    }

    async fn show(&self, origin: &Arc<LogOrigin>, lines: Vec<u8>) -> Result<(), Break> {
        // Our own node says so where something is missing; others do not.
        let missing = lines.split(|byte| *byte == b'\n').filter_map(node::logs::lost_bytes).sum();
        self.lost.fetch_add(missing, Ordering::Relaxed);
        if lines.is_empty() {
            return Ok(());
        }
        self.pieces.send(LogPiece { origin: origin.clone(), lines }).await.map_err(|_| Break::Unwanted)
    }
}

/// Since when a server does not answer as it should, and how long to wait before it is asked again.
struct Trouble {
    since: Instant,
    pause: Duration,
}

impl Trouble {
    fn new() -> Self {
        Self { since: Instant::now(), pause: RETRY_MIN }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A pod with one init container, a sidecar and a main container, in these states.
    fn pod(init: Value, side: Value, main: Value) -> PodObject {
        let named = |name: &str, mut status: Value| {
            status["name"] = json!(name);
            status
        };
        serde_json::from_value(json!({
            "metadata": {"name": "p", "uid": "u"},
            "spec": {"initContainers": [{"name": "init"}, {"name": "side"}], "containers": [{"name": "main"}]},
            "status": {
                "initContainerStatuses": [named("init", init), named("side", side)],
                "containerStatuses": [named("main", main)],
            },
        }))
        .unwrap()
    }

    fn running(id: &str) -> Value {
        json!({"containerID": id, "state": {"running": {}}})
    }

    fn ended(id: &str) -> Value {
        json!({"state": {"terminated": {"exitCode": 0, "containerID": id}}})
    }

    fn restarted(before: &str, now: &str) -> Value {
        let last = json!({"terminated": {"exitCode": 1, "containerID": before}});
        json!({"containerID": now, "state": {"running": {}}, "lastState": last})
    }

    fn ids(readings: &[Reading]) -> Vec<&str> {
        readings.iter().map(|reading| &*reading.id).collect()
    }

    #[test]
    fn what_has_ended_is_shown_before_what_came_after_it() {
        let mut logs = PodLogs::default();
        let all = pod(ended("init"), running("side"), restarted("main-1", "main-2"));
        assert_eq!(ids(&logs.take(&all, 10)), ["init"]);
        assert_eq!(ids(&logs.take(&all, 10)), [""; 0], "each is taken once");
        assert_eq!(ids(&logs.done("init")), ["side", "main-1"], "the sidecar runs on and holds nobody up");
        // While it waits, it ends and is followed by another one.
        let later = pod(ended("init"), running("side"), restarted("main-2", "main-3"));
        assert_eq!(ids(&logs.take(&later, 10)), [""; 0]);
        let ready = logs.done("main-1");
        assert_eq!((ids(&ready), ready[0].is_previous, ready[0].is_running), (vec!["main-2"], true, false));
        assert_eq!(ids(&logs.done("main-2")), ["main-3"]);
    }

    #[test]
    fn what_is_followed_is_read_to_its_end_first() {
        let mut logs = PodLogs::default();
        assert_eq!(ids(&logs.take(&pod(running("init"), json!({}), json!({})), 10)), ["init"]);
        assert_eq!(ids(&logs.take(&pod(ended("init"), running("side"), running("main")), 10)), [""; 0]);
        assert_eq!(ids(&logs.done("init")), ["side", "main"]);
    }

    #[test]
    fn what_cannot_be_followed_comes_again() {
        let mut logs = PodLogs::default();
        let both = pod(json!({}), running("side"), running("main"));
        assert_eq!(ids(&logs.take(&both, 1)), ["side"]);
        assert_eq!(ids(&logs.take(&both, 0)), [""; 0]);
        assert_eq!(ids(&logs.take(&both, 1)), ["main"]);
    }
}
