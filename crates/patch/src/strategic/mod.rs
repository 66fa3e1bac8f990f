//! Kubernetes' strategic merge patch: a merge patch that knows which lists merge by key and that carries directives
//! (AS-119 to AS-127). Follows `k8s.io/apimachinery/pkg/util/strategicpatch` in `patch.go`, `mergeMap` and below.
//!
//! | file | about |
//! |---|---|
//! | this one | objects: members, `$patch`, `$retainKeys` |
//! | `list` | lists that merge: by key, as sets, item directives |
//! | `order` | `$setElementOrder` and the order of merged lists (AS-122, AS-123) |
//! | `lookup` | what the schema says about a member |

mod list;
mod lookup;
mod order;

use std::collections::HashSet;

use api_schema::Type;
use api_schema::json::kind_of;
use serde_json::{Map, Value};

use crate::bounds::{DEPTH_MAX, depth};
use crate::error::PatchError;
use crate::go_format::{self, plain};
use lookup::Schema;

pub(crate) type Object = Map<String, Value>;

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ELEMENT_ORDER: &str = "$setElementOrder";
const DELETE_FROM_PRIMITIVE_LIST: &str = "$deleteFromPrimitiveList";

/// Merges `patch` into the canonical live object of type `ty`.
///
/// Members that the type does not have, and values that it cannot have, are kept. The caller decodes the result with
/// [`api_schema::json::convert_unstructured`] and turns what that reports into
/// `PatchError::invalid(patch_text(patch), …)` (AS-118).
pub fn apply(live: Value, patch: &Value, ty: &'static Type) -> Result<Value, PatchError> {
    let members = match patch {
        Value::Object(members) => members,
        Value::Null => return Ok(live),
        other => {
            return Err(PatchError::bad_request(format!(
                "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
                kind_of(other)
            )));
        }
    };
    if depth(patch, DEPTH_MAX).is_none() {
        return Err(PatchError::bad_request(format!("exceeded max depth of {DEPTH_MAX}")));
    }
    let Value::Object(live) = live else { return Err(PatchError::internal("the live object is no object")) };
    merge_object(live, members, Schema::root(ty)).map(Value::Object)
}

/// The patch as upstream quotes it in errors about what it leads to: Go's `%+v` of the decoded map.
pub fn patch_text(patch: &Value) -> String {
    plain(patch)
}

/// `mergeMap`. Recursion is bounded by the depth of the patch.
fn merge_object(mut live: Object, patch: &Object, schema: Schema) -> Result<Object, PatchError> {
    if let Some(directive) = patch.get(PATCH) {
        return object_directive(directive, patch);
    }
    if let Some(keys) = patch.get(RETAIN_KEYS) {
        retain_keys(&mut live, keys, patch)?;
    }
    let ordered = order::merge_ordered_lists(&mut live, patch, schema)?;
    for (name, value) in patch {
        if name == RETAIN_KEYS || name.starts_with(SET_ELEMENT_ORDER) || ordered.contains(&name.as_str()) {
            continue;
        }
        match name.strip_prefix(DELETE_FROM_PRIMITIVE_LIST) {
            None => merge_member(&mut live, name, value, schema)?,
            Some(rest) => delete_from_list(&mut live, rest, value, schema)?,
        }
    }
    Ok(live)
}

/// `$patch` inside an object: the rest of the patch replaces it, or it becomes empty (AS-121).
fn object_directive(directive: &Value, patch: &Object) -> Result<Object, PatchError> {
    match directive.as_str() {
        Some("replace") => Ok(patch
            .iter()
            .filter(|(name, _)| *name != PATCH)
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()),
        Some("delete") => Ok(Object::new()),
        _ => Err(unknown_directive(directive, patch)),
    }
}

fn unknown_directive(directive: &Value, patch: &Object) -> PatchError {
    let shown = match directive {
        Value::String(text) => text.clone(),
        Value::Null => "%!s(<nil>)".into(),
        Value::Bool(_) | Value::Number(_) => format!("%!s({}={})", go_format::kind(directive), plain(directive)),
        container => plain(container),
    };
    PatchError::internal(format!("unknown patch type: {shown} in map: {}", plain(&Value::Object(patch.clone()))))
}

/// `$retainKeys` (AS-125): drops live members that are not listed; members of the patch must be.
fn retain_keys(live: &mut Object, keys: &Value, patch: &Object) -> Result<(), PatchError> {
    let bad_format = || PatchError::bad_request("invalid patch format of retainKeys");
    let keys = keys.as_array().ok_or_else(bad_format)?;
    let keys: HashSet<&str> = keys.iter().filter_map(Value::as_str).collect();
    let listed = |name: &str| keys.contains(name);
    let uncovered = patch.iter().any(|(name, value)| {
        !value.is_null()
            && name != RETAIN_KEYS
            && !name.starts_with(DELETE_FROM_PRIMITIVE_LIST)
            && !name.starts_with(SET_ELEMENT_ORDER)
            && !listed(name)
    });
    if uncovered {
        return Err(bad_format());
    }
    live.retain(|name, _| listed(name));
    Ok(())
}

fn merge_member(live: &mut Object, name: &str, patch: &Value, schema: Schema) -> Result<(), PatchError> {
    match (live.get_mut(name), patch) {
        (_, Value::Null) => {
            live.shift_remove(name);
        }
        (Some(Value::Object(current)), Value::Object(patch)) => {
            let field = schema.field(name)?;
            *current = if field.replace {
                patch.clone()
            } else {
                merge_object(std::mem::take(current), patch, Schema::of(field))?
            };
        }
        (Some(Value::Array(current)), Value::Array(patch)) => {
            let (field, items) = schema.list(name)?;
            *current = list::merge(std::mem::take(current), patch, field.patch, items)?;
        }
        (_, patch) => match new_value(patch) {
            Some(value) => {
                live.insert(name.to_owned(), value);
            }
            None => {
                live.shift_remove(name);
            }
        },
    }
    Ok(())
}

/// `$deleteFromPrimitiveList/<field>` (AS-124). Without the field in the live object, or if either is not a list, there
/// is nothing to delete.
fn delete_from_list(live: &mut Object, rest: &str, patch: &Value, schema: Schema) -> Result<(), PatchError> {
    let name =
        rest.strip_prefix('/').ok_or_else(|| PatchError::bad_request("invalid patch format of primitive list"))?;
    match (live.get_mut(name), patch) {
        (_, Value::Null) => {
            live.shift_remove(name);
        }
        (Some(Value::Array(current)), Value::Array(patch)) => {
            let (field, items) = schema.list(name)?;
            *current = list::delete(std::mem::take(current), patch, field.patch, items)?;
        }
        _ => {}
    }
    Ok(())
}

/// A patch's value where the live object has none of its kind: without nulls, and without objects that are directives
/// (`None` if it is one itself).
fn new_value(patch: &Value) -> Option<Value> {
    match patch {
        Value::Object(members) if members.contains_key(PATCH) => None,
        Value::Object(members) => Some(
            members
                .iter()
                .filter(|(_, value)| !value.is_null())
                .filter_map(|(name, value)| Some((name.clone(), new_value(value)?)))
                .collect(),
        ),
        Value::Array(items) => Some(items.iter().filter_map(new_value).collect()),
        scalar => Some(scalar.clone()),
    }
}

#[cfg(test)]
mod tests;
