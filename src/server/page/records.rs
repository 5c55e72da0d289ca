//! What is kept: failures, runs, one run; and what is configured.

use chrono::{DateTime, Utc};
use maud::{Markup, html};

use super::{Shell, model_link, query};
use crate::{
    archive::{Failed, RunListing},
    html::{grouped, load_words, moment, probe_details, settings, span},
    measurement::record::Record,
};

/// The latest failures of everything.
pub(in crate::server) fn failures(shell: &Shell<'_>, failures: &[Failed]) -> String {
    let content = html! {
        h1 { "Failures" }
        div #failures data-live { (failure_list(failures, shell.now, "No failure is kept.")) }
    };
    shell.page("Failures", "failures", &content)
}

/// Failures, each with its error at once and all the rest when it is opened.
pub(super) fn failure_list(failures: &[Failed], now: DateTime<Utc>, none: &str) -> Markup {
    html! {
        @if failures.is_empty() {
            p.none { (none) }
        } @else {
            div.failures { @for failed in failures { (failure(failed, now)) } }
        }
    }
}

fn failure(failed: &Failed, now: DateTime<Utc>) -> Markup {
    let probe = &failed.probe;
    let Record { error, .. } = &probe.record;
    let message = error.as_ref().map_or("", |error| error.message.as_str());
    html! {
        details #{ "failure-" (probe.at) "-" (probe.record.trace_id.as_deref().unwrap_or_default()) } {
            summary {
                span.badge.bad { (probe.class.as_deref().unwrap_or("failed")) }
                " " span.what { (message) }
                small {
                    (moment(DateTime::from_timestamp_millis(probe.at), now)) " · " (probe.model) " at " (probe.target) " · "
                    (grouped(probe.prompt_tokens.into())) " tokens, " (load_words(probe.load())) " · " (probe.role.replace('_', "-"))
                }
            }
            (probe_details(&probe.record))
            p.small {
                a href=(model_link(&probe.target, &probe.model)) { "the model" } " · "
                a href={ "run?" (query([("id", &*failed.run.to_string())])) } { "run " (failed.run) " of sweep " (failed.sweep) }
            }
        }
    }
}

/// The latest runs.
pub(in crate::server) fn runs(shell: &Shell<'_>, runs: &[RunListing]) -> String {
    let content = html! {
        h1 { "Runs" }
        div #runs data-live {
            @if runs.is_empty() {
                p.none { "No run is kept yet." }
            } @else {
                div.wide { table {
                    thead { tr {
                        th.n scope="col" { "run" } th scope="col" { "sweep" } th scope="col" { "started" } th scope="col" { "took" }
                        th.n scope="col" { "levels" } th.n scope="col" { "requests" } th.n scope="col" { "failed" } th scope="col" { "result" }
                    } }
                    tbody { @for run in runs { (run_row(run, shell.now)) } }
                } }
            }
        }
    };
    shell.page("Runs", "runs", &content)
}

fn run_row(listing: &RunListing, now: DateTime<Utc>) -> Markup {
    let at = DateTime::<Utc>::from_timestamp_millis;
    let run = &listing.run;
    let took = at(run.started_at).zip(run.ended_at.and_then(at)).map(|(start, end)| span(end - start));
    let failed = listing.requests.saturating_sub(listing.ok);
    html! {
        tr {
            th.n scope="row" { a href={ "run?" (query([("id", &*listing.id.to_string())])) } { (listing.id) } }
            td { (run.sweep) } td { (moment(at(run.started_at), now)) } td { (took.as_deref().unwrap_or("–")) }
            td.n { (listing.levels) } td.n { (listing.requests) } td.n.bad[failed > 0] { (failed) }
            td { @let result = run.result.as_deref().unwrap_or("unfinished"); span class={ "result " (result) } { (result) } }
        }
    }
}

/// One run, as its report shows it.
pub(in crate::server) fn run(shell: &Shell<'_>, id: i64, report: &Markup) -> String {
    let content = html! {
        p.small { a href="runs" { "All runs" } }
        (report)
    };
    shell.page(&format!("Run {id}"), "run", &content)
}

/// What is configured, without secrets.
pub(in crate::server) fn configuration(shell: &Shell<'_>) -> String {
    let configuration = &shell.status.configuration;
    let sweeps = configuration.get("sweeps").and_then(serde_json::Value::as_array);
    let content = html! {
        h1 { "Configuration" }
        p.small { "As the file says it; flags come on top. Credentials are never shown." }
        @for name in ["server", "archive", "budget"] {
            @if let Some(part) = configuration.get(name) { h2 { (name) } (settings(name, part)) }
        }
        @for sweep in sweeps.into_iter().flatten() {
            @let name = sweep.get("sweep").and_then(serde_json::Value::as_str).unwrap_or_default();
            h2 { "sweep " (name) }
            (settings(&format!("sweep {name}"), sweep))
        }
    };
    shell.page("Configuration", "configuration", &content)
}
