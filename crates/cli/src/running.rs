//! The controllers as the command line wants them: built-in ones beside the embedded server, or a cluster's guests.
//!
//! `up` and `controller` differ in the client they bring and in the name under which Jobs are run; the rest is here.

use std::time::Duration;

use batch_plan::job::{Manager, Settings};
use batch_types::gates::Gates;
use clap::Args;
use controllers::runtime::{ControllerContext, Environment, Metrics, Shutdown, Supervisor, TaskError};
use controllers::{cronjob, gc, job, namespace, podgc, scheduler, ttl};
use jiff::SignedDuration;
use jiff::tz::TimeZone;

use crate::parts::Controller;

/// Flags of the Job controller. Names and defaults are kube-controller-manager's or those of its source (JC-106).
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Job controller")]
pub(crate) struct JobFlags {
    /// Jobs that are worked on at the same time.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    concurrent_job_syncs: u16,
    /// How long pod events of a busy Job are gathered at most [default: 1s; `run`: 100ms]. After a calm moment a pod that
    /// ended waits for others for up to 200ms, and nothing else waits.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    job_sync_batch_period: Option<Duration>,
    /// Delay before a failed pod is replaced; doubles with each further failure.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pod_failure_backoff: Duration,
    /// The longest such delay.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration)]
    pod_failure_backoff_max: Duration,
    /// Ended pods that are put on record in one sync of a Job.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u16).range(1..=5000))]
    max_uncounted_pods: u16,
    /// Pods that are created or removed in one sync of a Job.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u16).range(1..=5000))]
    max_pods_per_sync: u16,
}

impl JobFlags {
    /// The same with another batch period, unless one was asked for.
    pub(crate) fn with_batch_period(&self, period: Duration) -> Self {
        Self { job_sync_batch_period: Some(self.job_sync_batch_period.unwrap_or(period)), ..self.clone() }
    }

    pub(crate) fn options(&self, gates: Gates, manager: Manager) -> job::Options {
        let settings = Settings {
            gates,
            manager,
            sync_batch_period: self.job_sync_batch_period.unwrap_or(Settings::default().sync_batch_period),
            pod_failure_backoff: self.pod_failure_backoff,
            pod_failure_backoff_max: self.pod_failure_backoff_max.max(self.pod_failure_backoff),
            uncounted_pods_max: self.max_uncounted_pods.into(),
            releases_max: self.max_pods_per_sync.max(self.max_uncounted_pods).into(),
            create_delete_max: self.max_pods_per_sync.into(),
            ..Settings::default()
        };
        job::Options { settings, workers: self.concurrent_job_syncs.into(), ..job::Options::default() }
    }
}

/// A duration as in Go: `1s`, `1m30s`, `250ms`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let invalid = || format!("`{text}` is no duration: use a number and a unit, as in `10s`, `1m30s`, `250ms`");
    let parsed: SignedDuration = text.parse().map_err(|_| invalid())?;
    Duration::try_from(parsed).map_err(|_| invalid())
}

/// Which controllers to run, and how.
#[derive(Debug, Clone)]
pub(crate) struct Choice {
    pub(crate) controllers: Vec<Controller>,
    pub(crate) job: job::Options,
    pub(crate) furnishing: namespace::Furnishing,
}

/// Running controllers.
#[derive(Debug)]
pub(crate) struct Running {
    tasks: Supervisor,
}

/// Starts controllers. They end when `shutdown` is cancelled; `ready` is called once the Job controller, if it is among
/// them, has seen every Job and pod.
pub(crate) fn start(
    client: kube::Client,
    metrics: Metrics,
    choice: Choice,
    shutdown: Shutdown,
    ready: impl FnOnce() + Send + 'static,
) -> Running {
    let (context, events) = ControllerContext::new(client, metrics, Environment::system(), shutdown.clone());
    let mut tasks = Supervisor::new(shutdown.clone());
    tasks.spawn("events", events.run(shutdown));
    let mut ready = Some(ready);
    for controller in choice.controllers {
        let context = context.clone();
        match controller {
            Controller::Job => {
                let ready = ready.take();
                let tell = move || ready.into_iter().for_each(|ready| ready());
                tasks.spawn("job controller", job::run_and_tell(context, choice.job.clone(), tell));
            }
            Controller::Gc => tasks.spawn("garbage collector", gc::run(context, gc::Options::default())),
            Controller::PodGc => tasks.spawn("pod garbage collector", podgc::run(context, podgc::Options::default())),
            Controller::Namespace => {
                let options =
                    namespace::Options { furnishing: choice.furnishing.clone(), ..namespace::Options::default() };
                tasks.spawn("namespace controller", namespace::run(context, options));
            }
            Controller::Ttl => {
                let options = ttl::Options { gates: choice.job.settings.gates, ..ttl::Options::default() };
                tasks.spawn("TTL controller", ttl::run(context, options));
            }
            Controller::CronJob => {
                let options = cronjob::Options { time_zone: TimeZone::system(), ..cronjob::Options::default() };
                tasks.spawn("CronJob controller", cronjob::run(context, options));
            }
            Controller::Scheduler => {
                tasks.spawn("scheduler", scheduler::run(context, scheduler::Options::default()));
            }
        }
    }
    if let Some(ready) = ready {
        ready();
    }
    Running { tasks }
}

impl Running {
    /// Runs something beside the controllers that ends with them.
    pub(crate) fn beside(mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) -> Self {
        self.tasks.spawn(name, task);
        self
    }

    /// Ready when all have ended: after `shutdown` was cancelled, or with an error when one of them died.
    pub(crate) async fn ended(self) -> Result<(), TaskError> {
        self.tasks.run().await
    }
}
