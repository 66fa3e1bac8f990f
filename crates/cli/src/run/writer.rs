//! Output behind a thread of its own: whoever reads it may stall, and neither signals nor progress shall wait for that.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::{io, thread};

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

/// Texts that wait for the thread. What comes after waits in [`Writer::unsent`], and whoever has more is told.
const QUEUE_MAX: usize = 16;

/// Where text goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    Stdout,
    Stderr,
}

enum Item {
    Text(Stream, Vec<u8>),
    /// Told when everything before it has been written.
    Mark(oneshot::Sender<()>),
}

/// Writes in the order in which it is given text.
pub(super) struct Writer {
    queue: mpsc::Sender<Item>,
    unsent: VecDeque<(Stream, Vec<u8>)>,
    failure: Arc<Mutex<Option<io::Error>>>,
}

impl Writer {
    /// The first error of `write` ends it.
    pub(super) fn new(mut write: impl FnMut(Stream, &[u8]) -> io::Result<()> + Send + 'static) -> Self {
        let (queue, mut items) = mpsc::channel(QUEUE_MAX);
        let failure = Arc::new(Mutex::new(None));
        let failed = Arc::clone(&failure);
        // Nobody waits for it: the process may end while it is stuck.
        thread::spawn(move || {
            while let Some(item) = items.blocking_recv() {
                match item {
                    Item::Text(stream, text) => {
                        if let Err(error) = write(stream, &text) {
                            *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                            return;
                        }
                    }
                    Item::Mark(reached) => drop(reached.send(())),
                }
            }
        });
        Self { queue, unsent: VecDeque::new(), failure }
    }

    /// Takes text to be written soon. The error is that of something earlier.
    pub(super) fn push(&mut self, stream: Stream, text: &[u8]) -> io::Result<()> {
        match self.unsent.back_mut() {
            Some((last, waiting)) if *last == stream => waiting.extend_from_slice(text),
            _ => self.unsent.push_back((stream, text.to_vec())),
        }
        self.send_some()
    }

    fn send_some(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match self.queue.try_reserve() {
                Ok(permit) => {
                    send_first(permit, &mut self.unsent);
                    continue;
                }
                Err(TrySendError::Full(())) => return Ok(()),
                Err(TrySendError::Closed(())) => {}
            }
            return Err(self.failure());
        }
        Ok(())
    }

    /// More than the queue holds has not been taken; whoever can should wait with more.
    pub(super) fn is_behind(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Whether writing still works.
    pub(super) fn check(&mut self) -> io::Result<()> {
        if self.queue.is_closed() { Err(self.failure()) } else { Ok(()) }
    }

    /// Ready when a part of what waits has been handed over. Loses nothing if it is dropped.
    pub(super) async fn advance(&mut self) -> io::Result<()> {
        if let Ok(permit) = self.queue.reserve().await {
            send_first(permit, &mut self.unsent);
            return Ok(());
        }
        Err(self.failure())
    }

    /// Ready when everything has been written.
    pub(super) async fn drain(&mut self) -> io::Result<()> {
        while self.is_behind() {
            self.advance().await?;
        }
        let (mark, reached) = oneshot::channel();
        let sent = self.queue.send(Item::Mark(mark)).await;
        if sent.is_err() || reached.await.is_err() { Err(self.failure()) } else { Ok(()) }
    }

    fn failure(&mut self) -> io::Error {
        self.unsent.clear();
        match &*self.failure.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => same(error),
            // The thread is gone without a word.
            None => io::ErrorKind::BrokenPipe.into(),
        }
    }
}

/// The error once more: whoever asks again gets the same answer.
fn same(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(number) => io::Error::from_raw_os_error(number),
        None => error.kind().into(),
    }
}

fn send_first(permit: mpsc::Permit<'_, Item>, unsent: &mut VecDeque<(Stream, Vec<u8>)>) {
    if let Some((stream, text)) = unsent.pop_front() {
        permit.send(Item::Text(stream, text));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc as blocking;

    use super::*;

    /// A reader that takes nothing before it is told to, and what it has taken.
    fn stalled() -> (Writer, blocking::Sender<()>, Arc<Mutex<Vec<u8>>>) {
        let (go, gate) = blocking::channel();
        let taken = Arc::new(Mutex::new(Vec::new()));
        let text_taken = Arc::clone(&taken);
        let writer = Writer::new(move |_, text| {
            // Once the other end is gone, everything is taken.
            let _ = gate.recv();
            text_taken.lock().unwrap().extend_from_slice(text);
            Ok(())
        });
        (writer, go, taken)
    }

    #[tokio::test]
    async fn a_stalled_reader_holds_nobody_up_and_loses_nothing() {
        let (mut writer, go, taken) = stalled();
        let mut all = Vec::new();
        while !writer.is_behind() {
            let text = format!("{}\n", all.len());
            writer.push(Stream::Stdout, text.as_bytes()).unwrap();
            all.extend_from_slice(text.as_bytes());
        }
        writer.push(Stream::Stdout, b"last\n").unwrap();
        all.extend_from_slice(b"last\n");
        {
            // Dropped half-way, as a signal would drop it.
            let drain = writer.drain();
            tokio::pin!(drain);
            tokio::select! {
                biased;
                _ = &mut drain => panic!("nothing has been read"),
                () = std::future::ready(()) => {}
            }
        }
        drop(go);
        writer.drain().await.unwrap();
        assert_eq!(String::from_utf8_lossy(&taken.lock().unwrap()), String::from_utf8_lossy(&all));
    }

    #[tokio::test]
    async fn what_cannot_be_written_is_told() {
        let mut writer = Writer::new(|_, _| Err(io::ErrorKind::StorageFull.into()));
        writer.push(Stream::Stdout, b"x").unwrap();
        assert_eq!(writer.drain().await.unwrap_err().kind(), io::ErrorKind::StorageFull);
        // However often it is asked.
        assert_eq!(writer.check().unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(writer.push(Stream::Stdout, b"y").unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(writer.drain().await.unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
