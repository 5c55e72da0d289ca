//! One model: its ladders with their curves and findings, what became of a cell over time, and what failed.

use chrono::{DateTime, NaiveDateTime, TimeDelta, Utc};
use maud::{Markup, html};
use serde::Deserialize;

use super::{Shell, model_link, query, records::failure_list};
use crate::{
    archive::{Failed, Moment},
    arrivals::Rate,
    cell::{Cell, Load},
    html::{
        LadderCurves, LevelPoint, LevelRow, Line, Moments, Quantiles, Unit, Window, capacity, findings,
        grouped, ladder_chart, levels_table, load_words, moment, time_chart,
    },
    server::{CellStatus, LadderStatus, Latency, Status, SweepStatus},
};

/// What a visitor asks of a model.
#[derive(Debug, Clone, Default, Deserialize)]
pub(in crate::server) struct Asked {
    /// Name of the target.
    #[serde(default)]
    pub(in crate::server) target: String,
    /// Model.
    #[serde(default)]
    pub(in crate::server) model: String,
    /// The sweep whose history is shown.
    sweep: Option<String>,
    /// Its prompt length.
    prompt_tokens: Option<u32>,
    /// Its load: `8`, `5/s`.
    level: Option<String>,
    /// How far back: `24h`, `7d`, `30d`, `365d`.
    range: Option<String>,
    /// From when: milliseconds since the Unix epoch, or a date and time in UTC.
    from: Option<String>,
    /// Until when.
    to: Option<String>,
}

/// What is shown of a model's history.
#[derive(Debug, Clone)]
pub(in crate::server) struct Chosen {
    /// The cell.
    pub(in crate::server) cell: Cell,
    /// The span of time.
    pub(in crate::server) window: Window,
    /// Whether the visitor named it; else it ends where history begins.
    pub(in crate::server) named: bool,
}

/// Everything that a model's page shows beside the snapshot.
pub(in crate::server) struct ModelPage<'a> {
    /// Whose.
    pub(in crate::server) asked: &'a Asked,
    /// The history that is shown.
    pub(in crate::server) chosen: &'a Chosen,
    /// That history and the latest failures; or why they are not known.
    pub(in crate::server) remembered: Result<(Vec<Moment>, Vec<Failed>), String>,
}

/// Ranges that are offered.
const RANGES: [(&str, &str, i64); 4] = [
    ("24h", "24 hours", 24),
    ("7d", "7 days", 7 * 24),
    ("30d", "30 days", 30 * 24),
    ("365d", "a year", 365 * 24),
];
/// The range where none is chosen.
const RANGE: i64 = 7 * 24;

impl Asked {
    /// Which history is meant; `None` when there is no such model.
    pub(in crate::server) fn choose(&self, status: &Status, now: DateTime<Utc>) -> Option<Chosen> {
        let mine =
            || status.cells.iter().filter(|cell| *cell.target == *self.target && *cell.model == *self.model);
        let like = |cell: &&CellStatus| {
            self.sweep.as_ref().is_none_or(|sweep| *cell.sweep == **sweep)
                && self.prompt_tokens.is_none_or(|length| cell.prompt_tokens == length)
                && self.level.as_ref().is_none_or(|level| cell.load().short() == *level)
        };
        let cell = mine().find(like).or_else(|| mine().next())?;
        let hours = |hours: i64| (now - TimeDelta::hours(hours)).timestamp_millis();
        let range = self.range.as_ref().and_then(|range| RANGES.iter().find(|(name, ..)| name == range));
        let from = self.from.as_deref().and_then(instant);
        let to = self.to.as_deref().and_then(instant).unwrap_or_else(|| now.timestamp_millis());
        let named = from.is_some() || range.is_some();
        let from = from.unwrap_or_else(|| hours(range.map_or(RANGE, |(_, _, hours)| *hours)));
        Some(Chosen {
            cell: Cell {
                sweep: cell.sweep.clone(),
                target: cell.target.clone(),
                model: cell.model.clone(),
                prompt_tokens: cell.prompt_tokens,
                concurrency: cell.concurrency,
                rate: cell.rate.and_then(Rate::new),
            },
            window: Window { from: from.min(to - 1_000), to },
            named,
        })
    }
}

/// An instant as the script or a form writes it.
fn instant(text: &str) -> Option<i64> {
    if let Ok(millis) = text.parse::<i64>() {
        return DateTime::<Utc>::from_timestamp_millis(millis).map(|_| millis);
    }
    let formats = ["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%SZ"];
    let parsed = formats.iter().find_map(|format| NaiveDateTime::parse_from_str(text, format).ok());
    parsed.map(|at| at.and_utc().timestamp_millis())
}

