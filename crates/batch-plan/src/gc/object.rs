//! What the garbage collector knows of an object: metadata only.

use std::sync::Arc;

use batch_types::constants::finalizer;

/// The identity of an object (INV-31). Shared, because an owner's uid is repeated in each of its dependents.
pub type Uid = Arc<str>;

/// A kind of object and where its objects are.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Kind {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub plural: String,
    pub namespaced: bool,
}

/// An object of any kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    pub uid: Uid,
    pub kind: Arc<Kind>,
    /// Empty for objects of the cluster.
    pub namespace: Arc<str>,
    pub name: Box<str>,
    pub resource_version: Box<str>,
    pub owners: Box<[OwnerReference]>,
    pub deletion: Deletion,
    /// How its finalizers say that it goes.
    pub propagation: Propagation,
}

/// How the dependents of a deleted object are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Propagation {
    #[default]
    Background,
    Foreground,
    Orphan,
}

impl Propagation {
    pub fn of(finalizers: &[impl AsRef<str>]) -> Self {
        let has = |name: &str| finalizers.iter().any(|finalizer| finalizer.as_ref() == name);
        if has(finalizer::ORPHAN_DEPENDENTS) {
            Self::Orphan
        } else if has(finalizer::FOREGROUND_DELETION) {
            Self::Foreground
        } else {
            Self::Background
        }
    }
}

/// An entry of `metadata.ownerReferences`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerReference {
    pub api_version: Arc<str>,
    pub kind: Arc<str>,
    pub name: Arc<str>,
    pub uid: Uid,
    pub block_owner_deletion: bool,
}

impl OwnerReference {
    /// The API group: versions within a group do not matter (PL-91).
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }
}

/// Whether an object is being deleted, and what for it waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Deletion {
    /// It has no deletionTimestamp.
    #[default]
    No,
    /// It has a deletionTimestamp, and if it stays that is not the garbage collector's affair.
    Plain,
    /// It stays until its dependents are gone: finalizer `foregroundDeletion`.
    Foreground,
    /// It stays until its dependents have forgotten it: finalizer `orphan`.
    Orphan,
}

impl Deletion {
    /// From the two facts in `metadata`.
    pub fn of(deleting: bool, finalizers: &[impl AsRef<str>]) -> Self {
        let has = |name: &str| finalizers.iter().any(|finalizer| finalizer.as_ref() == name);
        match deleting {
            false => Self::No,
            true if has(finalizer::FOREGROUND_DELETION) => Self::Foreground,
            true if has(finalizer::ORPHAN_DEPENDENTS) => Self::Orphan,
            true => Self::Plain,
        }
    }
}
