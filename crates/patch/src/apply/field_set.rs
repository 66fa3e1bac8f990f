//! Sets of field paths, kept as what they are on the wire: the `FieldsV1` trie (AS-131).
//!
//! A node `{}` is a member; a node with children is a member only if one of them is `.`. Nothing else is stored for a
//! set, because sets are read, compared and written back on every request but hardly ever change.

use serde_json::Value;
use thiserror::Error;

use super::{Object, element};
use crate::bounds::DEPTH_MAX;

/// The mark of a node that is a member although it has children.
const SELF: &str = ".";

/// A set of fields.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FieldSet(Object);

/// Why a `fieldsV1` is none.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct FieldSetError(String);

impl FieldSet {
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads `fieldsV1` as a client may have written it.
    pub fn from_wire(wire: &Value) -> Result<Self, FieldSetError> {
        let mut root = normal_node(wire, DEPTH_MAX).map_err(FieldSetError)?;
        root.shift_remove(SELF);
        Ok(Self(root))
    }

    /// The set as `fieldsV1`, its members sorted.
    pub fn into_wire(mut self) -> Value {
        self.sort();
        self.into_value()
    }

    /// Every path in the set: members of a node first, then those below its children, each sorted.
    pub fn paths(&self) -> Vec<Vec<String>> {
        let mut out = Vec::new();
        collect_paths(&self.0, &mut Vec::new(), &mut out);
        out
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes over a trie that was written by us.
    pub(super) fn trusted(root: Object) -> Self {
        Self(root)
    }

    /// The trie itself.
    pub(super) fn root(&self) -> &Object {
        &self.0
    }

    /// Members in the order in which they are written; sets that only lose members stay sorted.
    pub(super) fn sort(&mut self) {
        let mut wire = Value::Object(std::mem::take(&mut self.0));
        wire.sort_all_objects();
        if let Value::Object(root) = wire {
            self.0 = root;
        }
    }

    /// The set as it is, for sets that are sorted.
    pub(super) fn into_value(self) -> Value {
        Value::Object(self.0)
    }

    pub(super) fn from_names(paths: &[&[&str]]) -> Self {
        let mut set = Self::new();
        for path in paths {
            let path: Vec<String> = path.iter().map(|name| element::field(name)).collect();
            set.insert(&path);
        }
        set
    }

    pub(super) fn insert(&mut self, path: &[String]) {
        insert(&mut self.0, path);
    }

    /// Adds the members of `other`; true if some of them are new, and the set may not be sorted any more.
    pub(super) fn union(&mut self, other: Self) -> bool {
        unite(&mut self.0, other.0)
    }

    /// Removes the members of `other`; what is below them stays.
    pub(super) fn subtract(&mut self, other: &Self) {
        subtract(&mut self.0, &other.0, false);
    }

    /// Removes the members of `other` and everything below them.
    pub(super) fn subtract_with_children(&mut self, other: &Self) {
        subtract(&mut self.0, &other.0, true);
    }

    pub(super) fn intersection(&self, other: &Self) -> Self {
        Self(intersect(&self.0, &other.0))
    }
}

pub(super) fn is_member(node: &Object) -> bool {
    node.is_empty() || node.contains_key(SELF)
}

/// Hangs a new node below `parent`: a member, a path to members, or nothing if it is neither. `children` bear no mark.
pub(super) fn attach(parent: &mut Object, step: String, mut children: Object, member: bool) {
    if !children.is_empty() {
        if member {
            children.insert(SELF.to_owned(), Value::Object(Object::new()));
        }
        parent.insert(step, Value::Object(children));
    } else if member {
        parent.insert(step, Value::Object(Object::new()));
    }
}

/// The children of a node, without its mark.
pub(super) fn children(node: &Object) -> impl Iterator<Item = (&String, &Object)> {
    node.iter().filter(|(step, _)| *step != SELF).filter_map(|(step, child)| Some((step, child.as_object()?)))
}

/// Writes membership into a node that has its children already; a node without any says it by being there.
fn set_member(node: &mut Object, member: bool) {
    let marked = node.contains_key(SELF);
    if member && !marked && !node.is_empty() {
        node.shift_insert(0, SELF.to_owned(), Value::Object(Object::new()));
    } else if marked && (!member || node.len() == 1) {
        node.shift_remove(SELF);
    }
}

fn insert(node: &mut Object, path: &[String]) {
    let Some((step, rest)) = path.split_first() else { return };
    match node.get_mut(step) {
        Some(Value::Object(child)) => {
            let member = is_member(child) || rest.is_empty();
            insert(child, rest);
            set_member(child, member);
        }
        _ => {
            let mut child = Object::new();
            insert(&mut child, rest);
            node.insert(step.clone(), Value::Object(child));
        }
    }
}

fn unite(node: &mut Object, other: Object) -> bool {
    let mut grown = false;
    for (step, theirs) in other {
        let Value::Object(theirs) = theirs else { continue };
        match node.get_mut(&step) {
            Some(Value::Object(ours)) => {
                let (member, joins) = (is_member(ours), is_member(&theirs));
                grown |= joins && !member;
                grown |= unite_children(ours, theirs);
                set_member(ours, member || joins);
            }
            _ => {
                node.insert(step, Value::Object(theirs));
                grown = true;
            }
        }
    }
    grown
}

fn unite_children(node: &mut Object, mut other: Object) -> bool {
    other.swap_remove(SELF);
    !other.is_empty() && unite(node, other)
}

fn subtract(node: &mut Object, other: &Object, with_children: bool) {
    for (step, theirs) in children(other) {
        let Some(Value::Object(ours)) = node.get_mut(step) else { continue };
        let named = is_member(theirs);
        let member = is_member(ours) && !named;
        if named && with_children {
            ours.clear();
        } else {
            set_member(ours, false);
            subtract(ours, theirs, with_children);
        }
        set_member(ours, member);
        if !member && ours.is_empty() {
            node.shift_remove(step);
        }
    }
}

fn intersect(node: &Object, other: &Object) -> Object {
    let mut out = Object::new();
    for (step, theirs) in children(other) {
        if let Some(Value::Object(ours)) = node.get(step) {
            attach(&mut out, step.clone(), intersect(ours, theirs), is_member(ours) && is_member(theirs));
        }
    }
    out
}

/// A node from a client in normal form. Steps of unknown kinds are dropped, as a newer server's would be.
fn normal_node(wire: &Value, depth_left: usize) -> Result<Object, String> {
    let node = match wire {
        Value::Null => return Ok(Object::new()),
        Value::Object(node) => node,
        _ => return Err("expected an object".into()),
    };
    let depth_left = depth_left.checked_sub(1).ok_or_else(|| format!("exceeded max depth of {DEPTH_MAX}"))?;
    let mut out = Object::new();
    for (step, child) in node {
        if step == SELF {
            continue;
        }
        if let Some(step) = element::normal(step)? {
            let child = normal_node(child, depth_left)?;
            out.insert(step, Value::Object(child));
        }
    }
    set_member(&mut out, node.contains_key(SELF));
    Ok(out)
}

fn collect_paths(node: &Object, prefix: &mut Vec<String>, out: &mut Vec<Vec<String>>) {
    let mut sorted: Vec<_> = children(node).collect();
    sorted.sort_unstable_by_key(|(step, _)| step.as_str());
    for (step, child) in &sorted {
        if is_member(child) {
            out.push(prefix.iter().chain([*step]).cloned().collect());
        }
    }
    for (step, child) in sorted {
        prefix.push(step.clone());
        collect_paths(child, prefix, out);
        prefix.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn set(wire: Value) -> FieldSet {
        FieldSet::from_wire(&wire).unwrap()
    }

    #[test]
    fn nodes_lose_and_keep_their_mark() {
        let mut poster = set(json!({"f:data": {".": {}, "f:a": {}}}));
        poster.subtract(&set(json!({"f:data": {"f:a": {}}})));
        assert_eq!(poster.into_wire(), json!({"f:data": {}}));

        let mut owner = set(json!({"f:data": {".": {}, "f:a": {}}}));
        owner.subtract(&set(json!({"f:data": {}})));
        assert_eq!(owner.clone().into_wire(), json!({"f:data": {"f:a": {}}}));
        owner.union(set(json!({"f:data": {}})));
        assert_eq!(owner.into_wire(), json!({"f:data": {".": {}, "f:a": {}}}));

        let mut leaf = set(json!({"f:data": {}}));
        leaf.union(set(json!({"f:data": {"f:a": {}}})));
        assert_eq!(leaf.clone().into_wire(), json!({"f:data": {".": {}, "f:a": {}}}));
        leaf.subtract_with_children(&set(json!({"f:data": {}})));
        assert!(leaf.is_empty());
    }

    #[test]
    fn marks_are_not_paths_and_empty_nodes_are_members() {
        let set = set(json!({".": {}, "f:a": {".": {}}, "f:b": {"f:c": {}, ".": {}}, "q:new": {"f:x": {}}}));
        assert_eq!(set.clone().into_wire(), json!({"f:a": {}, "f:b": {".": {}, "f:c": {}}}));
        assert_eq!(set.paths(), [vec!["f:a".to_owned()], vec!["f:b".into()], vec!["f:b".into(), "f:c".into()]]);
    }

    #[test]
    fn what_is_no_trie_is_refused() {
        for bad in [json!([]), json!({"f:a": 1}), json!({"a": {}}), json!({"k:x": {}})] {
            assert!(FieldSet::from_wire(&bad).is_err(), "{bad}");
        }
        let mut deep = json!({});
        for _ in 0..2 * DEPTH_MAX {
            deep = json!({"f:a": deep});
        }
        assert!(FieldSet::from_wire(&deep).is_err());
    }

    fn paths() -> impl Strategy<Value = Vec<Vec<String>>> {
        let step = prop_oneof!["f:[a-c]", Just(r#"k:{"name":"a"}"#.to_owned()), Just(r#"v:"x""#.to_owned()),];
        proptest::collection::vec(proptest::collection::vec(step, 1..4), 0..8)
    }

    fn from_paths(paths: &[Vec<String>]) -> FieldSet {
        let mut set = FieldSet::new();
        paths.iter().for_each(|path| set.insert(path));
        set
    }

    fn as_btree(set: &FieldSet) -> std::collections::BTreeSet<Vec<String>> {
        set.paths().into_iter().collect()
    }

    proptest! {
        #[test]
        fn the_wire_form_reads_back_as_the_same_set(paths in paths()) {
            let set = from_paths(&paths);
            prop_assert_eq!(as_btree(&set), paths.into_iter().collect());
            let wire = set.clone().into_wire();
            let read = FieldSet::from_wire(&wire).unwrap();
            prop_assert_eq!(as_btree(&read), as_btree(&set));
            prop_assert_eq!(read.into_wire(), wire);
        }

        #[test]
        fn operations_are_those_of_sets(left in paths(), right in paths()) {
            let (a, b) = (from_paths(&left), from_paths(&right));
            let (plain_a, plain_b) = (as_btree(&a), as_btree(&b));

            let mut union = a.clone();
            union.union(b.clone());
            prop_assert_eq!(as_btree(&union), plain_a.union(&plain_b).cloned().collect());
            let mut difference = a.clone();
            difference.subtract(&b);
            prop_assert_eq!(as_btree(&difference), plain_a.difference(&plain_b).cloned().collect());
            prop_assert_eq!(as_btree(&a.intersection(&b)), plain_a.intersection(&plain_b).cloned().collect());
            let mut below = a;
            below.subtract_with_children(&b);
            let kept = plain_a.iter().filter(|path| !plain_b.iter().any(|gone| path.starts_with(gone))).cloned();
            prop_assert_eq!(as_btree(&below), kept.collect());
        }
    }
}
