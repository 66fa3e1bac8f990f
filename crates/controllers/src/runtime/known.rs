//! Which objects a mirror has handed on, and in which version: a few bytes for each.

use std::collections::HashMap;

use uuid::Uuid;

/// Versions by uid. Every API server makes uids that are UUIDs, which fit into 16 bytes; others are kept as they are.
#[derive(Debug, Default)]
pub(super) struct Known {
    uuids: HashMap<u128, u64>,
    others: HashMap<Box<str>, u64>,
}

/// A UUID in the one form that can be told from the number alone.
fn number(uid: &str) -> Option<u128> {
    let uuid = Uuid::try_parse(uid).ok()?;
    let canonical = *uuid.hyphenated().encode_lower(&mut Uuid::encode_buffer()) == *uid;
    canonical.then(|| uuid.as_u128())
}

impl Known {
    pub(super) fn get(&self, uid: &str) -> Option<u64> {
        match number(uid) {
            Some(number) => self.uuids.get(&number).copied(),
            None => self.others.get(uid).copied(),
        }
    }

    pub(super) fn insert(&mut self, uid: &str, version: u64) {
        match number(uid) {
            Some(number) => self.uuids.insert(number, version),
            None => self.others.insert(uid.into(), version),
        };
    }

    /// Whether the uid was known.
    pub(super) fn remove(&mut self, uid: &str) -> bool {
        match number(uid) {
            Some(number) => self.uuids.remove(&number).is_some(),
            None => self.others.remove(uid).is_some(),
        }
    }

    /// Forgets all that are not in `listed`, and says which.
    pub(super) fn retain(&mut self, listed: &Known) -> Vec<Box<str>> {
        let text = |number: &u128| Uuid::from_u128(*number).to_string().into_boxed_str();
        let uuids = self.uuids.extract_if(|number, _| !listed.uuids.contains_key(number));
        let mut gone: Vec<Box<str>> = uuids.map(|(number, _)| text(&number)).collect();
        gone.extend(self.others.extract_if(|uid, _| !listed.others.contains_key(uid)).map(|(uid, _)| uid));
        // The maps have no order, and a run must be repeatable.
        gone.sort_unstable();
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// INV-32: ten thousand objects are mirrored, and go one by one or unseen.
    #[test]
    fn reg_a14_nothing_is_remembered_of_what_is_gone() {
        let uid = |number: u128| match number % 3 {
            0 => number.to_string(),
            _ => Uuid::from_u128(number).to_string(),
        };
        let mut known = Known::default();
        (0..10_000).for_each(|number| known.insert(&uid(number), 1));
        (0..5_000).for_each(|number| assert!(known.remove(&uid(number))));
        assert_eq!(known.retain(&Known::default()).len(), 5_000);
        assert!(known.uuids.is_empty() && known.others.is_empty());
    }

    #[test]
    fn uids_of_any_form_are_kept_apart_and_given_back() {
        let uids = ["00000000-0000-4000-8000-00000000000a", "00000000-0000-4000-8000-00000000000A", "u1", ""];
        let mut known = Known::default();
        for (version, uid) in uids.iter().enumerate() {
            known.insert(uid, version as u64);
        }
        for (version, uid) in uids.iter().enumerate() {
            assert_eq!(known.get(uid), Some(version as u64), "{uid}");
        }
        let mut listed = Known::default();
        listed.insert("u1", 9);
        let mut gone = known.retain(&listed);
        gone.sort();
        assert_eq!(gone.iter().map(|uid| &**uid).collect::<Vec<_>>(), [uids[3], uids[1], uids[0]]);
        assert!(known.remove("u1") && !known.remove("u1"));
    }
}
