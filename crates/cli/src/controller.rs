//! `tally controller`: the Job controller on a cluster, as a guest of its built-in one or in its place.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use batch_plan::job::Manager;
use batch_types::constants::value::BUILT_IN_CONTROLLER;
use batch_types::gates::Gates;
use clap::{ArgAction, Args};
use controllers::job::access;
use controllers::namespace::Furnishing;
use controllers::runtime::endpoint::{self, Readiness};
use controllers::runtime::leader::{LeaderError, LeaderOptions, lead};
use controllers::runtime::limiter::{Rate, limited};
use controllers::runtime::{ControllerContext, Environment, Metrics, Shutdown, Supervisor};
use kube::Client;
use tokio::runtime;

use crate::cluster::{connect, unreachable};
use crate::environment;
use crate::failure::{Failure, plain};
use crate::output::tell;
use crate::parts::{self, Controllers};
use crate::patience::in_time;
use crate::running::{Choice, JobFlags, duration, start};
use crate::server::bind;
use crate::shutdown::Signals;
use crate::version::VERSION;

/// After everything has ended, stray background work gets this long before the process ends without it.
const RUNTIME_END: Duration = Duration::from_millis(200);

#[derive(Debug, Args)]
pub(crate) struct Controller {
    /// The cluster and the credentials [default: as kubectl finds them; inside a pod, its service account].
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Run the Jobs whose `spec.managedBy` is this name.
    #[arg(long, value_name = "NAME", default_value = "tally.dev/job-controller", value_parser = manager_name)]
    managed_by: String,
    /// Run the Jobs that name no controller, in place of the cluster's own Job controller, which must be switched off
    /// (`kube-controller-manager --controllers=*,-job-controller`).
    #[arg(long, conflicts_with = "managed_by")]
    replace_built_in: bool,
    /// Controllers to run: names separated by commas. A cluster has all but `job` already, and two of a kind get in each
    /// other's way. Names: job, ttl, cronjob, gc, podgc, namespace, scheduler.
    #[arg(long, value_name = "LIST", default_value = "job", allow_hyphen_values = true)]
    controllers: Controllers,
    /// Serve /metrics, /healthz, /livez and /readyz here [default: nowhere].
    #[arg(long, value_name = "IP:PORT")]
    bind_address: Option<SocketAddr>,
    /// Switch feature gates, for example `JobManagedBy=false`. Names: JobManagedBy, JobPodReplacementPolicy,
    /// TTLAfterFinished.
    #[arg(long, value_name = "NAME=BOOL,…", default_value = "", hide_default_value = true)]
    feature_gates: Gates,
    /// Requests per second to the API server; 0 means no limit on this side.
    #[arg(long, value_name = "N", default_value_t = 20.0, value_parser = rate)]
    kube_api_qps: f64,
    /// Requests that may exceed that rate at once.
    #[arg(long, value_name = "N", default_value_t = 30)]
    kube_api_burst: u32,
    /// Work only while holding a Lease, so that several copies can be started.
    #[arg(long, value_name = "BOOL", default_value_t = true, default_missing_value = "true", num_args = 0..=1,
          require_equals = true, action = ArgAction::Set)]
    leader_elect: bool,
    /// The namespace of the Lease.
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system")]
    leader_elect_resource_namespace: String,
    /// The name of the Lease [default: after the Jobs that are run].
    #[arg(long, value_name = "NAME")]
    leader_elect_resource_name: Option<String>,
    /// How long the other copies wait for one that has fallen silent.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration)]
    leader_elect_lease_duration: Duration,
    /// How long a copy that cannot renew the Lease goes on; shorter than that.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    leader_elect_renew_deadline: Duration,
    /// The pause between attempts to get or to renew the Lease.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration)]
    leader_elect_retry_period: Duration,
    #[command(flatten)]
    job: JobFlags,
}

pub(crate) fn run(options: &Controller, environment: &environment::Environment) -> Result<(), Failure> {
    let runtime = runtime::Builder::new_multi_thread().enable_all().build().context("start the async runtime")?;
    let done = runtime.block_on(serve(options, environment));
    runtime.shutdown_timeout(RUNTIME_END);
    done
}

