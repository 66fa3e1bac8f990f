//! Situations that a run must have met, or it proves nothing (invariants section 4).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

macro_rules! rows {
    ($($name:ident $text:literal)*) => {
        /// A situation worth having been in.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Row {
            $($name),*
        }

        impl Row {
            pub const ALL: &[Self] = &[$(Self::$name),*];

            pub fn text(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }
        }
    };
}

rows! {
    CrashBeforeFirstWrite "crash before the first status write"
    CrashBeforeReleases "crash between the first status write and the releases"
    CrashAmongReleases "crash among the releases"
    CrashBeforeSecondWrite "crash between the releases and the second status write"
    CrashAfterSync "crash after the second status write"
    CrashAfterVerdict "crash after the write of an interim condition"
    CrashWhileCreating "crash among creations"
    CrashWhileRemoving "crash among the calls that remove a pod"
    FirstWriteConflict "conflict on the first status write"
    SecondWriteConflict "conflict on the second status write"
    WriteToNamesake "status write that meets a namesake"
    WriteToNobody "status write to a Job that is gone"
    CreationForNobody "pod created for a Job that is gone"
    LostCreate "lost answer: creation"
    LostDelete "lost answer: deletion"
    LostMark "lost answer: mark of a surplus pod"
    LostRelease "lost answer: release"
    LostFirstWrite "lost answer: first status write"
    LostSecondWrite "lost answer: second status write"
    LateCreate "late landing: creation"
    LateDelete "late landing: deletion"
    LateRelease "late landing: release"
    LateWrite "late landing: status write"
    Refused "refused call"
    CapReached "bound of uncounted pods reached"
    VerdictWhileUnobserved "verdict while creations are unobserved"
    VerdictWhileUnanswered "verdict while a creation is unanswered"
    SuccessWithPodsRunning "success policy met with pods running"
    LeftoverOfFinishedJob "release of a leftover of a finished Job"
    OrphanOfGoneJob "release of an orphan whose Job is gone"
    OrphanOfNamesake "release of an orphan beside a namesake"
    ReleaseWhileJobGoes "release while the Job is being deleted"
    AdoptionRefused "adoption refused by the fresh read"
    Adopted "adoption"
    Disowned "pod let go because of its labels"
    Namesake "namesake created"
    NamesakeDuringSync "namesake created during a sync"
    GrownWithForgottenIndex "resize up after a completed index was forgotten"
    ShrunkBelowCompleted "resize down below a completed index"
    SuspendedWithActivePods "suspended with active pods"
    SuspendedWithEndedPods "suspended with pods that ended unnoticed"
    SuspendedAfterVerdict "suspended after the verdict"
    PolicyIgnore "failure policy: Ignore"
    PolicyFailJob "failure policy: FailJob"
    PolicyFailIndex "failure policy: FailIndex"
    PolicyCount "failure policy: Count"
    DeadlineExceeded "deadline exceeded"
    BackoffLimitExceeded "back-off limit exceeded"
    FailedIndexes "failed indexes"
    Completed "completions reached"
}

/// How often each situation was met.
#[derive(Debug)]
pub(crate) struct Coverage {
    counts: Vec<AtomicU64>,
    told: Vec<AtomicBool>,
}

impl Default for Coverage {
    fn default() -> Self {
        Self {
            counts: Row::ALL.iter().map(|_| AtomicU64::new(0)).collect(),
            told: Row::ALL.iter().map(|_| AtomicBool::new(false)).collect(),
        }
    }
}

impl Coverage {
    pub(crate) fn note(&self, row: Row) {
        self.counts[row as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count(&self, row: Row) -> u64 {
        self.counts[row as usize].load(Ordering::Relaxed)
    }

    /// Whether the situation was met, said once: the checker keeps a path for every time it hears yes.
    pub(crate) fn is_news(&self, row: Row) -> bool {
        self.count(row) > 0 && !self.told[row as usize].swap(true, Ordering::Relaxed)
    }
}
