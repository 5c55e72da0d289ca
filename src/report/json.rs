//! The sweep's JSON object, `tokenprobe.sweep/1`: wire types only, `null` where a value is unknown.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Named;
use crate::{
    analysis::{LevelSummary, Percentiles},
    sweep::{LadderReport, SweepResult},
};

#[derive(Serialize)]
struct Sweep<'a> {
    schema: &'static str,
    sweep: &'a str,
    started_at: &'a str,
    incomplete: bool,
    ladders: Vec<Ladder<'a>>,
}

#[derive(Serialize)]
struct Ladder<'a> {
    target: &'a str,
    model: &'a str,
    prompt_tokens: u32,
    knee_concurrency: Option<u32>,
    safe_concurrency: Option<u32>,
    state: &'static str,
    findings: Vec<Finding>,
    levels: Vec<Level>,
    not_run: Vec<NotRun<'a>>,
}

#[derive(Serialize)]
struct Finding {
    finding: &'static str,
    level: Option<u32>,
    evidence: BTreeMap<&'static str, f64>,
}

#[derive(Serialize)]
struct NotRun<'a> {
    concurrency: u32,
    reason: &'a str,
}

#[derive(Serialize)]
struct Level {
    concurrency: u32,
    requests: u32,
    ok: u32,
    failed: u32,
    failures: BTreeMap<&'static str, u32>,
    ttft_seconds: Option<Summary>,
    first_answer_token_seconds: Option<Summary>,
    tpot_seconds: Option<Summary>,
    request_tps: Option<Summary>,
    duration_seconds: Option<Summary>,
    throughput_tokens_per_second: Option<f64>,
    throughput_requests_per_second: Option<f64>,
    prompt_tokens_measured: Option<f64>,
    cached_ratio: Option<f64>,
    client_saturated: Option<bool>,
    low_confidence: Vec<&'static str>,
    incomplete: bool,
}

#[derive(Serialize)]
struct Summary {
    count: usize,
    mean: f64,
    p50: f64,
    p95: f64,
    p99: f64,
}

/// One sweep as one JSON object.
///
/// # Errors
/// Never in practice: the types hold nothing that JSON cannot.
pub fn sweep_json(named: &Named<'_>) -> serde_json::Result<String> {
    serde_json::to_string(&Sweep {
        schema: "tokenprobe.sweep/1",
        sweep: named.sweep,
        started_at: named.started_at,
        incomplete: named.report.result == SweepResult::Aborted,
        ladders: named.report.ladders.iter().map(ladder).collect(),
    })
}

/// One ladder as its object in the sweep's, without its levels: what the archive keeps beside them.
#[must_use]
pub fn ladder_value(report: &LadderReport) -> serde_json::Value {
    let mut value = serde_json::to_value(ladder(report)).unwrap_or_default();
    if let Some(members) = value.as_object_mut() {
        members.remove("levels");
    }
    value
}

fn ladder(report: &LadderReport) -> Ladder<'_> {
    let saturated = report.levels.iter().filter(|level| level.client_saturated == Some(true));
    Ladder {
        target: &report.target,
        model: &report.model,
        prompt_tokens: report.prompt_tokens,
        knee_concurrency: report.knee.concurrency(),
        safe_concurrency: report.safe_concurrency,
        state: report.knee.state(),
        findings: saturated
            .map(|level| Finding {
                finding: "client_saturated",
                level: Some(level.concurrency),
                evidence: BTreeMap::new(),
            })
            .collect(),
        levels: report.levels.iter().map(level).collect(),
        not_run: report
            .not_run
            .iter()
            .map(|not_run| NotRun { concurrency: not_run.concurrency, reason: &not_run.reason })
            .collect(),
    }
}

fn level(summary: &LevelSummary) -> Level {
    Level {
        concurrency: summary.concurrency,
        requests: summary.requests,
        ok: summary.ok,
        failed: summary.requests.saturating_sub(summary.ok),
        failures: summary.failures.iter().map(|(class, count)| (class.as_str(), *count)).collect(),
        ttft_seconds: summary.ttft_seconds.map(percentiles),
        first_answer_token_seconds: summary.first_answer_token_seconds.map(percentiles),
        tpot_seconds: summary.tpot_seconds.map(percentiles),
        request_tps: summary.request_tps.map(percentiles),
        duration_seconds: summary.duration_seconds.map(percentiles),
        throughput_tokens_per_second: summary.throughput_tokens_per_second,
        throughput_requests_per_second: summary.throughput_requests_per_second,
        prompt_tokens_measured: summary.prompt_tokens_measured,
        cached_ratio: summary.cached_ratio,
        client_saturated: summary.client_saturated,
        low_confidence: summary.ttft_seconds.map(|ttft| ttft.low_confidence()).unwrap_or_default(),
        incomplete: summary.incomplete,
    }
}

fn percentiles(p: Percentiles) -> Summary {
    Summary { count: p.count, mean: p.mean, p50: p.p50, p95: p.p95, p99: p.p99 }
}
