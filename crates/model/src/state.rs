//! Everything that can differ between two moments of a small world.

use crate::config::Config;
use crate::job::{Clock, JobState};
use crate::pod::{Exit, Name, PODS, Pod};

pub(crate) type Pods = [Pod; PODS];

/// One moment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct State {
    pub(crate) job: JobState,
    pub(crate) pods: Pods,
    /// How many slots were ever used.
    pub(crate) created: u8,
    /// What the controller believes and remembers.
    pub(crate) mind: Mind,
    /// The sync that is going on.
    pub(crate) sync: Option<Sync>,
    /// A call of a controller that is dead, still on its way.
    pub(crate) late: Option<LateCall>,
    pub(crate) clock: Clock,
    pub(crate) judge: Judge,
    /// What may still happen.
    pub(crate) budget: Budget,
}

/// The controller's caches, and what it knows beyond them. All but the caches is lost in a crash.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Mind {
    pub(crate) job: JobState,
    /// The pods of an earlier moment. Pods that were created since and whose creation was answered have a name only.
    pub(crate) pods: Pods,
    /// Created, answered, not yet seen.
    pub(crate) expected: u8,
    /// Deleted as surplus, not yet seen to be terminating.
    pub(crate) deletions: u8,
    /// Released, though the cache still shows the finalizer.
    pub(crate) released: u8,
    /// Creations without an answer.
    pub(crate) uncertain: [Option<Unanswered>; 2],
    /// The Job was finished by us.
    pub(crate) finished: bool,
    /// A status write has no answer; the Job is read afresh before the next plan.
    pub(crate) unsure: bool,
    /// Pods got another owner, which the next plan must have seen.
    pub(crate) behind: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Unanswered {
    pub(crate) name: Name,
    /// Whether it arrived all the same; the controller does not know.
    pub(crate) landed: bool,
}

/// A sync between two calls: what it saw, and how its calls went so far. The rest follows from the plan.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Sync {
    pub(crate) seen: Mind,
    /// When it began.
    pub(crate) clock: Clock,
    pub(crate) answers: Answers,
    /// Whether the Job is still the version that the next status write names.
    pub(crate) is_current: bool,
    /// The call that is made next.
    pub(crate) next: Call,
}

/// How the calls of a sync went, four bits each.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Answers {
    bits: u128,
    pub(crate) count: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub(crate) enum Answer {
    Done,
    Gone,
    NameTaken,
    Refused,
    Unanswered,
    Conflict,
    /// A deletion of a pod that had ended.
    HadEnded,
}

impl Answers {
    pub(crate) fn push(&mut self, answer: Answer) {
        assert!(self.count < 32, "a sync of more than 32 calls");
        self.bits |= (answer as u128) << (4 * self.count);
        self.count += 1;
    }

    pub(crate) fn get(&self, call: u8) -> Option<Answer> {
        if call >= self.count {
            return None;
        }
        Some(match self.bits >> (4 * call) & 15 {
            0 => Answer::Done,
            1 => Answer::Gone,
            2 => Answer::NameTaken,
            3 => Answer::Refused,
            4 => Answer::Unanswered,
            5 => Answer::Conflict,
            _ => Answer::HadEnded,
        })
    }
}

/// One call of the controller.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Call {
    Create {
        name: Name,
        counted: u8,
        ignored: u8,
    },
    MarkSurplus(u8),
    /// `surplus` says whether more calls about the pod follow.
    Delete {
        slot: u8,
        surplus: bool,
    },
    ReleaseSurplus(u8),
    Release(u8),
    /// Released if it is still live.
    LetGo(u8),
    Adopt(u8),
    Disown(u8),
    /// The status write before the releases, or after.
    Put {
        status: crate::job::Status,
        second: bool,
        finishes: bool,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct LateCall {
    pub(crate) call: Call,
    /// The Job it is about.
    pub(crate) generation: u8,
    /// Whether the Job is still the version that a status write names.
    pub(crate) is_current: bool,
}

/// What the judge remembers of earlier writes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Judge {
    /// Slots that were ever listed as succeeded, as failed.
    pub(crate) listed_succeeded: u8,
    pub(crate) listed_failed: u8,
    /// The highest sizes ever asked for.
    pub(crate) parallelism_max: u8,
    pub(crate) completions_max: u8,
    /// The lowest.
    pub(crate) completions_min: u8,
    /// The first broken promise.
    pub(crate) broken: Option<Invariant>,
}

