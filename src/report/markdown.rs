//! A run as Markdown: the tables and sentences of its HTML, for where no picture can be pasted.

use std::fmt::Write as _;

use super::{Named, RunReport, Style, html::capacity, table};
use crate::{
    archive::ProbeRow,
    cell::Load,
    html::{latency, load_words},
};

/// A run.
#[must_use]
pub fn run_markdown(run: &RunReport<'_>, started_at: &str) -> String {
    let listing = &run.record.listing;
    let report = run.record.report();
    let named = Named { sweep: &listing.run.sweep, started_at, report: &report };
    let mut out = String::new();
    let _ = writeln!(out, "# Run {} of sweep {}\n", listing.id, listing.run.sweep);
    let result = listing.run.result.as_deref().unwrap_or("unfinished");
    let failed = listing.requests.saturating_sub(listing.ok);
    let _ = writeln!(
        out,
        "Started {started_at}, {result}; {} requests, {failed} failed; tokenprobe {} ({}).\n",
        listing.requests, listing.run.version, listing.run.revision
    );
    let _ = writeln!(out, "{}\n", table(&named, Style::Markdown));
    for ladder in &report.ladders {
        let _ = writeln!(
            out,
            "## {} at {}, {} prompt tokens\n",
            ladder.model, ladder.target, ladder.prompt_tokens
        );
        let _ = writeln!(out, "{}\n", capacity(ladder));
        for found in &ladder.findings {
            let load = found.rate.map(Load::Rate).or(found.level.map(Load::Concurrency));
            let at = load.map(|load| format!(" at {}", load_words(load))).unwrap_or_default();
            let evidence: Vec<String> =
                found.evidence.iter().map(|(name, number)| format!("{name} {number:.4}")).collect();
            let _ = writeln!(
                out,
                "- **{}**{at}: {}. {}",
                found.finding,
                found.finding.meaning(),
                found.finding.mend()
            );
            let _ = writeln!(out, "  ({})", evidence.join(", "));
        }
        out.push('\n');
    }
    probes(&mut out, "The slowest first tokens", run.slowest.iter());
    probes(&mut out, "Failures", run.failures.iter().map(|failed| &failed.probe));
    let plan = serde_json::to_string_pretty(&listing.run.plan).unwrap_or_default();
    let _ = writeln!(out, "## Configuration\n\n```json\n{plan}\n```");
    out
}

fn probes<'a>(out: &mut String, title: &str, probes: impl Iterator<Item = &'a ProbeRow>) {
    let mut probes = probes.peekable();
    if probes.peek().is_none() {
        return;
    }
    let _ = writeln!(out, "## {title}\n\n| model | load | first token | duration | error | trace id |");
    let _ = writeln!(out, "|---|---|---|---|---|---|");
    for probe in probes {
        let ProbeRow { model, record, .. } = probe;
        let load = probe.load().short();
        let first = record.time_to_first_token_seconds.map_or_else(|| "-".into(), latency);
        let error = record.error.as_ref().map(|error| format!("{}: {}", error.class, error.message));
        let error = error.unwrap_or_default().replace('|', "\\|");
        let duration = latency(record.duration_seconds);
        let trace = record.trace_id.as_deref().unwrap_or_default();
        let _ = writeln!(out, "| {model} | {load} | {first} | {duration} | {error} | {trace} |");
    }
    out.push('\n');
}
