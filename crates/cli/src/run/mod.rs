//! `tally run`: a control plane for as long as some Jobs take.
//!
//! `manifest` and `command_job` say what to run, `apply` brings it into the server, `progress` knows how far it is,
//! `screen` and `report` tell people; here is the order in which things happen.

mod apply;
mod command_job;
mod home;
mod manifest;
pub(crate) mod progress;
mod report;
pub(crate) mod screen;
pub(crate) mod watch;
mod writer;

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ::history::Bounds;
use anyhow::{Context as _, anyhow};
use batch_plan::job::Manager;
use batch_types::gates::Gates;
use clap::{Args, ValueEnum};
use controllers::job;
use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::batch::v1::Job;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::runtime;
use tokio::signal::unix::SignalKind;
use tokio::time::timeout;

use self::apply::Checked;
use self::command_job::CommandFlags;
use self::home::Home;
use self::manifest::{Document, instantiate};
use self::progress::Progress;
use self::report::JobReport;
use self::screen::{Manner, Screen};
use self::watch::{Interruption, STALL_MAX, Scope, Watching};
use crate::control_plane::{ControlPlane, RUNTIME_END, Setup, raise_file_limit};
use crate::environment::Environment;
use crate::failure::{Exit, Failure};
use crate::job_view::JobView;
use crate::kubeconfig::shell_word;
use crate::log_stream::Wanted;
use crate::node_flags::NodeFlags;
use crate::nodes::halt;
use crate::output::{self, say, tell};
use crate::parts::{Controller, Parts};
use crate::running::JobFlags;
use crate::server::Server;
use crate::shutdown::Signals;
use crate::text::counted;

/// A pod that has ended is replaced no sooner than this. Upstream's second spares an API server on a network; here it
/// would only leave the machine idle.
const BATCH_PERIOD: Duration = Duration::from_millis(100);

