//! ResourceQuota and LimitRange over the API: what is refused, what is charged, what is given back (AS-221, AS-224).

mod common;

use common::{Answer, Api, JOBS, PODS, job};
use futures_util::future::join_all;
use proptest::{prelude::*, test_runner::TestRunner};
use serde_json::{Value, json};

const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
const LIMITS: &str = "/api/v1/namespaces/default/limitranges";

fn pod(name: &str, resources: Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "app:1", "resources": resources}]},
    })
}

fn plain(name: &str) -> Value {
    pod(name, json!({}))
}

async fn quota(api: &Api, name: &str, spec: Value) -> Answer {
    api.post(QUOTAS, json!({"metadata": {"name": name}, "spec": spec})).await
}

async fn used(api: &Api, name: &str) -> Value {
    api.get(&format!("{QUOTAS}/{name}")).await.expect(200).body["status"]["used"].clone()
}

async fn end(api: &Api, name: &str, phase: &str) {
    api.merge(&format!("{PODS}/{name}/status"), json!({"status": {"phase": phase}})).await.expect(200);
}

#[tokio::test]
async fn a_new_quota_counts_what_is_there() {
    let api = Api::new().await;
    for name in ["a", "b"] {
        api.post(PODS, pod(name, json!({"requests": {"cpu": "250m"}}))).await.expect(201);
    }
    end(&api, "b", "Succeeded").await;
    api.post(JOBS, job("one")).await.expect(201);
    let hard = json!({"pods": "5", "count/pods": "5", "requests.cpu": "2", "count/jobs.batch": "1", "services": "1"});
    let created = quota(&api, "q", json!({ "hard": hard })).await.expect(201);
    assert_eq!(created.body["status"], json!({}), "figures come after the quota, as with upstream's controller");
    let stored = api.get(&format!("{QUOTAS}/q")).await.body;
    assert_eq!(stored["status"]["hard"], stored["spec"]["hard"]);
    assert_eq!(
        stored["status"]["used"],
        json!({"count/jobs.batch": "1", "count/pods": "2", "pods": "1", "requests.cpu": "250m", "services": "0"})
    );
}

