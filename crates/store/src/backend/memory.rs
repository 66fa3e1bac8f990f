//! Records in memory: for tests and for stores that need not outlive the process.

use super::{Backend, BackendError, Batch};
use crate::Revision;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Clones share their records, so a test can open the same "disk" again.
#[derive(Clone, Debug, Default)]
pub struct MemoryBackend {
    stored: Arc<Mutex<Stored>>,
}

#[derive(Debug, Default)]
struct Stored {
    records: BTreeMap<Revision, Bytes>,
    checkpoint: Option<Bytes>,
}

impl Backend for MemoryBackend {
    fn place(&self) -> String {
        "memory".into()
    }

    fn checkpoint(&self) -> Result<Option<Bytes>, BackendError> {
        Ok(self.stored.lock().checkpoint.clone())
    }

    fn scan(&self, visit: &mut dyn FnMut(Revision, &[u8]) -> bool) -> Result<(), BackendError> {
        for (revision, bytes) in &self.stored.lock().records {
            if !visit(*revision, bytes) {
                break;
            }
        }
        Ok(())
    }

    fn apply(&self, batch: Batch) -> Result<(), BackendError> {
        let mut stored = self.stored.lock();
        stored.records.extend(batch.puts);
        for revision in &batch.removes {
            stored.records.remove(revision);
        }
        if batch.checkpoint.is_some() {
            stored.checkpoint = batch.checkpoint;
        }
        Ok(())
    }

    fn read(&self, revision: Revision) -> Result<Option<Bytes>, BackendError> {
        Ok(self.stored.lock().records.get(&revision).cloned())
    }
}
