//! What must hold when nothing happens any more (INV-13, INV-17, INV-23, INV-28, INV-38, INV-39).

use super::{Judge, views::Pod};

impl Judge<'_> {
    pub(super) fn rest(&mut self) {
        let revision = self.history.changes.last().map_or(0, |change| change.revision);
        let mut broken: Vec<(&'static str, String, String)> = Vec::new();
        for pod in self.ledger.pods.values().filter(|pod| !pod.gone && pod.last.is_tracked()) {
            let over = pod.last.ended().is_some() || pod.last.metadata.is_deleting();
            let job = pod.last.job().and_then(|uid| self.ledger.job(uid));
            let foreign = job.is_some_and(|job| job.last.is_foreign());
            let controlled = pod.last.metadata.controller().is_some() && pod.last.job().is_none();
            let needed = match job {
                Some(job) => job.last.status.finished().is_none(),
                None => false,
            };
            if over && !needed && !foreign && !controlled {
                broken.push((
                    "INV-13",
                    format!("pod {}", pod.name),
                    "still tracked, and nobody will release it".into(),
                ));
            }
        }
        for (uid, record) in self.ledger.jobs.iter().filter(|(_, job)| !job.gone && !job.last.is_foreign()) {
            let job = &record.last;
            if job.metadata.is_deleting() {
                continue;
            }
            let active = self.ledger.pods_of(uid).filter(|(_, pod)| pod.last.is_active()).count() as u64;
            let name = format!("job {}", record.name);
            if job.status.finished().is_none() && job.status.active != active {
                let what = format!("says {} pods are active, and {active} are", job.status.active);
                broken.push(("INV-28", name.clone(), what));
            }
            let count = |test: fn(&Pod) -> bool| self.ledger.pods_of(uid).filter(|(_, pod)| test(&pod.last)).count();
            let ready = count(|pod| pod.is_active() && pod.is_ready()) as u64;
            let terminating = count(|pod| pod.ended().is_none() && pod.metadata.is_deleting()) as u64;
            let said = (job.status.ready.unwrap_or(0), job.status.terminating.unwrap_or(0));
            if job.status.finished().is_none() && said != (ready, terminating) {
                let what = format!("says {said:?} pods are ready and terminating, and {:?} are", (ready, terminating));
                broken.push(("INV-28", name.clone(), what));
            }
            let wanted = match job.spec.completions {
                _ if job.spec.suspend || job.status.verdict().is_some() => 0,
                Some(completions) => job.parallelism().min(completions.saturating_sub(job.status.succeeded)),
                // After the first success the pods of a work queue are left to end, however many (JC-1006).
                None if job.status.succeeded > 0 => u64::MAX,
                None => job.parallelism(),
            };
            if job.status.finished().is_none() && active > wanted {
                broken.push(("INV-17", name.clone(), format!("{active} pods are active, and {wanted} wanted")));
            }
            // What a user takes the finalizer off is not the controller's any more.
            let unnoticed = |pod: &super::ledger::PodRecord| {
                pod.last.is_active() && !pod.last.is_tracked() && pod.ever_tracked && pod.stripped.is_none()
            };
            for (_, pod) in self.ledger.pods_of(uid).filter(|(_, pod)| unnoticed(pod)) {
                if job.status.finished().is_none() {
                    broken.push(("INV-23", format!("pod {}", pod.name), "lives on, and nobody tracks it".into()));
                }
            }
            if job.status.verdict().is_some() && job.status.finished().is_none() && active == 0 {
                let terminating = self.ledger.pods_of(uid).any(|(_, pod)| pod.is_live());
                if !terminating {
                    broken.push(("INV-30", name, "has a verdict, nothing is live, and it does not end".into()));
                }
            }
        }
        for (uid, record) in self.ledger.cron_jobs.iter().filter(|(_, record)| !record.gone) {
            if !record.last.metadata.is_deleting() {
                broken.extend(
                    self.history_left(uid, record).map(|what| ("INV-39", format!("cronjob {}", record.name), what)),
                );
            }
            let unfinished = |job: &&super::ledger::JobRecord| {
                !job.gone && job.last.cron_job() == Some(uid) && job.last.status.finished().is_none()
            };
            let mut expected: Vec<&str> =
                self.ledger.jobs.values().filter(unfinished).map(|job| &*job.last.metadata.uid).collect();
            let mut listed: Vec<&str> = record.last.status.active.iter().map(|active| &*active.uid).collect();
            expected.sort_unstable();
            listed.sort_unstable();
            if expected != listed {
                let what = format!("lists {listed:?} as active, and {expected:?} are");
                broken.push(("INV-38", format!("cronjob {}", record.name), what));
            }
        }
        for (invariant, object, what) in broken {
            self.broken(invariant, revision, object, what);
        }
    }
}
