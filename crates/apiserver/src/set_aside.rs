//! Parts of a stored object that a write neither names nor looks at: they stay the bytes that they are (design D3).
//!
//! Most writes to a pod report its status or take a finalizer off, while most of its bytes are the spec. Which parts a
//! write may leave alone its strategy says; here they are only taken out and put back.

use api_schema::{Type, json};
use bytes::Bytes;
use serde_json::{Map, Value};

use crate::{
    attributes,
    status::Status,
    storage::{self, Stored},
};

/// Members of an object, as bytes, in the order of its type.
#[derive(Debug, Default)]
pub(crate) struct SetAside {
    members: Vec<(&'static str, Bytes)>,
}

/// Of objects that are read whole.
pub(crate) static NOTHING: SetAside = SetAside { members: Vec::new() };

impl SetAside {
    /// The stored object without the members, and the members.
    pub(crate) fn split(stored: &Stored, members: &[&'static str]) -> Result<(Value, Self), Status> {
        let mut rest = Map::new();
        let mut aside = Self::default();
        for (name, value) in attributes::members(&stored.value) {
            match members.iter().find(|member| **member == name) {
                Some(member) => aside.members.push((member, value)),
                None => {
                    let value = serde_json::from_slice(&value).map_err(|error| storage::unreadable(stored, &error))?;
                    rest.insert(name, value);
                }
            }
        }
        Ok((Value::Object(rest), aside))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Takes out what conversion to canonical form puts in the place of absent members.
    pub(crate) fn strip(&self, object: &mut Value) {
        if let Some(object) = object.as_object_mut() {
            for (name, _) in &self.members {
                object.shift_remove(*name);
            }
        }
    }

    /// The whole object.
    pub(crate) fn restore(&self, object: &mut Value) {
        if let Some(object) = object.as_object_mut() {
            for (name, bytes) in &self.members {
                // They came from the store, where everything parses.
                object.insert((*name).to_owned(), serde_json::from_slice(bytes).unwrap_or_default());
            }
        }
    }

    /// The whole object as bytes, with room for its version.
    pub(crate) fn stamped(&self, ty: &Type, object: &Value) -> store::Value {
        let raw: Vec<(&str, &[u8])> = self.members.iter().map(|(name, bytes)| (*name, &**bytes)).collect();
        let (head, tail) = json::encode_stamped_with(ty, object, &raw);
        store::Value::stamped(head, tail)
    }
}
