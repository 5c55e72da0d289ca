//! Findings: what was found, what it means, what to do, and the numbers that support it.

use maud::{Markup, html};

use super::{
    chart::round,
    number::{latency, load_words},
};
use crate::{
    analysis::{Finding, Found},
    cell::Load,
};

/// A list; equal findings of several levels are told once.
#[must_use]
pub fn findings(found: &[Found]) -> Markup {
    html! {
        @if found.is_empty() {
            p.none { "No finding: the numbers support none, or nothing is wrong." }
        } @else {
            ul.findings {
                @for same in found.chunk_by(|one, other| one.finding == other.finding) { (finding(same)) }
            }
        }
    }
}

fn finding(same: &[Found]) -> Markup {
    let Some(first) = same.first() else { return html! {} };
    let kind = first.finding;
    let class = if kind == Finding::SafeConcurrency {
        "good"
    } else if kind == Finding::ThroughputKnee {
        "plain"
    } else if matches!(kind, Finding::FailsUnloaded | Finding::NoSafeConcurrency | Finding::ContextTooSmall) {
        "bad"
    } else {
        "warn"
    };
    html! {
        li class={ "finding " (class) } {
            b { (kind.as_str()) }
            @let levels: Vec<String> = same.iter().filter_map(|found| Some(load(found)?.short())).collect();
            @if !levels.is_empty() { " at " (levels.join(", ")) @if first.rate.is_none() { " in flight" } }
            p { (sentence(kind.meaning())) ". " span.mend { (kind.mend()) } }
            @for found in same {
                @if !found.evidence.is_empty() {
                    p.evidence {
                        @if same.len() > 1 { @if let Some(load) = load(found) { (load_words(load)) ": " } }
                        @for (index, (name, number)) in found.evidence.iter().enumerate() {
                            @if index > 0 { " · " }
                            (told(name)) " " b { (value(name, *number)) }
                        }
                    }
                }
            }
        }
    }
}

/// The level at which it shows.
fn load(found: &Found) -> Option<Load> {
    found.rate.map(Load::Rate).or(found.level.map(Load::Concurrency))
}

fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// The name without its unit, which stands with the number.
fn told(name: &str) -> String {
    name.trim_end_matches("_seconds").replace('_', " ")
}

fn value(name: &str, number: f64) -> String {
    if name.ends_with("seconds") { latency(number) } else { round(number) }
}
