//! What the server has said of the pods of one Job, where the cache may be older.
//!
//! After a restart the first list can be older than what an earlier process did (P-9). The watch then shows the past, event
//! by event: pods that were removed long ago come and go once more. To plan by them would be to remove one of the present
//! pods in their place, or to count one that was counted; and a new pod may have the name of one of them.

use std::collections::BTreeMap;

use super::Uid;
use super::pod_view::PodView;

/// All pods of a Job at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Census {
    /// The version of the list: whatever was done to pods before it has a lower one.
    pub at: u64,
    /// The version of each pod.
    pub pods: BTreeMap<Uid, u64>,
}

impl Census {
    /// The version from which on a cache shows all of them as they were.
    pub fn newest(&self) -> u64 {
        self.pods.values().copied().max().unwrap_or(0)
    }

    /// Whether this is a state of a pod that was gone by then.
    pub(super) fn is_past(&self, pod: &PodView) -> bool {
        let version = pod.resource_version.parse::<u64>();
        version.is_ok_and(|version| version <= self.at) && !self.pods.contains_key(&pod.uid)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_that_was_gone_by_then_is_of_the_past() {
        let census = Census { at: 20, pods: [(Uid::new("there"), 15)].into() };
        let pod = |uid: &str, version: &str| {
            serde_json::from_value(json!({"metadata": {"uid": uid, "resourceVersion": version}})).unwrap()
        };
        assert_eq!(census.newest(), 15);
        assert!(census.is_past(&pod("gone", "7")) && census.is_past(&pod("gone", "20")));
        assert!(!census.is_past(&pod("new", "21")), "it was made since");
        assert!(!census.is_past(&pod("there", "7")), "newer states of it are to come");
        assert!(!census.is_past(&pod("gone", "")), "nobody knows");
    }
}
