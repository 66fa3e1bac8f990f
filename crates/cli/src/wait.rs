//! `tally wait`: until Jobs have finished, with an exit code that says how.

use std::cell::Cell;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::Args;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::batch::v1::Job;
use kube::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use tokio::runtime;
use tokio::time::{Instant, timeout, timeout_at};

use crate::cluster::{Cluster, ClusterFlags};
use crate::environment::Environment;
use crate::failure::{Exit, Failure};
use crate::job_view::{JobName, JobView, Outcome};
use crate::output::say;
use crate::running::duration;
use crate::text::{counted, duration_text};

/// Watches open at the same time; Jobs beyond that are looked at in turn.
const WATCHES_MAX: usize = 64;
/// When nothing was heard of a Job for so long, it is asked for anew: a connection can die without a word. Longer than a watch
/// lasts, which may rightly have nothing to say.
const ASK_AGAIN: Duration = Duration::from_secs(330);

#[derive(Debug, Args)]
pub(crate) struct Wait {
    /// The Jobs to wait for.
    #[arg(value_name = "job/NAME", required = true)]
    jobs: Vec<JobName>,
    /// How long to wait, for example `60s`; then the exit code is 124 [default: for as long as it takes]. With `0s` the
    /// Jobs are looked at once.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    timeout: Option<Duration>,
    #[command(flatten)]
    cluster: ClusterFlags,
}

pub(crate) fn run(options: &Wait, environment: &Environment) -> Result<(), Failure> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().context("start the async runtime")?;
    runtime.block_on(wait(options, environment))
}

async fn wait(options: &Wait, environment: &Environment) -> Result<(), Failure> {
    let cluster = options.cluster.connect(environment).await?;
    wait_for_all(&cluster, &options.jobs, options.timeout).await
}

async fn wait_for_all(cluster: &Cluster, jobs: &[JobName], patience: Option<Duration>) -> Result<(), Failure> {
    let deadline = patience.and_then(|patience| Instant::now().checked_add(patience));
    let looks = stream::iter(jobs).map(|job| look(cluster, &job.0)).buffered(WATCHES_MAX).try_collect();
    // Whoever gives no time at all wants to know how things are, and that takes a moment.
    let looked: Vec<Looked> = match (patience, deadline) {
        (Some(patience), Some(deadline)) if !patience.is_zero() => {
            timeout_at(deadline, looks).await.map_err(|_| cluster.silent_for(patience))??
        }
        _ => looks.await?,
    };
    // Apart from what is told, which keeps to the order of the command line.
    let (finished, failed_so_far) = (Cell::new(0), Cell::new(0));
    let is_awaited = looked.iter().any(|job| job.outcome.is_none());
    let all = async {
        let waits = looked.into_iter().map(async |job| {
            let end = wait_for(cluster, job).await?;
            finished.set(finished.get() + 1);
            failed_so_far.set(failed_so_far.get() + usize::from(end.1 != Outcome::Complete));
            Ok::<_, Failure>(end)
        });
        let mut ends = stream::iter(waits).buffered(WATCHES_MAX);
        let mut failed = 0;
        let mut first = None;
        while let Some(end) = ends.next().await {
            let (name, outcome) = end?;
            match outcome {
                Outcome::Complete => say(&format!("job.batch/{name} complete\n"))?,
                Outcome::Failed { .. } => {
                    failed += 1;
                    first.get_or_insert((name, outcome));
                }
            }
        }
        match first {
            None => Ok(()),
            Some((name, outcome)) => Err(failure(cluster, &name, &outcome, failed)),
        }
    };
    let (Some(patience), Some(deadline), true) = (patience, deadline, is_awaited) else { return all.await };
    timeout_at(deadline, all).await.unwrap_or_else(|_| {
        let what = late(jobs, finished.get(), failed_so_far.get(), &duration_text(patience));
        Err(Failure::new(anyhow!(what))
            .exit(Exit::TimedOut)
            .hint(format!("`tally why job/NAME{}` says what a Job is waiting for", cluster.data_flag)))
    })
}