#[tokio::test]
async fn refusals_are_upstreams_and_charge_nothing() {
    let api = Api::new().await;
    quota(&api, "q", json!({"hard": {"pods": "1", "limits.cpu": "1", "count/jobs.batch": "0"}})).await.expect(201);
    let limited = |name: &str, cpu: &str| pod(name, json!({"limits": {"cpu": cpu}}));
    let cases = [
        (PODS, plain("x"), r#"pods "x" is forbidden: failed quota: q: must specify limits.cpu for: c"#),
        (
            PODS,
            limited("x", "2"),
            r#"pods "x" is forbidden: exceeded quota: q, requested: limits.cpu=2, used: limits.cpu=0, limited: limits.cpu=1"#,
        ),
        (
            JOBS,
            job("j"),
            r#"jobs.batch "j" is forbidden: exceeded quota: q, requested: count/jobs.batch=1, used: count/jobs.batch=0, limited: count/jobs.batch=0"#,
        ),
    ];
    for (path, object, message) in cases {
        for path in [path.to_owned(), format!("{path}?dryRun=All")] {
            let refused = api.post(&path, object.clone()).await.expect(403);
            assert_eq!(
                (refused.body["reason"].as_str(), refused.body["message"].as_str()),
                (Some("Forbidden"), Some(message))
            );
        }
    }
    api.post(&format!("{PODS}?dryRun=All"), limited("x", "1")).await.expect(201);
    assert_eq!(used(&api, "q").await, json!({"count/jobs.batch": "0", "limits.cpu": "0", "pods": "0"}));
    api.post(PODS, limited("x", "500m")).await.expect(201);
    api.post(PODS, limited("x", "500m")).await.expect(403);
    assert_eq!(used(&api, "q").await["pods"], "1");
}

/// A name that is taken is not charged for.
#[tokio::test]
async fn a_write_that_fails_is_not_charged() {
    let api = Api::new().await;
    quota(&api, "q", json!({"hard": {"pods": "5"}})).await.expect(201);
    api.post(PODS, plain("x")).await.expect(201);
    api.post(PODS, plain("x")).await.expect(409);
    assert_eq!(used(&api, "q").await, json!({"pods": "1"}));
}

#[tokio::test]
async fn what_ends_or_goes_is_given_back() {
    let api = Api::new().await;
    quota(&api, "q", json!({"hard": {"pods": "2", "count/pods": "2", "secrets": "9"}})).await.expect(201);
    for name in ["a", "b"] {
        api.post(PODS, plain(name)).await.expect(201);
    }
    end(&api, "a", "Failed").await;
    assert_eq!(used(&api, "q").await, json!({"count/pods": "2", "pods": "1", "secrets": "0"}));
    api.post(PODS, plain("c")).await.expect(403);
    for name in ["a", "b"] {
        api.delete(&format!("{PODS}/{name}"), json!({})).await.expect(200);
    }
    assert_eq!(used(&api, "q").await, json!({"count/pods": "0", "pods": "0", "secrets": "0"}));
    api.post(PODS, plain("c")).await.expect(201);
}

/// Finalizers hold an object and its charge.
#[tokio::test]
async fn an_object_is_charged_until_it_is_gone() {
    let api = Api::new().await;
    quota(&api, "q", json!({"hard": {"configmaps": "1"}})).await.expect(201);
    let maps = "/api/v1/namespaces/default/configmaps";
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/x"]}});
    api.post(maps, held).await.expect(201);
    api.delete(&format!("{maps}/held"), json!({})).await.expect(200);
    assert_eq!(used(&api, "q").await, json!({"configmaps": "1"}));
    api.merge(&format!("{maps}/held"), json!({"metadata": {"finalizers": null}})).await.expect(200);
    assert_eq!(used(&api, "q").await, json!({"configmaps": "0"}));
}

#[tokio::test]
async fn new_limits_hold_at_once_and_are_counted() {
    let api = Api::new().await;
    quota(&api, "q", json!({"hard": {"pods": "1"}})).await.expect(201);
    api.post(PODS, plain("a")).await.expect(201);
    api.post("/api/v1/namespaces/default/secrets", json!({"metadata": {"name": "s"}})).await.expect(201);
    let path = format!("{QUOTAS}/q");
    api.merge(&path, json!({"spec": {"hard": {"pods": "2", "secrets": "3"}}})).await.expect(200);
    assert_eq!(used(&api, "q").await, json!({"pods": "1", "secrets": "1"}));
    api.post(PODS, plain("b")).await.expect(201);
    api.post(PODS, plain("c")).await.expect(403);
    assert_eq!(api.delete(&path, json!({})).await.expect(200).body["kind"], "ResourceQuota");
    api.post(PODS, plain("c")).await.expect(201);
}

/// A quota counts quotas too, itself included.
#[tokio::test]
async fn quotas_are_counted() {
    let api = Api::new().await;
    quota(&api, "a", json!({"hard": {"resourcequotas": "2"}})).await.expect(201);
    assert_eq!(used(&api, "a").await, json!({"resourcequotas": "1"}));
    quota(&api, "b", json!({"hard": {"pods": "2"}})).await.expect(201);
    quota(&api, "c", json!({"hard": {"pods": "2"}})).await.expect(403);
    assert_eq!(used(&api, "a").await, json!({"resourcequotas": "2"}));
    api.delete(&format!("{QUOTAS}/b"), json!({})).await.expect(200);
    assert_eq!(used(&api, "a").await, json!({"resourcequotas": "1"}));
    api.delete(&format!("{QUOTAS}/a"), json!({})).await.expect(200);
}

#[tokio::test]
async fn scopes_choose_pods() {
    let api = Api::new().await;
    api.post("/apis/scheduling.k8s.io/v1/priorityclasses", json!({"metadata": {"name": "high"}, "value": 5}))
        .await
        .expect(201);
    quota(&api, "short", json!({"hard": {"pods": "1"}, "scopes": ["Terminating"]})).await.expect(201);
    let expression = json!({"scopeName": "PriorityClass", "operator": "In", "values": ["high"]});
    let selector = json!({"matchExpressions": [expression]});
    quota(&api, "vip", json!({"hard": {"pods": "1"}, "scopeSelector": selector})).await.expect(201);
    let with = |name: &str, spec: Value| {
        let mut pod = plain(name);
        pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        pod
    };
    api.post(PODS, plain("any")).await.expect(201);
    api.post(PODS, with("short", json!({"activeDeadlineSeconds": 9}))).await.expect(201);
    api.post(PODS, with("high", json!({"priorityClassName": "high"}))).await.expect(201);
    assert_eq!((used(&api, "short").await, used(&api, "vip").await), (json!({"pods": "1"}), json!({"pods": "1"})));
    api.post(PODS, with("too-short", json!({"activeDeadlineSeconds": 9}))).await.expect(403);
    api.post(PODS, with("too-high", json!({"priorityClassName": "high"}))).await.expect(403);
    // A deadline moves a pod into a scope that is full.
    api.merge(&format!("{PODS}/any"), json!({"spec": {"activeDeadlineSeconds": 9}})).await.expect(403);
}

/// Exactly as many as fit, however many try at once, and the figures are right at every end.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_writers_share_a_quota_exactly() {
    let api = Api::new().await;
    quota(&api, "q", json!({"hard": {"pods": "7", "count/jobs.batch": "5"}})).await.expect(201);
    let pods = join_all((0..40).map(|number| {
        let api = api.clone();
        async move { api.post(PODS, plain(&format!("p-{number}"))).await.code }
    }));
    let jobs = join_all((0..40).map(|number| {
        let api = api.clone();
        async move { api.post(JOBS, job(&format!("j-{number}"))).await.code }
    }));
    let (pods, jobs) = tokio::join!(pods, jobs);
    let count = |codes: &[u16], code| codes.iter().filter(|one| **one == code).count();
    assert_eq!((count(&pods, 201), count(&pods, 403)), (7, 33), "{pods:?}");
    assert_eq!((count(&jobs, 201), count(&jobs, 403)), (5, 35), "{jobs:?}");
    assert_eq!(used(&api, "q").await, json!({"pods": "7", "count/jobs.batch": "5"}));
    let names: Vec<String> = api.get(PODS).await.names().into_iter().map(str::to_owned).collect();
    join_all(names.iter().map(|name| {
        let (api, path) = (api.clone(), format!("{PODS}/{name}"));
        async move { api.delete(&path, json!({})).await.expect(200) }
    }))
    .await;
    assert_eq!(used(&api, "q").await["pods"], "0");
}

