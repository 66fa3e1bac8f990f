//! A Job in a few bytes, and as the plan and the API server's validation see it.

use std::sync::{Arc, OnceLock};

use batch_plan::job::Uid;
use batch_types::constants::{condition, reason};
use batch_types::index_ranges::IndexSet;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobStatus, UncountedTerminatedPods};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::pod::{NO_INDEX, NUMBERS, Name, PODS, pod_uid, slot_of};

/// `completions` of a Job that has none.
pub(crate) const WORK_QUEUE: u8 = u8::MAX;

pub(crate) const SUCCESS_CRITERIA_MET: u8 = 1;
pub(crate) const FAILURE_TARGET: u8 = 2;
pub(crate) const COMPLETE: u8 = 4;
pub(crate) const FAILED: u8 = 8;
/// Some condition type occurs twice.
pub(crate) const TWICE: u8 = 16;

/// A Job object, or its absence.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct JobState {
    pub(crate) exists: bool,
    /// 0, or 1 for the namesake that was created later.
    pub(crate) generation: u8,
    pub(crate) parallelism: u8,
    pub(crate) completions: u8,
    pub(crate) suspend: bool,
    pub(crate) deleting: bool,
    pub(crate) status: Status,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Status {
    /// Whether `ready` and `terminating` were ever written.
    pub(crate) written: bool,
    pub(crate) active: u8,
    pub(crate) terminating: u8,
    pub(crate) succeeded: u8,
    pub(crate) failed: u8,
    /// Slots of the pods in `uncountedTerminatedPods`.
    pub(crate) uncounted_succeeded: u8,
    pub(crate) uncounted_failed: u8,
    pub(crate) completed: u8,
    pub(crate) failed_indexes: u8,
    pub(crate) start: Start,
    pub(crate) suspended: Suspended,
    /// Conditions that are True.
    pub(crate) conditions: u8,
    /// Position in [`REASONS`] of the verdict's reason, plus one.
    pub(crate) reason: u8,
    pub(crate) completion_time: bool,
}

/// `startTime`: none, at the beginning, or after the deadline has passed once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) enum Start {
    #[default]
    None,
    Early,
    Late,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) enum Suspended {
    #[default]
    Absent,
    True,
    False,
}

const REASONS: [&str; 7] = [
    reason::BACKOFF_LIMIT_EXCEEDED,
    reason::DEADLINE_EXCEEDED,
    reason::POD_FAILURE_POLICY,
    reason::MAX_FAILED_INDEXES_EXCEEDED,
    reason::FAILED_INDEXES,
    reason::SUCCESS_POLICY,
    reason::COMPLETIONS_REACHED,
];

impl JobState {
    pub(crate) fn has(&self, conditions: u8) -> bool {
        self.exists && self.status.conditions & conditions != 0
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.has(COMPLETE | FAILED)
    }

    pub(crate) fn has_verdict(&self) -> bool {
        self.has(SUCCESS_CRITERIA_MET | FAILURE_TARGET)
    }

    /// The object, made from one of the same configuration.
    pub(crate) fn object(&self, base: &Job, per_index: bool) -> Job {
        let mut job = base.clone();
        job.metadata.uid = Some(job_uid(self.generation).to_string());
        job.metadata.deletion_timestamp = self.deleting.then(|| Time(Clock::Early.now()));
        if let Some(spec) = &mut job.spec {
            spec.parallelism = Some(i32::from(self.parallelism));
            spec.completions = (self.completions != WORK_QUEUE).then_some(i32::from(self.completions));
            spec.suspend = Some(self.suspend);
        }
        job.status = Some(self.status.object(per_index));
        job
    }
}

