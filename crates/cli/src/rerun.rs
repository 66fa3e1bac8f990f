//! `tally rerun`: a new Job from an old one, whole or only what did not succeed (docs/decisions/0005).

use anyhow::{Context as _, anyhow};
use batch_types::constants::label;
use batch_types::index_ranges::IndexSet;
use clap::Args;
use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::runtime;

use crate::cluster::{Cluster, ClusterFlags};
use crate::environment::Environment;
use crate::failure::{Exit, Failure, plain};
use crate::job_view::{JobName, JobView};
use crate::output::{say, tell};
use crate::wait::lookup_failure;

/// The uid of the Job that a new one was made from.
const RERUN_OF: &str = "tally.dev/rerun-of";

/// The indexes that an earlier Job had completed; the new one begins after them.
const COMPLETED_BEFORE: &str = "tally.dev/completed-before";

/// Reruns of one Job that are told apart by number.
const NUMBERS_MAX: u32 = 1000;

/// Job names become label values of pods.
const NAME_LENGTH_MAX: usize = 63;

#[derive(Debug, Args)]
pub(crate) struct Rerun {
    /// The Job to run again; it must have finished.
    #[arg(value_name = "job/NAME")]
    job: JobName,
    /// Only what did not succeed: the same indexes of an Indexed Job, else as many completions as are missing.
    #[arg(long)]
    failed: bool,
    /// The new Job's name [default: NAME-rerun-1, or the next number that is free].
    #[arg(long, value_name = "NAME", value_parser = new_name)]
    name: Option<String>,
    #[command(flatten)]
    cluster: ClusterFlags,
}

/// What to create.
#[derive(Debug, PartialEq)]
enum Plan {
    /// Everything succeeded.
    Nothing,
    /// A Job as it is.
    Create(Box<Job>),
    /// A suspended Job, whose status says what need not be run, and which is then resumed.
    CreateWithout(Box<Job>, IndexSet),
}

pub(crate) fn run(options: &Rerun, environment: &Environment) -> Result<(), Failure> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().context("start the async runtime")?;
    runtime.block_on(rerun(options, environment))
}

async fn rerun(options: &Rerun, environment: &Environment) -> Result<(), Failure> {
    let cluster = options.cluster.connect(environment).await?;
    let jobs: Api<Job> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let named = format!("job/{} in namespace `{}`", options.job.0, cluster.namespace);
    let old = jobs.get(&options.job.0).await.map_err(|error| lookup_failure(error, &named, &cluster))?;
    if JobView::of(&old).outcome.is_none() {
        return Err(Failure::usage(anyhow!("{named} has not finished"))
            .hint(format!("`tally wait job/{}{}` waits for it", options.job.0, cluster.data_flag)));
    }
    match plan(&old, options.failed) {
        Plan::Nothing => tell(&format!("nothing to run again: all of job/{} succeeded", options.job.0)),
        Plan::Create(job) => {
            let name = create(&cluster, &jobs, *job, options).await?;
            say(&format!("job.batch/{name} created\n"))?;
        }
        Plan::CreateWithout(job, completed) => {
            let is_suspended = old.spec.as_ref().and_then(|spec| spec.suspend) == Some(true);
            let name = create(&cluster, &jobs, *job, options).await?;
            if let Err(failure) = skip(&jobs, &name, &completed, is_suspended).await {
                // Half a rerun would run nothing, and wait for somebody to resume all of it.
                let _ = jobs.delete(&name, &DeleteParams::background()).await;
                return Err(failure);
            }
            say(&format!("job.batch/{name} created\n"))?;
        }
    }
    Ok(())
}

fn plan(old: &Job, only_failed: bool) -> Plan {
    let view = JobView::of(old);
    let mut new = template(old);
    let Some(completions) = view.completions.filter(|_| only_failed) else { return Plan::Create(Box::new(new)) };
    let spec = new.spec.get_or_insert_default();
    if !view.is_indexed {
        let missing = completions.saturating_sub(view.succeeded);
        if missing == 0 {
            return Plan::Nothing;
        }
        spec.completions = i32::try_from(missing).ok();
        return Plan::Create(Box::new(new));
    }
    let completed = view.completed_indexes;
    if completed.missing_below(completions).next().is_none() {
        return Plan::Nothing;
    }
    if completed.is_empty() {
        return Plan::Create(Box::new(new));
    }
    spec.suspend = Some(true);
    let annotations = new.metadata.annotations.get_or_insert_default();
    annotations.insert(COMPLETED_BEFORE.to_owned(), completed.to_string());
    Plan::CreateWithout(Box::new(new), completed)
}

