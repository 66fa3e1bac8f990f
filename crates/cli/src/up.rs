//! `tally up`: the whole control plane of one machine, in the foreground or (`detach`) in the background.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;

use ::history::Bounds;
use anyhow::Context as _;
use batch_plan::job::Manager;
use batch_types::gates::Gates;
use clap::Args;
use controllers::job;
use tokio::runtime;

use crate::control_plane::{ControlPlane, RUNTIME_END, Setup, raise_file_limit};
use crate::detach;
use crate::environment::Environment;
use crate::failure::Failure;
use crate::history::HistoryFlags;
use crate::instance::Instance;
use crate::kubeconfig;
use crate::node_flags::NodeFlags;
use crate::parts::{Controllers, Parts};
use crate::running::JobFlags;
use crate::server::{Door, KUBERNETES_VERSION, Server};
use crate::shutdown::Signals;
use crate::version::VERSION;
use crate::{data_dir, merge};

#[derive(Debug, Args)]
pub(crate) struct Up {
    /// Where everything is kept [default: tally/ in the user's data directory].
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Address to listen on; port 0 takes any free port.
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:6443")]
    pub(crate) listen: SocketAddr,
    /// Where to write the kubeconfig for clients [default: DATA/kubeconfig].
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig_out: Option<PathBuf>,
    /// Also add the context `tally` to your own kubeconfig: the first file of `$KUBECONFIG`, else `~/.kube/config`.
    #[arg(long)]
    pub(crate) merge_kubeconfig: bool,
    /// Controllers to run: names separated by commas, `*` for all, `-name` to leave one out, `none`. Names: job, ttl,
    /// cronjob, gc, podgc, namespace, scheduler.
    #[arg(long, value_name = "LIST", default_value = "*", allow_hyphen_values = true)]
    pub(crate) controllers: Controllers,
    /// Switch feature gates, for example `JobManagedBy=false`. Names: JobManagedBy, JobPodReplacementPolicy,
    /// TTLAfterFinished.
    #[arg(long, value_name = "NAME=BOOL,…", default_value = "", hide_default_value = true)]
    pub(crate) feature_gates: Gates,
    /// Go on in the background when everything is ready; logs go to DATA/tally.log. `tally down` ends it.
    #[arg(short, long)]
    pub(crate) detach: bool,
    /// Set by `--detach` for the process that it starts.
    #[arg(long, hide = true)]
    pub(crate) in_background: bool,
    #[command(flatten)]
    pub(crate) node: NodeFlags,
    #[command(flatten)]
    pub(crate) history: HistoryFlags,
    #[command(flatten)]
    pub(crate) job: JobFlags,
}

/// What `up` was asked to do, with nothing left to decide.
#[derive(Debug)]
struct Settings {
    data: PathBuf,
    listen: SocketAddr,
    kubeconfig: PathBuf,
    /// Another kubeconfig that learns of this server.
    merge_into: Option<PathBuf>,
    in_background: bool,
    gates: Gates,
    parts: Parts,
    job: job::Options,
    history: Option<Bounds>,
}

pub(crate) fn run(options: Up, environment: &Environment) -> Result<(), Failure> {
    if options.detach && !options.in_background {
        return detach::start();
    }
    let settings = settings(options, environment)?;
    raise_file_limit();
    let runtime = runtime::Builder::new_multi_thread().enable_all().build().context("start the async runtime")?;
    let done = runtime.block_on(serve(&settings));
    runtime.shutdown_timeout(RUNTIME_END);
    done.map_err(data_dir::hint_if_full)
}

fn settings(options: Up, environment: &Environment) -> Result<Settings, Failure> {
    let data = data_dir::choose(options.data.as_deref(), environment)?;
    let kubeconfig = match options.kubeconfig_out {
        Some(path) => data_dir::absolute(&path)?,
        None => data.join("kubeconfig"),
    };
    let merge_into = options.merge_kubeconfig.then(|| merge::target(environment)).transpose()?;
    let gates = options.feature_gates;
    let job =
        job::Options { calls_at_once: job::Options::CALLS_IN_PROCESS, ..options.job.options(gates, Manager::BuiltIn) };
    let parts = Parts { controllers: options.controllers.chosen(), node: options.node };
    let (listen, in_background, history) = (options.listen, options.in_background, options.history.bounds());
    Ok(Settings { data, listen, kubeconfig, merge_into, in_background, gates, parts, job, history })
}

async fn serve(settings: &Settings) -> Result<(), Failure> {
    // Before anything is opened, so that a signal during start-up ends in order too.
    let signals = Signals::listen().context("listen for signals")?;
    data_dir::prepare(&settings.data)?;
    let (server, door) = Server::public(&settings.data, settings.listen, settings.gates).await?;
    kubeconfig::write(&settings.kubeconfig, door.address(), door.identity())?;
    if let Some(path) = &settings.merge_into {
        merge::into(path, door.address(), door.identity())?;
    }
    let _instance = Instance::here(door.address(), &settings.kubeconfig).write(&settings.data)?;
    tracing::info!(data = %settings.data.display(), parts = ?settings.parts, gates = ?settings.gates, "ready");
    // Requests wait at the door from here on. Whoever starts it in the background hears of trouble with the rest first.
    if !settings.in_background {
        announce(settings, door.address());
    }
    let mut control_plane = ControlPlane::start(&server, &settings.data, setup(settings, &door)).await?;
    if settings.in_background {
        announce(settings, door.address());
        detach::let_go(&settings.data)?;
    }
    let mut ended = Ok(());
    server
        .run(door, async {
            ended = tokio::select! {
                failure = control_plane.died() => Err(failure),
                () = signals.first() => control_plane.stop().await,
            };
        })
        .await?;
    ended
}

fn setup(settings: &Settings, door: &Door) -> Setup {
    Setup {
        parts: settings.parts.clone(),
        job: settings.job.clone(),
        root_ca: Some(door.identity().authority.clone()),
        history: settings.history,
        environment: Environment::for_pods().into_iter().chain(kubeconfig::in_cluster(door.address())).collect(),
    }
}

/// The one line on stdout. The whole of it can be pasted into a shell.
fn announce(settings: &Settings, address: SocketAddr) {
    let kubeconfig = kubeconfig::shell_word(&settings.kubeconfig);
    let url = kubeconfig::server_url(address);
    let mut stdout = std::io::stdout().lock();
    // Nobody may be reading; the server serves all the same.
    let _ = writeln!(
        stdout,
        "export KUBECONFIG={kubeconfig} # tally {VERSION} ready at {url}, behaves as Kubernetes {KUBERNETES_VERSION}"
    );
    let _ = stdout.flush();
}
