//! What load does: failures, limits, the knee, the safe level.

use super::{Examined, Finding, Found};
use crate::{
    analysis::{
        Decided, LevelSummary,
        knee::{GAIN_MIN, SAFE_SHARE, highest_good, strained},
        wilson,
    },
    config::Objectives,
    measurement::FailureClass,
};

/// A level surely fails when the lower bound of its failure ratio is above this.
const FAILURES_MAX: f64 = 0.05;

pub(super) fn findings(ladder: &Examined<'_>) -> Vec<Found> {
    let alone =
        [context_too_small(ladder), fails_unloaded(ladder), rate_limited(ladder), fails_under_load(ladder)];
    let of_load = [latency_beyond_objective(ladder), throughput_knee(ladder), safe(ladder)];
    let per_level = ladder.levels.iter().flat_map(|level| [saturated(level), unsteady(level)]);
    alone.into_iter().chain(of_load).chain(per_level).flatten().collect()
}

fn context_too_small(ladder: &Examined<'_>) -> Option<Found> {
    let level = ladder.levels.iter().find(|level| level.traits.context_refusals > 0)?;
    let evidence = [
        ("prompt_tokens", f64::from(ladder.prompt_tokens)),
        ("max_tokens", f64::from(ladder.max_tokens)),
        ("refusals", f64::from(level.traits.context_refusals)),
    ];
    Some(Found::at(Finding::ContextTooSmall, level.concurrency, evidence))
}

fn fails_unloaded(ladder: &Examined<'_>) -> Option<Found> {
    let level = ladder.levels.first()?;
    if level.traits.context_refusals > 0 || level.client_saturated == Some(true) {
        return None;
    }
    let surely =
        |level: &LevelSummary| wilson(level.failed(), level.requests)?.low.filter(|low| *low > FAILURES_MAX);
    surely(level)?;
    Some(Found::at(Finding::FailsUnloaded, level.concurrency, failures(level, level.failed())))
}

fn rate_limited(ladder: &Examined<'_>) -> Option<Found> {
    let refused = |level: &LevelSummary| level.failures.get(&FailureClass::RateLimited).copied();
    let level = ladder.levels.iter().find(|level| refused(level).is_some())?;
    Some(Found::at(Finding::RateLimited, level.concurrency, failures(level, refused(level)?)))
}

/// The lowest level bears it, a higher one surely does not, and it is no rate limit.
fn fails_under_load(ladder: &Examined<'_>) -> Option<Found> {
    let (first, higher) = ladder.levels.split_first()?;
    let capacity = |level: &LevelSummary| {
        strained(level).saturating_sub(level.failures.get(&FailureClass::RateLimited).copied().unwrap_or(0))
    };
    let ratio = |level: &LevelSummary| f64::from(capacity(level)) / f64::from(level.requests.max(1));
    let bears = ratio(first);
    if bears > FAILURES_MAX {
        return None;
    }
    let level = higher.iter().filter(|level| level.client_saturated != Some(true)).find(|level| {
        wilson(capacity(level), level.requests).is_some_and(|ratio| ratio.is_above(FAILURES_MAX))
    })?;
    let timeouts = level.failures.get(&FailureClass::Timeout).copied().unwrap_or(0);
    let evidence = failures(level, capacity(level))
        .into_iter()
        .chain([("timeouts", f64::from(timeouts)), ("lowest_level_failure_ratio", bears)]);
    Some(Found::at(Finding::FailsUnderLoad, level.concurrency, evidence))
}

fn failures(level: &LevelSummary, failed: u32) -> Vec<(&'static str, f64)> {
    let requests = f64::from(level.requests);
    let mut evidence = vec![("failed", f64::from(failed)), ("requests", requests)];
    if let Some(ratio) = wilson(failed, level.requests) {
        evidence.extend(ratio.low.map(|low| ("failure_ratio_low", low)));
        evidence.extend(ratio.high.map(|high| ("failure_ratio_high", high)));
    }
    evidence
}

/// The first level that surely misses a time objective.
fn latency_beyond_objective(ladder: &Examined<'_>) -> Option<Found> {
    let Objectives { ttft, tpot, duration, .. } = *ladder.objectives;
    ladder.sound().find_map(|level| {
        let timed =
            [(ttft, level.ttft_seconds), (tpot, level.tpot_seconds), (duration, level.duration_seconds)];
        timed.into_iter().find_map(|(limit, value)| {
            let (limit, value) = (limit?.as_secs_f64(), value?);
            let low = value.intervals.p95.low.filter(|low| *low > limit)?;
            let evidence =
                [("p95_seconds", value.p95), ("p95_low_seconds", low), ("objective_seconds", limit)];
            Some(Found::at(Finding::LatencyBeyondObjective, level.concurrency, evidence))
        })
    })
}

fn throughput_knee(ladder: &Examined<'_>) -> Option<Found> {
    let knee = ladder.capacity.knee.concurrency()?;
    let Some(Decided::Gain { to, gain, interval }) = ladder.capacity.decided else { return None };
    let evidence = [("gain", gain), ("gain_min", GAIN_MIN), ("to_concurrency", f64::from(to))];
    let bound = interval.high.map(|high| ("gain_high", high));
    Some(Found::at(Finding::ThroughputKnee, knee, evidence.into_iter().chain(bound)))
}

fn safe(ladder: &Examined<'_>) -> Option<Found> {
    let good = highest_good(ladder.levels, ladder.objectives);
    if let (Some(safe), Some(knee), Some(good)) =
        (ladder.capacity.safe_concurrency, ladder.capacity.knee.concurrency(), good)
    {
        let evidence = [
            ("knee_concurrency", f64::from(knee)),
            ("share_of_knee", SAFE_SHARE),
            ("within_objectives_concurrency", f64::from(good)),
        ];
        return Some(Found::at(Finding::SafeConcurrency, safe, evidence));
    }
    let first = ladder.levels.first().filter(|level| level.ok > 0 && good.is_none())?;
    let ttft = first.ttft_seconds.map(|ttft| ("ttft_p95_seconds", ttft.p95));
    let tpot = first.tpot_seconds.map(|tpot| ("tpot_p95_seconds", tpot.p95));
    let ok = [("ok", f64::from(first.ok)), ("requests", f64::from(first.requests))];
    Some(Found::at(Finding::NoSafeConcurrency, first.concurrency, ok.into_iter().chain(ttft).chain(tpot)))
}

fn saturated(level: &LevelSummary) -> Option<Found> {
    (level.client_saturated == Some(true)).then(|| Found::at(Finding::ClientSaturated, level.concurrency, []))
}

fn unsteady(level: &LevelSummary) -> Option<Found> {
    let little = level.little.filter(|little| !little.holds && level.client_saturated != Some(true))?;
    let evidence = [("in_flight", little.in_flight), ("concurrency", f64::from(level.concurrency))];
    Some(Found::at(Finding::LevelUnsteady, level.concurrency, evidence))
}
