//! Notices which bytes of the engine's journals are synced, and takes away the others as a power loss would.
//!
//! Takes the place of the C library's `fdatasync` and `fsync` in the whole test program: only there can be seen what the
//! engine really asks of the kernel. Nothing is synced for real, which no test outlives.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// More than a test writes to a journal, which itself is 64 MB of zeros.
const JOURNAL_BYTES_MAX: u64 = 1 << 20;

/// The journals as they were when last synced.
static SYNCED: Mutex<BTreeMap<PathBuf, Vec<u8>>> = Mutex::new(BTreeMap::new());

#[expect(unsafe_code, reason = "a symbol of this name is the only way between the engine and the kernel")]
#[unsafe(no_mangle)]
extern "C" fn fdatasync(descriptor: c_int) -> c_int {
    note(descriptor);
    0
}

#[expect(unsafe_code, reason = "as above")]
#[unsafe(no_mangle)]
extern "C" fn fsync(descriptor: c_int) -> c_int {
    note(descriptor);
    0
}

fn note(descriptor: c_int) {
    let link = format!("/proc/self/fd/{descriptor}");
    let Ok(path) = fs::read_link(&link) else { return };
    if path.extension().is_none_or(|extension| extension != "jnl") {
        return;
    }
    let mut bytes = Vec::new();
    let read = File::open(link).and_then(|file| file.take(JOURNAL_BYTES_MAX).read_to_end(&mut bytes));
    read.expect("a file that is being synced can be read");
    SYNCED.lock().unwrap_or_else(PoisonError::into_inner).insert(path, bytes);
}

/// What a power loss leaves of the journals under a directory.
pub struct Synced {
    directory: PathBuf,
    journals: BTreeMap<PathBuf, Vec<u8>>,
}

pub fn synced_journals(directory: &Path) -> Synced {
    let synced = SYNCED.lock().unwrap_or_else(PoisonError::into_inner);
    let here = synced.iter().filter(|(path, _)| path.starts_with(directory));
    let journals = here.map(|(path, bytes)| (path.clone(), bytes.clone())).collect::<BTreeMap<_, _>>();
    assert!(!journals.is_empty(), "the engine has a journal and syncs it when it is made");
    Synced { directory: directory.to_owned(), journals }
}

impl Synced {
    pub fn lose_power(self) {
        for (path, bytes) in self.journals {
            fs::write(path, bytes).expect("the journal is a file of this test");
        }
        // Written after every sync and never synced itself.
        fs::remove_file(self.directory.join("ACKNOWLEDGED")).expect("every write notes its revision");
    }
}
