//! What a crash, a lost answer or a namesake leaves behind, and how the next sync takes it.

use serde_json::json;

use super::text::{World, check};

/// REG-F01, INV-35: the controller crashes after it has created the Job and before it could write that down.
#[test]
fn reg_f01_a_forgotten_job_is_written_down_and_not_started_again() {
    for policy in ["A", "F", "R"] {
        let mut world = World::parse(&format!("never due {policy} lose=status"));
        let (before, after) = (world.sync(), world.sync());
        assert!(before.ends_with("status lost\nwake 59m\n"), "{policy}: {before}");
        assert!(!after.contains("create"), "{policy}: a second Job for one time: {after}");
        assert_eq!(after, "status active=[c-24394200] last=10:00:00\nwake 59m\n", "{policy}");
        assert_eq!(world.sync(), "wake 59m\n", "{policy}");
        assert_eq!(world.job_names(), ["c-24394200"], "{policy}");
        check(
            &format!("never due {policy} | job c-24394200 running for=10:00:00"),
            "status active=[c-24394200] last=10:00:00 | wake 59m",
        );
    }
}

/// REG-F16, INV-38: the status after a creation does not get through, because somebody else wrote the CronJob or because the
/// process died. The next one finds the Job in the cache, or in its way; what it writes down is all that there is to say.
#[test]
fn reg_f16_what_was_not_written_down_is_listed_with_a_complete_reference() {
    for (cache_lags, said) in [
        (false, "status active=[c-24394200] last=10:00:00\nwake 59m\n"),
        (true, "exists c-24394200\nstatus active=[c-24394200] last=10:00:00\nwake 59m\n"),
    ] {
        let mut world = World::parse("never due F lose=status");
        assert_eq!(world.sync(), "create c-24394200\nstatus lost\nwake 59m\n");
        assert_eq!(*world.active(), json!([]));
        if cache_lags {
            world.lag();
        }
        assert_eq!(world.sync(), said);
        let reference = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "c-24394200", "namespace": "ns",
            "uid": "uid-c-24394200", "resourceVersion": "9"});
        assert_eq!(*world.active(), json!([reference]), "cache lags: {cache_lags}");
        assert_eq!(world.job_names(), ["c-24394200"]);
    }
}

/// REG-F16, INV-36: it counts for the concurrency policy of the next run, which upstream forgets.
#[test]
fn reg_f16_a_forgotten_job_blocks_or_is_replaced_when_the_next_is_due() {
    let forgotten = "never now=11:00:00 | job c-24394200 running for=10:00:00";
    check(
        &format!("F {forgotten}"),
        "Normal JobAlreadyActive: Not starting job because prior execution is running and concurrency policy is \
         Forbid | status active=[c-24394200] last=10:00:00 | wake 1h",
    );
    check(
        &format!("R {forgotten}"),
        "replace c-24394200 | create c-24394260 | status active=[c-24394260] last=11:00:00 | wake 1h",
    );
    check(
        &format!("A {forgotten}"),
        "create c-24394260 | status active=[c-24394200 c-24394260] last=11:00:00 | wake 1h",
    );
}

/// The Job has finished before anybody wrote it down; a history of nothing takes the witness away.
#[test]
fn a_forgotten_and_finished_job_is_not_started_again() {
    let done = "job c-24394200 complete=10:00:30 for=10:00:00";
    check(
        &format!("never due | {done}"),
        "status active=[] last=10:00:00 successful=10:00:30 | \
         Normal SawCompletedJob: Saw completed job: c-24394200, condition: Complete | wake 59m",
    );
    // The status is written before the Job is deleted, so that a crash in between is harmless.
    let mut world = World::parse(&format!("never due keep=0/0 | {done}"));
    assert_eq!(
        world.sync().lines().collect::<Vec<_>>(),
        ["status active=[] last=10:00:00 successful=10:00:30", "delete c-24394200", "wake 59m"]
    );
    assert_eq!(world.sync(), "wake 59m\n");
}

