//! The nursery's words for the end of a process in the words of the API (PL-53, PL-56).

use jiff::Timestamp;

use crate::lifecycle::{Exit, Record};
use crate::nursery::protocol::{Cause, End, Known};

pub(super) fn record(known: &Known) -> Record {
    Record {
        container: known.id.container.clone(),
        attempt: known.id.attempt,
        started_at: known.started_at,
        exit: known.end.as_ref().map(exit),
    }
}

pub(super) fn exit(end: &End) -> Exit {
    let message = match (&end.message, &end.log_tail) {
        (Some(message), _) if !message.is_empty() => Some(message.clone()),
        (_, tail) => tail.clone().filter(|tail| !tail.is_empty()),
    };
    let base = |code| Exit { message: message.clone(), ..Exit::with_code(code, end.started_at, end.finished_at) };
    match end.cause {
        Cause::Code(code) => base(code),
        Cause::Signal(signal) => base(128 + signal),
        Cause::OutOfMemory => Exit { reason: "OOMKilled".into(), ..base(137) },
        Cause::NotStarted => Exit { reason: "StartError".into(), started_at: Some(Timestamp::UNIX_EPOCH), ..base(128) },
        Cause::Unseen => Exit::unseen(end.started_at, end.finished_at),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ended_unseen_keeps_the_instance_that_it_was() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let unseen = |started_at| {
            let end = End { cause: Cause::Unseen, started_at, finished_at: at(9), message: None, log_tail: None };
            let Exit { code, reason, started_at, has_instance, .. } = exit(&end);
            (code, reason.into_owned(), started_at, has_instance)
        };
        let reason = || "ContainerStatusUnknown".to_owned();
        assert_eq!(unseen(Some(at(5))), (137, reason(), Some(at(5)), true), "PL-124");
        assert_eq!(unseen(None), (137, reason(), None, false), "it never started (PL-16)");
    }
}