/// Suspending Jobs, at most so many at a time.
const CALLS_MAX: usize = 16;

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// Manifests to run: files, directories, or `-` for standard input.
    #[arg(value_name = "FILE|DIR|-", required_unless_present = "command")]
    manifests: Vec<PathBuf>,
    /// A command to run in place of manifests.
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "manifests")]
    command: Vec<String>,
    /// Which logs to show.
    #[arg(long, value_name = "WHICH", default_value = "all")]
    logs: Wanted,
    /// No progress, only logs and errors.
    #[arg(short, long)]
    quiet: bool,
    /// How to show the run; `yaml` is for `--dry-run`.
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: RunFormat,
    /// Only print what would be created.
    #[arg(long, value_name = "WHERE")]
    dry_run: Option<DryRun>,
    /// The namespace of objects that name none.
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Keep everything here, to look at with `tally up` [default: nothing is kept].
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Switch feature gates, for example `JobManagedBy=false`.
    #[arg(long, value_name = "NAME=BOOL,…", default_value = "", hide_default_value = true)]
    feature_gates: Gates,
    // Last: a heading of theirs would be above all that follows.
    #[command(flatten)]
    job_of_command: CommandFlags,
    #[command(flatten)]
    node: NodeFlags,
    #[command(flatten)]
    job: JobFlags,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RunFormat {
    Text,
    Json,
    Yaml,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DryRun {
    /// Without asking a server.
    Client,
    /// Checked by the server that would run it.
    Server,
}

pub(crate) fn run(options: &Run, environment: &Environment) -> Result<(), Failure> {
    let documents = options.documents()?;
    if options.dry_run == Some(DryRun::Client) {
        return print(&documents, options.output);
    }
    if options.output == RunFormat::Yaml && options.dry_run.is_none() {
        return Err(Failure::usage(anyhow!("`-o yaml` prints objects, and a run has none to print"))
            .hint("add `--dry-run=client`, or say `-o json`"));
    }
    raise_file_limit();
    let runtime = runtime::Builder::new_multi_thread().enable_all().build().context("start the async runtime")?;
    let done = runtime.block_on(execute(options, documents, environment));
    runtime.shutdown_timeout(RUNTIME_END);
    done
}

impl Run {
    /// What people should know before it begins.
    fn notes(&self, jobs: &[JobView], idle: &[String]) -> Vec<String> {
        let idle = idle.iter().map(|name| {
            format!("note: job/{name} has `parallelism: 0`: it starts no pods, and waits until somebody raises it")
        });
        let suspended = jobs.iter().filter(|job| job.is_suspended);
        let suspended =
            suspended.map(|job| format!("note: job/{} is suspended: it waits until somebody resumes it", job.name));
        let once = jobs.iter().filter(|job| job.is_manual);
        let once =
            once.map(|job| format!("note: cronjob/{} is run once, now; `tally up` keeps to its schedule", job.name));
        once.chain(suspended).chain(idle).collect()
    }

    /// What to run: Jobs and what they need, from manifests or from the command line.
    fn documents(&self) -> Result<Vec<Document>, Failure> {
        if !self.command.is_empty() {
            let directory = std::env::current_dir().context("find the working directory")?;
            return Ok(vec![self.job_of_command.job(&self.command, &directory)?]);
        }
        if !self.job_of_command.is_empty() {
            let error = anyhow!("`--completions` and the like describe the Job of a command, and there is no command");
            return Err(Failure::usage(error).hint("change the manifest, or say `tally run -- COMMAND`"));
        }
        let documents = manifest::read(&self.manifests, io::stdin().lock())?;
        let documents: Vec<Document> = documents
            .into_iter()
            .map(|document| if document.is("batch/v1", "CronJob") { instantiate(&document) } else { document })
            .collect();
        if !documents.iter().any(|document| document.is("batch/v1", "Job")) {
            let places: Vec<String> = self.manifests.iter().map(|path| path.display().to_string()).collect();
            return Err(Failure::usage(anyhow!("there is no Job in {}", places.join(", ")))
                .hint("`tally run` runs objects of kind Job or CronJob in `batch/v1`"));
        }
        Ok(documents)
    }

    fn setup(&self) -> Setup {
        let gates = self.feature_gates;
        let job = self.job.with_batch_period(BATCH_PERIOD).options(gates, Manager::BuiltIn);
        let job = job::Options { calls_at_once: job::Options::CALLS_IN_PROCESS, ..job };
        // A command is meant to run as it would in this shell; a manifest is meant to run anywhere.
        let environment = if self.command.is_empty() { Environment::for_pods() } else { Environment::everything() };
        // A Job with a short time to live would take its logs along before they are shown; everything goes soon anyway.
        let controllers = Controller::ALL.into_iter().filter(|controller| *controller != Controller::Ttl).collect();
        let parts = Parts { controllers, node: self.node.clone() };
        // What is thrown away needs no history.
        let history = self.data.as_ref().map(|_| Bounds::default());
        Setup { parts, job, root_ca: None, environment, history }
    }

    fn manner(&self, environment: &Environment) -> Manner {
        Manner {
            is_json: self.output == RunFormat::Json,
            is_quiet: self.quiet,
            no_color: environment.no_color,
            no_bars: environment.is_dumb,
        }
    }
}

fn print(documents: &[Document], format: RunFormat) -> Result<(), Failure> {
    let mut text = String::new();
    for Document { object, .. } in documents {
        match format {
            RunFormat::Json => text += &(serde_json::to_string_pretty(object).context("write JSON")? + "\n"),
            RunFormat::Yaml | RunFormat::Text => {
                text += if text.is_empty() { "" } else { "---\n" };
                text += &serde_saphyr::to_string(object).context("write YAML")?;
            }
        }
    }
    say(&text)
}

async fn execute(options: &Run, documents: Vec<Document>, environment: &Environment) -> Result<(), Failure> {
    // Before anything is started, so that a signal always ends in order.
    let signals = Signals::listen().context("listen for signals")?;
    let home = Home::choose(options.data.as_deref())?;
    let server = Server::private(home.place(), options.feature_gates).await?;
    let client = server.client();
    let checked = apply::check(&client, documents, options.namespace.as_deref()).await?;
    if options.dry_run == Some(DryRun::Server) {
        return print(checked.answers(), options.output);
    }
    let mut control_plane = ControlPlane::start(&server, home.path(), options.setup()).await?;
    let mut pods_ended = false;
    let ended = tokio::select! {
        failure = control_plane.died() => Err(failure),
        ran = follow(options, &server, checked, signals, &home, environment) => {
            pods_ended = ran.pods_ended;
            if ran.is_broken {
                // Parts that cannot write any more would only try again and again.
                ran.outcome
            } else {
                let ended = control_plane.stop().await;
                server.stop();
                ran.outcome.and(ended)
            }
        }
    };
    if !pods_ended {
        // Those that did not end in time, or that nobody looks after any more, do not outlive the run.
        drop(halt(home.path()));
    }
    ended
}

/// How a run went.
struct Ran {
    outcome: Result<(), Failure>,
    /// Nothing of it runs any more.
    pods_ended: bool,
    /// The server keeps nothing any more, so that nothing can be ended in order.
    is_broken: bool,
}

/// Creates the Jobs, shows what happens to them, and says how they ended.
async fn follow(
    options: &Run,
    server: &Server,
    checked: Checked,
    signals: Signals,
    home: &Home,
    environment: &Environment,
) -> Ran {
    let begin = Instant::now();
    let client = &server.client();
    let jobs = match checked.create(client).await {
        Ok(jobs) => jobs,
        // Some may have been created, and run.
        Err(failure) => return Ran { outcome: Err(failure), pods_ended: false, is_broken: false },
    };
    let views: Vec<JobView> = jobs.iter().map(JobView::of).collect();
    let mut screen = Screen::new(options.manner(environment), views.len());
    options.notes(&views, &idle(&jobs)).iter().for_each(|note| screen.note(note));
    let mut watching = Watching::new(client.clone(), Progress::new(views, begin), options.logs, Scope::Server);
    let before_exit = clean_up(home);
    let mut interrupted = Box::pin(signals.first_then(before_exit));
    let mut interruption = tokio::select! {
        shown = watching.run(&mut screen) => shown.err(),
        signal = &mut interrupted => Some(Interruption::Signal(signal)),
        why = server.store_fails() => Some(Interruption::Store(why)),
    };
    if matches!(interruption, Some(Interruption::Store(_))) && watching.progress().has_finished() {
        // Nothing is left to be kept, only to be shown.
        interruption = tokio::select! {
            shown = watching.run(&mut screen) => shown.err(),
            signal = &mut interrupted => Some(Interruption::Signal(signal)),
        };
    }
    let Some(interruption) = interruption else {
        let outcome = conclude(client, &mut screen, &watching, home, interrupted).await;
        return Ran { outcome, pods_ended: true, is_broken: false };
    };
    let interruption = match interruption {
        broken @ Interruption::Store(_) => broken,
        other => wind_down(server, &mut screen, &mut watching, &jobs, other).await,
    };
    screen.clear();
    if screen.is_json() {
        let (_, summary) = summarize(client, &watching).await;
        // Whoever is gone does not read this either.
        let _ = screen.summary(summary);
    }
    if timeout(STALL_MAX, screen.drain()).await.is_err() {
        screen.note("note: not all output was written: nobody reads it");
    }
    tell_lost(&screen, watching.lost_log_bytes());
    if !screen.is_json() {
        unlogged_failures(watching.progress(), Instant::now()).iter().for_each(|line| tell(line));
    }
    let is_broken = matches!(interruption, Interruption::Store(_));
    // Counted now: some Jobs end before they can be stopped.
    let (unfinished, is_at_rest) = (watching.progress().unfinished(), watching.progress().is_at_rest());
    let outcome = Err(stopped(interruption, unfinished, is_at_rest, home));
    Ran { outcome, pods_ended: is_at_rest && !is_broken, is_broken }
}

/// Ends what has not ended, and says why it had to: the store may fail only now.
async fn wind_down(
    server: &Server,
    screen: &mut Screen,
    watching: &mut Watching,
    jobs: &[Job],
    interruption: Interruption,
) -> Interruption {
    let unfinished = watching.progress().unfinished();
    if unfinished > 0 {
        screen.note(&format!("stopping {}; Ctrl-C again stops at once", counted(unfinished, "Job")));
    }
    tokio::select! {
        () = async {
            suspend(&server.client(), watching.progress()).await;
            watching.wind_down(screen, grace_of(jobs)).await;
        } => interruption,
        why = server.store_fails() => Interruption::Store(why),
    }
}

/// Jobs that are told to run no pods.
fn idle(jobs: &[Job]) -> Vec<String> {
    let is_idle = |job: &&Job| job.spec.as_ref().is_some_and(|spec| spec.parallelism == Some(0));
    jobs.iter().filter(is_idle).map(|job| job.name_any()).collect()
}

/// Why pods of Jobs failed that did not get to their end, as far as no log says so.
fn unlogged_failures(progress: &Progress, now: Instant) -> Vec<String> {
    let jobs = progress.jobs().iter().filter(|job| job.view.outcome.is_none() && !job.failures().is_empty());
    jobs.flat_map(|job| {
        let failures = job.failures().iter().map(|failure| format!("  {}, pod {}", failure.why, failure.pod));
        std::iter::once(job.ending(now)).chain(failures).collect::<Vec<_>>()
    })
    .collect()
}

/// The longest time that a pod of these Jobs may take to end.
fn grace_of(jobs: &[Job]) -> Duration {
    let seconds = |job: &Job| {
        let pod = job.spec.as_ref()?.template.spec.as_ref()?;
        u64::try_from(pod.termination_grace_period_seconds.unwrap_or(30)).ok()
    };
    Duration::from_secs(jobs.iter().filter_map(seconds).max().unwrap_or(30))
}

/// What a second signal does before the process ends.
fn clean_up(home: &Home) -> impl FnOnce() + Send + 'static {
    let path = home.path().to_owned();
    let is_temporary = home.is_temporary();
    move || {
        let _halted = halt(&path);
        if is_temporary {
            home::remove(&path);
        }
    }
}

