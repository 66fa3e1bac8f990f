//! Where runs take place: each in a `tally up` of its own, or one after the other in a cluster that there is.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use http::Request;
use kube::Client;
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::{Tally, client_for, cluster::Cluster};

const COLLECTIONS: [&str; 2] = ["/apis/batch/v1/namespaces/default/jobs", "/api/v1/namespaces/default/pods"];
/// How often it is looked whether everything is gone, and how long that takes.
const LOOKS: u32 = 200;
const PAUSE: Duration = Duration::from_millis(50);

pub(crate) struct Site<'a> {
    binary: &'a Path,
    kubeconfig: Option<PathBuf>,
    controllers: &'a [String],
}

/// The place of one run.
pub(crate) struct Place {
    cluster: Cluster,
    _server: Option<(Tally, TempDir)>,
}

impl Place {
    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }
}

impl<'a> Site<'a> {
    pub(crate) fn new(binary: &'a Path, kubeconfig: Option<&Path>, controllers: &'a [String]) -> Self {
        Self { binary, kubeconfig: kubeconfig.map(Path::to_owned), controllers }
    }

    /// Whether there is only one place.
    pub(crate) fn is_shared(&self) -> bool {
        self.kubeconfig.is_some()
    }

    pub(crate) async fn place(&self) -> Result<Place> {
        let (client, server) = match &self.kubeconfig {
            Some(kubeconfig) => {
                let client = client_for(kubeconfig).await?;
                clear(&client).await.context("clear the namespace `default`")?;
                (client, None)
            }
            None => {
                let data = tempfile::Builder::new().prefix("tally-").tempdir().context("make a data directory")?;
                let server = Tally::start(self.binary, data.path(), &["--node", "none", "--controllers", "none"])?;
                (server.client().await?, Some((server, data)))
            }
        };
        Ok(Place { cluster: Cluster { client, controllers: self.controllers.to_vec() }, _server: server })
    }
}

/// Deletes all Jobs and pods, whatever holds them.
async fn clear(client: &Client) -> Result<()> {
    for _ in 0..LOOKS {
        let mut left = 0;
        for collection in COLLECTIONS {
            let list: Value = client.request(Request::get(collection).body(Vec::new())?).await?;
            for item in list["items"].as_array().into_iter().flatten() {
                left += 1;
                let path = format!("{collection}/{}", item["metadata"]["name"].as_str().unwrap_or_default());
                let release = json!({"metadata": {"finalizers": null}}).to_string().into_bytes();
                let release =
                    Request::patch(&path).header("content-type", "application/merge-patch+json").body(release);
                let options = json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"}).to_string();
                let delete =
                    Request::delete(&path).header("content-type", "application/json").body(options.into_bytes());
                // Either may be refused because it is gone; the next look tells.
                let _ = client.request::<Value>(release?).await;
                let _ = client.request::<Value>(delete?).await;
            }
        }
        if left == 0 {
            return Ok(());
        }
        tokio::time::sleep(PAUSE).await;
    }
    bail!("Jobs or pods stay")
}
