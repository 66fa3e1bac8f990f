//! What can go wrong, by name, so that a failing run can be repeated from one line.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Something that goes wrong at one call of a controller (invariants, section 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// P-1: the process ends before the call is sent.
    CrashBefore,
    /// P-1: the process ends when the call has been carried out, before anybody hears of it.
    CrashAfter,
    /// P-2: the server says no, with this code.
    Refused(u16),
    /// P-2: the call never arrives.
    Unsent,
    /// P-2: the call never arrives, and nobody ever says so.
    Silence,
    /// P-2: lists and watches are not served for a while.
    Outage(Outage),
    /// P-3: the call is carried out, and the connection breaks before the answer.
    ReplyLost,
    /// P-3: the call is carried out, and no answer ever comes.
    SilenceAfter,
    /// P-3: the call is carried out, and something on the way answers 504.
    GatewayTimeout,
    /// P-4: the caller gets no answer; the call arrives after so many further ones.
    Late(u8),
    /// P-4: the process ends; the call arrives after the first one of its successor.
    LateAfterRestart,
    /// P-5: somebody else writes to the object just before.
    Touched,
    /// P-13: the object is deleted and another one made under its name, just before.
    Namesake,
    /// P-6…P-8: from here on watches show less than there is.
    Lag(Lag),
    /// P-9: the process ends, and what its successor lists first is older than what was acted on.
    Past(Past),
}

/// How lists and watches are not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Outage {
    pub what: Watched,
    pub how: OutageKind,
    pub lasts_ms: u32,
}

/// What an outage does to watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OutageKind {
    /// They break off, and whoever asks is answered 500.
    Refused,
    /// They break off, and whoever asks is never answered.
    Mute,
    /// They stay open and show nothing any more. New ones do.
    Deaf,
}

impl Outage {
    /// How long a controller may see nothing because of it. It waits longer after each attempt that failed, for 65 seconds
    /// for an answer, and for 150 seconds for a watch to say something.
    pub fn blinds_for_ms(self) -> u32 {
        let patience_ms = match self.how {
            OutageKind::Refused => 10_000,
            OutageKind::Mute => 70_000,
            OutageKind::Deaf => 160_000,
        };
        self.lasts_ms + patience_ms
    }
}

/// How watches fall behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lag {
    pub what: Watched,
    pub how: How,
    /// No event is held for longer.
    pub patience_ms: u32,
}

/// What becomes of events that are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum How {
    /// P-6: the newest so many events are not shown yet.
    Held(u8),
    /// P-7: all that were held come at once, several about one object as one.
    Merged,
    /// P-7: they are lost; the watch ends with 410 and the client lists again.
    Expired,
    /// P-8: every event comes twice, those that were held too.
    Twice,
}

/// How old the first list after a restart is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Past {
    pub what: Watched,
    /// Revisions before the newest.
    pub back: u8,
    /// How long it takes until the watch shows what happened since.
    pub patience_ms: u32,
}

/// Which resources' watches are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Watched {
    Pods,
    Jobs,
    CronJobs,
    Nodes,
    All,
}

impl Watched {
    pub(super) const EACH: [Self; 5] = [Self::Pods, Self::Jobs, Self::CronJobs, Self::Nodes, Self::All];

    pub(super) fn includes(self, plural: &str) -> bool {
        match self {
            Self::Pods => plural == "pods",
            Self::Jobs => plural == "jobs",
            Self::CronJobs => plural == "cronjobs",
            Self::Nodes => plural == "nodes",
            Self::All => true,
        }
    }

    /// What a controller watches that can fall behind by itself, and everything at once.
    pub fn of(controller: &str) -> &'static [Self] {
        match controller {
            "job" => &[Self::Pods, Self::Jobs, Self::All],
            "gc" => &[Self::Pods, Self::Jobs, Self::CronJobs, Self::All],
            "cronjob" => &[Self::Jobs, Self::CronJobs, Self::All],
            "podgc" => &[Self::Pods, Self::Nodes, Self::All],
            "node" => &[Self::Pods],
            _ => &[Self::Jobs, Self::All],
        }
    }
}

impl Fault {
    /// Whether the process ends of it.
    pub fn is_crash(self) -> bool {
        matches!(self, Self::CrashBefore | Self::CrashAfter | Self::LateAfterRestart | Self::Past(_))
    }

    /// Whether it is about what watches and lists show, and not about the call at which it begins.
    pub fn is_of_watches(self) -> bool {
        matches!(self, Self::Lag(_) | Self::Past(_) | Self::Outage(_))
    }

    /// Whether a controller waits for a minute or more before it knows that something is wrong.
    pub fn stalls(self) -> bool {
        match self {
            Self::Silence | Self::SilenceAfter => true,
            Self::Outage(Outage { how, .. }) => matches!(how, OutageKind::Mute | OutageKind::Deaf),
            _ => false,
        }
    }

    /// The perturbation class, for reports.
    pub fn class(self) -> &'static str {
        match self {
            Self::CrashBefore | Self::CrashAfter => "P-1 crash",
            Self::Refused(_) | Self::Unsent | Self::Silence => "P-2 refused",
            Self::Outage(_) => "P-2 lists and watches refused",
            Self::ReplyLost | Self::SilenceAfter | Self::GatewayTimeout => "P-3 reply lost",
            Self::Late(_) | Self::LateAfterRestart => "P-4 late",
            Self::Touched => "P-5 conflict",
            Self::Lag(Lag { how: How::Held(_), .. }) => "P-6 stale cache",
            Self::Lag(Lag { how: How::Merged | How::Expired, .. }) => "P-7 missed events",
            Self::Lag(Lag { how: How::Twice, .. }) => "P-8 duplicates",
            Self::Past(_) => "P-9 time travel",
            Self::Namesake => "P-13 namesake",
        }
    }
}

