//! `tally logs`: what all pods of a Job said, index by index, line by line as they said it, or as they say it.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, anyhow};
use batch_types::constants::label;
use batch_types::index_ranges::{self, IndexSet};
use clap::Args;
use futures_util::AsyncBufReadExt as _;
use k8s_openapi::api::batch::v1::Job;
use kube::api::{ListParams, LogParams};
use kube::{Api, Client};
use tokio::runtime;

use crate::cluster::ClusterFlags;
use crate::data_dir;
use crate::environment::Environment;
use crate::failure::{Failure, plain};
use crate::history::{FromHistory, show_logs};
use crate::job_view::{JobName, JobView};
use crate::log_lines::{LogOrigin, LogPiece, Splitter};
use crate::log_merge::{Merge, Source};
use crate::log_stream::{Wanted, origin};
use crate::output::{self, tell};
use crate::pod_view::PodObject;
use crate::run::progress::Progress;
use crate::run::screen::{Manner, Screen};
use crate::run::watch::{Interruption, Scope, Watching, is_wanted};
use crate::wait::lookup_failure;

const PAGE: u32 = 500;

#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// The Job.
    #[arg(value_name = "job/NAME")]
    job: JobName,
    /// Go on as pods write, until the Job has finished.
    #[arg(short, long)]
    follow: bool,
    /// Order lines by the time they were written; otherwise one pod follows the other, by index and age.
    #[arg(long, conflicts_with = "follow")]
    interleave: bool,
    /// Only pods that failed.
    #[arg(long)]
    failed: bool,
    /// Only these indexes, for example `3` or `0,4-7`.
    #[arg(long, value_name = "INDEXES", value_parser = indexes)]
    index: Option<IndexSet>,
    /// Only the last lines of each container.
    #[arg(long, value_name = "N", conflicts_with = "follow")]
    tail: Option<u32>,
    /// What is on record of ended containers, at most 64 KiB each, also when their pods and the Job are gone.
    #[arg(long, conflicts_with_all = ["follow", "interleave"])]
    from_history: bool,
    /// Without `[job/index]` before each line.
    #[arg(long, conflicts_with = "follow")]
    no_prefix: bool,
    #[command(flatten)]
    cluster: ClusterFlags,
}

fn indexes(text: &str) -> Result<IndexSet, String> {
    match index_ranges::validate(text, i32::MAX) {
        Ok(count) if count > 0 => Ok(IndexSet::parse(text, i32::MAX)),
        _ => Err("say numbers and ranges in ascending order, as in `3` or `0,4-7`".to_owned()),
    }
}

pub(crate) fn run(options: &Logs, environment: &Environment) -> Result<(), Failure> {
    if options.from_history {
        return show_history(options, environment);
    }
    let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.context("start the async runtime")?.block_on(show(options, environment))
}

fn show_history(options: &Logs, environment: &Environment) -> Result<(), Failure> {
    let data = data_dir::choose(options.cluster.data.as_deref(), environment)?;
    show_logs(&FromHistory {
        data: &data,
        job: &options.job.0,
        namespace: options.cluster.namespace.as_deref(),
        indexes: options.index.as_ref(),
        failed: options.failed,
        tail: options.tail,
        no_prefix: options.no_prefix,
    })
}

