//! Knee and safe level: the golden ladder, what decides, and how often noise deceives.

use super::{level, ms};
use crate::{
    analysis::{
        Capacity, Decided, FullWindow, Knee, LevelSummary, Sample, knee, safe_concurrency, scaling, summarize,
    },
    config::Objectives,
    measurement::FailureClass,
};

/// The golden ladder: 8 requests a level, 300 output tokens.
pub(super) fn golden() -> Vec<LevelSummary> {
    vec![
        level(1, 8, 0, 436.8, 510.2),
        level(2, 8, 0, 808.0, 620.7),
        level(4, 8, 0, 1356.8, 810.3),
        level(8, 8, 0, 2028.8, 1250.6),
        level(16, 7, 1, 2284.5, 2400.9),
    ]
}

#[test]
fn the_golden_ladder_has_its_knee_at_8_and_is_safe_at_5() {
    let capacity = Capacity::of(&golden(), &Objectives::default());
    assert_eq!((capacity.knee, capacity.safe_concurrency), (Knee::Found(8), Some(5)));
    let Some(Decided::Gain { to: 16, gain, interval }) = capacity.decided else { panic!("{capacity:?}") };
    assert!((gain - 0.126).abs() < 0.001 && interval.is_below(0.3), "{gain} {interval:?}");
    let scaling = capacity.scaling.unwrap();
    println!("{scaling:?}");
    assert!(scaling.r_squared > 0.99, "{scaling:?}");
}

#[test]
fn an_objective_lowers_the_safe_level() {
    let levels = golden();
    let safe = |ttft: u64| {
        let objectives = Objectives { ttft: Some(ms(ttft)), ..Objectives::default() };
        safe_concurrency(&levels, Knee::Found(8), &objectives)
    };
    assert_eq!(safe(1300), Some(5));
    assert_eq!(safe(900), Some(4));
    assert_eq!(safe(700), Some(2));
    assert_eq!(safe(500), None);
}

#[test]
fn the_knee_says_when_it_cannot_tell() {
    assert_eq!(knee(&[]), Knee::Failed);
    assert_eq!(knee(&[level(1, 0, 8, 0.0, 0.0)]), Knee::Failed);
    assert_eq!(knee(&golden()[..1]), Knee::NotReached);
    assert_eq!(knee(&golden()[..3]), Knee::NotReached);
    let mut unknown = golden();
    unknown[1].throughput_tokens_per_second = None;
    assert_eq!(knee(&unknown), Knee::Unstable);
    assert_eq!(safe_concurrency(&golden()[..3], Knee::NotReached, &Objectives::default()), None);
    // The last gain is small, yet so uncertain that it may be large.
    let mut uncertain = golden();
    uncertain[4].throughput_standard_error = Some(500.0);
    assert_eq!(knee(&uncertain), Knee::Unstable);
    // One more level settles it.
    uncertain.push(level(32, 8, 0, 2300.0, 5000.0));
    assert_eq!(knee(&uncertain), Knee::Found(8));
}

#[test]
fn a_level_that_was_low_by_chance_is_no_knee_when_the_climb_goes_on() {
    let mut dip = golden();
    dip[2].throughput_tokens_per_second = Some(850.0);
    assert_eq!(knee(&dip[..3]), Knee::Found(2));
    assert_eq!(knee(&dip[..4]), Knee::NotReached);
    assert_eq!(knee(&dip), Knee::Found(8));
}

#[test]
fn failures_decide_when_throughput_does_not() {
    let ladder = |failures: u32, class: FailureClass| {
        let mut last = level(4, 8 - failures, failures, 300.0, 1.0);
        last.failures.insert(class, failures);
        vec![level(1, 8, 0, 100.0, 1.0), level(2, 8, 0, 200.0, 1.0), last]
    };
    let check = |failures, class, expect| {
        assert_eq!(knee(&ladder(failures, class)), expect, "{failures} {class}");
    };
    check(4, FailureClass::Timeout, Knee::Found(2));
    check(8, FailureClass::RateLimited, Knee::Found(2));
    // One of eight may be chance.
    check(1, FailureClass::Timeout, Knee::NotReached);
    // A key that was withdrawn says nothing about capacity.
    check(4, FailureClass::Auth, Knee::NotReached);
    check(8, FailureClass::Auth, Knee::Unstable);
    let capacity = Capacity::of(&ladder(4, FailureClass::Timeout), &Objectives::default());
    assert_eq!(capacity.decided, Some(Decided::Failures { to: 4, ratio: 0.5 }));
}

