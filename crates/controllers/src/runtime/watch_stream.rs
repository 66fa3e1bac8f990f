//! Decoding of lists and watches: bytes to projections, with single bad objects skipped (INV-32).

use bytes::{Buf, BytesMut};
use http_body_util::BodyExt;
use kube::{client::Body, core::Status};
use serde::{Deserialize, de::DeserializeOwned};

use super::reflector::Failure;

/// The longest watch event that is accepted. Objects are limited to 3 MiB by servers, and this is one with room.
const EVENT_BYTES_MAX: usize = 16 << 20;

/// One event of a watch.
#[derive(Debug)]
pub(super) enum Frame<T> {
    Applied(T),
    Deleted(T),
    Bookmark(String),
    Error(Box<Status>),
    Undecodable(serde_json::Error),
}

/// One page of a list.
#[derive(Debug)]
pub(super) struct Page<T> {
    pub(super) objects: Vec<T>,
    pub(super) version: String,
    /// Asks for the next page; empty on the last one.
    pub(super) token: String,
    /// Objects that could not be decoded.
    pub(super) skipped: u64,
}

/// Reads watch events off a body.
#[derive(Debug)]
pub(super) struct WatchStream {
    body: Body,
    buffer: BytesMut,
    /// How much of the buffer is known to contain no line end.
    searched: usize,
}

impl WatchStream {
    pub(super) fn new(body: Body) -> Self {
        Self { body, buffer: BytesMut::new(), searched: 0 }
    }

    /// The next event; `None` at the end of the watch. An unfinished last line is dropped.
    pub(super) async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<Frame<T>>, Failure> {
        loop {
            if let Some(end) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') {
                let length = self.searched + end;
                let frame = decode_event(&self.buffer[..length]);
                self.buffer.advance(length + 1);
                self.searched = 0;
                return Ok(Some(frame));
            }
            self.searched = self.buffer.len();
            if self.searched > EVENT_BYTES_MAX {
                return Err(Failure::TooLong(EVENT_BYTES_MAX));
            }
            // In process the next piece may always be there; others want to run too.
            tokio::task::coop::consume_budget().await;
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(Failure::Read(error)),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
            }
        }
    }
}

#[derive(Deserialize)]
#[serde(tag = "type", content = "object", rename_all = "UPPERCASE")]
enum Event<T> {
    Added(T),
    Modified(T),
    Deleted(T),
    Bookmark(Bookmark),
    Error(Box<Status>),
}

#[derive(Deserialize)]
struct Bookmark {
    metadata: ListMeta,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ListMeta {
    resource_version: String,
    #[serde(rename = "continue")]
    token: String,
}

#[derive(Deserialize)]
struct List<T> {
    #[serde(default)]
    metadata: ListMeta,
    // Go encodes an empty list as null.
    #[serde(default = "Option::default")]
    items: Option<Vec<T>>,
}

fn decode_event<T: DeserializeOwned>(line: &[u8]) -> Frame<T> {
    match serde_json::from_slice(line) {
        Ok(Event::Added(object) | Event::Modified(object)) => Frame::Applied(object),
        Ok(Event::Deleted(object)) => Frame::Deleted(object),
        Ok(Event::Bookmark(bookmark)) => Frame::Bookmark(bookmark.metadata.resource_version),
        Ok(Event::Error(status)) => Frame::Error(status),
        Err(error) => Frame::Undecodable(error),
    }
}

pub(super) fn decode_page<T: DeserializeOwned>(bytes: &[u8]) -> Result<Page<T>, serde_json::Error> {
    if let Ok(list) = serde_json::from_slice::<List<T>>(bytes) {
        let ListMeta { resource_version, token } = list.metadata;
        return Ok(Page { objects: list.items.unwrap_or_default(), version: resource_version, token, skipped: 0 });
    }
    // Rarely, and only then at the price of a second pass: find the objects that can be used.
    let list: List<serde_json::Value> = serde_json::from_slice(bytes)?;
    let mut objects = Vec::new();
    let mut skipped = 0;
    for item in list.items.unwrap_or_default() {
        match serde_json::from_value(item) {
            Ok(object) => objects.push(object),
            Err(error) => {
                tracing::warn!(%error, "an object of a list cannot be decoded, skipped");
                skipped += 1;
            }
        }
    }
    Ok(Page { objects, version: list.metadata.resource_version, token: list.metadata.token, skipped })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    struct Small {
        n: u8,
    }

    async fn read(text: &str) -> Vec<String> {
        let mut stream = WatchStream::new(Body::from(text.as_bytes().to_vec()));
        let mut frames = Vec::new();
        while let Some(frame) = stream.next::<Small>().await.unwrap() {
            frames.push(match frame {
                Frame::Applied(small) => format!("applied {}", small.n),
                Frame::Deleted(small) => format!("deleted {}", small.n),
                Frame::Bookmark(version) => format!("bookmark {version}"),
                Frame::Error(status) => format!("error {}", status.code),
                Frame::Undecodable(_) => "undecodable".to_owned(),
            });
        }
        frames
    }

    #[tokio::test]
    async fn every_kind_of_event_is_decoded_and_bad_ones_are_told_apart() {
        let text = concat!(
            r#"{"type":"ADDED","object":{"n":1,"more":{"deep":[1]}}}"#,
            "\n",
            r#"{"object":{"n":2},"type":"MODIFIED"}"#,
            "\n",
            r#"{"type":"ADDED","object":{"n":"no"}}"#,
            "\n",
            r#"{"type":"DELETED","object":{"n":3}}"#,
            "\n",
            r#"{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"77"}}}"#,
            "\n",
            r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}"#,
            "\n",
            r#"{"type":"ADDED","object":{"n":9"#,
        );
        let expected = ["applied 1", "applied 2", "undecodable", "deleted 3", "bookmark 77", "error 410"];
        assert_eq!(read(text).await, expected);
    }

    #[test]
    fn a_bad_object_costs_only_itself() {
        let page: Page<Small> =
            decode_page(br#"{"metadata":{"resourceVersion":"5","continue":"t"},"items":[{"n":1},{"n":-1},{"n":2}]}"#)
                .unwrap();
        assert_eq!(page.objects, [Small { n: 1 }, Small { n: 2 }]);
        assert_eq!((page.version.as_str(), page.token.as_str(), page.skipped), ("5", "t", 1));
        let empty: Page<Small> = decode_page(br#"{"metadata":{"resourceVersion":"5"},"items":null}"#).unwrap();
        assert!(empty.objects.is_empty());
        assert!(decode_page::<Small>(b"<html>").is_err());
    }
}
