//! A cache for controllers that need nothing special: every mirrored object by uid, shared cheaply.

use std::{collections::BTreeMap, sync::Arc};

use super::reflector::{Change, Mirrored};

/// Objects by uid, and in that order: what is decided by looking at all of them must be repeatable.
#[derive(Debug)]
pub struct Cache<T> {
    objects: BTreeMap<Box<str>, Arc<T>>,
}

/// What a change did to a cache: what informers call add, update and delete.
#[derive(Debug)]
pub enum Delta<T> {
    Added(Arc<T>),
    Updated { old: Arc<T>, new: Arc<T> },
    Deleted(Arc<T>),
    Synced,
}

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Self { objects: BTreeMap::new() }
    }
}

impl<T: Mirrored> Cache<T> {
    /// Notes a change. `None` if it is about an object that the cache never had.
    pub fn apply(&mut self, change: Change<T>) -> Option<Delta<T>> {
        match change {
            Change::Applied(object) => {
                let new = Arc::new(object);
                match self.objects.insert(new.uid().into(), new.clone()) {
                    Some(old) => Some(Delta::Updated { old, new }),
                    None => Some(Delta::Added(new)),
                }
            }
            Change::Deleted(object) => self.objects.remove(object.uid()).map(|_| Delta::Deleted(Arc::new(object))),
            Change::Vanished { uid } => self.objects.remove(&uid).map(Delta::Deleted),
            Change::Synced => Some(Delta::Synced),
        }
    }

    pub fn get(&self, uid: &str) -> Option<&Arc<T>> {
        self.objects.get(uid)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<T>> {
        self.objects.values()
    }

    pub fn len(&self) -> usize {
        self.objects.len()
    }

    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    struct Object {
        uid: String,
        version: String,
    }

    impl Mirrored for Object {
        fn uid(&self) -> &str {
            &self.uid
        }

        fn resource_version(&self) -> &str {
            &self.version
        }
    }

    #[test]
    fn changes_become_what_informers_tell() {
        let object = |version: &str| Object { uid: "u".to_owned(), version: version.to_owned() };
        let mut cache = Cache::default();
        assert!(matches!(cache.apply(Change::Applied(object("1"))), Some(Delta::Added(_))));
        let updated = cache.apply(Change::Applied(object("2")));
        assert!(matches!(updated, Some(Delta::Updated { old, new }) if old.version == "1" && new.version == "2"));
        let vanished = cache.apply(Change::Vanished { uid: "u".into() });
        assert!(matches!(vanished, Some(Delta::Deleted(last)) if last.version == "2"));
        assert!(cache.apply(Change::Deleted(object("3"))).is_none());
        assert!(cache.is_empty());
    }
}
