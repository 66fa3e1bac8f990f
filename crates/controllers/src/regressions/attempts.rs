//! How often something is tried that cannot succeed, and how soon it is done when it can again (REG-C22, REG-C25).
//!
//! All in virtual time, so that minutes cost nothing and a second is a second.

use std::time::Duration;

use futures_util::{FutureExt as _, future::BoxFuture};
use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{JOBS, MAPS, PODS, job_object, job_options};
use crate::{
    cronjob, gc, job, namespace, podgc,
    runtime::{ControllerContext, Resource},
    testing::{World, config_map, owned, pod},
    ttl,
    wire::{Asked, Wire},
};

const NAMESPACES: &Resource = &Resource::NAMESPACES;
const CRON_JOBS: &Resource = &Resource::CRON_JOBS;
const SECOND: Duration = Duration::from_secs(1);

/// What an outage looked like to a controller.
#[derive(Debug)]
struct Outage {
    /// Between the attempts that it made.
    gaps: Vec<Duration>,
    /// From the server's recovery to the work being done.
    late: Duration,
}

/// The server breaks down at the first such request, and has nothing but 500 for an answer until it is well again. `done` is
/// ready when the controller has done what that request was for.
async fn outage(
    wire: &Wire,
    length: Duration,
    (method, path): (Method, &'static str),
    done: impl Future<Output = Option<Value>>,
) -> Outage {
    wire.break_at(move |asked| asked.is(&method, path));
    tokio::time::timeout(90 * SECOND, wire.broken()).await.expect("the request comes");
    let broke = Instant::now();
    tokio::time::sleep(length).await;
    let healed = Instant::now();
    wire.heal();
    done.await;
    let late = healed.elapsed();
    let is_attempt = |asked: &Asked| !asked.mirrors && !asked.path.ends_with("/events");
    let during = |asked: &Asked| (broke..healed).contains(&asked.at);
    let mut attempts: Vec<Instant> =
        wire.asked().iter().filter(|asked| is_attempt(asked) && during(asked)).map(|asked| asked.at).collect();
    // One attempt may ask several times.
    attempts.dedup();
    Outage { gaps: attempts.windows(2).map(|pair| pair[1] - pair[0]).collect(), late }
}

/// INV-29, INV-30: one second, then two, then four; the next attempt would have come fifteen seconds after the first, but a
/// watch that is open again says that the server is well. When mirrors ask depends on chance, so there are several.
#[tokio::test(start_paused = true)]
async fn reg_c25_attempts_grow_apart_and_recovery_is_quick() {
    for seed in 0..8 {
        let (mut world, wire) = (World::paused(seed).await, Wire::new());
        let context = wire.context(&mut world);
        world.spawn("job", job::run(context, job_options()));
        world.create(JOBS, "default", job_object("a", json!({}))).await;
        let has_pod = |job: Option<&Value>| job.is_some_and(|job| job["status"]["active"] == 1);
        let Outage { gaps, late } =
            outage(&wire, 10 * SECOND, (Method::POST, "/pods"), world.wait(JOBS, "default", "a", has_pod)).await;
        assert_eq!(gaps, [SECOND, 2 * SECOND, 4 * SECOND], "{seed}");
        assert!(late <= SECOND, "{seed}: {late:?}");
        assert_eq!(world.list(PODS).await.len(), 1, "{seed}");
    }
}

/// A controller, what is there for it to do, the request at which the server breaks down, and what shows that it is done.
struct Story {
    name: &'static str,
    run: fn(ControllerContext) -> BoxFuture<'static, ()>,
    prepare: for<'a> fn(&'a World) -> BoxFuture<'a, ()>,
    breaks_at: (Method, &'static str),
    done: for<'a> fn(&'a World) -> BoxFuture<'a, Option<Value>>,
}