/// A promise that every write is held to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Invariant {
    ExactlyOnce,
    FirstVerdictSticks,
    CountersGrow,
    RecordBeforeRelease,
    ListsWellFormed,
    TerminalForEver,
    InterimFirst,
    TerminalIsQuiet,
    NothingAfterVerdict,
    NeverAboveWanted,
    StrictCap,
    IndexUnique,
    ValidWrites,
}

/// How often something may still happen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Budget {
    pub(crate) crashes: u8,
    /// Calls that land and lose their answer.
    pub(crate) lost: u8,
    pub(crate) refused: u8,
    /// Calls that land after their controller has died.
    pub(crate) late: u8,
    /// Pods that fail by themselves.
    pub(crate) failures: u8,
    /// Pods that users delete.
    pub(crate) deletions: u8,
    pub(crate) suspensions: u8,
    pub(crate) scalings: u8,
    pub(crate) resizes: u8,
    pub(crate) relabels: u8,
    pub(crate) job_deletions: u8,
    pub(crate) namesakes: u8,
    /// Events of the world between two calls of one sync.
    pub(crate) interleaved: u8,
}

impl State {
    pub(crate) fn first(config: &Config) -> Self {
        let job = config.job(0);
        Self {
            job,
            pods: Pods::default(),
            created: 0,
            mind: Mind::fresh(job, Pods::default()),
            sync: None,
            late: None,
            clock: Clock::Early,
            judge: Judge {
                parallelism_max: job.parallelism,
                completions_max: job.completions,
                completions_min: job.completions,
                ..Judge::default()
            },
            budget: config.budget,
        }
    }

    pub(crate) fn slots(&self) -> std::ops::Range<usize> {
        0..usize::from(self.created)
    }

    /// How many pods satisfy a test.
    pub(crate) fn count(&self, test: impl Fn(Pod) -> bool) -> usize {
        self.pods.iter().filter(|pod| test(**pod)).count()
    }

    /// The Job was written by somebody; status writes that are under way name an older version.
    pub(crate) fn job_changed(&mut self) {
        if let Some(sync) = &mut self.sync {
            sync.is_current = false;
        }
        if let Some(late) = &mut self.late {
            late.is_current = false;
        }
    }
}

impl Mind {
    /// A controller that has just filled its caches.
    pub(crate) fn fresh(job: JobState, pods: Pods) -> Self {
        Self {
            job,
            pods,
            expected: 0,
            deletions: 0,
            released: 0,
            uncertain: [None; 2],
            finished: false,
            unsure: false,
            behind: false,
        }
    }

    /// The watch of pods delivers everything there is.
    pub(crate) fn see_pods(&mut self, pods: &Pods) {
        self.pods = *pods;
        self.behind = false;
        self.expected = 0;
        for entry in &mut self.uncertain {
            *entry = entry.filter(|creation| !creation.landed);
        }
        self.normalise();
    }

    /// The watch of Jobs delivers the newest version.
    pub(crate) fn see_job(&mut self, job: JobState) {
        if !job.exists || job.generation != self.job.generation {
            // Everything remembered about a Job goes with it (INV-31).
            *self = Self::fresh(job, self.pods);
            return;
        }
        self.job = job;
    }

    /// Forgets what the cache shows anyway.
    pub(crate) fn normalise(&mut self) {
        for (slot, pod) in self.pods.iter().enumerate() {
            let bit = 1_u8 << slot;
            if !pod.is_tracked() {
                self.released &= !bit;
            }
            if !pod.exists() || pod.is_deleting() {
                self.deletions &= !bit;
            }
        }
    }
}

/// What pods that are not asked to stop may do.
pub(crate) fn ways_to_end(config: &Config, budget: &Budget) -> impl Iterator<Item = Exit> {
    let failures = if budget.failures > 0 { config.failures.clone() } else { Vec::new() };
    std::iter::once(Exit::Success).chain(failures)
}