async fn serve(options: &Controller, environment: &environment::Environment) -> Result<(), Failure> {
    let choice = options.choice()?;
    let lease = options.lease()?;
    let (client, server) = connect(options.kubeconfig.as_deref(), environment).await?;
    let mut stop = Box::pin(Signals::listen().context("listen for signals")?.first_then(|| {}));
    tokio::select! {
        checked = check_access(&client, &server) => checked?,
        // Nothing has begun that would have to be ended.
        _ = &mut stop => return Ok(()),
    }
    let client = limited(client, Rate { qps: options.kube_api_qps, burst: options.kube_api_burst });

    let (metrics, shutdown, readiness) = (Metrics::new(), Shutdown::new(), Readiness::default());
    let filled = Arc::new(AtomicBool::new(false));
    let mut tasks = Supervisor::new(shutdown.clone());
    if let Some(address) = options.bind_address {
        let listener = bind("--bind-address", address).await?;
        let flag = filled.clone();
        readiness.check("caches", move || flag.load(Ordering::Acquire));
        tasks.spawn("endpoint", endpoint::serve(listener, metrics.clone(), readiness, shutdown.clone()));
    }
    let ended = shutdown.clone();
    tasks.spawn("signals", async move {
        tokio::select! {
            biased;
            () = ended.cancelled() => {}
            _ = stop => ended.cancel(),
        }
    });

    let announcement = format!("tally {VERSION} runs {} on {server}", described(&choice, &options.manager()));
    let ready = move || {
        filled.store(true, Ordering::Release);
        announce(&announcement);
    };
    let (around, inside) = (client.clone(), metrics.clone());
    let work = move |shutdown| start(client, inside, choice, shutdown, ready).ended();
    let worked = match lease {
        None => work(shutdown.clone()).await.map_err(LeaderError::from),
        Some(lease) => {
            let place = format!("{}/{}", lease.namespace, lease.name);
            let stands_by = move |holder: &str| tell(&format!("standing by: `{holder}` holds the Lease {place}"));
            let (context, _) = ControllerContext::new(around, metrics, Environment::system(), shutdown.clone());
            lead(&context, lease, stands_by, work).await
        }
    };
    shutdown.cancel();
    let others = tasks.run().await;
    worked.map_err(|error| match error {
        LeaderError::Lost { .. } => Failure::new(error)
            .hint("start it again when the server answers; while another copy holds the lease, it stands by"),
        LeaderError::Task(_) => Failure::new(error),
    })?;
    others.map_err(Failure::new)
}

impl Controller {
    fn manager(&self) -> Manager {
        if self.replace_built_in { Manager::BuiltIn } else { Manager::External(self.managed_by.clone()) }
    }

    fn choice(&self) -> Result<Choice, Failure> {
        let controllers = self.controllers.chosen();
        if controllers.is_empty() {
            return Err(Failure::usage(anyhow!("there is no controller to run")).hint("leave `--controllers` out"));
        }
        Ok(Choice {
            controllers,
            job: self.job.options(self.feature_gates, self.manager()),
            furnishing: Furnishing::default(),
        })
    }

    fn lease(&self) -> Result<Option<LeaderOptions>, Failure> {
        if !self.leader_elect {
            return Ok(None);
        }
        let (duration, deadline) = (self.leader_elect_lease_duration, self.leader_elect_renew_deadline);
        // A Lease says its duration in whole seconds, and others may take it over when that is up.
        if duration.subsec_nanos() != 0 || duration <= deadline || deadline <= self.leader_elect_retry_period {
            let wrong = "the lease duration must be whole seconds and longer than the renew deadline, and that longer \
                         than the retry period";
            return Err(Failure::usage(anyhow!(wrong)).hint("leave the flags `--leader-elect-…` out"));
        }
        let name = self.leader_elect_resource_name.clone().unwrap_or_else(|| lease_name(&self.manager()));
        Ok(Some(LeaderOptions {
            lease_duration: duration,
            renew_deadline: deadline,
            retry_period: self.leader_elect_retry_period,
            ..LeaderOptions::new(&self.leader_elect_resource_namespace, &name, &identity())
        }))
    }
}

/// Two controllers that run the same Jobs must compete for the same Lease, and no others.
fn lease_name(manager: &Manager) -> String {
    match manager {
        Manager::BuiltIn => "tally-job-controller".to_owned(),
        Manager::External(name) => {
            let plain = |char: char| if char.is_ascii_alphanumeric() || char == '.' { char } else { '-' };
            name.to_ascii_lowercase().chars().map(plain).collect()
        }
    }
}

/// What is run, for people: whose Jobs, or which other controllers.
fn described(choice: &Choice, manager: &Manager) -> String {
    if !choice.controllers.contains(&parts::Controller::Job) {
        let names: Vec<String> = choice.controllers.iter().map(ToString::to_string).collect();
        let word = if names.len() == 1 { "controller" } else { "controllers" };
        return format!("the {word} {}", names.join(", "));
    }
    match manager {
        Manager::BuiltIn => "all Jobs without a manager".to_owned(),
        Manager::External(name) => format!("Jobs managed by {name}"),
    }
}

/// Unique among all processes: the machine's name is for people, the rest makes the difference.
fn identity() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{host}_{}", uuid::Uuid::new_v4())
}

