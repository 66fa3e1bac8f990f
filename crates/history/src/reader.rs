//! Finds records. Files only grow at their end and vanish as a whole, so reading needs no lock.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use crate::record::{Record, decode};
use crate::segment;

/// Which records are wanted.
#[derive(Debug, Clone, Default)]
pub struct Query {
    pub namespace: Option<String>,
    /// A Job's name or uid.
    pub job: Option<String>,
    /// A pod's name or uid.
    pub pod: Option<String>,
    pub container: Option<String>,
    pub index: Option<u32>,
    /// Only runs that did not succeed.
    pub failed: bool,
    /// Only runs that ended at this time or later.
    pub since: Option<Timestamp>,
}

impl Query {
    pub fn matches(&self, record: &Record) -> bool {
        let either = |wanted: &Option<String>, name: Option<&String>, uid: Option<&String>| {
            wanted.is_none() || name == wanted.as_ref() || uid == wanted.as_ref()
        };
        self.namespace.as_ref().is_none_or(|namespace| *namespace == record.namespace)
            && either(&self.job, record.job_name.as_ref(), record.job_uid.as_ref())
            && either(&self.pod, Some(&record.pod_name), Some(&record.pod_uid))
            && (self.container.is_none() || self.container == record.container)
            && (self.index.is_none() || self.index == record.index)
            && !(self.failed && record.succeeded())
            && self.since.is_none_or(|since| record.ended_at() >= since)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("read the history in `{directory}`")]
pub struct ReadError {
    directory: String,
    #[source]
    pub source: io::Error,
}

/// A record and where it is.
#[derive(Debug, Clone)]
pub struct Found {
    pub record: Record,
    segment: u64,
    offset: usize,
}

/// The history, open for reading.
#[derive(Debug, Clone)]
pub struct Reader {
    directory: PathBuf,
}

impl Reader {
    pub fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned() }
    }

    /// The wanted records, by the time at which their runs ended. A run that was recorded twice, because a crash came
    /// between writing and saying so, is found once.
    pub fn find(&self, query: &Query) -> Result<Vec<Found>, ReadError> {
        let mut found: HashMap<(String, Option<String>, u32), Found> = HashMap::new();
        for number in segment::list(&self.directory).map_err(|error| self.failed(error))? {
            let bytes = segment::read(&self.directory, number).map_err(|error| self.failed(error))?;
            for (offset, frame) in segment::frames(bytes.as_deref().unwrap_or_default()) {
                // A record of a later version that this one cannot read.
                let Ok(record) = serde_json::from_slice::<Record>(frame.json) else { continue };
                if query.matches(&record) {
                    let key = (record.pod_uid.clone(), record.container.clone(), record.restart_count);
                    // Recorded twice: the one with more of the log, which may have been removed by the second time.
                    let has_more = |known: &Found| known.record.log_bytes > record.log_bytes;
                    if !found.get(&key).is_some_and(has_more) {
                        found.insert(key, Found { record, segment: number, offset });
                    }
                }
            }
        }
        let mut found: Vec<Found> = found.into_values().collect();
        let key = |found: &Found| (found.record.ended_at(), found.segment, found.offset);
        found.sort_unstable_by_key(key);
        Ok(found)
    }

    /// What is kept of the log; `None` if the record has been removed meanwhile.
    pub fn log(&self, found: &Found) -> Result<Option<Vec<u8>>, ReadError> {
        let bytes = segment::read(&self.directory, found.segment).map_err(|error| self.failed(error))?;
        let frame = bytes.as_deref().and_then(|bytes| decode(bytes.get(found.offset..)?));
        Ok(frame.map(|frame| frame.log.to_owned()))
    }

    fn failed(&self, source: io::Error) -> ReadError {
        ReadError { directory: self.directory.display().to_string(), source }
    }
}
