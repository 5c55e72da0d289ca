//! A run or a comparison as HTML: the body that the status page shows too, and the document that stands alone.
//!
//! A document brings everything with it: it opens offline, prints, and can be attached to a review. Its policy allows its
//! own style sheet and nothing else.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use chrono::DateTime;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest as _, Sha256};

use super::{Compared, RunName};
use crate::{
    archive::{Failed, LevelRow, ProbeRow, SweepRecord},
    cell::Load,
    html::{
        LadderCurves, LevelPoint, STYLE, comparison, distribution, findings, grouped, instant, ladder_chart,
        latency, level_rows, levels_table, load_words, probe_details, settings, span,
    },
    sweep::{LadderReport, SweepReport},
};

/// A run, with the single probes that are shown of it.
#[derive(Debug)]
pub struct RunReport<'a> {
    /// The run.
    pub record: &'a SweepRecord,
    /// The probes with the longest times to first token.
    pub slowest: &'a [ProbeRow],
    /// Probes that failed, the latest first.
    pub failures: &'a [Failed],
}

/// A document that stands alone.
#[must_use]
pub fn document(title: &str, body: &Markup) -> String {
    let style = STANDARD.encode(Sha256::digest(STYLE));
    let policy =
        format!("default-src 'none'; style-src 'sha256-{style}'; base-uri 'none'; form-action 'none'");
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy);
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) " · tokenprobe" }
                style { (PreEscaped(STYLE)) }
            }
            body.report { main { (body) } footer { p { "tokenprobe " (crate::version::PACKAGE) " · times in UTC" } } }
        }
    };
    page.into_string()
}

/// A run: its ladders with curves, distributions and findings, its slowest and failed probes, its configuration.
#[must_use]
pub fn run_body(run: &RunReport<'_>) -> Markup {
    let listing = &run.record.listing;
    let report: SweepReport = run.record.report();
    html! {
        h1 { "Run " (listing.id) " " small { "sweep " (listing.run.sweep) } }
        (facts(run.record))
        @if report.ladders.is_empty() { p.none { "No level of this run ended." } }
        @for ladder in &report.ladders { (ladder_section(run.record, ladder)) }
        @if !run.slowest.is_empty() {
            section.probes {
                h2 { "The slowest first tokens" }
                @for probe in run.slowest { (probe_section(probe)) }
            }
        }
        @if !run.failures.is_empty() {
            section.probes {
                h2 { "Failures" }
                @for failed in run.failures { (probe_section(&failed.probe)) }
            }
        }
        section {
            h2 { "Configuration" }
            (settings("configuration of the run", &listing.run.plan))
        }
    }
}

fn facts(record: &SweepRecord) -> Markup {
    let (listing, run) = (&record.listing, &record.listing.run);
    let at = DateTime::from_timestamp_millis;
    let took = at(run.started_at).zip(run.ended_at.and_then(at)).map(|(start, end)| span(end - start));
    let mut served: Vec<String> = record.levels.iter().filter_map(served_as).collect();
    served.sort();
    served.dedup();
    html! {
        dl.facts {
            div { dt { "started" } dd { (at(run.started_at).map(instant).unwrap_or_default()) } }
            div { dt { "took" } dd { (took.as_deref().unwrap_or("–")) } }
            div { dt { "result" } dd { (run.result.as_deref().unwrap_or("unfinished")) } }
            div { dt { "requests" } dd { (listing.requests) ", " (listing.requests.saturating_sub(listing.ok)) " failed" } }
            div { dt { "measured by" } dd { "tokenprobe " (run.version) " (" (run.revision) ")" } }
            @for served in &served { div { dt { "served as" } dd { (served) } } }
        }
    }
}

fn served_as(level: &LevelRow) -> Option<String> {
    let served = level.served_model.as_deref().filter(|served| *served != level.model);
    let said: Vec<&str> = served.into_iter().chain(level.fingerprint.as_deref()).collect();
    (!said.is_empty()).then(|| format!("{}: {}", level.model, said.join(", ")))
}