/// INV-37, INV-38: what nobody can ask for is no Job. It keeps nothing from being started, and is not listed for long.
#[test]
fn an_entry_that_can_be_no_job_of_the_cronjob_counts_as_gone() {
    let entry = |namespace: &str, name: &str| json!({"namespace": namespace, "name": name, "uid": "u"});
    for (entry, name) in [
        (json!({}), ""),
        (json!({"name": "j", "uid": "u"}), "j"),
        (entry("other", "j"), "j"),
        (entry("ns", ""), ""),
        (entry("ns", ".."), ".."),
        (entry("ns", "../../other/jobs/j"), "../../other/jobs/j"),
        (entry("ns", "j/status"), "j/status"),
        (entry("ns", "j?watch=1"), "j?watch=1"),
        (entry("ns", "J"), "J"),
    ] {
        for policy in ["A", "F", "R"] {
            let mut world = World::parse(&format!("ran due {policy}"));
            world.list_entry(entry.clone());
            let missing = format!("Normal MissingJob: Active job went missing: {name}");
            let status = "status active=[c-24394200] last=10:00:00";
            assert_eq!(world.sync(), format!("create c-24394200\n{status}\n{missing}\nwake 59m\n"), "{policy} {entry}");
            assert_eq!(world.sync(), "wake 59m\n", "{policy} {entry}");
        }
    }
}

/// INV-36, INV-38: the uid says which Job is meant, so it still counts for the concurrency policy.
#[test]
fn an_entry_with_a_wrong_name_for_a_known_job_is_put_right() {
    for (namespace, name) in [("ns", ""), ("ns", ".."), ("ns", "other"), ("", "c-24394140"), ("other", "c-24394140")] {
        let listed = |policy: &str| {
            let mut world = World::parse(&format!("ran due {policy} | job c-24394140 running for=09:00:00"));
            world.list_entry(json!({"namespace": namespace, "name": name, "uid": "uid-c-24394140"}));
            world.sync()
        };
        let about = format!("{namespace}/{name}");
        let active = "Normal JobAlreadyActive: Not starting job because prior execution is running and concurrency \
                      policy is Forbid";
        let put_right = "status active=[c-24394140] last=09:01:00";
        assert_eq!(listed("F"), format!("{active}\n{put_right}\nwake 59m\n"), "{about}");
        let replaced = "replace c-24394140\ncreate c-24394200\nstatus active=[c-24394200] last=10:00:00\n";
        assert_eq!(listed("R"), format!("{replaced}wake 59m\n"), "{about}");
    }
    // One that has finished is off the list at once.
    let mut world = World::parse("ran before | job j complete");
    world.list_entry(json!({"namespace": "ns", "name": "", "uid": "uid-j"}));
    let seen = "status active=[] last=09:01:00\nNormal SawCompletedJob: Saw completed job: j, condition: Complete\n";
    assert_eq!(world.sync(), format!("{seen}wake 1m\n"));
}

/// CJ-74: Jobs made by hand are noticed, and nothing else.
#[test]
fn a_job_made_by_hand_neither_blocks_nor_is_listed() {
    let unexpected = "Warning UnexpectedJob: Saw a job that the controller did not create or forgot: by-hand";
    let by_hand = "job by-hand running";
    check(&format!("ran before F | {by_hand}"), &format!("{unexpected} | wake 1m"));
    check(
        &format!("ran due F | {by_hand}"),
        &format!("{unexpected} | create c-24394200 | status active=[c-24394200] last=10:00:00 | wake 59m"),
    );
    // Neither does one that claims a time which is not that of its name.
    check("ran before F | job by-hand running for=09:01:00", &format!("{unexpected} | wake 1m"));
    // One on its way out is not worth a word.
    check(&format!("ran before F | {by_hand} deleting"), "wake 1m");
}

