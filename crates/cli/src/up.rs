//! `tally up`: the whole control plane of one machine, in the foreground.

use std::fs::DirBuilder;
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{self, Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use batch_plan::job::Manager;
use batch_types::gates::Gates;
use controllers::job;
use controllers::namespace::Furnishing;
use controllers::runtime::{Metrics, Shutdown};
use rustix::fs::{Access, access};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime;

use crate::arguments::Up;
use crate::environment::Environment;
use crate::failure::Failure;
use crate::kubeconfig;
use crate::nodes::Node;
use crate::parts::{Available, NodeKind, Parts};
use crate::running::{CONTROLLERS, Choice, start};
use crate::server::{KUBERNETES_VERSION, Server};
use crate::shutdown::Signals;
use crate::version::VERSION;

/// The parts this version has.
const AVAILABLE: Available = Available { controllers: &CONTROLLERS, nodes: &[NodeKind::Process, NodeKind::Simulated] };

/// After the server has drained, stray background work gets this long before the process ends without it.
const RUNTIME_END: Duration = Duration::from_millis(200);

/// What `up` was asked to do, with nothing left to decide.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) data: PathBuf,
    pub(crate) listen: SocketAddr,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) gates: Gates,
    pub(crate) parts: Parts,
    pub(crate) job: job::Options,
}

pub(crate) fn run(options: Up, environment: &Environment) -> Result<(), Failure> {
    let settings = settings(options, environment)?;
    raise_file_limit();
    let runtime = runtime::Builder::new_multi_thread().enable_all().build().context("start the async runtime")?;
    let done = runtime.block_on(serve(&settings));
    runtime.shutdown_timeout(RUNTIME_END);
    done
}

fn settings(options: Up, environment: &Environment) -> Result<Settings, Failure> {
    let parts = AVAILABLE
        .choose(&options.controllers, options.node)
        .map_err(|missing| Failure::usage(missing).hint("leave the flag out to run all that this version has"))?;
    let data = options.data.or_else(|| environment.data_dir()).ok_or_else(|| {
        Failure::usage(anyhow!("there is no user's data directory: `HOME` is not set"))
            .hint("pass one with `--data DIR`")
    })?;
    let absolute =
        |path: &Path| path::absolute(path).with_context(|| format!("find the absolute path of `{}`", path.display()));
    let data = absolute(&data)?;
    let kubeconfig = match options.kubeconfig_out {
        Some(path) => absolute(&path)?,
        None => data.join("kubeconfig"),
    };
    let gates = options.feature_gates;
    let job =
        job::Options { calls_at_once: job::Options::CALLS_IN_PROCESS, ..options.job.options(gates, Manager::BuiltIn) };
    Ok(Settings { data, listen: options.listen, kubeconfig, gates, parts, job })
}

async fn serve(settings: &Settings) -> Result<(), Failure> {
    // Before anything is opened, so that a signal during start-up ends in order too.
    let signals = Signals::listen().context("listen for signals")?;
    prepare_data_dir(&settings.data)?;
    let server = Server::start(settings).await?;
    kubeconfig::write(&settings.kubeconfig, server.address(), server.identity())?;
    tracing::info!(data = %settings.data.display(), parts = ?settings.parts, gates = ?settings.gates, "ready");
    announce(settings, server.address());
    let mut node = Node::start(settings.parts.node, &server, &settings.data).await?;
    let shutdown = Shutdown::new();
    let controllers = start(server.client(), Metrics::new(), choice(settings, &server), shutdown.clone(), || {});
    let mut ended = Ok(());
    let mut died = false;
    // Controllers end before the server they talk to. One that dies takes the process along: the rest would go on
    // accepting Jobs that nobody runs.
    server
        .run(async {
            let mut all = pin!(controllers.ended());
            let early = tokio::select! {
                outcome = &mut all => Some(outcome),
                () = signals.first() => None,
                () = node.ended() => {
                    died = true;
                    None
                }
            };
            shutdown.cancel();
            ended = match early {
                Some(outcome) => outcome,
                None => all.await,
            };
            if !died {
                node.stop().await;
            }
        })
        .await?;
    if died {
        return Err(
            Failure::new(anyhow!("the node ended unasked")).hint("its last words are in the log: run with `-v`")
        );
    }
    ended.map_err(Failure::new)
}

fn choice(settings: &Settings, server: &Server) -> Choice {
    // Nobody else makes these on one machine.
    let root_ca = server.identity().authority.clone();
    let furnishing = Furnishing { service_account: true, root_ca: Some(root_ca) };
    Choice { controllers: settings.parts.controllers.clone(), job: settings.job.clone(), furnishing }
}

fn prepare_data_dir(data: &Path) -> Result<(), Failure> {
    let failure = |error: anyhow::Error| {
        Failure::new(error.context(format!("use the data directory `{}`", data.display())))
            .hint("pass a directory you may write to with `--data DIR`")
    };
    DirBuilder::new().recursive(true).mode(0o700).create(data).map_err(|error| failure(error.into()))?;
    access(data, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK).map_err(|error| failure(error.into()))
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

/// Each connection and each table of the store takes a file descriptor, and the usual soft limit of 1,024 is for
/// programs that use select(2).
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })
    {
        tracing::debug!(%error, "raise the limit of open files");
    }
}