fn ladder_section(record: &SweepRecord, ladder: &LadderReport) -> Markup {
    let rows = level_rows(&ladder.levels, &ladder.not_run);
    let caption = format!("Levels of {} at {} prompt tokens", ladder.model, ladder.prompt_tokens);
    let curves = LadderCurves {
        levels: rows
            .iter()
            .map(|row| LevelPoint {
                load: row.load,
                ttft_p50: row.ttft.map(|ttft| ttft.p50),
                ttft_p95: row.ttft.map(|ttft| ttft.p95),
                throughput: row.throughput,
            })
            .collect(),
        knee: knee(ladder),
        safe: safe(ladder),
        objective: record.listing.run.plan.pointer("/objectives/ttft").and_then(serde_json::Value::as_f64),
    };
    let samples: Vec<(String, Vec<(f64, u32)>)> = record
        .levels
        .iter()
        .filter(|level| is_of(level, ladder))
        .filter_map(|level| Some((level.load().short(), level.ttft_sketch.as_ref()?.samples())))
        .collect();
    html! {
        section.ladder {
            h2 { (ladder.model) " " small { "at " (ladder.target) ", " (grouped(ladder.prompt_tokens.into())) " prompt tokens" } }
            p { (capacity(ladder)) }
            (levels_table(&caption, &rows, None, None))
            div.pair {
                (ladder_chart(&curves))
                (distribution("Share of requests by TTFT", &samples))
            }
            (findings(&ladder.findings))
        }
    }
}

fn is_of(level: &LevelRow, ladder: &LadderReport) -> bool {
    *level.target == *ladder.target
        && *level.model == *ladder.model
        && level.prompt_tokens == ladder.prompt_tokens
}

fn knee(ladder: &LadderReport) -> Option<Load> {
    ladder.knee.rate().map(Load::Rate).or(ladder.knee.concurrency().map(Load::Concurrency))
}

fn safe(ladder: &LadderReport) -> Option<Load> {
    ladder.safe_rate.map(Load::Rate).or(ladder.safe_concurrency.map(Load::Concurrency))
}

/// What a ladder says about capacity, in a sentence.
pub(super) fn capacity(ladder: &LadderReport) -> String {
    crate::html::capacity(ladder.knee.state(), knee(ladder), safe(ladder))
}

fn probe_section(probe: &ProbeRow) -> Markup {
    let first = probe.record.time_to_first_token_seconds.map_or_else(|| "no token".into(), latency);
    html! {
        article.probe {
            h3 {
                @match &probe.class { Some(class) => (class), None => (first) }
                " " small { (probe.model) " · " (grouped(probe.prompt_tokens.into())) " tokens, " (load_words(probe.load())) " · " (probe.record.started_at) }
            }
            (probe_details(&probe.record))
        }
    }
}

/// A comparison of two runs.
#[must_use]
pub fn comparison_body(compared: &Compared) -> Markup {
    let name =
        |RunName { run, sweep, started_at }: &RunName| format!("run {run} of sweep {sweep}, {started_at}");
    html! {
        h1 { "Run " (compared.before.run) " and run " (compared.after.run) }
        dl.facts {
            div { dt { "before" } dd { (name(&compared.before)) } }
            div { dt { "after" } dd { (name(&compared.after)) } }
            div { dt { "verdict" } dd { (super::comparison::totals(compared)) } }
            @for line in super::comparison::overall(compared) { div { dt { "over all" } dd { (line) } } }
        }
        (comparison(super::comparison::alike(compared), &compared.differences, &compared.comparison.cells))
        p.small { "A verdict takes p below 0.01 and, but for failures, a change of " (compared.min_change_percent) "% or more. Unchanged is not equal: what the interval holds is not ruled out." }
    }
}