/// The Job as somebody wrote it, without what servers and controllers added.
fn template(old: &Job) -> Job {
    let kept = |annotations: &std::collections::BTreeMap<String, String>| {
        let is_own = |name: &str| {
            name != "kubectl.kubernetes.io/last-applied-configuration"
                && !name.starts_with("batch.kubernetes.io/")
                && name != COMPLETED_BEFORE
        };
        annotations.iter().filter(|(name, _)| is_own(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
    };
    let mut annotations: std::collections::BTreeMap<String, String> =
        old.metadata.annotations.as_ref().map(kept).unwrap_or_default();
    annotations.insert(RERUN_OF.to_owned(), old.metadata.uid.clone().unwrap_or_default());
    let mut spec: JobSpec = old.spec.clone().unwrap_or_default();
    let mut labels = old.metadata.labels.clone();
    let generated = [label::CONTROLLER_UID, label::JOB_NAME, label::LEGACY_CONTROLLER_UID, label::LEGACY_JOB_NAME];
    if spec.manual_selector != Some(true) {
        spec.selector = None;
        let template = spec.template.metadata.get_or_insert_default();
        for labels in [&mut labels, &mut template.labels].into_iter().flatten() {
            labels.retain(|name, _| !generated.contains(&name.as_str()));
        }
    }
    let metadata = ObjectMeta {
        namespace: old.metadata.namespace.clone(),
        name: old.metadata.name.clone(),
        labels: labels.filter(|labels| !labels.is_empty()),
        annotations: Some(annotations),
        ..ObjectMeta::default()
    };
    Job { metadata, spec: Some(spec), status: None }
}

/// Creates the Job under a name that is free.
async fn create(cluster: &Cluster, jobs: &Api<Job>, mut job: Job, options: &Rerun) -> Result<String, Failure> {
    let old = job.metadata.name.take().unwrap_or_default();
    let candidates: Vec<String> = match &options.name {
        Some(name) => vec![name.clone()],
        None => (1..=NUMBERS_MAX).map(|number| numbered(&old, number)).collect(),
    };
    for name in candidates {
        job.metadata.name = Some(name.clone());
        match jobs.create(&PostParams::default(), &job).await {
            Ok(_) => return Ok(name),
            Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" && options.name.is_none() => {}
            Err(error) => return Err(refused(error, &name, cluster)),
        }
    }
    Err(Failure::new(anyhow!("job/{old} has been run again {NUMBERS_MAX} times"))
        .hint("delete old ones, or choose a name with `--name`"))
}

/// Why the new Job could not be created.
fn refused(error: kube::Error, name: &str, cluster: &Cluster) -> Failure {
    let reason = if let kube::Error::Api(status) = &error { status.reason.clone() } else { String::new() };
    let failure = cluster.failure(error, format!("create job/{name}"));
    match reason.as_str() {
        "AlreadyExists" => failure.hint("choose another name with `--name`, or leave it out for one that is free"),
        "Invalid" => failure.exit(Exit::Usage).hint("the server does not take this Job; a shorter `--name` may do"),
        _ => failure,
    }
}

/// A name that a Job can have and that its pods can bear as a label.
fn new_name(text: &str) -> Result<String, String> {
    let wrong = batch_types::names::dns_subdomain(text).into_iter().chain(batch_types::names::label_value(text));
    match wrong.into_iter().next() {
        None => Ok(text.to_owned()),
        Some(why) => Err(format!("it cannot be the name of a Job: {why}")),
    }
}

/// `pi-rerun-2`; a rerun of a rerun counts on.
fn numbered(name: &str, number: u32) -> String {
    let base = match name.rsplit_once("-rerun-") {
        Some((base, digits)) if digits.parse::<u32>().is_ok() => base,
        _ => name,
    };
    let ending = format!("-rerun-{number}");
    let base = &base[..base.floor_char_boundary(NAME_LENGTH_MAX - ending.len())];
    format!("{}{ending}", base.trim_end_matches(['-', '.']))
}

/// Says in the status what an earlier Job has done, then lets the rest begin.
async fn skip(jobs: &Api<Job>, name: &str, completed: &IndexSet, stay_suspended: bool) -> Result<(), Failure> {
    let parameters = PatchParams::default();
    let status = json!({"status": {"completedIndexes": completed.to_string(), "succeeded": completed.len()}});
    jobs.patch_status(name, &parameters, &Patch::Merge(status)).await.map_err(|error| {
        let error = plain(error).context(format!("say what job/{name} need not run"));
        Failure::new(error).hint("this needs permission to patch `jobs/status`; without `--failed` all indexes are run")
    })?;
    if stay_suspended {
        return Ok(());
    }
    let resume = json!({"spec": {"suspend": false}});
    jobs.patch(name, &parameters, &Patch::Merge(resume))
        .await
        .map_err(|error| Failure::new(plain(error).context(format!("resume job/{name}"))).hint("try again"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn job(spec: Value, status: Value) -> Job {
        let mut job = json!({
            "metadata": {
                "name": "pi", "namespace": "n", "uid": "u", "resourceVersion": "7", "generation": 2,
                "creationTimestamp": "2026-11-15T10:00:00Z", "ownerReferences": [
                    {"apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": "c"}],
                "labels": {"app": "x", "controller-uid": "u", "batch.kubernetes.io/job-name": "pi"},
                "annotations": {"mine": "1", "kubectl.kubernetes.io/last-applied-configuration": "{}"},
            },
            "spec": {
                "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}},
                "template": {
                    "metadata": {"labels": {"app": "x", "batch.kubernetes.io/controller-uid": "u", "job-name": "pi"}},
                    "spec": {"containers": []},
                },
            },
            "status": status,
        });
        job["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        serde_json::from_value(job).unwrap()
    }

    #[test]
    fn what_servers_and_controllers_added_is_left_out() {
        let Plan::Create(new) = plan(&job(json!({"completions": 3}), json!({"succeeded": 1})), false) else {
            panic!("a whole Job")
        };
        assert_eq!(
            serde_json::to_value(*new).unwrap(),
            json!({
                "apiVersion": "batch/v1", "kind": "Job",
                "metadata": {"name": "pi", "namespace": "n", "labels": {"app": "x"},
                    "annotations": {"mine": "1", "tally.dev/rerun-of": "u"}},
                "spec": {"completions": 3, "template": {
                    "metadata": {"labels": {"app": "x"}}, "spec": {"containers": []}}},
            })
        );
    }

    #[test]
    fn a_manual_selector_stays() {
        let Plan::Create(new) = plan(&job(json!({"manualSelector": true}), json!({})), false) else { panic!() };
        assert!(new.spec.unwrap().selector.is_some());
    }

    #[test]
    fn without_indexes_as_many_are_run_as_are_missing() {
        let of = |succeeded: i32| plan(&job(json!({"completions": 5}), json!({"succeeded": succeeded})), true);
        let Plan::Create(new) = of(2) else { panic!("some are missing") };
        assert_eq!(new.spec.unwrap().completions, Some(3));
        assert_eq!(of(5), Plan::Nothing);
    }

    #[test]
    fn with_indexes_those_that_succeeded_are_skipped() {
        let of = |completed: &str| {
            let status = json!({"completedIndexes": completed, "failedIndexes": "1"});
            plan(&job(json!({"completions": 4, "completionMode": "Indexed"}), status), true)
        };
        let Plan::CreateWithout(new, completed) = of("0,3") else { panic!("some are missing") };
        assert_eq!((new.spec.unwrap().suspend, completed.to_string().as_str()), (Some(true), "0,3"));
        assert_eq!(new.metadata.annotations.unwrap()["tally.dev/completed-before"], "0,3");
        assert_eq!(of("0-3"), Plan::Nothing);
        assert!(matches!(of(""), Plan::Create(_)), "nothing to skip");
    }

    #[test]
    fn a_new_name_is_one_that_jobs_can_have() {
        for good in ["pi", "pi-2", "a.b", &"x".repeat(63)] {
            assert_eq!(new_name(good).as_deref(), Ok(good));
        }
        for bad in ["", "Bad_", "-a", "a/b", &"x".repeat(64)] {
            assert!(new_name(bad).unwrap_err().starts_with("it cannot be the name of a Job: "), "{bad}");
        }
    }

    #[test]
    fn names_count_on_and_stay_short() {
        assert_eq!(numbered("pi", 1), "pi-rerun-1");
        assert_eq!(numbered("pi-rerun-1", 2), "pi-rerun-2");
        assert_eq!(numbered("pi-rerun-x", 1), "pi-rerun-x-rerun-1");
        assert_eq!(numbered(&"x".repeat(63), 12).len(), 63);
    }
}