impl Status {
    /// The status as it travels.
    pub(crate) fn object(&self, per_index: bool) -> JobStatus {
        let counter = |value: u8| (value > 0).then_some(i32::from(value));
        let indexes = |mask: u8| IndexSet::from_indexes((0..8).filter(|bit| mask >> bit & 1 == 1)).to_string();
        let uids = |mask: u8| -> Option<Vec<String>> {
            (mask != 0).then(|| slots(mask).map(|slot| pod_uid(slot).to_string()).collect())
        };
        JobStatus {
            active: counter(self.active),
            ready: self.written.then_some(0),
            terminating: self.written.then_some(i32::from(self.terminating)),
            succeeded: counter(self.succeeded),
            failed: counter(self.failed),
            completed_indexes: (self.completed != 0).then(|| indexes(self.completed)),
            failed_indexes: (self.written && per_index).then(|| indexes(self.failed_indexes)),
            uncounted_terminated_pods: self.written.then(|| UncountedTerminatedPods {
                succeeded: uids(self.uncounted_succeeded),
                failed: uids(self.uncounted_failed),
            }),
            start_time: match self.start {
                Start::None => None,
                Start::Early => Some(Time(Clock::Early.now())),
                Start::Late => Some(Time(Clock::Late.now())),
            },
            completion_time: self.completion_time.then(|| Time(Clock::Late.now())),
            conditions: self.condition_objects(),
        }
    }

    fn condition_objects(&self) -> Option<Vec<JobCondition>> {
        let verdict = REASONS.get(usize::from(self.reason).wrapping_sub(1)).copied().unwrap_or("");
        let kinds = [
            (SUCCESS_CRITERIA_MET, condition::SUCCESS_CRITERIA_MET),
            (FAILURE_TARGET, condition::FAILURE_TARGET),
            (COMPLETE, condition::COMPLETE),
            (FAILED, condition::FAILED),
        ];
        let suspended = match self.suspended {
            Suspended::Absent => None,
            Suspended::True => Some((condition::SUSPENDED, condition::TRUE, reason::JOB_SUSPENDED, "Job suspended")),
            Suspended::False => Some((condition::SUSPENDED, condition::FALSE, reason::JOB_RESUMED, "Job resumed")),
        };
        let set = kinds.into_iter().filter(|(bit, _)| self.conditions & bit != 0);
        let verdicts = set.map(|(_, kind)| (kind, condition::TRUE, verdict, "m"));
        let all: Vec<JobCondition> = suspended.into_iter().chain(verdicts).map(condition_object).collect();
        (!all.is_empty()).then_some(all)
    }

    /// What is kept of a status that the plan wants written.
    pub(crate) fn read(status: &JobStatus) -> Self {
        let counter = |value: Option<i32>| u8::try_from(value.unwrap_or(0)).expect("a small count");
        let uncounted = status.uncounted_terminated_pods.as_ref();
        let uids = |list: Option<&Option<Vec<String>>>| {
            let all = list.and_then(Option::as_ref).into_iter().flatten();
            all.fold(0, |mask, uid| mask | 1 << slot_of(uid))
        };
        let indexes = |text: &Option<String>| {
            let set = IndexSet::parse(text.as_deref().unwrap_or(""), 8);
            set.iter().fold(0, |mask, index| mask | 1 << index)
        };
        let mut read = Self {
            written: status.ready.is_some(),
            active: counter(status.active),
            terminating: counter(status.terminating),
            succeeded: counter(status.succeeded),
            failed: counter(status.failed),
            uncounted_succeeded: uids(uncounted.map(|lists| &lists.succeeded)),
            uncounted_failed: uids(uncounted.map(|lists| &lists.failed)),
            completed: indexes(&status.completed_indexes),
            failed_indexes: indexes(&status.failed_indexes),
            start: match &status.start_time {
                None => Start::None,
                Some(at) if at.0 == Clock::Early.now() => Start::Early,
                Some(_) => Start::Late,
            },
            suspended: Suspended::Absent,
            conditions: 0,
            reason: 0,
            completion_time: status.completion_time.is_some(),
        };
        for found in status.conditions.iter().flatten() {
            read.take_condition(found);
        }
        read
    }

