//! What the endpoint does besides answering: connections, caches, buffers, lengths, identity.

use std::collections::BTreeSet;

use super::{Examined, Finding, Found, PromptLength};
use crate::{analysis::LevelSummary, config::PrefixCache};

/// More than this share of requests makes a habit.
const HABIT: f64 = 0.5;
/// Fewer good requests show no habit.
const REQUESTS_MIN: u32 = 4;
/// A chat template before the prompt is the same each time and may be cached: so much is no hit ...
const COMMON_HEAD_TOKENS: f64 = 64.0;
/// ... nor is this share.
const COLD_CACHED_MAX: f64 = 0.05;
/// A repeated prompt of which less than this was cached was not answered by the cache.
const WARM_CACHED_MIN: f64 = 0.5;
/// Caches work in blocks: shorter prompts fit none.
const CACHEABLE_TOKENS: f64 = 64.0;
/// Counted less than this share of what was sent, a calibrated prompt was cut.
const TRUNCATED_BELOW: f64 = 0.85;
/// An estimated length may be off by much more.
const TRUNCATED_BELOW_UNCALIBRATED: f64 = 0.4;
/// Shorter than this share of what was asked for.
const SHORT_BELOW: f64 = 0.9;
const HIDDEN_ABOVE: f64 = 0.1;
/// No model's first token comes sooner than this share of the time one further token takes: it has the prompt to
/// read first ...
const DECODE_STEPS_MIN: f64 = 0.5;
/// ... nor reads so many uncached tokens in a second.
const PREFILL_TOKENS_PER_SECOND_MAX: f64 = 1e6;
/// Only first tokens that come within a few milliseconds are suspect.
const SUSPECT_SECONDS: f64 = 0.010;

