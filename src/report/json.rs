//! The sweep's JSON object, `tokenprobe.sweep/1`: wire types only, `null` where a value is unknown.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Named;
use crate::{
    analysis::{Decided, Evidence, Found, Growth, Interval, LevelSummary, Offered, Percentiles, Scaling},
    arrivals::{Arrivals, Rate},
    engine::{EngineView, Part},
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
    knee_requests_per_second: Option<f64>,
    safe_requests_per_second: Option<f64>,
    state: &'static str,
    knee_decided_by: Option<Decision>,
    scaling: Option<Law>,
    ttft_growth: Option<GrowthOfTtft>,
    max_tokens_control: Option<Control>,
    findings: Vec<Finding<'a>>,
    levels: Vec<Level>,
    not_run: Vec<NotRun<'a>>,
}

#[derive(Serialize)]
struct Finding<'a> {
    finding: &'static str,
    level: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<f64>,
    basis: &'static str,
    evidence: &'a Evidence,
    meaning: &'static str,
    mend: &'static str,
}

#[derive(Serialize)]
struct Decision {
    by: &'static str,
    to_concurrency: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    gain: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gain_interval: Option<Bounds>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure_ratio: Option<f64>,
}

#[derive(Serialize)]
struct Law {
    gamma_tokens_per_second: f64,
    contention: f64,
    coherency: f64,
    peak_concurrency: Option<f64>,
    peak_throughput_tokens_per_second: Option<f64>,
    r_squared: f64,
}

/// Lower and upper bound; `null` where the samples set none.
type Bounds = [Option<f64>; 2];

#[derive(Serialize)]
struct GrowthOfTtft {
    exponent: f64,
    exponent_interval: Bounds,
    prompt_tokens_min: f64,
    prompt_tokens_max: f64,
}

#[derive(Serialize)]
struct Control {
    max_tokens: u32,
    level: Level,
}

/// Times are means over all requests of the level, warm-up and fillers included.
#[derive(Serialize)]
struct EngineAccount {
    engine: &'static str,
    engine_requests: Option<f64>,
    own_requests: u32,
    ttft_mean_seconds: f64,
    ttft_parts_seconds: BTreeMap<&'static str, Option<f64>>,
    ttft_parts_sum_ratio: f64,
    kv_cache_usage: Option<f64>,
    running: Option<f64>,
    waiting: Option<f64>,
    preemptions: Option<f64>,
    prefix_cache_hit_ratio: Option<f64>,
}

#[derive(Serialize)]
struct NotRun<'a> {
    concurrency: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<f64>,
    reason: &'a str,
}

#[derive(Serialize)]
struct Level {
    /// `null` in an open loop.
    concurrency: Option<u32>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    offered: Option<OpenLoop>,
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
    throughput_standard_error: Option<f64>,
    throughput_requests_per_second: Option<f64>,
    failure_ratio_interval: Option<Bounds>,
    in_flight: Option<f64>,
    steady: Option<bool>,
    prompt_tokens_measured: Option<f64>,
    cached_ratio: Option<f64>,
    client_saturated: Option<bool>,
    low_confidence: Vec<&'static str>,
    incomplete: bool,
    engine: Option<EngineAccount>,
}

/// What only a level of an open loop has.
#[derive(Serialize)]
struct OpenLoop {
    /// Requests per second.
    rate: f64,
    arrivals: Arrivals,
    max_in_flight: u32,
    /// Arrivals that were not sent.
    not_sent: u32,
    keeps_up: Option<bool>,
    growth_seconds_per_second: Option<f64>,
    late_p95_seconds: Option<f64>,
}

#[derive(Serialize)]
struct Summary {
    count: usize,
    mean: f64,
    p50: f64,
    p95: f64,
    p99: f64,
    p50_interval: Bounds,
    p95_interval: Bounds,
    p99_interval: Bounds,
}

/// One sweep as one JSON object.
///
/// # Errors
/// Never in practice: the types hold nothing that JSON cannot.
pub fn sweep_json(named: &Named<'_>) -> serde_json::Result<String> {
    serde_json::to_string(&sweep(named))
}

/// One sweep's JSON object, to be put into another.
#[must_use]
pub fn sweep_value(named: &Named<'_>) -> serde_json::Value {
    serde_json::to_value(sweep(named)).unwrap_or_default()
}

fn sweep<'a>(named: &Named<'a>) -> Sweep<'a> {
    Sweep {
        schema: "tokenprobe.sweep/1",
        sweep: named.sweep,
        started_at: named.started_at,
        incomplete: named.report.result == SweepResult::Aborted,
        ladders: named.report.ladders.iter().map(ladder).collect(),
    }
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

/// Findings as in the sweep's object.
#[must_use]
pub fn findings_value(found: &[Found]) -> serde_json::Value {
    serde_json::to_value(found.iter().map(finding).collect::<Vec<_>>()).unwrap_or_default()
}