    fn take_condition(&mut self, found: &JobCondition) {
        let is_true = found.status == condition::TRUE;
        let bit = match found.type_.as_str() {
            condition::SUCCESS_CRITERIA_MET => SUCCESS_CRITERIA_MET,
            condition::FAILURE_TARGET => FAILURE_TARGET,
            condition::COMPLETE => COMPLETE,
            condition::FAILED => FAILED,
            _ => {
                self.suspended = if is_true { Suspended::True } else { Suspended::False };
                return;
            }
        };
        if !is_true {
            return;
        }
        let known = REASONS.iter().position(|reason| found.reason.as_deref() == Some(reason));
        self.reason = known.map_or(0, |position| position as u8 + 1);
        self.conditions |= if self.conditions & bit != 0 { TWICE } else { bit };
    }
}

/// The bits of a mask of slots.
pub(crate) fn slots(mask: u8) -> impl Iterator<Item = usize> {
    (0..PODS).filter(move |slot| mask >> slot & 1 == 1)
}

fn condition_object((kind, status, reason, message): (&str, &str, &str, &str)) -> JobCondition {
    JobCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_probe_time: None,
        last_transition_time: None,
    }
}

/// The moments that matter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) enum Clock {
    /// The beginning of time.
    #[default]
    Early,
    /// After the deadline of a Job that started at the beginning, before anything of ours times out.
    Late,
    /// Long after everything has timed out.
    MuchLater,
}

impl Clock {
    pub(crate) fn now(self) -> Timestamp {
        let seconds = match self {
            Self::Early => 0,
            Self::Late => 100,
            Self::MuchLater => 4000,
        };
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
    }
}

pub(crate) fn job_uid(generation: u8) -> Uid {
    Uid::new(["10000000-0000-4000-8000-000000000000", "20000000-0000-4000-8000-000000000000"][usize::from(generation)])
}

/// The name of a pod as the plan gives it.
pub(crate) fn pod_name(name: Name) -> Arc<str> {
    names()[usize::from(name.generation)][usize::from(name.index)][usize::from(name.number)].clone()
}

/// The number in a name that the plan gave; nothing if it is none of the first few.
pub(crate) fn number_of(generation: u8, index: Option<u32>, text: &str) -> Option<u8> {
    let index = index.map_or(usize::from(NO_INDEX), |index| index as usize);
    let known = names()[usize::from(generation)].get(index)?.iter().position(|name| **name == *text)?;
    u8::try_from(known).ok()
}

type Names = [[Vec<Arc<str>>; 4]; 2];

fn names() -> &'static Names {
    static NAMES: OnceLock<Names> = OnceLock::new();
    NAMES.get_or_init(|| {
        let of = |generation: u8, index: u8| {
            let index = (index != NO_INDEX).then_some(u32::from(index));
            let name = |number: u8| batch_plan::job::pod_name("a", &job_uid(generation), index, u64::from(number));
            (0..NUMBERS).map(|number| name(number).into()).collect()
        };
        [0, 1].map(|generation| [0, 1, 2, NO_INDEX].map(|index| of(generation, index)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_survives_the_journey() {
        let status = Status {
            written: true,
            active: 1,
            terminating: 2,
            succeeded: 2,
            failed: 1,
            uncounted_succeeded: 0b10_0001,
            uncounted_failed: 0b100,
            completed: 0b101,
            failed_indexes: 0b10,
            start: Start::Early,
            suspended: Suspended::False,
            conditions: FAILURE_TARGET | FAILED,
            reason: 3,
            completion_time: false,
        };
        assert_eq!(Status::read(&status.object(true)), status);
        assert_eq!(Status::read(&Status::default().object(false)), Status::default());
    }

    #[test]
    fn names_lead_back_to_their_number() {
        for name in [Name { generation: 0, index: 1, number: 3 }, Name { generation: 1, index: NO_INDEX, number: 7 }] {
            assert_eq!(number_of(name.generation, name.index(), &pod_name(name)), Some(name.number));
        }
        assert_eq!(number_of(0, None, "something"), None);
    }
}
