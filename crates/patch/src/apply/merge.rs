//! The live object with an applied configuration on top: nothing is removed, the configuration's leaves win. Follows
//! `typed/merge.go`.

use std::collections::{HashMap, HashSet};

use api_schema::{ListType, Shape, Type};
use serde_json::Value;

use super::typed::Typed;
use super::{Object, element};

pub(super) fn merge(ty: &'static Type, live: &Value, config: &Value) -> Result<Value, String> {
    merge_values(live, config, Typed::root(ty))
}

fn merge_values(live: &Value, config: &Value, typed: Typed) -> Result<Value, String> {
    match (typed, live, config) {
        (Typed::Struct { atomic: false, .. } | Typed::Map { atomic: false, .. }, Value::Object(live), config) => {
            match config {
                Value::Object(config) if !(live.is_empty() && config.is_empty()) => merge_objects(live, config, typed),
                // Null is an object without members, and merging takes nothing away.
                Value::Null if !live.is_empty() => Ok(Value::Object(live.clone())),
                config => Ok(config.clone()),
            }
        }
        (Typed::List { items, kind: kind @ (ListType::Set | ListType::Map(_)) }, Value::Array(live), config) => {
            match config {
                Value::Array(config) if !(live.is_empty() && config.is_empty()) => {
                    merge_lists(live, config, items, kind).map(Value::Array)
                }
                Value::Null if !live.is_empty() => Ok(Value::Array(live.clone())),
                config => Ok(config.clone()),
            }
        }
        (_, _, config) => Ok(config.clone()),
    }
}

fn merge_objects(live: &Object, config: &Object, typed: Typed) -> Result<Value, String> {
    let mut out = live.clone();
    for (name, config) in config {
        let merged = match (live.get(name), typed.member(name)) {
            (Some(live), Some(typed)) => merge_values(live, config, typed)?,
            _ => config.clone(),
        };
        out.insert(name.clone(), merged);
    }
    Ok(Value::Object(out))
}

/// Items that only one side has stay in their places between those that both have, whose order is the configuration's.
fn merge_lists(live: &[Value], config: &[Value], items: &'static Shape, kind: &ListType) -> Result<Vec<Value>, String> {
    let ours = Side::new(live, items, kind)?;
    let theirs = Side::new(config, items, kind)?;
    let typed = Typed::of_element(items);
    let merged_item = |step: &str| -> Result<Value, String> {
        let config = &config[theirs.position[step]];
        match ours.unique(step) {
            Some(at) => merge_values(&live[at], config, typed),
            None => Ok(config.clone()),
        }
    };

    let mut shared = theirs.steps.iter().filter(|step| ours.position.contains_key(step.as_str()));
    let mut next_shared = shared.next();
    let mut done: HashSet<&str> = HashSet::new();
    let mut out = Vec::with_capacity(live.len().max(config.len()));
    let (mut at_ours, mut at_theirs) = (0, 0);
    while at_ours < live.len() || at_theirs < config.len() {
        let our_step = ours.steps.get(at_ours);
        if let (Some(our_step), Some(their_step)) = (our_step, theirs.steps.get(at_theirs)) {
            if our_step == their_step {
                done.insert(our_step);
                out.push(merged_item(our_step)?);
                at_ours += 1;
                at_theirs += 1;
                next_shared = shared.next();
                continue;
            }
            let shared_later = theirs.position.contains_key(our_step.as_str());
            if shared_later && next_shared.is_some_and(|next| next != our_step) {
                at_ours += 1;
                continue;
            }
        }
        if let Some(our_step) = our_step {
            if !theirs.position.contains_key(our_step.as_str()) {
                out.push(live[at_ours].clone());
                at_ours += 1;
                continue;
            }
            if done.contains(our_step.as_str()) {
                at_ours += 1;
            }
        }
        if let Some(their_step) = theirs.steps.get(at_theirs) {
            done.insert(their_step);
            out.push(merged_item(their_step)?);
            at_theirs += 1;
            if next_shared == Some(their_step) {
                next_shared = shared.next();
            }
        }
    }
    Ok(out)
}

/// The identities of a list's items in order, and where each is found.
struct Side {
    steps: Vec<String>,
    position: HashMap<String, usize>,
    repeated: HashSet<String>,
}

impl Side {
    fn new(list: &[Value], items: &'static Shape, kind: &ListType) -> Result<Self, String> {
        let mut side =
            Self { steps: Vec::with_capacity(list.len()), position: HashMap::new(), repeated: HashSet::new() };
        for (at, item) in list.iter().enumerate() {
            let step = element::of_item(item, kind, items)?;
            if side.position.insert(step.clone(), at).is_some() {
                side.repeated.insert(step.clone());
            }
            side.steps.push(step);
        }
        Ok(side)
    }

    /// Where the only item with this identity is.
    fn unique(&self, step: &str) -> Option<usize> {
        if self.repeated.contains(step) { None } else { self.position.get(step).copied() }
    }
}
