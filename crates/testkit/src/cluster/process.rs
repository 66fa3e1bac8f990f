//! The controllers as a process: it begins with empty memory, and ends as a power cut would end it.

use std::{
    fs,
    process::{Child, Command, Stdio},
    sync::Arc,
};

use anyhow::{Context as _, Result, bail};
use kube::Client;
use serde_json::json;
use tempfile::TempDir;
use tokio::{
    net::TcpListener,
    sync::Mutex,
    task::{AbortHandle, spawn},
};

use super::proxy;

const KUBECONFIG: &str = "{kubeconfig}";

/// Dropping it is kill -9.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    proxy: AbortHandle,
    /// Its kubeconfig, and what it wrote to stderr.
    folder: TempDir,
}

impl Process {
    /// Starts a program whose way to the server is `client`. Must be called on a runtime.
    pub(super) fn start(command: &[String], client: Client, turn: Arc<Mutex<()>>) -> Result<Self> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").context("find a free port")?;
        let address = listener.local_addr().context("find a free port")?;
        listener.set_nonblocking(true).context("share the port")?;
        let listener = TcpListener::from_std(listener).context("share the port")?;

        let folder = tempfile::tempdir().context("make a folder for the controllers")?;
        let kubeconfig = folder.path().join("kubeconfig");
        let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "proxy",
            "clusters": [{"name": "proxy", "cluster": {"server": format!("http://{address}")}}],
            "users": [{"name": "nobody", "user": {}}],
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "nobody"}}]});
        fs::write(&kubeconfig, config.to_string()).context("write the kubeconfig")?;
        let stderr = fs::File::create(folder.path().join("stderr")).context("make a file for stderr")?;

        let [program, arguments @ ..] = command else { bail!("no controllers are named") };
        let kubeconfig = kubeconfig.to_str().context("the folder's path is not text")?;
        let child = Command::new(program)
            .args(arguments.iter().map(|argument| argument.replace(KUBECONFIG, kubeconfig)))
            .env_remove("KUBECONFIG")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .with_context(|| format!("start `{program}`"))?;
        Ok(Self { child, proxy: spawn(proxy::serve(listener, client, turn)).abort_handle(), folder })
    }

    /// What is wrong with it: that it ended by itself, or panicked.
    pub(crate) fn complaint(&mut self) -> Option<String> {
        let log = fs::read_to_string(self.folder.path().join("stderr")).unwrap_or_default();
        let ended = self.child.try_wait().ok().flatten();
        (ended.is_some() || log.contains("panicked at"))
            .then(|| format!("the controllers ended ({ended:?}) or panicked:\n{log}"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if the process has been waited for already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.proxy.abort();
    }
}
