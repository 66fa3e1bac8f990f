//! A Job that nobody works on.

use batch_types::constants::value::BUILT_IN_CONTROLLER;
use jiff::SignedDuration;

use super::case::Case;
use crate::answer::{Answer, Evidence, State};
use crate::names::similar;
use crate::object::Object;
use crate::pod::PATIENCE_SECS;
use crate::snapshot::objects;
use crate::words::{foreign, relative};

const TALLY: &str = "tally.dev/job-controller";

/// Controllers that people mean when they mistype one.
const KNOWN: [&str; 3] = [BUILT_IN_CONTROLLER, TALLY, "kueue.x-k8s.io/multikueue"];

/// No status, no pods, and enough time for both.
pub(super) fn unattended(case: &Case<'_>) -> Option<Answer> {
    let status = ["/status/startTime", "/status/conditions/0", "/status/uncountedTerminatedPods", "/status/ready"];
    let counts = ["/status/active", "/status/succeeded", "/status/failed"];
    let is_attended = status.iter().any(|pointer| case.job.at(pointer).is_some())
        || counts.iter().any(|pointer| case.job.count(pointer) > 0)
        || !case.pods.is_empty();
    if is_attended || case.age_secs() < PATIENCE_SECS {
        return None;
    }
    let manager = case.job.text("/spec/managedBy").unwrap_or(BUILT_IN_CONTROLLER);
    let answer = match manager {
        BUILT_IN_CONTROLLER => built_in(case),
        name => external(case, name),
    };
    let fact = Evidence::new(case.about(), "no status and no pods since it was created", case.job.created());
    Some(answer.since(case.job.created()).evidence([fact]))
}

fn built_in(case: &Case<'_>) -> Answer {
    let lease = find(case, |name| ["kube-controller-manager", "tally-job-controller"].contains(&name));
    let life = life(case, lease);
    let silence = match case.snapshot.leases {
        Some(_) if life.evidence.is_none() => ", and none shows a sign of life",
        _ => &life.clause,
    };
    let summary = format!("No Job controller has looked at it{silence}.");
    Answer::new(case.snapshot, State::NoController, summary)
        .next("it starts as soon as a Job controller runs", None)
        .action("check that the cluster's Job controller runs: it is a part of kube-controller-manager")
        .action("or start one in its place: `tally controller --replace-built-in`")
        .evidence(life.evidence)
}

fn external(case: &Case<'_>, manager: &str) -> Answer {
    let shown = foreign(manager);
    let (own, parts) = (lease_name(manager), manager.split('/').collect::<Vec<_>>());
    let path = parts.last().copied().filter(|path| path.len() >= 4 && *path != "job-controller");
    let lease = find(case, |name| name == own || path.is_some_and(|path| name.contains(path)));
    let life = life(case, lease);
    let suggestions = similar(manager, KNOWN);
    let summary = match suggestions.first().filter(|_| !life.is_alive) {
        Some(meant) => format!(
            "Nobody runs it: `spec.managedBy` is `{shown}`{}. It looks like a typing error for `{meant}`.",
            life.clause
        ),
        None if life.is_alive => format!("Controller `{shown}` is alive but has not looked at it."),
        None => format!("Nobody runs it: `spec.managedBy` is `{shown}`{}.", life.clause),
    };
    let answer = Answer::new(case.snapshot, State::NoController, summary).evidence(life.evidence);
    if life.is_alive {
        let next = "it starts when that controller picks it up: no other one may touch the Job";
        return answer.next(next, None).action(format!("read the log of controller `{shown}`"));
    }
    let answer = answer.next("nothing until a controller of that name runs: no other one may touch the Job", None);
    match (suggestions.first(), manager) {
        (Some(meant), _) => {
            answer.action(format!("create the Job again with `managedBy: {meant}`: the field cannot be changed"))
        }
        (None, TALLY) => answer.action("start the controller: `tally controller`"),
        (None, _) => answer
            .action(format!("install or start the controller that answers to `{shown}`"))
            .action("or create the Job again with the right `managedBy`: the field cannot be changed"),
    }
}

struct Life {
    is_alive: bool,
    /// What the Lease says, as the end of a sentence.
    clause: String,
    evidence: Option<Evidence>,
}

/// What a controller's Lease says about it (its heartbeat).
fn life(case: &Case<'_>, lease: Option<Object<'_>>) -> Life {
    let Some(lease) = lease else {
        let clause = match case.snapshot.leases {
            Some(_) => ", and no controller of that name shows a sign of life".to_owned(),
            None => String::new(),
        };
        return Life { is_alive: false, clause, evidence: None };
    };
    let renewed = lease.time("/spec/renewTime");
    let seconds = lease.int("/spec/leaseDurationSeconds").unwrap_or(15).clamp(1, 3600);
    let is_alive =
        renewed.is_some_and(|renewed| case.now.duration_since(renewed) < SignedDuration::from_secs(seconds * 2));
    let about = format!("lease/{}", foreign(lease.name()));
    let holder = foreign(lease.text("/spec/holderIdentity").unwrap_or("nobody"));
    let evidence = Some(Evidence::new(about, format!("held by {holder}, renewed"), renewed));
    let clause = match renewed {
        _ if is_alive => ", although one holds its Lease".to_owned(),
        Some(renewed) => format!(", and the controller's Lease was last renewed {}", relative(renewed, case.now)),
        None => ", and the controller's Lease was never renewed".to_owned(),
    };
    Life { is_alive, clause, evidence }
}

fn find<'a>(case: &Case<'a>, is_it: impl Fn(&str) -> bool) -> Option<Object<'a>> {
    objects(case.snapshot.leases.as_ref())
        .filter(|lease| is_it(lease.name()))
        .max_by_key(|lease| lease.time("/spec/renewTime"))
}

/// The Lease of a `tally controller` for Jobs with this manager.
fn lease_name(manager: &str) -> String {
    let plain = |char: char| if char.is_ascii_alphanumeric() || char == '.' { char } else { '-' };
    manager.to_ascii_lowercase().chars().map(plain).collect()
}
