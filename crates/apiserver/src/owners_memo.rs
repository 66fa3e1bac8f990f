//! What writes did to `managedFields`, remembered.
//!
//! All pods of a Job are alike, and so are the writes that report their ends and release them: the same list of owners
//! turns into the same other list thousands of times a second. Working it out once saves most of what such a write costs.

use std::collections::HashMap;

use api_schema::Type;
use bytes::Bytes;
use parking_lot::Mutex;
use patch::apply::{Difference, Manager, Recorded, record_on_bytes, trace};
use serde_json::Value;

/// How many outcomes are remembered. Times are part of them, so none is of use for long.
const OUTCOMES_MAX: usize = 256;
/// Longer lists are not remembered.
const KEY_BYTES_MAX: usize = 16 << 10;

/// `managedFields` after a write.
#[derive(Debug, Clone)]
pub(crate) struct Remembered {
    pub(crate) managed_fields: Option<Bytes>,
    /// Whether more than a time has changed.
    pub(crate) differs: bool,
}

impl From<Recorded> for Remembered {
    fn from(recorded: Recorded) -> Self {
        Self { managed_fields: recorded.managed_fields.map(Bytes::from), differs: recorded.differs }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Memo {
    outcomes: Mutex<HashMap<Vec<u8>, Remembered>>,
}

/// Two versions of an object, both without `managedFields`.
#[derive(Clone, Copy)]
pub(crate) struct Versions<'a> {
    pub(crate) ty: &'static Type,
    /// `None` if the object is new.
    pub(crate) old: Option<&'a Value>,
    pub(crate) new: &'a Value,
}

impl Memo {
    /// The list after a write.
    pub(crate) fn record(&self, stored: &Bytes, versions: Versions<'_>, manager: &Manager<'_>) -> Remembered {
        let Versions { ty, old, new } = versions;
        let work_out = || {
            let difference = Difference::between(ty, old, new, manager);
            Remembered::from(record_on_bytes(stored, &difference, manager))
        };
        let mut key = Vec::with_capacity(stored.len() + 512);
        match trace(ty, old, new, manager, &mut key) {
            Ok(true) => {}
            Ok(false) => return Remembered { managed_fields: Some(stored.clone()), differs: false },
            Err(_) => return work_out(),
        }
        complete(&mut key, stored, manager);
        if let Some(known) = self.outcomes.lock().get(&key) {
            return known.clone();
        }
        let outcome = work_out();
        if key.len() <= KEY_BYTES_MAX {
            let mut outcomes = self.outcomes.lock();
            if outcomes.len() >= OUTCOMES_MAX {
                outcomes.clear();
            }
            outcomes.insert(key, outcome.clone());
        }
        outcome
    }
}

/// Appends to the trace of a difference what else the outcome depends on.
fn complete(key: &mut Vec<u8>, stored: &[u8], manager: &Manager<'_>) {
    let parts = [manager.api_version, manager.subresource, manager.now, manager.name].map(str::as_bytes);
    for part in [stored].into_iter().chain(parts) {
        key.extend_from_slice(&part.len().to_le_bytes());
        key.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use api_schema::registry;
    use serde_json::json;

    use super::*;

    fn manager<'a>(name: &'a str, now: &'a str) -> Manager<'a> {
        Manager { name, api_version: "v1", subresource: "", now, reset_fields: &[] }
    }

    fn with_finalizers(finalizers: &[&str]) -> Value {
        json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a", "finalizers": finalizers}})
    }

    /// AS-131…136: what is remembered is what recording on the whole object gives, for every writer and moment.
    #[test]
    fn remembered_outcomes_are_those_of_the_whole_object() {
        let ty = registry().kind("v1", "Pod").unwrap();
        let memo = Memo::default();
        let mut live = with_finalizers(&["example.com/a", "example.com/b"]);
        patch::apply::update_managed_fields(ty, None, &mut live, &manager("maker", "2026-11-15T00:00:00Z"));
        let stored = Bytes::from(serde_json::to_vec(&live["metadata"]["managedFields"]).unwrap());
        let mut seen = Vec::new();
        for _ in 0..2 {
            for name in ["maker", "other"] {
                for now in ["2026-11-15T00:00:01Z", "2026-11-15T00:00:02Z"] {
                    for left in [&["example.com/a"][..], &["example.com/a", "example.com/b"], &["example.com/c"], &[]] {
                        let manager = manager(name, now);
                        let mut whole = with_finalizers(left);
                        whole["metadata"]["managedFields"] = live["metadata"]["managedFields"].clone();
                        patch::apply::update_managed_fields(ty, Some(&live), &mut whole, &manager);
                        let mut before = live.clone();
                        before["metadata"].as_object_mut().unwrap().remove("managedFields");
                        let versions = Versions { ty, old: Some(&before), new: &with_finalizers(left) };
                        let outcome = memo.record(&stored, versions, &manager);
                        let list = outcome.managed_fields.map(|list| serde_json::from_slice::<Value>(&list).unwrap());
                        assert_eq!(list.as_ref(), whole["metadata"].get("managedFields"), "{name} {left:?}");
                        assert_eq!(outcome.differs, left.len() != 2, "{name} {left:?}");
                        seen.push(list);
                    }
                }
            }
        }
        assert_eq!(memo.outcomes.lock().len(), 12, "each outcome once, and none for what changes nothing");
        assert_eq!(seen[..16], seen[16..]);
    }

    #[test]
    fn no_more_is_kept_than_fits() {
        let ty = registry().kind("v1", "Pod").unwrap();
        let memo = Memo::default();
        let (old, new) = (with_finalizers(&["example.com/a"]), with_finalizers(&["example.com/b"]));
        for at in 0..2 * OUTCOMES_MAX {
            let now = format!("2026-11-15T00:00:{at:04}Z");
            let manager = manager("maker", &now);
            memo.record(&Bytes::from_static(b"[]"), Versions { ty, old: Some(&old), new: &new }, &manager);
            assert!(memo.outcomes.lock().len() <= OUTCOMES_MAX);
        }
    }
}
