//! Values at rest, in few bytes.
//!
//! Most of what a store holds is not looked at for a long time, and much of it is alike: the pods of a Job differ in
//! some dozens of bytes out of thousands. A value that has fallen out of the recent events is therefore kept as what it
//! adds to another one, its model, by LZ4 with the model as the dictionary. Whoever reads it gets the bytes that were
//! written; building them takes about a microsecond.
//!
//! In memory only: on disk every record is whole.

use bytes::Bytes;
use std::sync::Arc;

/// Shorter values are left as they are: they are what is read for every request, and there is little to gain.
const LENGTH_MIN: usize = 1 << 10;
/// Longer ones too, so that a value and its model are within the reach of the compressor together.
const LENGTH_MAX: usize = 32 << 10;
/// A value that is packed takes at most this part of its length.
const GAIN_MIN: usize = 3;
/// A model is at most this many times as long as what is described by it. It may be kept only for that one.
const MODEL_FACTOR_MAX: usize = 2;

/// A value that others are described by.
pub(crate) type Model = Arc<Bytes>;

/// How an entry keeps its value.
pub(crate) enum Content {
    Plain(Bytes),
    /// Plain as well; others are described by it.
    Model(Model),
    Packed(Packed),
}

pub(crate) struct Packed {
    bytes: Box<[u8]>,
    length: usize,
    model: Model,
}

impl Content {
    pub(crate) fn value(&self) -> Bytes {
        match self {
            Self::Plain(value) => value.clone(),
            Self::Model(model) => Bytes::clone(model),
            Self::Packed(packed) => packed.unpack(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Plain(value) => value.len(),
            Self::Model(model) => model.len(),
            Self::Packed(packed) => packed.length,
        }
    }

    /// What this is described by or describes others.
    pub(crate) fn model(&self) -> Option<&Model> {
        match self {
            Self::Plain(_) => None,
            Self::Model(model) => Some(model),
            Self::Packed(packed) => Some(&packed.model),
        }
    }

    pub(crate) fn can_rest(&self) -> bool {
        matches!(self, Self::Plain(value) if (LENGTH_MIN..=LENGTH_MAX).contains(&value.len()))
    }

    /// The same value for a long rest; `None` if it stays as it is. What no model describes well becomes one.
    pub(crate) fn rested(&self, models: impl IntoIterator<Item = Model>) -> Option<Self> {
        let Self::Plain(value) = self else { return None };
        if !self.can_rest() {
            return None;
        }
        let packed = models.into_iter().find_map(|model| pack(value, &model));
        Some(packed.map_or_else(|| Self::Model(Arc::new(value.clone())), Self::Packed))
    }
}

fn pack(value: &Bytes, model: &Model) -> Option<Packed> {
    if model.len() > MODEL_FACTOR_MAX * value.len() {
        return None;
    }
    let bytes = lz4_flex::block::compress_with_dict(value, model);
    (bytes.len() * GAIN_MIN <= value.len()).then(|| Packed {
        bytes: bytes.into_boxed_slice(),
        length: value.len(),
        model: model.clone(),
    })
}

impl Packed {
    fn unpack(&self) -> Bytes {
        let unpacked = lz4_flex::block::decompress_with_dict(&self.bytes, self.length, &self.model);
        let value = unpacked.expect("packed by this process, by the same model");
        assert_eq!(value.len(), self.length, "a packed value has lost bytes");
        value.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rest(value: &Bytes, models: &[&Content]) -> Option<Content> {
        let models: Vec<Model> = models.iter().filter_map(|content| content.model().cloned()).collect();
        Content::Plain(value.clone()).rested(models)
    }

    /// As a pod is: long, and hardly different from the next one.
    fn alike(number: usize, length: usize) -> Bytes {
        let fields = (0..length / 20).map(|field| format!("\"field-{field:04}\":{:03},", field * 7 % 1000));
        format!("{{\"name\":\"pod-{number}\",{}", fields.collect::<String>()).into()
    }

    #[test]
    fn what_is_alike_takes_few_bytes_and_reads_the_same() {
        let first = rest(&alike(0, 4000), &[]).unwrap();
        assert!(matches!(first, Content::Model(_)), "there is nothing to describe it by");
        for number in 1..100 {
            let value = alike(number, 4000);
            let rested = rest(&value, &[&first]).unwrap();
            let Content::Packed(packed) = &rested else { panic!("it stays plain") };
            assert!(packed.bytes.len() < 100, "{}", packed.bytes.len());
            assert_eq!((rested.value(), rested.len()), (value, first.len() + number.ilog10() as usize));
            assert!(
                rest(&rested.value(), &[&rested])
                    .is_some_and(|next| Arc::ptr_eq(next.model().unwrap(), first.model().unwrap()))
            );
        }
    }

    #[test]
    fn short_and_long_values_stay_as_they_are() {
        for length in [0, 10, LENGTH_MIN - 1, LENGTH_MAX + 1, 10 * LENGTH_MAX] {
            assert!(rest(&vec![b'x'; length].into(), &[]).is_none(), "{length}");
        }
        let first = rest(&alike(0, 4000), &[]).unwrap();
        assert!(first.rested([first.model().unwrap().clone()]).is_none(), "a model stays what it is");
    }

    /// The worst that a model can cost: nobody else is described by it, and its own key is gone.
    #[test]
    fn a_model_is_not_much_longer_than_what_it_describes() {
        let long = rest(&alike(0, 9000), &[]).unwrap();
        assert!(matches!(rest(&alike(1, 2000), &[&long]), Some(Content::Model(_))));
        assert!(matches!(rest(&alike(1, 8000), &[&long]), Some(Content::Packed(_))));
    }

    #[test]
    fn the_first_model_that_fits_is_taken() {
        let other = rest(&"\u{3b1}\u{3b2}\u{3b3}".repeat(700).into(), &[]).unwrap();
        let first = rest(&alike(0, 4000), &[]).unwrap();
        let rested = rest(&alike(1, 4000), &[&other, &first]).unwrap();
        assert!(Arc::ptr_eq(rested.model().unwrap(), first.model().unwrap()));
    }

    proptest! {
        #[test]
        fn whatever_is_packed_is_unpacked_as_it_was(
            model in prop::collection::vec(any::<u8>(), LENGTH_MIN..3 * LENGTH_MIN),
            edits in prop::collection::vec((any::<prop::sample::Index>(), prop::collection::vec(any::<u8>(), 0..9)), 0..40),
        ) {
            let mut value = model.clone();
            for (at, bytes) in edits {
                let at = at.index(value.len());
                let end = (at + bytes.len() / 2).min(value.len());
                value.splice(at..end, bytes);
            }
            let value = Bytes::from(value);
            let model = rest(&model.into(), &[]);
            let models: Vec<&Content> = model.iter().collect();
            if let Some(rested) = rest(&value, &models) {
                prop_assert_eq!(rested.len(), value.len());
                prop_assert_eq!(rested.value(), value);
            }
        }
    }
}
