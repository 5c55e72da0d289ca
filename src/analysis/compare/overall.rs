//! One test over all cells: their rank tests taken together, each weighing as much as its samples tell (van Elteren's).
//!
//! A change that all cells share is seen where none of them alone can show it.

use serde::Serialize;

use super::{ALPHA, Distribution, Verdict, is_enough, rank};

/// How a latency changed over all cells.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct OverallChange {
    /// Cells with samples enough.
    pub cells: usize,
    /// How much longer it is now, as a share of what it was: the mean over cells, by what their samples tell.
    pub relative: f64,
    /// Probability of a difference like this between equals, all tests of the comparison taken together.
    pub p_value: f64,
    /// What to make of it.
    pub verdict: Verdict,
}

impl OverallChange {
    pub(super) fn of<'a>(
        pairs: impl Iterator<Item = (&'a Option<Distribution>, &'a Option<Distribution>)>,
    ) -> Option<Self> {
        let (mut cells, mut worth) = (0, 0.0);
        let (mut z, mut relative) = (0.0, 0.0);
        for (before, after) in pairs {
            let (Some(before), Some(after)) = (before, after) else { continue };
            let median = before.quantile(0.5).filter(|median| *median > 0.0);
            let Some(median) = median.filter(|_| is_enough(before) && is_enough(after)) else { continue };
            let weight = rank::worth(before.independent(), after.independent());
            cells += 1;
            worth += weight;
            z += weight.sqrt() * rank::mann_whitney(before, after).z;
            relative += weight * rank::shift(before, after).middle / median;
        }
        // One cell has its own test.
        (cells > 1).then(|| Self {
            cells,
            relative: relative / worth,
            p_value: rank::two_sided((z / worth.sqrt()).abs()),
            verdict: Verdict::Unchanged,
        })
    }

    pub(super) fn judge(&mut self, change_min: f64) {
        self.verdict = if self.p_value >= ALPHA || self.relative.abs() < change_min {
            Verdict::Unchanged
        } else if self.relative > 0.0 {
            Verdict::Worse
        } else {
            Verdict::Improved
        };
    }
}
