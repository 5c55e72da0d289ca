//! The few numbers of a page that are of use, whatever the engine calls them.

use super::{
    exposition::{Labels, samples},
    names::{NAMES, Name, Quantity},
};

/// Labels by which engines tell models apart.
const MODEL_LABELS: [&str; 2] = ["model_name", "model"];

/// What a page said, at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// One per entry of [`NAMES`].
    totals: Vec<Total>,
}

/// Samples of one name, added up over replicas and ranks.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Total {
    pub(super) sum: f64,
    pub(super) count: f64,
    /// The largest of the samples that make up the sum.
    pub(super) largest: f64,
    seen: bool,
}

impl Snapshot {
    /// Reads a page. Samples of the model count if there are any, else those of all models.
    #[must_use]
    pub fn of(page: &str, model: &str) -> Self {
        let mut every = vec![Total::default(); NAMES.len()];
        let mut own = every.clone();
        for sample in samples(page) {
            let entries = NAMES.iter().zip(every.iter_mut().zip(&mut own));
            for (name, (every, own)) in entries.filter(|(name, _)| name.is_met(sample.name, sample.labels)) {
                let is_own = MODEL_LABELS
                    .iter()
                    .any(|label| sample.labels.get(label).is_some_and(|value| value == model));
                every.add(name, sample.name, sample.value);
                if is_own {
                    own.add(name, sample.name, sample.value);
                }
            }
        }
        let totals = own.into_iter().zip(every).map(|(own, every)| if own.seen { own } else { every });
        Self { totals: totals.collect() }
    }

    /// Whether it holds anything that is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.totals.iter().all(|total| !total.seen)
    }

    /// A number under the first of its names that is here and, when it is to be compared, in `other`.
    pub(super) fn total(&self, quantity: Quantity, other: &Self) -> Option<(&'static Name, Total, Total)> {
        let both = NAMES.iter().zip(self.totals.iter().zip(&other.totals));
        both.filter(|(name, (a, b))| name.quantity == quantity && a.seen && b.seen)
            .map(|(name, (a, b))| (name, *a, *b))
            .next()
    }

    /// How many first tokens the engine has counted.
    pub(super) fn first_tokens(&self) -> Option<f64> {
        self.total(Quantity::FirstToken, self).map(|(_, total, _)| total.count)
    }
}

impl Name {
    fn is_met(&self, name: &str, labels: Labels<'_>) -> bool {
        (name == self.sum || self.count == Some(name))
            && self.label.is_none_or(|(label, value)| labels.get(label).is_some_and(|found| found == value))
    }
}

impl Total {
    fn add(&mut self, name: &Name, sample: &str, value: f64) {
        if !value.is_finite() {
            return;
        }
        self.seen = true;
        if sample == name.sum {
            self.sum += value * name.unit;
            self.largest = self.largest.max(value * name.unit);
        } else {
            self.count += value;
        }
    }
}
