//! What is decoded of any object: the metadata that ownership is about.

use std::sync::Arc;

use batch_plan::gc::{Deletion, Kind, Object, OwnerReference, Propagation};
use serde::Deserialize;

use crate::runtime::{Mirrored, intern::Interner};

/// Any object, by its metadata.
#[derive(Debug, Deserialize)]
pub(super) struct Metadata {
    pub(super) metadata: Fields,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Fields {
    pub(super) uid: String,
    pub(super) name: String,
    #[serde(default)]
    pub(super) namespace: String,
    #[serde(default)]
    pub(super) resource_version: String,
    #[serde(default)]
    pub(super) owner_references: Vec<Owner>,
    #[serde(default)]
    pub(super) finalizers: Vec<String>,
    pub(super) deletion_timestamp: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Owner {
    api_version: String,
    kind: String,
    name: String,
    uid: String,
    #[serde(default)]
    block_owner_deletion: bool,
}

impl Mirrored for Metadata {
    fn uid(&self) -> &str {
        &self.metadata.uid
    }

    fn resource_version(&self) -> &str {
        &self.metadata.resource_version
    }
}

/// The object as the graph knows it.
pub(super) fn object(interner: &mut Interner, kind: &Arc<Kind>, fields: Fields) -> Object {
    let owners = fields.owner_references.iter().map(|owner| OwnerReference {
        api_version: interner.text(&owner.api_version),
        kind: interner.text(&owner.kind),
        name: interner.text(&owner.name),
        uid: interner.text(&owner.uid),
        block_owner_deletion: owner.block_owner_deletion,
    });
    Object {
        owners: owners.collect(),
        uid: fields.uid.into(),
        kind: kind.clone(),
        namespace: interner.text(&fields.namespace),
        name: fields.name.into(),
        resource_version: fields.resource_version.into(),
        deletion: Deletion::of(fields.deletion_timestamp.is_some(), &fields.finalizers),
        propagation: Propagation::of(&fields.finalizers),
    }
}

/// The owners of an object that was just read, to compare with what was judged.
pub(super) fn owners(fields: &Fields) -> impl Iterator<Item = &str> {
    fields.owner_references.iter().map(|owner| owner.uid.as_str())
}
