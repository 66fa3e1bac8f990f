//! Whatever is sent: an answer in Kubernetes' words, no panic, never a 500 that upstream would not give.

mod common;

use common::{Api, JOBS, job};
use http::Method;
use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};
use serde_json::{Value, json};

/// Values that have broken servers before.
fn odd_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        prop::sample::select(vec![0, 1, -1, i64::from(i32::MAX), i64::from(i32::MIN), i64::MAX]).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(vec![
            "",
            "a",
            "Indexed",
            "Failed",
            "0-",
            "1,2",
            "5-3",
            "9999999999",
            "\u{0}",
            "é",
            "True"
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::vec((field_name(), inner), 0..3)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn field_name() -> impl Strategy<Value = String> {
    let names = [
        "metadata",
        "spec",
        "status",
        "template",
        "containers",
        "name",
        "rules",
        "action",
        "onExitCodes",
        "values",
        "operator",
        "onPodConditions",
        "type",
        "succeededIndexes",
        "succeededCount",
        "labels",
        "finalizers",
        "ownerReferences",
        "uid",
        "matchLabels",
        "conditions",
        "uncountedTerminatedPods",
        "succeeded",
        "failed",
    ];
    prop::sample::select(names.to_vec()).prop_map(str::to_owned)
}

/// Where in a Job something odd may stand.
fn place() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "/metadata",
        "/metadata/labels",
        "/metadata/finalizers",
        "/metadata/ownerReferences",
        "/metadata/generateName",
        "/spec",
        "/spec/completions",
        "/spec/parallelism",
        "/spec/completionMode",
        "/spec/backoffLimit",
        "/spec/backoffLimitPerIndex",
        "/spec/maxFailedIndexes",
        "/spec/podFailurePolicy",
        "/spec/successPolicy",
        "/spec/successPolicy/rules",
        "/spec/podReplacementPolicy",
        "/spec/managedBy",
        "/spec/selector",
        "/spec/manualSelector",
        "/spec/suspend",
        "/spec/ttlSecondsAfterFinished",
        "/spec/activeDeadlineSeconds",
        "/spec/template",
        "/spec/template/metadata",
        "/spec/template/spec",
        "/spec/template/spec/containers",
        "/spec/template/spec/volumes",
        "/spec/template/spec/initContainers",
        "/spec/template/spec/restartPolicy",
        "/status",
        "/status/active",
        "/status/conditions",
        "/status/completedIndexes",
        "/status/failedIndexes",
        "/status/uncountedTerminatedPods",
        "/status/startTime",
        "/status/completionTime",
    ])
}

fn set(object: &mut Value, pointer: &str, value: Value) {
    let mut at = object;
    for segment in pointer.split('/').skip(1) {
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[segment];
    }
    *at = value;
}

/// INV-47.
#[test]
fn odd_jobs_never_break_the_server() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let api = runtime.block_on(async {
        let api = Api::new().await;
        api.post(JOBS, job("fixed")).await.expect(201);
        api
    });
    let mut runner =
        TestRunner::new(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() });
    let edits = prop::collection::vec((place(), odd_value()), 1..4);
    runner
        .run(&edits, |edits| {
            let mut object = job("odd");
            let mut patch = json!({});
            for (pointer, value) in &edits {
                set(&mut object, pointer, value.clone());
                set(&mut patch, pointer, value.clone());
            }
            runtime.block_on(async {
                let fixed = format!("{JOBS}/fixed");
                let answers = [
                    ("create", api.post(&format!("{JOBS}?dryRun=All"), object.clone()).await),
                    ("replace", api.put(&format!("{fixed}?dryRun=All"), named(object.clone())).await),
                    ("status", api.merge(&format!("{fixed}/status?dryRun=All"), patch.clone()).await),
                    ("merge", api.merge(&format!("{fixed}?dryRun=All"), patch.clone()).await),
                ];
                for (what, answer) in answers {
                    prop_assert!(answer.code != 500, "{what}: {:#}", answer.body);
                }
                let strategic = api
                    .send(
                        Method::PATCH,
                        &format!("{fixed}?dryRun=All"),
                        "application/strategic-merge-patch+json",
                        &patch.to_string(),
                    )
                    .await;
                // Upstream answers 500 for items without their merge key and for odd directives (AS-120, AS-121).
                let is_upstreams = strategic.code != 500 || strategic.body.get("reason").is_none();
                prop_assert!(is_upstreams, "strategic: {:#}", strategic.body);
                Ok(())
            })
        })
        .unwrap();
}

