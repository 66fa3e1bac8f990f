//! Reading and writing the fields of `status` the way they travel: zero counters and empty lists are left out, `ready`
//! and `terminating` never are (JC section 20).

use std::collections::BTreeSet;

use k8s_openapi::api::batch::v1::{JobStatus, UncountedTerminatedPods};

use super::Uid;

/// Pods that have ended, are recorded in the status, and are not yet part of the counters.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Uncounted {
    pub(crate) succeeded: Vec<Uid>,
    pub(crate) failed: Vec<Uid>,
}

impl Uncounted {
    /// Well formed whatever the status holds: no empty or repeated entry, none in both lists (INV-5).
    pub(crate) fn read<'a>(status: &'a JobStatus) -> Self {
        let Some(lists) = &status.uncounted_terminated_pods else { return Self::default() };
        let mut seen = BTreeSet::from([""]);
        let mut fresh = |list: &'a Option<Vec<String>>| -> Vec<Uid> {
            list.iter().flatten().filter(|uid| seen.insert(uid)).map(|uid| Uid::new(uid)).collect()
        };
        let failed = fresh(&lists.failed);
        Self { succeeded: fresh(&lists.succeeded), failed }
    }

    pub(crate) fn write(&self, status: &mut JobStatus) {
        let texts = |uids: &[Uid]| (!uids.is_empty()).then(|| uids.iter().map(Uid::to_string).collect());
        status.uncounted_terminated_pods =
            Some(UncountedTerminatedPods { succeeded: texts(&self.succeeded), failed: texts(&self.failed) });
    }

    pub(crate) fn len(&self) -> usize {
        self.succeeded.len() + self.failed.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes out the pods that are `settled` and adds them to the counters (JC-1304). Says whether there were any.
    pub(crate) fn settle(&mut self, status: &mut JobStatus, settled: impl Fn(&Uid) -> bool) -> bool {
        let before = (self.succeeded.len(), self.failed.len());
        self.succeeded.retain(|uid| !settled(uid));
        self.failed.retain(|uid| !settled(uid));
        raise(&mut status.succeeded, before.0 - self.succeeded.len());
        raise(&mut status.failed, before.1 - self.failed.len());
        before != (self.succeeded.len(), self.failed.len())
    }
}

/// A counter that may be absent.
pub(crate) fn count(field: Option<i32>) -> u64 {
    u64::try_from(field.unwrap_or(0)).unwrap_or(0)
}

/// Sets a counter that is left out when it is zero. Says whether that changed it.
pub(crate) fn set_count(field: &mut Option<i32>, value: u64) -> bool {
    let changed = count(*field) != value;
    *field = (value > 0).then(|| clamp(value));
    changed
}

/// Sets a counter that is always written. Says whether that changed it; null is not zero (JC-1301).
pub(crate) fn set_present_count(field: &mut Option<i32>, value: u64) -> bool {
    field.replace(clamp(value)) != Some(clamp(value))
}

/// Sets a text that is left out when it is empty. Says whether that changed it.
pub(crate) fn set_text(field: &mut Option<String>, value: String) -> bool {
    let changed = field.as_deref().unwrap_or("") != value;
    *field = (!value.is_empty()).then_some(value);
    changed
}

fn raise(field: &mut Option<i32>, by: usize) {
    if by > 0 {
        let value = count(*field).saturating_add(by as u64);
        set_count(field, value);
    }
}

fn clamp(value: u64) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// INV-5: also when somebody wrote nonsense by hand.
    #[test]
    fn uncounted_lists_are_read_well_formed() {
        let list = |uids: &[&str]| Some(uids.iter().map(|uid| (*uid).to_owned()).collect());
        let status = JobStatus {
            uncounted_terminated_pods: Some(UncountedTerminatedPods {
                succeeded: list(&["a", "", "a", "b"]),
                failed: list(&["b", "c", "c"]),
            }),
            ..JobStatus::default()
        };
        let uncounted = Uncounted::read(&status);
        assert_eq!(format!("{uncounted:?}"), "Uncounted { succeeded: [a], failed: [b, c] }");
    }

    #[test]
    fn zero_is_left_out_where_upstream_leaves_it_out() {
        let mut field = Some(2);
        assert!(set_count(&mut field, 0));
        assert_eq!(field, None);
        assert!(!set_count(&mut field, 0));
        assert!(set_present_count(&mut field, 0));
        assert_eq!(field, Some(0));
        assert!(!set_present_count(&mut field, 0));
        let mut text = None;
        assert!(!set_text(&mut text, String::new()));
        assert!(set_text(&mut text, "0".to_owned()));
    }
}
