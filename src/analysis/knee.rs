//! Where a ladder's throughput stops growing, and how much load is safe.

use super::LevelSummary;
use crate::config::Objectives;

/// Gain in total TPS per relative increase of concurrency below which a level is past the knee.
const GAIN_MIN: f64 = 0.3;
/// Share of the knee's concurrency that is safe to run at.
const SAFE_SHARE: f64 = 0.7;

/// What a ladder says about capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Knee {
    /// The last concurrency at which more load still brought more throughput.
    Found(u32),
    /// Throughput was still growing at the highest level.
    NotReached,
    /// Too little is known: a level is missing or never full.
    Unstable,
    /// No level succeeded.
    Failed,
}

impl Knee {
    /// The label value and JSON name of the state.
    #[must_use]
    pub fn state(self) -> &'static str {
        match self {
            Self::Found(_) => "found",
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
            Self::NotReached | Self::Unstable | Self::Failed => None,
        }
    }
}

/// The knee of a ladder whose levels ascend: the level before the first that brings a marginal gain below 0.3,
/// or that fails more than a tenth of its requests where the one before did not.
#[must_use]
pub fn knee(levels: &[LevelSummary]) -> Knee {
    if levels.iter().all(|level| level.ok == 0) {
        return Knee::Failed;
    }
    for pair in levels.windows(2) {
        let [before, after] = pair else { continue };
        // What this machine could not keep up with says nothing about the other.
        if after.client_saturated == Some(true) && after.ok < after.requests {
            return Knee::Unstable;
        }
        if failed_share(after) > 0.1 && failed_share(before) <= 0.1 {
            return Knee::Found(before.concurrency);
        }
        let (Some(low), Some(high)) =
            (before.throughput_tokens_per_second, after.throughput_tokens_per_second)
        else {
            return Knee::Unstable;
        };
        if low <= 0.0 || after.concurrency <= before.concurrency {
            return Knee::Unstable;
        }
        let step = f64::from(after.concurrency) / f64::from(before.concurrency) - 1.0;
        if (high / low - 1.0) / step < GAIN_MIN {
            return Knee::Found(before.concurrency);
        }
    }
    Knee::NotReached
}

/// The highest load that is safe: at most 70% of the knee, and no higher than the last level up to which every
/// level meets its objectives. `None` when the knee is unknown or the first level misses them already.
#[must_use]
pub fn safe_concurrency(levels: &[LevelSummary], knee: Knee, objectives: &Objectives) -> Option<u32> {
    let knee = knee.concurrency()?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a u32 fits one")]
    let share = ((f64::from(knee) * SAFE_SHARE).floor() as u32).max(1);
    let good = levels.iter().take_while(|level| meets(level, objectives)).last()?;
    Some(share.min(good.concurrency))
}

/// Whether a level's P95s and success ratio are within the objectives.
#[must_use]
pub fn meets(level: &LevelSummary, objectives: &Objectives) -> bool {
    let within = |limit: Option<std::time::Duration>, value: Option<super::Percentiles>| match limit {
        Some(limit) => value.is_some_and(|p| p.p95 <= limit.as_secs_f64()),
        None => true,
    };
    let share = 1.0 - failed_share(level);
    level.ok > 0
        && within(objectives.ttft, level.ttft_seconds)
        && within(objectives.tpot, level.tpot_seconds)
        && within(objectives.duration, level.duration_seconds)
        && objectives.success_ratio.is_none_or(|ratio| share >= ratio)
}

fn failed_share(level: &LevelSummary) -> f64 {
    if level.requests == 0 {
        return 0.0;
    }
    1.0 - f64::from(level.ok) / f64::from(level.requests)
}
