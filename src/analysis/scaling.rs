//! The Universal Scalability Law fitted to a ladder: what it says of contention, coherency and the predicted peak.
//!
//! `X(n) = gamma n / (1 + sigma (n - 1) + kappa n (n - 1))`: sigma is the share of work that cannot be done at the
//! same time, kappa what workers cost one another. Reported beside the knee; it never decides that there is one.

use super::LevelSummary;

/// Fewer levels than this leave the three parameters undetermined.
const LEVELS_MIN: usize = 4;

/// The fitted law.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scaling {
    /// Throughput of one request at a time, tokens per second.
    pub gamma: f64,
    /// Contention.
    pub contention: f64,
    /// Coherency.
    pub coherency: f64,
    /// The concurrency at which throughput peaks; `None` when it never does.
    pub peak_concurrency: Option<f64>,
    /// Throughput there, tokens per second; the limit of growth when there is no peak.
    pub peak_throughput: Option<f64>,
    /// Share of the throughputs' variance that the law explains.
    pub r_squared: f64,
}

/// Fits the law to the levels whose throughput is known; `None` with fewer than four of them.
///
/// `n / X(n)` is a parabola in `n - 1`, so the fit is linear least squares; a negative parameter has no meaning and
/// is taken as zero, with the others fitted again. Points are weighted by `(X / n)^2`: the error of a throughput is
/// relative, and so is that of `n / X`.
#[must_use]
pub fn fit(levels: &[LevelSummary]) -> Option<Scaling> {
    let points: Vec<(f64, f64)> = levels
        .iter()
        .filter_map(|level| {
            let throughput = level.throughput_tokens_per_second.filter(|tps| *tps > 0.0)?;
            Some((f64::from(level.concurrency), throughput))
        })
        .collect();
    if points.len() < LEVELS_MIN {
        return None;
    }
    // n / X = a + b (n - 1) + c n (n - 1), with a = 1 / gamma, b = sigma / gamma, c = kappa / gamma.
    let shapes: [[bool; 2]; 4] = [[true, true], [true, false], [false, true], [false, false]];
    let best = shapes
        .into_iter()
        .filter_map(|shape| solve(&points, shape))
        .filter(|(coefficients, _)| {
            let [a, b, c] = *coefficients;
            a > 0.0 && b >= 0.0 && c >= 0.0
        })
        .min_by(|(_, left), (_, right)| left.total_cmp(right))?;
    Some(Scaling::of(best.0, &points))
}

impl Scaling {
    fn of([a, b, c]: [f64; 3], points: &[(f64, f64)]) -> Self {
        let (gamma, contention, coherency) = (1.0 / a, b / a, c / a);
        let mut scaling = Self {
            gamma,
            contention,
            coherency,
            peak_concurrency: None,
            peak_throughput: (contention > 0.0).then(|| gamma / contention),
            r_squared: 0.0,
        };
        if coherency > 0.0 && contention < 1.0 {
            let peak = ((1.0 - contention) / coherency).sqrt().max(1.0);
            scaling.peak_concurrency = Some(peak);
            scaling.peak_throughput = Some(scaling.throughput(peak));
        }
        let mean = points.iter().map(|(_, x)| x).sum::<f64>() / points.len() as f64;
        let total: f64 = points.iter().map(|(_, x)| (x - mean).powi(2)).sum();
        let left: f64 = points.iter().map(|(n, x)| (x - scaling.throughput(*n)).powi(2)).sum();
        scaling.r_squared = if total > 0.0 { 1.0 - left / total } else { 1.0 };
        scaling
    }

    /// What the law predicts at a concurrency, tokens per second.
    #[must_use]
    pub fn throughput(&self, concurrency: f64) -> f64 {
        let others = concurrency - 1.0;
        self.gamma * concurrency / (1.0 + self.contention * others + self.coherency * concurrency * others)
    }
}

/// Weighted least squares with the terms of `shape` beside the constant; also the sum of squares that is left.
fn solve(points: &[(f64, f64)], shape: [bool; 2]) -> Option<([f64; 3], f64)> {
    let [linear, square] = shape;
    let row = |n: f64| [1.0, if linear { n - 1.0 } else { 0.0 }, if square { n * (n - 1.0) } else { 0.0 }];
    let mut matrix = [[0.0; 4]; 3];
    for (n, x) in points {
        let (terms, y, weight) = (row(*n), n / x, (x / n).powi(2));
        for (equation, left) in matrix.iter_mut().zip(terms) {
            for (slot, right) in equation.iter_mut().zip(terms.into_iter().chain([y])) {
                *slot += weight * left * right;
            }
        }
    }
    // A term that is left out is pinned to zero.
    for (index, used) in [(1, linear), (2, square)] {
        if let (false, Some(slot)) = (used, matrix.get_mut(index).and_then(|row| row.get_mut(index))) {
            *slot = 1.0;
        }
    }
    let solution = eliminate(matrix)?;
    let left = points.iter().map(|(n, x)| {
        let predicted: f64 = row(*n).iter().zip(solution).map(|(term, c)| term * c).sum();
        ((predicted - n / x) * x / n).powi(2)
    });
    Some((solution, left.sum()))
}

/// Gauss and Jordan, with the largest pivot of each column; `None` when the points do not determine a solution.
fn eliminate(mut matrix: [[f64; 4]; 3]) -> Option<[f64; 3]> {
    for column in 0..3 {
        let size = |row: &usize| matrix.get(*row).and_then(|row| row.get(column)).map_or(0.0, |x| x.abs());
        let pivot = (column..3).max_by(|a, b| size(a).total_cmp(&size(b)))?;
        matrix.swap(column, pivot);
        let mut lead = *matrix.get(column)?;
        let divisor = *lead.get(column)?;
        if divisor.abs() < f64::MIN_POSITIVE {
            return None;
        }
        for x in &mut lead {
            *x /= divisor;
        }
        for (index, row) in matrix.iter_mut().enumerate() {
            let factor = row.get(column).copied().unwrap_or(0.0);
            if index == column {
                *row = lead;
            } else {
                for (x, l) in row.iter_mut().zip(lead) {
                    *x -= factor * l;
                }
            }
        }
    }
    let solution = matrix.map(|[.., y]| y);
    solution.iter().all(|x| x.is_finite()).then_some(solution)
}
