//! The writer: the only one that assigns revisions, writes to the backend and changes the index. Which thread or task
//! lends it its time is decided in `writing.rs`.
//!
//! Takes all transactions that wait, makes their changes durable with one sync, then publishes them, then answers
//! (D5). Between batches it compacts, one bounded step at a time, and when it has nothing else to do it packs values that
//! nobody has changed for a while (`rest.rs`).

use crate::compaction::{self, Step};
use crate::index::Wakes;
use crate::queue::{Commit, Compact, Work};
use crate::shared::Shared;
use crate::stage::Stage;
use crate::window::Window;
use crate::{Batch, CommitError, Entry, Revision};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use teeth::{Mutation, is};

/// The reason of a store that failed by a bug.
pub(crate) const WRITER_PANICKED: &str = "the writer thread panicked";

pub(crate) struct Writer<A> {
    shared: Arc<Shared<A>>,
    window: Window,
    /// How many transactions were under way when the last were answered.
    under_way: usize,
    /// Versions to lay to rest, oldest first. Some may have been replaced since.
    tired: VecDeque<Arc<Entry<A>>>,
}

/// So many versions may wait until there is nothing else to do.
const TIRED_MAX: usize = 2048;
/// So many are laid to rest before the queue is looked at again: a fraction of a millisecond.
const REST_STEP: usize = 32;

/// What one turn of the writer came to.
#[derive(PartialEq, Eq)]
enum Turn {
    Worked,
    /// Nothing was queued; compaction may have gone on.
    Idle,
    /// There will be no work any more.
    Closed,
}

impl<A> Writer<A> {
    pub(crate) fn new(shared: Arc<Shared<A>>, window: Window) -> Self {
        let tired = shared.index.read().tired_at_start().into();
        Self { shared, window, under_way: 0, tired }
    }

    /// Works until the store is closed.
    pub(crate) fn run(mut self) {
        self.guarded(|writer| {
            while writer.turn(writer.patience()) != Turn::Closed {
                if writer.under_way > 1 {
                    writer.shared.queue.gather(std::mem::take(&mut writer.under_way));
                }
            }
        });
    }

    /// Does what is queued and the compaction that is due, without waiting for more.
    pub(crate) fn drain(&mut self) {
        self.guarded(|writer| {
            loop {
                match writer.turn(Some(Duration::ZERO)) {
                    Turn::Worked => {}
                    Turn::Idle if writer.patience() == Some(Duration::ZERO) => {}
                    Turn::Idle | Turn::Closed => return,
                }
            }
        });
    }

    /// A panic fails the store instead of leaving callers waiting.
    fn guarded(&mut self, work: impl FnOnce(&mut Self)) {
        if catch_unwind(AssertUnwindSafe(|| work(self))).is_err() {
            fail(&self.shared, WRITER_PANICKED.into());
            self.shared.queue.close(true);
        }
    }

    /// One piece of work, if it comes before `patience` ends.
    fn turn(&mut self, patience: Option<Duration>) -> Turn {
        let tired_before = self.tired.len();
        let turn = match self.shared.queue.take(patience) {
            Work::Commit(commits) => {
                self.commit(commits);
                Turn::Worked
            }
            Work::Compact(compact) => {
                self.compact_to(compact);
                Turn::Worked
            }
            Work::Idle => Turn::Idle,
            Work::Closed => return Turn::Closed,
        };
        self.compact_if_due();
        self.lay_to_rest(match turn {
            Turn::Worked => rest_between(self.tired.len(), self.tired.len() - tired_before),
            Turn::Idle | Turn::Closed => REST_STEP,
        });
        turn
    }

    /// How long to sleep without work. A failed store has nothing left to do by itself.
    fn patience(&self) -> Option<Duration> {
        if self.shared.failure.get().is_some() {
            return None;
        }
        let (revision, compacted) = self.ends();
        match self.window.target(revision, compacted) {
            // More than one step was due.
            Some(_) => Some(Duration::ZERO),
            None if !self.tired.is_empty() => Some(Duration::ZERO),
            None => self.window.due_in(self.shared.clock.now(), revision),
        }
    }

