//! Whose pods are touched (INV-14…INV-16).

use std::collections::BTreeMap;

use super::{
    Judge,
    history::{Change, Step},
    ledger::is_recent,
    views::{Job, Pod},
};

impl Judge<'_> {
    /// The Job controller writes to pods of its own Jobs only, but for adoption and for true orphans.
    pub(super) fn pod_authored(&mut self, change: &Change, step: &Step<Pod>) {
        if change.by != "job" {
            return;
        }
        let Some(before) = &step.before else { return };
        let name = format!("pod {}", before.metadata.name);
        match before.job().map(|uid| self.ledger.jobs.get(uid)) {
            Some(Some(job)) if job.last.is_foreign() => {
                self.broken("INV-15", change.revision, name, "touched although another controller manages its Job");
            }
            Some(_) => {}
            None => match step.after.as_ref().and_then(|after| after.job()) {
                Some(job) => {
                    let job = job.to_owned();
                    self.adopted(change, before, &job);
                }
                None => self.only_released(change, before, step.after.as_deref()),
            },
        }
    }

    pub(super) fn job_authored(&mut self, change: &Change, step: &Step<Job>) {
        let foreign = step.before.as_ref().is_some_and(|job| job.is_foreign());
        if change.by == "job" && foreign {
            let name = step.before.as_ref().map(|job| job.metadata.name.clone()).unwrap_or_default();
            self.broken(
                "INV-15",
                change.revision,
                format!("job {name}"),
                "written although another controller manages it",
            );
        }
    }

    /// INV-16: the Job was there, the same, and not going, when the controller last asked.
    fn adopted(&mut self, change: &Change, pod: &Pod, job: &str) {
        self.met("pod adopted");
        let name = format!("pod {}", pod.metadata.name);
        if pod.metadata.controller().is_some() {
            return self.broken("INV-14", change.revision, name, "adopted although it has a controller");
        }
        let Some(record) = self.ledger.jobs.get(job) else {
            return self.broken("INV-16", change.revision, name, "adopted by a Job that never was");
        };
        if record.last.is_foreign() {
            return self.broken("INV-15", change.revision, name, "adopted although another controller manages the Job");
        }
        let is_over = record.last.status.finished().is_some();
        let suffix = format!("/jobs/{}", record.name);
        let call = self.history.call_of(change.revision);
        let life = call.map(|call| call.life);
        // What was asked when it was on its way already does not count.
        let until = call.map_or(change.revision, |call| call.seen + 1);
        let asked = |read: &&crate::faults::Read| {
            let same_life = life.is_none() || read.life.is_none() || read.life == life;
            read.by == "job" && same_life && read.revision < until && read.path.ends_with(&suffix)
        };
        let asked = self.history.reads.iter().rev().find(asked).map(|read| read.revision);
        // The deletion, if there was one, must be younger than the last question.
        let left = self.history.changes.iter().find(|earlier| earlier.leaves(job)).map(|earlier| earlier.revision);
        let fine = match (asked, left) {
            (_, None) => true,
            (asked, Some(left)) => left > change.revision || asked.is_some_and(|asked| asked < left),
        };
        let is_written_down = !self.history.reads.is_empty() || !self.history.calls.is_empty();
        let since = self.adoptable_since(change, &record.last, &pod.metadata.uid);
        if is_over && pod.ended().is_none() {
            self.broken("INV-9", change.revision, &name, "adopted by a Job that is over");
        }
        if !fine {
            self.broken("INV-16", change.revision, &name, "adopted by a Job that is going or gone");
        }
        if is_written_down && asked.is_none_or(|asked| asked < since) {
            self.broken("INV-16", change.revision, name, "adopted, and nobody asked whether the Job is still there");
        }
    }

    /// The revision since which a Job may adopt a pod: it has the Job's labels and is nobody's, and both are there.
    fn adoptable_since(&self, change: &Change, job: &Job, pod: &str) -> u64 {
        let (mut since, mut was) = (0, false);
        for earlier in self.history.changes.iter().take_while(|earlier| earlier.revision < change.revision) {
            match &earlier.what {
                super::What::Job(Step { before: None, after: Some(made) }) if made.metadata.uid == job.metadata.uid => {
                    since = earlier.revision;
                }
                super::What::Pod(Step { after: Some(state), .. }) if state.metadata.uid == pod => {
                    let is = state.metadata.controller().is_none() && job.selects(state);
                    if is && !was {
                        since = earlier.revision;
                    }
                    was = is;
                }
                _ => {}
            }
        }
        since
    }

    /// INV-14: of what is nobody's, only a stray finalizer may be removed.
    fn only_released(&mut self, change: &Change, before: &Pod, after: Option<&Pod>) {
        let stray = before.metadata.controller().is_none() && before.is_tracked();
        let harmless = match after {
            // Removing the last finalizer of a deleted pod removes the pod.
            None => before.metadata.is_deleting(),
            Some(after) => {
                let mut expected = before.metadata.clone();
                expected.finalizers = after.metadata.finalizers.clone();
                expected == after.metadata && before.status == after.status
            }
        };
        // It was the Job's a moment ago, and the controller cannot know that it is not any more.
        let record = self.ledger.pods.get(&before.metadata.uid);
        let lost =
            record.is_some_and(|pod| pod.disowned.is_some_and(|at| is_recent(at, change.at, self.tolerance.window)));
        if !(stray && harmless || lost) {
            let name = format!("pod {}", before.metadata.name);
            self.broken("INV-14", change.revision, name, "touched although no Job controls it");
        }
    }
}

