//! Percentiles by linear interpolation, numpy's default, with the sample count they rest on.

use std::time::Duration;

use super::interval::{Interval, of_quantile};

/// Summary of one level's samples of one quantity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Percentiles {
    /// How many samples.
    pub count: usize,
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// How sure they are.
    pub intervals: PercentileIntervals,
}

/// Where the true percentiles lie, with 95% confidence each.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PercentileIntervals {
    /// Of the median.
    pub p50: Interval,
    /// Of the 95th percentile.
    pub p95: Interval,
    /// Of the 99th percentile.
    pub p99: Interval,
}

impl Percentiles {
    /// Of samples in any order; `None` when there are none.
    #[must_use]
    pub fn of(mut samples: Vec<f64>) -> Option<Self> {
        samples.sort_by(f64::total_cmp);
        Some(Self {
            count: samples.len(),
            mean: samples.iter().sum::<f64>() / samples.len() as f64,
            p50: percentile(&samples, 0.50)?,
            p95: percentile(&samples, 0.95)?,
            p99: percentile(&samples, 0.99)?,
            intervals: PercentileIntervals {
                p50: of_quantile(&samples, 0.50),
                p95: of_quantile(&samples, 0.95),
                p99: of_quantile(&samples, 0.99),
            },
        })
    }

    /// Of durations, in seconds.
    #[must_use]
    pub fn of_durations(samples: impl Iterator<Item = Duration>) -> Option<Self> {
        Self::of(samples.map(|sample| sample.as_secs_f64()).collect())
    }

    /// Names of the percentiles that rest on fewer than `1 / (1 - q)` samples: P95 below 20, P99 below 100.
    #[must_use]
    pub fn low_confidence(&self) -> Vec<&'static str> {
        let thresholds = [("p50", 2), ("p95", 20), ("p99", 100)];
        thresholds.iter().filter(|(_, needed)| self.count < *needed).map(|(name, _)| *name).collect()
    }
}

/// The `q`-quantile (0 to 1) of ascending samples: linear interpolation between the two nearest ranks at
/// `q * (n - 1)`, as `numpy.percentile` does by default. `None` when there are none.
#[must_use]
pub fn percentile(ascending: &[f64], q: f64) -> Option<f64> {
    let last = ascending.len().checked_sub(1)?;
    let rank = q.clamp(0.0, 1.0) * last as f64;
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rank lies within the slice's indices"
    )]
    let below = rank.floor() as usize;
    let low = ascending.get(below)?;
    let high = ascending.get((below + 1).min(last))?;
    Some(low + (high - low) * (rank - below as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpolates_as_numpy_does() {
        // numpy.percentile([1, 2, 3, 4], [0, 25, 50, 95, 99, 100])
        let samples = [1.0, 2.0, 3.0, 4.0];
        for (q, expect) in [(0.0, 1.0), (0.25, 1.75), (0.5, 2.5), (0.95, 3.85), (0.99, 3.97), (1.0, 4.0)] {
            assert!((percentile(&samples, q).unwrap() - expect).abs() < 1e-12, "q {q}");
        }
        assert_eq!(percentile(&[7.0], 0.99), Some(7.0));
        assert_eq!(percentile(&[], 0.5), None);
    }

    #[test]
    fn says_which_percentiles_rest_on_too_few_samples() {
        let names = |n: usize| Percentiles::of(vec![1.0; n]).unwrap().low_confidence();
        assert_eq!(names(1), ["p50", "p95", "p99"]);
        assert_eq!(names(19), ["p95", "p99"]);
        assert_eq!(names(20), ["p99"]);
        assert_eq!(names(99), ["p99"]);
        assert!(names(100).is_empty());
        assert_eq!(Percentiles::of(vec![]), None);
    }
}
