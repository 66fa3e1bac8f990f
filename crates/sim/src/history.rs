//! The history of a run: every durable change, as the disk has it.

use bytes::Bytes;
use serde_json::{Value, json};
use store::EventKind;
use store::testing::{ForgetfulDisk, Logged};

use crate::network::Notes;

/// One change of one object.
#[derive(Clone, Debug)]
pub struct Change {
    pub revision: u64,
    pub is_delete: bool,
    /// `pods/default/pi-x7`.
    pub key: String,
    /// What the object was changed to, or was last, in JSON.
    pub bytes: Bytes,
}

/// Everything that is on the disk.
pub fn read(disk: &ForgetfulDisk) -> Vec<Change> {
    disk.history(0).0.into_iter().map(change).collect()
}

fn change(logged: Logged) -> Change {
    Change {
        revision: logged.revision,
        is_delete: logged.kind == EventKind::Delete,
        bytes: logged.value,
        key: logged.key,
    }
}

impl Change {
    /// The change on one line, with who made it.
    pub(crate) fn line(&self, notes: &Notes) -> String {
        let object: Value = serde_json::from_slice(&self.bytes).unwrap_or_default();
        let (meta, status) = (&object["metadata"], &object["status"]);
        let author = notes.authors.get(&self.revision).map_or("?", |(name, _)| name);
        let sign = if self.is_delete { '-' } else { '+' };
        let facts = match self.key.split('/').next() {
            Some("pods") => {
                let is_surplus = !meta["annotations"]["tally.dev/surplus"].is_null();
                json!([status["phase"], object["spec"]["nodeName"], restarts(status), is_surplus.then_some("surplus")])
            }
            Some("jobs.batch") => {
                let conditions = status["conditions"].as_array().into_iter().flatten();
                let conditions: Vec<&Value> = conditions.map(|condition| &condition["type"]).collect();
                let counts = ["active", "terminating", "succeeded", "failed"].map(|name| &status[name]);
                json!([counts, status["completedIndexes"], status["uncountedTerminatedPods"], conditions])
            }
            Some("cronjobs.batch") => status.clone(),
            _ => Value::Null,
        };
        let (deleted, finalizers) = (&meta["deletionTimestamp"], &meta["finalizers"]);
        format!("{:>6} {author:<9} {sign} {} {} {deleted} {finalizers} {facts}", self.revision, self.key, meta["uid"])
    }
}

/// How often the containers of a pod were started again; nothing if there are none yet.
fn restarts(status: &Value) -> Vec<&Value> {
    let lists = [&status["initContainerStatuses"], &status["containerStatuses"]];
    lists.into_iter().filter_map(Value::as_array).flatten().map(|container| &container["restartCount"]).collect()
}

/// INV-43: revisions follow one another, whatever happened to the disk.
pub fn gap(history: &[Change]) -> Option<String> {
    for (expected, change) in (1..).zip(history) {
        if change.revision != expected {
            return Some(format!("INV-43: revision {} follows {}", change.revision, expected - 1));
        }
    }
    None
}