async fn show(options: &Logs, environment: &Environment) -> Result<(), Failure> {
    let cluster = options.cluster.connect(environment).await?;
    let jobs: Api<Job> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let named = format!("job/{} in namespace `{}`", options.job.0, cluster.namespace);
    let job = jobs.get(&options.job.0).await.map_err(|error| lookup_failure(error, &named, &cluster))?;
    let view = JobView::of(&job);
    if options.index.is_some() && !view.is_indexed {
        return Err(Failure::usage(anyhow!("{named} has no indexes")).hint("leave `--index` out"));
    }
    if let Some(beyond) = options.index.as_ref().and_then(|wanted| first_beyond(wanted, &view)) {
        let what = match view.completions {
            Some(count @ 1..) => format!("it has {count}, from 0 to {}", count - 1),
            _ => "it has none".to_owned(),
        };
        return Err(
            Failure::usage(anyhow!("{named} has no index {beyond}: {what}")).hint("leave `--index` out to see all")
        );
    }
    if options.follow {
        return follow(options, cluster.client, view, environment).await;
    }
    let mut pods = pods_of(&cluster.client, &view)
        .await
        .map_err(|error| lookup_failure(error, &format!("the pods of {named}"), &cluster))?;
    pods.retain(|pod| is_wanted(pod, options.index.as_ref()) && (!options.failed || pod.has_failed()));
    let mut reader = Reader::new(options, cluster.client);
    reader.show(&pods).await.map_err(output::failure)?;
    complete(reader.incomplete)
}

/// Whoever relies on the logs must know that some of them are not complete. Which ones was told.
fn complete(incomplete: usize) -> Result<(), Failure> {
    if incomplete == 0 {
        return Ok(());
    }
    let what = if incomplete == 1 { "1 log is".to_owned() } else { format!("{incomplete} logs are") };
    Err(Failure::new(anyhow!("{what} not complete"))
        .hint("the lines in parentheses say which and why; the same command shows what is there now"))
}

/// An index that the Job will never have.
fn first_beyond(wanted: &IndexSet, job: &JobView) -> Option<u32> {
    let completions = job.completions?;
    wanted.iter().find(|index| *index >= completions)
}

async fn follow(options: &Logs, client: Client, view: JobView, environment: &Environment) -> Result<(), Failure> {
    let wanted = if options.failed { Wanted::Failed } else { Wanted::All };
    let manner = Manner { is_json: false, is_quiet: true, no_color: environment.no_color, no_bars: true };
    let mut screen = Screen::new(manner, 1);
    let mut progress = Progress::new([view.clone()], Instant::now());
    progress.job_changed(view.clone(), Instant::now());
    let scope = Scope::Job { view: Box::new(view), indexes: options.index.clone() };
    let mut watching = Watching::new(client, progress, wanted, scope);
    match watching.run(&mut screen).await {
        Err(Interruption::Output(error)) => Err(output::failure(error)),
        Err(Interruption::Away(why) | Interruption::Store(why)) => {
            let _ = screen.drain().await;
            Err(Failure::new(anyhow!(why).context("the server does not answer any more, and the Job has not finished"))
                .hint("when it is back, the same command shows everything from the beginning"))
        }
        Err(Interruption::Signal(_)) | Ok(()) => complete(watching.incomplete_logs()),
    }
}

/// The pods of a Job by index, then by age.
async fn pods_of(client: &Client, job: &JobView) -> kube::Result<Vec<PodObject>> {
    let pods: Api<PodObject> = Api::namespaced(client.clone(), &job.namespace);
    let mut page = ListParams::default().labels(&format!("{}={}", label::CONTROLLER_UID, job.uid)).limit(PAGE);
    let mut all = Vec::new();
    loop {
        let list = pods.list(&page).await?;
        all.extend(list.items);
        match list.metadata.continue_.as_deref() {
            Some(token) if !token.is_empty() => page = page.continue_token(token),
            _ => break,
        }
    }
    all.sort_by_cached_key(|pod| {
        let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (pod.index(), created, pod.name().to_owned())
    });
    Ok(all)
}

/// Reads logs that are there.
struct Reader<'a> {
    options: &'a Logs,
    client: Client,
    /// How many logs could not be read, or not to their end.
    incomplete: usize,
}

impl<'a> Reader<'a> {
    fn new(options: &'a Logs, client: Client) -> Self {
        Self { options, client, incomplete: 0 }
    }

