//! What tidies up: TTL, the garbage collector, the pod garbage collector.

use controllers::runtime::Resource;
use serde_json::json;

use super::{Scenario, job_spec, start, then};
use crate::world::{Behaviour, Controllers, Step, What, When, edit};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        controllers: Controllers { ttl: true, gc: true, ..Controllers::JOB },
        ..Scenario::job(
            "ttl",
            |_| Behaviour::ends(0, 1_000),
            || start(json!({"completions": 1, "ttlSecondsAfterFinished": 100})),
            "",
        )
    },
    Scenario {
        controllers: Controllers { ttl: true, ..Controllers::JOB },
        ..Scenario::job(
            "ttl-raised-and-removed",
            |_| Behaviour::ends(0, 1_000),
            || {
                let raise =
                    edit(When::Condition("a", "Complete"), "a", json!({"spec": {"ttlSecondsAfterFinished": 200}}));
                let remove = edit(When::After(190_000), "a", json!({"spec": {"ttlSecondsAfterFinished": null}}));
                then(start(json!({"completions": 1, "ttlSecondsAfterFinished": 100})), [raise, remove])
            },
            "job a Complete",
        )
    },
    // Of several Jobs those go whose time is up, and a namesake of one of them stays.
    Scenario {
        controllers: Controllers { ttl: true, gc: true, ..Controllers::JOB },
        ..Scenario::job(
            "ttl-among-others",
            |_| Behaviour::ends(0, 1_000),
            || {
                let job = |name: &str, fields| {
                    let metadata = json!({"name": name});
                    let spec = job_spec(fields);
                    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec});
                    What::Create(Resource::JOBS, job)
                };
                let nothing = |ttl: u32| json!({"completions": 0, "ttlSecondsAfterFinished": ttl});
                vec![
                    Step::new(When::After(2_000), job("a", nothing(0))),
                    Step::new(When::After(0), job("kept", json!({"completions": 0}))),
                    Step::new(
                        When::After(0),
                        job("unfinished", json!({"suspend": true, "ttlSecondsAfterFinished": 0})),
                    ),
                    Step::new(When::After(0), job("later", nothing(60))),
                    Step::new(When::Gone("a"), job("a", json!({"suspend": true, "ttlSecondsAfterFinished": 0}))),
                    Step::new(When::Gone("later"), What::Nothing),
                ]
            },
            "job a Suspended",
        )
    },
    // A CronJob goes, with its Jobs and their pods.
    Scenario {
        controllers: Controllers { cron_job: true, gc: true, ..Controllers::JOB },
        ..Scenario::job(
            "gc-chain",
            |_| Behaviour { stop_ms: 1_000, ..Behaviour::runs() },
            || {
                let spec = json!({"schedule": "*/10 * * * *", "jobTemplate": {"spec": job_spec(json!({}))}});
                let cron_job =
                    json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c"}, "spec": spec});
                vec![
                    Step::new(When::After(500), What::Create(Resource::CRON_JOBS, cron_job)),
                    Step::new(When::Pods("Running", 1), What::Delete(Resource::CRON_JOBS, "c", "Background")),
                ]
            },
            "",
        )
    },
    // A node goes, and with it the pod that ran there (REG-H05, REG-H07).
    Scenario {
        controllers: Controllers { pod_gc: true, ..Controllers::JOB },
        // The collector acts on what it is shown: a pod that it does not know to have ended is ended once more.
        lag_matters: true,
        ..Scenario::job(
            "node-gone",
            |pod| if pod.ordinal == 0 { Behaviour::runs() } else { Behaviour::ends(0, 1_000) },
            || {
                let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}});
                let mut steps = vec![Step::new(When::After(0), What::Create(Resource::NODES, node))];
                steps.extend(start(json!({"completions": 1, "podReplacementPolicy": "Failed"})));
                let gone = What::Delete(Resource::NODES, "node", "Background");
                then(steps, [Step::new(When::Pods("Running", 1), gone)])
            },
            "succeeded=1 failed=1 | live=0 tracked=0",
        )
    },
];