/// The page.
pub(in crate::server) fn model_page(shell: &Shell<'_>, page: &ModelPage<'_>) -> String {
    let Asked { target, model, .. } = page.asked;
    let cells: Vec<&CellStatus> =
        shell.status.cells.iter().filter(|cell| *cell.target == **target && *cell.model == **model).collect();
    let alike = |one: &&CellStatus, other: &&CellStatus| {
        one.sweep == other.sweep && one.prompt_tokens == other.prompt_tokens
    };
    let content = html! {
        h1 { (model) " " small { "at " (target) } }
        div #ladders data-live {
            @for cells in cells.chunk_by(alike) { (ladder(shell, page, cells)) }
        }
        section aria-labelledby="history-title" {
            h2 #history-title { "History" }
            div #history data-live { (history(shell, page)) }
        }
        section aria-labelledby="failures-title" {
            h2 #failures-title { "Latest failures" }
            div #failures data-live {
                @match &page.remembered {
                    Ok((_, failures)) => (failure_list(failures, shell.now, "No failure of this model is kept.")),
                    Err(why) => p.none { (why) },
                }
            }
        }
    };
    shell.page(&format!("{model} at {target}"), "model", &content)
}

fn ladder(shell: &Shell<'_>, page: &ModelPage<'_>, cells: &[&CellStatus]) -> Markup {
    let Some(first) = cells.first() else { return html! {} };
    let status = shell.status;
    let sweep = status.sweeps.iter().find(|sweep| sweep.name == first.sweep);
    let known = status.ladders.iter().find(|ladder| {
        (&ladder.sweep, &ladder.target, &ladder.model, ladder.prompt_tokens)
            == (&first.sweep, &first.target, &first.model, first.prompt_tokens)
    });
    let objective = sweep.and_then(|sweep| sweep.objectives.ttft_seconds);
    let rows: Vec<LevelRow> = cells.iter().map(|cell| level_row(cell, objective)).collect();
    let caption = format!("Levels of {} prompt tokens, sweep {}", first.prompt_tokens, first.sweep);
    let chosen = &page.chosen.cell;
    let shown = chosen.sweep == first.sweep && chosen.prompt_tokens == first.prompt_tokens;
    let link = |load: Load| {
        let (length, level) = (first.prompt_tokens.to_string(), load.short());
        let cell = [("sweep", &*first.sweep), ("prompt_tokens", &length), ("level", &level)];
        format!("{}&{}#history-title", model_link(&first.target, &first.model), query(cell))
    };
    html! {
        section.ladder {
            h2 { (grouped(first.prompt_tokens.into())) " prompt tokens " small { "sweep " (first.sweep) } }
            p { (told(known)) " " (measured(cells, sweep, shell.now)) }
            div.curves {
                (ladder_chart(&curves(cells, known, objective)))
                (levels_table(&caption, &rows, shown.then_some(chosen.load()), Some(&link)))
            }
            @if let Some(ladder) = known { (findings(&ladder.findings)) }
        }
    }
}

fn curves(cells: &[&CellStatus], known: Option<&LadderStatus>, objective: Option<f64>) -> LadderCurves {
    let levels = cells.iter().map(|cell| LevelPoint {
        load: cell.load(),
        ttft_p50: cell.ttft_seconds.as_ref().map(|ttft| ttft.p50),
        ttft_p95: cell.ttft_seconds.as_ref().map(|ttft| ttft.p95),
        throughput: cell.throughput_tokens_per_second,
    });
    LadderCurves {
        levels: levels.collect(),
        knee: known.and_then(LadderStatus::knee),
        safe: known.and_then(LadderStatus::safe),
        objective,
    }
}

/// What the ladder says about capacity, in a sentence.
fn told(ladder: Option<&LadderStatus>) -> Markup {
    html! {
        @match ladder {
            Some(ladder) => (capacity(&ladder.state, ladder.knee(), ladder.safe())),
            None => span.none { "No run of this ladder has ended yet." },
        }
    }
}

fn measured(cells: &[&CellStatus], sweep: Option<&SweepStatus>, now: DateTime<Utc>) -> Markup {
    let latest = cells.iter().filter_map(|cell| cell.measured_at).max();
    html! {
        @if latest.is_some() { "Measured " (moment(latest, now)) "." }
        @if let Some(level) = sweep.and_then(|sweep| sweep.progress.as_ref()?.level.as_ref()) {
            @if cells.iter().any(|cell| cell.model == level.model && cell.target == level.target && cell.prompt_tokens == level.prompt_tokens) {
                " " span.badge.warn { "running now: " (level.load) }
            }
        }
    }
}

