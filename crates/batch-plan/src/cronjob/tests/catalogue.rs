//! The catalogue of upstream's own cases (A.2, A.4), row by row.

use serde_json::json;

use super::text::{World, check};

const CREATED: &str = "create c-24394200 | status active=[c-24394200] last=10:00:00";
const MANY: &str = "Warning TooManyMissedTimes: too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
/// A finished and listed Job of an earlier run.
const DONE: &str = "job j complete=09:00:10 listed";
const SAW: &str = "Normal SawCompletedJob: Saw completed job: j, condition: Complete";

#[test]
fn rows_6_and_7_what_cannot_be_read_is_reported_and_waits_for_a_change() {
    for policy in ["A", "F", "R"] {
        check(
            &format!("never due {policy} schedule=obvious_error_schedule"),
            "Warning UnparseableSchedule: unparseable schedule: \"obvious error schedule\" : \
             expected exactly 5 fields, found 3: [obvious error schedule]",
        );
    }
    check(
        "never due zone=bad-time-zone",
        "Warning UnknownTimeZone: invalid timeZone: \"bad-time-zone\": unknown time zone bad-time-zone",
    );
}

#[test]
fn rows_8_to_13_a_cronjob_that_never_ran() {
    for policy in ["A", "F", "R"] {
        for zone in ["", "zone=America/New_York"] {
            check(&format!("never before {policy} {zone}"), "wake 1m");
            check(&format!("never due {policy} {zone}"), &format!("{CREATED} | wake 59m"));
        }
    }
    check(
        "never due schedule=TZ=UTC_0_*_*_*_? zone=America/New_York",
        &format!(
            "Warning UnsupportedSchedule: CRON_TZ or TZ used in schedule \"TZ=UTC 0 * * * ?\" is not officially \
             supported, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details \
             | {CREATED} | wake 59m"
        ),
    );
    check("never due suspended", "");
    check("never deadline=10 now=10:12:00", "wake 48m");
    check("never due deadline=1000000", &format!("{CREATED} | wake 59m"));
}

#[test]
fn rows_14_to_18_the_last_job_is_done() {
    for policy in ["A", "F", "R"] {
        check(
            &format!("ran before {policy} | {DONE}"),
            &format!("status active=[] last=09:01:00 successful=09:00:10 | {SAW} | wake 1m"),
        );
        for deadline in ["", "deadline=1000000"] {
            check(
                &format!("ran due {policy} {deadline} | {DONE}"),
                &format!(
                    "create c-24394200 | status active=[c-24394200] last=10:00:00 successful=09:00:10 | {SAW} | wake 59m"
                ),
            );
        }
    }
    check(
        &format!("ran due create=ours | {DONE}"),
        &format!("exists c-24394200 | status active=[c-24394200] last=10:00:00 successful=09:00:10 | {SAW} | wake 59m"),
    );
    check(
        &format!("ran due suspended | {DONE}"),
        &format!("status active=[] last=09:01:00 successful=09:00:10 | {SAW}"),
    );
    check(
        &format!("ran due deadline=10 | {DONE}"),
        &format!("status active=[] last=09:01:00 successful=09:00:10 | {SAW} | wake 59m"),
    );
}

#[test]
fn rows_19_to_25_the_last_job_still_runs() {
    let running = "job j running listed";
    for policy in ["A", "F", "R"] {
        check(&format!("ran before {policy} | {running}"), "wake 1m");
    }
    for deadline in ["", "deadline=1000000"] {
        check(
            &format!("ran due A {deadline} | {running}"),
            "create c-24394200 | status active=[j c-24394200] last=10:00:00 | wake 59m",
        );
    }
    check(
        &format!("ran due F | {running}"),
        "Normal JobAlreadyActive: Not starting job because prior execution is running and concurrency policy is \
         Forbid | wake 59m",
    );
    check(
        &format!("ran due R | {running}"),
        "replace j | create c-24394200 | status active=[c-24394200] last=10:00:00 | wake 59m",
    );
    check(&format!("ran due suspended | {running}"), "");
    check(&format!("ran due deadline=10 | {running}"), "wake 59m");
}

