//! `tally logs --from-history`: what containers printed last, also when their pods are gone.

use std::io;
use std::path::Path;

use ::history::{Found, Query, Reader, Record};
use anyhow::anyhow;
use batch_types::index_ranges::IndexSet;

use super::{UNREADABLE, directory, find};
use crate::failure::Failure;
use crate::log_lines::{LogOrigin, LogPiece};
use crate::output;

/// Which logs, and how to show them.
#[derive(Debug)]
pub(crate) struct FromHistory<'a> {
    pub(crate) data: &'a Path,
    pub(crate) job: &'a str,
    pub(crate) namespace: Option<&'a str>,
    pub(crate) indexes: Option<&'a IndexSet>,
    pub(crate) failed: bool,
    pub(crate) tail: Option<u32>,
    pub(crate) no_prefix: bool,
}

/// Prints the kept logs in index order, then in the order in which runs ended.
pub(crate) fn show_logs(options: &FromHistory<'_>) -> Result<(), Failure> {
    let directory = directory(options.data);
    let query = Query {
        job: Some(options.job.to_owned()),
        namespace: options.namespace.map(str::to_owned),
        failed: options.failed,
        ..Query::default()
    };
    let mut found = find(&directory, &query)?;
    found.retain(|found| options.indexes.is_none_or(|wanted| found.record.index.is_some_and(|it| wanted.contains(it))));
    if found.is_empty() {
        let error = anyhow!("no such runs of job/{} are on record in `{}`", options.job, directory.display());
        return Err(Failure::usage(error).hint("`tally history` lists what there is"));
    }
    found.sort_by_key(|found| found.record.index);
    let several = found.windows(2).any(|pair| pair[0].record.container != pair[1].record.container);
    let reader = Reader::new(&directory);
    for found in &found {
        let log = reader.log(found).map_err(|error| Failure::new(error).hint(UNREADABLE))?.unwrap_or_default();
        print(found, log, several, options).map_err(output::failure)?;
    }
    Ok(())
}

fn print(found: &Found, mut log: Vec<u8>, several: bool, options: &FromHistory<'_>) -> io::Result<()> {
    let record = &found.record;
    if !log.is_empty() && !log.ends_with(b"\n") {
        log.push(b'\n');
    }
    let start = options.tail.map_or(0, |count| last_lines(&log, count));
    LogPiece { origin: origin(record, several).into(), lines: log.split_off(start) }.print(options.no_prefix)
}

fn origin(record: &Record, several: bool) -> LogOrigin {
    // The part of a pod's name that is its own, as long as it has the usual form.
    let suffix = record.pod_name.rsplit('-').next().unwrap_or(&record.pod_name);
    LogOrigin {
        namespace: record.namespace.clone(),
        job: record.job_name.clone().unwrap_or_default(),
        pod: record.pod_name.clone(),
        index: record.index,
        label: record.index.map_or_else(|| suffix.to_owned(), |index| index.to_string()),
        container: record.container.clone().unwrap_or_default(),
        names_container: several,
    }
}

/// Where the last lines begin.
fn last_lines(log: &[u8], count: u32) -> usize {
    let body = log.strip_suffix(b"\n").unwrap_or(log);
    let ends = body.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n').map(|(position, _)| position + 1);
    match usize::try_from(count).unwrap_or(usize::MAX) {
        0 => log.len(),
        count => ends.take(count).nth(count - 1).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_found() {
        for (count, expected) in [(0, ""), (1, "c\n"), (2, "bb\nc\n"), (3, "a\nbb\nc\n"), (9, "a\nbb\nc\n")] {
            let log = b"a\nbb\nc\n";
            assert_eq!(&log[last_lines(log, count)..], expected.as_bytes(), "{count}");
        }
        assert_eq!(last_lines(b"", 3), 0);
    }
}
