//! Ladders of rates: what a growing line shows, and what they must not be asked.

use super::{failed, ms, probe};
use crate::{
    analysis::{Capacity, Knee, LevelSummary, Offered, Sample, summarize},
    arrivals::{Arrivals, Rate},
    config::Objectives,
};

fn rate(text: &str) -> Rate {
    text.parse().unwrap()
}

/// A level of requests due every `gap_ms`, whose k-th takes as long as `length_ms` says.
fn offer(
    gap_ms: u64,
    requests: u64,
    arrivals: Arrivals,
    overflow: u32,
    length_ms: impl Fn(u64) -> u64,
) -> LevelSummary {
    let samples: Vec<Sample> =
        (0..requests).map(|k| Sample::of(&probe(1, length_ms(k), 5), ms(gap_ms * k), true)).collect();
    level(gap_ms, arrivals, overflow, &samples)
}

fn level(gap_ms: u64, arrivals: Arrivals, overflow: u32, samples: &[Sample]) -> LevelSummary {
    let mut summary = summarize(100, samples, None, Some(false), false);
    summary.offer(Offered::of(Rate::new(1000.0 / gap_ms as f64).unwrap(), arrivals, overflow, samples));
    summary
}

/// D/D/1: the k-th waits k (1/m - 1/r), so that the growth is r/m - 1.
fn queue(gap_ms: u64, service_ms: u64, requests: u64, arrivals: Arrivals) -> Offered {
    let length = |k| service_ms + k * service_ms.saturating_sub(gap_ms);
    offer(gap_ms, requests, arrivals, 0, length).offered.unwrap()
}

#[test]
fn the_growth_of_a_line_is_the_offered_rate_over_the_capacity_less_one() {
    for (gap, service, growth) in [(200, 250, 0.25), (100, 100, 0.0), (100, 90, 0.0), (100, 200, 1.0)] {
        let offered = queue(gap, service, 40, Arrivals::Constant);
        assert!((offered.growth.unwrap() - growth).abs() < 1e-9, "{gap} {service}: {offered:?}");
        assert_eq!(offered.keeps_up, Some(growth < 0.05), "{gap} {service}: {offered:?}");
    }
}

#[test]
fn poisson_arrivals_must_show_more_than_their_own_clumps() {
    // 25% too many: over 40 arrivals that may be chance, over 1000 not.
    assert_eq!(queue(200, 250, 40, Arrivals::Poisson).keeps_up, None);
    assert_eq!(queue(200, 250, 1000, Arrivals::Poisson).keeps_up, Some(false));
    assert_eq!(queue(200, 150, 40, Arrivals::Poisson).keeps_up, Some(true));
}

#[test]
fn too_few_requests_tell_nothing() {
    let offered = queue(200, 250, 12, Arrivals::Constant);
    assert_eq!(offered.keeps_up, None);
    assert_eq!(queue(200, 250, 3, Arrivals::Constant).growth, None);
}

#[test]
fn one_long_request_is_no_growth() {
    let offered = offer(100, 40, Arrivals::Constant, 0, |k| if k == 38 { 9000 } else { 80 }).offered.unwrap();
    assert_eq!(offered.keeps_up, Some(true));
}

fn capacity(levels: &[LevelSummary]) -> (Knee, Option<Rate>) {
    let objectives = Objectives { duration: Some(ms(400)), ..Objectives::default() };
    let capacity = Capacity::of(levels, &objectives);
    assert_eq!((capacity.safe_concurrency, capacity.decided, capacity.scaling), (None, None, None));
    (capacity.knee, capacity.safe_rate)
}

#[test]
fn the_knee_is_the_last_rate_before_the_line_grows() {
    let constant = Arrivals::Constant;
    let calm = |gap| offer(gap, 40, constant, 0, |_| 80);
    let slow = |gap| offer(gap, 40, constant, 0, |_| 500);
    let growing = |gap| offer(gap, 40, constant, 0, |k| 80 + k * gap / 3);
    assert_eq!(capacity(&[calm(1000), calm(500)]), (Knee::NotReached, None));
    let found = Knee::AtRate(rate("2/s"));
    assert_eq!(capacity(&[calm(1000), calm(500), growing(100)]), (found, Some(rate("1.4/s"))));
    // An objective that is missed lowers what is safe, not what is carried.
    assert_eq!(capacity(&[calm(1000), slow(500), growing(100)]), (found, Some(rate("1/s"))));
    assert_eq!(capacity(&[growing(500), growing(100)]), (Knee::Unstable, None));
    // Who was not sent, or measured by a machine that was too busy, shows nothing.
    let refused = offer(500, 40, constant, 3, |_| 80);
    assert_eq!(capacity(&[refused, growing(100)]), (Knee::Unstable, None));
    let busy = LevelSummary { client_saturated: Some(true), ..growing(100) };
    assert_eq!(capacity(&[calm(500), busy]), (Knee::Unstable, None));
}

#[test]
fn a_rate_at_which_requests_fail_is_not_carried() {
    let calm = offer(1000, 40, Arrivals::Constant, 0, |_| 80);
    let samples: Vec<Sample> = (0..40)
        .map(|k| Sample::of(&if k % 2 == 0 { failed(50) } else { probe(1, 80, 5) }, ms(100 * k), true))
        .collect();
    let failing = level(100, Arrivals::Constant, 0, &samples);
    assert_eq!(capacity(&[calm, failing.clone()]).0, Knee::AtRate(rate("1/s")));
    let samples: Vec<Sample> = (0..40).map(|k| Sample::of(&failed(50), ms(100 * k), true)).collect();
    assert_eq!(capacity(&[level(100, Arrivals::Constant, 0, &samples)]).0, Knee::Failed);
}
