//! Counting ended pods exactly once (JC section 13): which pods are recorded now, and which lose their finalizer after.
//!
//! The protocol has three stages that survive a crash between any two: a status write that names the pods, the removal of
//! their finalizers, a status write that adds them to the counters. This file chooses the pods; `plan` carries the stages.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::iter::Peekable;

use batch_types::index_ranges::IndexSet;

use super::action::PodRef;
use super::failure_policy::PolicyAction;
use super::index_tally::IndexTally;
use super::metrics::Ended;
use super::tally::{Fate, Key, Tally};
use super::totals::Totals;
use super::{Settings, Uid};
use teeth::{Mutation, is};

/// The pods of one round.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Round {
    /// Pods to add to the uncounted lists before anything else.
    pub(crate) succeeded: Vec<Uid>,
    pub(crate) failed: Vec<Uid>,
    /// Live pods that count as nothing any more, because the Job has succeeded without them or they are surplus. They are let
    /// go first, and only if they are still live then: one that has succeeded while it was tracked has to count (INV-1).
    pub(crate) let_go: Vec<PodRef>,
    /// Pods to release once the status names them.
    pub(crate) release: Vec<PodRef>,
    /// Failures by the rule that decided about them (JC-2207).
    pub(crate) handled: BTreeMap<PolicyAction, u64>,
    /// Whether pods are left for the next round, because a bound was reached.
    pub(crate) more: bool,
}

/// What a round depends on besides the pods.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Circumstances {
    /// How the Job ends in this sync, if it does.
    pub(crate) ending: Option<Ended>,
    /// Whether the Job is being deleted.
    pub(crate) deleting: bool,
    /// Keep pods that a FailJob rule matches: the verdict they justify could not be written.
    pub(crate) hold_fail_job: bool,
}

/// Chooses the pods of a round (JC-1305…1308).
///
/// Pods that the status names already come first and do not wait behind new ones: upstream stops at its bound wherever
/// they are, which lets one of them through per sync when a crash or failed calls left the lists full.
pub(crate) fn collect(tally: &Tally, totals: &Totals, around: Circumstances, settings: &Settings) -> Round {
    let uncounted = &totals.uncounted;
    let listed: BTreeSet<&Uid> = uncounted.succeeded.iter().chain(&uncounted.failed).collect();
    let is_listed = |fate: Fate, uid: &Uid| match is(Mutation::A09) && fate == Fate::Succeeded {
        true => uncounted.succeeded.contains(uid),
        false => listed.contains(uid),
    };
    let bound = match (is(Mutation::A05), is(Mutation::D18)) {
        (true, _) => usize::MAX,
        (_, true) => 1,
        _ => settings.uncounted_pods_max,
    };
    let is_held = |uid: &Uid| around.hold_fail_job && tally.fail_job.contains(uid);

    let mut round = Round::default();
    let unreleased = listed.iter().filter(|uid| tally.is_tracked(uid) && !is_held(uid));
    round.release.extend(unreleased.map(|uid| tally.pod_ref(uid)));
    let mut recorded = round.release.len();
    let mut new_indexes = BTreeSet::new();

    let releasable = releasable(tally, totals, around);
    let unbounded = is(Mutation::A05) || is(Mutation::A16);
    let releases_max = if unbounded { usize::MAX } else { settings.releases_max };
    for (fate, (index, uid)) in releasable.filter(|(fate, (_, uid))| !is_listed(*fate, uid) && !is_held(uid)) {
        if recorded >= bound || round.release.len() + round.let_go.len() >= releases_max {
            round.more = true;
            break;
        }
        // A pod that is marked as surplus does not fail with its Job either: found deleted, after a crash say, it would
        // not count, so it must not now (INV-1).
        let side = count_as(fate, around.ending).filter(|_| fate != Fate::Live || !tally.marked.contains(uid));
        match (fate, side) {
            (Fate::Live | Fate::Removed, None) if !around.deleting && tally.is_live(uid) && !is(Mutation::I04) => {
                round.let_go.push(tally.pod_ref(uid));
            }
            _ => round.release.push(tally.pod_ref(uid)),
        }
        match (side, index, &totals.indexes) {
            _ if !tally.rules.index_valid(*index) => {}
            // UIDs of succeeded pods of Indexed Jobs are not stored: their index is, and a set counts once.
            (Some(Ended::Succeeded), Some(index), Some(indexes)) => {
                recorded += usize::from(!indexes.recorded.contains(*index) && new_indexes.insert(*index));
            }
            (Some(Ended::Succeeded), _, _) => {
                round.succeeded.push(uid.clone());
                recorded += 1;
            }
            (Some(Ended::Failed), _, _) => {
                let action = tally.pods[uid].matched.as_ref().map(|found| found.action);
                if let Some(action) = action {
                    *round.handled.entry(action).or_default() += 1;
                }
                if action != Some(PolicyAction::Ignore) {
                    round.failed.push(uid.clone());
                    recorded += 1;
                }
            }
            (None, _, _) => {}
        }
    }
    if around.deleting {
        let room = settings.releases_max.saturating_sub(round.release.len());
        round.release.extend(tally.stranded().take(room).map(|uid| tally.pod_ref(uid)));
    }
    round
}

