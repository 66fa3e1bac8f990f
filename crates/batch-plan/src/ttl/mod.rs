//! When a finished Job, or a finished pod that nobody controls, has been kept long enough (TTL-1…TTL-13).
//!
//! [`lifetime`] says until when an object is kept, from the object alone; [`verdict`] compares that with a clock.
//! Watching, waiting, asking the server once more and deleting are in `controllers`.
//!
//! `spec.ttlSecondsAfterFinished` is upstream's. Annotations under `tally.dev/` say it by outcome, or say it of a pod;
//! they count only where somebody has written them.

use std::fmt;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// Annotation of a Job: how long it is kept after it has completed, whatever its `spec` says.
pub const AFTER_SUCCESS: &str = "tally.dev/ttl-seconds-after-success";
/// Annotation of a Job: how long it is kept after it has failed, whatever its `spec` says.
pub const AFTER_FAILURE: &str = "tally.dev/ttl-seconds-after-failure";
/// Annotation of a pod that nobody controls: how long it is kept after it has ended.
pub const AFTER_FINISHED: &str = "tally.dev/ttl-seconds-after-finished";

/// What is looked at of a Job or a pod.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Subject {
    /// It has a deletionTimestamp.
    pub terminating: bool,
    /// `None` while it is not finished.
    pub finish: Option<Finish>,
    /// Seconds for either outcome: `spec.ttlSecondsAfterFinished`, or [`AFTER_FINISHED`] of a pod.
    pub after_finished: Option<Seconds>,
    pub after_success: Option<Seconds>,
    pub after_failure: Option<Seconds>,
}

/// How something ended, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finish {
    pub outcome: Outcome,
    /// `lastTransitionTime` of the finishing condition (TTL-3); `None` if nobody has written it down.
    pub at: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Succeeded,
    Failed,
}

/// A wish for a time to live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seconds {
    Number(i64),
    /// An annotation that is no number of seconds.
    Unreadable(Box<str>),
}

impl Seconds {
    /// The value of an annotation: a whole number that is not negative.
    pub fn parse(text: &str) -> Self {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse() {
            Ok(number) if digits => Self::Number(number),
            _ => Self::Unreadable(text.into()),
        }
    }
}

/// How long an object is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lifetime {
    /// It is not finished, is being deleted already, or nobody wants it gone.
    Unlimited,
    Until(Timestamp),
    /// It should go some time, but nobody can say when. It stays until somebody corrects it.
    Unknown(Problem),
}

/// Why nobody can say when an object should go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    NoFinishTime,
    /// Deleting cannot be undone, so a wish that is not understood keeps the object rather than falling back to a
    /// shorter time.
    Unreadable {
        value: Box<str>,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFinishTime => f.write_str("nothing says when it finished"),
            Self::Unreadable { value } => write!(f, "its time to live is no number of seconds: {value:?}"),
        }
    }
}

/// Until when an object is kept. `default_seconds` is for those that say nothing themselves.
pub fn lifetime(subject: &Subject, default_seconds: Option<i64>) -> Lifetime {
    let Some(finish) = subject.finish.filter(|_| !subject.terminating) else { return Lifetime::Unlimited };
    let by_outcome = match finish.outcome {
        Outcome::Succeeded => &subject.after_success,
        Outcome::Failed => &subject.after_failure,
    };
    let seconds = match by_outcome.as_ref().or(subject.after_finished.as_ref()) {
        Some(Seconds::Number(seconds)) => *seconds,
        Some(Seconds::Unreadable(value)) => return Lifetime::Unknown(Problem::Unreadable { value: value.clone() }),
        None => match default_seconds {
            Some(seconds) => seconds,
            None => return Lifetime::Unlimited,
        },
    };
    let Some(at) = finish.at else { return Lifetime::Unknown(Problem::NoFinishTime) };
    // A time that no calendar has never comes.
    at.checked_add(SignedDuration::from_secs(seconds)).map_or(Lifetime::Unlimited, Lifetime::Until)
}

/// What to do about an object now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Keep,
    /// Look again then.
    Wait(Timestamp),
    /// Its time was up this long ago.
    Expired(Duration),
}

