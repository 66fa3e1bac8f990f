//! The output of containers: files with rotation, and reading them for `GET …/log`.
//!
//! The nursery writes, the node reads. Which instance of a container a request means follows from the pod's status; see
//! [`choose_instance`].

mod choice;
mod files;
mod line;
mod reader;
mod tail;
mod writer;

pub use choice::{InstanceChoice, choose_instance};
pub(crate) use files::ContainerLogs;
pub use reader::{LogError, LogQuery, LogReader, lost_bytes};
pub(crate) use reader::{Running, tail_text};
pub use tail::{LogTail, Tail};
pub use writer::Bounds;
pub(crate) use writer::LogWriter;
