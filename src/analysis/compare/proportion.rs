//! Comparison of shares: Fisher's exact test, Newcombe's interval, Cohen's h. A share is `(how many, of how many)`.

/// Standard deviations on either side of the middle that hold 95%.
const Z_95: f64 = 1.959_963_985;

/// Probability that equals differ as much or more (two-sided).
pub(super) fn fisher(before: (u32, u32), after: (u32, u32)) -> f64 {
    let (hits, total) = (u64::from(before.0) + u64::from(after.0), u64::from(before.1) + u64::from(after.1));
    let drawn = u64::from(after.1);
    let least = (hits + drawn).saturating_sub(total);
    let most = hits.min(drawn);
    let log_all = log_choose(total, drawn);
    let log_probability = |k: u64| log_choose(hits, k) + log_choose(total - hits, drawn - k) - log_all;
    let observed = log_probability(u64::from(after.0));
    // What is as likely as the observed but for rounding counts as such.
    let as_unlikely = (least..=most).map(log_probability).filter(|log| *log <= observed + 1e-7);
    as_unlikely.map(f64::exp).sum::<f64>().min(1.0)
}

/// The 95% interval of the difference of two shares (Newcombe's, from Wilson's of each).
pub(super) fn interval(before: (u32, u32), after: (u32, u32)) -> Option<[f64; 2]> {
    let (one, other) = (wilson(before)?, wilson(after)?);
    let difference = other.middle - one.middle;
    let below = ((other.middle - other.low).powi(2) + (one.high - one.middle).powi(2)).sqrt();
    let above = ((other.high - other.middle).powi(2) + (one.middle - one.low).powi(2)).sqrt();
    Some([difference - below, difference + above])
}

/// How far two shares are apart, -pi to pi.
pub(super) fn cohens_h(before: f64, after: f64) -> f64 {
    let angle = |share: f64| 2.0 * share.clamp(0.0, 1.0).sqrt().asin();
    angle(after) - angle(before)
}

struct Wilson {
    middle: f64,
    low: f64,
    high: f64,
}

fn wilson((hits, total): (u32, u32)) -> Option<Wilson> {
    if total == 0 {
        return None;
    }
    let (n, middle) = (f64::from(total), f64::from(hits) / f64::from(total));
    let square = Z_95 * Z_95;
    let centre = (middle + square / (2.0 * n)) / (1.0 + square / n);
    let spread = Z_95 / (1.0 + square / n) * (middle * (1.0 - middle) / n + square / (4.0 * n * n)).sqrt();
    Some(Wilson { middle, low: (centre - spread).max(0.0), high: (centre + spread).min(1.0) })
}

fn log_choose(n: u64, k: u64) -> f64 {
    log_factorial(n) - log_factorial(k) - log_factorial(n - k)
}

/// The logarithm of n! (Stirling's series, to 1e-10 and better).
fn log_factorial(n: u64) -> f64 {
    if n < 20 {
        return (2..=n).map(|factor| (factor as f64).ln()).sum();
    }
    let x = n as f64 + 1.0;
    let series = 1.0 / (12.0 * x) - 1.0 / (360.0 * x.powi(3)) + 1.0 / (1260.0 * x.powi(5));
    (x - 0.5) * x.ln() - x + 0.5 * (2.0 * std::f64::consts::PI).ln() + series
}
