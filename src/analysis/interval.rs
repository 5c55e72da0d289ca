//! How sure a number is: 95% intervals of percentiles and of ratios.
//!
//! Exact where it can be: a percentile's interval comes from the binomial distribution of ranks and asks nothing of
//! the samples' own distribution. Knows nothing of levels.

/// 97.5% quantile of the normal distribution: both sides together leave 5% out.
pub(super) const Z: f64 = 1.959_964;
/// What an interval leaves out on either side.
const TAIL: f64 = 0.025;

/// A 95% interval. A side is `None` where the samples do not bound it: the P99 of 40 samples has no upper bound.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Interval {
    /// Lower bound.
    pub low: Option<f64>,
    /// Upper bound.
    pub high: Option<f64>,
}

impl Interval {
    /// Bounded on both sides.
    #[must_use]
    pub fn new(low: f64, high: f64) -> Self {
        Self { low: Some(low), high: Some(high) }
    }

    /// Whether all of it lies above `value`.
    #[must_use]
    pub fn is_above(self, value: f64) -> bool {
        self.low.is_some_and(|low| low > value)
    }

    /// Whether all of it lies below `value`.
    #[must_use]
    pub fn is_below(self, value: f64) -> bool {
        self.high.is_some_and(|high| high < value)
    }
}

/// The interval of the `q`-quantile that `ascending` samples support, by order statistics: it holds the true quantile
/// in at least 95 of 100 levels whatever the distribution.
#[must_use]
pub fn of_quantile(ascending: &[f64], q: f64) -> Interval {
    let (low, high) = ranks(ascending.len(), q);
    let at = |rank: Option<usize>| rank.and_then(|rank| ascending.get(rank)).copied();
    Interval { low: at(low), high: at(high) }
}

/// The indices between which the quantile lies. Of `n` samples a binomial number falls below the quantile: the
/// sample at an index is below it unless at most `index` samples are.
fn ranks(n: usize, q: f64) -> (Option<usize>, Option<usize>) {
    let q = q.clamp(f64::EPSILON, 1.0 - f64::EPSILON);
    let odds = (q / (1.0 - q)).ln();
    // In logarithms: 0.01 to the power of a thousand samples is no longer a number.
    let mut ln_mass = n as f64 * (1.0 - q).ln();
    let mut below = 0.0;
    let (mut low, mut high) = (None, None);
    for count in 0..=n {
        if below <= TAIL && count > 0 {
            low = Some(count - 1);
        }
        below += ln_mass.exp();
        if high.is_none() && below >= 1.0 - TAIL && count < n {
            high = Some(count);
        }
        ln_mass += ((n - count) as f64).ln() - ((count + 1) as f64).ln() + odds;
    }
    (low, high)
}

/// Wilson's interval of a ratio: honest at 0 and 1, and with few trials. `None` without trials.
#[must_use]
pub fn wilson(hits: u32, trials: u32) -> Option<Interval> {
    if trials == 0 {
        return None;
    }
    let (n, ratio) = (f64::from(trials), f64::from(hits) / f64::from(trials));
    let scale = 1.0 + Z * Z / n;
    let centre = (ratio + Z * Z / (2.0 * n)) / scale;
    let half = Z * (ratio * (1.0 - ratio) / n + Z * Z / (4.0 * n * n)).sqrt() / scale;
    Some(Interval::new((centre - half).max(0.0), (centre + half).min(1.0)))
}

/// By how much the normal quantile must be widened when the spread itself was estimated from so few values:
/// Student's t over the normal quantile (Cornish and Fisher's expansion).
#[must_use]
pub(super) fn few_samples_factor(degrees_of_freedom: usize) -> f64 {
    if degrees_of_freedom == 0 {
        return f64::INFINITY;
    }
    let nu = degrees_of_freedom as f64;
    let (z3, z5) = (Z.powi(3), Z.powi(5));
    let t = Z + (z3 + Z) / (4.0 * nu) + (5.0f64.mul_add(z5, 16.0 * z3) + 3.0 * Z) / (96.0 * nu * nu);
    t / Z
}