fn level_row(cell: &CellStatus, ttft_objective: Option<f64>) -> LevelRow {
    let quantiles = |latency: &Option<Latency>| {
        latency.as_ref().map(|l| Quantiles { count: l.count, p50: l.p50, p95: l.p95, p99: l.p99 })
    };
    if let Some(reason) = &cell.not_run {
        return LevelRow::missing(cell.load(), format!("not run: {reason}"));
    }
    if cell.measured_at.is_none() {
        return LevelRow::missing(cell.load(), "not measured yet".to_owned());
    }
    LevelRow {
        load: cell.load(),
        requests: cell.requests,
        ok: cell.ok,
        failures: cell.failures.iter().map(|(class, count)| (class.as_str(), *count)).collect(),
        ttft: quantiles(&cell.ttft_seconds),
        tpot: quantiles(&cell.tpot_seconds),
        throughput: cell.throughput_tokens_per_second,
        throughput_error: None,
        notes: Vec::new(),
        missing: None,
        ttft_objective,
    }
}

fn history(shell: &Shell<'_>, page: &ModelPage<'_>) -> Markup {
    let cell = &page.chosen.cell;
    let moments = match &page.remembered {
        Ok((moments, _)) => moments.as_slice(),
        Err(why) => return html! { p.none { (why) } },
    };
    let window = shown(page.chosen, moments);
    let sweep = shell.status.sweeps.iter().find(|sweep| sweep.name == cell.sweep);
    let objectives = sweep.map(|sweep| sweep.objectives).unwrap_or_default();
    html! {
        p { (grouped(cell.prompt_tokens.into())) " prompt tokens, " b { (load_words(cell.load())) } ", sweep " (cell.sweep)
            ". Choose another level in the tables above." }
        (ranges(page, window))
        @if moments.is_empty() {
            p.none { "No level of this cell ended in this time." }
        } @else {
            div.charts {
            (time_chart(&Moments { title: "time to first token", window, objective: objectives.ttft_seconds, unit: Unit::Seconds, lines: vec![
                line("faint", "P50", moments, |moment| moment.ttft_p50_seconds),
                line("ttft", "P95", moments, |moment| moment.ttft_p95_seconds),
            ] }))
            (time_chart(&Moments { title: "time per output token", window, objective: objectives.tpot_seconds, unit: Unit::Seconds, lines: vec![
                line("faint", "P50", moments, |moment| moment.tpot_p50_seconds),
                line("tpot", "P95", moments, |moment| moment.tpot_p95_seconds),
            ] }))
            (time_chart(&Moments { title: "total tokens per second", window, objective: None, unit: Unit::Rate, lines: vec![
                line("tps", "throughput", moments, |moment| moment.throughput_tokens_per_second),
            ] }))
            (time_chart(&Moments { title: "requests that failed", window, objective: None, unit: Unit::Share, lines: vec![
                line("failed", "share", moments, failed),
            ] }))
            }
        }
    }
}

/// The share of requests that failed.
fn failed(moment: &Moment) -> Option<f64> {
    (moment.requests > 0)
        .then(|| f64::from(moment.requests.saturating_sub(moment.ok)) / f64::from(moment.requests))
}

/// The window, without the emptiness before history begins, unless it was asked for.
fn shown(chosen: &Chosen, moments: &[Moment]) -> Window {
    let Window { from, to } = chosen.window;
    match (chosen.named, moments.first()) {
        (false, Some(first)) => Window { from: from.max(first.at - (to - first.at) / 50), to },
        _ => chosen.window,
    }
}

fn line<'a>(
    class: &'static str,
    name: &'a str,
    moments: &[Moment],
    value: fn(&Moment) -> Option<f64>,
) -> Line<'a> {
    Line {
        class,
        name,
        points: moments.iter().filter_map(|moment| Some((moment.at, value(moment)?))).collect(),
    }
}

/// Ranges to choose from, and a form for any other; a range can be drawn in the chart, too.
fn ranges(page: &ModelPage<'_>, window: Window) -> Markup {
    let Cell { sweep, target, model, prompt_tokens, .. } = &page.chosen.cell;
    let (length, level) = (prompt_tokens.to_string(), page.chosen.cell.load().short());
    let fields = [
        ("target", &**target),
        ("model", &**model),
        ("sweep", &**sweep),
        ("prompt_tokens", length.as_str()),
        ("level", level.as_str()),
    ];
    let link = |range: &str| format!("model?{}&range={range}#history-title", query(fields));
    let written = |millis: i64| {
        let at = DateTime::<Utc>::from_timestamp_millis(millis).unwrap_or_default();
        at.format("%Y-%m-%dT%H:%M").to_string()
    };
    html! {
        form.ranges method="get" action="model" #range-form {
            span { @for (name, words, _) in RANGES {
                a href=(link(name)) aria-current=[(page.asked.range.as_deref() == Some(name)).then_some("true")] { (words) } " "
            } }
            @for (name, value) in fields { input type="hidden" name=(name) value=(value); }
            label { "from " input type="datetime-local" name="from" value=(written(window.from)); }
            label { "to " input type="datetime-local" name="to" value=(written(window.to)); }
            button { "Show" }
            small { "UTC; or drag across a chart" }
        }
    }
}