/// REG-F18, INV-31, INV-39: Jobs of a deleted CronJob of this name, and of a controller of another kind with it.
#[test]
fn reg_f18_jobs_of_a_namesake_are_not_ours() {
    for owner in ["of=old", "of=old kind=Workflow"] {
        let running = format!("job c-24394140 running for=09:00:00 {owner}");
        // Not in `active`.
        check(&format!("ran before | {running}"), "wake 1m");
        // Not cleaned up, nor a success of ours.
        let ended = format!("job a complete=09:30:00 {owner} | job b failed {owner}");
        check(&format!("ran before keep=0/0 | {ended}"), "wake 1m");
        // Not blocking, nor replaced.
        for policy in ["F", "R"] {
            check(
                &format!("ran due {policy} keep=0/0 | {running} | {ended}"),
                "create c-24394200 | status active=[c-24394200] last=10:00:00 | wake 59m",
            );
        }
        // Nor does one that has the name of the next run serve its time.
        check(
            &format!("never due | job c-24394200 running for=10:00:00 unseen {owner}"),
            "exists c-24394200 | wake 59m",
        );
    }
    check("never due create=foreign", "exists c-24394200 | wake 59m");
}

/// CJ-50: two times of one minute share a Job.
#[test]
fn a_second_time_in_the_same_minute_starts_nothing() {
    let every = "schedule=@every_20s created=09:59:40 last=10:00:00 now=10:00:20.5";
    check(&format!("{every} | job c-24394200 running for=10:00:00 listed"), "wake 19s500ms");
    check(
        &format!("{every} | job c-24394200 complete=10:00:10 for=10:00:00"),
        "status active=[] last=10:00:20 successful=10:00:10 | wake 19s500ms",
    );
}

/// INV-29: a sync without news does nothing, and all that is due is done by the first one.
#[test]
fn a_second_sync_does_nothing() {
    for setup in [
        "never due A",
        "never due F",
        "never due R | job j running listed",
        "ran week | job j complete=09:00:10 listed",
        "ran due keep=0/0 | job j complete=09:00:10 listed",
        "never due | job c-24394200 running for=10:00:00",
        "ran due F active=lost",
    ] {
        let mut world = World::parse(setup);
        world.sync();
        let again = world.sync();
        assert!(again.lines().all(|line| line.starts_with("wake ")), "{setup}: {again}");
    }
}

/// REG-F05, INV-37: three days off, or suspended, cost one run; then it goes on by the clock.
#[test]
fn reg_f05_a_long_pause_is_made_up_for_once() {
    for suspended in [false, true] {
        let mut world = World::parse("schedule=*_*_*_*_* ran");
        if suspended {
            world.apply("suspended");
            for now in ["2016-05-19T09:02:00", "2016-05-20T09:00:00", "2016-05-22T09:00:29"] {
                world.apply(&format!("now={now}"));
                assert_eq!(world.sync(), "", "{now}");
            }
            world.apply("resumed");
        }
        world.apply("now=2016-05-22T09:00:30");
        let said = world.sync();
        assert!(said.contains("create c-24398460"), "suspended {suspended}: {said}");
        assert_eq!(world.sync(), "wake 30s\n");
        for (now, job) in [("09:01:00", "c-24398461"), ("09:02:00", "c-24398462"), ("09:03:00.1", "c-24398463")] {
            world.apply(&format!("now=2016-05-22T{now}"));
            let said = world.sync();
            assert!(said.starts_with(&format!("create {job}\n")), "suspended {suspended}: {said}");
        }
        assert_eq!(world.job_names(), ["c-24398460", "c-24398461", "c-24398462", "c-24398463"]);
    }
}

/// INV-29: many at once are taken in slices.
#[test]
fn history_goes_in_slices() {
    let jobs: Vec<String> = (0..130).map(|n| format!("job j{n:03} failed")).collect();
    let mut world = World::parse(&format!("ran before keep=1/1 | {}", jobs.join(" | ")));
    let deletions = |said: String| said.lines().filter(|line| line.starts_with("delete ")).count();
    assert_eq!(deletions(world.sync()), 100);
    assert_eq!(deletions(world.sync()), 29);
    assert_eq!(deletions(world.sync()), 0);
}
