//! What happens in a run: who does what when, and how bad the conditions are. Made from a seed, and made smaller when it
//! fails; the same scenario is always the same run.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use crate::random::Random;
use crate::shapes;
use crate::weather::Weather;

/// Job and CronJob names. Few, so that namesakes meet (P-13).
const JOB_NAMES: [&str; 4] = ["j0", "j1", "j2", "j3"];
const CRON_JOB_NAMES: [&str; 2] = ["c0", "c1"];
/// Namespaces that users work in; the second one may be deleted.
pub const NAMESPACES: [&str; 2] = ["default", "work"];
pub const NODES: [&str; 2] = ["node-a", "node-b"];

/// A finalizer that a user sets, and takes away when everything is healed.
pub const HOLD: &str = "example.com/hold";

/// A value that is shown as JSON.
#[derive(Clone)]
pub struct Json(pub Value);

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A whole run.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub seed: u64,
    /// What the clocks show at the start, as text.
    pub began: &'static str,
    pub weather: Weather,
    pub sizes: Sizes,
    /// In order of time.
    pub steps: Vec<Step>,
    /// When everything is healed.
    pub trouble: Duration,
}

/// How much the server remembers.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub history_events_max: usize,
    pub recent_events_max: usize,
}

#[derive(Clone, Debug)]
pub struct Step {
    pub at: Duration,
    pub what: What,
}

/// Something that a user does or that goes wrong.
#[derive(Clone, Debug)]
pub enum What {
    User(Action),
    Fault(Fault),
}

/// What users do (P-13, P-14). `which` chooses among the pods that there are when it happens.
#[derive(Clone, Debug)]
pub enum Action {
    CreateJob {
        at: Place,
        spec: Json,
    },
    /// Deletes and makes again at once, with another spec.
    Namesake {
        at: Place,
        spec: Json,
        policy: &'static str,
    },
    DeleteJob {
        at: Place,
        policy: &'static str,
    },
    PatchJob {
        at: Place,
        patch: Json,
    },
    CreateCronJob {
        at: Place,
        spec: Json,
    },
    PatchCronJob {
        at: Place,
        patch: Json,
    },
    DeleteCronJob {
        at: Place,
        policy: &'static str,
    },
    DeletePod {
        namespace: &'static str,
        which: u64,
        grace_seconds: Option<i64>,
    },
    PatchPod {
        namespace: &'static str,
        which: u64,
        patch: Json,
    },
    /// Takes a pod away from its Job by its labels.
    RelabelPod {
        namespace: &'static str,
        which: u64,
    },
    /// Takes the owner references off a pod.
    DisownPod {
        namespace: &'static str,
        which: u64,
    },
    EvictPod {
        namespace: &'static str,
        which: u64,
    },
    DeleteNamespace {
        namespace: &'static str,
    },
    CreateNamespace {
        namespace: &'static str,
    },
}

#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub namespace: &'static str,
    pub name: &'static str,
}

/// What goes wrong by itself.
#[derive(Clone, Debug)]
pub enum Fault {
    ManagerCrash {
        down_millis: u64,
    },
    /// A second process with the same controllers (P-12).
    SecondManager {
        for_millis: u64,
    },
    ServerCrash {
        down_millis: u64,
        kept: usize,
    },
    /// The next write to the disk goes wrong (P-17).
    DiskWrite {
        fault: DiskFault,
        down_millis: u64,
    },
    DiskFull {
        room: usize,
        for_millis: u64,
    },
    DiskUnreadable {
        for_millis: u64,
    },
    Compact,
    /// All clocks but those of the nodes (P-11).
    ClockJump {
        millis: i64,
    },
    NodeClockJump {
        node: usize,
        millis: i64,
    },
    NodeCrash {
        node: usize,
        down_millis: u64,
    },
    NodeReboot {
        node: usize,
        down_millis: u64,
    },
    /// The machine burns down and its Node is deleted; later there is a new one of that name.
    NodeGone {
        node: usize,
        down_millis: u64,
    },
    /// Everything restarts with other gates (P-19).
    Gates {
        managed_by: bool,
        replacement_policy: bool,
        ttl: bool,
    },
}

