//! A watch that shows less than there is (P-6…P-8).
//!
//! Sits between the server's watch and its reader, line by line. Bookmarks are held like events: one that came through
//! before the events it stands for would be a lie that no server tells.

use std::{collections::VecDeque, io::BufRead, time::Duration};

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, stream};
use http_body_util::BodyExt;
use kube::client::Body;
use serde::Deserialize;
use tokio::time::Instant;

use super::{
    fault::{How, Lag, OutageKind},
    wire::Wire,
};

/// One watch on its way to a controller.
pub(super) struct LaggingWatch {
    body: Body,
    wire: Wire,
    plural: String,
    /// The beginning of a line whose end has not come yet.
    partial: BytesMut,
    held: VecDeque<(Instant, Bytes)>,
    /// How many outages there had been when it was opened.
    outages: usize,
    ended: bool,
}

impl LaggingWatch {
    pub(super) fn new(body: Body, wire: Wire, plural: String) -> Self {
        let outages = wire.outages_so_far();
        Self { body, wire, plural, partial: BytesMut::new(), held: VecDeque::new(), outages, ended: false }
    }

    pub(super) fn into_stream(self) -> impl Stream<Item = Bytes> {
        stream::unfold(self, |mut watch| async move { watch.next().await.map(|chunk| (chunk, watch)) })
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            let lag = self.wire.lag_of(&self.plural);
            if let Some(chunk) = self.due(lag) {
                self.wire.note_held(&self.plural, self.held.len());
                return Some(chunk);
            }
            match self.wire.outage_of(&self.plural, self.outages) {
                None if self.ended => return None,
                None => {}
                Some(OutageKind::Refused | OutageKind::Mute) => return None,
                Some(OutageKind::Deaf) => std::future::pending().await,
            }
            self.wire.note_held(&self.plural, self.held.len());
            let patience = Duration::from_millis(lag.map_or(0, |lag| u64::from(lag.patience_ms)));
            let deadline = self.held.front().map(|(arrived, _)| *arrived + patience);
            tokio::select! {
                biased;
                frame = self.body.frame() => match frame {
                    Some(Ok(frame)) => self.take(frame.into_data().unwrap_or_default()),
                    // What was held is lost with the connection; the reader resumes from what it has seen.
                    _ => { self.held.clear(); self.ended = true; }
                },
                () = self.wire.outage() => {}
                () = sleep_until(deadline) => {}
            }
        }
    }

    fn take(&mut self, mut data: Bytes) {
        let now = Instant::now();
        while let Some(end) = line_end(&data) {
            let mut line = data.split_to(end);
            if !self.partial.is_empty() {
                self.partial.extend_from_slice(&line);
                line = self.partial.split().freeze();
            }
            self.held.push_back((now, line));
        }
        self.partial.extend_from_slice(&data);
    }

    /// What the reader gets to see now, if anything.
    fn due(&mut self, lag: Option<Lag>) -> Option<Bytes> {
        let front = self.held.front()?.0;
        let Some(Lag { how, patience_ms, .. }) = lag else { return Some(self.all()) };
        let patience = Duration::from_millis(u64::from(patience_ms));
        let expired = front + patience <= Instant::now();
        match how {
            How::Twice if expired => Some(twice(self.held.drain(..).map(|(_, line)| line))),
            How::Held(events) if self.held.len() > usize::from(events) || expired => {
                self.held.pop_front().map(|(_, line)| line)
            }
            How::Held(_) => {
                self.wire.note_not_too_many(self.held.len());
                None
            }
            How::Merged if expired => Some(merge(&self.all())),
            How::Expired if expired => {
                self.held.clear();
                self.ended = true;
                self.wire.relisted(&self.plural);
                let status = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}"#;
                Some(format!("{{\"type\":\"ERROR\",\"object\":{status}}}\n").into())
            }
            How::Merged | How::Expired | How::Twice => None,
        }
    }

    fn all(&mut self) -> Bytes {
        match self.held.len() {
            1 => self.held.pop_front().map(|(_, line)| line).unwrap_or_default(),
            _ => self.held.drain(..).map(|(_, line)| line).collect::<Vec<Bytes>>().concat().into(),
        }
    }
}

/// Where the first line ends, with its last character.
fn line_end(mut data: &[u8]) -> Option<usize> {
    let before = data;
    let end = data.skip_until(b'\n').ok()?;
    before[..end].ends_with(b"\n").then_some(end)
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Every line comes twice, each by itself: no server goes back in time.
fn twice(lines: impl Iterator<Item = Bytes>) -> Bytes {
    lines.flat_map(|line| [line.clone(), line]).collect::<Vec<Bytes>>().concat().into()
}

/// Several events about one object become the last of them. An object that came and went was never there.
fn merge(lines: &[u8]) -> Bytes {
    #[derive(Deserialize)]
    struct Event<'a> {
        #[serde(rename = "type")]
        kind: &'a str,
        object: Object,
    }
    #[derive(Deserialize)]
    struct Object {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        #[serde(default)]
        uid: String,
    }
    /// An object's first and last event.
    struct Merged<'a> {
        uid: String,
        first: &'a str,
        last: &'a str,
        line: &'a str,
    }
    let text = std::str::from_utf8(lines).unwrap_or_default();
    let mut merged: Vec<Merged<'_>> = Vec::new();
    for line in text.lines() {
        let Ok(event) = serde_json::from_str::<Event<'_>>(line) else { continue };
        let uid = event.object.metadata.uid;
        let first = match merged.iter().position(|known| known.uid == uid) {
            Some(position) => merged.remove(position).first,
            None => event.kind,
        };
        merged.push(Merged { uid, first, last: event.kind, line });
    }
    let mut out = String::with_capacity(lines.len());
    for Merged { first, last, line, .. } in merged {
        match (first, last) {
            ("ADDED", "DELETED") => continue,
            ("ADDED", "MODIFIED") => out.push_str(&line.replacen("MODIFIED", "ADDED", 1)),
            _ => out.push_str(line),
        }
        out.push('\n');
    }
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: &str, uid: &str, version: u32) -> String {
        format!("{{\"type\":\"{kind}\",\"object\":{{\"metadata\":{{\"uid\":\"{uid}\",\"v\":{version}}}}}}}\n")
    }

    #[test]
    fn events_that_come_twice_keep_their_order() {
        let lines = [event("ADDED", "a", 1), event("DELETED", "a", 2)];
        let expected = [&*lines[0], &*lines[0], &*lines[1], &*lines[1]].concat();
        assert_eq!(twice(lines.into_iter().map(Bytes::from)), expected);
    }

    #[test]
    fn merged_events_are_the_last_of_each_object() {
        let lines = [
            event("ADDED", "a", 1),
            event("MODIFIED", "b", 2),
            event("MODIFIED", "a", 3),
            event("ADDED", "c", 4),
            event("DELETED", "c", 5),
            event("DELETED", "b", 6),
        ]
        .concat();
        let expected = [event("ADDED", "a", 3), event("DELETED", "b", 6)].concat();
        assert_eq!(merge(lines.as_bytes()), expected);
    }
}
