//! One version of one key as readers see it, and the value a writer hands in.

use crate::Revision;
use crate::rest::{Content, Model};
use bytes::{BufMut, Bytes, BytesMut};
use std::fmt;
use std::sync::{Arc, OnceLock};

/// Computes an entry's attributes from its key and value. Given once, when the store is opened.
///
/// The store neither looks at attributes nor stores them: they are what the layer above wants to have parsed once per
/// version (for instance where in the JSON the labels are).
pub type Derive<A> = Arc<dyn Fn(&str, &Bytes) -> A + Send + Sync>;

/// One version of one key. Immutable and shared: the index, watchers and readers hold the same allocation.
pub struct Entry<A> {
    pub key: Arc<str>,
    content: Content,
    /// The change that wrote this version.
    pub revision: Revision,
    /// The change that created the key; updates keep it.
    pub create_revision: Revision,
    attributes: OnceLock<A>,
    derive: Derive<A>,
}

impl<A> Entry<A> {
    pub(crate) fn new(
        key: Arc<str>,
        value: Bytes,
        revision: Revision,
        create_revision: Revision,
        derive: Derive<A>,
    ) -> Self {
        let content = Content::Plain(value);
        Self { key, content, revision, create_revision, attributes: OnceLock::new(), derive }
    }

    /// The bytes that were written. They may have to be built: ask once and keep them while they are needed.
    pub fn value(&self) -> Bytes {
        self.content.value()
    }

    /// How long the value is.
    pub fn value_len(&self) -> usize {
        self.content.len()
    }

    /// Whether asking for the value builds it anew.
    pub fn is_packed(&self) -> bool {
        matches!(self.content, Content::Packed(_))
    }

    /// What the value is described by, or describes others.
    pub(crate) fn model(&self) -> Option<&Model> {
        self.content.model()
    }

    /// Whether there may be something to gain by [`Self::rested`].
    pub(crate) fn can_rest(&self) -> bool {
        self.content.can_rest()
    }

    /// The same version for a long rest; `None` if it stays as it is. Attributes are left to whoever asks for them again.
    pub(crate) fn rested(&self, models: impl IntoIterator<Item = Model>) -> Option<Self> {
        let content = self.content.rested(models)?;
        let Self { revision, create_revision, .. } = *self;
        let (key, derive) = (self.key.clone(), self.derive.clone());
        Some(Self { key, content, revision, create_revision, attributes: OnceLock::new(), derive })
    }

    /// The attributes of this version, computed by the first reader who asks.
    ///
    /// Lazily, so that neither the writer nor start-up pays for parsing what nobody may look at.
    pub fn attributes(&self) -> &A {
        self.attributes.get_or_init(|| (self.derive)(&self.key, &self.value()))
    }
}

impl<A> fmt::Debug for Entry<A> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Values may hold secrets (INV-53), so only their size is shown.
        formatter
            .debug_struct("Entry")
            .field("key", &self.key)
            .field("revision", &self.revision)
            .field("create_revision", &self.create_revision)
            .field("value_bytes", &self.value_len())
            .finish_non_exhaustive()
    }
}

/// Bytes to store, with at most one hole that the writer fills with the revision in decimal.
///
/// An encoded object contains its own `resourceVersion` (AS-72), but its revision is only known once the writer takes
/// its turn. Leaving a hole keeps the stored bytes final: what is on disk is what GET, LIST and WATCH hand out.
#[derive(Clone)]
pub struct Value {
    head: Bytes,
    tail: Option<Bytes>,
}

/// Decimal digits of the largest revision.
const REVISION_DIGITS_MAX: usize = 20;

impl Value {
    /// Stored as it is.
    pub fn plain(bytes: impl Into<Bytes>) -> Self {
        Self { head: bytes.into(), tail: None }
    }

    /// Stored as `head`, the revision in decimal, `tail`.
    pub fn stamped(head: impl Into<Bytes>, tail: impl Into<Bytes>) -> Self {
        Self { head: head.into(), tail: Some(tail.into()) }
    }

    /// Stored with the revision in decimal inserted at `offset`, which must not be past the end.
    pub fn stamped_at(bytes: impl Into<Bytes>, offset: usize) -> Self {
        let mut head: Bytes = bytes.into();
        let tail = head.split_off(offset);
        Self { head, tail: Some(tail) }
    }

    /// The most bytes this value can take once stamped.
    pub(crate) fn len_max(&self) -> usize {
        self.head.len() + self.tail.as_ref().map_or(0, |tail| REVISION_DIGITS_MAX + tail.len())
    }

    pub(crate) fn write(&self, revision: Revision, out: &mut BytesMut) {
        out.put_slice(&self.head);
        if let Some(tail) = &self.tail {
            put_decimal(revision, out);
            out.put_slice(tail);
        }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tail_bytes = self.tail.as_ref().map(Bytes::len);
        formatter.debug_struct("Value").field("head_bytes", &self.head.len()).field("tail_bytes", &tail_bytes).finish()
    }
}

fn put_decimal(mut number: u64, out: &mut BytesMut) {
    let mut digits = [0; REVISION_DIGITS_MAX];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.put_slice(&digits[start..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(value: &Value, revision: Revision) -> String {
        let mut out = BytesMut::new();
        value.write(revision, &mut out);
        assert!(out.len() <= value.len_max());
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn the_revision_fills_the_hole() {
        assert_eq!(written(&Value::stamped("a", "b"), 0), "a0b");
        assert_eq!(written(&Value::stamped("a", "b"), 1207), "a1207b");
        assert_eq!(written(&Value::stamped("", ""), u64::MAX), u64::MAX.to_string());
        assert_eq!(written(&Value::stamped_at(r#"{"v":""}"#, 6), 42), r#"{"v":"42"}"#);
        assert_eq!(written(&Value::plain("a0b"), 9), "a0b");
    }

    #[test]
    fn debug_output_shows_no_value() {
        let derive: Derive<()> = Arc::new(|_, _| ());
        let entry = Entry::new("secrets/a".into(), Bytes::from_static(b"hunter2"), 3, 1, derive);
        assert!(!format!("{entry:?} {:?}", Value::plain("hunter2")).contains("hunter2"));
    }
}
