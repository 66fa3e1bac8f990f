//! Pods as real processes, against an API server in this process.

mod admission;
mod crashes;
mod credentials;
mod exits;
mod full_disk;
mod history;
mod inputs;
mod limits;
mod output;
mod registration;
mod secrets;
mod stopping;
#[path = "../support/mod.rs"]
mod support;
mod surroundings;

use serde_json::{Value, json};

/// A pod with one container that runs a shell script.
fn script(text: &str) -> Value {
    json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "unused", "command": ["sh", "-c", text]}]})
}

fn terminated(pod: &Value) -> &Value {
    &pod["status"]["containerStatuses"][0]["state"]["terminated"]
}
