//! A comparison of two runs as text: what differed in how they were made, then cell by cell what changed.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use super::Style;
use crate::{
    analysis::compare::{ALPHA, CellComparison, Change, Comparison, OverallChange, Verdict},
    archive::{Difference, LikeCell},
    cell::Load,
};

/// Everything that is told of a comparison.
#[derive(Debug, Serialize)]
pub struct Compared {
    /// `tokenprobe.comparison/1`.
    pub schema: &'static str,
    /// The run that is compared with.
    pub before: RunName,
    /// The run that is judged.
    pub after: RunName,
    /// Settings in which they differ.
    pub differences: Vec<Difference>,
    /// What changed, over all and cell by cell.
    #[serde(flatten)]
    pub comparison: Comparison<LikeCell>,
    /// Smallest change of a latency or speed that is called one, in percent.
    pub min_change_percent: f64,
    /// Levels of either run that the other has no like of.
    pub unmatched_levels: usize,
}

/// A run as it is called in a comparison.
#[derive(Debug, Serialize)]
pub struct RunName {
    /// Its number.
    pub run: i64,
    /// Name of the sweep.
    pub sweep: String,
    /// RFC 3339.
    pub started_at: String,
}

/// A comparison as one JSON object.
///
/// # Errors
/// Never in practice: the types hold nothing that JSON cannot.
pub fn comparison_json(compared: &Compared) -> serde_json::Result<String> {
    serde_json::to_string(compared)
}

/// A comparison as text. With `changed_only`, what is unchanged is only counted.
#[must_use]
pub fn comparison(compared: &Compared, style: Style, changed_only: bool) -> String {
    let mut out = String::new();
    for (word, run) in [("before", &compared.before), ("after", &compared.after)] {
        let _ = writeln!(out, "{word:<7} run {} of sweep {}, {}", run.run, run.sweep, run.started_at);
    }
    out.push('\n');
    if compared.differences.is_empty() {
        out.push_str(alike(compared));
        out.push('\n');
    } else {
        let _ = writeln!(out, "{} settings differ:", compared.differences.len());
        for Difference { setting, before, after } in &compared.differences {
            let _ = writeln!(out, "  {setting}: {before} -> {after}");
        }
    }
    let _ = writeln!(out, "\n{}\n", cells(compared, style, changed_only));
    let _ = writeln!(out, "{}", totals(compared));
    for line in overall(compared) {
        let _ = writeln!(out, "{line}");
    }
    let _ = writeln!(
        out,
        "difference: median of all differences between a sample after and one before, with its 95% interval; p: \
         probability of\nsuch a difference between equals (Mann-Whitney; of failures Fisher), all tests taken together \
         (Holm); effect: Cliff's delta\n(of failures Cohen's h). A verdict takes p below 0.01 and, but for failures, a change \
         of {}% or more.\nUnchanged is not equal: what the interval holds is not ruled out (`tokenprobe compare --help`).",
        compared.min_change_percent
    );
    out
}

/// What is said where no setting differs.
pub(super) fn alike(compared: &Compared) -> &'static str {
    if compared.before.run == compared.after.run {
        "two parts of one run: the same configuration and software"
    } else {
        "same configuration, same software, same served models"
    }
}