impl fmt::Display for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pods => "pods",
            Self::Jobs => "jobs",
            Self::CronJobs => "cronjobs",
            Self::Nodes => "nodes",
            Self::All => "all",
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CrashBefore => f.write_str("crash-before"),
            Self::CrashAfter => f.write_str("crash-after"),
            Self::Refused(code) => write!(f, "refused-{code}"),
            Self::Unsent => f.write_str("unsent"),
            Self::Silence => f.write_str("silence"),
            Self::Outage(Outage { what, how, lasts_ms }) => match how {
                OutageKind::Refused => write!(f, "outage-{what}-{lasts_ms}"),
                OutageKind::Mute => write!(f, "mute-{what}-{lasts_ms}"),
                OutageKind::Deaf => write!(f, "deaf-{what}-{lasts_ms}"),
            },
            Self::ReplyLost => f.write_str("reply-lost"),
            Self::SilenceAfter => f.write_str("silence-after"),
            Self::GatewayTimeout => f.write_str("gateway-timeout"),
            Self::Late(calls) => write!(f, "late-{calls}"),
            Self::LateAfterRestart => f.write_str("late-after-restart"),
            Self::Touched => f.write_str("touched"),
            Self::Namesake => f.write_str("namesake"),
            Self::Lag(Lag { what, how, patience_ms }) => match how {
                How::Held(events) => write!(f, "held-{what}-{patience_ms}-{events}"),
                How::Merged => write!(f, "merged-{what}-{patience_ms}"),
                How::Expired => write!(f, "expired-{what}-{patience_ms}"),
                How::Twice => write!(f, "twice-{what}-{patience_ms}"),
            },
            Self::Past(Past { what, back, patience_ms }) => write!(f, "past-{what}-{patience_ms}-{back}"),
        }
    }
}

impl Serialize for Fault {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Fault {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl FromStr for Watched {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = Self::EACH.into_iter().find(|what| what.to_string() == text);
        named.ok_or_else(|| format!("`{text}` is not watched"))
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown = || format!("`{text}` is no fault");
        match text {
            "crash-before" => return Ok(Self::CrashBefore),
            "crash-after" => return Ok(Self::CrashAfter),
            "unsent" => return Ok(Self::Unsent),
            "silence" => return Ok(Self::Silence),
            "reply-lost" => return Ok(Self::ReplyLost),
            "silence-after" => return Ok(Self::SilenceAfter),
            "gateway-timeout" => return Ok(Self::GatewayTimeout),
            "late-after-restart" => return Ok(Self::LateAfterRestart),
            "touched" => return Ok(Self::Touched),
            "namesake" => return Ok(Self::Namesake),
            _ => {}
        }
        let parts: Vec<&str> = text.split('-').collect();
        let number = |text: &str| text.parse::<u32>().map_err(|_| unknown());
        let small = |text: &str| text.parse::<u8>().map_err(|_| unknown());
        let lag = |what: &str, patience: &str, how| {
            Ok(Self::Lag(Lag { what: what.parse()?, how, patience_ms: number(patience)? }))
        };
        let outage = |what: &str, lasts: &str, how| {
            Ok(Self::Outage(Outage { what: what.parse()?, how, lasts_ms: number(lasts)? }))
        };
        match parts.as_slice() {
            ["outage", what, lasts] => outage(what, lasts, OutageKind::Refused),
            ["mute", what, lasts] => outage(what, lasts, OutageKind::Mute),
            ["deaf", what, lasts] => outage(what, lasts, OutageKind::Deaf),
            ["refused", code] => Ok(Self::Refused(code.parse().map_err(|_| unknown())?)),
            ["late", calls] => Ok(Self::Late(small(calls)?)),
            ["held", what, patience, events] => lag(what, patience, How::Held(small(events)?)),
            ["merged", what, patience] => lag(what, patience, How::Merged),
            ["expired", what, patience] => lag(what, patience, How::Expired),
            ["twice", what, patience] => lag(what, patience, How::Twice),
            ["past", what, patience, back] => {
                Ok(Self::Past(Past { what: what.parse()?, back: small(back)?, patience_ms: number(patience)? }))
            }
            _ => Err(unknown()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_can_be_written_down_and_read_back() {
        let lag = |how| Fault::Lag(Lag { what: Watched::Pods, how, patience_ms: 2000 });
        let outage = |how| Fault::Outage(Outage { what: Watched::All, how, lasts_ms: 3000 });
        let faults = [
            Fault::CrashBefore,
            Fault::CrashAfter,
            Fault::Refused(409),
            Fault::Unsent,
            Fault::Silence,
            outage(OutageKind::Refused),
            outage(OutageKind::Mute),
            outage(OutageKind::Deaf),
            Fault::ReplyLost,
            Fault::SilenceAfter,
            Fault::GatewayTimeout,
            Fault::Late(3),
            Fault::LateAfterRestart,
            Fault::Touched,
            Fault::Namesake,
            lag(How::Held(3)),
            lag(How::Merged),
            lag(How::Expired),
            lag(How::Twice),
            Fault::Past(Past { what: Watched::All, back: 7, patience_ms: 0 }),
            Fault::Past(Past { what: Watched::CronJobs, back: 1, patience_ms: 0 }),
            Fault::Past(Past { what: Watched::Nodes, back: 1, patience_ms: 0 }),
        ];
        for fault in faults {
            assert_eq!(fault.to_string().parse(), Ok(fault));
        }
        for wrong in ["", "crash", "refused-", "refused-x", "held-trees-1-1", "late-900"] {
            assert!(wrong.parse::<Fault>().is_err(), "{wrong}");
        }
    }
}