#[test]
fn rows_26_and_27_after_a_week() {
    let created = format!(
        "create c-24404280 | status active=[c-24404280] last=2016-05-26T10:00:00 successful=09:00:10 | {SAW} | wake 1h"
    );
    for policy in ["A", "F", "R"] {
        for deadline in ["", "deadline=1000000"] {
            check(&format!("ran week {policy} {deadline} | {DONE}"), &format!("{MANY} | {created}"));
        }
        for deadline in ["deadline=7200", "deadline=10"] {
            check(&format!("ran week {policy} {deadline} | {DONE}"), &created);
        }
    }
}

#[test]
fn rows_28_to_30_caches_that_lag() {
    check(
        "ran before F create=ours | job j complete=10:01:10",
        "status active=[] last=09:01:00 successful=10:01:10 | wake 1m",
    );
    for policy in ["A", "F", "R"] {
        // The Job is listed and not in the cache, but the server has it.
        check(
            &format!("ran {policy} last=10:00:00 deadline=1000000 now=10:01:00.1 | job c-24394200 listed unseen"),
            "wake 58m59s900ms",
        );
    }
}

#[test]
fn rows_31_to_43_fixed_delays() {
    let every = "schedule=@every_1h";
    let running = "job j running listed";
    for (setup, expected) in [
        (format!("{every} created=09:59:00 now=10:00:00"), "wake 59m".to_owned()),
        (
            format!("{every} created=08:59:00 now=09:59:00"),
            "create c-24394199 | status active=[c-24394199] last=09:59:00 | wake 1h".to_owned(),
        ),
        (format!("{every} created=08:59:00 deadline=10 now=09:59:11"), "wake 59m49s".to_owned()),
        (
            format!("{every} created=08:59:00 deadline=1000000 now=09:59:09"),
            "create c-24394199 | status active=[c-24394199] last=09:59:00 | wake 59m51s".to_owned(),
        ),
        (
            format!("{every} ran last=09:59:00 now=10:00:00 | {DONE}"),
            format!("status active=[] last=09:59:00 successful=09:00:10 | {SAW} | wake 59m"),
        ),
        (
            format!("{every} ran last=09:59:00 now=11:00:00 | {DONE}"),
            format!(
                "create c-24394259 | status active=[c-24394259] last=10:59:00 successful=09:00:10 | {SAW} | wake 59m"
            ),
        ),
        (
            format!("{every} ran last=09:59:00 deadline=10 now=10:59:11 | {DONE}"),
            format!("status active=[] last=09:59:00 successful=09:00:10 | {SAW} | wake 59m49s"),
        ),
        (format!("{every} ran last=09:59:00 now=10:00:00 | {running}"), "wake 59m".to_owned()),
        (
            format!("{every} ran last=08:59:00 now=10:01:00 | {running}"),
            "create c-24394199 | status active=[j c-24394199] last=09:59:00 | wake 58m".to_owned(),
        ),
        (format!("{every} ran last=09:59:00 deadline=10 now=10:59:11 | {running}"), "wake 59m49s".to_owned()),
        (
            format!("{every} ran last=09:59:00 deadline=1000000 now=10:59:09 | {running}"),
            "create c-24394259 | status active=[j c-24394259] last=10:59:00 | wake 59m51s".to_owned(),
        ),
        (
            format!("{every} created=09:01:00 last=10:01:00 week | {DONE}"),
            format!(
                "{MANY} | create c-24404221 | status active=[c-24404221] last=2016-05-26T09:01:00 \
                 successful=09:00:10 | {SAW} | wake 1m"
            ),
        ),
        (
            format!("{every} created=09:01:00 last=10:01:00 deadline=10 now=2016-05-26T10:01:11 | {DONE}"),
            format!("status active=[] last=10:01:00 successful=09:00:10 | {SAW} | wake 59m49s"),
        ),
    ] {
        check(&setup, &expected);
    }
}

/// Row 45.
#[test]
fn reg_f20_a_history_of_nothing_still_tells_of_the_success() {
    let seen = format!("status active=[] last=09:01:00 successful=09:00:10 | {SAW}");
    check(&format!("ran before keep=0/0 | {DONE}"), &format!("{seen} | delete j | wake 1m"));
    check(&format!("ran before keep=10/10 | {DONE}"), &format!("{seen} | wake 1m"));
}