/// What has not happened in time. Jobs that failed have finished.
fn late(jobs: &[JobName], finished: usize, failed: usize, patience: &str) -> String {
    let what = match (jobs, finished) {
        ([JobName(only)], _) => format!("job/{only} has not finished"),
        (several, 0) => format!("{} have not finished", counted(several.len(), "Job")),
        (several, finished) => format!("{} of {} Jobs have not finished", several.len() - finished, several.len()),
    };
    let failed = if failed > 0 { format!("; {} failed", counted(failed, "Job")) } else { String::new() };
    format!("{what} within {patience}{failed}")
}

fn failure(cluster: &Cluster, name: &str, outcome: &Outcome, failed: usize) -> Failure {
    let error = match failed {
        1 => anyhow!("job/{name} failed: {}", outcome.why()),
        _ => anyhow!("{} failed; the first is job/{name}: {}", counted(failed, "Job"), outcome.why()),
    };
    Failure::new(error).hint(format!("`tally logs job/{name} --failed{}` shows what its pods said", cluster.data_flag))
}

/// A Job as it was at first.
#[derive(Debug)]
struct Looked {
    name: String,
    uid: Option<String>,
    outcome: Option<Outcome>,
}

/// Asked once before: a watch cannot tell a Job that is not there from one that will be.
async fn look(cluster: &Cluster, name: &str) -> Result<Looked, Failure> {
    let jobs: Api<Job> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let job = jobs.get(name).await.map_err(|error| lookup_failure(error, &named(cluster, name), cluster))?;
    Ok(Looked { name: name.to_owned(), outcome: JobView::of(&job).outcome, uid: job.metadata.uid })
}

fn named(cluster: &Cluster, name: &str) -> String {
    format!("job/{name} in namespace `{}`", cluster.namespace)
}

/// How the Job ended, as soon as it has.
async fn wait_for(cluster: &Cluster, job: Looked) -> Result<(String, Outcome), Failure> {
    let Looked { name, uid, outcome } = job;
    if let Some(outcome) = outcome {
        return Ok((name, outcome));
    }
    let (jobs, named): (Api<Job>, _) =
        (Api::namespaced(cluster.client.clone(), &cluster.namespace), named(cluster, &name));
    tracing::info!(job = name, uid, "waiting");
    let deleted = || {
        let error = anyhow!("{named} was deleted before it finished");
        Failure::new(error).hint("`tally history` knows what its pods did, if a tally ran them")
    };
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let watch = || Box::pin(watcher(jobs.clone(), config.clone()).default_backoff());
    let mut events = watch();
    // After a broken watch comes a new list: a Job that is not in it is gone.
    let mut listed = false;
    loop {
        let Ok(event) = timeout(ASK_AGAIN, events.next()).await else {
            tracing::info!(job = name, "nothing was heard for a while; asking again");
            events = watch();
            continue;
        };
        match event {
            Some(Ok(Event::Apply(job) | Event::InitApply(job))) => {
                if job.metadata.uid != uid {
                    return Err(deleted());
                }
                listed = true;
                if let Some(outcome) = JobView::of(&job).outcome {
                    return Ok((name, outcome));
                }
            }
            Some(Ok(Event::Init)) => listed = false,
            Some(Ok(Event::InitDone)) if listed => {}
            Some(Ok(Event::Delete(_) | Event::InitDone)) => return Err(deleted()),
            Some(Err(error)) => tracing::warn!(%error, "the watch is interrupted and begins again"),
            None => {
                let error = anyhow!("the watch of {named} ended");
                return Err(Failure::new(error).hint("is the server going away? run the same command again"));
            }
        }
    }
}

