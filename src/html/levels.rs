//! A ladder's levels as a table: the same numbers as its curves, and why a level was not run.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::number::{latency_low, load_words, tokens_per_second};
use crate::{
    analysis::{LevelSummary, Percentiles},
    cell::Load,
    sweep::NotRun,
};

/// One level, as it is shown.
#[derive(Debug, Clone, PartialEq)]
pub struct LevelRow {
    /// Its load.
    pub load: Load,
    /// Measured requests.
    pub requests: u32,
    /// How many got a whole answer.
    pub ok: u32,
    /// How many did not, by class.
    pub failures: BTreeMap<&'static str, u32>,
    /// Time to first token, seconds.
    pub ttft: Option<Quantiles>,
    /// Time per output token, seconds.
    pub tpot: Option<Quantiles>,
    /// Tokens per second of the whole level.
    pub throughput: Option<f64>,
    /// Standard error of that.
    pub throughput_error: Option<f64>,
    /// What is odd about it.
    pub notes: Vec<&'static str>,
    /// Why there are no numbers.
    pub missing: Option<String>,
    /// Longest time to first token that counts as good, seconds.
    pub ttft_objective: Option<f64>,
}

/// Percentiles, and how many samples they rest on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quantiles {
    /// How many samples.
    pub count: usize,
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
}

impl From<Percentiles> for Quantiles {
    fn from(percentiles: Percentiles) -> Self {
        let Percentiles { count, p50, p95, p99, .. } = percentiles;
        Self { count, p50, p95, p99 }
    }
}

impl From<&LevelSummary> for LevelRow {
    fn from(level: &LevelSummary) -> Self {
        let notes = [
            (level.incomplete, "incomplete"),
            (level.client_saturated == Some(true), "the prober was too busy"),
            (level.little.is_some_and(|little| !little.holds), "not steady"),
        ];
        Self {
            load: level.load(),
            requests: level.requests,
            ok: level.ok,
            failures: level.failures.iter().map(|(class, count)| (class.as_str(), *count)).collect(),
            ttft: level.ttft_seconds.map(Quantiles::from),
            tpot: level.tpot_seconds.map(Quantiles::from),
            throughput: level.throughput_tokens_per_second,
            throughput_error: level.throughput_standard_error,
            notes: notes.into_iter().filter(|(holds, _)| *holds).map(|(_, note)| note).collect(),
            missing: None,
            ttft_objective: None,
        }
    }
}

impl LevelRow {
    /// A level without numbers, and why.
    #[must_use]
    pub fn missing(load: Load, why: String) -> Self {
        Self {
            load,
            requests: 0,
            ok: 0,
            failures: BTreeMap::new(),
            ttft: None,
            tpot: None,
            throughput: None,
            throughput_error: None,
            notes: Vec::new(),
            missing: Some(why),
            ttft_objective: None,
        }
    }
}

/// A whole ladder's rows, ascending.
#[must_use]
pub fn level_rows(levels: &[LevelSummary], not_run: &[NotRun]) -> Vec<LevelRow> {
    let left_out = not_run
        .iter()
        .map(|not_run| LevelRow::missing(not_run.load(), format!("not run: {}", not_run.reason)));
    let mut rows: Vec<LevelRow> = levels.iter().map(LevelRow::from).chain(left_out).collect();
    rows.sort_by_key(|row| row.load);
    rows
}

/// The table. `link` makes a level's number lead somewhere; `chosen` is the one that is shown there.
#[must_use]
pub fn levels_table(
    caption: &str,
    rows: &[LevelRow],
    chosen: Option<Load>,
    link: Option<&dyn Fn(Load) -> String>,
) -> Markup {
    let open = rows.iter().any(|row| matches!(row.load, Load::Rate(_)));
    html! {
        div.wide tabindex="0" role="region" aria-label=(caption) {
            table.levels {
                caption.unseen { (caption) }
                thead {
                    tr {
                        th.n scope="col" { @if open { "rate" } @else { "in flight" } }
                        th.n scope="col" { "TTFT P50" } th.n scope="col" { "P95" } th.n scope="col" { "P99" }
                        th.n scope="col" { "TPOT P50" } th.n scope="col" { "P95" }
                        th.n scope="col" { "total TPS" } th scope="col" { "ok / failed" }
                    }
                }
                tbody {
                    @for row in rows {
                        tr.chosen[chosen == Some(row.load)] {
                            th.n scope="row" {
                                @match link {
                                    Some(link) => a href=(link(row.load)) aria-label={ "history at " (load_words(row.load)) } { (row.load.short()) },
                                    None => (row.load.short()),
                                }
                            }
                            @match &row.missing {
                                Some(why) => td.missing colspan="7" { (why) },
                                None => (numbers(row)),
                            }
                        }
                    }
                }
            }
        }
    }
}

fn numbers(row: &LevelRow) -> Markup {
    let count = |quantiles: Option<Quantiles>| quantiles.map_or(0, |quantiles| quantiles.count);
    let cell = |quantiles: Option<Quantiles>, value: fn(Quantiles) -> f64, needed: usize| {
        latency_low(quantiles.map(value), count(quantiles), count(quantiles) < needed)
    };
    let failed = row.requests.saturating_sub(row.ok);
    let beyond = row.ttft.zip(row.ttft_objective).is_some_and(|(ttft, objective)| ttft.p95 > objective);
    html! {
        td.n { (cell(row.ttft, |q| q.p50, 2)) }
        td.n.missed[beyond] { (cell(row.ttft, |q| q.p95, 20)) }
        td.n { (cell(row.ttft, |q| q.p99, 100)) }
        td.n { (cell(row.tpot, |q| q.p50, 2)) }
        td.n { (cell(row.tpot, |q| q.p95, 20)) }
        td.n {
            @match row.throughput {
                Some(rate) => {
                    (tokens_per_second(rate))
                    @if let Some(error) = row.throughput_error { small { " ±" (tokens_per_second(1.96 * error)) } }
                }
                None => "–",
            }
        }
        td {
            span.bad[failed > 0] { (row.ok) " / " (failed) } " "
            @for (class, count) in &row.failures { span.note { (count) " " (class) } " " }
            @for note in &row.notes { span.note { (note) } " " }
        }
    }
}
