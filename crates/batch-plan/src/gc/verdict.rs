//! What becomes of an object, given how its owners stand (PL-92).

use super::object::{Object, Propagation, Uid};

/// How an owner reference stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// The owner exists and stays.
    Solid,
    /// The owner does not exist: nothing there, or something of another uid.
    Dangling,
    /// The owner is in foreground deletion.
    Waiting,
}

/// What to do with an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Keep,
    /// Take these owners off it.
    Detach(Vec<Uid>),
    Delete {
        propagation: Propagation,
        /// First let go of its own owners, because waiting for each other would never end.
        unblock_first: bool,
    },
}

/// Judges an object. `standings` is parallel to its owners and has been confirmed by the server.
pub fn verdict(object: &Object, standings: &[Standing], has_dependents: bool, may_be_circular: bool) -> Verdict {
    assert_eq!(object.owners.len(), standings.len(), "every owner has a standing");
    if standings.is_empty() {
        return Verdict::Keep;
    }
    if standings.contains(&Standing::Solid) {
        let pairs = object.owners.iter().zip(standings);
        let gone = pairs.filter(|(_, standing)| **standing != Standing::Solid).map(|(owner, _)| owner.uid.clone());
        let gone: Vec<Uid> = gone.collect();
        return if gone.is_empty() { Verdict::Keep } else { Verdict::Detach(gone) };
    }
    // Somebody waits for this object to go, so it in turn waits for its own dependents.
    if standings.contains(&Standing::Waiting) && has_dependents {
        return Verdict::Delete { propagation: Propagation::Foreground, unblock_first: may_be_circular };
    }
    Verdict::Delete { propagation: object.propagation, unblock_first: false }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Standing::*, *};
    use crate::gc::object::{Deletion, Kind, OwnerReference};

    fn object(owners: usize) -> Object {
        let kind = Kind {
            group: String::new(),
            version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            plural: "pods".to_owned(),
            namespaced: true,
        };
        let owner = |n: usize| OwnerReference {
            api_version: "batch/v1".into(),
            kind: "Job".into(),
            name: "j".into(),
            uid: format!("u{n}").into(),
            block_owner_deletion: true,
        };
        Object {
            uid: "p".into(),
            kind: Arc::new(kind),
            namespace: "ns".into(),
            name: "p".into(),
            resource_version: "1".into(),
            owners: (0..owners).map(owner).collect(),
            deletion: Deletion::No,
            propagation: Propagation::Orphan,
        }
    }

    #[test]
    fn objects_are_kept_detached_or_deleted() {
        let delete = |propagation, unblock_first| Verdict::Delete { propagation, unblock_first };
        let plain = delete(Propagation::Orphan, false);
        let detach = |uids: &[&str]| Verdict::Detach(uids.iter().map(|uid| Uid::from(*uid)).collect());
        let cases: &[(&[Standing], bool, bool, Verdict)] = &[
            (&[], true, true, Verdict::Keep),
            (&[Solid], false, false, Verdict::Keep),
            (&[Solid, Dangling], false, false, detach(&["u1"])),
            (&[Waiting, Solid, Dangling], true, true, detach(&["u0", "u2"])),
            (&[Dangling], false, false, plain.clone()),
            (&[Dangling, Dangling], true, false, plain.clone()),
            (&[Waiting], false, false, plain),
            (&[Waiting], true, false, delete(Propagation::Foreground, false)),
            (&[Dangling, Waiting], true, true, delete(Propagation::Foreground, true)),
        ];
        for (standings, has_dependents, may_be_circular, expected) in cases {
            let found = verdict(&object(standings.len()), standings, *has_dependents, *may_be_circular);
            assert_eq!(found, *expected, "{standings:?} {has_dependents} {may_be_circular}");
        }
    }
}
