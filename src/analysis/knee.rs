//! Where a ladder's throughput stops growing, and how much load is safe.
//!
//! Every conclusion carries its uncertainty: a knee is declared when the evidence supports it, and otherwise the
//! answer is that it was not reached, or that one cannot tell. Knows nothing of how levels are measured.

use std::time::Duration;

use super::{
    Interval, LevelSummary, Percentiles, offered,
    scaling::{Scaling, fit},
};
use crate::{arrivals::Rate, config::Objectives, measurement::FailureClass};

/// Gain in total TPS per relative increase of concurrency below which more load no longer pays.
pub(super) const GAIN_MIN: f64 = 0.3;
/// Share of the knee's concurrency that is safe to run at.
pub(super) const SAFE_SHARE: f64 = 0.7;
/// What a level's throughput differs by when it is run again, however steady it looked: no error is smaller.
const REPEAT_ERROR: f64 = 0.02;
/// What a prober that was too busy may have cost a level's throughput.
const SATURATED_ERROR: f64 = 0.1;
/// Normal quantile that leaves 5% out on one side: the question is only whether the gain is too small.
const ONE_SIDED: f64 = 1.645;
/// Failures are rising when a level surely has more than this share of them.
pub(super) const FAILURES_MAX: f64 = 0.05;

/// What a ladder says about capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Knee {
    /// The last concurrency at which more load still brought more throughput.
    Found(u32),
    /// The last rate that was carried, in a ladder of rates.
    AtRate(Rate),
    /// Throughput was still growing at the highest level; the highest rate was carried.
    NotReached,
    /// Too little is known: a level is missing, never full or not steady, or the gain is too uncertain.
    Unstable,
    /// No level succeeded.
    Failed,
}

impl Knee {
    /// The label value and JSON name of the state.
    #[must_use]
    pub fn state(self) -> &'static str {
        match self {
            Self::Found(_) | Self::AtRate(_) => "found",
            Self::NotReached => "not_reached",
            Self::Unstable => "unstable",
            Self::Failed => "failed",
        }
    }

    /// The knee's concurrency when it was found.
    #[must_use]
    pub fn concurrency(self) -> Option<u32> {
        match self {
            Self::Found(concurrency) => Some(concurrency),
            Self::AtRate(_) | Self::NotReached | Self::Unstable | Self::Failed => None,
        }
    }

    /// The knee's rate when it was found in a ladder of rates.
    #[must_use]
    pub fn rate(self) -> Option<Rate> {
        match self {
            Self::AtRate(rate) => Some(rate),
            Self::Found(_) | Self::NotReached | Self::Unstable | Self::Failed => None,
        }
    }
}

/// What decided that a knee was found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Decided {
    /// Throughput gained too little from here to the level of this concurrency.
    Gain {
        /// The later level.
        to: u32,
        /// Gain in total TPS per relative increase of concurrency.
        gain: f64,
        /// Where the true gain lies (90%, so that each side leaves out 5%).
        interval: Interval,
    },
    /// At the level of this concurrency requests began to fail.
    Failures {
        /// The later level.
        to: u32,
        /// Share of its requests that failed because of the load.
        ratio: f64,
    },
    /// At the level of this concurrency the objectives were surely missed, though throughput still grew.
    Latency {
        /// The later level.
        to: u32,
    },
}

/// A ladder's capacity, with the evidence.
#[derive(Debug, Clone, PartialEq)]
pub struct Capacity {
    /// Where throughput stops growing.
    pub knee: Knee,
    /// Why there; `None` unless it was found.
    pub decided: Option<Decided>,
    /// The load that is safe.
    pub safe_concurrency: Option<u32>,
    /// The rate that is safe, in a ladder of rates.
    pub safe_rate: Option<Rate>,
    /// The Universal Scalability Law fitted to the levels; `None` with fewer than four.
    pub scaling: Option<Scaling>,
}

