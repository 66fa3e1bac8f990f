//! What is run, and which of it together.

use testkit::{
    enumeration::{Asked, Forms, Unit},
    faults::Point,
};

/// So many runs at most are one unit: few enough that nobody waits long for the last one.
const UNIT_MAX: usize = 1_000;

/// A scenario with some faults.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    /// The number of the scenario.
    pub(crate) scenario: usize,
    pub(crate) points: Vec<Point>,
    pub(crate) kind: Kind,
}

/// Why a case is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    Single,
    Pair,
    /// A pair that strikes where the world was before, and is expected to go on as this one does.
    Known(Vec<Point>),
    /// What a known one is compared with.
    Model,
}

/// Cases that begin alike, in the order in which they part.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) scenario: usize,
    pub(crate) cases: Vec<Case>,
}

impl Batch {
    pub(crate) fn unit(&self, scenario: &str, moments: Option<Forms>) -> Unit {
        let first = self.cases.first().map(|case| case.first().to_vec()).unwrap_or_default();
        let branches = self.cases.iter().filter_map(|case| case.points.last().copied()).collect();
        let asked = Asked { moments, juncture: self.cases.iter().any(Case::is_compared) };
        Unit { scenario: scenario.to_owned(), first, branches, asked }
    }
}

impl Case {
    /// All faults but the last.
    fn first(&self) -> &[Point] {
        self.points.split_last().map(|(_, first)| first).unwrap_or_default()
    }

    fn is_compared(&self) -> bool {
        matches!(self.kind, Kind::Known(_) | Kind::Model)
    }

    /// Where it begins, and with which call it parts from others that begin there.
    fn place(&self) -> ((usize, &[Point], bool), Option<usize>) {
        ((self.scenario, self.first(), self.is_compared()), self.points.last().map(|(call, _)| *call))
    }
}

/// Puts together what begins alike.
pub(crate) fn batches(mut cases: Vec<Case>) -> Vec<Batch> {
    // What meets the same call stays in the order in which it came.
    cases.sort_by(|one, other| one.place().cmp(&other.place()));
    let mut batches: Vec<Batch> = Vec::new();
    for case in cases {
        match batches.last_mut() {
            Some(batch) if batch.cases.len() < UNIT_MAX && batch.cases[0].place().0 == case.place().0 => {
                batch.cases.push(case)
            }
            _ => batches.push(Batch { scenario: case.scenario, cases: vec![case] }),
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use testkit::faults::Fault;

    use super::*;

    #[test]
    fn what_begins_alike_is_run_together_in_the_order_of_calls() {
        let case = |scenario, points: &[Point], kind| Case { scenario, points: points.to_vec(), kind };
        let (crash, lost) = (Fault::CrashAfter, Fault::ReplyLost);
        let mut cases = vec![
            case(0, &[(3, crash), (9, lost)], Kind::Pair),
            case(1, &[(3, crash), (4, lost)], Kind::Pair),
            case(0, &[(2, crash), (3, lost)], Kind::Pair),
            case(0, &[(3, crash), (5, crash)], Kind::Pair),
            case(0, &[(3, crash), (4, crash)], Kind::Known(vec![(5, crash)])),
            case(0, &[(5, crash)], Kind::Model),
        ];
        let units = |cases: &[Case]| -> Vec<(usize, usize, Vec<usize>)> {
            let calls = |batch: &Batch| batch.unit("a", None).branches.iter().map(|(call, _)| *call).collect();
            let unit = |batch: Batch| (batch.scenario, batch.unit("a", None).first.len(), calls(&batch));
            batches(cases.to_vec()).into_iter().map(unit).collect()
        };
        let expected = [(0, 0, vec![5]), (0, 1, vec![3]), (0, 1, vec![5, 9]), (0, 1, vec![4]), (1, 1, vec![4])];
        assert_eq!(units(&cases), expected);
        cases.reverse();
        assert_eq!(units(&cases), expected);
        let many: Vec<Case> = (0..UNIT_MAX + 1).map(|call| case(0, &[(call, crash)], Kind::Single)).collect();
        assert_eq!(batches(many).iter().map(|batch| batch.cases.len()).collect::<Vec<_>>(), [UNIT_MAX, 1]);
    }
}
