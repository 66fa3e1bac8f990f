//! Bodies of requests and answers.

use std::{
    collections::VecDeque,
    convert::Infallible,
    fmt,
    io::Write,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use flate2::{Compression, write::GzEncoder};
use futures_util::Stream;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};

use crate::{status::Status, storage::Stored};

/// The most a request body may hold (AS-11).
pub const BODY_BYTES_MAX: usize = 3_145_728;

/// How much of a large answer is joined into one frame.
const FRAME_BYTES: usize = 64 * 1024;

/// A request body of any transport.
pub type RequestBody = UnsyncBoxBody<Bytes, BodyError>;

/// The transport failed while a body was read.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BodyError(Box<dyn std::error::Error + Send + Sync>);

/// A body of any transport, with one type of error.
pub fn request<B>(body: B) -> RequestBody
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    body.map_err(|error| BodyError(error.into())).boxed_unsync()
}

/// Reads a whole body within its bound. What is beyond is left to the transport.
pub async fn read(mut body: RequestBody) -> Result<Bytes, Status> {
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Status::bad_request(format!("reading the request body: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        if whole.len() + data.len() > BODY_BYTES_MAX {
            return Err(Status::too_large(format!("Request entity too large: limit is {BODY_BYTES_MAX}")));
        }
        if whole.is_empty() && body.is_end_stream() {
            return Ok(data);
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.freeze())
}

/// An answer's body: known bytes, many shared pieces, or a stream that goes on.
pub enum ResponseBody {
    Full(Option<Bytes>),
    /// Pieces of a large list, joined only into frames of bounded size while they are sent.
    Pieces {
        pieces: VecDeque<Piece>,
        /// Unknown while there are pieces that have to be built.
        bytes_left: Option<u64>,
    },
    /// Pieces compressed on their way out.
    Compressed {
        pieces: VecDeque<Piece>,
        encoder: Option<Box<GzEncoder<Vec<u8>>>>,
    },
    Stream(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
}

/// A piece of a large answer.
pub enum Piece {
    Ready(Bytes),
    /// A part of an object that the store keeps packed: built when it is sent, or a list of all objects would have them
    /// all in memory at once.
    Packed {
        stored: Stored,
        part: fn(&Bytes) -> Bytes,
    },
}

impl Piece {
    /// A part of a stored object.
    pub fn of(stored: &Stored, part: fn(&Bytes) -> Bytes) -> Self {
        match stored.is_packed() {
            true => Self::Packed { stored: stored.clone(), part },
            false => Self::Ready(part(&stored.value())),
        }
    }

    fn len(&self) -> Option<u64> {
        match self {
            Self::Ready(bytes) => Some(bytes.len() as u64),
            Self::Packed { .. } => None,
        }
    }

    fn len_max(&self) -> u64 {
        match self {
            Self::Ready(bytes) => bytes.len() as u64,
            Self::Packed { stored, .. } => stored.value_len() as u64,
        }
    }

    fn into_bytes(self) -> Bytes {
        match self {
            Self::Ready(bytes) => bytes,
            Self::Packed { stored, part } => part(&stored.value()),
        }
    }
}

/// Contents may be secret (INV-53).
impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Piece({} bytes)", self.len_max())
    }
}

impl From<Bytes> for Piece {
    fn from(bytes: Bytes) -> Self {
        Self::Ready(bytes)
    }
}

impl ResponseBody {
    pub fn empty() -> Self {
        Self::Full(None)
    }

    /// The same body, compressed while it is sent; streams stay as they are.
    pub fn compressed(self) -> Self {
        let pieces = match self {
            Self::Full(bytes) => bytes.into_iter().map(Piece::Ready).collect(),
            Self::Pieces { pieces, .. } => pieces,
            other => return other,
        };
        // Level 1, as upstream: lists compress well, and the server has better things to do.
        let encoder = GzEncoder::new(Vec::with_capacity(FRAME_BYTES), Compression::new(1));
        Self::Compressed { pieces, encoder: Some(Box::new(encoder)) }
    }

    /// How long the body can be; `None` if nobody knows.
    pub fn len_max(&self) -> Option<u64> {
        match self {
            Self::Pieces { pieces, bytes_left: None } => Some(pieces.iter().map(Piece::len_max).sum()),
            other => other.size_hint().exact(),
        }
    }

    pub fn pieces(pieces: VecDeque<Piece>) -> Self {
        let bytes_left = pieces.iter().map(Piece::len).sum();
        Self::Pieces { pieces, bytes_left }
    }
}

/// The next frame of a body in pieces: one large piece as it is, small ones together.
fn join(pieces: &mut VecDeque<Piece>) -> Option<Bytes> {
    let first = pieces.pop_front()?.into_bytes();
    if first.len() >= FRAME_BYTES || pieces.is_empty() {
        return Some(first);
    }
    let mut frame = Vec::with_capacity(FRAME_BYTES);
    frame.extend_from_slice(&first);
    while let Some(next) = pieces.pop_front().map(Piece::into_bytes) {
        if frame.len() + next.len() > FRAME_BYTES {
            pieces.push_front(next.into());
            break;
        }
        frame.extend_from_slice(&next);
    }
    Some(frame.into())
}

/// The next compressed frame; the last one ends the encoder.
fn compress(pieces: &mut VecDeque<Piece>, encoder: &mut Option<Box<GzEncoder<Vec<u8>>>>) -> Option<Bytes> {
    let writer = encoder.as_mut()?;
    while let Some(piece) = pieces.pop_front() {
        // Writing to memory cannot fail.
        let _ = writer.write_all(&piece.into_bytes());
        if writer.get_ref().len() >= FRAME_BYTES {
            return Some(std::mem::take(writer.get_mut()).into());
        }
    }
    encoder.take()?.finish().ok().map(Bytes::from)
}

impl From<Vec<u8>> for ResponseBody {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Full(Some(Bytes::from(bytes)))
    }
}

impl From<Bytes> for ResponseBody {
    fn from(bytes: Bytes) -> Self {
        Self::Full(Some(bytes))
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Self::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Pieces { pieces, bytes_left } => Poll::Ready(join(pieces).map(|frame| {
                *bytes_left = bytes_left.map(|left| left - frame.len() as u64);
                Ok(Frame::data(frame))
            })),
            Self::Compressed { pieces, encoder } => {
                Poll::Ready(compress(pieces, encoder).map(|frame| Ok(Frame::data(frame))))
            }
            Self::Stream(stream) => {
                stream.as_mut().poll_next(cx).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Full(bytes) => bytes.is_none(),
            Self::Pieces { pieces, .. } => pieces.is_empty(),
            Self::Compressed { encoder, .. } => encoder.is_none(),
            Self::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Pieces { bytes_left: Some(left), .. } => SizeHint::with_exact(*left),
            Self::Pieces { bytes_left: None, .. } | Self::Compressed { .. } | Self::Stream(_) => SizeHint::default(),
        }
    }
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(bytes) => write!(f, "Full({} bytes)", bytes.as_ref().map_or(0, Bytes::len)),
            Self::Pieces { pieces, .. } => write!(f, "Pieces({})", pieces.len()),
            Self::Compressed { .. } => f.write_str("Compressed"),
            Self::Stream(_) => f.write_str("Stream"),
        }
    }
}