#[test]
fn latency_decides_when_nothing_else_does() {
    let mut levels = golden()[..4].to_vec();
    let ttft = levels[3].ttft_seconds.as_mut().unwrap();
    ttft.intervals.p95.low = Some(1.2);
    let check = |ttft: u64, expect| {
        let objectives = Objectives { ttft: Some(ms(ttft)), ..Objectives::default() };
        let capacity = Capacity::of(&levels, &objectives);
        assert_eq!((capacity.knee, capacity.safe_concurrency), expect, "{ttft}");
    };
    check(900, (Knee::Found(4), Some(2)));
    // The objective lies within what the level's P95 may be.
    check(1210, (Knee::NotReached, None));
    // Missed from the start.
    check(300, (Knee::NotReached, None));
}

#[test]
fn the_scalability_law_is_found_again_and_needs_four_levels() {
    let throughput = |n: f64| 50.0 * n / (1.0 + 0.05 * (n - 1.0) + 0.002 * n * (n - 1.0));
    let levels: Vec<_> = [1, 2, 4, 8, 16, 32].map(|n| level(n, 40, 0, throughput(f64::from(n)), 1.0)).into();
    let law = scaling::fit(&levels).unwrap();
    assert!((law.gamma - 50.0).abs() < 1e-6 && (law.contention - 0.05).abs() < 1e-9);
    assert!((law.coherency - 0.002).abs() < 1e-9 && law.r_squared > 0.999_999);
    assert!((law.peak_concurrency.unwrap() - (0.95_f64 / 0.002).sqrt()).abs() < 1e-6);
    assert!(scaling::fit(&levels[..3]).is_none());
    // Linear growth: no contention, no peak, nothing negative.
    let linear: Vec<_> = [1, 2, 4, 8].map(|n| level(n, 40, 0, 50.0 * f64::from(n), 1.0)).into();
    let law = scaling::fit(&linear).unwrap();
    assert!(law.contention.abs() < 1e-9 && law.coherency.abs() < 1e-9, "{law:?}");
    assert_eq!(law.peak_concurrency, None);
}

const CONCURRENCY: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

/// An engine: how long a request of 64 tokens takes with `n` in flight, seconds.
#[derive(Clone, Copy, Debug)]
enum Engine {
    /// All are served alike up to the slots; the rest wait.
    Slots(f64),
    /// Each further one slows all by a share of the whole.
    Contention(f64),
    /// Throughput falls behind the peak.
    Retrograde(f64),
    /// Never slows.
    Linear,
}

impl Engine {
    fn seconds(self, n: f64) -> f64 {
        match self {
            Self::Slots(slots) => (n / slots).max(1.0),
            Self::Contention(share) => 1.0 + share * (n - 1.0),
            Self::Retrograde(slots) => (n / slots).max(1.0).powf(1.3),
            Self::Linear => 1.0,
        }
    }

    /// The knee of the noiseless ladder.
    fn truth(self) -> Option<u32> {
        let gain = |low: u32, high: u32| {
            let (l, h) = (f64::from(low), f64::from(high));
            (h / self.seconds(h) / (l / self.seconds(l)) - 1.0) / (h / l - 1.0)
        };
        let pair = CONCURRENCY.windows(2).find(|pair| gain(pair[0], pair[1]) < 0.3)?;
        Some(pair[0])
    }
}

pub(super) fn normal(random: &mut fastrand::Rng) -> f64 {
    (-2.0 * random.f64().max(1e-12).ln()).sqrt() * (std::f64::consts::TAU * random.f64()).cos()
}

