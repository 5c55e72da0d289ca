//! The sweep's table: for a terminal, as Markdown, and its numbers as CSV.

use comfy_table::{CellAlignment, Table, presets};

use super::{Named, account};
use crate::{
    analysis::{Basis, Decided, Finding, Found, LevelSummary, Percentiles},
    arrivals::Rate,
    cell::Load,
    sweep::LadderReport,
};

/// How the table is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Aligned columns.
    Text,
    /// A Markdown table.
    Markdown,
}

impl Style {
    /// A row whose texts do not break the table.
    pub(super) fn row(self, texts: Vec<String>) -> Vec<String> {
        match self {
            Self::Text => texts,
            Self::Markdown => texts.into_iter().map(|text| text.replace('|', "\\|")).collect(),
        }
    }
}

/// Marks a percentile that rests on too few samples.
const LOW: &str = "*";

const HEADERS: [&str; 13] = [
    "target",
    "model",
    "prompt",
    "load",
    "ok/fail",
    "TTFT p50",
    "p95",
    "p99 ms",
    "TPOT p50",
    "p95 ms",
    "req TPS",
    "total TPS",
    "notes",
];

/// The levels of a sweep, one a row; times in milliseconds.
#[must_use]
pub fn table(named: &Named<'_>, style: Style) -> String {
    let mut table = Table::new();
    table.load_preset(match style {
        Style::Text => presets::NOTHING,
        Style::Markdown => presets::ASCII_MARKDOWN,
    });
    table.set_header(HEADERS);
    for ladder in &named.report.ladders {
        for level in &ladder.levels {
            table.add_row(style.row(row(ladder, level)));
        }
        for not_run in &ladder.not_run {
            let mut row = head(ladder, not_run.load());
            row.extend(std::iter::repeat_n("-".to_owned(), 8));
            row.push(format!("not run: {}", not_run.reason));
            table.add_row(style.row(row));
        }
    }
    for column in 2..12 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let drawn = table.to_string();
    drawn.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

/// What the marks in the table mean, and what each ladder says about capacity: one line each.
#[must_use]
pub fn legend(named: &Named<'_>) -> Vec<String> {
    let mut lines: Vec<String> = named.report.ladders.iter().filter_map(capacity).collect();
    let levels = || named.report.ladders.iter().flat_map(|ladder| &ladder.levels);
    if levels().filter_map(|level| level.ttft_seconds).any(|p| p.count < 100) {
        lines.push("* rests on fewer samples than that percentile needs (20 for P95, 100 for P99)".into());
    }
    if levels().any(|level| level.ok > 0 && level.tpot_seconds.is_none()) {
        lines.push(
            "TPOT is unknown where the server does not count its tokens, sent fewer than two, or sent them all at once"
                .into(),
        );
    }
    if levels().any(|level| answer_after(level).is_some()) {
        lines.push(
            "answer: TTFT is the first token of any kind, here of thinking; the answer began later".into(),
        );
    }
    lines.extend(account::lines(&named.report.ladders));
    lines.extend(named.report.ladders.iter().flat_map(findings));
    lines
}

/// What was found of a ladder: what it means, and what to do. Capacity has its own line.
fn findings(ladder: &LadderReport) -> Vec<String> {
    let told = |found: &&Found| !matches!(found.finding, Finding::ThroughputKnee | Finding::SafeConcurrency);
    let mut lines: Vec<String> = Vec::new();
    let mut findings = ladder.findings.iter().filter(told).peekable();
    while let Some(found) = findings.next() {
        let mut at: Vec<String> = place(found).into_iter().collect();
        while let Some(same) =
            findings.next_if(|next| next.finding == found.finding && next.basis == found.basis)
        {
            at.extend(place(same));
        }
        let what = if found.rate.is_some() { "rate" } else { "concurrency" };
        let at = if at.is_empty() { String::new() } else { format!(" at {what} {}", at.join(", ")) };
        let basis = match found.basis {
            Basis::Observed => "",
            Basis::Inferred => " (inferred)",
            Basis::Measured => " (measured)",
        };
        lines.push(format!(
            "{} at {} prompt tokens: {}{basis}{at}: {}",
            ladder.model,
            ladder.prompt_tokens,
            found.finding,
            found.finding.meaning()
        ));
        lines.push(format!("  {}", found.finding.mend()));
    }
    lines
}

/// The level a finding is about.
fn place(found: &Found) -> Option<String> {
    found.rate.map(Load::Rate).or(found.level.map(Load::Concurrency)).map(Load::short)
}

fn capacity(ladder: &LadderReport) -> Option<String> {
    let name = format!("{} at {} prompt tokens", ladder.model, ladder.prompt_tokens);
    if let Some(knee) = ladder.knee.rate() {
        let safe = ladder.safe_rate.map(|safe| format!("safe up to {safe}/s"));
        let safe = safe.unwrap_or("no level meets the objectives".into());
        return Some(format!("{name}: requests are answered as fast as they arrive up to {knee}/s; {safe}"));
    }
    let knee = ladder.knee.concurrency()?;
    let why = match ladder.decided {
        None | Some(Decided::Gain { .. }) => format!("throughput stops growing at concurrency {knee}"),
        Some(Decided::Failures { to, .. }) => format!("requests fail beyond concurrency {knee}, at {to}"),
        Some(Decided::Latency { to }) => format!("objectives are missed beyond concurrency {knee}, at {to}"),
    };
    Some(match ladder.safe_concurrency {
        Some(safe) => format!("{name}: {why}; safe up to {safe}"),
        None => format!("{name}: {why}; no level meets the objectives"),
    })
}

fn head(ladder: &LadderReport, load: Load) -> Vec<String> {
    vec![ladder.target.to_string(), ladder.model.to_string(), ladder.prompt_tokens.to_string(), load.short()]
}

fn row(ladder: &LadderReport, level: &LevelSummary) -> Vec<String> {
    let (ttft, tpot) = (level.ttft_seconds, level.tpot_seconds);
    let mut row = head(ladder, level.load());
    row.push(format!("{}/{}", level.ok, level.requests.saturating_sub(level.ok)));
    row.push(millis(ttft, "p50", |p| p.p50));
    row.push(millis(ttft, "p95", |p| p.p95));
    row.push(millis(ttft, "p99", |p| p.p99));
    row.push(millis(tpot, "p50", |p| p.p50));
    row.push(millis(tpot, "p95", |p| p.p95));
    row.push(level.request_tps.map_or("-".into(), |p| format!("{:.1}", p.mean)));
    row.push(level.throughput_tokens_per_second.map_or("-".into(), |tps| format!("{tps:.1}")));
    let answer = answer_after(level).map(|answer| format!("answer p50 {answer:.1} ms"));
    row.push(
        answer
            .into_iter()
            .chain(Some(notes(level)).filter(|notes| !notes.is_empty()))
            .collect::<Vec<_>>()
            .join(", "),
    );
    row
}

/// The median time to the first answer token, milliseconds, where the model thought before it.
fn answer_after(level: &LevelSummary) -> Option<f64> {
    let (answer, first) = (level.first_answer_token_seconds?.p50, level.ttft_seconds?.p50);
    (answer > first).then_some(answer * 1000.0)
}

fn millis(percentiles: Option<Percentiles>, name: &str, value: impl Fn(&Percentiles) -> f64) -> String {
    percentiles.map_or("-".into(), |p| {
        let low = if p.low_confidence().contains(&name) { LOW } else { "" };
        let millis = value(&p) * 1000.0;
        if millis < 10.0 { format!("{millis:.2}{low}") } else { format!("{millis:.1}{low}") }
    })
}

fn notes(level: &LevelSummary) -> String {
    let mut notes: Vec<String> =
        level.failures.iter().map(|(class, count)| format!("{count} {class}")).collect();
    if let Some(offered) = level.offered {
        notes.extend((offered.overflow > 0).then(|| format!("{} not sent", offered.overflow)));
        notes.extend((offered.keeps_up == Some(false)).then(|| "falls behind".to_owned()));
    }
    if level.incomplete {
        notes.push("incomplete".into());
    }
    if level.client_saturated == Some(true) {
        notes.push("client saturated".into());
    }
    notes.join(", ")
}

/// The levels of a sweep as CSV with base units, one a row; empty where a value is unknown.
///
/// # Errors
/// Never in practice: it is written into memory.
pub fn csv(named: &Named<'_>) -> Result<String, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record([
        "sweep",
        "started_at",
        "target",
        "model",
        "prompt_tokens",
        "concurrency",
        "rate",
        "requests",
        "ok",
        "failed",
        "ttft_p50_seconds",
        "ttft_p95_seconds",
        "ttft_p99_seconds",
        "first_answer_token_p50_seconds",
        "tpot_p50_seconds",
        "tpot_p95_seconds",
        "request_tps_mean",
        "throughput_tokens_per_second",
        "throughput_requests_per_second",
        "prompt_tokens_measured",
        "cached_ratio",
        "client_saturated",
        "incomplete",
        "notes",
    ])?;
    for ladder in &named.report.ladders {
        for level in &ladder.levels {
            writer.write_record(csv_record(named, ladder, level))?;
        }
    }
    let bytes = writer.into_inner().map_err(csv::IntoInnerError::into_error)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn csv_record(named: &Named<'_>, ladder: &LadderReport, level: &LevelSummary) -> Vec<String> {
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    let (ttft, tpot) = (level.ttft_seconds, level.tpot_seconds);
    let mut record = vec![named.sweep.to_owned(), named.started_at.to_owned()];
    let closed = level.offered.is_none().then(|| level.concurrency.to_string());
    record.extend([ladder.target.to_string(), ladder.model.to_string(), ladder.prompt_tokens.to_string()]);
    record.extend([
        closed.unwrap_or_default(),
        number(level.rate().map(Rate::per_second)),
        level.requests.to_string(),
        level.ok.to_string(),
        level.requests.saturating_sub(level.ok).to_string(),
        number(ttft.map(|p| p.p50)),
        number(ttft.map(|p| p.p95)),
        number(ttft.map(|p| p.p99)),
        number(level.first_answer_token_seconds.map(|p| p.p50)),
        number(tpot.map(|p| p.p50)),
        number(tpot.map(|p| p.p95)),
        number(level.request_tps.map(|p| p.mean)),
        number(level.throughput_tokens_per_second),
        number(level.throughput_requests_per_second),
        number(level.prompt_tokens_measured),
        number(level.cached_ratio),
        level.client_saturated.map_or_else(String::new, |saturated| saturated.to_string()),
        level.incomplete.to_string(),
        notes(level),
    ]);
    record
}
