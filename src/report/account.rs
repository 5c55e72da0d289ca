//! What a sweep's table says below its rows about where the time goes: growth with length, controls, the engine's account.

use crate::{
    analysis::LevelSummary,
    engine::{EngineView, Part},
    sweep::LadderReport,
};

/// One line each, for the ladders of one sweep.
pub(super) fn lines(ladders: &[LadderReport]) -> Vec<String> {
    let mut lines = Vec::new();
    for (index, ladder) in ladders.iter().enumerate() {
        let name = format!("{} at {} prompt tokens", ladder.model, ladder.prompt_tokens);
        lines.extend(ladder.levels.iter().filter_map(|level| account(&name, level)));
        lines.extend(control(&name, ladder));
        let next = ladders.get(index + 1);
        // A ladder's growth is that of all up to it: only the last one's is told.
        if next.is_none_or(|next| next.model != ladder.model || next.target != ladder.target) {
            lines.extend(growth(ladder));
        }
    }
    lines
}

fn growth(ladder: &LadderReport) -> Option<String> {
    let growth = ladder.growth?;
    let bound = |bound: Option<f64>| bound.map_or("?".to_owned(), |bound| format!("{bound:.2}"));
    Some(format!(
        "{}: TTFT grows as prompt length to the power {:.2} (95%: {} to {}), from {:.0} to {:.0} tokens",
        ladder.model,
        growth.exponent,
        bound(growth.interval.low),
        bound(growth.interval.high),
        growth.prompt_tokens_min,
        growth.prompt_tokens_max
    ))
}

fn control(name: &str, ladder: &LadderReport) -> Option<String> {
    let (max_tokens, control) = ladder.control.as_ref()?;
    let own = ladder.levels.first()?;
    let p50 = |level: &LevelSummary| {
        level.ttft_seconds.map_or("unknown".to_owned(), |ttft| format!("{:.1} ms", ttft.p50 * 1e3))
    };
    Some(format!(
        "{name}: control at concurrency {} with max_tokens {max_tokens}: TTFT p50 {}, against {}",
        own.concurrency,
        p50(control),
        p50(own)
    ))
}

fn account(name: &str, level: &LevelSummary) -> Option<String> {
    let view = level.engine.as_ref()?;
    let parts = Part::ALL.iter().filter_map(|part| Some((part.as_str(), view.part(*part)?)));
    let parts: Vec<String> = parts.map(|(part, seconds)| format!("{part} {:.1}", seconds * 1e3)).collect();
    let (verb, doubt) =
        if view.is_balanced() { ("=", "") } else { ("against", ", which contradicts it and is not used") };
    Some(format!(
        "{name}, concurrency {}: mean TTFT {:.1} ms {verb} {} ms by {}{doubt}{}",
        level.concurrency,
        view.ttft_seconds * 1e3,
        parts.join(" + "),
        view.engine,
        beside(view)
    ))
}

fn beside(view: &EngineView) -> String {
    let percent = |ratio: f64| format!("{:.0}%", ratio * 100.0);
    let told = [
        view.kv_cache_usage.map(|usage| format!("KV cache {}", percent(usage))),
        view.running.map(|running| format!("{running:.0} running")),
        view.waiting.map(|waiting| format!("{waiting:.0} waiting")),
        view.preemptions.map(|preemptions| format!("{preemptions:.0} preemptions")),
        view.prefix_cache_hit_ratio.map(|ratio| format!("prefix cache {}", percent(ratio))),
    ];
    let told: Vec<String> = told.into_iter().flatten().collect();
    if told.is_empty() { String::new() } else { format!("; {}", told.join(", ")) }
}