/// Objects of any shape at all, most of which resemble nothing.
fn any_json() -> impl Strategy<Value = Value> {
    let names = prop_oneof![field_name(), "[a-zA-Z.$]{0,12}".prop_map(String::from)];
    let leaf = prop_oneof![odd_value(), any::<String>().prop_map(Value::from), any::<i32>().prop_map(Value::from)];
    leaf.prop_recursive(6, 48, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((names.clone(), inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn cron_job(name: &str) -> Value {
    json!({
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": name},
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": job("x")["spec"]}},
    })
}

/// Places in a CronJob, beyond those of the Job inside it.
fn cron_place() -> impl Strategy<Value = String> {
    let own = prop::sample::select(vec![
        "/metadata",
        "/metadata/name",
        "/spec",
        "/spec/schedule",
        "/spec/timeZone",
        "/spec/startingDeadlineSeconds",
        "/spec/concurrencyPolicy",
        "/spec/suspend",
        "/spec/jobTemplate",
        "/spec/jobTemplate/metadata",
        "/spec/successfulJobsHistoryLimit",
        "/spec/failedJobsHistoryLimit",
        "/status",
        "/status/active",
        "/status/lastScheduleTime",
        "/status/lastSuccessfulTime",
    ]);
    prop_oneof![own.prop_map(str::to_owned), place().prop_map(|place| format!("/spec/jobTemplate{place}"))]
}

/// Arbitrary JSON, as a whole or in places, on the create, replace and status paths of both kinds (INV-47).
#[test]
fn arbitrary_json_never_breaks_jobs_or_cronjobs() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let cron_jobs = JOBS.replace("/jobs", "/cronjobs");
    let api = runtime.block_on(async {
        let api = Api::new().await;
        api.post(JOBS, job("fixed")).await.expect(201);
        api.post(&cron_jobs, cron_job("fixed")).await.expect(201);
        api
    });
    let mut runner =
        TestRunner::new(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() });
    let edits = prop::collection::vec((cron_place(), any_json()), 1..4);
    runner
        .run(&(any_json(), edits), |(whole, edits)| {
            let mut partly = cron_job("fixed");
            for (pointer, value) in &edits {
                set(&mut partly, pointer, value.clone());
            }
            let status_only = json!({"metadata": {"name": "fixed"}, "spec": partly["spec"], "status": whole});
            runtime.block_on(async {
                for path in [JOBS, &cron_jobs] {
                    for body in [&whole, &partly, &status_only, &partly["spec"]["jobTemplate"]] {
                        let answers = [
                            api.post(&format!("{path}?dryRun=All"), body.clone()).await,
                            api.put(&format!("{path}/fixed?dryRun=All"), body.clone()).await,
                            api.put(&format!("{path}/fixed/status?dryRun=All"), body.clone()).await,
                            api.merge(&format!("{path}/fixed/status?dryRun=All"), body.clone()).await,
                        ];
                        for answer in answers {
                            prop_assert!(answer.code < 500, "{path} {body}: {:#}", answer.body);
                        }
                    }
                }
                Ok(())
            })
        })
        .unwrap();
}

fn named(mut object: Value) -> Value {
    set(&mut object, "/metadata/name", json!("fixed"));
    object
}

#[tokio::test]
async fn a_success_policy_without_completions_is_invalid_not_fatal() {
    let api = Api::new().await;
    let mut object = job("a");
    object["spec"]["completionMode"] = json!("Indexed");
    object["spec"]["successPolicy"] = json!({"rules": [{"succeededIndexes": "0-3", "succeededCount": 2}]});
    api.post(JOBS, object).await.expect(422);
}

/// INV-47.
#[tokio::test]
async fn a_hundred_thousand_errors_are_counted_not_listed() {
    let api = Api::new().await;
    let mut object = job("a");
    object["spec"]["template"]["spec"]["containers"] = json!(vec![json!({}); 100_000]);
    let answer = api.post(JOBS, object).await.expect(422);
    assert_eq!(answer.body["details"]["causes"].as_array().unwrap().len(), 1000);
    let message = answer.body["message"].as_str().unwrap();
    assert!(message.ends_with(" more]"), "…{}", &message[message.len() - 100..]);
}

/// INV-47.
#[tokio::test]
async fn random_bytes_are_answered_as_bad_requests() {
    let api = Api::new().await;
    api.post(JOBS, job("a")).await.expect(201);
    let mut runner = TestRunner::deterministic();
    let bytes = prop::collection::vec(any::<u8>(), 0..200);
    for _ in 0..300 {
        let body = bytes.new_tree(&mut runner).unwrap().current();
        for (method, path, kind) in [
            (Method::POST, JOBS.to_owned(), "application/json"),
            (Method::POST, JOBS.to_owned(), "application/yaml"),
            (Method::POST, JOBS.to_owned(), "application/vnd.kubernetes.protobuf"),
            (Method::PATCH, format!("{JOBS}/a"), "application/merge-patch+json"),
            (Method::PATCH, format!("{JOBS}/a"), "application/json-patch+json"),
        ] {
            let mut request = http::Request::builder().method(method).uri(path).header("content-type", kind);
            request = request.header("accept", "application/json");
            let request = request.body(kube::client::Body::from(body.clone())).unwrap();
            let code = api.client.send(request).await.unwrap().status().as_u16();
            assert!((400..500).contains(&code) && code != 409, "{kind}: {code} for {body:?}");
        }
    }
}

/// INV-47.
#[tokio::test]
async fn selectors_and_tokens_of_any_text_are_answered() {
    let api = Api::new().await;
    let mut runner = TestRunner::deterministic();
    let text = prop::string::string_regex("[a-z0-9=!,()<>% /._~\\\\-]{0,40}").unwrap();
    for _ in 0..500 {
        let text = text.new_tree(&mut runner).unwrap().current();
        let escaped: String = text.bytes().map(|byte| format!("%{byte:02X}")).collect();
        for parameter in ["labelSelector", "fieldSelector", "continue", "resourceVersion", "limit", "timeoutSeconds"] {
            let answer = api.get(&format!("{JOBS}?{parameter}={escaped}&resourceVersionMatch=")).await;
            assert!(matches!(answer.code, 200 | 400 | 410 | 504), "{parameter}={text}: {:#}", answer.body);
        }
    }
}