pub(super) fn findings(ladder: &Examined<'_>) -> Vec<Found> {
    [
        wrong_measuring_point(ladder),
        buffered_path(ladder),
        connections_not_reused(ladder),
        served_model_changed(ladder),
        hidden_reasoning(ladder),
        prompt_truncated(ladder),
        output_shorter(ladder),
        cache(ladder),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn wrong_measuring_point(ladder: &Examined<'_>) -> Option<Found> {
    ladder.sound().find_map(|level| {
        let ttft = level.ttft_seconds?.p50;
        let uncached = level.prompt_tokens_measured.unwrap_or(f64::from(ladder.prompt_tokens))
            * (1.0 - level.cached_ratio.unwrap_or(0.0));
        let before_a_step = level.tpot_seconds.is_some_and(|tpot| ttft < tpot.p50 * DECODE_STEPS_MIN);
        let too_fast =
            ladder.prefix_cache == PrefixCache::Cold && uncached > ttft * PREFILL_TOKENS_PER_SECOND_MAX;
        if ttft > SUSPECT_SECONDS || !(before_a_step || too_fast) {
            return None;
        }
        let tpot = level.tpot_seconds.map(|tpot| ("tpot_p50_seconds", tpot.p50));
        let evidence =
            [("ttft_p50_seconds", ttft), ("uncached_prompt_tokens", uncached)].into_iter().chain(tpot);
        Some(Found::at(Finding::WrongMeasuringPoint, level.concurrency, evidence))
    })
}

fn buffered_path(ladder: &Examined<'_>) -> Option<Found> {
    habit(ladder, Finding::BufferedPath, "buffered", HABIT, |level| level.traits.bursts)
}

fn connections_not_reused(ladder: &Examined<'_>) -> Option<Found> {
    if !ladder.reuses_connections {
        return None;
    }
    habit(ladder, Finding::ConnectionsNotReused, "opened", HABIT, |level| level.traits.connections_opened)
}

fn hidden_reasoning(ladder: &Examined<'_>) -> Option<Found> {
    habit(ladder, Finding::HiddenReasoning, "hidden", HIDDEN_ABOVE, |level| level.traits.hidden_reasoning)
}

/// The first level at which more than a share of the good requests did something.
fn habit(
    ladder: &Examined<'_>,
    finding: Finding,
    name: &'static str,
    above: f64,
    count: impl Fn(&LevelSummary) -> u32,
) -> Option<Found> {
    let share = |level: &LevelSummary| f64::from(count(level)) / f64::from(level.ok.max(1));
    let level = ladder.sound().find(|level| level.ok >= REQUESTS_MIN && share(level) > above)?;
    let evidence = [(name, f64::from(count(level))), ("requests", f64::from(level.ok))];
    Some(Found::at(finding, level.concurrency, evidence))
}

fn served_model_changed(ladder: &Examined<'_>) -> Option<Found> {
    let distinct = |of: fn(&LevelSummary) -> &BTreeSet<u64>| {
        ladder.levels.iter().flat_map(of).collect::<BTreeSet<_>>().len()
    };
    let (models, fingerprints) =
        (distinct(|level| &level.traits.served_models), distinct(|level| &level.traits.fingerprints));
    (models > 1 || fingerprints > 1).then(|| {
        let evidence = [("served_models", models as f64), ("fingerprints", fingerprints as f64)];
        Found::of_ladder(Finding::ServedModelChanged, evidence)
    })
}

fn prompt_truncated(ladder: &Examined<'_>) -> Option<Found> {
    let wanted = f64::from(ladder.prompt_tokens);
    let below = match ladder.length {
        PromptLength::Calibrated => TRUNCATED_BELOW,
        PromptLength::Estimated => TRUNCATED_BELOW_UNCALIBRATED,
        PromptLength::Real => return None,
    };
    ladder.levels.iter().find_map(|level| {
        let counted = level.prompt_tokens_measured.filter(|counted| *counted < wanted * below)?;
        let evidence = [("prompt_tokens", wanted), ("counted_prompt_tokens", counted)];
        Some(Found::at(Finding::PromptTruncated, level.concurrency, evidence))
    })
}

fn output_shorter(ladder: &Examined<'_>) -> Option<Found> {
    let asked = f64::from(ladder.max_tokens);
    ladder.levels.iter().find_map(|level| {
        let output = level.traits.output_tokens_p50.filter(|output| *output < asked * SHORT_BELOW)?;
        let evidence = [("output_tokens_p50", output), ("max_tokens", asked)];
        Some(Found::at(Finding::OutputShorterThanAsked, level.concurrency, evidence))
    })
}

fn cache(ladder: &Examined<'_>) -> Option<Found> {
    ladder.levels.iter().find_map(|level| {
        // The engine counts for the whole level, warm-up included; better than nothing.
        let by_engine = level.engine.as_ref().and_then(|engine| engine.prefix_cache_hit_ratio);
        let (ratio, prompt) = (level.cached_ratio.or(by_engine)?, level.prompt_tokens_measured?);
        let is_cacheable = |share: f64| prompt * share >= CACHEABLE_TOKENS;
        let finding = match ladder.prefix_cache {
            PrefixCache::Cold if ratio > COLD_CACHED_MAX && ratio * prompt > COMMON_HEAD_TOKENS => {
                Finding::PrefixCacheHitThoughCold
            }
            PrefixCache::Warm if ratio < WARM_CACHED_MIN && is_cacheable(1.0) => {
                Finding::CacheMissedThoughWarm
            }
            PrefixCache::Shared(share)
                if ratio < share.ratio() * WARM_CACHED_MIN && is_cacheable(share.ratio()) =>
            {
                Finding::CacheMissedThoughWarm
            }
            PrefixCache::Shared(share)
                if ratio > share.ratio() + COLD_CACHED_MAX
                    && (ratio - share.ratio()) * prompt > COMMON_HEAD_TOKENS =>
            {
                Finding::PrefixCacheHitThoughCold
            }
            PrefixCache::Cold | PrefixCache::Warm | PrefixCache::Shared(_) => return None,
        };
        let evidence = [("cached_ratio", ratio), ("counted_prompt_tokens", prompt)];
        Some(Found::at(finding, level.concurrency, evidence))
    })
}
