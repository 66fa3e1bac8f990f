//! ResourceQuota: the last step of admission, and the figures it keeps (AS-224).
//!
//! A write and what it charges are one transaction, so `status.used` is exact whatever happens in between: two writers
//! cannot both take the last place, and a crash loses neither half. Upstream charges ahead of the write and repairs
//! differences by counting again; here only a new or changed quota is counted ([`count`]).
//!
//! | module | what it does |
//! |---|---|
//! | `usage`, `scopes` | what an object uses, and which quotas are about it |
//! | `charge` | whether it fits, and what quotas say afterwards |
//! | `count` | what a quota says when it is new |
//! | `amounts` | sums of resources by name |
//!
//! One difference from upstream: a pod that is stuck in deletion is charged until it has ended or is gone.

pub(crate) mod amounts;
mod charge;
mod count;
mod scopes;
mod usage;

use std::hash::{BuildHasher, RandomState};

use serde_json::Value;
use store::{CommitError, Expect, Transaction};
use tokio::sync::{Mutex, MutexGuard, RwLock};

use self::charge::{Claim, Quota};
use crate::{
    metadata,
    resources::{Resource, registry},
    server::ApiServer,
    set_aside::SetAside,
    status::Status,
    storage::{self, ObjectStore, Stored, WriteError},
};

/// Namespaces that may be charged at the same time; others wait for one another without need, which is harmless.
const LANES: usize = 64;
/// How often a charge is tried again when a quota changes meanwhile. Only writes to the quota itself can cause it.
const ATTEMPTS_MAX: usize = 20;

/// What keeps concurrent writes and counts apart.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// Held by whoever changes the figures of a namespace. Taken before the gate.
    lanes: [Mutex<()>; LANES],
    /// Held shared by every write that quotas could count, from the moment it looks which quotas there are until it is
    /// stored. A count waits once for all of them: whoever did not see the quota has then been stored.
    gate: RwLock<()>,
    hasher: RandomState,
}

impl Default for Ledger {
    fn default() -> Self {
        Self { gate: RwLock::new(()), lanes: std::array::from_fn(|_| Mutex::new(())), hasher: RandomState::new() }
    }
}

impl Ledger {
    async fn lane(&self, namespace: &str) -> MutexGuard<'_, ()> {
        let at = self.hasher.hash_one(namespace) % LANES as u64;
        self.lanes[at as usize].lock().await
    }
}

/// One write on its way into the store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Change<'a> {
    pub(crate) resource: &'static Resource,
    pub(crate) namespace: &'a str,
    pub(crate) key: &'a str,
    /// The object as it is; `None` when it is new.
    pub(crate) old: Option<&'a Value>,
    /// The object as it will be; `None` when it goes.
    pub(crate) new: Option<&'a Value>,
    /// What both objects lack because the write does not touch it.
    pub(crate) aside: &'a SetAside,
}

impl Change<'_> {
    /// Whether a quota could count the difference. Of objects that stay only pods change what they use.
    fn can_matter(&self) -> bool {
        let stays = self.old.is_some() && self.new.is_some();
        usage::is_counted(self.resource) && (!stays || self.resource.kind == "Pod")
    }

    /// A quota that has not been counted with these limits.
    fn needs_count(&self) -> bool {
        let spec = |object: Option<&Value>| object.map(|object| object["spec"].clone());
        self.resource.kind == "ResourceQuota" && self.new.is_some() && spec(self.old) != spec(self.new)
    }
}

/// Stores a change, charged to the quotas of its namespace; `transaction` has the change as its first operation.
pub(crate) async fn commit(
    server: &ApiServer,
    change: Change<'_>,
    transaction: Transaction,
) -> Result<Stored, WriteError> {
    let store = &server.state.store;
    if change.needs_count() {
        return counted(server, &change, transaction).await;
    }
    if !change.can_matter() {
        return storage::commit(store, transaction).await;
    }
    {
        let _counted_later = server.state.quotas.gate.read().await;
        // Nearly always there is none, and this is asked for every write: it costs one look into an empty range.
        let quotas = quotas(store, change.namespace)?;
        if quotas.is_empty() || outcome(&change, &quotas).is_ok_and(|charges| charges.is_empty()) {
            return storage::commit(store, transaction).await;
        }
    }
    // Charged or refused by figures that nobody else changes meanwhile.
    let _lane = server.state.quotas.lane(change.namespace).await;
    charged(server, &change, transaction).await
}

