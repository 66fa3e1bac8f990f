//! The list of a Job's conditions (JC section 19).

use batch_types::constants::{condition, reason};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{JobCondition, JobStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use teeth::{Mutation, is};

/// The condition of that type.
pub(crate) fn find<'a>(status: &'a JobStatus, kind: &str) -> Option<&'a JobCondition> {
    status.conditions.iter().flatten().find(|found| found.type_ == kind)
}

/// A condition that was just reached.
pub(crate) fn fresh(kind: &str, status: &str, reason: &str, message: &str, now: Timestamp) -> JobCondition {
    JobCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_probe_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    }
}

/// JC-1901. Says whether the list changed. There is never a second condition of a type: upstream appends interim
/// conditions blindly, which goes wrong when somebody put one there with status False (Q-11, REG-B04).
pub(crate) fn upsert(status: &mut JobStatus, new: JobCondition) -> bool {
    let list = status.conditions.get_or_insert_default();
    match list.iter_mut().find(|known| known.type_ == new.type_ && !is(Mutation::B02)) {
        Some(known) if known.status == new.status && known.reason == new.reason && known.message == new.message => {
            false
        }
        Some(known) => {
            *known = new;
            true
        }
        None if new.status == condition::FALSE => {
            status.conditions = std::mem::take(&mut status.conditions).filter(|list| !list.is_empty());
            false
        }
        None => {
            list.push(new);
            true
        }
    }
}

pub(crate) fn suspended(now: Timestamp) -> JobCondition {
    fresh(condition::SUSPENDED, condition::TRUE, reason::JOB_SUSPENDED, "Job suspended", now)
}

pub(crate) fn resumed(now: Timestamp) -> JobCondition {
    fresh(condition::SUSPENDED, condition::FALSE, reason::JOB_RESUMED, "Job resumed", now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statuses(status: &JobStatus) -> String {
        let list = status.conditions.iter().flatten();
        list.map(|item| format!("{}={}/{}", item.type_, item.status, item.reason.as_deref().unwrap_or(""))).collect()
    }

    /// V-16.
    #[test]
    fn upsert_replaces_in_place_and_adds_nothing_false() {
        let cases = [
            (None, ("True", "foo"), true, "Failed=True/foo"),
            (None, ("False", "foo"), false, ""),
            (Some(("True", "foo")), ("True", "bar"), true, "Failed=True/bar"),
            (Some(("True", "foo")), ("False", "foo"), true, "Failed=False/foo"),
            (Some(("False", "foo")), ("True", "foo"), true, "Failed=True/foo"),
            (Some(("True", "foo")), ("True", "foo"), false, "Failed=True/foo"),
        ];
        let new = |(status, reason): (&str, &str)| fresh("Failed", status, reason, "", Timestamp::UNIX_EPOCH);
        for (before, added, changed, after) in cases {
            let mut status = JobStatus { conditions: before.map(|known| vec![new(known)]), ..JobStatus::default() };
            assert_eq!(upsert(&mut status, new(added)), changed, "{before:?} + {added:?}");
            assert_eq!(statuses(&status), after, "{before:?} + {added:?}");
        }
    }
}