/// Ends the pods of unfinished Jobs and lets no new ones be made.
async fn suspend(client: &Client, progress: &Progress) {
    let unfinished = progress.jobs().iter().filter(|job| job.view.outcome.is_none());
    let calls = unfinished.map(async |job| {
        let jobs: Api<Job> = Api::namespaced(client.clone(), &job.view.namespace);
        let patch = Patch::Merge(json!({"spec": {"suspend": true}}));
        if let Err(error) = jobs.patch(&job.view.name, &PatchParams::default(), &patch).await {
            tracing::warn!(%error, job = job.view.name, "suspend a Job");
        }
    });
    stream::iter(calls).buffer_unordered(CALLS_MAX).collect::<()>().await;
}

/// Why the run ended early, and what is left of it. `is_at_rest`: all Jobs were seen to be suspended or finished.
fn stopped(interruption: Interruption, unfinished: usize, is_at_rest: bool, home: &Home) -> Failure {
    let (what, exit) = match interruption {
        Interruption::Signal(signal) if signal == SignalKind::interrupt() => ("interrupted", Exit::Interrupted),
        Interruption::Signal(signal) if signal == SignalKind::hangup() => ("the terminal is gone", Exit::HungUp),
        Interruption::Signal(_) => ("terminated", Exit::Terminated),
        Interruption::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            ("nobody reads the output any more", Exit::BrokenPipe)
        }
        Interruption::Output(error) => {
            return output::failure(error);
        }
        Interruption::Store(why) => {
            let place = shell_word(home.path());
            return Failure::new(anyhow!(why))
                .hint(format!("make room on the disk of {place}, or take another directory with `--data`"));
        }
        Interruption::Away(why) => return Failure::new(anyhow!(why).context("the server does not answer")),
    };
    if unfinished == 0 {
        return Failure::new(anyhow!("{what}: all Jobs have finished, their output was not read to its end"))
            .exit(exit)
            .hint("let the reader take all of it, or write to a file");
    }
    Failure::new(anyhow!("{what}: {} did not finish", counted(unfinished, "Job"))).exit(exit).hint(match home {
        Home::Temporary(_) if !is_at_rest => {
            "their pods did not end in time; run the same command to begin again".to_owned()
        }
        Home::Kept(data) if !is_at_rest => format!(
            "their pods did not end in time, and some Jobs may not be suspended: `tally up --data {}` goes on \
                 with those that are not, another `--data` directory begins again",
            shell_word(data)
        ),
        Home::Temporary(_) => "their pods have ended; run the same command to begin again".to_owned(),
        // The Jobs are there, and cannot be created a second time.
        Home::Kept(data) => format!(
            "their pods have ended and the Jobs are suspended: `tally up --data {}` lets you resume them, another \
                 `--data` directory begins again",
            shell_word(data)
        ),
    })
}

