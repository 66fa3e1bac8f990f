//! What writes did to `managedFields`, remembered.
//!
//! All pods of a Job are alike, and so are the writes that report their ends and release them: the same list of owners
//! turns into the same other list thousands of times a second. Working it out once saves most of what such a write costs.

use std::collections::HashMap;

use bytes::Bytes;
use parking_lot::Mutex;
use patch::apply::{Difference, Manager, Recorded, record_on_bytes};

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

impl Memo {
    /// The list after a write that made this difference.
    pub(crate) fn record(&self, stored: &Bytes, difference: &Difference, manager: &Manager<'_>) -> Remembered {
        if difference.is_nothing() {
            return Remembered { managed_fields: Some(stored.clone()), differs: false };
        }
        let key = key(stored, difference, manager);
        if let Some(known) = self.outcomes.lock().get(&key) {
            return known.clone();
        }
        let outcome = Remembered::from(record_on_bytes(stored, difference, manager));
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

/// Everything that the outcome depends on. The parts are JSON or names that the API's rules keep free of line breaks.
fn key(stored: &[u8], difference: &Difference, manager: &Manager<'_>) -> Vec<u8> {
    let mut key = Vec::with_capacity(stored.len() + 512);
    key.extend_from_slice(stored);
    key.push(b'\n');
    difference.identify(&mut key);
    for part in [manager.api_version, manager.subresource, manager.now, manager.name] {
        key.extend_from_slice(part.as_bytes());
        key.push(b'\n');
    }
    key
}

#[cfg(test)]
mod tests {
    use api_schema::registry;
    use serde_json::{Value, json};

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
                        let difference = Difference::between(ty, &before, &with_finalizers(left), &manager);
                        let outcome = memo.record(&stored, &difference, &manager);
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
            memo.record(&Bytes::from_static(b"[]"), &Difference::between(ty, &old, &new, &manager), &manager);
            assert!(memo.outcomes.lock().len() <= OUTCOMES_MAX);
        }
    }
}
