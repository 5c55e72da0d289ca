//! A sentence before it is written: its parts, in their order.
//!
//! Most of the sentences that are made are weighed and not taken: so what a part weighs is known when the program is
//! built, and only a sentence that is taken becomes text.

use super::estimate::{Units, tokens, units};

/// A piece of text and what it is estimated at.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Part {
    text: &'static str,
    units: Units,
}

/// Parts that follow each other. No word may reach from one into the next: its estimate would differ from theirs.
#[derive(Debug, Default)]
pub(super) struct Sentence {
    parts: Vec<Part>,
    units: Units,
    bytes: usize,
}

impl Part {
    pub(super) const fn new(text: &'static str) -> Self {
        Self { text, units: units(text) }
    }
}

/// A list of parts.
#[expect(
    clippy::indexing_slicing,
    reason = "in bounds, and there is no other way when constants are evaluated"
)]
pub(super) const fn parts<const N: usize>(texts: [&'static str; N]) -> [Part; N] {
    let mut parts = [Part::new(""); N];
    let mut index = 0;
    while index < N {
        parts[index] = Part::new(texts[index]);
        index += 1;
    }
    parts
}

impl Sentence {
    /// Room for the longest there are.
    pub(super) fn new() -> Self {
        const PARTS: usize = 24;
        Self { parts: Vec::with_capacity(PARTS), ..Self::default() }
    }

    pub(super) fn clear(&mut self) {
        self.parts.clear();
        (self.units, self.bytes) = (0, 0);
    }

    pub(super) fn push(&mut self, part: Part) {
        self.units += part.units;
        self.bytes += part.text.len();
        self.parts.push(part);
    }

    pub(super) fn extend<const N: usize>(&mut self, parts: [Part; N]) {
        for part in parts {
            self.push(part);
        }
    }

    /// Estimated tokens.
    pub(super) fn tokens(&self) -> f64 {
        tokens(self.units)
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends it to a text, with a capital at its head where there are capitals.
    pub(super) fn write(&self, text: &mut String) {
        let start = text.len();
        text.extend(self.parts.iter().map(|part| part.text));
        if let Some(first) = text.get_mut(start..start + 1) {
            first.make_ascii_uppercase();
        }
    }
}
