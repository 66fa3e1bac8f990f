//! What may be written to a Job's `/status` (JA section 9).
//!
//! Most rules bind only requests that change what they govern, so that bad data already stored never blocks unrelated
//! updates (JA-S2). Since any controller may own a Job through `managedBy`, the rules bind them all alike (JA-S45).

use std::collections::BTreeSet;

use k8s_openapi::api::batch::v1::{Job, JobSpec, JobStatus};
use serde_json::Value;

use super::{has_condition, has_condition_status, is_finished, is_indexed};
use crate::constants::condition::{self, COMPLETE, FAILED, FAILURE_TARGET, SUCCESS_CRITERIA_MET, SUSPENDED};
use crate::equality::typed_eq;
use crate::field::{Error, Path};
use crate::gates::Gates;
use crate::index_ranges;
use crate::meta::{self, IMMUTABLE, same_time, time_value, validate_non_negative};

/// Everything wrong with an update of `/status`.
pub fn validate_status_update(new: &Job, old: &Job, gates: &Gates) -> Vec<Error> {
    let (unset_spec, unset_status) = (JobSpec::default(), JobStatus::default());
    let update = Update {
        new,
        old,
        spec: new.spec.as_ref().unwrap_or(&unset_spec),
        new_status: new.status.as_ref().unwrap_or(&unset_status),
        old_status: old.status.as_ref().unwrap_or(&unset_status),
        path: Path::new("status"),
    };
    let mut errors = meta::validate_update(&new.metadata, &old.metadata, &Path::new("metadata"));
    errors.extend(update.counters());
    errors.extend(update.uncounted());
    if gates.job_managed_by {
        errors.extend(update.contradicting_conditions());
        errors.extend(update.completion_time());
        errors.extend(update.interim_conditions());
        errors.extend(update.finished());
        errors.extend(update.indexes());
        errors.extend(update.pods_left());
    }
    errors.extend(update.success_criteria(gates));
    if gates.job_managed_by {
        errors.extend(update.no_way_back());
    }
    errors.extend(update.success_criteria_change());
    errors
}

/// One request, with what every rule looks at.
struct Update<'a> {
    new: &'a Job,
    old: &'a Job,
    spec: &'a JobSpec,
    new_status: &'a JobStatus,
    old_status: &'a JobStatus,
    path: Path,
}