#[derive(Clone, Copy, Debug)]
pub enum DiskFault {
    BeforeWrite,
    Torn(usize),
    BeforeSync,
    AfterSync,
}

impl Scenario {
    /// The scenario of a seed.
    pub fn of(seed: u64) -> Self {
        let mut random = Random::of(seed, "scenario");
        let weather = Weather::draw(&mut random);
        let trouble = Duration::from_secs(random.between(60, 600));
        let sizes = Sizes {
            history_events_max: random.pick(&[120, 400, 5_000]),
            recent_events_max: random.pick(&[20, 200, 5_000]),
        };
        // An ordinary day, and the nights when Europe's clocks go forward and back.
        let began = random.pick(&["2026-06-15T09:59:30Z", "2026-03-29T00:55:10Z", "2026-10-25T00:55:10Z"]);
        let fault_count = random.pick(&[0, 1, 3, 8]);
        let action_count = random.between(3, 22);
        let mut steps: Vec<Step> = (0..action_count)
            .map(|_| Step { at: moment(trouble, &mut random), what: What::User(action(&mut random)) })
            .chain(first_jobs(&mut Random::of(seed, "first jobs")))
            .collect();
        let mut chance = Random::of(seed, "faults");
        steps.extend((0..fault_count).map(|_| Step { at: moment(trouble, &mut chance), what: fault(&mut chance) }));
        steps.sort_by_key(|step| step.at);
        Self { seed, began, weather, sizes, steps, trouble }
    }
}

fn moment(trouble: Duration, random: &mut Random) -> Duration {
    Duration::from_millis(random.below(u64::try_from(trouble.as_millis()).unwrap_or(u64::MAX)))
}

/// There is always something to do.
fn first_jobs(random: &mut Random) -> Vec<Step> {
    let count = random.between(1, 3);
    let create = |number: u64, spec| {
        let name = JOB_NAMES[usize::try_from(number).unwrap_or(0)];
        What::User(Action::CreateJob { at: Place { namespace: NAMESPACES[0], name }, spec })
    };
    (0..count)
        .map(|number| Step {
            at: Duration::from_millis(number * 700),
            what: create(number, Json(shapes::job_spec(random))),
        })
        .collect()
}