/// Whatever is being created when a quota appears is in its figures, once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_quota_among_writers_counts_each_of_them_once() {
    let api = Api::new().await;
    for round in 0..10 {
        let name = format!("q-{round}");
        let created = quota(&api, &name, json!({"hard": {"pods": "1000", "count/pods": "1000"}}));
        let pods = join_all((0..20).map(|number| {
            let api = api.clone();
            let pod = plain(&format!("p-{round}-{number}"));
            async move {
                tokio::task::yield_now().await;
                api.post(PODS, pod).await
            }
        }));
        let (created, pods) = tokio::join!(created, pods);
        created.expect(201);
        pods.into_iter().for_each(|answer| drop(answer.expect(201)));
        let there = api.get(PODS).await.names().len().to_string();
        assert_eq!(used(&api, &name).await, json!({"pods": there, "count/pods": there}));
    }
}

#[tokio::test]
async fn limit_ranges_give_defaults_and_set_bounds() {
    let api = Api::new().await;
    let limits = json!([{"type": "Container", "max": {"cpu": "1"}, "defaultRequest": {"cpu": "100m"}}]);
    let created = api.post(LIMITS, json!({"metadata": {"name": "l"}, "spec": {"limits": limits}})).await.expect(201);
    assert_eq!(created.body["spec"]["limits"][0]["default"], json!({"cpu": "1"}));
    quota(&api, "q", json!({"hard": {"requests.cpu": "150m"}})).await.expect(201);
    let given = api.post(PODS, plain("a")).await.expect(201).body;
    assert_eq!(
        given["spec"]["containers"][0]["resources"],
        json!({"limits": {"cpu": "1"}, "requests": {"cpu": "100m"}})
    );
    assert_eq!(
        given["metadata"]["annotations"]["kubernetes.io/limit-ranger"],
        "LimitRanger plugin set: cpu request for container c; cpu limit for container c"
    );
    assert_eq!(given["status"]["qosClass"], "Burstable");
    // What was given counts against quotas.
    api.post(PODS, plain("b")).await.expect(403);
    let refused =
        api.post(PODS, pod("big", json!({"limits": {"cpu": "2"}, "requests": {"cpu": "1m"}}))).await.expect(403);
    assert_eq!(
        refused.body["message"],
        r#"pods "big" is forbidden: maximum cpu usage per Container is 1, but limit is 2"#
    );
}