/// A ladder of measured levels, from samples: each request's length varies by `noise`, each level as a whole by
/// `drift`.
fn ladder(
    concurrency: &[u32],
    engine: Engine,
    noise: f64,
    drift: f64,
    requests: u32,
    seed: u64,
) -> Vec<LevelSummary> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut run = |n: u32| {
        let length = engine.seconds(f64::from(n)) * (drift * normal(&mut random)).exp();
        let mut samples = Vec::new();
        let mut free: Vec<f64> = (0..n).map(|worker| f64::from(worker) / f64::from(n) * length).collect();
        let from = length;
        let (mut left, mut drained) = (requests, None);
        loop {
            let worker = (0..free.len()).min_by(|a, b| free[*a].total_cmp(&free[*b])).unwrap();
            let start = free[worker];
            if start >= from && left == 0 {
                drained.get_or_insert(start);
            }
            if drained.is_some_and(|drained| start > drained + length) {
                break;
            }
            let measured = start >= from && left > 0;
            left -= u32::from(measured);
            let took = length * (noise * normal(&mut random)).exp();
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds to micros")]
            let micros = |seconds: f64| std::time::Duration::from_micros((seconds * 1e6) as u64);
            let mut measurement = super::probe(0, 1, 64);
            measurement.timeline.first_answer_token = Some(micros(took * 0.2));
            measurement.timeline.last_token = Some(micros(took));
            measurement.timeline.end = micros(took);
            samples.push(Sample::of(&measurement, micros(start), measured));
            free[worker] = start + took;
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds to millis")]
        let at = |seconds: f64| ms((seconds * 1e3) as u64);
        let window = FullWindow { from: at(from), to: at(drained.unwrap()) };
        summarize(n, &samples, Some(window), None, false)
    };
    concurrency.iter().map(|n| run(*n)).collect()
}

#[test]
fn over_200_seeds_noise_does_not_deceive() {
    let mut worst = 1.0_f64;
    for engine in [
        Engine::Slots(8.0),
        Engine::Slots(12.0),
        Engine::Contention(0.1),
        Engine::Contention(0.3),
        Engine::Retrograde(8.0),
        Engine::Linear,
    ] {
        for (noise, drift, requests) in [(0.25, 0.03, 40), (0.25, 0.05, 16), (0.1, 0.05, 8)] {
            let near = |found: Option<u32>| match (engine.truth(), found) {
                (None, None) => true,
                (Some(truth), Some(found)) => found * 2 >= truth && found <= truth * 2,
                _ => false,
            };
            let knees = (0..200)
                .map(|seed| knee(&ladder(&CONCURRENCY, engine, noise, drift, requests, seed)).concurrency());
            let knees: Vec<_> = knees.collect();
            let right = knees.iter().filter(|found| near(**found)).count() as f64 / 200.0;
            let exact = knees.iter().filter(|found| **found == engine.truth()).count() as f64 / 200.0;
            println!(
                "{engine:?}, truth {:?}: requests differ by {noise}, levels by {drift}, {requests} a level: \
                 within one level {:.1}%, exact {:.1}%",
                engine.truth(),
                right * 100.0,
                exact * 100.0
            );
            let wanted = if matches!(engine, Engine::Linear) { 0.98 } else { 0.95 };
            assert!(right >= wanted, "{engine:?} {noise} {drift} {requests}: {right}");
            worst = worst.min(right);
        }
    }
    println!("worst {:.1}%", worst * 100.0);
}

#[test]
fn small_steps_of_a_linear_ladder_make_no_false_knee() {
    // Small steps gain little each, and an error weighs more.
    let concurrency = [1, 2, 3, 4, 5, 6, 8, 10, 12, 16];
    for (noise, drift, requests) in [(0.1, 0.02, 40), (0.25, 0.03, 40), (0.25, 0.05, 16), (0.1, 0.05, 8)] {
        let ladder = |seed| ladder(&concurrency, Engine::Linear, noise, drift, requests, seed);
        let false_knees = (0..200).filter(|seed| knee(&ladder(*seed)).concurrency().is_some()).count();
        println!("requests differ by {noise}, levels by {drift}, {requests} a level: {false_knees} of 200");
        assert!(false_knees <= 4, "{noise} {drift} {requests}: {false_knees}");
    }
}
