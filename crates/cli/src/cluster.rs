//! Which server the client commands talk to, and as whom.
//!
//! The first that applies: `--kubeconfig`, `$KUBECONFIG`, the tally that runs on the data directory, and what kubectl
//! would use (`~/.kube/config`, or the service account inside a pod).

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, fs, io};

use anyhow::{Context as _, anyhow};
use clap::Args;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

use crate::environment::Environment;
use crate::failure::{Exit, Failure, plain};
use crate::patience::{self, Silent};
use crate::text::duration_text;
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
        let kubeconfig = self.kubeconfig.as_deref().or(own.as_deref());
        let config = read_config(kubeconfig, self.context.as_deref(), environment).await?;
        let namespace = self.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let (client, server) = client_of(config)?;
        let data_flag = match (&self.kubeconfig, &self.data) {
            (None, Some(data)) => data_dir::flag(data, environment),
            _ => String::new(),
        };
        Ok(Cluster { client: patience::limited(client, &server), server, namespace, data_flag })
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

impl Cluster {
    /// Why something could not be done: what the server said, or that it could not be asked.
    pub(crate) fn failure(&self, error: kube::Error, doing: impl fmt::Display) -> Failure {
        match error {
            kube::Error::Api(status) => Failure::new(anyhow!("{}", status.message).context(doing.to_string()))
                .hint("`kubectl auth whoami` says who you are on that server"),
            other => unreachable(other, &self.server, &self.data_flag),
        }
    }

    /// Nothing was heard of the server in the time that a command was given.
    pub(crate) fn silent_for(&self, patience: Duration) -> Failure {
        Failure::new(anyhow!("{} has not answered within {}", self.server, duration_text(patience)))
            .exit(Exit::TimedOut)
            .hint(silent_hint(&self.data_flag))
    }
}

/// What is said of a server that has said nothing itself.
pub(crate) fn unreachable(error: kube::Error, server: &str, data_flag: &str) -> Failure {
    if let kube::Error::Service(error) = &error
        && let Some(silent) = error.downcast_ref::<Silent>()
    {
        return Failure::new(anyhow!("{silent}")).hint(silent_hint(data_flag));
    }
    let hint = if speaks_of_certificates(&error) {
        "the kubeconfig is for another server: the authority it names has not signed this one's certificate".to_owned()
    } else {
        format!("is the server running? `tally status{data_flag}` knows about one on this machine")
    };
    Failure::new(plain(error).context(format!("reach {server}"))).hint(hint)
}

fn silent_hint(data_flag: &str) -> String {
    format!("the server can be reached but does not work; `tally status{data_flag}` knows about one on this machine")
}

/// The library that checks certificates is known by its words only.
fn speaks_of_certificates(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    causes.any(|cause| cause.to_string().contains("invalid peer certificate"))
}

/// What is said where a tally should run and does not.
pub(crate) fn not_running(data: &Path, environment: &Environment) -> Failure {
    Failure::new(anyhow!("no tally runs on `{}`", data.display()))
        .exit(Exit::NotRunning)
        .hint(format!("start one with `tally up -d{}`", data_dir::flag(data, environment)))
}

/// A client for one kubeconfig, or for the cluster that kubectl would use. How long to wait for answers is left to the
/// caller.
pub(crate) async fn connect(kubeconfig: Option<&Path>, environment: &Environment) -> Result<(Client, String), Failure> {
    client_of(read_config(kubeconfig, None, environment).await?)
}

/// What to do where there is no cluster.
const HINT_WHICH: &str = "say which cluster with `--kubeconfig FILE`, or start one with `tally up -d`";

