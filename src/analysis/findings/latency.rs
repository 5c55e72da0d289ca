//! What the latencies say about the bottleneck.

use super::{Examined, Finding, Found, LengthPoint, growth};
use crate::analysis::{LevelSummary, Percentiles};

/// P99 is far above the median when it surely is more than so many times it.
const STALLS_ABOVE: f64 = 3.0;
/// A median longer than this is long where no objective says otherwise: a person notices a second.
const SLOW_SECONDS: f64 = 1.0;
/// The tail must outgrow the median by so much from the lowest level to the highest.
const TAIL_GROWTH_MIN: f64 = 1.4;
/// And rise in so many of all pairs of levels, net of those in which it falls.
const TAIL_RISING_MIN: f64 = 0.6;
/// Levels from which a trend can be told.
const LEVELS_MIN: usize = 3;
/// Samples from which a level has a tail.
const TAIL_SAMPLES_MIN: usize = 8;
/// Time per output token must grow so much in all ...
const DECODE_GROWTH_MIN: f64 = 1.2;
/// ... and may fall from one level to the next by no more than this share.
const DECODE_SLACK: f64 = 0.02;
/// A change of the median with `max_tokens` alone that is no accident.
const PREALLOCATION_MIN: f64 = 1.1;
/// Growth with the prompt's length is about linear up to this exponent, when it is no less than the other.
const LINEAR_MAX: f64 = 1.15;
const LINEAR_MIN: f64 = 0.7;
/// An exponent known no better than this says nothing.
const EXPONENT_SPREAD_MAX: f64 = 0.8;

