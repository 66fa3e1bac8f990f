//! The encoding of what is on disk: one record per revision, and the checkpoint that compaction leaves.
//!
//! Every decoder here checks a CRC that covers the revision the bytes were filed under, so bytes that the engine
//! returns for the wrong key are caught like bytes that rotted. Format reference: `docs/store-format.md`.

use crate::{EventKind, Revision, Value};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use thiserror::Error;

/// First byte of a record and of a checkpoint; another number is another layout.
const LAYOUT: u8 = 1;
const KIND_PUT: u8 = 1;
const KIND_DELETE: u8 = 2;
/// crc32, layout, kind, key length, create revision, previous revision.
const HEADER_BYTES: usize = 4 + 1 + 1 + 2 + 8 + 8;
/// crc32, layout, compacted, revision, survivor count, survivor digest.
const CHECKPOINT_BYTES: usize = 4 + 1 + 8 * 4;
const CRC_BYTES: usize = 4;

#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum RecordError {
    #[error("it is too short")]
    TooShort,
    #[error("its checksum does not match")]
    Checksum,
    #[error("it has layout {0}, which this version does not know")]
    Layout(u8),
    #[error("its fields contradict each other")]
    Contradiction,
}

/// Everything of a record but its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) revision: Revision,
    pub(crate) kind: EventKind,
    pub(crate) create_revision: Revision,
    /// The version this one replaced; 0 if the key did not exist.
    pub(crate) previous_revision: Revision,
}

/// A record encoded for disk; `value` is a view into `bytes`.
pub(crate) struct Encoded {
    pub(crate) bytes: Bytes,
    pub(crate) value: Bytes,
}

/// A record as read, borrowing from the bytes it was decoded from.
#[derive(Debug)]
pub(crate) struct Decoded<'a> {
    pub(crate) header: Header,
    pub(crate) key: &'a str,
    /// Where the value starts; it extends to the end.
    pub(crate) value_start: usize,
}

impl Header {
    /// Encodes the record in one allocation that index, readers and engine then share.
    pub(crate) fn encode(&self, key: &str, value: &Value) -> Encoded {
        let key_len = u16::try_from(key.len()).expect("transactions with longer keys are refused");
        let mut out = BytesMut::with_capacity(HEADER_BYTES + key.len() + value.len_max());
        out.put_u32(0);
        out.put_u8(LAYOUT);
        out.put_u8(match self.kind {
            EventKind::Put => KIND_PUT,
            EventKind::Delete => KIND_DELETE,
        });
        out.put_u16(key_len);
        out.put_u64(self.create_revision);
        out.put_u64(self.previous_revision);
        out.put_slice(key.as_bytes());
        value.write(self.revision, &mut out);
        let crc = checksum(self.revision, &out[CRC_BYTES..]);
        out[..CRC_BYTES].copy_from_slice(&crc.to_be_bytes());
        let bytes = out.freeze();
        Encoded { value: bytes.slice(HEADER_BYTES + key.len()..), bytes }
    }
}

/// Decodes the record filed under `revision`.
pub(crate) fn decode(revision: Revision, bytes: &[u8]) -> Result<Decoded<'_>, RecordError> {
    let mut rest = checked(revision, bytes, HEADER_BYTES)?;
    let kind = match rest.get_u8() {
        KIND_PUT => EventKind::Put,
        KIND_DELETE => EventKind::Delete,
        _ => return Err(RecordError::Contradiction),
    };
    let key_len = usize::from(rest.get_u16());
    let create_revision = rest.get_u64();
    let previous_revision = rest.get_u64();
    let key = rest.get(..key_len).and_then(|key| std::str::from_utf8(key).ok()).ok_or(RecordError::Contradiction)?;
    let created_here = create_revision == revision && previous_revision == 0 && kind == EventKind::Put;
    let changed_here = 0 < create_revision && create_revision <= previous_revision && previous_revision < revision;
    if !created_here && !changed_here {
        return Err(RecordError::Contradiction);
    }
    let header = Header { revision, kind, create_revision, previous_revision };
    Ok(Decoded { header, key, value_start: HEADER_BYTES + key_len })
}

/// Which revisions at or below the compaction point are still stored, as a count and an order-free sum.
///
/// Above the compaction point every revision has a record, so a lost one shows as a gap. Below it only survivors have,
/// and this is what makes a lost or resurrected one show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Survivors {
    count: u64,
    digest: u64,
}

impl Survivors {
    pub(crate) fn add(&mut self, revision: Revision) {
        self.count = self.count.wrapping_add(1);
        self.digest = self.digest.wrapping_add(mix(revision));
    }

