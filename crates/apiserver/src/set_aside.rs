//! Parts of an object that a write neither names nor looks at: they stay the bytes that they are (design D3).
//!
//! Most writes to a pod report its status or take a finalizer off, while most of its bytes are the spec. Which parts a
//! write may leave alone its strategy says; here they are only taken out and put back. Who owns what no rule looks at: that is
//! set aside wherever the writer does not speak of it.

use api_schema::{
    Type,
    json::{self, Raw},
};
use bytes::Bytes;
use serde_json::{Map, Value};

use crate::{
    attributes::Members,
    metadata,
    status::Status,
    storage::{self, Stored},
};

/// How many members there mostly are, and how many in metadata.
const TOP_MEMBERS: usize = 5;
const METADATA_MEMBERS: usize = 14;

/// Members of an object as bytes, in the order of its type, and the record of who owns what.
#[derive(Debug, Clone, Default)]
pub(crate) struct SetAside {
    members: Vec<(&'static str, Bytes)>,
    managed_fields: Option<Bytes>,
}

/// Of objects that are read whole.
pub(crate) static NOTHING: SetAside = SetAside { members: Vec::new(), managed_fields: None };

impl SetAside {
    /// Of a new object, whose owners are these.
    pub(crate) fn owners(managed_fields: Option<Bytes>) -> Self {
        Self { managed_fields, ..Self::default() }
    }

    /// The stored object without the members and managedFields, and those.
    pub(crate) fn split(stored: &Stored, members: &[&'static str]) -> Result<(Value, Self), Status> {
        let bytes = stored.value();
        let mut reading = Members::of(&bytes);
        let unreadable = |error| storage::unreadable(stored, &error);
        let mut rest = Map::with_capacity(TOP_MEMBERS);
        let mut aside = Self::default();
        while let Some(name) = reading.next_name() {
            if let Some(member) = members.iter().find(|member| **member == name) {
                aside.members.push((member, bytes.slice(reading.span())));
            } else if name == "metadata" && reading.enter() {
                let mut metadata = Map::with_capacity(METADATA_MEMBERS);
                while let Some(name) = reading.next_name() {
                    if name == "managedFields" {
                        aside.managed_fields = Some(bytes.slice(reading.span()));
                    } else {
                        metadata.insert(name.to_owned(), reading.value().map_err(unreadable)?);
                    }
                }
                rest.insert(name.to_owned(), Value::Object(metadata));
            } else {
                rest.insert(name.to_owned(), reading.value().map_err(unreadable)?);
            }
        }
        Ok((Value::Object(rest), aside))
    }

    /// Who owns what, if that is set aside.
    pub(crate) fn managed_fields(&self) -> Option<&Bytes> {
        self.managed_fields.as_ref()
    }

    /// The same with another record of who owns what.
    pub(crate) fn with_managed_fields(&self, managed_fields: Option<Bytes>) -> Self {
        Self { members: self.members.clone(), managed_fields }
    }

    /// Whether it is without members.
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
        if let Some(bytes) = &self.managed_fields {
            let list = serde_json::from_slice(bytes).unwrap_or_default();
            metadata::of(object).insert("managedFields".to_owned(), list);
        }
    }

    /// The whole object as bytes, with room for its version.
    pub(crate) fn stamped(&self, ty: &Type, object: &Value) -> store::Value {
        let raw: Vec<(&str, &[u8])> = self.members.iter().map(|(name, bytes)| (*name, &**bytes)).collect();
        let raw = Raw { members: &raw, managed_fields: self.managed_fields.as_deref() };
        let (head, tail) = json::encode_stamped_with(ty, object, &raw);
        store::Value::stamped(head, tail)
    }
}
