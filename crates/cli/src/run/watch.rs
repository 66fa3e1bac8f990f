//! Watches Jobs and pods and shows what happens, until all Jobs have ended: a whole run, or one Job for `tally logs -f`.

use std::collections::HashSet;
use std::io;
use std::pin::Pin;
use std::time::{Duration, Instant};

use batch_types::constants::label;
use batch_types::index_ranges::IndexSet;
use futures_util::{Stream, StreamExt as _, stream};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Event as CoreEvent;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tokio::signal::unix::SignalKind;
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};

use super::progress::Progress;
use super::screen::Screen;
use crate::job_view::JobView;
use crate::log_lines::LogPiece;
use crate::log_stream::{AWAY_MAX, LogStreamer, PIECES_MAX, Wanted, Way};
use crate::pod_view::PodObject;

/// Progress is shown this often.
const TICK: Duration = Duration::from_millis(100);

/// After the Jobs have ended: how long nothing may happen while pods or logs are still missing.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// After a signal: how long a reader of the output may take nothing before the rest of it is let go.
pub(crate) const STALL_MAX: Duration = Duration::from_secs(2);

/// How long a server may be away before that is told: watches break off now and then.
const AWAY_TOLD: Duration = Duration::from_secs(5);

/// A node takes a moment to kill a pod whose grace is over, and to say so.
const GRACE_MARGIN: Duration = Duration::from_secs(10);

/// Why a run ended before its Jobs.
#[derive(Debug)]
pub(crate) enum Interruption {
    Signal(SignalKind),
    /// Output cannot be written.
    Output(io::Error),
    /// The server does not answer any more, for this reason.
    Away(String),
    /// The server keeps nothing any more, for this reason.
    Store(String),
}

type Events<K> = Pin<Box<dyn Stream<Item = watcher::Result<Event<K>>> + Send>>;

/// Which Jobs and pods to look at.
#[derive(Debug, Clone)]
pub(crate) enum Scope {
    /// All of the server: it is there for these Jobs alone.
    Server,
    /// One Job and its pods, of these indexes.
    Job { view: Box<JobView>, indexes: Option<IndexSet> },
}

/// A run that is being watched.
pub(crate) struct Watching {
    progress: Progress,
    indexes: Option<IndexSet>,
    /// Pods that ended before this began may be gone already.
    missed_the_end: bool,
    pods_listed: bool,
    jobs: Events<Job>,
    /// Jobs of a list that is being read, by uid.
    listed: HashSet<String>,
    pods: Events<PodObject>,
    /// What a node says about a pod that it cannot start, where the pod's status does not.
    held_up: Events<CoreEvent>,
    logs: LogStreamer,
    pieces: mpsc::Receiver<LogPiece>,
    tick: Interval,
    away: Option<Away>,
}

/// A server that does not answer.
#[derive(Debug)]
struct Away {
    since: Instant,
    /// What came in place of an answer.
    why: String,
    is_told: bool,
}

