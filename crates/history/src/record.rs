//! What is kept of a run, and how it looks in a file.
//!
//! ```text
//! length: u32 | crc32 of the body: u32 | body: length of the JSON: u32 | JSON | log
//! ```
//!
//! Numbers are little-endian. The JSON is the stable `-o json` form of a record; fields may be added, and readers skip
//! those that they do not know.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Of a log at most its last this many bytes are kept.
pub const LOG_MAX: usize = 64 << 10;

/// No body is longer; a length above this is damage. The JSON's parts are bounded by the API (names) and by the node
/// (messages, 12 KiB); escaping can make a text six times as long.
pub(crate) const BODY_MAX: usize = LOG_MAX + (256 << 10);

pub(crate) const PREFIX: usize = 8;
const JSON_LENGTH: usize = 4;

/// An ended run of a container; or the end of a pod none of whose containers ran.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    pub namespace: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_uid: Option<String>,
    /// The completion index of an Indexed Job's pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    pub pod_name: String,
    pub pod_uid: String,
    pub node: String,
    /// `None`: the pod ended without any container having run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// How often the container had been restarted before this run.
    #[serde(default)]
    pub restart_count: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Of the container: `Completed`, `Error`, `OOMKilled`, `StartError` and so on.
    #[serde(default)]
    pub reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Why the pod as a whole was stopped, if it was: `DeadlineExceeded`, `Deleted` and so on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_reason: Option<String>,
    /// When the record was written.
    #[serde(default)]
    pub recorded_at: Timestamp,
    /// The log had more than what is kept of it.
    #[serde(default)]
    pub log_truncated: bool,
    /// Bytes of the log that are kept.
    #[serde(default)]
    pub log_bytes: u64,
}

impl Record {
    pub fn succeeded(&self) -> bool {
        self.exit_code == Some(0)
    }

    /// When the run ended, as far as anybody knows.
    pub fn ended_at(&self) -> Timestamp {
        self.finished_at.unwrap_or(self.recorded_at)
    }
}

/// Appends a record as it stands in a file. False: it is too long and nothing was appended.
pub(crate) fn encode(record: &Record, log: &[u8], buffer: &mut Vec<u8>) -> bool {
    let start = buffer.len();
    buffer.extend_from_slice(&[0; PREFIX + JSON_LENGTH]);
    let json_start = buffer.len();
    // A record is made of texts and numbers; it cannot fail to be written to memory.
    let written = serde_json::to_writer(&mut *buffer, record);
    let json_length = buffer.len() - json_start;
    buffer.extend_from_slice(log);
    let body = start + PREFIX;
    let length = buffer.len() - body;
    if written.is_err() || length > BODY_MAX {
        buffer.truncate(start);
        return false;
    }
    buffer[body..json_start].copy_from_slice(&bytes(json_length));
    let crc = crc32fast::hash(&buffer[body..]);
    buffer[start..start + 4].copy_from_slice(&bytes(length));
    buffer[start + 4..body].copy_from_slice(&crc.to_le_bytes());
    true
}

fn bytes(length: usize) -> [u8; 4] {
    u32::try_from(length).expect("BODY_MAX fits in 32 bits").to_le_bytes()
}

/// A sound record at the beginning of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    pub(crate) json: &'a [u8],
    pub(crate) log: &'a [u8],
    /// Bytes that it takes in the file.
    pub(crate) size: usize,
}

/// `None`: there is no whole and undamaged record here.
pub(crate) fn decode(bytes: &[u8]) -> Option<Frame<'_>> {
    let (length, rest) = number(bytes)?;
    let (crc, rest) = number(rest)?;
    let length = usize::try_from(length).ok().filter(|length| *length <= BODY_MAX)?;
    let body = rest.get(..length)?;
    if crc32fast::hash(body) != crc {
        return None;
    }
    let (json_length, rest) = number(body)?;
    let json_length = usize::try_from(json_length).ok()?;
    let (json, log) = rest.split_at_checked(json_length)?;
    Some(Frame { json, log, size: PREFIX + length })
}

fn number(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*number), rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(name: &str) -> Record {
        Record { pod_name: name.to_owned(), exit_code: Some(1), ..Record::default() }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again_and_damage_is_seen(
            name in "\\PC{0,40}", log in prop::collection::vec(any::<u8>(), 0..200), at in any::<prop::sample::Index>(),
            bit in 0..8u8,
        ) {
            let mut bytes = Vec::new();
            prop_assert!(encode(&record(&name), &log, &mut bytes));
            let frame = decode(&bytes).unwrap();
            prop_assert_eq!((frame.log, frame.size), (log.as_slice(), bytes.len()));
            prop_assert_eq!(serde_json::from_slice::<Record>(frame.json).unwrap(), record(&name));
            prop_assert_eq!(decode(&bytes[..bytes.len() - 1]), None);
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert_eq!(decode(&bytes), None);
        }

        #[test]
        fn any_bytes_can_be_looked_at(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = decode(&bytes);
        }
    }

    #[test]
    fn what_is_too_long_is_not_written() {
        let mut bytes = vec![1];
        assert!(!encode(&record(&"x".repeat(BODY_MAX)), b"", &mut bytes));
        assert_eq!(bytes, [1]);
        assert!(encode(&record("x"), &vec![0; LOG_MAX], &mut bytes));
    }
}
