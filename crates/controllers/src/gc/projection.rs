//! What is decoded of any object: the metadata that ownership is about.

use std::{collections::HashSet, sync::Arc};

use batch_plan::gc::{Deletion, Kind, Object, OwnerReference, Propagation};
use serde::Deserialize;

use crate::runtime::Mirrored;

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

/// Texts that are repeated over and over, kept once: namespaces, and what dependents say about their owner. A hundred
/// thousand pods of one Job name the same owner.
#[derive(Debug, Default)]
pub(super) struct Interner {
    texts: HashSet<Arc<str>>,
}

/// When so many texts are known, those that nobody uses any more are forgotten.
const TEXTS_SWEEP: usize = 16384;

impl Interner {
    fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return known.clone();
        }
        if self.texts.len() >= TEXTS_SWEEP && self.texts.len().is_power_of_two() {
            self.texts.retain(|text| Arc::strong_count(text) > 1);
        }
        let text: Arc<str> = text.into();
        self.texts.insert(text.clone());
        text
    }

    pub(super) fn object(&mut self, kind: &Arc<Kind>, fields: Fields) -> Object {
        let owners = fields.owner_references.into_iter().map(|owner| OwnerReference {
            api_version: self.text(&owner.api_version),
            kind: self.text(&owner.kind),
            name: self.text(&owner.name),
            uid: self.text(&owner.uid),
            block_owner_deletion: owner.block_owner_deletion,
        });
        Object {
            owners: owners.collect(),
            uid: fields.uid.into(),
            kind: kind.clone(),
            namespace: self.text(&fields.namespace),
            name: fields.name.into(),
            resource_version: fields.resource_version.into(),
            deletion: Deletion::of(fields.deletion_timestamp.is_some(), &fields.finalizers),
            propagation: Propagation::of(&fields.finalizers),
        }
    }
}

/// The owners of an object that was just read, to compare with what was judged.
pub(super) fn owners(fields: &Fields) -> impl Iterator<Item = &str> {
    fields.owner_references.iter().map(|owner| owner.uid.as_str())
}
