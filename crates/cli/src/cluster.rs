//! Which server the client commands talk to, and as whom.
//!
//! The first that applies: `--kubeconfig`, `$KUBECONFIG`, the tally that runs on the data directory, and what kubectl
//! would use (`~/.kube/config`, or the service account inside a pod).

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::{Context as _, anyhow};
use clap::Args;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

use crate::environment::Environment;
use crate::failure::{Exit, Failure};
use crate::{data_dir, instance};

/// Flags that every client command has; the names are kubectl's.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct ClusterFlags {
    /// The cluster and the credentials [default: `$KUBECONFIG`, else the tally that runs on the data directory, else
    /// as kubectl finds them].
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig [default: its current one].
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// The namespace [default: the context's].
    #[arg(short, long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// The data directory of the tally to talk to [default: tally/ in the user's data directory].
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
}

/// A server to talk to.
#[derive(Clone)]
pub(crate) struct Cluster {
    pub(crate) client: Client,
    /// Where it is, for people.
    pub(crate) server: String,
    /// The namespace that is meant when none is said.
    pub(crate) namespace: String,
    /// ` --data DIR`, for commands about the same tally, if it was named so.
    pub(crate) data_flag: String,
}

impl ClusterFlags {
    /// A client for the chosen server. Nothing is sent yet.
    pub(crate) async fn connect(&self, environment: &Environment) -> Result<Cluster, Failure> {
        let own = self.own_kubeconfig(environment)?;
        let config = read_config(self.kubeconfig.as_deref().or(own.as_deref()), self.context.as_deref()).await?;
        let namespace = self.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let (client, server) = client_of(config)?;
        let data_flag = match (&self.kubeconfig, &self.data) {
            (None, Some(data)) => data_dir::flag(data, environment),
            _ => String::new(),
        };
        Ok(Cluster { client, server, namespace, data_flag })
    }

    /// The kubeconfig of the tally on the data directory, if it is the one that is meant.
    fn own_kubeconfig(&self, environment: &Environment) -> Result<Option<PathBuf>, Failure> {
        if self.kubeconfig.is_some() {
            return Ok(None);
        }
        // Whoever names a data directory means it, whatever the shell has exported, and nobody else's cluster.
        if let Some(data) = &self.data {
            let instance = instance::running(data)?.ok_or_else(|| not_running(data, environment))?;
            return Ok(Some(instance.kubeconfig));
        }
        let data = environment.data_dir().filter(|_| environment.kubeconfig.is_empty());
        Ok(data.and_then(|data| instance::running(&data).ok().flatten()).map(|instance| instance.kubeconfig))
    }
}

/// What is said where a tally should run and does not.
pub(crate) fn not_running(data: &Path, environment: &Environment) -> Failure {
    Failure::new(anyhow!("no tally runs on `{}`", data.display()))
        .exit(Exit::NotRunning)
        .hint(format!("start one with `tally up -d{}`", data_dir::flag(data, environment)))
}

/// A client for one kubeconfig, or for the cluster that kubectl would use.
pub(crate) async fn connect(kubeconfig: Option<&Path>) -> Result<(Client, String), Failure> {
    client_of(read_config(kubeconfig, None).await?)
}

async fn read_config(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Config, Failure> {
    let hint = "say which cluster with `--kubeconfig FILE`, or start one with `tally up -d`";
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    match kubeconfig {
        None if context.is_none() => Config::infer().await.map_err(|error| Failure::new(not_found(&error)).hint(hint)),
        None => Config::from_kubeconfig(&options).await.map_err(|error| Failure::new(not_found(&error)).hint(hint)),
        Some(path) => {
            let named = || format!("read the kubeconfig `{}`", path.display());
            // The library does not say that a file is missing, and panics on some that are no text.
            let text = fs::read_to_string(path).map_err(|error| match error.kind() {
                io::ErrorKind::InvalidData => anyhow!("it is not text"),
                _ => anyhow!(error),
            });
            text.with_context(named).map_err(|error| Failure::new(error).hint(hint))?;
            let read = async {
                let file = Kubeconfig::read_from(path)?;
                Config::from_custom_kubeconfig(file, &options).await
            };
            read.await.map_err(|error| {
                Failure::new(anyhow!("{}", first_line(&error.to_string())).context(named())).hint(VIEW)
            })
        }
    }
}

/// What to do about a kubeconfig that cannot be used.
const VIEW: &str = "`kubectl config view` shows what is in it";

/// A parser's message without its picture of the text.
fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// Why there is no cluster, without the list of all places where there could have been one.
fn not_found(error: &(dyn std::error::Error + 'static)) -> anyhow::Error {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    let why = match causes.find_map(|cause| cause.downcast_ref::<KubeconfigError>()) {
        Some(KubeconfigError::ReadConfig(error, path)) => anyhow!("{}: {error}", path.display()),
        Some(other) => anyhow!("{other}"),
        None => anyhow!("{error}"),
    };
    why.context("find a cluster")
}

fn client_of(mut config: Config) -> Result<(Client, String), Failure> {
    let server = config.cluster_url.to_string();
    if is_loopback(&config) {
        // A proxy of the machine is for others.
        config.proxy_url = None;
    }
    // A log that is followed may be silent for as long as it likes.
    config.read_timeout = None;
    let client = Client::try_from(config).with_context(|| format!("prepare a client for `{server}`"));
    let client = client.map_err(|error| Failure::new(error).hint(VIEW))?;
    Ok((client, server.trim_end_matches('/').to_owned()))
}

fn is_loopback(config: &Config) -> bool {
    let host = config.cluster_url.host().unwrap_or("").trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another cluster in its place would be a surprise.
    #[test]
    fn a_data_directory_that_is_named_must_have_a_tally() {
        let dir = tempfile::tempdir().unwrap();
        let flags = ClusterFlags { data: Some(dir.path().to_owned()), ..ClusterFlags::default() };
        fs::write(dir.path().join("kubeconfig"), "").unwrap();
        let failure = flags.own_kubeconfig(&Environment::default()).unwrap_err();
        assert_eq!(failure.exit, Exit::NotRunning, "the file alone does not say that one runs");
        let both = ClusterFlags { kubeconfig: Some("/k".into()), ..flags };
        assert_eq!(both.own_kubeconfig(&Environment::default()).unwrap(), None);
    }

    #[test]
    fn the_tally_that_runs_is_found_unless_something_else_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("tally");
        fs::create_dir(&data).unwrap();
        let mine = data.join("kubeconfig");
        let environment = Environment { data_home: Some(dir.path().to_owned()), ..Environment::default() };
        let found = |environment: &Environment| ClusterFlags::default().own_kubeconfig(environment).unwrap();
        assert_eq!(found(&environment), None);
        let _held = instance::Instance::here("127.0.0.1:1".parse().unwrap(), &mine).write(&data).unwrap();
        assert_eq!(found(&environment), Some(mine.clone()));
        let other = Environment { kubeconfig: vec!["/other".into()], ..environment };
        assert_eq!(found(&other), None);
        let named = ClusterFlags { data: Some(data), ..ClusterFlags::default() };
        assert_eq!(named.own_kubeconfig(&other).unwrap(), Some(mine));
    }
}
