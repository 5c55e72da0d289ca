//! How many independent samples a series is worth: requests that ran at the same time met the same load, and
//! resemble each other. Statistics that took them for independent would see changes where there are none.

/// Lags looked at, at most.
const LAGS_MAX: usize = 1000;

/// The number of independent samples that tells as much of the level's middle as this series, in the order in which
/// it was observed; `None` for fewer than two. Never more than the series has.
#[must_use]
pub fn independent(series: &[f64]) -> Option<f64> {
    let count = series.len();
    if count < 2 {
        return None;
    }
    let ranks = centred_ranks(series);
    let square: f64 = ranks.iter().map(|rank| rank * rank).sum();
    if square <= 0.0 {
        return Some(count as f64);
    }
    // Below this a correlation is as likely chance, and summing up chance would waste samples.
    let noise = 1.0 / (count as f64).sqrt();
    let correlations = (1..=(count / 4).min(LAGS_MAX)).map(|lag| {
        let later = ranks.iter().skip(lag);
        ranks.iter().zip(later).map(|(one, other)| one * other).sum::<f64>() / square
    });
    let sum: f64 = correlations.take_while(|correlation| *correlation > noise).sum();
    Some((count as f64 / (1.0 + 2.0 * sum)).max(1.0))
}

/// Each sample's rank, equal ones sharing theirs, minus the mean rank: one slow request must not hide the rest.
fn centred_ranks(series: &[f64]) -> Vec<f64> {
    let mut order: Vec<(f64, usize)> = series.iter().copied().zip(0..).collect();
    order.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    let middle = (series.len() as f64 - 1.0) / 2.0;
    let mut ranks = vec![0.0; series.len()];
    let mut below = 0;
    for equal in order.chunk_by(|(one, _), (other, _)| one.total_cmp(other).is_eq()) {
        let rank = below as f64 + (equal.len() as f64 - 1.0) / 2.0 - middle;
        for (_, index) in equal {
            if let Some(slot) = ranks.get_mut(*index) {
                *slot = rank;
            }
        }
        below += equal.len();
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(count: usize, correlation: f64) -> Vec<f64> {
        let mut random = fastrand::Rng::with_seed(7);
        let mut last = 0.0;
        let mut next = || {
            last = correlation * last + (1.0 - correlation * correlation).sqrt() * (random.f64() - 0.5);
            last
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn counts_what_a_series_is_worth() {
        assert_eq!(independent(&[]), None);
        assert_eq!(independent(&[1.0]), None);
        assert_eq!(independent(&[2.0, 2.0, 2.0]), Some(3.0));
        let white = independent(&noise(2000, 0.0)).unwrap();
        assert!((1800.0..=2000.0).contains(&white), "{white}");
        // (1 - r) / (1 + r) of them.
        let half = independent(&noise(20_000, 0.5)).unwrap();
        assert!((5500.0..=8000.0).contains(&half), "{half}");
        let batches: Vec<f64> = noise(100, 0.0).into_iter().flat_map(|value| [value; 8]).collect();
        let worth = independent(&batches).unwrap();
        assert!((80.0..=130.0).contains(&worth), "{worth}");
    }
}
