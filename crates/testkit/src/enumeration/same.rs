//! Runs that cannot differ from others that have been run.
//!
//! Of some faults it can be told before they strike that nothing comes of it which has not come of another one: nobody
//! looked between the two, or nobody could tell how much they hide. This is not the likeness of [`super::juncture`]; such
//! runs are the same ones, call by call and byte by byte.

use std::collections::HashMap;

use crate::faults::{Approach, Fault, How, Lag, Point, Standing, Watched};

/// The runs that have parted from a common beginning so far.
#[derive(Debug, Default)]
pub(super) struct Parted {
    /// Where watches began to lag, and how often they had been consulted then.
    lags: HashMap<Lag, (usize, u64)>,
    /// Where the newest of several events began to be held, how many at most, and how many there were in fact.
    held: HashMap<(Watched, u32), (usize, u8, usize)>,
    /// The last call after which the process ended.
    crashed_after: Option<usize>,
}

impl Parted {
    /// The fault that makes the same run as this one would, if there is one.
    pub(super) fn same(&self, approach: &Approach, fault: Fault) -> Option<Point> {
        match fault {
            Fault::Lag(lag) => self.same_lag(approach, lag),
            // Between the two nothing happened but in the memory of the process.
            Fault::CrashBefore => {
                let unchanged = |(_, standing): &(usize, Standing)| approach.standing.leaves_the_same_as(standing);
                let (call, _) = approach.answered.filter(unchanged)?;
                (self.crashed_after == Some(call)).then_some((call, Fault::CrashAfter))
            }
            _ => None,
        }
    }

    fn same_lag(&self, approach: &Approach, lag: Lag) -> Option<Point> {
        if let Some((call, consulted)) = self.lags.get(&lag)
            && *consulted == approach.consulted.about(lag.what)
        {
            return Some((*call, Fault::Lag(lag)));
        }
        // A watch that may hold more and never had to is one that may hold as many as that had to.
        let How::Held(events) = lag.how else { return None };
        let (call, more, most) = *self.held.get(&(lag.what, lag.patience_ms))?;
        let same = call == approach.call && more >= events && usize::from(events) >= most;
        same.then_some((call, Fault::Lag(Lag { how: How::Held(more), ..lag })))
    }

    /// Notes a run, and how many events its watches held at most without giving any away.
    pub(super) fn note(&mut self, approach: &Approach, fault: Fault, held_most: usize) {
        match fault {
            Fault::Lag(lag) => {
                self.lags.insert(lag, (approach.call, approach.consulted.about(lag.what)));
                if let How::Held(events) = lag.how {
                    self.held.insert((lag.what, lag.patience_ms), (approach.call, events, held_most));
                }
            }
            Fault::CrashAfter => self.crashed_after = Some(approach.call),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::faults::Consulted;

    const STANDING: Standing = Standing { life: 0, at: Timestamp::UNIX_EPOCH, revision: 7, chance: 1, late: 0 };

    fn approach(call: usize, pods: u64, jobs: u64) -> Approach {
        let mut consulted = Consulted::default();
        (0..pods).for_each(|_| consulted.count("pods"));
        (0..jobs).for_each(|_| consulted.count("jobs"));
        Approach { call, standing: STANDING, answered: None, consulted }
    }

    fn held(what: Watched, events: u8) -> Fault {
        Fault::Lag(Lag { what, how: How::Held(events), patience_ms: 300 })
    }

    #[test]
    fn watches_that_nobody_consulted_may_as_well_lag_later() {
        let mut parted = Parted::default();
        let each = [Watched::Pods, Watched::Jobs, Watched::All];
        for what in each {
            parted.note(&approach(3, 5, 8), held(what, 2), 0);
        }
        let same = |now: &Approach| each.map(|what| parted.same(now, held(what, 2)).is_some());
        assert_eq!(same(&approach(4, 5, 8)), [true; 3]);
        assert_eq!(same(&approach(4, 5, 9)), [true, false, false]);
        assert_eq!(same(&approach(4, 6, 8)), [false, true, false]);
        assert_eq!(parted.same(&approach(4, 5, 8), held(Watched::Pods, 2)), Some((3, held(Watched::Pods, 2))));
    }

    #[test]
    fn a_watch_that_held_few_may_as_well_hold_no_more() {
        let mut parted = Parted::default();
        parted.note(&approach(3, 5, 8), held(Watched::Pods, 5), 2);
        let same = |call, what, events| parted.same(&approach(call, 6, 8), held(what, events));
        let as_many = Some((3, held(Watched::Pods, 5)));
        assert_eq!([3, 2, 1].map(|events| same(3, Watched::Pods, events)), [as_many, as_many, None]);
        assert_eq!((same(4, Watched::Pods, 3), same(3, Watched::Jobs, 3)), (None, None));
        assert_eq!(same(3, Watched::Pods, 6), None, "that many may come");
    }

    #[test]
    fn a_process_that_did_nothing_more_may_as_well_have_ended_before() {
        let now = |standing, answered| Approach { standing, answered: Some(answered), ..approach(4, 5, 8) };
        let mut parted = Parted::default();
        let same = |parted: &Parted, now: &Approach| parted.same(now, Fault::CrashBefore);
        assert_eq!(same(&parted, &now(STANDING, (3, STANDING))), None, "it was not tried");
        parted.note(&approach(3, 5, 8), Fault::CrashAfter, 0);
        assert_eq!(same(&parted, &now(STANDING, (3, STANDING))), Some((3, Fault::CrashAfter)));
        assert_eq!(same(&parted, &now(STANDING, (2, STANDING))), None, "another one was answered last");
        let late = Standing { late: 1, ..STANDING };
        assert_eq!(same(&parted, &now(late, (3, late))), None, "what is on its way counts calls");
        let at = Timestamp::from_millisecond(1).unwrap();
        for changed in [
            Standing { life: 1, ..STANDING },
            Standing { at, ..STANDING },
            Standing { revision: 8, ..STANDING },
            Standing { chance: 2, ..STANDING },
        ] {
            assert_eq!(same(&parted, &now(changed, (3, STANDING))), None, "{changed:?}");
        }
    }
}
