//! Comparison by rank: Mann-Whitney's test, Cliff's delta, and the Hodges-Lehmann shift with its interval.
//!
//! What is known of each side's dependence between samples widens the interval and weakens the test.

use super::distribution::Distribution;

/// Values of each side that all differences are made of.
const POINTS_MAX: u32 = 64;
/// Standard deviations on either side of the middle that hold 95%.
const Z_95: f64 = 1.959_963_985;

/// What the test says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct RankTest {
    /// Probability of ranks this uneven between equals.
    pub(super) p_value: f64,
    /// Cliff's delta: -1 when every sample after is smaller, 1 when every one is larger.
    pub(super) effect: f64,
    /// How many standard deviations lie between the ranks and those of equals; positive when those after are larger.
    pub(super) z: f64,
}

/// By how much the samples after are larger.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Shift {
    pub(super) middle: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

pub(super) fn mann_whitney(before: &Distribution, after: &Distribution) -> RankTest {
    let (count_before, count_after) = (before.count() as f64, after.count() as f64);
    let (total, comparisons) = (count_before + count_after, count_before * count_after);
    let (mut wins, mut ties, mut below) = (0.0, 0.0, 0.0);
    for (from_before, from_after) in Merge::new(before, after) {
        wins += from_after * (below + from_before / 2.0);
        below += from_before;
        let equal = from_before + from_after;
        ties += equal * equal * equal - equal;
    }
    let effect = 2.0 * wins / comparisons - 1.0;
    let variance = comparisons / 12.0 * (total + 1.0 - ties / (total * (total - 1.0)).max(1.0));
    if variance <= 0.0 {
        return RankTest { p_value: 1.0, effect, z: 0.0 };
    }
    // Half a rank for the step from a count to a curve.
    let distance = ((wins - comparisons / 2.0).abs() - 0.5).max(0.0);
    let worth = worth(before.independent(), after.independent()) / worth(count_before, count_after);
    let z = distance / variance.sqrt() * worth.min(1.0).sqrt();
    RankTest { p_value: two_sided(z), effect, z: z.copysign(effect) }
}

/// How much two samples of these sizes tell: the inverse of the variance of the share of wins, but for a constant.
pub(super) fn worth(before: f64, after: f64) -> f64 {
    before * after / (before + after + 1.0)
}

pub(super) fn shift(before: &Distribution, after: &Distribution) -> Shift {
    let (before_points, after_points) = (before.points(POINTS_MAX), after.points(POINTS_MAX));
    let mut differences: Vec<f64> = after_points
        .iter()
        .flat_map(|after| before_points.iter().map(move |before| after - before))
        .collect();
    let width = (Z_95 / (12.0 * worth(before.independent(), after.independent())).sqrt()).min(0.5);
    let mut at = |share: f64| nth(&mut differences, share);
    Shift { middle: at(0.5), low: at(0.5 - width), high: at(0.5 + width) }
}

/// The value below which a share of them lies.
fn nth(values: &mut [f64], share: f64) -> f64 {
    let last = values.len().saturating_sub(1);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of an index is one")]
    let index = ((share * last as f64).round() as usize).min(last);
    if values.is_empty() {
        return 0.0;
    }
    *values.select_nth_unstable_by(index, f64::total_cmp).1
}

/// Equal values of both sides together, ascending: how many of each.
struct Merge<'a> {
    before: &'a [(f64, u32)],
    after: &'a [(f64, u32)],
}

impl<'a> Merge<'a> {
    fn new(before: &'a Distribution, after: &'a Distribution) -> Self {
        Self { before: before.values(), after: after.values() }
    }
}

impl Iterator for Merge<'_> {
    type Item = (f64, f64);

    fn next(&mut self) -> Option<(f64, f64)> {
        let value = match (self.before.first(), self.after.first()) {
            (Some((before, _)), Some((after, _))) => before.min(*after),
            (Some((value, _)), None) | (None, Some((value, _))) => *value,
            (None, None) => return None,
        };
        Some((take(&mut self.before, value), take(&mut self.after, value)))
    }
}

fn take(values: &mut &[(f64, u32)], value: f64) -> f64 {
    let mut count = 0.0;
    while let Some(((_, more), rest)) = values.split_first().filter(|((first, _), _)| *first <= value) {
        count += f64::from(*more);
        *values = rest;
    }
    count
}

/// Probability that a normal variable lies this many standard deviations or more from its middle.
pub(super) fn two_sided(z: f64) -> f64 {
    erfc(z / std::f64::consts::SQRT_2).min(1.0)
}

/// The complementary error function of a number that is not negative, to 1.2e-7 of its value (Numerical Recipes).
fn erfc(x: f64) -> f64 {
    const COEFFICIENTS: [f64; 10] = [
        -1.265_512_23,
        1.000_023_68,
        0.374_091_96,
        0.096_784_18,
        -0.186_288_06,
        0.278_868_07,
        -1.135_203_98,
        1.488_515_87,
        -0.822_152_23,
        0.170_872_77,
    ];
    let t = 1.0 / (1.0 + 0.5 * x);
    let sum = COEFFICIENTS.iter().rev().fold(0.0, |sum, coefficient| sum * t + coefficient);
    t * (sum - x * x).exp()
}