fn stories() -> Vec<Story> {
    vec![
        Story {
            name: "cronjob",
            run: |context| cronjob::run(context, cronjob::Options::default()).boxed(),
            prepare: |world| {
                let template = json!({"spec": {"template": {"spec": pod("x")["spec"]}}});
                let cron_job = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c"},
                                      "spec": {"schedule": "* * * * *", "jobTemplate": template}});
                world.create(CRON_JOBS, "default", cron_job).map(drop).boxed()
            },
            breaks_at: (Method::POST, "/jobs"),
            done: |world| {
                let has_started = |cron_job: Option<&Value>| {
                    cron_job.is_some_and(|cron_job| {
                        cron_job["status"]["active"].as_array().is_some_and(|all| all.len() == 1)
                    })
                };
                world.wait(CRON_JOBS, "default", "c", has_started).boxed()
            },
        },
        Story {
            name: "ttl",
            run: |context| ttl::run(context, ttl::Options::default()).boxed(),
            prepare: |world| {
                async {
                    world.create(JOBS, "default", job_object("a", json!({"ttlSecondsAfterFinished": 1}))).await;
                    let at = world.context.environment.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
                    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": at});
                    let status = json!({"startTime": at, "completionTime": at,
                                        "conditions": [condition("SuccessCriteriaMet"), condition("Complete")]});
                    world.patch_status(JOBS, "default", "a", json!({"status": status})).await;
                }
                .boxed()
            },
            breaks_at: (Method::DELETE, "/jobs/a"),
            done: |world| {
                // Its deletion waits for its pods, which the collector would see to.
                let is_going =
                    |job: Option<&Value>| job.is_some_and(|job| job["metadata"]["deletionTimestamp"].is_string());
                world.wait(JOBS, "default", "a", is_going).boxed()
            },
        },
        Story {
            name: "gc",
            run: |context| gc::run(context, gc::Options::default()).boxed(),
            prepare: |world| {
                let absent =
                    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "absent", "uid": "absent"}});
                world.create(MAPS, "default", owned(config_map("garbage"), &absent, false)).map(drop).boxed()
            },
            breaks_at: (Method::DELETE, "/configmaps/garbage"),
            done: |world| world.wait(MAPS, "default", "garbage", |map| map.is_none()).boxed(),
        },
        Story {
            name: "namespace",
            run: |context| namespace::run(context, namespace::Options::default()).boxed(),
            prepare: |world| {
                async {
                    world.namespace("going").await;
                    world.create(MAPS, "going", config_map("content")).await;
                    world.delete(NAMESPACES, "", "going", "Background").await;
                }
                .boxed()
            },
            breaks_at: (Method::DELETE, "/configmaps"),
            done: |world| world.wait(NAMESPACES, "", "going", |namespace| namespace.is_none()).boxed(),
        },
    ]
}

/// The same for everybody else who tries again. How long the server is out of order after the first attempt decides how far
/// away the next one is, so there are several lengths.
#[tokio::test(start_paused = true)]
async fn reg_c25_every_controller_recovers_within_a_second() {
    for length in [3, 6, 8, 10] {
        for Story { name, run, prepare, breaks_at, done } in stories() {
            let (mut world, wire) = (World::paused(length).await, Wire::new());
            let context = wire.context(&mut world);
            world.spawn(name, run(context));
            prepare(&world).await;
            let Outage { gaps, late } = outage(&wire, length as u32 * SECOND, breaks_at, done(&world)).await;
            assert!(gaps.len() >= 3 && gaps.windows(2).all(|pair| pair[0] < pair[1]), "{name}: {gaps:?}");
            assert!(late <= SECOND, "{name}: {late:?} late after {length} seconds and {gaps:?}");
        }
    }
}

