//! One process of controllers: it begins with empty memory and can end at any moment.

use std::{fmt, sync::Arc, time::Duration};

use apiserver::ApiServer;
use controllers::{
    cronjob, gc, job, podgc,
    runtime::{ControllerContext, Environment, Metrics, Shutdown, metrics::Exposition},
    ttl,
};
use tokio::task::JoinSet;

use super::{Clock, NODE, clock::Chance};
use crate::{
    cluster,
    faults::Wire,
    node::{Agent, Machine},
};

/// Which controllers run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Controllers {
    pub job: bool,
    pub ttl: bool,
    pub cron_job: bool,
    pub gc: bool,
    pub pod_gc: bool,
    /// Instead of the stand-in for kubelets, whose calls meet no faults.
    pub node: bool,
    /// Changes the Job controller's options.
    pub tune: Option<fn(&mut job::Options)>,
}

impl Controllers {
    /// The one that most scenarios are about.
    pub const JOB: Self =
        Self { job: true, ttl: false, cron_job: false, gc: false, pod_gc: false, node: false, tune: None };

    /// What the Job controller is told.
    pub(crate) fn job_options(&self) -> job::Options {
        let mut options = job::Options { workers: 2, ..job::Options::default() };
        if let Some(tune) = self.tune {
            tune(&mut options);
        }
        options
    }
}

/// A period that is never over in a world.
const NEVER: Duration = Duration::from_secs(7 * 86_400);

/// Where controllers run.
pub(super) enum Host {
    /// Beside the API server.
    Here(ApiServer),
    /// In a process of their own.
    Elsewhere(cluster::Session),
}

/// A running process. Dropping it is the power cut.
#[derive(Default)]
pub(super) struct Life {
    tasks: JoinSet<()>,
    job_metrics: Option<Metrics>,
    /// Where it really is one.
    process: Option<cluster::Process>,
}

impl Life {
    pub(super) fn begin(
        host: &Host,
        controllers: &Controllers,
        machine: &Machine,
        wire: &Wire,
        clock: Clock,
        chance: &Chance,
    ) -> Self {
        if let Host::Elsewhere(session) = host {
            let process = session.start(wire).expect("the controllers can be started");
            return Self { process: Some(process), ..Self::default() };
        }
        let chance = chance.clone();
        let environment = Environment::new(move || clock.now(), move || chance.next());
        let mut life = Self::default();
        if controllers.job {
            let context = life.context("job", wire, &environment);
            life.job_metrics = Some(context.metrics.clone());
            life.tasks.spawn(job::run(context, controllers.job_options()));
        }
        if controllers.ttl {
            let context = life.context("ttl", wire, &environment);
            let options = ttl::Options { workers: 2, clock_check: NEVER, ..ttl::Options::default() };
            life.tasks.spawn(ttl::run(context, options));
        }
        if controllers.cron_job {
            let context = life.context("cronjob", wire, &environment);
            let options = cronjob::Options { workers: 2, clock_check: NEVER, ..cronjob::Options::default() };
            life.tasks.spawn(cronjob::run(context, options));
        }
        if controllers.gc {
            let context = life.context("gc", wire, &environment);
            let options = gc::Options { workers: 2, discovery_period: NEVER, ..gc::Options::default() };
            life.tasks.spawn(gc::run(context, options));
        }
        if controllers.pod_gc {
            let context = life.context("podgc", wire, &environment);
            life.tasks.spawn(podgc::run(context, podgc::Options::default()));
        }
        if controllers.node {
            let context = life.context("node", wire, &environment);
            let agent = Agent::new(NODE, machine.clone(), context, Arc::new(move |moment| clock.at(moment)));
            life.tasks.spawn(agent.run());
        }
        life
    }

    /// What is wrong with the process, if it is one.
    pub(super) fn complaint(&mut self) -> Option<String> {
        self.process.as_mut().and_then(cluster::Process::complaint)
    }

    /// The Job controller's metrics as text.
    pub(super) fn job_metrics(&self) -> Option<String> {
        self.job_metrics.as_ref().map(|metrics| metrics.encode(Exposition::Prometheus))
    }

    fn context(&mut self, name: &'static str, wire: &Wire, environment: &Environment) -> ControllerContext {
        let shutdown = Shutdown::new();
        let (context, events) =
            ControllerContext::new(wire.client(name), Metrics::new(), environment.clone(), shutdown.clone());
        self.tasks.spawn(events.run(shutdown));
        context
    }
}

impl fmt::Debug for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Life").field("tasks", &self.tasks.len()).finish_non_exhaustive()
    }
}