/// INV-39.
#[test]
fn rows_52_to_54_the_oldest_beyond_the_limit_go() {
    let two = "job a complete=09:01:00 start=08:59:00 | job b complete=10:00:00 start=09:59:00";
    check(
        &format!("ran before keep=1/1 | {two}"),
        "status active=[] last=09:01:00 successful=10:00:00 | delete a | wake 1m",
    );
    check(&format!("ran before keep=2/1 | {two}"), "status active=[] last=09:01:00 successful=10:00:00 | wake 1m");
    // Start times decide, Jobs without one come last, names decide between equals. Each outcome has its own limit.
    check(
        "ran before keep=1/2 | job a failed | job b failed start=09:10:00 | job c failed | job d failed start=09:05:00 \
         | job e failed start=09:05:00 | job z complete start=09:00:00",
        "delete d | delete e | delete b | wake 1m",
    );
    check("ran before keep=0/0 | job a failed deleting | job b failed", "delete b | wake 1m");
}

#[test]
fn row_55_a_job_that_was_not_written_down() {
    let every = "schedule=@every_1h created=09:59:00 now=11:00:00 F";
    check(&format!("{every} create=ours"), "exists c-24394259 | status active=[c-24394259] last=10:59:00 | wake 59m");
    check(&format!("{every} create=foreign"), "exists c-24394259 | wake 59m");
}

#[test]
fn a_deleted_cronjob_only_keeps_its_status() {
    check(
        &format!("ran due deleting | {DONE}"),
        &format!("status active=[] last=09:01:00 successful=09:00:10 | {SAW}"),
    );
}

#[test]
fn only_complete_jobs_set_the_last_success_and_never_back() {
    check(
        "ran before | job a failed=09:30:00 | job b complete=09:10:00 | job c complete=09:20:00 | job d complete",
        "status active=[] last=09:01:00 successful=09:20:00 | wake 1m",
    );
}

#[test]
fn reg_f04_an_active_job_that_is_gone_is_taken_off_the_list() {
    check(
        "ran before F active=lost",
        "status active=[] last=09:01:00 | Normal MissingJob: Active job went missing: lost | wake 1m",
    );
    // REG-F04: and does not block the next run.
    check(
        "ran due F active=lost",
        "create c-24394200 | status active=[c-24394200] last=10:00:00 | \
         Normal MissingJob: Active job went missing: lost | wake 59m",
    );
}

/// REG-F10, INV-37, INV-47.
#[test]
fn reg_f10_an_impossible_schedule_is_accepted_reported_and_costs_nothing_more() {
    const IMPOSSIBLE: &str = "schedule=59_23_31_2_*";
    let reported = "Warning InvalidSchedule: invalid schedule: 59 23 31 2 * : \
         time difference between two schedules is less than 1 second";
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let mut object = json!({"metadata": {"name": "c", "namespace": "ns"},
        "spec": {"schedule": "59 23 31 2 *", "jobTemplate": {"spec": {"template": template}}}});
    batch_types::cronjob::default(&mut object);
    let cron_job = serde_json::from_value(object).unwrap();
    assert_eq!(batch_types::cronjob::validate(&cron_job), []);
    // It never runs, and nobody looks at it again by the clock.
    for moment in ["due", "week", "now=2016-02-29T23:59:30", "now=2036-03-01T00:00:00"] {
        check(&format!("never created=2016-01-01T00:00:00 {IMPOSSIBLE} {moment}"), reported);
    }
    // Its Jobs of a better time are treated as ever,
    check(
        &format!("ran before keep=0/0 {IMPOSSIBLE} | {DONE}"),
        &format!("status active=[] last=09:01:00 successful=09:00:10 | {SAW} | delete j | {reported}"),
    );
    // and a schedule that occurs is followed from the next sync on.
    let mut world = World::parse(&format!("never due {IMPOSSIBLE}"));
    world.sync();
    world.apply("schedule=0_*_*_*_?");
    assert!(world.sync().starts_with("create c-24394200\n"));
}