impl Watching {
    pub(crate) fn new(client: Client, progress: Progress, wanted: Wanted, scope: Scope) -> Self {
        let config = watcher::Config::default();
        let (jobs, pods, job_config, pod_config) = match &scope {
            Scope::Server => (Api::all(client.clone()), Api::all(client.clone()), config.clone(), config),
            Scope::Job { view, .. } => (
                Api::namespaced(client.clone(), &view.namespace),
                Api::namespaced(client.clone(), &view.namespace),
                config.clone().fields(&format!("metadata.name={}", view.name)),
                config.labels(&format!("{}={}", label::CONTROLLER_UID, view.uid)),
            ),
        };
        let held_up = match &scope {
            Scope::Server => {
                let config = watcher::Config::default().fields("reason=FailedMount");
                watcher(Api::all(client.clone()), config).default_backoff().boxed()
            }
            Scope::Job { .. } => stream::pending().boxed(),
        };
        let way = match &scope {
            Scope::Server => Way::InProcess,
            Scope::Job { .. } => Way::Network,
        };
        let (logs, pieces) = LogStreamer::new(client, wanted, way);
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            missed_the_end: progress.has_finished(),
            pods_listed: false,
            progress,
            indexes: match scope {
                Scope::Server => None,
                Scope::Job { indexes, .. } => indexes,
            },
            listed: HashSet::new(),
            jobs: watcher(jobs, job_config).default_backoff().boxed(),
            pods: watcher(pods, pod_config).default_backoff().boxed(),
            held_up,
            logs,
            pieces,
            tick,
            away: None,
        }
    }

    pub(crate) fn progress(&self) -> &Progress {
        &self.progress
    }

    /// How much of the logs was gone before it was read, in bytes.
    pub(crate) fn lost_log_bytes(&self) -> u64 {
        self.logs.lost_bytes()
    }

    /// How many logs are known not to be complete. Which ones was told.
    pub(crate) fn incomplete_logs(&self) -> usize {
        self.logs.incomplete()
    }

    /// Ready when all Jobs have ended and all logs have been shown. Can be dropped and called again.
    pub(crate) async fn run(&mut self, screen: &mut Screen) -> Result<(), Interruption> {
        // What there is to do is shown before any of it is done, however soon that is.
        screen.progress(&self.progress, Instant::now()).map_err(Interruption::Output)?;
        while !self.progress.has_finished() {
            if let Some(away) = self.away.take_if(|away| away.since.elapsed() > AWAY_MAX) {
                self.give_up(screen);
                return Err(Interruption::Away(away.why));
            }
            if let Some(away) = self.away.as_mut().filter(|away| !away.is_told && away.since.elapsed() > AWAY_TOLD) {
                away.is_told = true;
                screen.warn("note: the server does not answer; it is waited for");
            }
            self.step(screen).await?;
        }
        self.rest(screen, false).await?;
        screen.drain().await.map_err(Interruption::Output)
    }

    /// The same after a signal: until nothing runs any more, for as long as pods may take. Output that cannot be
    /// written is no reason to leave them alone.
    pub(crate) async fn wind_down(&mut self, screen: &mut Screen, grace: Duration) {
        let quiet = async {
            while !self.progress.is_at_rest() {
                let _ = self.step(screen).await;
            }
        };
        if timeout(grace + GRACE_MARGIN, quiet).await.is_err() {
            tracing::warn!("pods did not end in time");
        }
        let _ = self.rest(screen, true).await;
        // Also what was seen after output had failed.
        let _ = screen.progress(&self.progress, Instant::now());
    }

    /// Jobs, pods and logs come on their own ways; the Jobs are often the first to arrive.
    /// Whoever reads the output may take all the time in the world, unless somebody wants to end this.
    async fn rest(&mut self, screen: &mut Screen, is_interrupted: bool) -> Result<(), Interruption> {
        let mut last_news = Instant::now();
        while !(self.has_seen_all_pods() && self.logs.is_idle() && self.pieces.is_empty()) {
            let patience = match (screen.is_behind(), is_interrupted) {
                // Those who read the logs have a patience of their own with a server that is away.
                (false, false) if self.away.is_some() && !self.logs.is_idle() => AWAY_MAX + SILENCE_MAX,
                (false, _) => SILENCE_MAX,
                (true, true) => STALL_MAX,
                (true, false) => Duration::MAX,
            };
            if self.step(screen).await? {
                last_news = Instant::now();
            } else if last_news.elapsed() > patience {
                tracing::warn!("some logs could not be read in time");
                self.give_up(screen);
                break;
            }
        }
        screen.progress(&self.progress, Instant::now()).map_err(Interruption::Output)
    }

    /// Says which logs will not be read any further.
    fn give_up(&mut self, screen: &mut Screen) {
        self.logs.give_up();
        self.logs.take_faults().iter().for_each(|fault| screen.warn(fault));
    }

    fn has_seen_all_pods(&self) -> bool {
        self.progress.has_seen_all_pods() || (self.missed_the_end && self.pods_listed)
    }

    /// One piece of news. False: only time has passed.
    async fn step(&mut self, screen: &mut Screen) -> Result<bool, Interruption> {
        let shown = tokio::select! {
            Some(event) = self.jobs.next() => {
                self.job_event(event);
                Ok(())
            }
            Some(event) = self.pods.next() => {
                self.pod_event(event);
                Ok(())
            }
            Some(event) = self.held_up.next() => {
                if let Ok(Event::Apply(event) | Event::InitApply(event)) = event {
                    let message = event.message.unwrap_or_default();
                    self.progress.pod_held_up(
                        event.involved_object.uid.as_deref().unwrap_or_default(),
                        format!("{}: {message}", event.reason.unwrap_or_default()),
                    );
                }
                Ok(())
            }
            advanced = screen.advance(), if screen.is_behind() => advanced,
            Some(piece) = self.pieces.recv(), if !screen.is_behind() => {
                let mut pieces = vec![piece];
                while pieces.len() < PIECES_MAX && let Ok(piece) = self.pieces.try_recv() {
                    pieces.push(piece);
                }
                screen.logs(&pieces)
            }
            () = self.logs.progress(), if !self.logs.is_idle() => {
                self.logs.take_faults().iter().for_each(|fault| screen.warn(fault));
                Ok(())
            }
            _ = self.tick.tick() => {
                return screen.progress(&self.progress, Instant::now()).map(|()| false).map_err(Interruption::Output);
            }
        };
        shown.map(|()| true).map_err(Interruption::Output)
    }

    fn job_event(&mut self, event: watcher::Result<Event<Job>>) {
        let now = Instant::now();
        match &event {
            // Nobody has been asked yet.
            Ok(Event::Init) => {}
            Ok(_) => self.away = None,
            Err(error) => {
                self.away.get_or_insert_with(|| Away { since: now, why: error.to_string(), is_told: false });
            }
        }
        match event {
            Ok(Event::Apply(job)) => self.progress.job_changed(JobView::of(&job), now),
            Ok(Event::Delete(job)) => self.progress.job_deleted(job.metadata.uid.as_deref().unwrap_or_default(), now),
            Ok(Event::Init) => self.listed.clear(),
            Ok(Event::InitApply(job)) => {
                self.listed.extend(job.metadata.uid.clone());
                self.progress.job_changed(JobView::of(&job), now);
            }
            Ok(Event::InitDone) => self.progress.only_jobs(&self.listed, now),
            Err(error) => tracing::debug!(%error, "the watch of Jobs is interrupted"),
        }
    }

    fn pod_event(&mut self, event: watcher::Result<Event<PodObject>>) {
        match event {
            Ok(Event::Apply(pod) | Event::InitApply(pod)) if self.progress.owns(&pod) => {
                self.progress.pod_changed(&pod);
                if is_wanted(&pod, self.indexes.as_ref()) {
                    self.logs.observe(&pod);
                }
            }
            Ok(Event::Delete(pod)) if self.progress.owns(&pod) => {
                self.progress.pod_deleted(&pod);
                self.logs.forget(&pod);
            }
            Ok(Event::InitDone) => self.pods_listed = true,
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "the watch of pods is interrupted"),
        }
    }
}

/// Whether a pod is of the indexes that are asked for.
pub(crate) fn is_wanted(pod: &PodObject, indexes: Option<&IndexSet>) -> bool {
    indexes.is_none_or(|indexes| pod.index().is_some_and(|index| indexes.contains(index)))
}
