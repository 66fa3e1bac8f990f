//! The node's ends of containers as records of the history.

use std::path::Path;
use std::sync::Arc;

use ::history::{Bounds, Record, Run, Writer};
use node::history::{EndedRun, HistorySink, Kept};
use node::logs::LogTail;

use super::directory;
use crate::failure::Failure;

/// Opens the history of a data directory for whoever runs pods there.
pub(crate) fn open_sink(data: &Path, bounds: Bounds) -> Result<Arc<dyn HistorySink>, Failure> {
    let writer = Writer::open(&directory(data), bounds).map_err(|error| {
        Failure::new(error).hint("remove the directory to begin a new history, or go without: `--history-max-bytes 0`")
    })?;
    Ok(Arc::new(Sink { writer }))
}

#[derive(Debug)]
struct Sink {
    writer: Writer,
}

impl HistorySink for Sink {
    fn ended(&self, run: EndedRun, kept: Kept) {
        let (record, log) = record(run);
        let log = log.map(|log| -> Box<dyn FnOnce(usize) -> (Vec<u8>, bool) + Send> {
            Box::new(move |bytes_max| {
                let tail = log.read(bytes_max).unwrap_or_else(|error| {
                    tracing::debug!(%error, "the end of a log cannot be read for the history");
                    node::logs::Tail::default()
                });
                (tail.bytes, tail.is_cut)
            })
        });
        self.writer.append(Run { record, log, written: Box::new(kept) });
    }
}

fn record(run: EndedRun) -> (Record, Option<LogTail>) {
    let (job_name, job_uid) = run.job.map(|job| (job.name, job.uid)).unzip();
    let record = Record {
        namespace: run.namespace,
        job_name,
        job_uid,
        index: run.index,
        pod_name: run.pod_name,
        pod_uid: run.pod_uid,
        node: run.node_name,
        container: run.container,
        restart_count: run.attempt,
        started_at: run.started_at,
        finished_at: run.finished_at,
        exit_code: run.exit_code,
        signal: run.signal,
        reason: run.reason,
        message: run.message,
        pod_reason: run.pod_reason,
        ..Record::default()
    };
    (record, run.log)
}