    pub(crate) fn remove(&mut self, revision: Revision) {
        self.count = self.count.wrapping_sub(1);
        self.digest = self.digest.wrapping_sub(mix(revision));
    }
}

/// Spreads a revision over 64 bits (the finaliser of splitmix64), so that sums of different sets differ.
fn mix(revision: Revision) -> u64 {
    let mut bits = revision.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// What compaction leaves behind, written atomically with the removals it describes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    /// Superseded versions and deletions up to here are gone.
    pub(crate) compacted: Revision,
    /// The store's revision when this was written; finding less is loss.
    pub(crate) revision: Revision,
    pub(crate) survivors: Survivors,
}

impl Checkpoint {
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(CHECKPOINT_BYTES);
        out.put_u32(0);
        out.put_u8(LAYOUT);
        out.put_u64(self.compacted);
        out.put_u64(self.revision);
        out.put_u64(self.survivors.count);
        out.put_u64(self.survivors.digest);
        let crc = checksum(0, &out[CRC_BYTES..]);
        out[..CRC_BYTES].copy_from_slice(&crc.to_be_bytes());
        out.freeze()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let mut rest = checked(0, bytes, CHECKPOINT_BYTES)?;
        let compacted = rest.get_u64();
        let revision = rest.get_u64();
        let survivors = Survivors { count: rest.get_u64(), digest: rest.get_u64() };
        if compacted > revision || rest.has_remaining() {
            return Err(RecordError::Contradiction);
        }
        Ok(Self { compacted, revision, survivors })
    }
}

/// Checks length, CRC and layout; returns what follows the layout byte.
fn checked(revision: Revision, bytes: &[u8], bytes_min: usize) -> Result<&[u8], RecordError> {
    if bytes.len() < bytes_min {
        return Err(RecordError::TooShort);
    }
    let (mut crc, mut rest) = bytes.split_at(CRC_BYTES);
    if crc.get_u32() != checksum(revision, rest) {
        return Err(RecordError::Checksum);
    }
    match rest.get_u8() {
        LAYOUT => Ok(rest),
        other => Err(RecordError::Layout(other)),
    }
}

fn checksum(revision: Revision, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&revision.to_be_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded() -> (Header, Encoded) {
        let header = Header { revision: 12, kind: EventKind::Delete, create_revision: 3, previous_revision: 7 };
        (header, header.encode("pods/a/b", &Value::stamped("v", "!")))
    }

    #[test]
    fn a_record_comes_back_as_it_was_written() {
        let (header, encoded) = encoded();
        let decoded = decode(12, &encoded.bytes).unwrap();
        assert_eq!((decoded.header, decoded.key), (header, "pods/a/b"));
        assert_eq!(&encoded.bytes[decoded.value_start..], b"v12!");
        assert_eq!(encoded.value, "v12!");
    }

    #[test]
    fn a_record_damaged_anywhere_or_filed_under_another_revision_is_refused() {
        let (_, encoded) = encoded();
        assert_eq!(decode(13, &encoded.bytes).unwrap_err(), RecordError::Checksum);
        for at in 0..encoded.bytes.len() {
            assert!(decode(12, &encoded.bytes[..at]).is_err(), "cut at {at}");
            for bit in 0..8 {
                let mut damaged = encoded.bytes.to_vec();
                damaged[at] ^= 1 << bit;
                assert!(decode(12, &damaged).is_err(), "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn a_checkpoint_comes_back_and_damage_is_refused() {
        let mut survivors = Survivors::default();
        survivors.add(4);
        let checkpoint = Checkpoint { compacted: 5, revision: 9, survivors };
        let bytes = checkpoint.encode();
        assert_eq!(bytes.len(), CHECKPOINT_BYTES);
        assert_eq!(Checkpoint::decode(&bytes), Ok(checkpoint));
        for at in 0..bytes.len() {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 1;
            assert!(Checkpoint::decode(&damaged).is_err(), "byte {at}");
            assert!(Checkpoint::decode(&bytes[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn survivors_depend_on_the_set_and_not_on_the_order() {
        let of = |revisions: &[Revision]| {
            let mut survivors = Survivors::default();
            revisions.iter().for_each(|revision| survivors.add(*revision));
            survivors
        };
        assert_eq!(of(&[1, 2, 3]), of(&[3, 1, 2]));
        assert_ne!(of(&[1, 4]), of(&[2, 3]));
        let mut fewer = of(&[1, 2, 3]);
        fewer.remove(2);
        assert_eq!(fewer, of(&[1, 3]));
    }
}