impl Capacity {
    /// Of a ladder whose levels ascend.
    #[must_use]
    pub fn of(levels: &[LevelSummary], objectives: &Objectives) -> Self {
        if let Some(of_rates) = offered::capacity(levels, objectives) {
            return of_rates;
        }
        let (mut knee, mut decided) = decide(levels);
        if matches!(knee, Knee::NotReached | Knee::Unstable)
            && let Some((at, to)) = beyond_objectives(levels, objectives)
        {
            (knee, decided) = (Knee::Found(at), Some(Decided::Latency { to }));
        }
        Self {
            knee,
            decided,
            safe_concurrency: safe_concurrency(levels, knee, objectives),
            safe_rate: None,
            scaling: fit(levels),
        }
    }
}

/// The knee as throughput and failures show it; objectives aside.
#[must_use]
pub fn knee(levels: &[LevelSummary]) -> Knee {
    let of_rates = offered::capacity(levels, &Objectives::default());
    of_rates.map_or_else(|| decide(levels).0, |capacity| capacity.knee)
}

fn decide(levels: &[LevelSummary]) -> (Knee, Option<Decided>) {
    if levels.iter().all(|level| level.ok == 0) {
        return (Knee::Failed, None);
    }
    // Beyond a level whose requests fail, throughput says nothing.
    let failing = levels
        .windows(2)
        .position(|pair| matches!(pair, [low, high] if fails_more(low, high) || is_our_own_failing(high)));
    let sound = levels.get(..failing.map_or(levels.len(), |before| before + 1)).unwrap_or(levels);
    let by_gain = match Climb::of(sound) {
        Some(climb) => climb.knee(),
        None => (Knee::Unstable, None),
    };
    let Some(failing) = failing else { return by_gain };
    match (by_gain, levels.get(failing), levels.get(failing + 1)) {
        (found @ (Knee::Found(_), _), ..) => found,
        // What this machine could not keep up with says nothing about the other.
        (_, _, Some(high)) if is_our_own_failing(high) => (Knee::Unstable, None),
        (_, Some(low), Some(high)) => {
            let decided = Decided::Failures { to: high.concurrency, ratio: strained_share(high) };
            (Knee::Found(low.concurrency), Some(decided))
        }
        (unknown, ..) => unknown,
    }
}

/// A level's throughput as a number with an error.
#[derive(Clone, Copy)]
struct Step {
    concurrency: f64,
    label: u32,
    throughput: f64,
    relative_error: f64,
    /// The throughput without its noise: by the scalability law where all levels agree with that, else as it is.
    smoothed: f64,
}

/// The law is believed when the levels lie around it as their errors make one expect: the mean of the squared distances,
/// each in units of its error and per degree of freedom, is no more than this.
const MISFIT_MAX: f64 = 3.0;
/// The parameters of the law.
const PARAMETERS: usize = 3;

/// The levels of a ladder from which gains can be told.
struct Climb(Vec<Step>);

impl Climb {
    /// `None` when a level is unknown, or they do not ascend.
    fn of(levels: &[LevelSummary]) -> Option<Self> {
        let mut steps: Vec<Step> = levels.iter().map(Step::of).collect::<Option<_>>()?;
        let ascends = steps.windows(2).all(|pair| matches!(pair, [a, b] if a.label < b.label));
        if let Some(law) = fit(levels).filter(|law| explains(law, &steps)) {
            for step in &mut steps {
                step.smoothed = law.throughput(step.concurrency);
            }
        }
        ascends.then_some(Self(steps))
    }

    /// The first level from which no later one gains enough, if one of them surely does not.
    ///
    /// All later levels are asked, not only the next: a level that was low by chance is no knee when the climb
    /// goes on behind it, and a gain that is too uncertain over one step may be clear over two. Where it bends is read
    /// from all levels together if they follow the law; that it does is shown by what was measured alone.
    fn knee(&self) -> (Knee, Option<Decided>) {
        let later = |index: usize| self.0.get(index + 1..).unwrap_or_default();
        let flat = |(index, low): (usize, &Step)| {
            let later = later(index);
            !later.is_empty() && later.iter().all(|high| low.smoothed_gain(high) < GAIN_MIN)
        };
        let Some(first) = self.0.iter().enumerate().position(flat) else { return (Knee::NotReached, None) };
        let Some(knee) = self.0.get(first) else { return (Knee::Unstable, None) };
        for (index, low) in self.0.iter().enumerate().skip(first) {
            if let Some((to, gain, interval)) = low.gains_too_little(later(index)) {
                return (Knee::Found(knee.label), Some(Decided::Gain { to, gain, interval }));
            }
        }
        (Knee::Unstable, None)
    }
}