fn cells(compared: &Compared, style: Style, changed_only: bool) -> String {
    let mut table = Table::new();
    table.load_preset(match style {
        Style::Text => presets::NOTHING,
        Style::Markdown => presets::ASCII_MARKDOWN,
    });
    table.set_header([
        "target",
        "model",
        "prompt",
        "load",
        "",
        "before",
        "after",
        "difference",
        "%",
        "p",
        "effect",
        "verdict",
    ]);
    for cell in &compared.comparison.cells {
        for row in rows(cell) {
            let dull = matches!(row.verdict, Some(Verdict::Unchanged | Verdict::TooFewSamples) | None);
            if !(changed_only && dull) {
                table.add_row(style.row(row.texts));
            }
        }
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}

struct TableRow {
    texts: Vec<String>,
    verdict: Option<Verdict>,
}

fn rows(cell: &CellComparison<LikeCell>) -> Vec<TableRow> {
    let milliseconds = ("ms", 1e3, 1);
    let quantities = [
        ("TTFT p50", &cell.ttft_seconds, milliseconds),
        ("TPOT p50", &cell.tpot_seconds, ("ms", 1e3, 2)),
        ("request TPS p50", &cell.request_tps, ("", 1.0, 1)),
        ("failed", &cell.failure_ratio, ("%", 1e2, 1)),
    ];
    let mut rows: Vec<TableRow> = quantities
        .into_iter()
        .map(|(name, change, unit)| TableRow {
            texts: named(cell, name).into_iter().chain(told(change, unit)).collect(),
            verdict: Some(change.verdict),
        })
        .collect();
    let total = &cell.throughput_tokens_per_second;
    let number = |value: Option<f64>| value.map_or_else(|| "-".into(), |value| format!("{value:.1}"));
    let difference = total.before.zip(total.after).map(|(before, after)| after - before);
    let relative = difference.zip(total.before.filter(|before| *before > 0.0)).map(|(d, before)| d / before);
    let shown = [
        number(total.before),
        number(total.after),
        difference.map_or_else(|| "-".into(), |difference| format!("{difference:+.1}")),
        percent(relative),
        String::new(),
        String::new(),
        String::new(),
    ];
    rows.push(TableRow { texts: named(cell, "total TPS").into_iter().chain(shown).collect(), verdict: None });
    rows
}

fn named(cell: &CellComparison<LikeCell>, quantity: &str) -> [String; 5] {
    let LikeCell { target, model, prompt_tokens, concurrency, rate } = &cell.cell;
    let load = Load::of(*concurrency, *rate).short();
    [target.clone(), model.clone(), prompt_tokens.to_string(), load, quantity.to_owned()]
}

fn told(change: &Change, (unit, factor, digits): (&str, f64, usize)) -> [String; 7] {
    let number = |value: f64| format!("{:.digits$}", value * factor);
    let signed = |value: f64| format!("{:+.digits$}", value * factor);
    let with_unit = |text: String| if unit.is_empty() { text } else { format!("{text} {unit}") };
    let shown = |value: Option<f64>| value.map_or_else(|| "-".into(), |value| with_unit(number(value)));
    let difference = match (change.difference, change.interval) {
        (Some(difference), Some([low, high])) => {
            format!("{} [{}, {}]", signed(difference), signed(low), signed(high))
        }
        _ => "-".into(),
    };
    let p_value = change.p_value.map_or_else(
        || "-".into(),
        |p_value| if p_value < 0.0001 { "<0.0001".into() } else { format!("{p_value:.4}") },
    );
    [
        shown(change.before),
        shown(change.after),
        difference,
        percent(change.relative),
        p_value,
        change.effect.map_or_else(|| "-".into(), |effect| format!("{effect:+.2}")),
        change.verdict.as_str().to_owned(),
    ]
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".into(), |share| format!("{:+.1}%", share * 100.0))
}

/// What all cells taken together say, a sentence a quantity.
pub(crate) fn overall(compared: &Compared) -> Vec<String> {
    let min_change = compared.min_change_percent;
    let told = |name: &str, change: &OverallChange| {
        let OverallChange { cells, relative, p_value, verdict } = change;
        let p = if *p_value < 1e-4 { "<0.0001".to_owned() } else { format!("{p_value:.4}") };
        // Surely something, and too little to be called it.
        let small = *verdict == Verdict::Unchanged && *p_value < ALPHA;
        let why = if small { format!(" (less than {min_change}%)") } else { String::new() };
        let (percent, verdict) = (relative * 100.0, verdict.as_str());
        format!("{name} over {cells} cells taken together: {percent:+.1}%, p {p}: {verdict}{why}")
    };
    let comparison = &compared.comparison;
    let quantities = [("TTFT", &comparison.overall_ttft), ("TPOT", &comparison.overall_tpot)];
    quantities.into_iter().filter_map(|(name, change)| Some(told(name, change.as_ref()?))).collect()
}

pub(super) fn totals(compared: &Compared) -> String {
    let of = |verdict| compared.comparison.cells.iter().filter(|cell| cell.verdict == verdict).count();
    let mut line = format!(
        "{} cells: {} worse, {} improved, {} unchanged, {} with too few samples",
        compared.comparison.cells.len(),
        of(Verdict::Worse),
        of(Verdict::Improved),
        of(Verdict::Unchanged),
        of(Verdict::TooFewSamples),
    );
    if compared.unmatched_levels > 0 {
        let _ = write!(line, "; {} levels have no like in the other run", compared.unmatched_levels);
    }
    line
}