/// Whether a change would fit, without making it (AS-154).
pub(crate) fn check(server: &ApiServer, change: Change<'_>) -> Result<(), Status> {
    if !change.can_matter() {
        return Ok(());
    }
    let quotas = quotas(&server.state.store, change.namespace)?;
    if !quotas.is_empty() {
        outcome(&change, &quotas)?;
    }
    Ok(())
}

/// Counts all quotas, for those that the last process left uncounted.
pub(crate) async fn recount_all(server: &ApiServer) -> Result<(), Status> {
    let Some(resource) = registry::find("", "v1", "resourcequotas") else { return Ok(()) };
    let mut namespaces: Vec<String> = list(&server.state.store, &format!("{}/", resource.topic))?
        .iter()
        .filter_map(|stored| stored.key.split('/').nth(1).map(str::to_owned))
        .collect();
    namespaces.dedup();
    for namespace in namespaces {
        let _lane = server.state.quotas.lane(&namespace).await;
        count::count_all(&server.state.store, &namespace).await?;
    }
    Ok(())
}

/// Stores a new or changed quota and counts what it limits, before anybody can be charged to it.
async fn counted(server: &ApiServer, change: &Change<'_>, transaction: Transaction) -> Result<Stored, WriteError> {
    let (store, ledger) = (&server.state.store, &server.state.quotas);
    let _lane = ledger.lane(change.namespace).await;
    let stored = if change.can_matter() {
        charged(server, change, transaction).await?
    } else {
        storage::commit(store, transaction).await?
    };
    // Whoever did not see the quota is waited for; whoever comes later sees it and waits for the lane.
    drop(ledger.gate.write().await);
    if let Err(error) = count::count_all(store, change.namespace).await {
        // The quota is stored. Without figures it refuses what it limits until it is counted.
        tracing::warn!(namespace = change.namespace, %error, "the quotas of a namespace were not counted");
    }
    Ok(stored)
}

/// Stores a change together with what it charges. The lane of the namespace is held.
async fn charged(server: &ApiServer, change: &Change<'_>, transaction: Transaction) -> Result<Stored, WriteError> {
    let store = &server.state.store;
    let _counted_later = server.state.quotas.gate.read().await;
    for _ in 0..ATTEMPTS_MAX {
        let charges = outcome(change, &quotas(store, change.namespace)?)?;
        let transaction = charges.into_iter().fold(transaction.clone(), |transaction, (stored, quota)| {
            transaction
                .require(stored.key.clone(), Expect::AtRevision(stored.revision))
                .put(stored.key.clone(), storage::stamped(&quota))
        });
        match store.commit(transaction).await {
            Err(CommitError::Conflict { key, .. }) if *key != *change.key => {}
            outcome => return storage::first_of(outcome),
        }
    }
    Err(WriteError::Failed(Status::conflict(
        change.resource,
        name_of(change),
        "the quotas of its namespace change too quickly, please try again",
    )))
}

/// The quotas that a change alters, as they will be.
fn outcome(change: &Change<'_>, quotas: &[Stored]) -> Result<Vec<(Stored, Value)>, Status> {
    let objects: Vec<(&Stored, Value)> = quotas
        .iter()
        // A quota that goes has no figures left to keep.
        .filter(|stored| *stored.key != *change.key)
        .map(|stored| Ok((stored, storage::parse(stored)?)))
        .collect::<Result<_, Status>>()?;
    let read: Vec<Quota> = objects.iter().map(|(_, object)| Quota::of(object)).collect();
    let whole = |object: Option<&Value>| {
        let mut object = object?.clone();
        change.aside.restore(&mut object);
        Some(object)
    };
    let (old, new) = (whole(change.old), whole(change.new));
    let claim = Claim::of(change.resource, old.as_ref(), new.as_ref());
    let charged =
        charge::charge(&read, &claim).map_err(|why| Status::forbidden(change.resource, name_of(change), &why))?;
    let altered = objects.into_iter().zip(charged).filter_map(|((stored, mut object), used)| {
        object["status"]["used"] = amounts::write(&used?);
        Some((stored.clone(), object))
    });
    Ok(altered.collect())
}

fn name_of<'a>(change: &Change<'a>) -> &'a str {
    change.new.or(change.old).map_or("", |object| metadata::text(object, "name"))
}

/// The quotas of a namespace, by name.
fn quotas(store: &ObjectStore, namespace: &str) -> Result<Vec<Stored>, Status> {
    list(store, &format!("resourcequotas/{namespace}/"))
}

fn list(store: &ObjectStore, prefix: &str) -> Result<Vec<Stored>, Status> {
    let found = store.list(&store::ListQuery::new(prefix)).map_err(|error| Status::internal(error.to_string()))?;
    Ok(found.entries)
}