/// Whether the levels lie around the law as their errors make one expect.
fn explains(law: &Scaling, steps: &[Step]) -> bool {
    let off = |step: &Step| (step.throughput / law.throughput(step.concurrency)).ln() / step.relative_error;
    let freedom = steps.len().saturating_sub(PARAMETERS);
    freedom > 0 && steps.iter().map(|step| off(step).powi(2)).sum::<f64>() <= MISFIT_MAX * freedom as f64
}

impl Step {
    fn of(level: &LevelSummary) -> Option<Self> {
        let throughput = level.throughput_tokens_per_second.filter(|tps| *tps > 0.0)?;
        let spread = level.throughput_standard_error.unwrap_or(0.0) / throughput;
        // A level that was not steady may have been off by as much as Little's law is.
        let unsteady = level
            .little
            .filter(|little| !little.holds)
            .map_or(0.0, |little| (little.in_flight / f64::from(level.concurrency.max(1)) - 1.0).abs());
        let busy = if level.client_saturated == Some(true) { SATURATED_ERROR } else { 0.0 };
        Some(Self {
            concurrency: f64::from(level.concurrency),
            label: level.concurrency,
            throughput,
            smoothed: throughput,
            relative_error: spread.hypot(REPEAT_ERROR).hypot(unsteady).hypot(busy),
        })
    }

    fn smoothed_gain(&self, later: &Self) -> f64 {
        (later.smoothed / self.smoothed - 1.0) / (later.concurrency / self.concurrency - 1.0)
    }

    /// The later level up to which throughput surely gains too little, or all of them when only together they say so.
    fn gains_too_little(&self, later: &[Self]) -> Option<(u32, f64, Interval)> {
        let alone = later.iter().map(|high| (high.label, self.gain(high)));
        let together = later.last().map(|last| (last.label, self.mean_gain(later)));
        alone
            .chain(together)
            .map(|(to, (gain, interval))| (to, gain, interval))
            .find(|(.., interval)| interval.is_below(GAIN_MIN))
    }

    /// The mean of the gains to several levels, each weighing as much as it is known, and where it lies: what one
    /// noisy level leaves open, several may settle. The error of this level is in all of them alike.
    fn mean_gain(&self, later: &[Self]) -> (f64, Interval) {
        let (mut weights, mut gains, mut lever) = (0.0, 0.0, 0.0);
        for high in later {
            let (gain, _) = self.gain(high);
            // What a relative error of either level makes of the gain.
            let each = high.throughput / self.throughput / (high.concurrency / self.concurrency - 1.0);
            let weight = (each * high.relative_error).powi(-2);
            weights += weight;
            gains += weight * gain;
            lever += weight * each;
        }
        let gain = gains / weights;
        let half = ONE_SIDED * (1.0 / weights).sqrt().hypot(lever / weights * self.relative_error);
        (gain, Interval::new(gain - half, gain + half))
    }

    /// Gain in throughput per relative increase of concurrency up to a later level, and where it lies.
    fn gain(&self, later: &Self) -> (f64, Interval) {
        let step = later.concurrency / self.concurrency - 1.0;
        let ratio = later.throughput / self.throughput;
        let half = ONE_SIDED * ratio * self.relative_error.hypot(later.relative_error) / step;
        let gain = (ratio - 1.0) / step;
        (gain, Interval::new(gain - half, gain + half))
    }
}

