//! A process of the nursery: what it is for, and what it writes.

use std::path::Path;
use std::time::Instant;

use jiff::Timestamp;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::Pid;

use super::control_group::ControlGroup;
use super::layout::Layout;
use super::protocol::{InstanceId, Launch};
use super::work::WorkDirectory;
use crate::logs::LogWriter;

/// Output is read in pieces of this size, one a turn, so that a loud container does not keep others waiting.
pub(super) const OUTPUT_CHUNK: usize = 64 << 10;
/// Probes and hooks may say this much.
const EXEC_OUTPUT_MAX: usize = 10 << 10;

/// A process and what it is for.
pub(super) struct Task {
    pub(super) purpose: Purpose,
    pub(super) pid: Pid,
    pub(super) handle: OwnedFd,
    pub(super) output: Option<OwnedFd>,
    pub(super) started_at: Timestamp,
}

pub(super) enum Purpose {
    Container(Box<Container>),
    /// A command beside the instance `id`.
    Exec {
        id: InstanceId,
        token: u64,
        deadline: Instant,
        timed_out: bool,
        output: Vec<u8>,
    },
}

/// What belongs to a running container and must be put away when it has ended.
pub(super) struct Container {
    pub(super) launch: Launch,
    pub(super) log: LogWriter,
    pub(super) control_group: Option<ControlGroup>,
    pub(super) work: Option<WorkDirectory>,
}

impl Container {
    /// Where its processes start.
    pub(super) fn directory(&self) -> &Path {
        match (&self.launch.directory, &self.work) {
            (Some(directory), _) => directory,
            (None, Some(work)) => work.path(),
            (None, None) => Path::new("/"),
        }
    }
}

impl Task {
    /// Takes what the process has written. False: it will not write any more.
    pub(super) fn read_output(&mut self, layout: &Layout, bytes_max: usize) -> bool {
        let Some(output) = &self.output else { return true };
        let mut chunk = [0; OUTPUT_CHUNK];
        let mut taken = 0;
        while taken < bytes_max {
            match rustix::io::read(output, &mut chunk[..]) {
                Ok(0) => return false,
                Ok(count) => {
                    taken += count;
                    match &mut self.purpose {
                        Purpose::Container(container) => {
                            // A full disk costs the output, not the container.
                            let _ = container.log.write(&layout.logs(), &chunk[..count], Timestamp::now());
                        }
                        Purpose::Exec { output, .. } => {
                            let room = EXEC_OUTPUT_MAX.saturating_sub(output.len());
                            output.extend_from_slice(&chunk[..count.min(room)]);
                        }
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                Err(_) => return false,
            }
        }
        true
    }
}
