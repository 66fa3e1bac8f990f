//! The order of a merged list (AS-122) and the directive that fixes it, `$setElementOrder` (AS-123). Follows
//! `mergePatchIntoOriginal`, `normalizeElementOrder` and `mergeSortedSlice`.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::list::{self, bad_argument, item_kind, key_of, merge_key};
use super::lookup::Schema;
use super::{Object, PATCH, SET_ELEMENT_ORDER};
use crate::error::PatchError;
use crate::go_format::plain_list;

/// Merges every list that a `$setElementOrder/<field>` of the patch names. Returns the fields that are done with.
pub(super) fn merge_ordered_lists<'a>(
    live: &mut Object,
    patch: &'a Object,
    schema: Schema,
) -> Result<Vec<&'a str>, PatchError> {
    let mut done = Vec::new();
    for (directive, order) in patch {
        let Some(rest) = directive.strip_prefix(SET_ELEMENT_ORDER) else { continue };
        let order = list_or(order, || bad_argument("[]interface {}", order))?;
        let name = rest
            .strip_prefix('/')
            .ok_or_else(|| PatchError::bad_request("invalid patch format of setElementOrder list"))?;
        if merge_ordered_list(live, patch, name, order, schema)? {
            done.push(name);
        }
    }
    Ok(done)
}

/// False if neither side has the list: the order alone changes nothing.
fn merge_ordered_list(
    live: &mut Object,
    patch: &Object,
    name: &str,
    order: &[Value],
    schema: Schema,
) -> Result<bool, PatchError> {
    let ours = live.get(name).map(|value| list_or(value, || bad_argument("[]interface {}", value))).transpose()?;
    let theirs = patch.get(name).map(|value| list_or(value, || bad_argument("[]interface {}", value))).transpose()?;
    let (field, items) = schema.list(name)?;
    let key = merge_key(field.patch);
    validate(theirs.unwrap_or_default(), order, key)?;
    let merged = match (ours, theirs) {
        (None, None) => return Ok(false),
        (Some(ours), None) => ours.to_vec(),
        (None, Some(theirs)) => theirs.iter().filter_map(without_directives).collect(),
        (Some(ours), Some(theirs)) => list::merge(ours.to_vec(), theirs, field.patch, items)?,
    };
    let live_order: Vec<Value> = match key {
        Some(key) => ours.unwrap_or_default().iter().map(|item| item.get(key).cloned().unwrap_or_default()).collect(),
        None => ours.unwrap_or_default().to_vec(),
    };
    if let Some(key) = key {
        find_each(&merged, order, key)?;
    }
    item_kind(ours.unwrap_or_default(), theirs.unwrap_or_default())?;
    let arranged = arrange(merged, order, &live_order, key)?;
    live.insert(name.to_owned(), Value::Array(arranged));
    Ok(true)
}

/// The patch's items must appear in the order list, in the same order; deletions do not count (AS-123).
fn validate(patch: &[Value], order: &[Value], key: Option<&str>) -> Result<(), PatchError> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    if key.is_some()
        && let Some(item) = patch.iter().find(|item| !item.is_object())
    {
        return Err(bad_argument("map[string]interface {}", item));
    }
    let is_deletion = |item: &Value| key.is_some() && item[PATCH] == "delete";
    let mut items = patch.iter().filter(|item| !is_deletion(item)).peekable();
    for position in order {
        // Other directives do not count either, but only as long as there are positions.
        while items.next_if(|item| item.get(PATCH).is_some()).is_some() {}
        let Some(item) = items.peek() else { return Ok(()) };
        let is_here = match key {
            None => *item == position,
            Some(key) => key_of(item, key)? == key_of(position, key)?,
        };
        if is_here {
            items.next();
        }
    }
    if items.peek().is_none() {
        return Ok(());
    }
    let (patch, order) = (plain_list(patch), plain_list(order));
    Err(PatchError::internal(format!(
        "The order in patch list:\n{patch}\n doesn't match {SET_ELEMENT_ORDER} list:\n{order}\n"
    )))
}

