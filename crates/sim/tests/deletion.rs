//! A delete that is cut short by the disk leaves the object as it was, or gone; never marked with nobody to remove it.

#![allow(clippy::unwrap_used, reason = "in a test a panic is a failure with a backtrace")]

use apiserver::storage::{ObjectStore, attributes};
use apiserver::{ApiServer, Environment, Options};
use batch_types::gates::Gates;
use controllers::runtime::Resource;
use controllers::runtime::requests::{self, DeleteOptions, Ignored};
use kube::Client;
use serde_json::{Value, json};
use store::Writing;
use store::testing::{Fault, ForgetfulDisk};

async fn open(disk: &ForgetfulDisk) -> Client {
    let options = store::Options { writing: Writing::Inline, ..store::Options::default() };
    let store = ObjectStore::open(disk.mount(), options, attributes()).unwrap();
    let options = Options { admin_token: None, gates: Gates::DEFAULT, environment: Environment::system() };
    ApiServer::new(store, options).await.unwrap().client()
}

/// INV-30, INV-46.
#[tokio::test]
async fn a_delete_that_is_cut_short_happened_whole_or_not_at_all() {
    let mut gone = 0;
    let torn = (0..4000).step_by(97).map(Fault::Torn);
    for fault in [Fault::BeforeWrite, Fault::BeforeSync, Fault::AfterSync].into_iter().chain(torn) {
        let disk = ForgetfulDisk::default();
        let client = open(&disk).await;
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        });
        requests::create::<Ignored>(&client, &Resource::PODS.collection(Some("default")), &pod).await.unwrap();
        disk.fail_next(fault);
        let path = Resource::PODS.object("default", "p");
        requests::delete(&client, &path, &DeleteOptions::default()).await.unwrap_err();
        drop(client);
        disk.lose_power(usize::MAX);
        match requests::get::<Value>(&open(&disk).await, &path).await {
            Ok(pod) => {
                assert!(pod["metadata"]["deletionTimestamp"].is_null(), "{fault:?}: marked, and nobody removes it")
            }
            Err(error) => {
                assert!(requests::is_not_found(&error), "{fault:?}: {error}");
                gone += 1;
            }
        }
    }
    assert!(gone >= 1, "a sync that succeeded unheard leaves it gone");
}