fn place(names: &[&'static str], random: &mut Random) -> Place {
    let namespace = if random.chance(750) { NAMESPACES[0] } else { NAMESPACES[1] };
    Place { namespace, name: random.pick(names) }
}

fn action(random: &mut Random) -> Action {
    let policies = ["Background", "Foreground", "Orphan"];
    let job = place(&JOB_NAMES, random);
    let cron_job = place(&CRON_JOB_NAMES, random);
    let (namespace, which) = (job.namespace, random.number());
    match random.below(30) {
        0..=6 => Action::CreateJob { at: job, spec: Json(shapes::job_spec(random)) },
        7 | 8 => Action::Namesake { at: job, spec: Json(shapes::job_spec(random)), policy: random.pick(&policies) },
        9 | 10 => Action::DeleteJob { at: job, policy: random.pick(&policies) },
        11..=16 => Action::PatchJob { at: job, patch: Json(job_patch(random)) },
        17 | 18 => Action::CreateCronJob { at: cron_job, spec: Json(shapes::cron_job_spec(random)) },
        19 => Action::PatchCronJob { at: cron_job, patch: Json(cron_job_patch(random)) },
        20 => Action::DeleteCronJob { at: cron_job, policy: random.pick(&policies) },
        21..=23 => {
            Action::DeletePod { namespace, which, grace_seconds: random.pick(&[None, Some(0), Some(1), Some(20)]) }
        }
        24 => Action::PatchPod { namespace, which, patch: Json(pod_patch(random)) },
        25 => Action::RelabelPod { namespace, which },
        26 => Action::DisownPod { namespace, which },
        27 => Action::EvictPod { namespace, which },
        28 => Action::DeleteNamespace { namespace: NAMESPACES[1] },
        _ => Action::CreateNamespace { namespace: NAMESPACES[1] },
    }
}

fn job_patch(random: &mut Random) -> Value {
    let number = random.below(6);
    match random.below(11) {
        0 | 1 => json!({"spec": {"suspend": true}}),
        2..=4 => json!({"spec": {"suspend": false}}),
        5 => json!({"spec": {"parallelism": number}}),
        6 => json!({"spec": {"parallelism": number, "completions": number}}),
        7 => json!({"spec": {"ttlSecondsAfterFinished": number * 20}}),
        8 => json!({"metadata": {"labels": {"touched": number.to_string()}}}),
        9 => json!({"metadata": {"finalizers": [HOLD]}}),
        _ => json!({"spec": {"activeDeadlineSeconds": 1 + number * 10}}),
    }
}

fn cron_job_patch(random: &mut Random) -> Value {
    match random.below(4) {
        0 => json!({"spec": {"suspend": true}}),
        1 => json!({"spec": {"suspend": false}}),
        2 => json!({"spec": {"schedule": random.pick(&["* * * * *", "*/2 * * * *"])}}),
        _ => json!({"spec": {"jobTemplate": {"metadata": {"labels": {"touched": "yes"}}}}}),
    }
}

fn pod_patch(random: &mut Random) -> Value {
    match random.below(3) {
        0 => json!({"metadata": {"labels": {"touched": "yes"}}}),
        1 => json!({"metadata": {"annotations": {"touched": "yes"}}}),
        _ => json!({"metadata": {"finalizers": [HOLD]}}),
    }
}

fn fault(random: &mut Random) -> What {
    let down_millis = random.pick(&[1, 300, 3_000, 30_000]);
    let node = usize::try_from(random.below(NODES.len() as u64)).unwrap_or(0);
    let jump = |random: &mut Random| random.pick(&[-3_600_000, -61_000, -1_500, 1_500, 61_000, 3_600_000]);
    What::Fault(match random.below(18) {
        0..=3 => Fault::ManagerCrash { down_millis },
        4 | 5 => Fault::SecondManager { for_millis: random.pick(&[500, 20_000, 90_000]) },
        6 | 7 => Fault::ServerCrash { down_millis, kept: usize::try_from(random.below(4000)).unwrap_or(0) },
        8 | 9 => {
            let torn = usize::try_from(random.below(3000)).unwrap_or(0);
            let fault = random.pick(&[
                DiskFault::BeforeWrite,
                DiskFault::Torn(torn),
                DiskFault::BeforeSync,
                DiskFault::AfterSync,
            ]);
            Fault::DiskWrite { fault, down_millis }
        }
        10 => Fault::DiskFull {
            room: usize::try_from(random.below(40_000)).unwrap_or(0),
            for_millis: random.pick(&[3_000, 30_000]),
        },
        11 => Fault::DiskUnreadable { for_millis: random.pick(&[1_000, 20_000]) },
        12 => Fault::Compact,
        13 => match random.below(2) {
            0 => Fault::ClockJump { millis: jump(random) },
            _ => Fault::NodeClockJump { node, millis: jump(random) },
        },
        14 => Fault::NodeCrash { node, down_millis },
        15 => Fault::NodeReboot { node, down_millis },
        16 => Fault::NodeGone { node, down_millis: down_millis.max(3_000) * 4 },
        _ => Fault::Gates {
            managed_by: random.chance(600),
            replacement_policy: random.chance(600),
            ttl: random.chance(600),
        },
    })
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {} from {}, healed after {:?}", self.seed, self.began, self.trouble)?;
        writeln!(f, "{:?}", self.weather)?;
        writeln!(f, "{:?}", self.sizes)?;
        for step in &self.steps {
            match &step.what {
                What::User(action) => writeln!(f, "{:>9.3} s  {action:?}", step.at.as_secs_f64())?,
                What::Fault(fault) => writeln!(f, "{:>9.3} s  {fault:?}", step.at.as_secs_f64())?,
            }
        }
        Ok(())
    }
}
