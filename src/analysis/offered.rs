//! What became of an open loop's schedule: whether the target answers as fast as requests arrive, and what rate it
//! carries.
//!
//! Nothing here asks how many requests are in flight: in an open loop that is a result, not a setting.

use std::time::Duration;

use super::{
    Capacity, Knee, LevelSummary, Percentiles, Sample,
    knee::{FAILURES_MAX, SAFE_SHARE, meets, strained},
    wilson,
};
use crate::{
    arrivals::{Arrivals, Rate},
    config::Objectives,
};

/// A target falls behind when each second of arrivals lengthens a request by more than this: answers come at less than
/// 1 / (1 + 0.05) of the rate.
const GROWTH_MAX: f64 = 0.05;
/// Poisson arrivals come in clumps: over n of them the rate itself is off by 1 / sqrt(n), here twice that.
const CLUMPS: f64 = 2.0;
/// Early and late requests that are compared: a quarter of all, each.
const PARTS: usize = 4;

/// What was offered at a level, and what became of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Offered {
    /// At which rate.
    pub rate: Rate,
    /// How arrivals were spaced.
    pub arrivals: Arrivals,
    /// Arrivals that were not sent because as many requests as may be were in flight.
    pub overflow: u32,
    /// Seconds by which each second of arrivals lengthened a request: 0 in a steady state; where one server is kept busy,
    /// the offered rate over its capacity, less 1.
    pub growth: Option<f64>,
    /// Whether answers came as fast as requests; `None` when that cannot be told.
    pub keeps_up: Option<bool>,
    /// How late requests left, seconds, 95th percentile.
    pub late_p95_seconds: Option<f64>,
}

impl Offered {
    /// Of a level's samples.
    #[must_use]
    pub fn of(rate: Rate, arrivals: Arrivals, overflow: u32, samples: &[Sample]) -> Self {
        let mut measured: Vec<&Sample> = samples.iter().filter(|sample| sample.measured).collect();
        measured.sort_by_key(|sample| sample.started);
        let late = Percentiles::of_durations(measured.iter().filter_map(|sample| sample.late));
        let trend = Trend::of(&measured);
        let clumps = match arrivals {
            Arrivals::Poisson => CLUMPS / (measured.len().max(1) as f64).sqrt(),
            Arrivals::Constant => 0.0,
        };
        Self {
            rate,
            arrivals,
            overflow,
            growth: trend.map(|trend| trend.growth),
            keeps_up: trend.and_then(|trend| trend.keeps_up(clumps)),
            late_p95_seconds: late.map(|late| late.p95),
        }
    }
}

/// How the duration of requests grows with the time of their arrival, and between which bounds.
#[derive(Clone, Copy)]
struct Trend {
    growth: f64,
    low: Option<f64>,
    high: Option<f64>,
}

impl Trend {
    /// From the median durations of the first and the last quarter of those that were answered. In a queue that is
    /// served at rate m while requests come at rate r > m, the k-th waits k (1/m - 1/r), and comes at k/r: it grows by
    /// r/m - 1 seconds a second.
    fn of(measured: &[&Sample]) -> Option<Self> {
        let answered: Vec<&&Sample> = measured.iter().filter(|sample| sample.answered).collect();
        let part = answered.len() / PARTS;
        let (early, late) = (answered.get(..part)?, answered.get(answered.len() - part..)?);
        let durations = |part: &[&&Sample]| Percentiles::of_durations(part.iter().map(|s| s.duration));
        let middle = |part: &[&&Sample]| {
            part.iter().map(|sample| sample.started).sum::<Duration>().as_secs_f64()
                / part.len().max(1) as f64
        };
        let (before, after) = (durations(early)?, durations(late)?);
        let span = middle(late) - middle(early);
        if span <= 0.0 {
            return None;
        }
        let (before_bounds, after_bounds) = (before.intervals.p50, after.intervals.p50);
        let between = |from: Option<f64>, to: Option<f64>| Some((to? - from?) / span);
        Some(Self {
            growth: (after.p50 - before.p50) / span,
            low: between(before_bounds.high, after_bounds.low),
            high: between(before_bounds.low, after_bounds.high),
        })
    }

    /// `chance`: growth that the arrivals alone may have made.
    fn keeps_up(self, chance: f64) -> Option<bool> {
        if self.low? > GROWTH_MAX + chance {
            return Some(false);
        }
        (self.high? <= GROWTH_MAX).then_some(true)
    }
}

/// The capacity of a ladder of rates; `None` when it is one of concurrencies.
pub(super) fn capacity(levels: &[LevelSummary], objectives: &Objectives) -> Option<Capacity> {
    levels.iter().any(|level| level.offered.is_some()).then(|| {
        let knee = knee(levels);
        Capacity {
            knee,
            decided: None,
            safe_concurrency: None,
            safe_rate: knee.rate().and_then(|knee| safe(levels, knee, objectives)),
            scaling: None,
        }
    })
}

/// The last rate that was carried before the first that surely was not.
fn knee(levels: &[LevelSummary]) -> Knee {
    if levels.iter().all(|level| level.ok == 0) {
        return Knee::Failed;
    }
    let beyond = levels.iter().position(|level| falls_behind(level) || fails(level));
    let below = levels.get(..beyond.unwrap_or(levels.len())).unwrap_or_default();
    let is_sound = |level: &LevelSummary| {
        level.client_saturated != Some(true) && level.offered.is_some_and(|offered| offered.overflow == 0)
    };
    let decides = beyond.and_then(|beyond| levels.get(beyond));
    if !below.iter().all(is_sound) || decides.is_some_and(|level| level.client_saturated == Some(true)) {
        return Knee::Unstable;
    }
    match (decides, below.last().and_then(LevelSummary::rate)) {
        (None, _) => Knee::NotReached,
        (Some(_), Some(rate)) => Knee::AtRate(rate),
        // Even the lowest rate is too much.
        (Some(_), None) => Knee::Unstable,
    }
}

/// 70% of the knee at most, and no higher than the last rate up to which every objective is met.
fn safe(levels: &[LevelSummary], knee: Rate, objectives: &Objectives) -> Option<Rate> {
    let good = levels.iter().take_while(|level| meets(level, objectives)).last()?.rate()?;
    Some(knee.share(SAFE_SHARE)?.min(good))
}

/// Whether requests surely came faster than they were answered.
pub(super) fn falls_behind(level: &LevelSummary) -> bool {
    level.offered.is_some_and(|offered| offered.keeps_up == Some(false))
}

/// Whether requests surely fail because of the load.
fn fails(level: &LevelSummary) -> bool {
    wilson(strained(level), level.requests).is_some_and(|ratio| ratio.is_above(FAILURES_MAX))
}
