//! The wire format: varints, tags, lengths, and what can be wrong with them in the words of upstream's generated code.

/// Malformed protobuf.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtobufError {
    #[error("empty data")]
    EmptyData,
    #[error("empty body")]
    EmptyBody,
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NoPrefix,
    #[error("unexpected EOF")]
    UnexpectedEof,
    #[error("proto: integer overflow")]
    IntegerOverflow,
    #[error("proto: negative length found during unmarshaling")]
    NegativeLength,
    #[error("proto: unexpected end of group")]
    UnexpectedEndOfGroup,
    #[error("proto: illegal wireType {0}")]
    IllegalWireType(u8),
    #[error("proto: {message}: wiretype end group for non-group")]
    EndGroup { message: &'static str },
    #[error("proto: {message}: illegal tag {number} (wire type {tag})")]
    IllegalTag { message: &'static str, number: i32, tag: u64 },
    #[error("proto: wrong wireType = {wire_type} for field {field}")]
    WrongWireType { wire_type: u8, field: String },
    /// A quantity or other embedded text that does not parse.
    #[error("{0}")]
    Value(String),
}

pub(super) const VARINT: u8 = 0;
const FIXED64: u8 = 1;
pub(super) const BYTES: u8 = 2;
const START_GROUP: u8 = 3;
const END_GROUP: u8 = 4;
const FIXED32: u8 = 5;

/// The fields of one message.
pub(super) struct Fields<'a> {
    /// The Go name of the message for error texts.
    message: &'static str,
    rest: &'a [u8],
}

/// A field's tag; its content is read next.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tag {
    pub(super) number: u32,
    pub(super) wire_type: u8,
}

impl<'a> Fields<'a> {
    pub(super) fn new(message: &'static str, bytes: &'a [u8]) -> Self {
        Self { message, rest: bytes }
    }

    /// The next field's tag, or `None` at the end of the message.
    pub(super) fn tag(&mut self) -> Result<Option<Tag>, ProtobufError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let wire_type = (tag & 7) as u8;
        let number = (tag >> 3) as i32;
        if wire_type == END_GROUP {
            return Err(ProtobufError::EndGroup { message: self.message });
        }
        if number <= 0 {
            return Err(ProtobufError::IllegalTag { message: self.message, number, tag });
        }
        Ok(Some(Tag { number: number as u32, wire_type }))
    }

    pub(super) fn varint(&mut self) -> Result<u64, ProtobufError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.rest.split_first().ok_or(ProtobufError::UnexpectedEof)?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(ProtobufError::IntegerOverflow)
    }

    /// The content of a length-delimited field.
    pub(super) fn bytes(&mut self) -> Result<&'a [u8], ProtobufError> {
        let length = self.varint()?;
        if length > i64::MAX as u64 {
            return Err(ProtobufError::NegativeLength);
        }
        self.take(length as usize)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], ProtobufError> {
        if length > self.rest.len() {
            return Err(ProtobufError::UnexpectedEof);
        }
        let (bytes, rest) = self.rest.split_at(length);
        self.rest = rest;
        Ok(bytes)
    }

    /// How many bytes of the message have not been read.
    pub(super) fn unread(&self) -> usize {
        self.rest.len()
    }

    /// Skips the content of a field that we do not know; groups are walked without recursion.
    pub(super) fn skip(&mut self, wire_type: u8) -> Result<(), ProtobufError> {
        let mut open_groups = 0usize;
        let mut wire_type = wire_type;
        loop {
            match wire_type {
                VARINT => drop(self.varint()?),
                FIXED64 => drop(self.take(8)?),
                BYTES => drop(self.bytes()?),
                START_GROUP => open_groups += 1,
                END_GROUP => open_groups = open_groups.checked_sub(1).ok_or(ProtobufError::UnexpectedEndOfGroup)?,
                FIXED32 => drop(self.take(4)?),
                other => return Err(ProtobufError::IllegalWireType(other)),
            }
            if open_groups == 0 {
                return Ok(());
            }
            wire_type = (self.varint()? & 7) as u8;
        }
    }
}

/// Appends a varint.
pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(super) fn put_tag(out: &mut Vec<u8>, number: u32, wire_type: u8) {
    put_varint(out, u64::from(number) << 3 | u64::from(wire_type));
}

pub(super) fn put_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_tag(out, number, BYTES);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

pub(super) fn put_number(out: &mut Vec<u8>, number: u32, value: i64) {
    put_tag(out, number, VARINT);
    put_varint(out, value as u64);
}

/// Appends a nested message that `write` produces. Most are short, so one byte is set aside for the length and the
/// content moves only if that is not enough.
pub(super) fn put_message(out: &mut Vec<u8>, number: u32, write: impl FnOnce(&mut Vec<u8>)) {
    put_tag(out, number, BYTES);
    let start = out.len();
    out.push(0);
    write(out);
    let length = (out.len() - start - 1) as u64;
    if length < 0x80 {
        out[start] = length as u8;
        return;
    }
    let mut prefix = Vec::with_capacity(10);
    put_varint(&mut prefix, length);
    out.splice(start..=start, prefix);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_fields_are_described_in_the_generated_codes_words() {
        let read = |bytes: &[u8]| {
            let mut fields = Fields::new("Job", bytes);
            loop {
                match fields.tag() {
                    Ok(None) => return "fine".to_owned(),
                    Ok(Some(tag)) => match fields.skip(tag.wire_type) {
                        Ok(()) => {}
                        Err(error) => return error.to_string(),
                    },
                    Err(error) => return error.to_string(),
                }
            }
        };
        let cases: [(&[u8], &str); 12] = [
            (b"", "fine"),
            (b"\x08\x01", "fine"),
            (b"\x08", "unexpected EOF"),
            (b"\x0a\x05abc", "unexpected EOF"),
            (b"\x0a\x03abc", "fine"),
            (b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "proto: integer overflow"),
            (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "proto: negative length found during unmarshaling"),
            (b"\x0c", "proto: Job: wiretype end group for non-group"),
            (b"\x00", "proto: Job: illegal tag 0 (wire type 0)"),
            (b"\x0f", "proto: illegal wireType 7"),
            (b"\x0b\x13\x08\x01\x14\x0c", "fine"),
            (b"\x0b\x13\x08\x01", "unexpected EOF"),
        ];
        for (bytes, expected) in cases {
            assert_eq!(read(bytes), expected, "{bytes:02x?}");
        }
    }

    #[test]
    fn long_messages_move_to_make_room_for_their_length() {
        for size in [0usize, 127, 128, 16_383, 16_384] {
            let mut out = b"before".to_vec();
            put_message(&mut out, 1, |out| out.resize(out.len() + size, b'x'));
            let mut fields = Fields::new("", &out[6..]);
            assert_eq!(fields.tag().unwrap().unwrap().number, 1);
            assert_eq!(fields.bytes().unwrap(), vec![b'x'; size]);
            assert!(fields.tag().unwrap().is_none());
        }
    }
}
