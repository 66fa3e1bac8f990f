//! Texts that are repeated over and over, kept once: namespaces, nodes, what dependents say about their owner.
//!
//! A hundred thousand pods of one Job name the same namespace and the same owner (design D4).

use std::{collections::HashSet, sync::Arc};

/// From this many texts on, those that nobody uses any more are forgotten now and then.
const SWEEP_MIN: usize = 4096;

/// Shared texts.
#[derive(Debug)]
pub struct Interner {
    texts: HashSet<Arc<str>>,
    /// How many texts there may be before the next sweep.
    sweep_at: usize,
}

impl Default for Interner {
    fn default() -> Self {
        Self { texts: HashSet::new(), sweep_at: SWEEP_MIN }
    }
}

impl Interner {
    pub fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return known.clone();
        }
        if self.texts.len() >= self.sweep_at {
            self.texts.retain(|text| Arc::strong_count(text) > 1);
            self.sweep_at = (2 * self.texts.len()).max(SWEEP_MIN);
        }
        let text: Arc<str> = text.into();
        self.texts.insert(text.clone());
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_one_and_unused_ones_go() {
        let mut interner = Interner::default();
        let kept = interner.text("kept");
        assert!(Arc::ptr_eq(&kept, &interner.text("kept")));
        for n in 0..3 * SWEEP_MIN {
            interner.text(&n.to_string());
        }
        assert!(interner.texts.len() <= SWEEP_MIN + 1);
        assert!(Arc::ptr_eq(&kept, &interner.text("kept")));
    }
}
