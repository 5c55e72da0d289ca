//! Intervals, Little's law, the spread of throughput.

use super::{ms, probe};
use crate::analysis::{
    FullWindow, Interval, LevelSummary, Percentiles, Sample,
    interval::{few_samples_factor, of_quantile},
    summarize, wilson,
};

fn check_ranks(n: u32, q: f64, low: Option<f64>, high: Option<f64>) {
    // The samples are their own ranks, from 1.
    let samples: Vec<f64> = (1..=n).map(f64::from).collect();
    assert_eq!(of_quantile(&samples, q), Interval { low, high }, "n {n} q {q}");
}

#[test]
fn intervals_of_percentiles_are_the_textbooks_ranks() {
    // Tables of the binomial distribution, two tails of at most 2.5% each.
    check_ranks(40, 0.50, Some(14.0), Some(27.0));
    check_ranks(10, 0.50, Some(2.0), Some(9.0));
    check_ranks(6, 0.50, Some(1.0), Some(6.0));
    check_ranks(5, 0.50, None, None);
    check_ranks(100, 0.95, Some(90.0), Some(100.0));
    // The P99 of 40 samples has no upper bound, and that of 1000 has.
    check_ranks(40, 0.99, Some(38.0), None);
    check_ranks(40, 0.95, Some(35.0), None);
    check_ranks(1000, 0.99, Some(983.0), Some(997.0));
    check_ranks(0, 0.5, None, None);
    check_ranks(100_000, 0.99, Some(98_938.0), Some(99_062.0));
}

#[test]
fn an_interval_holds_the_true_percentile_at_least_as_often_as_it_says() {
    let mut random = fastrand::Rng::with_seed(7);
    for (n, q) in [(8, 0.5), (40, 0.5), (40, 0.95), (200, 0.95), (200, 0.99)] {
        let runs = 2_000;
        let held = (0..runs).filter(|_| {
            let mut samples: Vec<f64> = (0..n).map(|_| random.f64()).collect();
            samples.sort_by(f64::total_cmp);
            // Of uniform samples the q-quantile is q.
            let interval = of_quantile(&samples, q);
            interval.low.is_none_or(|low| low <= q) && interval.high.is_none_or(|high| q <= high)
        });
        let rate = held.count() as f64 / f64::from(runs);
        println!("n {n} q {q}: held in {:.1}%", rate * 100.0);
        assert!(rate >= 0.94, "n {n} q {q}: {rate}");
    }
}

#[test]
fn percentiles_carry_their_intervals() {
    let p = Percentiles::of((1..=40).map(f64::from).collect()).unwrap();
    assert_eq!(p.intervals.p50, Interval::new(14.0, 27.0));
    assert_eq!(p.intervals.p99.high, None);
    assert!(p.intervals.p99.is_above(37.0) && !p.intervals.p99.is_below(1e9));
}

#[test]
fn a_ratio_is_known_by_its_trials() {
    let check = |hits, trials, low: f64, high: f64| {
        let Interval { low: Some(l), high: Some(h) } = wilson(hits, trials).unwrap() else { panic!() };
        assert!((l - low).abs() < 5e-4 && (h - high).abs() < 5e-4, "{hits}/{trials}: {l} {h}");
    };
    check(0, 40, 0.0, 0.0876);
    check(1, 8, 0.0224, 0.4709);
    check(5, 10, 0.2366, 0.7634);
    check(8, 8, 0.6756, 1.0);
    assert_eq!(wilson(0, 0), None);
}

#[test]
fn few_samples_widen() {
    // Student's t of 3, 9 and 19 degrees of freedom is 3.182, 2.262 and 2.093.
    for (degrees, t) in [(3, 3.182), (9, 2.262), (19, 2.093)] {
        assert!((few_samples_factor(degrees) * 1.959_964 / t - 1.0).abs() < 0.05, "{degrees}");
    }
    assert!(few_samples_factor(0).is_infinite());
}

/// Workers that send requests back to back, with `idle` between them; lengths vary by the noise.
fn closed_loop(concurrency: u32, rounds: u64, length: u64, idle: u64, noise: f64) -> LevelSummary {
    let mut random = fastrand::Rng::with_seed(3);
    let mut samples = Vec::new();
    for worker in 0..concurrency {
        let mut at = u64::from(worker) * length / u64::from(concurrency);
        for round in 0..=rounds {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a test's length")]
            let took = (length as f64 * (1.0 + noise * (2.0 * random.f64() - 1.0))) as u64;
            samples.push(Sample::of(&probe(took / 10, took, 50), ms(at), round > 0));
            at += took + idle;
        }
    }
    let window = FullWindow { from: ms(length), to: ms(length * rounds) };
    summarize(concurrency, &samples, Some(window), None, false)
}

#[test]
fn littles_law_tells_a_full_level_from_one_with_holes() {
    let check = |concurrency, rounds, idle, expect: Option<bool>| {
        let little = closed_loop(concurrency, rounds, 1000, idle, 0.05).little;
        assert_eq!(little.map(|little| little.holds), expect, "{concurrency} {rounds} {idle}: {little:?}");
    };
    check(1, 10, 0, Some(true));
    check(8, 10, 0, Some(true));
    check(16, 5, 0, Some(true));
    // Half of the time nothing was in flight.
    check(8, 20, 1000, Some(false));
    check(1, 20, 1000, Some(false));
    // Too short to tell.
    check(8, 1, 0, None);
}

#[test]
fn the_spread_of_throughput_covers_what_another_run_would_give() {
    // 8 workers, 40 requests, lengths within 30%: what do 400 runs differ by, and what does each say it may?
    let mut random = fastrand::Rng::with_seed(11);
    let run = |random: &mut fastrand::Rng| {
        let mut samples = Vec::new();
        for worker in 0..8_u32 {
            let mut at = f64::from(worker) * 125.0;
            for round in 0..8 {
                let took = 1000.0 * (0.7 + 0.6 * random.f64());
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a test's length")]
                let (start, length) = (at as u64, took as u64);
                samples.push(Sample::of(&probe(length / 10, length, 50), ms(start), round > 0));
                at += took;
            }
        }
        let window = FullWindow { from: ms(1300), to: ms(6000) };
        let summary = summarize(8, &samples, Some(window), None, false);
        (summary.throughput_tokens_per_second.unwrap(), summary.throughput_standard_error.unwrap())
    };
    let runs: Vec<(f64, f64)> = (0..400).map(|_| run(&mut random)).collect();
    let mean = runs.iter().map(|(tps, _)| tps).sum::<f64>() / 400.0;
    let deviation = (runs.iter().map(|(tps, _)| (tps - mean).powi(2)).sum::<f64>() / 400.0).sqrt();
    let covered = runs.iter().filter(|(tps, error)| (tps - mean).abs() <= 1.96 * error).count();
    let said = runs.iter().map(|(_, error)| error).sum::<f64>() / 400.0;
    println!("throughput {mean:.1}, true error {deviation:.2}, said {said:.2}, covered {covered} of 400");
    assert!(covered >= 360, "{covered} of 400");
    assert!(said < 4.0 * deviation, "said {said}, true {deviation}");
}
