//! What the processes of a Job wrote about themselves: `begin UID INDEX -` and `end UID INDEX CODE`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

/// The process of one pod.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) index: u32,
    pub(crate) begins: usize,
    pub(crate) end: Option<i32>,
}

/// All runs, by the pod's uid.
#[derive(Debug, Default)]
pub(crate) struct Ledger(BTreeMap<String, Run>);

impl Ledger {
    pub(crate) fn read(path: &Path) -> Result<Self> {
        Self::parse(&fs::read_to_string(path).with_context(|| format!("read `{}`", path.display()))?)
    }

    fn parse(text: &str) -> Result<Self> {
        let mut runs = BTreeMap::<String, Run>::new();
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [what, uid, index, code] = words[..] else { anyhow::bail!("`{line}` is no entry") };
            let run = runs.entry(uid.to_owned()).or_default();
            run.index = index.parse().with_context(|| format!("the index of `{line}`"))?;
            match what {
                "begin" => run.begins += 1,
                _ => {
                    ensure!(run.end.is_none(), "`{uid}` ended twice");
                    run.end = Some(code.parse().with_context(|| format!("the code of `{line}`"))?);
                }
            }
        }
        Ok(Self(runs))
    }

    pub(crate) fn run(&self, uid: &str) -> Option<&Run> {
        self.0.get(uid)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Every index ran to success once. A process that was killed after its last entry may have to run again.
    pub(crate) fn check_completed_once(&self, completions: u32, may_lose: bool) -> Result<()> {
        let mut completed = BTreeMap::<u32, usize>::new();
        for run in self.0.values().filter(|run| run.end == Some(0)) {
            *completed.entry(run.index).or_default() += 1;
        }
        for index in 0..completions {
            let count = completed.get(&index).copied().unwrap_or(0);
            ensure!(count == 1 || (may_lose && count > 1), "index {index} completed {count} times");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_told_apart() {
        let ledger = Ledger::parse("begin a 0 -\nbegin b 1 -\nend b 1 3\nend a 0 0\nbegin c 1 -\nend c 1 0\n").unwrap();
        assert_eq!(ledger.run("b"), Some(&Run { index: 1, begins: 1, end: Some(3) }));
        ledger.check_completed_once(2, false).unwrap();
        ledger.check_completed_once(3, false).unwrap_err();
    }

    #[test]
    fn doubles_are_noticed() {
        let ledger = Ledger::parse("begin a 0 -\nend a 0 0\nbegin b 0 -\nend b 0 0\n").unwrap();
        ledger.check_completed_once(1, false).unwrap_err();
        ledger.check_completed_once(1, true).unwrap();
        Ledger::parse("end a 0 0\nend a 0 0\n").unwrap_err();
        Ledger::parse("nonsense").unwrap_err();
    }
}
