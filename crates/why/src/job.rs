//! A Job: over, going, deleted, unattended, or held up by its pods.

mod backoff;
mod case;
mod controller;
mod creation;
mod deleting;
mod failures;
mod finished;
mod hold;
mod population;

use jiff::SignedDuration;

use crate::answer::{Answer, Evidence, State};
use crate::snapshot::Snapshot;
use crate::words::{foreign, seconds};
use case::Case;

pub(crate) fn explain(snapshot: &Snapshot) -> Answer {
    let case = Case::new(snapshot);
    let answer = None
        .or_else(|| deleting::explain(&case))
        .or_else(|| finished::explain(&case))
        .or_else(|| finished::ending(&case))
        .or_else(|| suspended(&case))
        .or_else(|| controller::unattended(&case))
        .unwrap_or_else(|| population::explain(&case));
    with_deadline(&case, answer).in_order()
}

fn suspended(case: &Case<'_>) -> Option<Answer> {
    let job = case.job;
    if !job.flag("/spec/suspend") {
        return None;
    }
    let condition = job.is_true("Suspended");
    let since = condition.and_then(|condition| condition.since).or(job.created());
    let queue = job.label("kueue.x-k8s.io/queue-name").map(foreign);
    let terminating = case.terminating().count();
    let still = match terminating {
        0 => String::new(),
        count => format!(
            " {} still ending.",
            crate::words::counted(count as u64, "pod") + crate::words::verb(count as u64, " is", " are")
        ),
    };
    let answer = match queue {
        Some(queue) => {
            let summary = format!("It is suspended until queue `{queue}` admits it (Kueue).{still}");
            Answer::new(case.snapshot, State::Suspended, summary)
                .next("Kueue resumes it when the queue has room", None)
                .action(format!("kubectl describe localqueue {queue}{}", case.flag()))
        }
        None => {
            Answer::new(case.snapshot, State::Suspended, format!("It is suspended: `spec.suspend` is true.{still}"))
                .next("nothing until somebody resumes it; then the deadline and the start time begin anew", None)
                .action(format!("kubectl patch {} -p '{{\"spec\":{{\"suspend\":false}}}}'", case.argument()))
        }
    };
    let fact = match condition {
        Some(_) => Evidence::new(case.about(), "condition Suspended is True: Job suspended", since),
        None => Evidence::new(case.about(), "no controller has noted the suspension yet", None),
    };
    Some(answer.since(since).evidence([fact]))
}

/// The deadline goes on whatever a running Job waits for (JC-904).
fn with_deadline(case: &Case<'_>, answer: Answer) -> Answer {
    let is_over = matches!(
        answer.state,
        State::Deleting | State::Complete | State::Failed | State::Completing | State::Failing | State::Suspended
    );
    let deadline = case.job.int("/spec/activeDeadlineSeconds").zip(case.job.time("/status/startTime"));
    let Some((limit, start)) = deadline.filter(|_| !is_over) else { return answer };
    let Ok(at) = start.checked_add(SignedDuration::from_secs(limit)) else { return answer };
    let what = match at > case.snapshot.now {
        true => format!("activeDeadlineSeconds ({}) is over and the Job fails if it has not finished", seconds(limit)),
        false => "activeDeadlineSeconds is over: the Job fails as soon as its controller looks at it".to_owned(),
    };
    answer.next(what, Some(at))
}