#[tokio::test]
async fn limit_ranges_are_created_by_put_and_named_if_nameless() {
    let api = Api::new().await;
    let body =
        |name: &str| json!({"metadata": {"name": name}, "spec": {"limits": [{"type": "Pod", "max": {"cpu": "1"}}]}});
    api.put(&format!("{LIMITS}/l"), body("l")).await.expect(201);
    let named = api.post(LIMITS, json!({"spec": {"limits": []}})).await.expect(201).body;
    assert_eq!(named["metadata"]["name"], named["metadata"]["uid"]);
    api.post(LIMITS, json!({"metadata": {"name": "bad"}, "spec": {"limits": [{"type": "Odd"}]}})).await.expect(422);
}

/// Something that changes what is used.
#[derive(Debug, Clone)]
enum Step {
    Create { pod: u8, cpu: u8 },
    Limit { pod: u8 },
    End { pod: u8 },
    Delete { pod: u8 },
    CreateJob { job: u8 },
    DeleteJob { job: u8 },
}

fn step() -> impl Strategy<Value = Step> {
    let name = 0..4_u8;
    prop_oneof![
        3 => (name.clone(), 1..9_u8).prop_map(|(pod, cpu)| Step::Create { pod, cpu }),
        1 => name.clone().prop_map(|pod| Step::Limit { pod }),
        2 => name.clone().prop_map(|pod| Step::End { pod }),
        2 => name.clone().prop_map(|pod| Step::Delete { pod }),
        1 => name.clone().prop_map(|job| Step::CreateJob { job }),
        1 => name.prop_map(|job| Step::DeleteJob { job }),
    ]
}

/// Takes a step, whether the server lets it or not.
async fn take(api: &Api, step: &Step) {
    let background = json!({"propagationPolicy": "Background"});
    match step {
        Step::Create { pod: name, cpu } => {
            let requests = json!({"requests": {"cpu": format!("{cpu}00m"), "memory": format!("{cpu}Mi")}});
            api.post(PODS, pod(&format!("p{name}"), requests)).await
        }
        Step::Limit { pod } => {
            api.merge(&format!("{PODS}/p{pod}"), json!({"spec": {"activeDeadlineSeconds": 60}})).await
        }
        Step::End { pod } => {
            api.merge(&format!("{PODS}/p{pod}/status"), json!({"status": {"phase": "Succeeded"}})).await
        }
        Step::Delete { pod } => api.delete(&format!("{PODS}/p{pod}"), json!({})).await,
        Step::CreateJob { job: name } => api.post(JOBS, job(&format!("j{name}"))).await,
        Step::DeleteJob { job } => api.delete(&format!("{JOBS}/j{job}"), background).await,
    };
}

/// Figures that were kept step by step are those of counting everything, and never above the limit.
#[test]
fn kept_figures_are_counted_figures() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let hard = json!({"pods": "2", "count/pods": "3", "requests.cpu": "1", "memory": "9Mi", "count/jobs.batch": "2"});
    let some = json!({"hard": {"pods": "1"}, "scopes": ["Terminating"]});
    let all = json!({ "hard": hard });
    let mut runner =
        TestRunner::new(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() });
    runner
        .run(&prop::collection::vec(step(), 1..25), |steps| {
            runtime.block_on(async {
                let api = Api::new().await;
                quota(&api, "all", all.clone()).await.expect(201);
                quota(&api, "some", some.clone()).await.expect(201);
                for step in &steps {
                    take(&api, step).await;
                }
                for (name, spec) in [("all", &all), ("some", &some)] {
                    quota(&api, &format!("{name}-counted"), spec.clone()).await.expect(201);
                    let kept = used(&api, name).await;
                    prop_assert_eq!(&kept, &used(&api, &format!("{name}-counted")).await);
                    prop_assert_ne!(&kept["pods"], "3");
                }
                Ok(())
            })
        })
        .unwrap();
}
