//! A policy that follows the store without a task of its own.
//!
//! Whoever asks compares four revisions first; only after a role or binding changed is the policy built again, from
//! objects that were read before and are still the same. So a decision is never older than the writes answered before
//! it, and requests of administrators cost nothing.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use store::{ListQuery, Revision};

use super::policy::{Binding, Policy, Role};
use crate::{status::Status, storage::ObjectStore};

const ROLES: [&str; 2] = ["clusterroles.rbac.authorization.k8s.io", "roles.rbac.authorization.k8s.io"];
const BINDINGS: [&str; 2] = ["clusterrolebindings.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io"];

/// The current policy.
#[derive(Debug, Default)]
pub struct PolicyCache {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Where roles and bindings were when `policy` was built; `None` before the first time.
    built_at: Option<[Revision; 4]>,
    roles: Known<Role>,
    bindings: Known<Binding>,
    policy: Arc<Policy>,
}

/// Objects by key, with the revision they were read at.
type Known<T> = HashMap<Arc<str>, (Revision, T)>;

impl PolicyCache {
    /// The policy as of now.
    pub fn current(&self, store: &ObjectStore) -> Result<Arc<Policy>, Status> {
        let mut state = self.state.lock();
        // Noted before looking: what is written meanwhile leads to another look.
        let now = [ROLES[0], ROLES[1], BINDINGS[0], BINDINGS[1]].map(|topic| store.topic_revision(topic));
        if state.built_at != Some(now) {
            let roles = read(store, ROLES, &mut state.roles)?;
            let bindings = read(store, BINDINGS, &mut state.bindings)?;
            state.policy = Arc::new(Policy::new(roles, bindings));
            state.built_at = Some(now);
        }
        Ok(Arc::clone(&state.policy))
    }
}

/// All objects of some topics, in order of their keys.
fn read<T: DeserializeOwned + Clone>(
    store: &ObjectStore,
    topics: [&str; 2],
    known: &mut Known<T>,
) -> Result<Vec<T>, Status> {
    let mut fresh = Known::new();
    let mut objects = Vec::new();
    for topic in topics {
        let prefix = format!("{topic}/");
        let list = store.list(&ListQuery::new(&prefix)).map_err(|error| Status::internal(error.to_string()))?;
        for entry in list.entries {
            let object = match known.remove(&*entry.key) {
                Some((revision, object)) if revision == entry.revision => object,
                _ => match serde_json::from_slice(&entry.value()) {
                    Ok(object) => object,
                    Err(error) => {
                        // Rules only add, so leaving one out is safe.
                        tracing::error!(key = %entry.key, %error, "a stored role or binding does not parse");
                        continue;
                    }
                },
            };
            objects.push(T::clone(&object));
            fresh.insert(Arc::clone(&entry.key), (entry.revision, object));
        }
    }
    *known = fresh;
    Ok(objects)
}
