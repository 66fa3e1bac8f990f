//! CronJobs.

use expect_test::expect;
use serde_json::{Value, json};

use super::objects::*;
use crate::{Kind, Snapshot};

/// A CronJob that runs every hour and is a day old.
fn cron_job(more: Value) -> Value {
    let base = json!({
        "apiVersion": "batch/v1", "kind": "CronJob",
        "metadata": {"name": "backup", "namespace": "default", "uid": "cron-uid", "creationTimestamp": ago(86_400)},
        "spec": {"schedule": "0 * * * *", "concurrencyPolicy": "Allow", "suspend": false},
        "status": {},
    });
    with(base, more)
}

/// A Job that the CronJob made.
fn made(name: &str, more: Value) -> Value {
    let owner = json!([{"kind": "CronJob", "name": "backup", "uid": "cron-uid", "controller": true}]);
    let base = json!({"metadata": {"name": name, "creationTimestamp": ago(600), "ownerReferences": owner}});
    with(base, more)
}

fn about(cron_job: Value, jobs: Vec<Value>, events: Vec<Value>) -> Snapshot {
    Snapshot { jobs: Some(jobs), events: Some(events), ..Snapshot::new(Kind::CronJob, cron_job, now()) }
}

#[test]
fn a_cron_job_waits_for_its_next_run() {
    check(
        &about(
            cron_job(
                json!({"status": {"lastScheduleTime": "2026-11-15T10:00:00Z", "lastSuccessfulTime": "2026-11-15T10:01:00Z"}}),
            ),
            vec![],
            vec![],
        ),
        expect![[r#"
            cronjob/backup: It waits for its next run, 2026-11-15T11:00:00Z (schedule `0 * * * *`).
              next   2026-11-15T11:00:00Z: next run (in 50m)
              do     to run it now: kubectl create job backup-now --from=cronjob/backup

            evidence:
              cronjob/backup: last started (10m ago)
              cronjob/backup: last succeeded (9m ago)
        "#]],
    );
}

#[test]
fn the_zone_decides_when() {
    check(
        &about(
            cron_job(
                json!({"spec": {"schedule": "0 3 * * *", "timeZone": "Europe/Berlin"}, "status": {"lastScheduleTime": "2026-11-15T02:00:00Z"}}),
            ),
            vec![],
            vec![],
        ),
        expect![[r#"
            cronjob/backup: It waits for its next run, 2026-11-16T02:00:00Z (schedule `0 3 * * *`).
              next   2026-11-16T02:00:00Z: next run (in 15h50m)
              do     to run it now: kubectl create job backup-now --from=cronjob/backup

            evidence:
              cronjob/backup: last started (8h10m ago)
        "#]],
    );
}

/// CJ-20.
#[test]
fn a_suspended_cron_job_says_what_it_missed() {
    check(
        &about(
            cron_job(json!({"spec": {"suspend": true}, "status": {"lastScheduleTime": "2026-11-15T07:00:00Z"}})),
            vec![],
            vec![],
        ),
        expect![[r#"
            cronjob/backup: It is suspended: `spec.suspend` is true. 3 runs have been skipped.
              next   when it is resumed, the run of 2026-11-15T10:00:00Z is made up for at once
              do     kubectl patch cronjob/backup -p '{"spec":{"suspend":false}}'

            evidence:
              cronjob/backup: would run next (in 50m)
              cronjob/backup: last started (3h10m ago)
        "#]],
    );
}

/// CJ-25.
#[test]
fn forbid_waits_for_the_running_job() {
    check(
        &about(
            cron_job(
                json!({"spec": {"schedule": "*/5 * * * *", "concurrencyPolicy": "Forbid"}, "status": {"lastScheduleTime": "2026-11-15T10:00:00Z", "active": [{"kind": "Job", "name": "backup-29"}]}}),
            ),
            vec![made("backup-29", json!({}))],
            vec![event(
                "CronJob",
                "backup",
                "JobAlreadyActive",
                "Not starting job because prior execution is running and concurrency policy is Forbid",
                60,
            )],
        ),
        expect![[r#"
            cronjob/backup: The run of 2026-11-15T10:10:00Z waits: concurrencyPolicy is Forbid and job/backup-29 still runs.
              since  2026-11-15T10:10:00Z (now)
              next   2026-11-15T10:15:00Z: next run (in 5m)
                     the waiting run starts when that Job has finished
              do     tally why job/backup-29
                     or set concurrencyPolicy to Allow or Replace

            evidence:
              event of cronjob/backup: JobAlreadyActive, 3 times: Not starting job because prior execution is running and concurrency policy is Forbid (1m ago)
              cronjob/backup: last started (10m ago)
              job/backup-29: not finished (10m ago)
        "#]],
    );
}

#[test]
fn forbid_with_a_deadline_skips() {
    check(
        &about(
            cron_job(
                json!({"spec": {"schedule": "*/5 * * * *", "concurrencyPolicy": "Forbid", "startingDeadlineSeconds": 120}, "status": {"lastScheduleTime": "2026-11-15T10:05:00Z", "active": [{"kind": "Job", "name": "backup-29"}]}}),
            ),
            vec![],
            vec![],
        ),
        expect![[r#"
            cronjob/backup: The run of 2026-11-15T10:10:00Z waits: concurrencyPolicy is Forbid and job/backup-29 still runs.
              since  2026-11-15T10:10:00Z (now)
              next   2026-11-15T10:12:00Z: the waiting run is skipped: startingDeadlineSeconds (2m) is over (in 2m)
                     2026-11-15T10:15:00Z: next run (in 5m)
              do     tally why job/backup-29
                     or set concurrencyPolicy to Allow or Replace

            evidence:
              cronjob/backup: last started (5m ago)
        "#]],
    );
}

/// CJ-30.
#[test]
fn a_date_that_does_not_exist_never_comes() {
    check(
        &about(cron_job(json!({"spec": {"schedule": "0 0 31 2 *"}})), vec![], vec![]),
        expect![[r#"
        cronjob/backup: It never runs: no date ever matches its schedule `0 0 31 2 *`.
          do     correct `spec.schedule`: the day does not occur in the month
    "#]],
    );
}

#[test]
fn a_schedule_that_cannot_be_read_is_shown() {
    check(
        &about(cron_job(json!({"spec": {"schedule": "61 * * * *"}})), vec![], vec![]),
        expect![[r#"
        cronjob/backup: It never runs: its schedule `61 * * * *` cannot be read: end of range (61) above maximum (59): 61.
          do     correct `spec.schedule`: minute hour day month weekday
    "#]],
    );
}

/// CJ-19.
#[test]
fn a_zone_that_does_not_exist_is_shown() {
    check(
        &about(cron_job(json!({"spec": {"timeZone": "Mars/Olympus"}})), vec![], vec![]),
        expect![[r#"
        cronjob/backup: It never runs: `spec.timeZone` is wrong: unknown time zone Mars/Olympus.
          do     use a name of the tz database, for example `Europe/Berlin`
    "#]],
    );
}

/// CJ-34.
#[test]
fn a_deadline_below_the_controllers_delay_starts_nothing() {
    check(
        &about(cron_job(json!({"spec": {"startingDeadlineSeconds": 0}})), vec![], vec![]),
        expect![[r#"
        cronjob/backup: It may never run: startingDeadlineSeconds is 0, and a run that starts later than that is skipped.
          next   2026-11-15T11:00:00Z: next run (in 50m)
          do     set startingDeadlineSeconds to 10 or more, or leave it out
    "#]],
    );
}

#[test]
fn an_overdue_run_without_an_event_means_no_controller() {
    check(
        &about(
            cron_job(
                json!({"spec": {"schedule": "*/5 * * * *"}, "status": {"lastScheduleTime": "2026-11-15T08:00:00Z"}}),
            ),
            vec![],
            vec![],
        ),
        expect![[r#"
            cronjob/backup: The run of 2026-11-15T10:10:00Z is overdue and nothing says why; the CronJob controller may not be running.
              since  2026-11-15T08:05:00Z (2h5m ago)
              next   2026-11-15T10:15:00Z: next run (in 5m)
              do     check that the CronJob controller runs (kube-controller-manager, or `tally up`)

            evidence:
              cronjob/backup: last started (2h10m ago)
        "#]],
    );
}

#[test]
fn too_many_missed_runs_are_said() {
    check(
        &about(
            cron_job(
                json!({"spec": {"schedule": "* * * * *"}, "status": {"lastScheduleTime": "2026-11-14T08:00:00Z"}}),
            ),
            vec![],
            vec![],
        ),
        expect![[r#"
            cronjob/backup: The run of 2026-11-15T10:10:00Z is overdue and nothing says why; the CronJob controller may not be running. More than 100 runs were missed.
              since  2026-11-14T08:01:00Z (1d2h ago)
              next   2026-11-15T10:11:00Z: next run (in 1m)
              do     check that the CronJob controller runs (kube-controller-manager, or `tally up`)

            evidence:
              cronjob/backup: last started (1d2h ago)
        "#]],
    );
}

#[test]
fn a_run_that_cannot_be_created_says_why() {
    check(
        &about(
            cron_job(
                json!({"spec": {"schedule": "*/5 * * * *"}, "status": {"lastScheduleTime": "2026-11-15T10:00:00Z"}}),
            ),
            vec![],
            vec![event(
                "CronJob",
                "backup",
                "FailedCreate",
                "Error creating job: jobs.batch is forbidden: exceeded quota: jobs",
                3,
            )],
        ),
        expect![[r#"
            cronjob/backup: The run of 2026-11-15T10:10:00Z could not be started: Error creating job: jobs.batch is forbidden: exceeded quota: jobs.
              since  2026-11-15T10:05:00Z (5m ago)
              next   2026-11-15T10:15:00Z: next run (in 5m)
                     the controller tries again by itself

            evidence:
              event of cronjob/backup: FailedCreate, 3 times: Error creating job: jobs.batch is forbidden: exceeded quota: jobs (3s ago)
              cronjob/backup: last started (10m ago)
        "#]],
    );
}

#[test]
fn the_last_jobs_are_shown() {
    check(
        &about(
            cron_job(
                json!({"status": {"lastScheduleTime": "2026-11-15T10:00:00Z", "active": [{"kind": "Job", "name": "backup-3"}]}}),
            ),
            vec![
                made(
                    "backup-2",
                    json!({"status": {"conditions": [condition("Failed", "BackoffLimitExceeded", "", 500)]}}),
                ),
                made("backup-3", json!({"metadata": {"creationTimestamp": ago(10)}})),
            ],
            vec![],
        ),
        expect![[r#"
            cronjob/backup: It waits for its next run, 2026-11-15T11:00:00Z (schedule `0 * * * *`). job/backup-3 runs now.
              next   2026-11-15T11:00:00Z: next run (in 50m)
              do     to run it now: kubectl create job backup-now --from=cronjob/backup

            evidence:
              cronjob/backup: last started (10m ago)
              job/backup-3: not finished (10s ago)
              job/backup-2: failed: BackoffLimitExceeded (10m ago)
        "#]],
    );
}