    fn commit(&mut self, commits: Vec<Commit<A>>) {
        if let Some(reason) = self.shared.failure.get() {
            return refuse(commits, reason);
        }
        let (answers, changes) = {
            let index = self.shared.index.read();
            let mut stage = Stage::new(&index, &self.shared.derive);
            let answers: Vec<_> = commits.iter().map(|commit| stage.add(&commit.transaction)).collect();
            (answers, stage.into_changes())
        };
        let mut wakes = Wakes::new();
        if !changes.is_empty() {
            let puts = changes.iter().map(|change| (change.event.revision(), change.record.clone())).collect();
            if let Err(error) = self.shared.backend.apply(Batch { puts, ..Batch::default() }) {
                if is(Mutation::S03) {
                    self.shared.index.write().publish(changes.into_iter().map(|change| change.event));
                }
                let reason = fail(&self.shared, error.chain().into());
                return refuse(commits, &reason);
            }
            let mut index = self.shared.index.write();
            let (touched, tired) = index.publish(changes.into_iter().map(|change| change.event));
            wakes = touched;
            self.tired.extend(tired);
            let revision = index.revision;
            drop(index);
            self.window.observe(self.shared.clock.now(), revision);
        }
        self.under_way = commits.len() + self.shared.queue.len();
        // Writers first: they often have to follow up on what others only look at.
        for (commit, answer) in commits.into_iter().zip(answers) {
            // Nobody may be waiting any more; what was committed stays.
            let _ = commit.answer.send(answer);
        }
        if !wakes.is_empty() {
            wakes.iter().for_each(|published| published.wake_all());
            self.shared.published.notify_waiters();
        }
    }

    /// The work is done without a lock; only this writer changes the index.
    fn lay_to_rest(&mut self, count_max: usize) {
        for entry in self.tired.drain(..count_max.min(self.tired.len())) {
            let models = self.shared.index.read().models_for(&entry);
            if let Some(rested) = models.and_then(|models| entry.rested(models)) {
                self.shared.index.write().settle(&entry, rested);
            }
        }
    }

    fn compact_if_due(&mut self) {
        let (revision, compacted) = self.ends();
        self.window.observe(self.shared.clock.now(), revision);
        if let Some(target) = self.window.target(revision, compacted) {
            self.compact_step(target);
        }
    }

    fn compact_to(&mut self, compact: Compact) {
        while self.compact_step(compact.revision) {}
        let _ = compact.answer.send(self.ends().1);
    }

    /// One step towards `target`; `false` if there is none to take.
    fn compact_step(&mut self, target: Revision) -> bool {
        if self.shared.failure.get().is_some() {
            return false;
        }
        let Some(step) = compaction::next_step(&self.shared.index.read(), target) else { return false };
        let checkpoint = Some(step.checkpoint().encode());
        let Step { through, removes, survivors, .. } = step;
        let apply = |removes, checkpoint| self.shared.backend.apply(Batch { removes, checkpoint, ..Batch::default() });
        let applied = match is(Mutation::S05) {
            true => apply(removes, None).and_then(|()| apply(Vec::new(), checkpoint)),
            false => apply(removes, checkpoint),
        };
        if let Err(error) = applied {
            fail(&self.shared, error.chain().into());
            return false;
        }
        self.shared.index.write().compact(through, survivors);
        tracing::debug!(through, target, "compacted");
        true
    }

    fn ends(&self) -> (Revision, Revision) {
        let index = self.shared.index.read();
        (index.revision, index.compacted)
    }
}

/// How many of `tired` versions are laid to rest between two batches, of which the last added so many: none, unless there
/// are too many of them, and then more than were added, so that they become fewer however much is written.
fn rest_between(tired: usize, added: usize) -> usize {
    tired.saturating_sub(TIRED_MAX).min(REST_STEP + 2 * added)
}

/// Takes no more writes, for the first reason given. A failed sync is never tried again: the kernel may have dropped
/// the dirty pages and report success the second time.
fn fail<A>(shared: &Shared<A>, reason: Arc<str>) -> Arc<str> {
    let first = shared.failure.get_or_init(|| reason).clone();
    tracing::error!(reason = %first, "the store takes no more writes");
    first
}

fn refuse<A>(commits: Vec<Commit<A>>, reason: &Arc<str>) {
    for commit in commits {
        let _ = commit.answer.send(Err(CommitError::Failed { reason: reason.clone() }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_who_never_pause_do_not_keep_values_from_their_rest() {
        for added in [0, 1, 100, 5_000] {
            let mut tired = 100_000;
            let mut turns = 0;
            while tired > TIRED_MAX + added {
                tired += added;
                tired -= rest_between(tired, added);
                turns += 1;
                assert!(turns < 5_000, "{tired} are left");
            }
        }
        assert_eq!(rest_between(TIRED_MAX, 10), 0, "they wait for a calm moment");
    }
}
