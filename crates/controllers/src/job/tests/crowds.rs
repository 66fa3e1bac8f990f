//! Many Jobs, and a Job with many pods (REG-A14, REG-A16).

use std::time::Duration;

use batch_plan::job::{Phase, PodView, Uid};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    NAMESPACE,
    paper::{Paper, What},
};

/// INV-32: ten thousand Jobs are made, succeed, fail or are deleted while they run, and go, with a call in a hundred refused.
/// Nothing of them stays in any map of the Job controller. Most have nothing to run, which is quicker.
#[tokio::test(start_paused = true)]
async fn reg_a14_ten_thousand_jobs_leave_nothing_behind() {
    const JOBS: usize = 10_000;
    let paper = Paper::new(32, Duration::ZERO);
    paper.refuse_one_in(97);
    paper.start();
    let mut specs =
        vec![json!({"backoffLimit": 0}), json!({"completionMode": "Indexed", "activeDeadlineSeconds": 3600})];
    let with_pods = specs.len();
    specs.resize(10, json!({"completions": 0}));
    let name = |number: usize| format!("job-{number}");
    for number in 0..JOBS {
        paper.create_job(&name(number), &specs[number % specs.len()]);
    }
    paper.until("every Job has its pod", |paper| paper.pod_count() == JOBS / specs.len() * with_pods).await;
    let is_cut_short = |number: &usize| number.is_multiple_of(9);
    for number in (0..JOBS).filter(is_cut_short) {
        paper.delete_job(&name(number), number.is_multiple_of(2));
    }
    for pod in paper.pods() {
        let number: usize = pod.name.split('-').nth(1).unwrap().parse().unwrap();
        let fails = number.is_multiple_of(specs.len());
        paper.end_pod(&pod.name, if fails { Phase::Failed } else { Phase::Succeeded });
    }
    let rest: Vec<usize> = (0..JOBS).filter(|number| !is_cut_short(number)).collect();
    paper.until("every Job is finished", |paper| paper.finished_count() == rest.len()).await;
    for number in rest {
        paper.delete_job(&name(number), number.is_multiple_of(2));
    }
    paper.until("every pod is released", |paper| paper.pod_count() == 0).await;
    paper.until("nothing is left to look at", |paper| paper.shared.jobs.is_empty()).await;
    let state = paper.shared.state.lock();
    assert!(state.jobs.is_empty() && state.ledger.is_empty(), "{} Jobs", state.jobs.len());
    assert_eq!((paper.shared.jobs.remembered(), paper.shared.orphans.remembered()), (0, 0));
}

/// INV-29: with one worker, a Job waits before each of its syncs for one slice of another one, whatever that has to do: what
/// becomes of 500 pods is written down, they are released, and counted. The one-pod Job needs a sync to start and one to end,
/// and one for what it wrote in between.
#[tokio::test(start_paused = true)]
async fn reg_a16_a_small_job_does_not_wait_for_a_huge_one() {
    small_beside_huge(json!({})).await;
}

/// The same where successes are counted by index.
#[tokio::test(start_paused = true)]
async fn reg_a16_a_small_job_does_not_wait_for_a_huge_indexed_one() {
    small_beside_huge(json!({"completionMode": "Indexed"})).await;
}

async fn small_beside_huge(mut spec: Value) {
    const PODS: u32 = 100_000;
    const RELEASES_MAX: usize = 500;
    const SYNCS: u32 = 3;
    let (at_once, call) = (32, Duration::from_millis(10));
    let paper = Paper::new(at_once, call);
    (spec["parallelism"], spec["completions"]) = (json!(PODS), json!(PODS));
    paper.create_job("huge", &spec);
    let is_indexed = spec["completionMode"] == "Indexed";
    let owner =
        json!({"apiVersion": "batch/v1", "kind": "Job", "name": "huge", "uid": "uid-of-huge", "controller": true});
    let pod = json!({
        "metadata": {"namespace": NAMESPACE, "labels": {"job": "huge"}, "ownerReferences": [owner],
                     "finalizers": ["batch.kubernetes.io/job-tracking"]},
        "status": {"phase": "Succeeded"},
    });
    let pod: PodView = serde_json::from_value(pod).unwrap();
    for index in 0..PODS {
        let name = format!("huge-{index}");
        let uid = Uid::new(&format!("uid-of-{name}"));
        paper.place_pod(PodView { name, uid, index: is_indexed.then_some(index), ..pod.clone() });
    }
    paper.start();
    paper.until("the huge one is under way", |paper| paper.calls().len() > RELEASES_MAX).await;
    let (began, calls_before) = (Instant::now(), paper.calls().len());
    paper.create_job("small", &json!({}));
    paper.until("the small one has its pod", |paper| paper.pod_count() > PODS as usize).await;
    let pods = paper.pods();
    paper.end_pod(&pods.iter().find(|pod| pod.name.starts_with("small-")).unwrap().name, Phase::Succeeded);
    paper.until("the small one is finished", |paper| paper.finished_count() == 1).await;

    let calls = paper.calls();
    let own = calls.iter().filter(|call| call.job == "small").count() as u32;
    let rounds = RELEASES_MAX.div_ceil(at_once) as u32;
    let slice = call * (rounds + 2);
    // The kubelet of this test looks every ten milliseconds, as does who waits for the end.
    let bound = slice * SYNCS + call * own + Duration::from_millis(50);
    assert!(began.elapsed() <= bound, "{:?}, and not {bound:?}", began.elapsed());
    let meanwhile = &calls[calls_before..];
    let released = meanwhile.iter().filter(|call| call.job == "huge" && call.what == What::Release).count();
    assert!(released <= SYNCS as usize * RELEASES_MAX, "{released} releases came first");
    let releases = |calls: &Vec<What>| calls.iter().filter(|what| **what == What::Release).count();
    let slices: Vec<usize> = paper.syncs("huge").iter().map(releases).collect();
    assert!(slices.len() >= 2 && slices.iter().all(|releases| *releases == RELEASES_MAX), "{slices:?}");
}
