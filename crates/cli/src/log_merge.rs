//! Many logs as one, ordered by the time that each line was written.
//!
//! A log is opened when the others have come to the time at which its container started, and closed at its end: only
//! logs of containers that ran at the same time are open together.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;

use futures_util::{AsyncBufRead, AsyncBufReadExt as _};
use jiff::Timestamp;
use kube::api::LogParams;
use kube::{Api, Client};

use crate::failure::plain;
use crate::log_lines::{LogOrigin, LogPiece, Splitter, timed};
use crate::logs::{breaks_off, complain};
use crate::pod_view::PodObject;

/// Logs open at the same time. Where more containers ran at once, the order of their lines is only roughly right.
const OPEN_MAX: usize = 256;

/// A log to read; its lines must begin with their times.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) origin: Arc<LogOrigin>,
    pub(crate) parameters: LogParams,
    pub(crate) started_at: Option<Timestamp>,
}

/// The lines of all logs, in order.
pub(crate) struct Merge {
    client: Client,
    /// Not opened yet, earliest first.
    closed: VecDeque<Source>,
    open: Vec<Option<OpenLog>>,
    /// The next line of each open log, by time; the log's position decides between equals.
    next: BinaryHeap<Reverse<(Timestamp, usize)>>,
    /// How many logs could not be read, or not to their end.
    incomplete: usize,
}

struct OpenLog {
    origin: Arc<LogOrigin>,
    stream: Pin<Box<dyn AsyncBufRead + Send>>,
    splitter: Option<Splitter>,
    lines: VecDeque<(Timestamp, Vec<u8>)>,
    last: Timestamp,
    /// It broke off before its end.
    is_broken: bool,
}

impl Merge {
    pub(crate) fn new(client: Client, mut sources: Vec<Source>) -> Self {
        sources.sort_by_key(|source| source.started_at);
        Self { client, closed: sources.into(), open: Vec::new(), next: BinaryHeap::new(), incomplete: 0 }
    }

    /// How many logs could not be read so far, or not to their end.
    pub(crate) fn incomplete(&self) -> usize {
        self.incomplete
    }

    /// The next line.
    pub(crate) async fn next(&mut self) -> Option<LogPiece> {
        self.open_due().await;
        let Reverse((_, position)) = self.next.pop()?;
        let log = self.open[position].as_mut()?;
        let (_, lines) = log.lines.pop_front()?;
        let piece = LogPiece { origin: log.origin.clone(), lines };
        self.queue(position).await;
        Some(piece)
    }

    /// Opens the logs that may hold the next line.
    async fn open_due(&mut self) {
        while let Some(source) = self.closed.front() {
            let is_due = match self.next.peek() {
                None => true,
                Some(Reverse((time, _))) => source.started_at.is_none_or(|started| started <= *time),
            };
            if !is_due || self.next.len() >= OPEN_MAX {
                return;
            }
            let Some(source) = self.closed.pop_front() else { return };
            let pods: Api<PodObject> = Api::namespaced(self.client.clone(), &source.origin.namespace);
            match pods.log_stream(&source.origin.pod, &source.parameters).await {
                Err(error) => {
                    complain(&source.origin, &plain(error));
                    self.incomplete += 1;
                }
                Ok(stream) => {
                    let log = OpenLog {
                        origin: source.origin,
                        stream: Box::pin(stream),
                        splitter: Some(Splitter::default()),
                        lines: VecDeque::new(),
                        last: source.started_at.unwrap_or(Timestamp::MIN),
                        is_broken: false,
                    };
                    let position = self.place(log);
                    self.queue(position).await;
                }
            }
        }
    }

    fn place(&mut self, log: OpenLog) -> usize {
        match self.open.iter().position(Option::is_none) {
            Some(free) => {
                self.open[free] = Some(log);
                free
            }
            None => {
                self.open.push(Some(log));
                self.open.len() - 1
            }
        }
    }

    /// Puts the log's next line in its place; closes the log if there is none.
    async fn queue(&mut self, position: usize) {
        let Some(log) = self.open[position].as_mut() else { return };
        match log.peek().await {
            Some(time) => self.next.push(Reverse((time, position))),
            None => {
                self.incomplete += usize::from(log.is_broken);
                self.open[position] = None;
            }
        }
    }
}

impl OpenLog {
    /// The time of the next line, which is read if need be.
    async fn peek(&mut self) -> Option<Timestamp> {
        while self.lines.is_empty() {
            let splitter = self.splitter.as_mut()?;
            let whole = match self.stream.fill_buf().await {
                Ok(bytes) if !bytes.is_empty() => {
                    let (whole, count) = (splitter.push(bytes), bytes.len());
                    self.stream.as_mut().consume_unpin(count);
                    whole
                }
                Err(error) => {
                    breaks_off(&self.origin, &error);
                    self.is_broken = true;
                    self.splitter.take().map(Splitter::finish).unwrap_or_default()
                }
                Ok(_) => self.splitter.take().map(Splitter::finish).unwrap_or_default(),
            };
            for line in whole.split_inclusive(|byte| *byte == b'\n') {
                let (time, text) = timed(line);
                // A line without a time, or from a clock that was set back, keeps its place after the one before.
                self.last = time.map_or(self.last, |time| time.max(self.last));
                self.lines.push_back((self.last, text.to_vec()));
            }
        }
        self.lines.front().map(|(time, _)| *time)
    }
}