pub(super) fn findings(ladder: &Examined<'_>) -> Vec<Found> {
    [
        prefill_bound(ladder),
        with_length(ladder),
        preallocation(ladder),
        occasional_stalls(ladder),
        queueing(ladder),
        decode_bound(ladder),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn occasional_stalls(ladder: &Examined<'_>) -> Option<Found> {
    let objective = ladder.objectives.ttft.map_or(f64::INFINITY, |ttft| ttft.as_secs_f64());
    ladder.sound().find_map(|level| {
        let ttft = level.ttft_seconds.filter(|ttft| ttft.p50 <= objective)?;
        let low = ttft.intervals.p99.low.filter(|low| *low > ttft.p50 * STALLS_ABOVE)?;
        let evidence =
            [("ttft_p50_seconds", ttft.p50), ("ttft_p99_seconds", ttft.p99), ("ttft_p99_low_seconds", low)];
        Some(Found::at(Finding::OccasionalStalls, level.concurrency, evidence))
    })
}

fn prefill_bound(ladder: &Examined<'_>) -> Option<Found> {
    let level = ladder.sound().next()?;
    let ttft = level.ttft_seconds?;
    let limit = ladder.objectives.ttft.map_or(SLOW_SECONDS, |ttft| ttft.as_secs_f64());
    // With too few samples for an interval the median itself must do.
    if ttft.intervals.p50.low.unwrap_or(ttft.p50) <= limit {
        return None;
    }
    let evidence = [("ttft_p50_seconds", ttft.p50), ("limit_seconds", limit)];
    Some(Found::at(Finding::PrefillBound, level.concurrency, evidence))
}

fn queueing(ladder: &Examined<'_>) -> Option<Found> {
    let tails: Vec<(u32, Percentiles)> = ladder
        .sound()
        .filter_map(|level| Some((level.concurrency, level.ttft_seconds?)))
        .filter(|(_, ttft)| ttft.count >= TAIL_SAMPLES_MIN && ttft.p50 > 0.0)
        .collect();
    let (first, last) = (tails.first()?.1, tails.last()?);
    let tail = |ttft: &Percentiles| ttft.p95 / ttft.p50;
    let ratios: Vec<f64> = tails.iter().map(|(_, ttft)| tail(ttft)).collect();
    let grows = tail(&last.1) >= tail(&first) * TAIL_GROWTH_MIN && last.1.p95 > first.p95;
    if ratios.len() < LEVELS_MIN || !grows || rising(&ratios) < TAIL_RISING_MIN {
        return None;
    }
    let evidence = [
        ("tail_ratio_lowest", tail(&first)),
        ("tail_ratio_highest", tail(&last.1)),
        ("ttft_p50_growth", last.1.p50 / first.p50),
        ("ttft_p95_growth", last.1.p95 / first.p95),
    ];
    Some(Found::at(Finding::Queueing, last.0, evidence))
}

/// Kendall's measure of a trend: of all pairs, those that rise less those that fall; 1 when all rise.
fn rising(values: &[f64]) -> f64 {
    let pairs = values.iter().enumerate().flat_map(|(i, a)| values.iter().skip(i + 1).map(move |b| b - a));
    let (count, sum) = pairs.fold((0, 0.0), |(count, sum), change| (count + 1, sum + change.signum()));
    if count == 0 { 0.0 } else { sum / f64::from(count) }
}

fn decode_bound(ladder: &Examined<'_>) -> Option<Found> {
    let steps: Vec<(&LevelSummary, Percentiles)> =
        ladder.sound().filter_map(|level| Some((level, level.tpot_seconds?))).collect();
    let (first, last) = (steps.first()?.1, steps.last()?);
    let monotonic = steps
        .windows(2)
        .all(|pair| matches!(pair, [(_, low), (_, high)] if high.p50 >= low.p50 * (1.0 - DECODE_SLACK)));
    let apart = match (first.intervals.p50.high, last.1.intervals.p50.low) {
        (Some(low), Some(high)) => high > low,
        _ => true,
    };
    if steps.len() < LEVELS_MIN || !monotonic || !apart || last.1.p50 < first.p50 * DECODE_GROWTH_MIN {
        return None;
    }
    let evidence = [("tpot_p50_lowest_seconds", first.p50), ("tpot_p50_highest_seconds", last.1.p50)];
    Some(Found::at(Finding::DecodeBound, last.0.concurrency, evidence))
}

/// The lowest level with another `max_tokens`: nothing else differs.
fn preallocation(ladder: &Examined<'_>) -> Option<Found> {
    let (max_tokens, control) = ladder.max_tokens_control?;
    let level = ladder.sound().next().filter(|level| level.concurrency == control.concurrency)?;
    let (with, without) = (level.ttft_seconds?, control.ttft_seconds?);
    let (a, b) = (with.intervals.p50, without.intervals.p50);
    let apart = a.low? > b.high? || b.low? > a.high?;
    let ratio = with.p50 / without.p50;
    if !apart || ratio.max(1.0 / ratio) < PREALLOCATION_MIN {
        return None;
    }
    let evidence = [
        ("max_tokens", f64::from(ladder.max_tokens)),
        ("ttft_p50_seconds", with.p50),
        ("control_max_tokens", f64::from(max_tokens)),
        ("control_ttft_p50_seconds", without.p50),
    ];
    Some(Found::at(Finding::Preallocation, level.concurrency, evidence))
}

fn with_length(ladder: &Examined<'_>) -> Option<Found> {
    let this = ladder.sound().next().and_then(|level| LengthPoint::of(level, ladder.prompt_tokens))?;
    let points: Vec<LengthPoint> = ladder.other_lengths.iter().copied().chain([this]).collect();
    let growth = growth(&points)?;
    let (low, high) = (growth.interval.low?, growth.interval.high?);
    let finding = if low > LINEAR_MAX {
        Finding::KvCacheGrowth
    } else if growth.exponent >= LINEAR_MIN && high - low <= EXPONENT_SPREAD_MAX {
        Finding::PrefillCompute
    } else {
        return None;
    };
    let evidence = [
        ("exponent", growth.exponent),
        ("exponent_low", low),
        ("exponent_high", high),
        ("prompt_tokens_min", growth.prompt_tokens_min),
        ("prompt_tokens_max", growth.prompt_tokens_max),
    ];
    Some(Found::of_ladder(finding, evidence))
}