/// Looks every merged item up in the order list. A position that is no object is in the way of all that come after it.
fn find_each(merged: &[Value], order: &[Value], key: &str) -> Result<(), PatchError> {
    let obstacle = order.iter().position(|position| !position.is_object()).unwrap_or(order.len());
    let found_before: HashSet<&Value> = order[..obstacle].iter().filter_map(|position| position.get(key)).collect();
    for item in merged {
        let value = key_of(item, key)?;
        if obstacle < order.len() && !found_before.contains(value) {
            return Err(PatchError::internal(format!("value for key {obstacle} is not a map")));
        }
    }
    Ok(())
}

/// Puts a merged list of objects, or of primitives if there is no key, into the order of AS-122: `first` holds items
/// or key holders that the patch names, `live_order` the live keys (or primitives).
pub(super) fn arrange(
    merged: Vec<Value>,
    first: &[Value],
    live_order: &[Value],
    key: Option<&str>,
) -> Result<Vec<Value>, PatchError> {
    let Some(key) = key else { return Ok(arrange_values(merged, first, live_order)) };
    let first: Vec<Value> = first.iter().map(|item| key_of(item, key).cloned()).collect::<Result<_, _>>()?;
    Ok(interleave(merged, &first, live_order, |item| item.get(key).unwrap_or(&Value::Null)))
}

pub(super) fn arrange_values(merged: Vec<Value>, first: &[Value], live_order: &[Value]) -> Vec<Value> {
    interleave(merged, first, live_order, |item| item)
}

/// The merge of AS-122: a live item that the patch does not name goes before a named one only if both are in the live
/// list in that order.
fn interleave(
    merged: Vec<Value>,
    first: &[Value],
    live_order: &[Value],
    key_of: impl Fn(&Value) -> &Value,
) -> Vec<Value> {
    let named_position = positions(first);
    let live_position = positions(live_order);
    let (mut named, others): (Vec<_>, Vec<_>) =
        merged.into_iter().partition(|item| named_position.contains_key(key_of(item)));
    named.sort_by_key(|item| named_position.get(key_of(item)).copied());
    let others = by_live_position(others, |item| live_position.get(key_of(item)).copied());

    let mut out = Vec::with_capacity(named.len() + others.len());
    let mut others = others.into_iter().peekable();
    for item in named {
        let at = live_position.get(key_of(&item));
        while let Some(other) = others.next_if(|other| match (live_position.get(key_of(other)), at) {
            (Some(other), Some(item)) => other < item,
            _ => false,
        }) {
            out.push(other);
        }
        out.push(item);
    }
    out.extend(others);
    out
}

/// Items that the patch does not name, in live order. Where an empty order list names nothing, new items are among them.
///
/// Upstream's comparison finds a new item before every other and every other before it. In the insertion sort that Go
/// uses for lists this short, such an item then goes to the front and lets all that follow it pass.
fn by_live_position(mut items: Vec<Value>, position: impl Fn(&Value) -> Option<usize>) -> Vec<Value> {
    const INSERTION_SORT_MAX: usize = 20;
    if items.len() > INSERTION_SORT_MAX || items.iter().all(|item| position(item).is_some()) {
        items.sort_by_key(|item| position(item).unwrap_or(usize::MAX));
        return items;
    }
    let mut sorted: Vec<Value> = Vec::with_capacity(items.len());
    for item in items {
        let at = position(&item);
        let goes_before = |other: &Value| match (at, position(other)) {
            (Some(at), Some(other)) => at < other,
            _ => true,
        };
        let place = sorted.iter().rposition(|other| !goes_before(other)).map_or(0, |before| before + 1);
        sorted.insert(place, item);
    }
    sorted
}

/// Where each value first occurs.
fn positions(values: &[Value]) -> HashMap<&Value, usize> {
    let mut positions = HashMap::with_capacity(values.len());
    for (at, value) in values.iter().enumerate() {
        positions.entry(value).or_insert(at);
    }
    positions
}

/// A list that is new to the object, without the items and members that are directives.
fn without_directives(value: &Value) -> Option<Value> {
    match value {
        Value::Object(members) if members.contains_key(PATCH) => None,
        Value::Object(members) => {
            Some(members.iter().filter_map(|(name, value)| Some((name.clone(), without_directives(value)?))).collect())
        }
        Value::Array(items) => Some(items.iter().filter_map(without_directives).collect()),
        scalar => Some(scalar.clone()),
    }
}

fn list_or(value: &Value, error: impl FnOnce() -> PatchError) -> Result<&[Value], PatchError> {
    value.as_array().map(Vec::as_slice).ok_or_else(error)
}
