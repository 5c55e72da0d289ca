//! Samples of one quantity of one level, as values and how often each was seen.

/// Ascending values with their counts.
#[derive(Debug, Clone, PartialEq)]
pub struct Distribution {
    values: Vec<(f64, u32)>,
    count: u64,
    independent: f64,
}

impl Distribution {
    /// Of values in any order. `independent` is how many independent samples they are worth (see
    /// [`independent`](crate::analysis::independent)); all of them when unknown. `None` when there are none.
    #[must_use]
    pub fn new(mut values: Vec<(f64, u32)>, independent: Option<f64>) -> Option<Self> {
        values.retain(|(value, count)| value.is_finite() && *count > 0);
        values.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        let count: u64 = values.iter().map(|(_, count)| u64::from(*count)).sum();
        let independent = independent.unwrap_or(count as f64).clamp(1.0, (count as f64).max(1.0));
        (count > 0).then_some(Self { values, count, independent })
    }

    /// Values and counts, ascending.
    #[must_use]
    pub fn values(&self) -> &[(f64, u32)] {
        &self.values
    }

    /// How many samples.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// How many independent samples they are worth.
    #[must_use]
    pub fn independent(&self) -> f64 {
        self.independent
    }

    /// The inverse of every value: a speed of a time.
    #[must_use]
    pub fn inverse(&self) -> Self {
        let inverse = self.values.iter().rev().filter(|(value, _)| *value > 0.0);
        let values: Vec<_> = inverse.map(|(value, count)| (1.0 / value, *count)).collect();
        let count = values.iter().map(|(_, count)| u64::from(*count)).sum();
        Self { values, count, independent: self.independent }
    }

    /// The `q`-quantile, 0 to 1, by linear interpolation.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let rank = q.clamp(0.0, 1.0) * self.count.checked_sub(1)? as f64;
        let low = self.at(rank.floor())?;
        let high = self.at(rank.ceil())?;
        Some(low + (high - low) * rank.fract())
    }

    /// At most so many values that stand for all of them, evenly spread over the ranks.
    #[must_use]
    pub fn points(&self, points_max: u32) -> Vec<f64> {
        let count = f64::from(points_max).min(self.count as f64);
        let each = self.count as f64 / count;
        let mut points = Vec::new();
        let (mut seen, mut next) = (0.0, each / 2.0);
        for (value, weight) in &self.values {
            seen += f64::from(*weight);
            while next < seen {
                points.push(*value);
                next += each;
            }
        }
        points
    }

    /// The value of a rank, counted from 0.
    fn at(&self, rank: f64) -> Option<f64> {
        let mut seen = 0.0;
        let found = self.values.iter().find(|(_, count)| {
            seen += f64::from(*count);
            seen > rank
        });
        found.map(|(value, _)| *value)
    }
}