impl Update<'_> {
    fn has(&self, type_: &str) -> bool {
        has_condition(self.new, type_)
    }

    fn had(&self, type_: &str) -> bool {
        has_condition(self.old, type_)
    }

    /// Whether a condition became true or ceased to be.
    fn toggles(&self, type_: &str) -> bool {
        self.has(type_) != self.had(type_)
    }

    fn finish_toggles(&self) -> bool {
        is_finished(self.new) != is_finished(self.old)
    }

    fn start_time_changes(&self) -> bool {
        !same_time(self.new_status.start_time.as_ref(), self.old_status.start_time.as_ref())
    }

    fn completion_time_changes(&self) -> bool {
        !same_time(self.new_status.completion_time.as_ref(), self.old_status.completion_time.as_ref())
    }

    fn active(&self) -> i32 {
        self.new_status.active.unwrap_or_default()
    }

    fn active_changes(&self) -> bool {
        self.active() != self.old_status.active.unwrap_or_default()
    }

    fn completed_indexes_change(&self) -> bool {
        text(&self.new_status.completed_indexes) != text(&self.old_status.completed_indexes)
    }

    fn failed_indexes_change(&self) -> bool {
        self.new_status.failed_indexes != self.old_status.failed_indexes
    }

    fn conditions_error(&self, detail: impl Into<String>) -> Error {
        Error::invalid_unshown(&self.path.child("conditions"), detail)
    }

    /// JA-S3.
    fn counters(&self) -> Vec<Error> {
        let counters = [
            ("active", self.new_status.active),
            ("succeeded", self.new_status.succeeded),
            ("failed", self.new_status.failed),
            ("ready", self.new_status.ready),
            ("terminating", self.new_status.terminating),
        ];
        let set = counters.into_iter().filter_map(|(field, count)| Some((field, count?)));
        set.filter_map(|(field, count)| validate_non_negative(count, &self.path.child(field))).collect()
    }

    /// JA-S4, JA-S5.
    fn uncounted(&self) -> Vec<Error> {
        let Some(uncounted) = &self.new_status.uncounted_terminated_pods else { return Vec::new() };
        let path = self.path.child("uncountedTerminatedPods");
        let mut errors = Vec::new();
        let mut seen = BTreeSet::new();
        for (field, uids) in [("succeeded", &uncounted.succeeded), ("failed", &uncounted.failed)] {
            for (at, uid) in uids.iter().flatten().enumerate() {
                if uid.is_empty() {
                    errors.push(Error::invalid(&path.child(field).index(at), "", "must not be empty"));
                } else if !seen.insert(uid) {
                    errors.push(Error::duplicate(&path.child(field).index(at), uid.as_str()).named());
                }
            }
        }
        errors
    }

    /// JA-S6, JA-S7.
    fn contradicting_conditions(&self) -> Vec<Error> {
        let mut errors = Vec::new();
        for other in [FAILED, FAILURE_TARGET] {
            if (self.toggles(COMPLETE) || self.toggles(other)) && self.has(COMPLETE) && self.has(other) {
                errors.push(self.conditions_error(format!("cannot set Complete=True and {other}=true conditions")));
            }
        }
        errors
    }

    /// JA-S8…S10.
    fn completion_time(&self) -> Vec<Error> {
        let path = self.path.child("completionTime");
        let mut errors = Vec::new();
        let completion_time = self.new_status.completion_time.as_ref();
        if self.toggles(COMPLETE) || self.completion_time_changes() {
            match (completion_time, self.has(COMPLETE)) {
                (Some(time), false) => {
                    let detail = "cannot set completionTime when there is no Complete=True condition";
                    errors.push(Error::invalid(&path, time_value(Some(time)), detail));
                }
                (None, true) => errors.push(Error::required(&path, "completionTime is required for Complete jobs")),
                _ => {}
            }
        }
        if (self.start_time_changes() || self.completion_time_changes())
            && let (Some(start), Some(completion)) = (&self.new_status.start_time, completion_time)
            && completion.0.as_second() < start.0.as_second()
        {
            let detail = "must be equal to or after `startTime`";
            errors.push(Error::invalid(&path, time_value(Some(completion)), detail));
        }
        errors
    }

    /// A Job ends in two steps, and the first must be on record (JA-S11, JA-S12, JA-S40).
    fn interim_conditions(&self) -> Vec<Error> {
        let mut errors = Vec::new();
        if (self.toggles(FAILED) || self.failed_indexes_change()) && self.has(FAILED) && !self.has(FAILURE_TARGET) {
            let detail = "cannot set Failed=True condition without the FailureTarget=true condition";
            errors.push(self.conditions_error(detail));
        }
        if (self.toggles(COMPLETE) || self.toggles(SUCCESS_CRITERIA_MET))
            && self.has(COMPLETE)
            && !self.has(SUCCESS_CRITERIA_MET)
        {
            let detail = "cannot set Complete=True condition without the SuccessCriteriaMet=true condition";
            errors.push(self.conditions_error(detail));
        }
        errors
    }

    /// JA-S13…S15.
    fn finished(&self) -> Vec<Error> {
        if !is_finished(self.new) {
            return Vec::new();
        }
        let mut errors = Vec::new();
        if (self.finish_toggles() || self.active_changes()) && self.active() > 0 {
            let detail = "active>0 is invalid for finished job";
            errors.push(Error::invalid(&self.path.child("active"), self.active(), detail));
        }
        // A suspended Job with nothing to do completes without ever starting (JA-S43).
        let never_starts = self.spec.suspend == Some(true) && self.spec.completions == Some(0);
        if (self.finish_toggles() || self.start_time_changes()) && !never_starts && self.new_status.start_time.is_none()
        {
            let detail = "startTime is required for finished job";
            errors.push(Error::required(&self.path.child("startTime"), detail));
        }
        let (new, old) = (&self.new_status.uncounted_terminated_pods, &self.old_status.uncounted_terminated_pods);
        if let Some(uncounted) = new
            && (self.finish_toggles() || !typed_eq(new, old))
            && uncounted.succeeded.iter().chain(&uncounted.failed).any(|uids| !uids.is_empty())
        {
            let shown = serde_json::to_value(uncounted).unwrap_or(Value::Null);
            let path = self.path.child("uncountedTerminatedPods");
            errors.push(Error::invalid(&path, shown, "must be empty for finished job"));
        }
        errors
    }

    /// JA-S16…S20.
    fn indexes(&self) -> Vec<Error> {
        let mut errors = Vec::new();
        let (completed_path, failed_path) = (self.path.child("completedIndexes"), self.path.child("failedIndexes"));
        let completed = text(&self.new_status.completed_indexes);
        let failed = self.new_status.failed_indexes.as_deref();
        let completions = self.spec.completions;
        let per_index_limit = self.spec.backoff_limit_per_index;
        if self.completed_indexes_change()
            && let Some(Err(error)) = completions.map(|completions| index_ranges::validate(completed, completions))
        {
            let detail = format!("error parsing completedIndexes: {error}");
            errors.push(Error::invalid(&completed_path, completed, detail));
        }
        if self.failed_indexes_change()
            && let (Some(failed), Some(completions), Some(_)) = (failed, completions, per_index_limit)
            && let Err(error) = index_ranges::validate(failed, completions)
        {
            let detail = format!("error parsing failedIndexes: {error}");
            errors.push(Error::invalid(&failed_path, failed, detail));
        }
        if self.completed_indexes_change() && !completed.is_empty() && !is_indexed(self.spec) {
            let detail = "cannot set non-empty completedIndexes when non-indexed completion mode";
            errors.push(Error::invalid(&completed_path, completed, detail));
        }
        if let Some(failed) = failed.filter(|_| self.failed_indexes_change() && per_index_limit.is_none()) {
            let detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
            errors.push(Error::invalid(&failed_path, failed, detail));
        }
        if (self.failed_indexes_change() || self.completed_indexes_change())
            && let (Some(failed), Some(completions)) = (failed, completions)
            && let Some(index) = index_ranges::first_overlap(completed, failed, completions)
        {
            let detail = format!("failedIndexes and completedIndexes overlap at index: {index}");
            errors.push(Error::invalid(&failed_path, failed, detail));
        }
        errors
    }

    /// JA-S21, JA-S22.
    fn pods_left(&self) -> Vec<Error> {
        let mut errors = Vec::new();
        let (terminating, ready) = (self.new_status.terminating, self.new_status.ready);
        let terminating_changes = terminating != self.old_status.terminating;
        if let Some(terminating) = terminating
            && (self.finish_toggles() || terminating_changes)
            && terminating > 0
            && is_finished(self.new)
        {
            let detail = "terminating>0 is invalid for finished job";
            errors.push(Error::invalid(&self.path.child("terminating"), terminating, detail));
        }
        if let Some(ready) = ready
            && (self.old_status.ready != Some(ready) || self.active_changes())
            && ready > self.active()
        {
            let detail = "cannot set more ready pods than active";
            errors.push(Error::invalid(&self.path.child("ready"), ready, detail));
        }
        errors
    }

    /// JA-S23…S25; with both gates off also what once kept `SuccessCriteriaMet` to Jobs with a success policy.
    fn success_criteria(&self, gates: &Gates) -> Vec<Error> {
        let mut errors = Vec::new();
        let met = self.has(SUCCESS_CRITERIA_MET);
        let everywhere = gates.job_managed_by || gates.job_pod_replacement_policy || self.had(SUCCESS_CRITERIA_MET);
        if met && !everywhere && !is_indexed(self.spec) {
            errors.push(self.conditions_error("cannot set SuccessCriteriaMet to NonIndexed Job"));
        }
        for other in [FAILED, FAILURE_TARGET] {
            if met && self.has(other) {
                let detail = format!("cannot set SuccessCriteriaMet=True and {other}=true conditions");
                errors.push(self.conditions_error(detail));
            }
        }
        if met && !everywhere && self.spec.success_policy.is_none() {
            errors.push(self.conditions_error("cannot set SuccessCriteriaMet=True for Job without SuccessPolicy"));
        }
        if self.spec.success_policy.is_some() && self.has(COMPLETE) && !met {
            let detail = "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True";
            errors.push(self.conditions_error(detail));
        }
        errors
    }

    /// JA-S26…S30.
    fn no_way_back(&self) -> Vec<Error> {
        let mut errors = Vec::new();
        for type_ in [FAILED, COMPLETE, FAILURE_TARGET] {
            if self.had(type_) && !self.has(type_) {
                errors.push(self.conditions_error(format!("cannot disable the terminal {type_}=True condition")));
            }
        }
        let (new, old) = (self.new_status, self.old_status);
        let failed = new.failed.unwrap_or_default();
        if failed < old.failed.unwrap_or_default() {
            errors.push(Error::invalid(&self.path.child("failed"), failed, "cannot decrease the failed counter"));
        }
        // An Indexed Job that can be scaled down loses the successes of the indexes it no longer has.
        let scales = is_indexed(self.spec) && self.spec.completions == self.spec.parallelism;
        let succeeded = new.succeeded.unwrap_or_default();
        if !scales && succeeded < old.succeeded.unwrap_or_default() {
            let detail = "cannot decrease the succeeded counter";
            errors.push(Error::invalid(&self.path.child("succeeded"), succeeded, detail));
        }
        if new.completion_time.is_some() && old.completion_time.is_some() && self.completion_time_changes() {
            let shown = time_value(new.completion_time.as_ref());
            errors.push(Error::invalid(&self.path.child("completionTime"), shown, IMMUTABLE));
        }
        let resumes = self.had(SUSPENDED) && has_condition_status(self.new, SUSPENDED, condition::FALSE);
        let suspended = self.spec.suspend.unwrap_or_default();
        if self.start_time_changes() && !resumes && old.start_time.is_some() && !suspended {
            let shown = time_value(new.start_time.as_ref());
            let detail = "field is immutable for unsuspended job once set";
            errors.push(Error::invalid(&self.path.child("startTime"), shown, detail));
        }
        errors
    }

    /// JA-S31, JA-S32.
    fn success_criteria_change(&self) -> Vec<Error> {
        let (has, had) = (self.has(SUCCESS_CRITERIA_MET), self.had(SUCCESS_CRITERIA_MET));
        let mut errors = Vec::new();
        if had && !has {
            errors.push(self.conditions_error("cannot disable the SuccessCriteriaMet=True condition"));
        }
        if self.had(COMPLETE) && !had && has {
            let detail = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
            errors.push(self.conditions_error(detail));
        }
        errors
    }
}

