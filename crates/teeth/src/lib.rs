//! Old bugs that can be brought back, one at a time, to show that the tests notice (invariants 3.10).
//!
//! Only in builds with debug assertions, which no shipped one has: elsewhere [`is`] is a constant and every mutation is
//! compiled away. The environment variable `TALLY_MUTATION` names the bug, as in `TALLY_MUTATION=REG-A06`; the program
//! `teeth` of the crate `model` goes through all of them and demands that something turns red.
//!
//! A mutation is an expression or two at the place where the bug would live, in whatever crate that is.

/// Who has to notice a bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Judge {
    /// The regressions of its number, in every test program of these names.
    Tests(&'static [&'static str]),
    /// A scenario of the enumeration of faults, with these.
    Faults(&'static str, &'static str),
}

macro_rules! mutations {
    ($($judge:expr => { $($name:ident $id:literal $about:literal)* })*) => {
        /// An old bug.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Mutation {
            $($(#[doc = $about] $name,)*)*
        }

        impl Mutation {
            pub const ALL: &[Self] = &[$($(Self::$name),*),*];

            /// The number of the regression.
            pub fn id(self) -> &'static str {
                match self { $($(Self::$name => $id,)*)* }
            }

            /// What goes wrong.
            pub fn about(self) -> &'static str {
                match self { $($(Self::$name => $about,)*)* }
            }

            pub fn judge(self) -> Judge {
                match self { $($(Self::$name => $judge,)*)* }
            }
        }
    };
}

mutations! {
    Judge::Tests(&["batch_plan"]) => {
        A01 "REG-A01" "a deleted pod of a Job that is gone is not noticed"
        A03 "REG-A03" "a live pod that turns up after the end stays tracked"
        A05 "REG-A05" "the lists of uncounted pods have no bound"
        A06 "REG-A06" "a release that the cache does not show is forgotten"
        A08 "REG-A08" "a refused creation is waited for like an accepted one"
        A09 "REG-A09" "a pod listed as failed is listed again when it succeeds"
        A12 "REG-A12" "a finished Job leaves its pods tracked"
        A17 "REG-A17" "a removal that a crash interrupted counts as a failure"
        A18 "REG-A18" "no pod is active while a delay runs"
        B01 "REG-B01" "the terminal condition does not wait for terminating pods"
        B02 "REG-B02" "conditions are appended whatever there is"
        B04 "REG-B04" "an interim condition is appended beside one with status False"
        B06 "REG-B06" "a Job is complete while surplus pods run"
        B07 "REG-B07" "a Job that we finished is synced until the cache shows it"
        B09 "REG-B09" "a resumed Job keeps the start time of its first run"
        B12 "REG-B12" "the end is announced before it is written"
        B14 "REG-B14" "a deleted pod is judged before it has ended"
        C01 "REG-C01" "terminating pods are replaced under policy Failed"
        C03 "REG-C03" "an absent field is a reason to panic"
        C05 "REG-C05" "deleted pods count as neither active nor terminating"
        C08 "REG-C08" "pods that the cache does not show are created again, under new names"
        C09 "REG-C09" "a repeated creation uses another name"
        C10 "REG-C10" "a Job waits for what its deleted namesake expected"
        C15 "REG-C15" "completed indexes beyond the size are kept"
        C17 "REG-C17" "a work queue goes on after a success"
        D01 "REG-D01" "failures that are counted already do not count for the limit"
        D03 "REG-D03" "the limit is reached one failure early"
        D05 "REG-D05" "restarts of pods that are Pending do not count"
        D07 "REG-D07" "delays do not grow"
        D09 "REG-D09" "nothing is counted while a delay runs"
        D11 "REG-D11" "ignored failures do not delay"
        D13 "REG-D13" "a delay begins when the clock of the node says"
        D15 "REG-D15" "the timer of a deadline is set with the start only, and lost with a restart"
        D18 "REG-D18" "one pod is counted per sync"
        F01 "REG-F01" "every attempt to start a Job gives it another name"
        F04 "REG-F04" "a Job deleted by hand stays in the list of active ones"
        F05 "REG-F05" "after too many missed times nothing is started any more"
        F10 "REG-F10" "a schedule that never occurs is looked at again at once, for ever"
        F14 "REG-F14" "the first missed time is due, not the last"
        F16 "REG-F16" "an entry of the list of active Jobs lacks its uid"
        F18 "REG-F18" "whose a Job is goes by the name of its owner"
        F20 "REG-F20" "without history the time of a success is not told"
        F22 "REG-F22" "a change of the clock is noticed one activation too late"
        F26 "REG-F26" "a long starting deadline overflows"
        I02 "INV-1b" "a pod that ended unseen is taken for failed when its Job fails"
        I03 "INV-1c" "a pod that was counted and lost its owner is counted again when it is adopted"
        I04 "INV-1d" "a pod that ends while its Job succeeds without it is released uncounted"
        I09 "INV-9" "a Job finishes although an unanswered creation may have left a pod"
        I10 "INV-13" "a failed pod that waits for its replacement holds up a namespace that is being deleted"
    }
    Judge::Tests(&["batch_plan", "controllers"]) => {
        A14 "REG-A14" "something of a Job that is gone is remembered"
        A16 "REG-A16" "a sync releases as many pods as there are"
        C22 "REG-C22" "a terminating namespace is an error"
    }
    Judge::Tests(&["batch_types"]) => {
        V01 "REG-V01" "a success policy stands for the number of completions"
        V03 "REG-V03" "a suspended Job that no controller has seen may not change its scheduling"
        V05 "REG-V05" "the longest host name of an Indexed Job is not looked at"
        V07 "REG-V07" "names of time zones are paths below the database"
        V09 "REG-V09" "a zone without a schedule is read beyond its end"
    }
    Judge::Tests(&["controllers"]) => {
        C13 "REG-C13" "a Job is not woken for its deadline if one of its name was before"
        C19 "REG-C19" "a Job adopts without being looked at again"
        C24 "REG-C24" "what a sync has in mind is in the cache before the server has accepted it"
        C25 "REG-C25" "attempts do not grow apart"
        F08 "REG-F08" "history goes and leaves its pods"
        F12 "REG-F12" "a CronJob whose template has new labels does not know its Jobs any more"
        F25 "REG-F25" "a success does not make earlier failures forgotten"
        G01 "REG-G01" "a Job is deleted although its time to live was raised meanwhile"
        H01 "REG-H01" "an owner that no list has shown yet counts as absent"
        H03 "REG-H03" "an object is deleted although it got another owner meanwhile"
        H05 "REG-H05" "the end of a pod of a vanished node is written in a way that the server refuses"
        H07 "REG-H07" "a pod of a vanished node goes without having failed"
    }
    Judge::Tests(&["node"]) => {
        H08 "REG-H08" "an exit that nobody had reported is forgotten with the process that would have"
    }
    Judge::Tests(&["regressions"]) => {
        S01 "REG-S01" "writes are acknowledged that were not synced"
        S03 "REG-S03" "watchers are shown what could not be written"
        S05 "REG-S05" "compaction removes before it is written how far revisions had come"
        S07 "REG-S07" "a watch from the future begins now"
        S09 "REG-S09" "a watch from before the oldest change that is kept begins there, without a word"
    }
    Judge::Faults("nonindexed", "16:past-pods-3000-8") => {
        H09 "REG-H09" "what another process did is not waited for"
    }
}

