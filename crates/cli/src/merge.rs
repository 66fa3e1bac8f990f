//! `tally up --merge-kubeconfig`: one more context in a kubeconfig that belongs to somebody.
//!
//! Everything else in the file stays as it is, but for comments, which kubectl does not keep either. The current context
//! is only set if there is none.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use apiserver::tls::{Identity, write_private};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Map, Value, json};

use crate::data_dir;
use crate::environment::Environment;
use crate::failure::Failure;
use crate::kubeconfig::server_url;

/// The name of the context, the cluster and the user.
const NAME: &str = "tally";

/// The file that kubectl would write to.
pub(crate) fn target(environment: &Environment) -> Result<PathBuf, Failure> {
    let home = || environment.home.as_ref().map(|home| home.join(".kube/config"));
    let path = environment.kubeconfig.first().cloned().or_else(home).ok_or_else(|| {
        Failure::usage(anyhow!("there is no kubeconfig to merge into: neither `KUBECONFIG` nor `HOME` is set"))
            .hint("set `KUBECONFIG`, or leave `--merge-kubeconfig` out")
    })?;
    data_dir::absolute(&path)
}

/// Adds or replaces the context.
pub(crate) fn into(path: &Path, address: SocketAddr, identity: &Identity) -> Result<(), Failure> {
    let failure = |error: anyhow::Error| {
        Failure::new(error.context(format!("merge into the kubeconfig `{}`", path.display())))
            .hint("correct the file, or leave `--merge-kubeconfig` out and use the kubeconfig that `tally up` writes")
    };
    merge(path, address, identity).map_err(failure)
}

fn merge(path: &Path, address: SocketAddr, identity: &Identity) -> anyhow::Result<()> {
    // A link is followed: people keep such files elsewhere, and the link must stay one.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if let Some(folder) = path.parent() {
        // As for the other kubeconfig: nobody else writes there.
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.with_context(|| format!("make `{}`", folder.display()))?;
    }
    let _lock = Lock::take(&path)?;
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        other => other.context("read it")?,
    };
    let config = if text.trim().is_empty() { json!({}) } else { serde_saphyr::from_str(&text).context("read it")? };
    let Value::Object(mut config) = config else { return Err(anyhow!("it is not a mapping")) };
    add(&mut config, address, identity)?;
    let text = serde_saphyr::to_string(&config).context("write it")?;
    write_private(&path, text.as_bytes()).context("write it")
}

fn add(config: &mut Map<String, Value>, address: SocketAddr, identity: &Identity) -> anyhow::Result<()> {
    config.entry("apiVersion").or_insert_with(|| json!("v1"));
    config.entry("kind").or_insert_with(|| json!("Config"));
    let authority = BASE64_STANDARD.encode(&identity.authority);
    let cluster = json!({ "server": server_url(address), "certificate-authority-data": authority });
    put(config, "clusters", "cluster", cluster)?;
    put(config, "users", "user", json!({ "token": identity.token.reveal() }))?;
    put(config, "contexts", "context", json!({ "cluster": NAME, "user": NAME, "namespace": "default" }))?;
    if config.get("current-context").and_then(Value::as_str).unwrap_or_default().is_empty() {
        config.insert("current-context".to_owned(), json!(NAME));
    }
    Ok(())
}

/// Sets the element of this name in a list of `{name, KEY}`.
fn put(config: &mut Map<String, Value>, list: &str, key: &str, value: Value) -> anyhow::Result<()> {
    let entry = config.entry(list).or_insert(Value::Null);
    if entry.is_null() {
        *entry = json!([]);
    }
    let items = entry.as_array_mut().ok_or_else(|| anyhow!("`{list}` is not a list"))?;
    let mut element = json!({ "name": NAME });
    element[key] = value;
    match items.iter_mut().find(|item| item["name"] == NAME) {
        Some(item) => *item = element,
        None => items.push(element),
    }
    Ok(())
}

/// The file beside a kubeconfig that says that somebody writes it; kubectl heeds and makes the same one.
struct Lock {
    path: PathBuf,
}

impl Lock {
    fn take(config: &Path) -> anyhow::Result<Self> {
        let mut name = config.as_os_str().to_owned();
        name.push(".lock");
        let path = PathBuf::from(name);
        let made = OpenOptions::new().write(true).create_new(true).open(&path);
        made.with_context(|| format!("take the lock `{}`", path.display()))?;
        Ok(Self { path })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use apiserver::tls::server_names;

    use super::*;

    const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7);

    fn identity(dir: &Path) -> Identity {
        let names = server_names(Ipv4Addr::LOCALHOST.into());
        Identity::load_or_create(dir, &names, jiff::Timestamp::now()).unwrap()
    }

    fn read(path: &Path) -> Value {
        serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap()
    }

    #[test]
    fn a_context_is_added_and_everything_else_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        let theirs = "apiVersion: v1\nkind: Config\ncurrent-context: prod\npreferences: {colors: true}\nclusters:\n\
                      - {name: prod, cluster: {server: 'https://prod', x-own: [1]}}\nusers: null\ncontexts: []\n";
        fs::write(&path, theirs).unwrap();
        let identity = identity(dir.path());
        for _ in 0..2 {
            into(&path, ADDRESS, &identity).unwrap();
        }
        let config = read(&path);
        assert_eq!(config["current-context"], "prod");
        assert_eq!(config["clusters"][0]["cluster"]["x-own"], json!([1]));
        assert_eq!(config["clusters"][1]["cluster"]["server"], "https://127.0.0.1:7");
        assert_eq!(config["users"], json!([{ "name": "tally", "user": { "token": identity.token.reveal() } }]));
        assert_eq!(config["preferences"], json!({ "colors": true }));
        assert_eq!(config["contexts"].as_array().map(Vec::len), Some(1), "twice is once");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_new_file_gets_a_current_context_and_a_link_stays_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("real"), dir.path().join("link"));
        fs::write(&real, "").unwrap();
        symlink(&real, &link).unwrap();
        into(&link, ADDRESS, &identity(dir.path())).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(read(&real)["current-context"], "tally");
        let fresh = dir.path().join("new/config");
        into(&fresh, ADDRESS, &identity(dir.path())).unwrap();
        assert_eq!(read(&fresh)["kind"], "Config");
    }

    #[test]
    fn what_cannot_be_understood_or_is_being_written_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let identity = identity(dir.path());
        for (name, text) in [("a", "- 1\n"), ("b", "clusters: 7\n"), ("c", "a: [\n")] {
            let path = dir.path().join(name);
            fs::write(&path, text).unwrap();
            into(&path, ADDRESS, &identity).unwrap_err();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        fs::write(dir.path().join("d.lock"), "").unwrap();
        into(&dir.path().join("d"), ADDRESS, &identity).unwrap_err();
        assert!(dir.path().join("d.lock").exists(), "somebody else's lock stays");
    }
}
