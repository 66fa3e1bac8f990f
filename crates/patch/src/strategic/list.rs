//! Merging two lists: objects by their merge key, primitives as a set, with directives on single items (AS-119 to
//! AS-121). Follows `mergeSlice` and below.

use std::collections::{HashMap, HashSet};

use api_schema::PatchStrategy;
use serde_json::Value;

use super::lookup::Schema;
use super::{Object, PATCH, merge_object, order, unknown_directive};
use crate::error::PatchError;
use crate::go_format::{kind, plain, plain_list, type_name};

/// The live list with the patch's items merged in, or the patch's list if this one does not merge.
pub(super) fn merge(
    live: Vec<Value>,
    patch: &[Value],
    strategy: Option<PatchStrategy>,
    items: Schema,
) -> Result<Vec<Value>, PatchError> {
    if strategy.is_none() {
        return Ok(patch.to_vec());
    }
    if live.is_empty() && patch.is_empty() {
        return Ok(live);
    }
    match item_kind(&live, patch)? {
        "map" => {
            let key = merge_key(strategy).ok_or_else(|| {
                PatchError::internal(format!("cannot merge lists without merge key for {}", items.kind()))
            })?;
            merge_by_key(live, patch, key, items)
        }
        _ => Ok(merge_sets(live, patch)),
    }
}

/// The live list without the patch's items. A list of objects merges even so: upstream never looks (AS-124 is about
/// primitives).
pub(super) fn delete(
    live: Vec<Value>,
    patch: &[Value],
    strategy: Option<PatchStrategy>,
    items: Schema,
) -> Result<Vec<Value>, PatchError> {
    if live.is_empty() && patch.is_empty() {
        return Ok(live);
    }
    if item_kind(&live, patch)? == "map" {
        return merge(live, patch, strategy.or(Some(PatchStrategy::MergeSet)), items);
    }
    let gone: HashSet<&Value> = patch.iter().collect();
    Ok(live.into_iter().filter(|item| !gone.contains(item)).collect())
}

pub(super) fn merge_key(strategy: Option<PatchStrategy>) -> Option<&'static str> {
    match strategy {
        Some(PatchStrategy::MergeByKey(key)) => Some(key),
        _ => None,
    }
}

/// The kind that all items of both lists share; lists of lists do not merge.
pub(super) fn item_kind(live: &[Value], patch: &[Value]) -> Result<&'static str, PatchError> {
    let mut kinds = live.iter().chain(patch).map(kind);
    let first = kinds.next().ok_or_else(|| PatchError::internal("no elements in any of the given slices"))?;
    if first == "slice" {
        return Err(PatchError::Unprocessable("lists of lists are not supported".into()));
    }
    if kinds.any(|kind| kind != first) {
        let (live, patch) = (plain_list(live), plain_list(patch));
        return Err(PatchError::internal(format!("list element types are not identical: [{live} {patch}]")));
    }
    Ok(first)
}

pub(super) fn no_merge_key(item: &Object, key: &str) -> PatchError {
    let item = plain(&Value::Object(item.clone()));
    PatchError::internal(format!("map: {item} does not contain declared merge key: {key}"))
}

/// The merge key's value of a list item, or upstream's complaint about the item.
pub(super) fn key_of<'a>(item: &'a Value, key: &str) -> Result<&'a Value, PatchError> {
    let item = item.as_object().ok_or_else(|| bad_argument("map[string]interface {}", item))?;
    item.get(key).ok_or_else(|| no_merge_key(item, key))
}

pub(super) fn bad_argument(expected: &str, received: &Value) -> PatchError {
    PatchError::internal(format!("expected a {expected}, but received a {}", type_name(received)))
}

fn merge_by_key(live: Vec<Value>, patch: &[Value], key: &str, items: Schema) -> Result<Vec<Value>, PatchError> {
    let (live, patch) = item_directives(live, patch, key)?;
    let live_order = keys_in_order(&live, key);
    let mut merged = live;
    let mut positions: HashMap<Value, usize> = HashMap::with_capacity(merged.len());
    for (at, item) in merged.iter().enumerate() {
        if let Some(value) = item.get(key) {
            positions.entry(value.clone()).or_insert(at);
        }
    }
    for item in &patch {
        let Value::Object(item) = item else { continue };
        let value = item.get(key).ok_or_else(|| no_merge_key(item, key))?;
        match positions.get(value) {
            Some(&at) => {
                if let Value::Object(current) = std::mem::take(&mut merged[at]) {
                    merged[at] = Value::Object(merge_object(current, item, items)?);
                }
            }
            None => {
                positions.insert(value.clone(), merged.len());
                merged.push(Value::Object(item.clone()));
            }
        }
    }
    merged.iter().try_for_each(|item| key_of(item, key).map(drop))?;
    order::arrange(merged, &patch, &live_order, Some(key))
}

/// Applies and removes the items that are directives (AS-121): what is left of the live list, and the patch's items.
fn item_directives(live: Vec<Value>, patch: &[Value], key: &str) -> Result<(Vec<Value>, Vec<Value>), PatchError> {
    let mut plain_items = Vec::with_capacity(patch.len());
    let mut deleted: HashSet<&Value> = HashSet::new();
    let mut replace = false;
    for item in patch {
        let Value::Object(members) = item else { continue };
        match members.get(PATCH) {
            None => plain_items.push(item.clone()),
            Some(directive) => match directive.as_str() {
                Some("delete") => {
                    deleted.insert(members.get(key).ok_or_else(|| no_merge_key(members, key))?);
                }
                Some("replace") => replace = true,
                Some("merge") => {
                    return Err(PatchError::internal("merging lists cannot yet be specified in the patch"));
                }
                _ => return Err(unknown_directive(directive, members)),
            },
        }
    }
    if replace {
        return Ok((plain_items, Vec::new()));
    }
    let kept = live.into_iter().filter(|item| item.get(key).is_none_or(|value| !deleted.contains(value))).collect();
    Ok((kept, plain_items))
}

/// One of each key value, as an item that [`order::arrange`] can look up.
fn keys_in_order(items: &[Value], key: &str) -> Vec<Value> {
    items.iter().map(|item| item.get(key).cloned().unwrap_or_default()).collect()
}

fn merge_sets(live: Vec<Value>, patch: &[Value]) -> Vec<Value> {
    let live_order = live.clone();
    let mut merged = live;
    merged.extend_from_slice(patch);
    let mut seen = HashSet::with_capacity(merged.len());
    merged.retain(|item| seen.insert(item.clone()));
    order::arrange_values(merged, patch, &live_order)
}
