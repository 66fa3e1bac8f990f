//! What the node and its nursery say to each other: length-prefixed JSON on a Unix socket.

use std::fmt;
use std::path::PathBuf;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::logs::Bounds;

/// No message is longer. An environment can be as large as the ConfigMaps it is made from, up to 1 MiB each.
pub(crate) const FRAME_MAX: usize = 16 << 20;

const PREFIX: usize = 4;

/// One run of one container of one pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct InstanceId {
    /// The pod's uid.
    pub(crate) pod: String,
    pub(crate) container: String,
    pub(crate) attempt: u32,
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.pod, self.container, self.attempt)
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Starts an instance. One that the nursery already knows is not started again.
    Start(Box<Launch>),
    /// SIGTERM to the process group.
    Terminate(InstanceId),
    /// SIGKILL to everything that belongs to the instance.
    Kill(InstanceId),
    /// Runs a command beside a running instance.
    Exec(Box<Exec>),
    /// The end of these instances is known elsewhere by now.
    Forget(Vec<InstanceId>),
}

/// Environment variables. Their values may be secret, so only their names are ever printed (INV-53).
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Variables(pub(crate) Vec<(String, String)>);

impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

/// Everything needed to start a process.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Launch {
    pub(crate) id: InstanceId,
    pub(crate) command: Vec<String>,
    /// The program as the pod names it, for messages: the real name may be made of secrets (INV-53).
    #[serde(default)]
    pub(crate) program_shown: String,
    pub(crate) environment: Variables,
    /// Where the process starts; without it in a new directory of its own.
    pub(crate) directory: Option<PathBuf>,
    pub(crate) log: Bounds,
    /// Report the last lines of the log with an exit that is not 0.
    pub(crate) wants_log_tail: bool,
    pub(crate) user: Option<u32>,
    pub(crate) group: Option<u32>,
    /// Supplementary ones.
    #[serde(default)]
    pub(crate) groups: Vec<u32>,
    pub(crate) hostname: String,
    /// Not empty: the process gets a mount namespace of its own.
    pub(crate) mounts: Vec<Mount>,
    /// A file whose content is reported with the exit.
    pub(crate) termination_message: Option<PathBuf>,
    pub(crate) limits: Limits,
    /// As many the container may have. Where there are control groups they have their own limit.
    #[serde(default)]
    pub(crate) processes_max: Option<usize>,
}

/// Arguments may be made of secrets as well.
impl fmt::Debug for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, program_shown, environment, .. } = self;
        f.debug_struct("Launch")
            .field("id", id)
            .field("program", program_shown)
            .field("environment", environment)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Mount {
    /// A directory or file that nobody but the node writes to the path of.
    pub(crate) source: PathBuf,
    /// Below `source`; no symlink in it is followed.
    pub(crate) sub_path: Option<PathBuf>,
    /// The absolute path at which the container sees it.
    pub(crate) target: PathBuf,
    pub(crate) read_only: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Limits {
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) cpu_millis: Option<u64>,
    pub(crate) pids: Option<u64>,
}

impl Limits {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Exec {
    /// Chosen by the asker; comes back with the answer.
    pub(crate) token: u64,
    pub(crate) id: InstanceId,
    pub(crate) command: Vec<String>,
    pub(crate) timeout_millis: u64,
}

/// What the nursery sends.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum News {
    Report(Report),
    Remark(Remark),
}

/// A line for the node's log. The nursery's own log may be on the disk that is full.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Remark {
    pub(crate) remark: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The first report on every connection: all instances that are known, and what this machine can do.
    Welcome(Welcome),
    Started {
        id: InstanceId,
        at: Timestamp,
    },
    NotStarted {
        id: InstanceId,
        message: String,
        at: Timestamp,
    },
    Exited {
        id: InstanceId,
        end: End,
    },
    ExecFinished {
        token: u64,
        outcome: ExecOutcome,
    },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Welcome {
    pub(crate) instances: Vec<Known>,
    pub(crate) abilities: Abilities,
    #[serde(default)]
    pub(crate) obstacles: Obstacles,
}

/// What the kernel lets the nursery do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Abilities {
    pub(crate) mounts: bool,
    pub(crate) limits: bool,
    pub(crate) users: bool,
}

