//! What the recorded answers must come out as, area by area. Pure.
//!
//! `docs/compatibility.md` is the one list of differences: a case that fails and is not listed there is a failure of the
//! run, and so is one that is listed and passes, because the document would be wrong.

use std::collections::{BTreeMap, BTreeSet};

/// Areas that are done. Others are run and counted, and may fail.
const DONE: [&str; 15] = [
    "apply",
    "cronjob",
    "discovery",
    "job-create",
    "job-status",
    "job-update",
    "kinds",
    "lists",
    "metadata",
    "patch",
    "pod",
    "protobuf",
    "tables",
    "verbs",
    "watch",
];
/// Of all cases in these areas, the share that must pass whatever the document lists.
const SHARE_MIN: f64 = 0.98;

/// What a run of the kit found.
#[derive(Debug, Default)]
pub(crate) struct Results {
    /// Passed and failed cases by area.
    pub(crate) areas: BTreeMap<String, (u64, u64)>,
    /// `AREA/NAME` of failing cases.
    pub(crate) failures: BTreeSet<String>,
}

/// The cases that `docs/compatibility.md` lists: first cells of table rows that read `` `AREA/NAME` ``.
pub(crate) fn listed(document: &str) -> BTreeSet<String> {
    let first_cell = |line: &str| -> Option<String> {
        let cell = line.trim().strip_prefix('|')?.split('|').next()?.trim();
        let name = cell.strip_prefix('`')?.strip_suffix('`')?;
        let (area, case) = name.split_once('/')?;
        let plain = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        (plain(area) && plain(case)).then(|| name.to_owned())
    };
    document.lines().filter_map(first_cell).collect()
}

/// Everything that is not as it should be, a line each.
pub(crate) fn complaints(results: &Results, listed: &BTreeSet<String>) -> Vec<String> {
    let mut complaints = Vec::new();
    let (mut passed, mut all) = (0, 0);
    for area in DONE {
        match results.areas.get(area) {
            Some(counts) => (passed, all) = (passed + counts.0, all + counts.0 + counts.1),
            None => complaints.push(format!("area `{area}` was not run")),
        }
    }
    let share = passed as f64 / all.max(1) as f64;
    if share < SHARE_MIN {
        complaints.push(format!("{:.1} % of the cases pass, below {:.0} %", 100.0 * share, 100.0 * SHARE_MIN));
    }
    let is_done = |case: &&String| DONE.iter().any(|area| case.split('/').next() == Some(area));
    for case in results.failures.iter().filter(is_done).filter(|case| !listed.contains(*case)) {
        complaints.push(format!("`{case}` fails and is not listed in docs/compatibility.md"));
    }
    for case in listed.iter().filter(is_done).filter(|case| !results.failures.contains(*case)) {
        complaints.push(format!("`{case}` passes or is gone, and docs/compatibility.md still lists it"));
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(failures: &[&str]) -> Results {
        let mut areas: BTreeMap<String, (u64, u64)> = DONE.iter().map(|area| ((*area).to_owned(), (10, 0))).collect();
        areas.insert("unfinished".to_owned(), (0, 100));
        for failure in failures {
            let counts = areas.get_mut(failure.split('/').next().unwrap()).unwrap();
            *counts = (counts.0 - 1, counts.1 + 1);
        }
        Results { areas, failures: failures.iter().map(|name| (*name).to_owned()).collect() }
    }

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn failures_and_the_list_must_agree_in_areas_that_are_done() {
        assert_eq!(complaints(&results(&[]), &set(&[])), Vec::<String>::new());
        assert_eq!(complaints(&results(&["verbs/a"]), &set(&["verbs/a"])), Vec::<String>::new());
        let complaint = "`verbs/a` fails and is not listed in docs/compatibility.md";
        assert_eq!(complaints(&results(&["verbs/a"]), &set(&[])), [complaint]);
        let complaint = "`verbs/a` passes or is gone, and docs/compatibility.md still lists it";
        assert_eq!(complaints(&results(&[]), &set(&["verbs/a", "unfinished/b"])), [complaint]);
    }

    #[test]
    fn a_list_does_not_excuse_too_many_failures() {
        let names = ["watch/a", "watch/b", "watch/c", "watch/d"];
        assert_eq!(complaints(&results(&names), &set(&names)), ["97.3 % of the cases pass, below 98 %"]);
        let mut incomplete = results(&[]);
        incomplete.areas.remove("watch");
        assert_eq!(complaints(&incomplete, &set(&[])), ["area `watch` was not run"]);
    }

    #[test]
    fn the_document_lists_cases_in_first_cells() {
        let document =
            "text `verbs/no`\n| case | why |\n|---|---|\n| `verbs/put-x` | because `verbs/y` |\n| `a b/c` | |";
        assert_eq!(listed(document), set(&["verbs/put-x"]));
    }
}
