//! The first line of a connection, or the preface of HTTP/2: which HTTP is spoken (BI-14).
//!
//! hyper answers every line it cannot read with 400; a version that does not exist is told apart here, as Go's server
//! does it. What was read to find out is read again by whoever gets the stream.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

use crate::activity::Activity;

/// The answer to a version nobody has heard of.
pub(crate) const VERSION_ANSWER: &str = "HTTP/1.1 505 HTTP Version Not Supported\r\nContent-Type: text/plain; \
                                         charset=utf-8\r\nConnection: close\r\n\r\n505 HTTP Version Not Supported: \
                                         unsupported protocol version";

/// How every connection of HTTP/2 begins (RFC 9113, 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Reads the first line, of HTTP/2 the whole preface, or as much as `bytes_max`; the bytes read so far.
pub(crate) async fn read<S: AsyncRead + Unpin>(stream: &mut S, bytes_max: usize) -> io::Result<Bytes> {
    let mut opening = BytesMut::with_capacity(1024);
    while !is_whole(&opening) && opening.len() < bytes_max {
        if stream.read_buf(&mut opening).await? == 0 {
            break;
        }
    }
    Ok(opening.freeze())
}

/// hyper has no limit for the time that a preface takes, so it is not given parts of one.
fn is_whole(opening: &[u8]) -> bool {
    opening.contains(&b'\n') && (opening.len() >= PREFACE.len() || !PREFACE.starts_with(opening))
}

/// Whether a line asks for a version of HTTP that is not served. Lines that are no requests are somebody else's.
pub(crate) fn is_of_unknown_version(opening: &[u8]) -> bool {
    let line = opening.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let Some(version) = line.rsplit(|byte| *byte == b' ').next().and_then(|word| word.strip_prefix(b"HTTP/")) else {
        return false;
    };
    let is_version = matches!(version, [major, b'.', minor] if major.is_ascii_digit() && minor.is_ascii_digit());
    // The preface of HTTP/2 looks like a request of version 2.0.
    is_version && !matches!(version, b"1.0" | b"1.1") && line != b"PRI * HTTP/2.0"
}

/// A stream whose first bytes were read already. What comes after them counts as activity of the connection.
#[derive(Debug)]
pub(crate) struct Reopened<S> {
    opening: Bytes,
    is_http_2: bool,
    stream: S,
    activity: Arc<Activity>,
}

impl<S> Reopened<S> {
    pub(crate) fn new(opening: Bytes, stream: S, activity: Arc<Activity>) -> Self {
        let is_http_2 = opening.starts_with(PREFACE);
        Self { opening, is_http_2, stream, activity }
    }

    pub(crate) fn is_http_2(&self) -> bool {
        self.is_http_2
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Reopened<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.opening.is_empty() {
            let before = buffer.filled().len();
            let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
            if buffer.filled().len() > before {
                self.activity.heard();
            }
            return polled;
        }
        let length = self.opening.len().min(buffer.remaining());
        buffer.put_slice(&self.opening[..length]);
        self.opening.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Reopened<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[test]
    fn versions_are_told_apart() {
        for line in ["GET / HTTP/9.9\r\n", "GET / HTTP/2.0\r\n", "GET /a b HTTP/0.9\n", "GET / HTTP/3.1"] {
            assert!(is_of_unknown_version(line.as_bytes()), "{line:?}");
        }
        for line in ["GET / HTTP/1.1\r\n", "GET / HTTP/1.0\r\n", "PRI * HTTP/2.0\r\n", "HELLO\r\n", "GET /\r\n", ""] {
            assert!(!is_of_unknown_version(line.as_bytes()), "{line:?}");
        }
        assert!(!is_of_unknown_version(b"GET / HTTP/x.y\r\n"), "not a version at all");
    }

    #[tokio::test]
    async fn what_was_read_is_read_again() {
        let mut sent: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let opening = read(&mut sent, 64).await.unwrap();
        assert!(opening.starts_with(b"GET / HTTP/1.1\r\n"));
        let mut all = String::new();
        Reopened::new(opening, sent, Arc::new(Activity::new())).read_to_string(&mut all).await.unwrap();
        assert_eq!(all, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        // All of a preface, and no more than its line of something that only looks like one.
        for (sent, length) in
            [(&b"PRI * HTTP/2.0\r\n"[..], None), (PREFACE, Some(24)), (b"PRI * HTTP/2.0\r\nX", Some(17))]
        {
            let (mut stream, mut peer) = tokio::io::duplex(64);
            peer.write_all(sent).await.unwrap();
            let read = read(&mut stream, 64).now_or_never().map(|read| read.unwrap().len());
            assert_eq!(read, length, "{sent:?}");
        }
        // Bounded: a line without end is handed on.
        assert!(read(&mut &[b'x'; 100_000][..], 64).await.unwrap().len() < 100_000);
    }
}
