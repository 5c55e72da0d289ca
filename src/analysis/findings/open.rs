//! What an open loop's ladder says: of the findings of a closed one those that ask nothing of its concurrency, and whether
//! the target keeps up.

use super::{Examined, Finding, Found, closed};
use crate::analysis::{LevelSummary, offered::falls_behind};

/// Findings about single levels, or about all of them whatever their load. All others compare requests in flight, which
/// are no setting here.
const OF_EITHER_LOOP: [Finding; 16] = [
    Finding::FailsUnloaded,
    Finding::ContextTooSmall,
    Finding::ClientSaturated,
    Finding::WrongMeasuringPoint,
    Finding::BufferedPath,
    Finding::ServedModelChanged,
    Finding::HiddenReasoning,
    Finding::PromptTruncated,
    Finding::OutputShorterThanAsked,
    Finding::PrefixCacheHitThoughCold,
    Finding::CacheMissedThoughWarm,
    Finding::PrefillBound,
    Finding::OccasionalStalls,
    Finding::RateLimited,
    Finding::FailsUnderLoad,
    Finding::LatencyBeyondObjective,
];

pub(super) fn findings(ladder: &Examined<'_>) -> Vec<Found> {
    // Findings name a level by its concurrency, which here is the same everywhere: numbers stand in for it.
    let numbered: Vec<LevelSummary> = (1..)
        .zip(ladder.levels)
        .map(|(number, level)| LevelSummary { concurrency: number, ..level.clone() })
        .collect();
    let rate_of = |number: u32| numbered.iter().find(|level| level.concurrency == number)?.rate();
    let of_either = closed(&Examined { levels: &numbered, ..*ladder })
        .into_iter()
        .filter(|found| OF_EITHER_LOOP.contains(&found.finding))
        .map(|found| Found { rate: found.level.and_then(rate_of), level: None, ..found });
    let own = ladder.levels.iter().flat_map(|level| [behind(level), not_sent(level)]).flatten();
    of_either.chain(own).collect()
}

fn behind(level: &LevelSummary) -> Option<Found> {
    let offered = level.offered.filter(|_| falls_behind(level) && level.client_saturated != Some(true))?;
    let achieved = level.throughput_requests_per_second.map(|rate| ("answered_per_second", rate));
    let growth = offered.growth.map(|growth| ("growth_seconds_per_second", growth));
    let evidence = [("offered_per_second", offered.rate.per_second())];
    Some(at(Finding::FallsBehind, level, evidence.into_iter().chain(achieved).chain(growth)))
}

fn not_sent(level: &LevelSummary) -> Option<Found> {
    let offered = level.offered.filter(|offered| offered.overflow > 0)?;
    let evidence = [
        ("not_sent", f64::from(offered.overflow)),
        ("sent", f64::from(level.requests)),
        ("max_in_flight", f64::from(level.concurrency)),
    ];
    Some(at(Finding::ArrivalsNotSent, level, evidence))
}

fn at(
    finding: Finding,
    level: &LevelSummary,
    evidence: impl IntoIterator<Item = (&'static str, f64)>,
) -> Found {
    Found { rate: level.rate(), ..Found::of_ladder(finding, evidence) }
}