/// A controller that lacks a permission would start and achieve nothing, or half of it.
async fn check_access(client: &Client, server: &str) -> Result<(), Failure> {
    let asked = in_time(server, access::missing(client, &access::NEEDED)).await;
    let needed = match asked.unwrap_or_else(|silent| Err(kube::Error::Service(silent.into()))) {
        Ok(missing) => missing,
        // A server that does not answer such questions may still do the rest.
        Err(kube::Error::Api(status)) if status.code != 401 => {
            tracing::warn!(message = status.message, "the server does not say what this controller may do");
            return Ok(());
        }
        Err(error @ kube::Error::Api(_)) => {
            let error = plain(error).context("ask the server what this controller may do");
            return Err(Failure::new(error).hint("check the credentials with `kubectl auth whoami`"));
        }
        Err(error) => return Err(unreachable(error, server, "")),
    };
    if !needed.is_empty() {
        let list: Vec<String> = needed.iter().map(ToString::to_string).collect();
        return Err(Failure::new(anyhow!("the credentials lack permissions: {}", list.join(", ")))
            .hint("the ClusterRole in `deploy/` of tally's sources has all of them"));
    }
    if let Ok(Ok(missing)) = in_time(server, access::missing(client, &access::WISHED)).await {
        for permission in missing {
            tracing::warn!(%permission, "without this permission people are told less");
        }
    }
    Ok(())
}

/// The one line on stdout, when work begins.
fn announce(text: &str) {
    let mut stdout = std::io::stdout().lock();
    // Nobody may be reading; the controller works all the same.
    let _ = writeln!(stdout, "{text}");
    let _ = stdout.flush();
}

/// KEP-4368: a name with a domain. The reserved one is not a name to give oneself.
fn manager_name(text: &str) -> Result<String, String> {
    if text == BUILT_IN_CONTROLLER {
        return Err("this is the cluster's own controller; use `--replace-built-in` to take its place".to_owned());
    }
    let valid = text.len() <= 63
        && text.split_once('/').is_some_and(|(domain, path)| domain.contains('.') && !path.is_empty())
        && !text.contains(char::is_whitespace);
    if valid { Ok(text.to_owned()) } else { Err("must be a domain and a path, as in `example.com/jobs`".to_owned()) }
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "must be a number".to_owned())?;
    if rate.is_finite() && rate >= 0.0 { Ok(rate) } else { Err("must be 0 or more".to_owned()) }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use controllers::job;
    use http::{Request, Response};
    use kube::client::Body;

    use super::*;

    #[test]
    fn names_of_managers_are_domains_with_a_path() {
        for good in ["tally.dev/job-controller", "example.com/a/b"] {
            assert_eq!(manager_name(good).as_deref(), Ok(good));
        }
        for bad in ["", "jobs", "example/jobs", "example.com/", "a.b/c d", "kubernetes.io/job-controller"] {
            assert!(manager_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn each_manager_has_a_lease_of_its_own() {
        assert_eq!(lease_name(&Manager::BuiltIn), "tally-job-controller");
        let named = |name: &str| lease_name(&Manager::External(name.to_owned()));
        assert_eq!(named("tally.dev/job-controller"), "tally.dev-job-controller");
        assert_eq!(named("Example.com/Jobs_a"), "example.com-jobs-a");
    }

    /// There are many questions, each of which is asked again.
    #[tokio::test(start_paused = true)]
    async fn a_server_that_never_answers_is_given_up_once() {
        let silent = tower::service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, Infallible>>());
        let started = tokio::time::Instant::now();
        let failure = check_access(&Client::new(silent, "default"), "https://example.com").await.unwrap_err();
        assert_eq!(failure.error.to_string(), "https://example.com has not answered within 30 s");
        assert_eq!((failure.error.chain().count(), started.elapsed().as_secs()), (1, 30));
    }

    #[test]
    fn only_who_runs_jobs_says_so() {
        let described = |list: &str| {
            let controllers = list.parse::<Controllers>().unwrap().chosen();
            let manager = Manager::External("a.b/c".to_owned());
            let job = job::Options::default();
            described(&Choice { controllers, job, furnishing: Furnishing::default() }, &manager)
        };
        assert_eq!(described("job,gc"), "Jobs managed by a.b/c");
        assert_eq!(described("ttl,gc"), "the controllers ttl, gc");
        assert_eq!(described("ttl"), "the controller ttl");
    }

    #[test]
    fn rates_are_not_negative() {
        assert_eq!((rate("0"), rate("2.5")), (Ok(0.0), Ok(2.5)));
        assert!(rate("-1").is_err() && rate("NaN").is_err() && rate("x").is_err());
    }
}