/// Whether the time of an object is up: at its expiry, not only after it (TTL-3).
pub fn verdict(lifetime: &Lifetime, now: Timestamp) -> Verdict {
    match lifetime {
        Lifetime::Unlimited | Lifetime::Unknown(_) => Verdict::Keep,
        Lifetime::Until(expiry) => match Duration::try_from(now.duration_since(*expiry)) {
            Ok(late) => Verdict::Expired(late),
            Err(_) => Verdict::Wait(*expiry),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        format!("2016-05-19T{text}Z").parse().unwrap()
    }

    fn finished(outcome: Outcome, seconds: Option<i64>) -> Subject {
        Subject {
            finish: Some(Finish { outcome, at: Some(at("10:00:00")) }),
            after_finished: seconds.map(Seconds::Number),
            ..Subject::default()
        }
    }

    /// The rows of A.1, and their neighbours.
    #[test]
    fn time_counts_from_the_finish_whatever_the_outcome() {
        use Outcome::{Failed, Succeeded};
        let wait = |text| Verdict::Wait(at(text));
        let late = |seconds| Verdict::Expired(Duration::from_secs(seconds));
        for (name, outcome, seconds, now, expected) in [
            ("complete, no ttl", Succeeded, None, "23:00:00", Verdict::Keep),
            ("failed, no ttl", Failed, None, "23:00:00", Verdict::Keep),
            ("complete now, ttl 0", Succeeded, Some(0), "10:00:00", late(0)),
            ("failed now, ttl 0", Failed, Some(0), "10:00:00", late(0)),
            ("complete now, ttl 10", Succeeded, Some(10), "10:00:00", wait("10:00:10")),
            ("failed now, ttl 10", Failed, Some(10), "10:00:00", wait("10:00:10")),
            ("10 s ago, ttl 15", Succeeded, Some(15), "10:00:10", wait("10:00:15")),
            ("20 s ago, ttl 15", Succeeded, Some(15), "10:00:20", late(5)),
            ("a moment before", Succeeded, Some(15), "10:00:14.999", wait("10:00:15")),
            ("finished in the future (TTL-5)", Failed, Some(10), "09:00:00", wait("10:00:10")),
        ] {
            let lifetime = lifetime(&finished(outcome, seconds), None);
            assert_eq!(verdict(&lifetime, at(now)), expected, "{name}");
        }
    }

    #[test]
    fn unfinished_and_terminating_objects_have_no_time_to_live() {
        let unfinished = Subject { after_finished: Some(Seconds::Number(100)), ..Subject::default() };
        let terminating = Subject { terminating: true, ..finished(Outcome::Succeeded, Some(0)) };
        for subject in [unfinished, terminating, finished(Outcome::Failed, Some(i64::MAX))] {
            assert_eq!(lifetime(&subject, Some(0).filter(|_| subject.finish.is_none())), Lifetime::Unlimited);
        }
    }

    #[test]
    fn what_is_said_by_outcome_goes_before_the_field_and_that_before_the_default() {
        let until = |text| Lifetime::Until(at(text));
        let mut subject = finished(Outcome::Succeeded, None);
        assert_eq!(lifetime(&subject, Some(3)), until("10:00:03"));
        subject.after_finished = Some(Seconds::Number(2));
        assert_eq!(lifetime(&subject, Some(3)), until("10:00:02"));
        subject.after_failure = Some(Seconds::Number(7));
        assert_eq!(lifetime(&subject, Some(3)), until("10:00:02"));
        subject.after_success = Some(Seconds::Number(5));
        assert_eq!(lifetime(&subject, Some(3)), until("10:00:05"));
        subject.finish = Some(Finish { outcome: Outcome::Failed, at: Some(at("10:00:00")) });
        assert_eq!(lifetime(&subject, Some(3)), until("10:00:07"));
    }

    #[test]
    fn what_is_not_understood_is_kept() {
        for text in ["", "-1", "+1", "1h", "1.5", " 5", "99999999999999999999"] {
            let subject =
                Subject { after_success: Some(Seconds::parse(text)), ..finished(Outcome::Succeeded, Some(0)) };
            let problem = Problem::Unreadable { value: text.into() };
            assert_eq!(lifetime(&subject, Some(0)), Lifetime::Unknown(problem), "{text}");
        }
        assert_eq!(Seconds::parse("0"), Seconds::Number(0));
        assert_eq!(Seconds::parse("3600"), Seconds::Number(3600));
        let mut subject = finished(Outcome::Succeeded, Some(0));
        subject.finish = Some(Finish { outcome: Outcome::Succeeded, at: None });
        assert_eq!(lifetime(&subject, None), Lifetime::Unknown(Problem::NoFinishTime));
        assert_eq!(verdict(&lifetime(&subject, None), at("23:00:00")), Verdict::Keep);
    }
}