fn ladder(report: &LadderReport) -> Ladder<'_> {
    Ladder {
        target: &report.target,
        model: &report.model,
        prompt_tokens: report.prompt_tokens,
        knee_concurrency: report.knee.concurrency(),
        safe_concurrency: report.safe_concurrency,
        knee_requests_per_second: report.knee.rate().map(Rate::per_second),
        safe_requests_per_second: report.safe_rate.map(Rate::per_second),
        state: report.knee.state(),
        knee_decided_by: report.decided.map(decided),
        scaling: report.scaling.map(scaling),
        ttft_growth: report.growth.map(growth),
        max_tokens_control: report
            .control
            .as_ref()
            .map(|(max_tokens, summary)| Control { max_tokens: *max_tokens, level: level(summary) }),
        findings: report.findings.iter().map(finding).collect(),
        levels: report.levels.iter().map(level).collect(),
        not_run: report
            .not_run
            .iter()
            .map(|not_run| NotRun {
                concurrency: not_run.rate.is_none().then_some(not_run.concurrency),
                rate: not_run.rate.map(Rate::per_second),
                reason: &not_run.reason,
            })
            .collect(),
    }
}

fn finding(found: &Found) -> Finding<'_> {
    Finding {
        finding: found.finding.as_str(),
        level: found.level,
        rate: found.rate.map(Rate::per_second),
        basis: found.basis.as_str(),
        evidence: &found.evidence,
        meaning: found.finding.meaning(),
        mend: found.finding.mend(),
    }
}

fn decided(decided: Decided) -> Decision {
    let by = |by, to_concurrency| Decision {
        by,
        to_concurrency,
        gain: None,
        gain_interval: None,
        failure_ratio: None,
    };
    match decided {
        Decided::Gain { to, gain, interval } => {
            Decision { gain: Some(gain), gain_interval: Some(bounds(interval)), ..by("throughput", to) }
        }
        Decided::Failures { to, ratio } => Decision { failure_ratio: Some(ratio), ..by("failures", to) },
        Decided::Latency { to } => by("latency", to),
    }
}

fn scaling(law: Scaling) -> Law {
    Law {
        gamma_tokens_per_second: law.gamma,
        contention: law.contention,
        coherency: law.coherency,
        peak_concurrency: law.peak_concurrency,
        peak_throughput_tokens_per_second: law.peak_throughput,
        r_squared: law.r_squared,
    }
}

fn bounds(interval: Interval) -> Bounds {
    [interval.low, interval.high]
}

fn level(summary: &LevelSummary) -> Level {
    Level {
        concurrency: summary.offered.is_none().then_some(summary.concurrency),
        offered: summary.offered.map(|offered| open_loop(summary.concurrency, offered)),
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
        throughput_standard_error: summary.throughput_standard_error,
        throughput_requests_per_second: summary.throughput_requests_per_second,
        failure_ratio_interval: summary.failure_ratio_interval().map(bounds),
        in_flight: summary.little.map(|little| little.in_flight),
        steady: summary.little.map(|little| little.holds),
        prompt_tokens_measured: summary.prompt_tokens_measured,
        cached_ratio: summary.cached_ratio,
        client_saturated: summary.client_saturated,
        low_confidence: summary.ttft_seconds.map(|ttft| ttft.low_confidence()).unwrap_or_default(),
        incomplete: summary.incomplete,
        engine: summary.engine.as_ref().map(engine),
    }
}

fn engine(view: &EngineView) -> EngineAccount {
    EngineAccount {
        engine: view.engine,
        engine_requests: view.requests,
        own_requests: view.own_requests,
        ttft_mean_seconds: view.ttft_seconds,
        ttft_parts_seconds: Part::ALL.iter().map(|part| (part.as_str(), view.part(*part))).collect(),
        ttft_parts_sum_ratio: view.balance(),
        kv_cache_usage: view.kv_cache_usage,
        running: view.running,
        waiting: view.waiting,
        preemptions: view.preemptions,
        prefix_cache_hit_ratio: view.prefix_cache_hit_ratio,
    }
}

fn growth(growth: Growth) -> GrowthOfTtft {
    GrowthOfTtft {
        exponent: growth.exponent,
        exponent_interval: bounds(growth.interval),
        prompt_tokens_min: growth.prompt_tokens_min,
        prompt_tokens_max: growth.prompt_tokens_max,
    }
}

fn open_loop(max_in_flight: u32, offered: Offered) -> OpenLoop {
    OpenLoop {
        rate: offered.rate.per_second(),
        arrivals: offered.arrivals,
        max_in_flight,
        not_sent: offered.overflow,
        keeps_up: offered.keeps_up,
        growth_seconds_per_second: offered.growth,
        late_p95_seconds: offered.late_p95_seconds,
    }
}

fn percentiles(p: Percentiles) -> Summary {
    Summary {
        count: p.count,
        mean: p.mean,
        p50: p.p50,
        p95: p.p95,
        p99: p.p99,
        p50_interval: bounds(p.intervals.p50),
        p95_interval: bounds(p.intervals.p95),
        p99_interval: bounds(p.intervals.p99),
    }
}