impl Judge<'_> {
    /// How often the controller asked for a Job before adopting, and heard that it must not.
    pub(super) fn refused_adoptions(&mut self) {
        let history = self.history;
        for read in history.reads.iter().filter(|read| read.by == "job") {
            let before = history.changes.iter().rev().filter(|change| change.revision <= read.revision);
            let last = before.filter_map(|change| match &change.what {
                super::What::Job(step) => Some(step),
                _ => None,
            });
            let named = |job: &Job| read.path.ends_with(&format!("/jobs/{}", job.metadata.name));
            let of = |step: &&Step<Job>| step.after.as_ref().or(step.before.as_ref()).is_some_and(|job| named(job));
            let leaving = |step: &Step<Job>| step.after.as_ref().is_none_or(|job| job.metadata.is_deleting());
            let Some(job) = { last }.find(of).filter(|step| leaving(step)) else { continue };
            let job = job.after.as_ref().or(job.before.as_ref());
            if job.is_some_and(|job| self.may_adopt_at(job, read.revision)) {
                self.met("adoption refused by the fresh read");
            }
        }
    }
}

impl Judge<'_> {
    /// Whether there was a pod at a revision that a Job would have adopted.
    fn may_adopt_at(&self, job: &Job, revision: u64) -> bool {
        let mut adoptable: BTreeMap<&str, bool> = BTreeMap::new();
        for change in self.history.changes.iter().take_while(|change| change.revision <= revision) {
            let super::What::Pod(step) = &change.what else { continue };
            let Some(pod) = step.after.as_ref().or(step.before.as_ref()) else { continue };
            let is = step.after.is_some()
                && pod.metadata.controller().is_none()
                && !pod.metadata.is_deleting()
                && job.selects(pod);
            adoptable.insert(&pod.metadata.uid, is);
        }
        adoptable.into_values().any(|is| is)
    }
}

impl Change {
    /// Whether with this change a Job is going or gone.
    fn leaves(&self, job: &str) -> bool {
        let super::What::Job(step) = &self.what else { return false };
        let of = |state: &Job| state.metadata.uid == job;
        match (&step.before, &step.after) {
            (Some(before), None) => of(before),
            (_, Some(after)) => of(after) && after.metadata.is_deleting(),
            (None, None) => false,
        }
    }
}