/// Why it cannot do the rest, for people.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Obstacles {
    pub(crate) mounts: Option<String>,
    pub(crate) limits: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Known {
    pub(crate) id: InstanceId,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) end: Option<End>,
}

/// How an instance ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct End {
    pub(crate) cause: Cause,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) finished_at: Timestamp,
    /// What the container left in its termination message file.
    pub(crate) message: Option<String>,
    /// The last lines of its log, for containers that want them as their message.
    pub(crate) log_tail: Option<String>,
}

impl End {
    /// The end of a process that could not be started.
    pub(crate) fn not_started(message: String, at: Timestamp) -> Self {
        Self { cause: Cause::NotStarted, started_at: None, finished_at: at, message: Some(message), log_tail: None }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Cause {
    Code(i32),
    Signal(i32),
    OutOfMemory,
    /// The process could not be started.
    NotStarted,
    /// Nobody saw it end: the nursery or the machine went down.
    Unseen,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ExecOutcome {
    Exited {
        code: i32,
        output: String,
    },
    TimedOut {
        output: String,
    },
    /// The instance does not run, or the command cannot be started.
    Failed(String),
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("a message of {0} bytes is over the limit")]
    TooLong(usize),
    #[error("a message cannot be read")]
    Malformed(#[from] serde_json::Error),
}

/// Appends one message to a buffer of bytes to send.
pub(crate) fn encode<T: Serialize>(message: &T, buffer: &mut Vec<u8>) -> Result<(), FrameError> {
    let start = buffer.len();
    buffer.extend_from_slice(&[0; PREFIX]);
    let written = serde_json::to_writer(&mut *buffer, message);
    let length = buffer.len() - start - PREFIX;
    if written.is_err() || length > FRAME_MAX {
        buffer.truncate(start);
        return written.map_err(FrameError::from).and(Err(FrameError::TooLong(length)));
    }
    let prefix = u32::try_from(length).expect("FRAME_MAX fits in 32 bits").to_le_bytes();
    buffer[start..start + PREFIX].copy_from_slice(&prefix);
    Ok(())
}

/// Takes the first whole message from the front of received bytes; `used` grows by what it took.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8], used: &mut usize) -> Result<Option<T>, FrameError> {
    let rest = &bytes[*used..];
    let Some((prefix, rest)) = rest.split_first_chunk::<PREFIX>() else { return Ok(None) };
    let length = u32::from_le_bytes(*prefix) as usize;
    if length > FRAME_MAX {
        return Err(FrameError::TooLong(length));
    }
    let Some(body) = rest.get(..length) else { return Ok(None) };
    *used += PREFIX + length;
    Ok(Some(serde_json::from_slice(body)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_out_as_they_went_in_however_they_are_cut() {
        let id = InstanceId { pod: "u".to_owned(), container: "c".to_owned(), attempt: 3 };
        let mut bytes = Vec::new();
        encode(&Request::Terminate(id.clone()), &mut bytes).unwrap();
        encode(&Request::Forget(vec![id.clone()]), &mut bytes).unwrap();
        for cut in 0..bytes.len() {
            let mut used = 0;
            let mut count = 0;
            while let Some(request) = decode::<Request>(&bytes[..cut], &mut used).unwrap() {
                assert!(matches!(&request, Request::Terminate(it) if *it == id) == (count == 0));
                count += 1;
            }
            assert!(used <= cut && count < 2);
        }
    }

    #[test]
    fn remarks_are_told_from_reports() {
        let mut bytes = Vec::new();
        encode(&Report::ExecFinished { token: u64::MAX, outcome: ExecOutcome::Failed("x".to_owned()) }, &mut bytes)
            .unwrap();
        encode(&Remark { remark: "full".to_owned() }, &mut bytes).unwrap();
        let mut used = 0;
        let mut next = || decode::<News>(&bytes, &mut used).unwrap();
        assert!(matches!(next(), Some(News::Report(Report::ExecFinished { token: u64::MAX, .. }))));
        assert!(matches!(next(), Some(News::Remark(Remark { remark })) if remark == "full"));
        assert!(next().is_none());
    }

    #[test]
    fn a_message_over_the_limit_is_refused_before_it_is_read() {
        let bytes = u32::MAX.to_le_bytes();
        assert!(matches!(decode::<Request>(&bytes, &mut 0), Err(FrameError::TooLong(_))));
    }
}
