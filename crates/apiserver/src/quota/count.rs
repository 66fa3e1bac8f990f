//! What a quota says when it is new or has other limits: everything is counted once.

use api_schema::{Format, Quantity};
use batch_types::resource_names;
use serde_json::{Value, json};
use store::{CommitError, Transaction};

use super::{
    ATTEMPTS_MAX,
    amounts::{self, Amounts},
    charge::Quota,
    list, quotas,
    usage::{self, Usage},
};
use crate::{
    resources::{Resource, registry::RESOURCES},
    status::Status,
    storage::{self, ObjectStore, Stored},
};

/// Counts the quotas of a namespace anew. Whoever calls this keeps others from changing figures meanwhile.
pub(super) async fn count_all(store: &ObjectStore, namespace: &str) -> Result<(), Status> {
    for stored in quotas(store, namespace)? {
        count_one(store, namespace, stored).await?;
    }
    Ok(())
}

async fn count_one(store: &ObjectStore, namespace: &str, mut stored: Stored) -> Result<(), Status> {
    for _ in 0..ATTEMPTS_MAX {
        let mut object = storage::parse(&stored)?;
        let quota = Quota::of(&object);
        let status =
            json!({"hard": amounts::write(&quota.hard), "used": amounts::write(&used(store, namespace, &quota)?)});
        if object["status"] == status {
            return Ok(());
        }
        object["status"] = status;
        let update = Transaction::update(stored.key.clone(), stored.revision, storage::stamped(&object));
        match store.commit(update).await {
            Ok(_) | Err(CommitError::Conflict { current: None, .. }) => return Ok(()),
            Err(CommitError::Conflict { current: Some(newer), .. }) => stored = newer,
            Err(error) => return Err(Status::unavailable(error.to_string())),
        }
    }
    Ok(())
}

/// What is in the store, in the terms of one quota.
fn used(store: &ObjectStore, namespace: &str, quota: &Quota) -> Result<Amounts, Status> {
    let mut used = Amounts::new();
    for name in quota.hard.keys().filter(|name| resource_names::is_standard_for_quota(name)) {
        // Upstream counts some kinds that are not served here: there are none of them.
        used.insert(name.clone(), Quantity::ZERO);
    }
    for resource in RESOURCES.iter().filter(|resource| usage::is_counted(resource) && resource.allows("list")) {
        let names: Vec<&String> = quota.hard.keys().filter(|name| usage::uses(resource, name)).collect();
        if names.is_empty() {
            continue;
        }
        let total = total(store, namespace, resource, quota)?;
        for name in names {
            used.insert(name.clone(), total.get(name).cloned().unwrap_or(Quantity::ZERO));
        }
    }
    Ok(used)
}

fn total(store: &ObjectStore, namespace: &str, resource: &Resource, quota: &Quota) -> Result<Amounts, Status> {
    let prefix = format!("{}/{namespace}/", resource.topic);
    let mut total = Amounts::new();
    if resource.kind == "Pod" {
        for stored in list(store, &prefix)? {
            let usage = Usage::of(resource, &storage::parse(&stored)?);
            if usage.is_in(&quota.scopes) {
                amounts::add(&mut total, &usage.amounts);
            }
        }
        return Ok(total);
    }
    let each = Usage::of(resource, &Value::Null);
    if each.is_in(&quota.scopes) {
        let mut query = store::ListQuery::new(&prefix);
        query.limit = Some(0);
        let found = store.list(&query).map_err(|error| Status::internal(error.to_string()))?;
        let count = Quantity::new(i64::try_from(found.remaining).unwrap_or(i64::MAX), Format::DecimalSI);
        total.extend(each.amounts.into_keys().map(|name| (name, count.clone())));
    }
    Ok(total)
}