/// On which side a released pod counts (JC-1307). When a Job fails, pods that are not done fail with it.
fn count_as(fate: Fate, ending: Option<Ended>) -> Option<Ended> {
    match fate {
        Fate::Succeeded => Some(Ended::Succeeded),
        Fate::Failed => Some(Ended::Failed),
        Fate::Live => ending.filter(|ended| *ended == Ended::Failed),
        Fate::Removed => None,
    }
}

/// The pods to release in work order (JC-1302, JC-1306).
fn releasable<'a>(
    tally: &'a Tally,
    totals: &'a Totals,
    around: Circumstances,
) -> impl Iterator<Item = (Fate, &'a Key)> {
    let all = around.deleting || around.ending.is_some();
    let retained: Box<dyn Iterator<Item = &Key>> = match &totals.indexes {
        // In a namespace that is being deleted nothing is replaced, and the namespace waits for every pod.
        _ if all || tally.in_flight.is_namespace_terminating() => Box::new(tally.indexes.retained_keys()),
        // The index succeeded or was given up, so no replacement will take over the counts of the retained pod.
        Some(indexes) => Box::new(merge_keys(&tally.indexes, &indexes.succeeded, &indexes.failed)),
        None => Box::new(std::iter::empty()),
    };
    let live = all.then_some(&tally.live).into_iter().flatten();
    let succeeded = tally.succeeded.iter().map(|key| (Fate::Succeeded, key));
    let failed = tally.failed.iter().map(|key| (Fate::Failed, key));
    let retained = retained.map(|key| (Fate::Failed, key));
    let removed = tally.removed.iter().map(|key| (Fate::Removed, key));
    let live = live.map(|key| (Fate::Live, key));
    merge(merge(succeeded, merge(failed, retained)), merge(removed, live))
}

fn merge_keys<'a>(
    indexes: &'a IndexTally,
    succeeded: &'a IndexSet,
    failed: &'a IndexSet,
) -> impl Iterator<Item = &'a Key> {
    let with_fate = |key| (Fate::Failed, key);
    let done = indexes.retained_in(succeeded).map(with_fate);
    merge(done, indexes.retained_in(failed).map(with_fate)).map(|(_, key)| key)
}

type Item<'a> = (Fate, &'a Key);

/// Two ordered sequences as one: by index, then by fate, then by UID.
fn merge<'a>(
    left: impl Iterator<Item = Item<'a>>,
    right: impl Iterator<Item = Item<'a>>,
) -> impl Iterator<Item = Item<'a>> {
    struct Merge<L: Iterator, R: Iterator>(Peekable<L>, Peekable<R>);

    impl<'a, L: Iterator<Item = Item<'a>>, R: Iterator<Item = Item<'a>>> Iterator for Merge<L, R> {
        type Item = Item<'a>;

        fn next(&mut self) -> Option<Item<'a>> {
            let order = |(fate, (index, uid)): &Item<'a>| (*index, *fate, uid);
            match (self.0.peek(), self.1.peek()) {
                (Some(left), Some(right)) if order(left).cmp(&order(right)) == Ordering::Greater => self.1.next(),
                (Some(_), _) => self.0.next(),
                (None, _) => self.1.next(),
            }
        }
    }
    Merge(left.peekable(), right.peekable())
}
