//! What is told to the history, and when everybody else is told.

use batch_types::constants::annotation;
use jiff::Timestamp;

use super::ends::exit;
use super::{Entry, Supervisor};
use crate::history::{EndedRun, JobRef, Kept};
use crate::lifecycle::{Exit, Input, START_ERROR_CODE, StartFailure};
use crate::logs::LogTail;
use crate::nursery::protocol::{Cause, End, InstanceId, Known};
use crate::pod::Pod;

/// How a run ended.
#[derive(Clone, Debug)]
pub(super) enum Ending {
    Exited(End),
    NotStarted { message: String, at: Timestamp },
}

impl Supervisor {
    /// Tells the history of an end, and the pod once it is kept.
    pub(super) async fn ended(&mut self, id: InstanceId, ending: Ending) {
        let (Some(sink), Some(entry)) = (&self.history, self.pods.get(&*id.pod)) else {
            return self.kept(id, ending).await;
        };
        let run = self.run_of(entry, &id, &ending);
        let kept_in = self.kept_in.clone();
        // Nobody listens any more when the node stops; the nursery remembers the end for the next one.
        sink.ended(run, Kept::new(move || drop(kept_in.send((id, ending)))));
    }

    /// The end is in the history, or there is none.
    pub(super) async fn kept(&mut self, id: InstanceId, ending: Ending) {
        match ending {
            Ending::Exited(end) => {
                let exit = exit(&end);
                self.instance_input(&id, |container, attempt| Input::Exited { container, attempt, exit }).await;
            }
            Ending::NotStarted { message, at } => {
                let failure = StartFailure::Start { message, at };
                self.instance_input(&id, |container, attempt| Input::NotStarted { container, attempt, failure }).await;
            }
        }
    }

    /// Ends that came while no node listened. They may be in the history already; it keeps them once.
    pub(super) fn record_found(&self, entry: &Entry, known: &[Known]) {
        let Some(sink) = &self.history else { return };
        for Known { id, end, .. } in known {
            if let Some(end) = end {
                sink.ended(self.run_of(entry, id, &Ending::Exited(end.clone())), Kept::unheard());
            }
        }
    }

    /// A pod that ended without any container having run.
    pub(super) fn record_rejected(&self, entry: &Entry, reason: &str, message: &str, at: Timestamp) {
        let Some(sink) = &self.history else { return };
        let run = EndedRun {
            finished_at: Some(at),
            reason: reason.to_owned(),
            message: Some(message.to_owned()),
            ..self.run_of_pod(entry)
        };
        sink.ended(run, Kept::unheard());
    }

    fn run_of(&self, entry: &Entry, id: &InstanceId, ending: &Ending) -> EndedRun {
        let pod = self.run_of_pod(entry);
        let run = EndedRun { container: Some(id.container.clone()), attempt: id.attempt, ..pod };
        match ending {
            Ending::NotStarted { message, at } => EndedRun {
                finished_at: Some(*at),
                exit_code: Some(START_ERROR_CODE),
                reason: "StartError".to_owned(),
                message: Some(message.clone()),
                ..run
            },
            Ending::Exited(end) => {
                let Exit { code, reason, message, finished_at, .. } = exit(end);
                EndedRun {
                    started_at: end.started_at,
                    finished_at: finished_at.or(Some(end.finished_at)),
                    exit_code: Some(code),
                    signal: signal(end.cause),
                    reason: reason.into_owned(),
                    message,
                    log: Some(LogTail {
                        logs: self.surroundings.layout.logs(),
                        pod_uid: id.pod.clone(),
                        container: id.container.clone(),
                        attempt: id.attempt,
                    }),
                    ..run
                }
            }
        }
    }

    fn run_of_pod(&self, entry: &Entry) -> EndedRun {
        let facts = &entry.facts;
        let deleted = entry.observed.deletion_grace_seconds.map(|_| "Deleted".to_owned());
        EndedRun {
            namespace: facts.namespace.clone(),
            pod_name: facts.name.clone(),
            pod_uid: facts.uid.clone(),
            node_name: self.name.clone(),
            job: entry.job.clone(),
            index: facts.annotations.get(annotation::COMPLETION_INDEX).and_then(|index| index.parse().ok()),
            container: None,
            attempt: 0,
            started_at: None,
            finished_at: None,
            exit_code: None,
            signal: None,
            reason: String::new(),
            message: None,
            pod_reason: entry.life.reason().map(str::to_owned).or(deleted),
            log: None,
        }
    }
}

fn signal(cause: Cause) -> Option<i32> {
    match cause {
        Cause::Signal(signal) => Some(signal),
        // SIGKILL, by the kernel.
        Cause::OutOfMemory => Some(9),
        Cause::Code(_) | Cause::NotStarted | Cause::Unseen => None,
    }
}

/// The Job that controls a pod, if one does.
pub(super) fn job_of(pod: &Pod) -> Option<JobRef> {
    let owners = pod.metadata.owner_references.iter().flatten();
    let mut jobs = owners.filter(|owner| owner.controller == Some(true) && owner.kind == "Job");
    jobs.next().map(|owner| JobRef { name: owner.name.clone(), uid: owner.uid.clone() })
}
