//! Jobs and CronJobs of many shapes, drawn from the seed.
//!
//! Every Job ends in bounded time once nobody troubles it: processes run for seconds, and failures are limited.

use serde_json::{Value, json};

use crate::random::Random;

/// Somebody else's controller (KEP-4368).
pub const FOREIGN_MANAGER: &str = "example.com/queue";

/// The spec of a Job.
pub fn job_spec(random: &mut Random) -> Value {
    let mut spec = json!({"template": template(random)});
    let completions = random.between(1, 6);
    let parallelism = random.between(1, 4);
    spec["parallelism"] = parallelism.into();
    match random.below(10) {
        // A work queue: done when one pod has succeeded and all have ended.
        0 => {}
        1..=4 => spec["completions"] = completions.into(),
        _ => indexed(&mut spec, completions, random),
    }
    spec["backoffLimit"] = random.pick(&[0, 1, 2, 4, 6]).into();
    let per_index = spec["backoffLimitPerIndex"].is_u64();
    if per_index {
        spec["backoffLimit"] = json!(1000);
    }
    if random.chance(250) && spec["template"]["spec"]["restartPolicy"] == "Never" {
        spec["podFailurePolicy"] = failure_policy(per_index, random);
    } else if random.chance(300) {
        spec["podReplacementPolicy"] = random.pick(&["Failed", "TerminatingOrFailed"]).into();
    }
    if random.chance(200) {
        spec["activeDeadlineSeconds"] = random.pick(&[5, 20, 60, 200]).into();
    }
    if random.chance(250) {
        spec["ttlSecondsAfterFinished"] = random.pick(&[0, 5, 30, 120]).into();
    }
    if random.chance(120) {
        spec["suspend"] = true.into();
    }
    if random.chance(40) {
        spec["managedBy"] = FOREIGN_MANAGER.into();
    }
    spec
}

/// The spec of a CronJob.
pub fn cron_job_spec(random: &mut Random) -> Value {
    let mut template = json!({"spec": job_spec(random)});
    template["spec"]["suspend"] = false.into();
    let mut spec = json!({
        "schedule": random.pick(&["* * * * *", "*/2 * * * *", "*/3 * * * *"]),
        "concurrencyPolicy": random.pick(&["Allow", "Forbid", "Replace"]),
        "successfulJobsHistoryLimit": random.below(3),
        "failedJobsHistoryLimit": random.below(3),
        "jobTemplate": template,
    });
    if random.chance(300) {
        spec["startingDeadlineSeconds"] = random.pick(&[5, 30, 200]).into();
    }
    if random.chance(400) {
        spec["timeZone"] = random.pick(&["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]).into();
    }
    spec
}

/// The template of a pod whose one container does as its arguments say.
fn template(random: &mut Random) -> Value {
    let run = random.pick(&[0, 200, 3_000, 20_000]);
    let restart = random.pick(&["Never", "Never", "Never", "OnFailure"]);
    // A container that is started again ends well some day: a pod made for a finished Job by a late call has no limit.
    let fail = random.pick(if restart == "Never" { &[0, 0, 100, 300, 700, 1000] } else { &[0, 0, 100, 300, 300, 700] });
    let stop = random.pick(&[0, 500, 5_000, 60_000]);
    let codes = random.pick(&["1", "1,42", "42", "1,7,42"]);
    let args = [format!("run={run}"), format!("fail={fail}"), format!("codes={codes}"), format!("term={stop}")];
    let container = json!({"name": "main", "image": "sim", "command": ["sim"], "args": args});
    json!({
        "spec": {
            "restartPolicy": restart,
            "terminationGracePeriodSeconds": random.pick(&[1, 5, 30]),
            "containers": [container],
        },
    })
}

fn indexed(spec: &mut Value, completions: u64, random: &mut Random) {
    spec["completionMode"] = "Indexed".into();
    spec["completions"] = completions.into();
    if random.chance(350) && spec["template"]["spec"]["restartPolicy"] == "Never" {
        spec["backoffLimitPerIndex"] = random.below(3).into();
        if random.chance(500) {
            spec["maxFailedIndexes"] = random.below(completions + 1).into();
        }
    }
    if random.chance(250) {
        let count = random.between(1, completions);
        let rule = match random.below(2) {
            0 => json!({"succeededCount": count}),
            _ => json!({"succeededIndexes": first_indexes(count)}),
        };
        spec["successPolicy"] = json!({"rules": [rule]});
    }
}

/// The first so many indexes, in the form that Kubernetes itself writes.
fn first_indexes(count: u64) -> String {
    match count {
        1 => "0".to_owned(),
        2 => "0,1".to_owned(),
        _ => format!("0-{}", count - 1),
    }
}

fn failure_policy(per_index: bool, random: &mut Random) -> Value {
    let on_code =
        |action: &str, code: i32| json!({"action": action, "onExitCodes": {"operator": "In", "values": [code]}});
    let disrupted =
        |action: &str| json!({"action": action, "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]});
    let mut rules = Vec::new();
    if random.chance(500) {
        rules.push(on_code("FailJob", 42));
    }
    if per_index && random.chance(600) {
        rules.push(on_code("FailIndex", 7));
    }
    if random.chance(500) {
        rules.push(disrupted("Ignore"));
    }
    rules.push(on_code("Count", 1));
    json!({"rules": rules})
}
