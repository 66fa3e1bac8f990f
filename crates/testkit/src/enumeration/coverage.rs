//! What was tried, counted: a run in which something of section 4 never happened proves nothing about it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::faults::Fault;

use super::run::{Baseline, Outcome};

/// Situations that must be met in every full run.
const REQUIRED: &[&str] = &[
    "crash before W1",
    "crash after W1, before R",
    "crash within R",
    "crash after R, before W2",
    "crash after W1 of an Indexed Job",
    "crash after W1 with interim condition",
    "crash after W2",
    "W2 lost",
    "cap reached",
    "stale cache refused",
    "conflict on W1",
    "conflict on W2",
    "verdict while pod events are unobserved",
    "orphan released: no owner",
    "orphan released: Job gone",
    "orphan released: Job being deleted",
    "orphan released: Job finished",
    "orphan released: namesake",
    "pod adopted",
    "adoption refused by the fresh read",
    "pod disowned",
    "surplus pod removed",
    "resized down past completed indexes",
    "resized up again",
    "suspended before the first pod",
    "suspended with pods pending",
    "suspended with pods running",
    "suspended with pods ended and uncounted",
    "suspended with pods terminating",
    "failure policy: Ignore",
    "failure policy: Count",
    "failure policy: FailIndex",
    "failure policy: FailJob",
    "success policy met with pods running",
    "TTL changed between check and delete",
    "CronJob's Job created without status",
    "relist after 410",
];

/// Counters of a whole enumeration.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Coverage {
    met: BTreeMap<String, u64>,
    /// Kind of call and class of fault.
    struck: BTreeMap<String, BTreeMap<String, u64>>,
    /// Kinds of calls that undisturbed runs make.
    kinds: BTreeSet<String>,
}

impl Coverage {
    pub fn add_baseline(&mut self, baseline: &Baseline) {
        self.kinds.extend(baseline.calls.iter().map(|call| call.kind.clone()));
    }

    pub fn add(&mut self, outcome: &Outcome) {
        for (situation, times) in &outcome.met {
            self.met(situation, *times);
        }
        for call in &outcome.calls {
            let Some(fault) = call.fault else { continue };
            // Of those, nothing may have come: no namesake was made, or what was on its way was refused.
            let may_miss = matches!(fault.class(), "P-3 reply lost" | "P-4 late" | "P-13 namesake");
            if !may_miss || call.took_effect {
                let classes = self.struck.entry(call.kind.clone()).or_default();
                *classes.entry(fault.class().to_owned()).or_default() += 1;
            }
            if call.controller == "ttl" && fault == Fault::Touched && call.code == 409 {
                self.met("TTL changed between check and delete", 1);
            }
            let unheard =
                matches!(fault, Fault::CrashAfter | Fault::ReplyLost | Fault::SilenceAfter | Fault::GatewayTimeout);
            if call.controller == "cronjob" && call.kind == "POST jobs" && unheard && call.code == 201 {
                self.met("CronJob's Job created without status", 1);
            }
        }
    }

    fn met(&mut self, situation: &str, times: u64) {
        *self.met.entry(situation.to_owned()).or_default() += times;
    }

    pub fn merge(&mut self, other: Self) {
        for (situation, times) in other.met {
            *self.met.entry(situation).or_default() += times;
        }
        for (kind, classes) in other.struck {
            let own = self.struck.entry(kind).or_default();
            classes.into_iter().for_each(|(class, times)| *own.entry(class).or_default() += times);
        }
        self.kinds.extend(other.kinds);
    }

    /// What should have happened and did not.
    pub fn missing(&self) -> Vec<String> {
        let mut missing: Vec<String> =
            REQUIRED.iter().filter(|one| !self.met.contains_key(**one)).map(|one| (*one).to_owned()).collect();
        for kind in &self.kinds {
            let writes = !kind.starts_with("GET");
            for class in ["P-1 crash", "P-2 refused", "P-3 reply lost", "P-4 late", "P-13 namesake"] {
                let applies = writes || !matches!(class, "P-3 reply lost" | "P-4 late");
                let struck = self.struck.get(kind).is_some_and(|classes| classes.contains_key(class));
                if applies && !struck {
                    missing.push(format!("{class} at {kind}"));
                }
            }
        }
        missing
    }

    /// A table of all counters.
    pub fn table(&self) -> String {
        let mut text = String::new();
        for situation in REQUIRED {
            text.push_str(&format!("situation: {} {situation}\n", self.met.get(*situation).copied().unwrap_or(0)));
        }
        let mut classes: BTreeMap<&str, (u64, usize)> = BTreeMap::new();
        for (class, times) in self.struck.values().flatten() {
            let entry = classes.entry(class).or_default();
            *entry = (entry.0 + times, entry.1 + 1);
        }
        for (class, (times, kinds)) in classes {
            text.push_str(&format!("situation: {times} {class}, at {kinds} kinds of calls\n"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::Call;

    #[test]
    fn what_came_to_nothing_was_not_tried() {
        let call = |fault, took_effect| Call {
            life: 0,
            controller: "cronjob",
            kind: "POST jobs".to_owned(),
            path: String::new(),
            fault: Some(fault),
            code: 0,
            seen: 0,
            revision: 0,
            at: jiff::Timestamp::UNIX_EPOCH,
            unseen_pods: 0,
            uncounted: None,
            took_effect,
        };
        let is_tried = |fault, took_effect| {
            let mut outcome = Outcome::default();
            outcome.calls.push(call(fault, took_effect));
            let mut coverage = Coverage::default();
            coverage.kinds.insert("POST jobs".to_owned());
            coverage.add(&outcome);
            !coverage.missing().contains(&format!("{} at POST jobs", fault.class()))
        };
        for fault in [Fault::Namesake, Fault::Late(2), Fault::LateAfterRestart, Fault::ReplyLost, Fault::GatewayTimeout]
        {
            assert!(is_tried(fault, true) && !is_tried(fault, false), "{fault}");
        }
        assert!(is_tried(Fault::CrashBefore, false) && is_tried(Fault::Refused(409), false));
    }
}