/// INV-21, INV-29: a namespace is being deleted, and a pod in it does not go. Its Job is neither finished nor deleted, because
/// pods go first; it lacks pods, and none can be made. Neither can the Jobs of a CronJob. For an hour there is news of a pod
/// every few seconds.
#[tokio::test(start_paused = true)]
async fn reg_c22_a_job_in_a_terminating_namespace_costs_a_bounded_number_of_calls() {
    let mut world = World::paused(0).await;
    type Run = fn(ControllerContext) -> BoxFuture<'static, ()>;
    let controllers: [(&str, Run); 6] = [
        ("job", |context| job::run(context, job::Options::default()).boxed()),
        ("ttl", |context| ttl::run(context, ttl::Options::default()).boxed()),
        ("cronjob", |context| cronjob::run(context, cronjob::Options::default()).boxed()),
        ("gc", |context| gc::run(context, gc::Options::default()).boxed()),
        ("podgc", |context| podgc::run(context, podgc::Options::default()).boxed()),
        ("namespace", |context| namespace::run(context, namespace::Options::default()).boxed()),
    ];
    let mut wires = Vec::new();
    for (name, run) in controllers {
        let wire = Wire::new();
        let context = wire.context(&mut world);
        world.spawn(name, run(context));
        wires.push((name, wire));
    }
    world.namespace("going").await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}});
    world.create(&Resource::NODES, "", node).await;
    let mut spec = pod("x")["spec"].clone();
    spec["nodeName"] = json!("node");
    let job = job_object("a", json!({"parallelism": 3, "completions": 3, "template": {"spec": spec}}));
    world.create(JOBS, "going", job).await;
    world.wait(JOBS, "going", "a", |job| job.is_some_and(|job| job["status"]["active"] == 3)).await;
    let template = json!({"spec": {"template": {"spec": pod("x")["spec"]}}});
    let cron_job = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c"},
                          "spec": {"schedule": "* * * * *", "jobTemplate": template}});
    world.create(CRON_JOBS, "going", cron_job).await;
    let names: Vec<String> =
        world.list(PODS).await.iter().map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect();
    // Time for what was to be told of their creation.
    tokio::time::sleep(SECOND).await;
    let began = Instant::now();
    world.delete(NAMESPACES, "", "going", "Background").await;
    let mut ready = false;
    while began.elapsed() < 60 * 60 * SECOND {
        tokio::time::sleep(7 * SECOND).await;
        ready = !ready;
        let condition = json!({"type": "Ready", "status": if ready { "True" } else { "False" }});
        let status = json!({"status": {"phase": "Running", "conditions": [condition]}});
        world.patch_status(PODS, "going", &names[0], status).await;
    }
    let job = world.get(JOBS, "going", "a").await.unwrap();
    assert!(job["metadata"]["deletionTimestamp"].is_null() && job["status"]["conditions"].is_null(), "{job:#}");
    for (name, wire) in wires {
        let asked: Vec<Asked> = wire.asked().into_iter().filter(|asked| asked.at >= began && !asked.mirrors).collect();
        let mut minutes = [0; 61];
        asked.iter().for_each(|asked| minutes[(asked.at - began).as_secs() as usize / 60] += 1);
        // The namespace controller looks every few seconds whether it can go on.
        assert!(minutes.iter().all(|calls| *calls <= 60), "{name}: {minutes:?}");
        let events = asked.iter().filter(|asked| asked.path.ends_with("/events")).count();
        assert_eq!(events, 0, "{name}: nobody is left to be told");
        if name == "job" {
            let creations = asked.iter().filter(|asked| asked.is(&Method::POST, "/pods")).count();
            assert!(creations <= 3, "{creations} creations");
            assert!(minutes[0] <= 12 && minutes[1..].iter().all(|calls| *calls == 0), "{minutes:?}");
        }
    }
}

/// The same for a controller that finds the namespace so: the Job has no pod yet, and never gets one.
#[tokio::test(start_paused = true)]
async fn reg_c22_a_job_found_in_a_terminating_namespace_is_left_in_peace() {
    let (mut world, wire) = (World::paused(0).await, Wire::new());
    world.namespace("going").await;
    world.create(JOBS, "going", job_object("a", json!({"parallelism": 3}))).await;
    world.delete(NAMESPACES, "", "going", "Background").await;
    let context = wire.context(&mut world);
    world.spawn("job", job::run(context, job::Options::default()));
    world.wait(JOBS, "going", "a", |job| job.is_some_and(|job| job["status"]["ready"] == 0)).await;
    tokio::time::sleep(60 * 60 * SECOND).await;
    let asked: Vec<Asked> = wire.asked().into_iter().filter(|asked| !asked.mirrors).collect();
    let creations = asked.iter().filter(|asked| asked.is(&Method::POST, "/pods")).count();
    assert!((1..=3).contains(&creations) && asked.len() <= creations + 3, "{asked:#?}");
    assert!(!asked.iter().any(|asked| asked.path.ends_with("/events")), "{asked:#?}");
}