/// Why Jobs failed, and everything about the run for programs.
async fn summarize(client: &Client, watching: &Watching) -> (Vec<JobReport>, Value) {
    let (now, progress) = (Instant::now(), watching.progress());
    let failed: Vec<_> = progress.failed().collect();
    let reports = report::gather(client, &failed).await;
    let jobs: Vec<_> = progress.jobs().iter().map(|job| job.json(now)).collect();
    let failures: Vec<_> = reports.iter().map(JobReport::json).collect();
    let has_succeeded = failed.is_empty() && progress.has_finished();
    let missing = watching.lost_log_bytes();
    let summary = json!({"succeeded": has_succeeded, "jobs": jobs, "failures": failures, "missingLogBytes": missing});
    (reports, summary)
}

/// Whoever relies on the logs must know that they have gaps, also if nothing else is told.
fn tell_lost(screen: &Screen, bytes: u64) {
    if bytes > 0 && !screen.is_json() {
        tell(&format!(
            "note: {bytes} bytes of logs are missing: they were written faster than they were read; the lines that begin \
             with `[tally:` say where"
        ));
    }
}

async fn conclude(
    client: &Client,
    screen: &mut Screen,
    watching: &Watching,
    home: &Home,
    interrupted: impl Future<Output = SignalKind>,
) -> Result<(), Failure> {
    let (reports, summary) = summarize(client, watching).await;
    screen.clear();
    // The Jobs have ended as they have, whether or not somebody reads this.
    let _ = screen.summary(summary);
    tokio::select! {
        _ = screen.drain() => {}
        _ = interrupted => {}
    }
    tell_lost(screen, watching.lost_log_bytes());
    let (failed, total) = (watching.progress().failed().count(), watching.progress().jobs().len());
    if failed == 0 {
        return Ok(());
    }
    if !screen.is_json() {
        reports.iter().for_each(|report| tell(report.text().trim_end()));
        tell("");
    }
    let what = match (failed, total) {
        (1, 1) => "the Job failed".to_owned(),
        (failed, total) => format!("{failed} of {total} Jobs failed"),
    };
    Err(Failure::new(anyhow!(what)).hint(match home {
        Home::Temporary(_) => "`--data DIR` keeps everything, for `tally up --data DIR` to look into".to_owned(),
        Home::Kept(data) => format!("`tally up -d --data {}` lets you look into it", shell_word(data)),
    }))
}