/// Whether bugs can be brought back in this build.
pub const POSSIBLE: bool = cfg!(debug_assertions);

pub use selected::{is, select};

#[cfg(not(debug_assertions))]
mod selected {
    use super::Mutation;

    /// Whether that bug is back: never.
    #[inline(always)]
    pub const fn is(_: Mutation) -> bool {
        false
    }

    /// Changes nothing in this build.
    pub const fn select(_: Option<Mutation>) {}
}

#[cfg(debug_assertions)]
mod selected {
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::Mutation;

    const UNREAD: u8 = u8::MAX;
    const NONE: u8 = u8::MAX - 1;
    static SELECTED: AtomicU8 = AtomicU8::new(UNREAD);

    /// Whether that bug is back.
    pub fn is(mutation: Mutation) -> bool {
        match SELECTED.load(Ordering::Relaxed) {
            UNREAD => {
                select(from_environment());
                is(mutation)
            }
            selected => selected == mutation as u8,
        }
    }

    /// Brings one bug back, or none.
    pub fn select(mutation: Option<Mutation>) {
        SELECTED.store(mutation.map_or(NONE, |mutation| mutation as u8), Ordering::Relaxed);
    }

    fn from_environment() -> Option<Mutation> {
        let id = std::env::var("TALLY_MUTATION").ok()?;
        let found = Mutation::ALL.iter().copied().find(|mutation| mutation.id() == id);
        assert!(found.is_some(), "TALLY_MUTATION: no mutation `{id}`");
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bug_has_a_number_of_its_own() {
        let mut ids: Vec<&str> = Mutation::ALL.iter().map(|mutation| mutation.id()).collect();
        ids.sort_unstable();
        assert!(ids.windows(2).all(|pair| pair[0] != pair[1]), "{ids:?}");
    }

    #[test]
    #[cfg(debug_assertions)]
    fn one_bug_is_back_at_a_time() {
        let back = || Mutation::ALL.iter().copied().filter(|mutation| is(*mutation)).collect::<Vec<_>>();
        select(Some(Mutation::A06));
        assert_eq!(back(), [Mutation::A06]);
        select(None);
        assert_eq!(back(), []);
    }
}
