//! The store as a list of changes: slow, and plainly right.

use super::stamped_as;
use std::collections::BTreeMap;
use store::Revision;

#[derive(Clone, Debug, Default)]
pub struct Model {
    /// The change with revision n is at n - 1.
    changes: Vec<Change>,
}

#[derive(Clone, Debug)]
struct Change {
    key: String,
    value: String,
    delete: bool,
}

impl Model {
    pub fn revision(&self) -> Revision {
        self.changes.len() as Revision
    }

    pub fn put(&mut self, key: &str, value: &str) {
        self.push(key, value, false);
    }

    pub fn delete(&mut self, key: &str, last: &str) {
        assert!(self.at(self.revision()).contains_key(key));
        self.push(key, last, true);
    }

    fn push(&mut self, key: &str, value: &str, delete: bool) {
        let value = stamped_as(value, self.revision() + 1);
        self.changes.push(Change { key: key.into(), value, delete });
    }

    /// The model as it was at `revision`.
    pub fn until(&self, revision: Revision) -> Self {
        Self { changes: self.changes[..revision as usize].to_vec() }
    }

    /// Every key at `revision`, with the revision that last changed it and its value.
    pub fn at(&self, revision: Revision) -> BTreeMap<String, (Revision, String)> {
        let mut keys = BTreeMap::new();
        for (position, change) in self.changes[..revision as usize].iter().enumerate() {
            if change.delete {
                keys.remove(&change.key);
            } else {
                keys.insert(change.key.clone(), (position as Revision + 1, change.value.clone()));
            }
        }
        keys
    }

    /// As `common::listed` shows it.
    pub fn listed(&self, prefix: &str, at: Revision) -> Vec<String> {
        let keys = self.at(at).into_iter().filter(|(key, _)| key.starts_with(prefix));
        keys.map(|(key, (_, value))| format!("{key}={value}")).collect()
    }

    /// As `common::event_line` shows the events under `prefix` after `from`.
    pub fn watched(&self, prefix: &str, from: Revision) -> Vec<String> {
        let mut lines = Vec::new();
        let mut keys: BTreeMap<&str, &str> = BTreeMap::new();
        for (position, change) in self.changes.iter().enumerate() {
            let revision = position as Revision + 1;
            let previous = match change.delete {
                true => keys.remove(&*change.key),
                false => keys.insert(&change.key, &change.value),
            };
            if revision > from && change.key.starts_with(prefix) {
                let sign = if change.delete { '-' } else { previous.map_or('+', |_| '~') };
                let previous = previous.unwrap_or_default();
                lines.push(format!("{revision} {sign} {} {} {previous}", change.key, change.value));
            }
        }
        lines
    }
}