fn text(value: &Option<String>) -> &str {
    value.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{merged, texts, valid};
    use super::*;

    const T1: &str = "2024-05-01T10:00:00Z";
    const T2: &str = "2024-05-01T11:00:00Z";
    const NONE: [&str; 0] = [];

    /// Errors of replacing one status by another in a Job that `spec` was merged into.
    fn replace_in(spec: Value, old: Value, new: Value) -> Vec<String> {
        replace_with(&Gates::DEFAULT, spec, old, new)
    }

    fn replace_with(gates: &Gates, spec: Value, old: Value, new: Value) -> Vec<String> {
        let job = merged(valid(), &json!({"spec": spec}));
        let with = |status: Value| {
            let mut job = job.clone();
            job["status"] = status;
            serde_json::from_value(job).unwrap()
        };
        let strip = |text: String| text.strip_prefix("status.").map(str::to_owned).unwrap_or(text);
        texts(&validate_status_update(&with(new), &with(old), gates)).into_iter().map(strip).collect()
    }

    fn replace(old: Value, new: Value) -> Vec<String> {
        replace_in(json!({}), old, new)
    }

    /// A status with conditions that are true, and other fields.
    fn status(conditions: &[&str], fields: Value) -> Value {
        let conditions: Vec<_> = conditions.iter().map(|type_| json!({"type": type_, "status": "True"})).collect();
        merged(json!({"conditions": conditions}), &fields)
    }

    fn both_times() -> Value {
        json!({"startTime": T1, "completionTime": T2})
    }

    fn both_times_and(fields: Value) -> Value {
        merged(both_times(), &fields)
    }

    fn indexed() -> Value {
        json!({"completionMode": "Indexed", "completions": 10, "parallelism": 5})
    }

    fn per_index() -> Value {
        merged(indexed(), &json!({"backoffLimitPerIndex": 1}))
    }

    #[test]
    fn counters_are_not_negative() {
        assert_eq!(
            replace(
                json!({"active": 1, "succeeded": 2, "failed": 3, "terminating": 4}),
                json!({"active": 2, "succeeded": 3, "failed": 4, "ready": 1, "terminating": 4})
            ),
            NONE
        );
        let negative = json!({"active": -1, "succeeded": -1, "failed": -1, "ready": -1, "terminating": -1});
        let text = "Invalid value: -1: must be greater than or equal to 0";
        let wanted = ["active", "succeeded", "failed", "ready", "terminating"].map(|field| format!("{field}: {text}"));
        assert_eq!(replace(negative.clone(), negative), wanted);
    }

    #[test]
    fn uncounted_pods_are_named_once() {
        let uncounted = json!({"uncountedTerminatedPods": {"succeeded": ["a&", "b", "c", "a&", ""], "failed": ["c", "d", "e", "d", ""]}});
        assert_eq!(
            replace(json!({}), uncounted),
            [
                "uncountedTerminatedPods.succeeded[3]: Duplicate value: \"a\\u0026\"",
                "uncountedTerminatedPods.succeeded[4]: Invalid value: \"\": must not be empty",
                "uncountedTerminatedPods.failed[0]: Duplicate value: \"c\"",
                "uncountedTerminatedPods.failed[3]: Duplicate value: \"d\"",
                "uncountedTerminatedPods.failed[4]: Invalid value: \"\": must not be empty",
            ]
        );
    }

    const FAILED_ALONE: &str =
        "conditions: Invalid value: cannot set Failed=True condition without the FailureTarget=true condition";
    const COMPLETE_ALONE: &str =
        "conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition";

    #[test]
    fn terminal_conditions_need_their_forerunners() {
        assert_eq!(
            replace(json!({}), status(&["Complete", "Failed"], both_times())),
            [
                "conditions: Invalid value: cannot set Complete=True and Failed=true conditions",
                FAILED_ALONE,
                COMPLETE_ALONE
            ]
        );
        assert_eq!(replace(json!({}), status(&["Complete"], both_times())), [COMPLETE_ALONE]);
        assert_eq!(replace(json!({}), status(&["Failed"], json!({"startTime": T1}))), [FAILED_ALONE]);
        assert_eq!(
            replace(json!({}), status(&["Complete", "FailureTarget"], both_times())),
            ["conditions: Invalid value: cannot set Complete=True and FailureTarget=true conditions", COMPLETE_ALONE]
        );
        assert_eq!(replace(json!({}), status(&["FailureTarget", "Failed"], json!({"startTime": T1}))), NONE);
        assert_eq!(replace(json!({}), status(&["SuccessCriteriaMet", "Complete"], both_times())), NONE);
    }

    #[test]
    fn finished_jobs_have_started_and_left_nothing_behind() {
        let failing = |fields: Value| status(&["FailureTarget"], merged(json!({"startTime": T1}), &fields));
        let failed = |fields: Value| status(&["FailureTarget", "Failed"], merged(json!({"startTime": T1}), &fields));
        let uncounted = json!({"uncountedTerminatedPods": {"failed": ["a"]}});
        assert_eq!(
            replace(failing(json!({"startTime": null})), failed(json!({"startTime": null}))),
            ["startTime: Required value: startTime is required for finished job"]
        );
        assert_eq!(
            replace(failing(json!({"active": 1})), failed(json!({"active": 1}))),
            ["active: Invalid value: 1: active>0 is invalid for finished job"]
        );
        assert_eq!(
            replace(failing(json!({"terminating": 1})), failed(json!({"terminating": 1}))),
            ["terminating: Invalid value: 1: terminating>0 is invalid for finished job"]
        );
        assert_eq!(
            replace(failing(uncounted.clone()), failed(uncounted.clone())),
            ["uncountedTerminatedPods: Invalid value: {\"failed\":[\"a\"]}: must be empty for finished job"]
        );
        let other = json!({"uncountedTerminatedPods": {"failed": ["b"]}});
        assert_eq!(replace(failed(uncounted.clone()), failed(other)).len(), 1);
        let noted = status(&["FailureTarget", "Failed", "Noted"], merged(json!({"startTime": T1}), &uncounted));
        assert_eq!(replace(failed(uncounted), noted), NONE);
    }

    #[test]
    fn a_suspended_job_with_nothing_to_do_completes_without_starting() {
        let done = status(&["SuccessCriteriaMet", "Complete"], json!({"completionTime": T2}));
        assert_eq!(replace_in(json!({"suspend": true, "completions": 0}), json!({}), done.clone()), NONE);
        assert_eq!(
            replace_in(json!({"suspend": true}), json!({}), done),
            ["startTime: Required value: startTime is required for finished job"]
        );
    }

    #[test]
    fn completion_time_belongs_to_complete_jobs() {
        let met = status(&["SuccessCriteriaMet"], json!({"startTime": T1}));
        let complete = |fields: Value| status(&["SuccessCriteriaMet", "Complete"], both_times_and(fields));
        let required = "completionTime: Required value: completionTime is required for Complete jobs";
        assert_eq!(replace(met.clone(), complete(json!({"completionTime": null}))), [required]);
        assert_eq!(replace(complete(json!({})), complete(json!({"completionTime": null}))), [required]);
        assert_eq!(
            replace(complete(json!({})), complete(json!({"completionTime": T1}))),
            ["completionTime: Invalid value: \"2024-05-01T10:00:00Z\": field is immutable"]
        );
        assert_eq!(
            replace(met, complete(json!({"startTime": T2, "completionTime": T1})))[..],
            [
                "completionTime: Invalid value: \"2024-05-01T10:00:00Z\": must be equal to or after `startTime`",
                "startTime: Invalid value: \"2024-05-01T11:00:00Z\": field is immutable for unsuspended job once set",
            ]
        );
        assert_eq!(
            replace(json!({}), both_times()),
            [
                "completionTime: Invalid value: \"2024-05-01T11:00:00Z\": cannot set completionTime when there is no Complete=True condition"
            ]
        );
        assert_eq!(replace(both_times(), both_times_and(json!({"active": 1}))), NONE);
        assert_eq!(replace(both_times(), json!({"startTime": T1})), NONE);
    }

    #[test]
    fn start_time_is_fixed_while_a_job_runs() {
        let started = json!({"startTime": T1});
        let text = "field is immutable for unsuspended job once set";
        assert_eq!(replace(json!({}), started.clone()), NONE);
        assert_eq!(replace(started.clone(), json!({})), [format!("startTime: Invalid value: null: {text}")]);
        assert_eq!(
            replace(started.clone(), json!({"startTime": T2})),
            [format!("startTime: Invalid value: \"{T2}\": {text}")]
        );
        assert_eq!(replace_in(json!({"suspend": true}), started.clone(), json!({})), NONE);
        let resumed = json!({"startTime": T2, "conditions": [{"type": "Suspended", "status": "False"}]});
        assert_eq!(replace(status(&["Suspended"], started), resumed), NONE);
    }

    #[test]
    fn indexes_are_well_formed_and_apart() {
        let completed = |text: &str| json!({"completedIndexes": text});
        let both = |completed: &str, failed: &str| json!({"completedIndexes": completed, "failedIndexes": failed});
        let bad = "cannot convert string to integer for index: \"invalid format\"";
        let cases = [
            (indexed(), completed(""), completed("1,3-5,7"), vec![]),
            (
                indexed(),
                completed(""),
                completed("invalid format"),
                vec![format!("completedIndexes: Invalid value: \"invalid format\": error parsing completedIndexes: {bad}")],
            ),
            (indexed(), completed("invalid format"), merged(completed("invalid format"), &json!({"active": 1})), vec![]),
            (
                per_index(),
                json!({}),
                both("", "invalid format"),
                vec![format!("failedIndexes: Invalid value: \"invalid format\": error parsing failedIndexes: {bad}")],
            ),
            (
                json!({}),
                json!({}),
                completed("0"),
                vec!["completedIndexes: Invalid value: \"0\": cannot set non-empty completedIndexes when non-indexed completion mode".to_owned()],
            ),
            (json!({}), completed("0"), merged(completed("0"), &json!({"active": 1})), vec![]),
            (
                indexed(),
                json!({}),
                both("", ""),
                vec!["failedIndexes: Invalid value: \"\": cannot set non-null failedIndexes when backoffLimitPerIndex is null".to_owned()],
            ),
            (
                per_index(),
                both("3-4", "0,2"),
                both("2-4", "0,2"),
                vec!["failedIndexes: Invalid value: \"0,2\": failedIndexes and completedIndexes overlap at index: 2".to_owned()],
            ),
            (per_index(), both("2-4", "0,2"), merged(both("2-4", "0,2"), &json!({"active": 1})), vec![]),
        ];
        for (spec, old, new, wanted) in cases {
            assert_eq!(replace_in(spec, old, new.clone()), wanted, "{new}");
        }
    }

    #[test]
    fn counters_only_grow() {
        assert_eq!(
            replace(json!({"failed": 3}), json!({"failed": 1})),
            ["failed: Invalid value: 1: cannot decrease the failed counter"]
        );
        assert_eq!(
            replace(json!({"succeeded": 3}), json!({})),
            ["succeeded: Invalid value: 0: cannot decrease the succeeded counter"]
        );
        assert_eq!(replace_in(indexed(), json!({"succeeded": 3}), json!({"succeeded": 1})).len(), 1);
        let elastic = merged(indexed(), &json!({"parallelism": 10}));
        assert_eq!(replace_in(elastic, json!({"succeeded": 3}), json!({"succeeded": 1})), NONE);
    }

    #[test]
    fn no_more_ready_than_active() {
        let text = "ready: Invalid value: 2: cannot set more ready pods than active";
        assert_eq!(replace(json!({}), json!({"ready": 2, "active": 1})), [text]);
        assert_eq!(replace(json!({"ready": 2, "active": 2}), json!({"ready": 2, "active": 1})), [text]);
        let bad = json!({"ready": 2, "active": 1});
        assert_eq!(replace(bad.clone(), merged(bad, &json!({"succeeded": 1}))), NONE);
    }

    #[test]
    fn there_is_no_way_back() {
        let failed = status(&["FailureTarget", "Failed"], json!({"startTime": T1}));
        assert_eq!(
            replace(failed, json!({"startTime": T1})),
            [
                "conditions: Invalid value: cannot disable the terminal Failed=True condition",
                "conditions: Invalid value: cannot disable the terminal FailureTarget=True condition",
            ]
        );
        assert_eq!(
            replace(status(&["SuccessCriteriaMet"], json!({})), status(&["Noted"], json!({}))),
            ["conditions: Invalid value: cannot disable the SuccessCriteriaMet=True condition"]
        );
        assert_eq!(
            replace(status(&["Complete"], both_times()), status(&["Complete", "SuccessCriteriaMet"], both_times())),
            [
                "conditions: Invalid value: cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions"
            ]
        );
    }

    #[test]
    fn success_and_failure_exclude_each_other() {
        assert_eq!(
            replace(status(&["FailureTarget"], json!({})), status(&["FailureTarget", "SuccessCriteriaMet"], json!({}))),
            ["conditions: Invalid value: cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"]
        );
        let policy = merged(indexed(), &json!({"successPolicy": {"rules": [{"succeededCount": 1}]}}));
        assert_eq!(
            replace_in(policy, json!({}), status(&["Complete"], both_times())),
            [
                COMPLETE_ALONE,
                "conditions: Invalid value: cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True"
            ]
        );
        assert_eq!(replace(json!({}), status(&["SuccessCriteriaMet"], json!({}))), NONE);
    }

    #[test]
    fn without_managed_by_the_rules_are_few() {
        let lax = Gates { job_managed_by: false, ..Gates::DEFAULT };
        let complete = status(&["Complete"], json!({}));
        assert_eq!(replace_with(&lax, json!({}), json!({"failed": 3}), complete.clone()), NONE);
        assert_eq!(replace_with(&lax, json!({}), complete, json!({"active": -1})).len(), 1);
        let lax = Gates { job_pod_replacement_policy: false, ..lax };
        assert_eq!(
            replace_with(&lax, json!({}), json!({}), status(&["SuccessCriteriaMet"], json!({}))),
            [
                "conditions: Invalid value: cannot set SuccessCriteriaMet to NonIndexed Job",
                "conditions: Invalid value: cannot set SuccessCriteriaMet=True for Job without SuccessPolicy",
            ]
        );
    }
}
