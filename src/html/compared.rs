//! A comparison of two runs: what differed in how they were made, then what changed, cell by cell.

use maud::{Markup, html};

use super::number::latency;
use crate::{
    analysis::compare::{CellComparison, Change, Verdict},
    archive::{Difference, LikeCell},
    cell::Load,
};

/// Settings that differ (or `alike`, where none does), and the table of changes.
#[must_use]
pub fn comparison(alike: &str, differences: &[Difference], cells: &[CellComparison<LikeCell>]) -> Markup {
    html! {
        h2 { "What differs in how they were made" }
        @if differences.is_empty() {
            p { "Nothing: " (alike) "." }
        } @else {
            div.wide { table {
                thead { tr { th scope="col" { "setting" } th scope="col" { "before" } th scope="col" { "after" } } }
                tbody { @for Difference { setting, before, after } in differences {
                    tr { th scope="row" { code { (setting) } } td { (before) } td { (after) } }
                } }
            } }
        }
        h2 { "What changed" }
        div.wide { table.compared {
            thead { tr {
                th scope="col" { "target" } th scope="col" { "model" } th.n scope="col" { "prompt" } th.n scope="col" { "load" }
                th scope="col" { "" } th.n scope="col" { "before" } th.n scope="col" { "after" }
                th.n scope="col" { "difference, 95% interval" } th.n scope="col" { "%" } th.n scope="col" { "p" }
                th.n scope="col" { "effect" } th scope="col" { "verdict" }
            } }
            tbody { @for cell in cells { (rows(cell)) } }
        } }
        p.small {
            "Difference: the median of all differences between a sample after and one before. p: probability of such a \
             difference between equals, all tests taken together. Effect: Cliff's delta, of failures Cohen's h."
        }
    }
}

fn rows(cell: &CellComparison<LikeCell>) -> Markup {
    let seconds: fn(f64) -> String = latency;
    let speed: fn(f64) -> String = |rate| format!("{rate:.1}");
    let share: fn(f64) -> String = |share| format!("{:.1}%", share * 100.0);
    let changes = [
        ("TTFT P50", &cell.ttft_seconds, seconds),
        ("TPOT P50", &cell.tpot_seconds, seconds),
        ("request TPS P50", &cell.request_tps, speed),
        ("failed", &cell.failure_ratio, share),
    ];
    let LikeCell { target, model, prompt_tokens, concurrency, rate } = &cell.cell;
    let load = Load::of(*concurrency, *rate).short();
    html! {
        @for (index, (name, change, format)) in changes.into_iter().enumerate() {
            tr.first[index == 0] {
                @if index == 0 {
                    td rowspan="4" { (target) } th scope="rowgroup" rowspan="4" { (model) }
                    td.n rowspan="4" { (prompt_tokens) } td.n rowspan="4" { (load) }
                }
                td { (name) }
                (row(change, format))
            }
        }
    }
}

fn row(change: &Change, format: fn(f64) -> String) -> Markup {
    let shown = |value: Option<f64>| value.map_or_else(|| "–".into(), format);
    let signed = |value: f64| {
        if value < 0.0 { format!("−{}", format(-value)) } else { format!("+{}", format(value)) }
    };
    let class = match change.verdict {
        Verdict::Worse => "bad",
        Verdict::Improved => "good",
        Verdict::Unchanged | Verdict::TooFewSamples => "none",
    };
    html! {
        td.n { (shown(change.before)) } td.n { (shown(change.after)) }
        td.n {
            @match (change.difference, change.interval) {
                (Some(difference), Some([low, high])) => { (signed(difference)) " [" (signed(low)) ", " (signed(high)) "]" }
                _ => "–",
            }
        }
        td.n { (change.relative.map_or_else(|| "–".into(), |share| format!("{:+.1}%", share * 100.0))) }
        td.n { (change.p_value.map_or_else(|| "–".into(), |p| if p < 1e-4 { "<0.0001".into() } else { format!("{p:.4}") })) }
        td.n { (change.effect.map_or_else(|| "–".into(), |effect| format!("{effect:+.2}"))) }
        td class=(class) { (change.verdict.as_str().replace('_', " ")) }
    }
}