/// Why a Job could not be read.
pub(crate) fn lookup_failure(error: kube::Error, named: &str, cluster: &Cluster) -> Failure {
    match error {
        kube::Error::Api(status) if status.reason == "NotFound" => {
            Failure::usage(anyhow!("there is no {named} on {}", cluster.server))
                .hint("`kubectl get jobs --all-namespaces` lists what there is; `-n` says where to look")
        }
        other => cluster.failure(other, format!("read {named}")),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use http::{Request, Response};
    use http_body_util::{BodyExt as _, Full};
    use kube::client::{Body, Client};
    use serde_json::{Value, json};

    fn job(conditions: Value) -> Value {
        json!({"metadata": {"name": "a", "uid": "j", "resourceVersion": "1"}, "status": {"conditions": conditions}})
    }

    fn cluster(client: Client) -> Cluster {
        let (server, namespace) = ("https://example.com".to_owned(), "default".to_owned());
        Cluster { client, server, namespace, data_flag: String::new() }
    }

    /// A server that has one Job, and has nothing to say of it later.
    fn server_of(conditions: Value) -> Cluster {
        let service = tower::service_fn(move |request: Request<Body>| {
            let answer = job(conditions.clone());
            async move {
                if !request.uri().path().ends_with("/jobs/a") {
                    std::future::pending::<()>().await;
                }
                Ok::<_, Infallible>(Response::new(Full::from(answer.to_string()).boxed()))
            }
        });
        cluster(Client::new(service, "default"))
    }

    #[tokio::test(start_paused = true)]
    async fn without_any_time_jobs_are_looked_at_once() {
        let jobs = [JobName("a".to_owned())];
        let complete = server_of(json!([{"type": "Complete", "status": "True"}]));
        assert!(wait_for_all(&complete, &jobs, Some(Duration::ZERO)).await.is_ok());
        let late = wait_for_all(&server_of(json!([])), &jobs, Some(Duration::ZERO)).await.unwrap_err();
        assert_eq!((late.exit, &*late.error.to_string()), (Exit::TimedOut, "job/a has not finished within 0.0s"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_says_nothing_is_not_a_job_that_does_not_finish() {
        let silent = tower::service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, Infallible>>());
        let silent = cluster(crate::patience::limited(Client::new(silent, "default"), "https://example.com"));
        let jobs = [JobName("a".to_owned())];
        for (patience, exit, text) in [
            (Some(3), Exit::TimedOut, "https://example.com has not answered within 3.0s"),
            (Some(0), Exit::Failed, "https://example.com has not answered within 30 s"),
            (None, Exit::Failed, "https://example.com has not answered within 30 s"),
        ] {
            let failure = wait_for_all(&silent, &jobs, patience.map(Duration::from_secs)).await.unwrap_err();
            assert_eq!((failure.exit, &*failure.error.to_string()), (exit, text));
        }
    }

    /// Nobody says that the connection of the first watch is dead. The Job ends meanwhile.
    #[tokio::test(start_paused = true)]
    async fn a_watch_that_falls_silent_is_begun_again() {
        static LISTS: AtomicUsize = AtomicUsize::new(0);
        let service = tower::service_fn(|request: Request<Body>| async move {
            let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
            let answer = match path.ends_with("/jobs/a") {
                true => job(json!([])),
                false if query.contains("watch=true") => return std::future::pending().await,
                false => {
                    let is_first = LISTS.fetch_add(1, Ordering::Relaxed) == 0;
                    let ended = json!([{"type": "Complete", "status": "True"}]);
                    let conditions = if is_first { json!([]) } else { ended };
                    json!({"metadata": {"resourceVersion": "1"}, "items": [job(conditions)]})
                }
            };
            Ok::<_, Infallible>(Response::new(Full::from(answer.to_string()).boxed()))
        });
        let cluster = cluster(Client::new(service, "default"));
        let started = Instant::now();
        let looked = look(&cluster, "a").await.unwrap();
        let Ok((name, outcome)) = wait_for(&cluster, looked).await else { panic!("it is there and ends") };
        assert_eq!((&*name, outcome), ("a", Outcome::Complete));
        assert_eq!(started.elapsed().as_secs(), ASK_AGAIN.as_secs());
    }

    #[test]
    fn jobs_that_failed_have_finished() {
        let jobs: Vec<JobName> = ["a", "b", "c"].map(|name| JobName(name.to_owned())).into();
        assert_eq!(late(&jobs[..1], 0, 0, "1s"), "job/a has not finished within 1s");
        assert_eq!(late(&jobs, 0, 0, "1s"), "3 Jobs have not finished within 1s");
        assert_eq!(late(&jobs, 1, 0, "1s"), "2 of 3 Jobs have not finished within 1s");
        assert_eq!(late(&jobs, 2, 1, "1s"), "1 of 3 Jobs have not finished within 1s; 1 Job failed");
    }
}