    async fn show(&mut self, pods: &[PodObject]) -> io::Result<()> {
        let reader = &*self;
        let sources = pods.iter().flat_map(|pod| {
            pod.instances().map(move |instance| Source {
                origin: Arc::new(origin(pod, &instance)),
                parameters: reader.parameters(instance.container, instance.is_previous),
                started_at: instance.started_at.map(|time| time.0),
            })
        });
        let sources: Vec<Source> = sources.collect();
        if !self.options.interleave {
            for source in sources {
                self.show_one(source).await?;
            }
            return Ok(());
        }
        let mut merge = Merge::new(self.client.clone(), sources);
        while let Some(piece) = merge.next().await {
            self.write(&piece)?;
        }
        self.incomplete = merge.incomplete();
        Ok(())
    }

    fn parameters(&self, container: &str, previous: bool) -> LogParams {
        LogParams {
            container: Some(container.to_owned()),
            previous,
            tail_lines: self.options.tail.map(i64::from),
            timestamps: self.options.interleave,
            ..LogParams::default()
        }
    }

    async fn show_one(&mut self, source: Source) -> io::Result<()> {
        let Source { origin, parameters, .. } = source;
        let pods: Api<PodObject> = Api::namespaced(self.client.clone(), &origin.namespace);
        let mut stream = match pods.log_stream(&origin.pod, &parameters).await {
            Ok(stream) => Box::pin(stream),
            Err(error) => {
                complain(&origin, &plain(error));
                self.incomplete += 1;
                return Ok(());
            }
        };
        let mut splitter = Splitter::default();
        let mut broken = None;
        loop {
            let bytes = match stream.fill_buf().await {
                Ok(bytes) => bytes,
                Err(error) => {
                    broken = Some(error);
                    break;
                }
            };
            if bytes.is_empty() {
                break;
            }
            let (lines, count) = (splitter.push(bytes), bytes.len());
            stream.as_mut().consume_unpin(count);
            self.write(&LogPiece { origin: origin.clone(), lines })?;
        }
        self.write(&LogPiece { origin: origin.clone(), lines: splitter.finish() })?;
        if let Some(error) = broken {
            breaks_off(&origin, &error);
            self.incomplete += 1;
        }
        Ok(())
    }

    fn write(&self, piece: &LogPiece) -> io::Result<()> {
        piece.print(self.options.no_prefix)
    }
}

/// One log that cannot be read keeps nobody from the others.
pub(crate) fn complain(origin: &LogOrigin, error: &anyhow::Error) {
    tell(&format!("{} (no log: {error:#})", origin.prefix()));
}

/// Behind the lines that could be read.
pub(crate) fn breaks_off(origin: &LogOrigin, error: &io::Error) {
    tell(&format!("{} (the log breaks off here: {error})", origin.prefix()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_beyond_the_completions_is_noticed() {
        let job = |completions| JobView { completions, ..JobView::default() };
        let wanted = |text: &str| indexes(text).unwrap();
        assert_eq!(first_beyond(&wanted("0,4-7"), &job(Some(8))), None);
        assert_eq!(first_beyond(&wanted("0,4-7"), &job(Some(5))), Some(5));
        assert_eq!(first_beyond(&wanted("0-2147483646"), &job(Some(1))), Some(1));
        assert_eq!(first_beyond(&wanted("9"), &job(None)), None);
    }

    #[test]
    fn logs_that_are_not_complete_are_a_failure() {
        complete(0).unwrap();
        let failure = complete(2).unwrap_err();
        assert_eq!((failure.exit as u8, failure.error.to_string().as_str()), (1, "2 logs are not complete"));
    }

    #[test]
    fn indexes_are_numbers_and_ranges() {
        assert_eq!(indexes("0,4-7").unwrap().iter().collect::<Vec<_>>(), [0, 4, 5, 6, 7]);
        for wrong in ["", "x", "-1", "3-1", "1,1"] {
            assert!(indexes(wrong).is_err(), "{wrong}");
        }
    }
}
