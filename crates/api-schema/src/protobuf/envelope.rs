//! The envelope around every object: a magic prefix and a message with the object's type and bytes (AS-241).

use std::ops::Range;

use super::wire::{BYTES, Fields, ProtobufError, put_bytes, put_message};
use crate::TypeMeta;
use crate::go;

const PREFIX: &[u8] = b"k8s\0";

/// The type of the enveloped object and where its bytes are.
pub fn decode_envelope(body: &[u8]) -> Result<(TypeMeta, Range<usize>), ProtobufError> {
    if body.is_empty() {
        return Err(ProtobufError::EmptyData);
    }
    let message = body.strip_prefix(PREFIX).ok_or(ProtobufError::NoPrefix)?;
    if message.is_empty() {
        return Err(ProtobufError::EmptyBody);
    }
    let mut meta = TypeMeta::default();
    let mut raw = 0..0;
    let mut fields = Fields::new("Unknown", message);
    while let Some(tag) = fields.tag()? {
        match (tag.number, tag.wire_type) {
            (1, BYTES) => read_type_meta(fields.bytes()?, &mut meta)?,
            (2, BYTES) => {
                let bytes = fields.bytes()?;
                // The content ends where the unread rest begins.
                let end = body.len() - fields.unread();
                raw = end - bytes.len()..end;
            }
            (3 | 4, BYTES) => drop(fields.bytes()?),
            (number @ 1..=4, wire_type) => {
                let field = ["TypeMeta", "Raw", "ContentEncoding", "ContentType"][number as usize - 1];
                return Err(ProtobufError::WrongWireType { wire_type, field: field.to_owned() });
            }
            (_, wire_type) => fields.skip(wire_type)?,
        }
    }
    Ok((meta, raw))
}

fn read_type_meta(bytes: &[u8], meta: &mut TypeMeta) -> Result<(), ProtobufError> {
    let mut fields = Fields::new("TypeMeta", bytes);
    while let Some(tag) = fields.tag()? {
        match (tag.number, tag.wire_type) {
            (1, BYTES) => meta.api_version = go::repaired(fields.bytes()?).into_owned(),
            (2, BYTES) => meta.kind = go::repaired(fields.bytes()?).into_owned(),
            (number @ 1..=2, wire_type) => {
                let field = ["APIVersion", "Kind"][number as usize - 1];
                return Err(ProtobufError::WrongWireType { wire_type, field: field.to_owned() });
            }
            (_, wire_type) => fields.skip(wire_type)?,
        }
    }
    Ok(())
}

/// Writes an envelope around the object that `write` produces.
pub(super) fn envelope(api_version: &str, kind: &str, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    out.extend_from_slice(PREFIX);
    put_message(&mut out, 1, |out| {
        put_bytes(out, 1, api_version.as_bytes());
        put_bytes(out, 2, kind.as_bytes());
    });
    put_message(&mut out, 2, write);
    // Upstream always writes the two empty strings, too.
    put_bytes(&mut out, 3, b"");
    put_bytes(&mut out, 4, b"");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn envelopes_are_read_back() {
        let body = envelope("batch/v1", "Job", |out| out.extend_from_slice(b"content"));
        let (meta, raw) = decode_envelope(&body).unwrap();
        assert_eq!(meta, TypeMeta { api_version: "batch/v1".to_owned(), kind: "Job".to_owned() });
        assert_eq!(&body[raw], b"content");
    }

    #[test]
    fn what_is_no_envelope_is_refused_in_upstreams_words() {
        let no_prefix = "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]";
        let cases: [(&[u8], &str); 5] = [
            (b"", "empty data"),
            (b"k8s\0", "empty body"),
            (b"{\"kind\":\"Job\"}", no_prefix),
            (b"k8s", no_prefix),
            (b"k8s\0\x0a\x0f\x0a\x08batch", "unexpected EOF"),
        ];
        for (body, expected) in cases {
            assert_eq!(decode_envelope(body).unwrap_err().to_string(), expected);
        }
    }
}
