//! Counts tests in the closing lines of the runners we use.

use std::ops::AddAssign;

/// How many tests passed and failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

impl Counts {
    /// The counts of a closing line of cargo test, cargo-nextest or the plain `N passed, M failed`.
    pub(crate) fn of_line(line: &str) -> Option<Self> {
        let line = line.trim();
        let plain = || line.split_once(" passed, ").is_some_and(|(count, _)| count.parse::<u64>().is_ok());
        if !(line.starts_with("test result: ") || line.starts_with("Summary [") || plain()) {
            return None;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let before = |noun: &str| {
            let at = words.iter().position(|word| word.trim_end_matches([',', ';', '.']) == noun)?;
            words.get(at.checked_sub(1)?)?.parse().ok()
        };
        Some(Self { passed: before("passed").unwrap_or(0), failed: before("failed").unwrap_or(0) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_of_every_runner_are_counted() {
        for (line, counts) in [
            ("test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out", Some((12, 0))),
            ("test result: FAILED. 12 passed; 3 failed; 0 ignored", Some((12, 3))),
            ("     Summary [   2.104s] 104 tests run: 104 passed (2 slow), 0 skipped", Some((104, 0))),
            ("     Summary [   2.104s] 104 tests run: 101 passed, 3 failed, 1 skipped", Some((101, 3))),
            ("31 passed, 2 failed", Some((31, 2))),
            ("31 passed, 0 failed, 4 skipped", Some((31, 0))),
            ("job-create                 12 passed    0 failed", None),
            ("12 tests passed", None),
        ] {
            let expected = counts.map(|(passed, failed)| Counts { passed, failed });
            assert_eq!(Counts::of_line(line), expected, "{line}");
        }
    }
}