async fn read_config(
    kubeconfig: Option<&Path>,
    context: Option<&str>,
    environment: &Environment,
) -> Result<Config, Failure> {
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    if let Some(path) = kubeconfig {
        let file = read_file(path)?;
        let config = Config::from_custom_kubeconfig(file, &options).await;
        return config.map_err(|error| unusable(path, &error));
    }
    let not_found = |error: &(dyn std::error::Error + 'static)| Failure::new(not_found(error)).hint(HINT_WHICH);
    if let Some(merged) = read_listed(&environment.kubeconfig)? {
        return Config::from_custom_kubeconfig(merged, &options).await.map_err(|error| not_found(&error));
    }
    if let Some(home) = environment.home.as_ref().filter(|_| environment.kubeconfig.is_empty()) {
        let usual = home.join(".kube/config");
        if usual.is_file() {
            check_text(&usual)?;
        }
    }
    match context {
        None => Config::infer().await.map_err(|error| not_found(&error)),
        Some(_) => Config::from_kubeconfig(&options).await.map_err(|error| not_found(&error)),
    }
}

/// The files of `$KUBECONFIG` as one. Those that are not there are left out, as kubectl does; `None` if none is.
fn read_listed(paths: &[PathBuf]) -> Result<Option<Kubeconfig>, Failure> {
    let mut merged: Option<Kubeconfig> = None;
    for path in paths.iter().filter(|path| path.try_exists().unwrap_or(true)) {
        let next = read_file(path)?;
        merged = Some(match merged {
            None => next,
            Some(earlier) => earlier.merge(next).map_err(|error| unusable(path, &error))?,
        });
    }
    Ok(merged)
}

fn read_file(path: &Path) -> Result<Kubeconfig, Failure> {
    check_text(path)?;
    Kubeconfig::read_from(path).map_err(|error| unusable(path, &error))
}

/// The library does not say that a file is missing, and panics on some that are no text.
fn check_text(path: &Path) -> Result<(), Failure> {
    let text = fs::read_to_string(path).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => anyhow!("it is not text"),
        _ => anyhow!(error),
    });
    text.map(drop).with_context(|| reading(path)).map_err(|error| Failure::new(error).hint(HINT_WHICH))
}

fn unusable(path: &Path, error: &KubeconfigError) -> Failure {
    Failure::new(anyhow!("{}", first_line(&error.to_string())).context(reading(path))).hint(VIEW)
}

fn reading(path: &Path) -> String {
    format!("read the kubeconfig `{}`", path.display())
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
    // A log that is followed may be silent for as long as it likes; what may not is known to `patience`.
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

    fn config(name: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: {name}\n\
             clusters: [{{name: {name}, cluster: {{server: \"http://{name}\"}}}}]\n\
             users: [{{name: {name}, user: {{}}}}]\n\
             contexts: [{{name: {name}, context: {{cluster: {name}, user: {name}}}}}]\n"
        )
    }

    #[tokio::test]
    async fn files_of_a_list_may_be_missing_but_not_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("one"), config("one")).unwrap();
        fs::write(path("two"), config("two")).unwrap();
        let environment = |names: &[&str]| Environment {
            kubeconfig: names.iter().map(|name| path(name)).collect(),
            ..Environment::default()
        };
        let listed = environment(&["missing", "two", "one"]);
        assert_eq!(read_config(None, None, &listed).await.unwrap().cluster_url.host(), Some("two"));
        assert_eq!(read_config(None, Some("one"), &listed).await.unwrap().cluster_url.host(), Some("one"));
        assert!(read_listed(&environment(&["missing", "gone"]).kubeconfig).unwrap().is_none());
    }

    /// Text of two bytes a character, by its mark, that ends in the middle of one.
    #[tokio::test]
    async fn a_kubeconfig_that_is_no_text_is_refused_wherever_it_comes_from() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join(".kube/config");
        fs::create_dir(home.path().join(".kube")).unwrap();
        fs::write(&path, b"\xff\xfea\x00b").unwrap();
        let of_home = Environment { home: Some(home.path().to_owned()), ..Environment::default() };
        let listed = Environment { kubeconfig: vec![path.clone()], ..Environment::default() };
        for (named, environment) in [(None, of_home), (None, listed), (Some(&*path), Environment::default())] {
            for context in [None, Some("c")] {
                let failure = read_config(named, context, &environment).await.unwrap_err();
                assert_eq!(failure.error.to_string(), format!("read the kubeconfig `{}`", path.display()));
                assert_eq!(failure.error.root_cause().to_string(), "it is not text");
            }
        }
    }

    #[test]
    fn a_certificate_of_another_authority_does_not_mean_that_no_server_runs() {
        let of = |text: &str| unreachable(kube::Error::Service(io::Error::other(text.to_owned()).into()), "s", "");
        assert!(of("invalid peer certificate: UnknownIssuer").hint.starts_with("the kubeconfig is for another server"));
        assert!(of("connection refused").hint.starts_with("is the server running?"));
    }
}