/// Whether more requests of the higher level fail because of its load, beyond doubt.
fn fails_more(low: &LevelSummary, high: &LevelSummary) -> bool {
    let before = strained_share(low);
    super::wilson(strained(high), high.requests)
        .is_some_and(|ratio| ratio.is_above(before.max(FAILURES_MAX)) && before <= 2.0 * FAILURES_MAX)
}

fn is_our_own_failing(level: &LevelSummary) -> bool {
    level.client_saturated == Some(true) && level.failed() > 0
}

/// Failures that load can cause. A rejected key or a model that is gone says nothing about capacity.
pub(super) fn strained(level: &LevelSummary) -> u32 {
    let unrelated = level.failures.iter().filter(|(class, _)| !is_of_load(**class)).map(|(_, count)| count);
    level.failed().saturating_sub(unrelated.sum())
}

fn strained_share(level: &LevelSummary) -> f64 {
    f64::from(strained(level)) / f64::from(level.requests.max(1))
}

fn is_of_load(class: FailureClass) -> bool {
    match class {
        FailureClass::Connect
        | FailureClass::Edge
        | FailureClass::Timeout
        | FailureClass::RateLimited
        | FailureClass::Overloaded
        | FailureClass::UpstreamError
        | FailureClass::StreamTruncated
        | FailureClass::Protocol
        | FailureClass::EmptyOutput => true,
        FailureClass::Tls
        | FailureClass::Auth
        | FailureClass::Quota
        | FailureClass::ModelNotFound
        | FailureClass::EndpointNotFound
        | FailureClass::BadRequest
        | FailureClass::ContentFilter
        | FailureClass::NotStreaming => false,
    }
}

/// The last level before the first that surely misses an objective, and that one.
fn beyond_objectives(levels: &[LevelSummary], objectives: &Objectives) -> Option<(u32, u32)> {
    let pair = levels.windows(2).find(|pair| matches!(pair, [_, high] if misses_surely(high, objectives)))?;
    let [low, high] = pair else { return None };
    meets(low, objectives).then_some((low.concurrency, high.concurrency))
}

fn misses_surely(level: &LevelSummary, objectives: &Objectives) -> bool {
    level.client_saturated != Some(true)
        && limits(level, objectives)
            .any(|(limit, value)| value.is_some_and(|p| p.intervals.p95.is_above(limit)))
}

/// The highest load that is safe: at most 70% of the knee, and no higher than the last level up to which every
/// level meets its objectives. `None` when the knee is unknown or the first level misses them already.
#[must_use]
pub fn safe_concurrency(levels: &[LevelSummary], knee: Knee, objectives: &Objectives) -> Option<u32> {
    let knee = knee.concurrency()?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a u32 fits one")]
    let share = ((f64::from(knee) * SAFE_SHARE).floor() as u32).max(1);
    Some(share.min(highest_good(levels, objectives)?))
}

/// The highest level up to which every level meets its objectives.
pub(super) fn highest_good(levels: &[LevelSummary], objectives: &Objectives) -> Option<u32> {
    levels.iter().take_while(|level| meets(level, objectives)).last().map(|level| level.concurrency)
}

/// Whether a level's P95s and success ratio are within the objectives.
#[must_use]
pub fn meets(level: &LevelSummary, objectives: &Objectives) -> bool {
    let success = f64::from(level.ok) / f64::from(level.requests.max(1));
    level.ok > 0
        && limits(level, objectives).all(|(limit, value)| value.is_some_and(|p| p.p95 <= limit))
        && objectives.success_ratio.is_none_or(|ratio| success >= ratio)
}

/// The time objectives that are set, in seconds, each with what it limits.
fn limits(
    level: &LevelSummary,
    objectives: &Objectives,
) -> impl Iterator<Item = (f64, Option<Percentiles>)> + use<> {
    let limit = |limit: Option<Duration>, value| limit.map(|limit| (limit.as_secs_f64(), value));
    [
        limit(objectives.ttft, level.ttft_seconds),
        limit(objectives.tpot, level.tpot_seconds),
        limit(objectives.duration, level.duration_seconds),
    ]
    .into_iter()
    .flatten()
}
