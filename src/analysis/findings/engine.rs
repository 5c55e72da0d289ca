//! What the engine's own account of the levels shows, and what it makes of conclusions that were drawn without it.

use super::{Basis, Examined, Finding, Found};
use crate::{
    analysis::LevelSummary,
    engine::{EngineView, Part},
};

/// A KV cache this full has no room for another long prompt.
const KV_CACHE_FULL: f64 = 0.95;

/// Adds what was measured; confirms what was concluded, or takes it back where the engine says otherwise.
pub(super) fn judge(ladder: &Examined<'_>, found: &mut Vec<Found>) {
    let accounts: Vec<(&LevelSummary, &EngineView)> =
        ladder.sound().filter_map(|level| Some((level, level.engine.as_ref()?))).collect();
    found.extend(accounts.iter().find_map(|(level, view)| other_load(level, view)));
    found.extend(accounts.iter().find_map(|(level, view)| kv_cache_exhausted(level, view)));
    found.extend(accounts.iter().find_map(|(level, view)| outside(level, view)));
    for (level, view) in &accounts {
        if let Some((part, seconds)) = view.dominant() {
            name(part, seconds, (level, view), found);
        }
    }
}

/// A level's account says where its time goes: what was concluded of it holds or not.
fn name(part: Part, seconds: f64, (level, view): (&LevelSummary, &EngineView), found: &mut Vec<Found>) {
    let (finding, evidence_name) = match part {
        Part::Queue => (Finding::Queueing, "queue_seconds"),
        Part::Prefill => (Finding::PrefillBound, "prefill_seconds"),
        Part::Outside | Part::Rest => {
            found.retain(|found| !is_of_prefill(found, level) || found.basis == Basis::Measured);
            return;
        }
    };
    if finding != Finding::PrefillBound {
        found.retain(|found| !is_of_prefill(found, level) || found.basis == Basis::Measured);
    }
    let measured = [(evidence_name, seconds), ("ttft_mean_seconds", view.ttft_seconds)]
        .map(|(name, n)| (name.into(), n));
    if let Some(known) =
        found.iter_mut().find(|found| found.finding == finding && found.level == Some(level.concurrency))
    {
        known.basis = Basis::Measured;
        known.evidence.extend(measured);
    } else if finding == Finding::Queueing && !found.iter().any(|found| found.finding == finding) {
        // Prefill takes most of the time on every engine that is at leisure: that alone is no finding.
        let mut queueing = Found::at(finding, level.concurrency, []);
        queueing.basis = Basis::Measured;
        queueing.evidence.extend(measured);
        found.push(queueing);
    }
}

fn is_of_prefill(found: &Found, level: &LevelSummary) -> bool {
    found.finding == Finding::PrefillBound && found.level == Some(level.concurrency)
}

fn other_load(level: &LevelSummary, view: &EngineView) -> Option<Found> {
    let requests = view.requests.filter(|_| view.is_shared())?;
    let evidence = [("engine_requests", requests), ("own_requests", f64::from(view.own_requests))];
    Some(Found::at(Finding::OtherLoad, level.concurrency, evidence))
}

fn kv_cache_exhausted(level: &LevelSummary, view: &EngineView) -> Option<Found> {
    let preemptions = view.preemptions.filter(|preemptions| *preemptions > 0.0);
    let usage = view.kv_cache_usage.filter(|usage| *usage >= KV_CACHE_FULL);
    if preemptions.is_none() && usage.is_none() {
        return None;
    }
    let evidence = [("preemptions", view.preemptions), ("kv_cache_usage", view.kv_cache_usage)];
    let known = evidence.into_iter().filter_map(|(name, number)| Some((name, number?)));
    Some(Found::at(Finding::KvCacheExhausted, level.concurrency, known))
}

fn outside(level: &LevelSummary, view: &EngineView) -> Option<Found> {
    let (_, seconds) = view.dominant().filter(|(part, _)| *part == Part::Outside)?;
    let evidence = [("outside_seconds", seconds), ("ttft_mean_seconds", view.ttft_seconds)];
    Some(Found::at(Finding::OutsideEngine, level.concurrency, evidence))
}
