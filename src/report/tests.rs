use std::{collections::BTreeMap, sync::Arc};

use super::*;
use crate::{
    analysis::{Basis, Finding, Found, Knee, LevelSummary, PercentileIntervals, Percentiles},
    measurement::FailureClass,
    sweep::{LadderReport, NotRun, SweepResult},
};

fn percentiles(count: usize, p50: f64, p95: f64, p99: f64) -> Percentiles {
    Percentiles { count, mean: p50, p50, p95, p99, intervals: PercentileIntervals::default() }
}

/// A ladder whose last two levels failed in part and were not run.
fn report() -> SweepReport {
    let good = LevelSummary {
        concurrency: 1,
        requests: 100,
        ok: 100,
        failures: BTreeMap::new(),
        ttft_seconds: Some(percentiles(100, 0.1683, 0.19, 0.2015)),
        first_answer_token_seconds: Some(percentiles(100, 0.1683, 0.19, 0.2015)),
        tpot_seconds: Some(percentiles(100, 0.0183, 0.0221, 0.025)),
        request_tps: Some(percentiles(100, 54.6, 60.0, 61.0)),
        duration_seconds: Some(percentiles(100, 1.3, 1.4, 1.5)),
        throughput_tokens_per_second: Some(48.25),
        throughput_requests_per_second: Some(0.75),
        prompt_tokens_measured: Some(16_012.0),
        cached_ratio: Some(0.0),
        client_saturated: Some(false),
        incomplete: false,
        ..LevelSummary::default()
    };
    let bad = LevelSummary {
        concurrency: 4,
        requests: 8,
        ok: 5,
        failures: BTreeMap::from([(FailureClass::Timeout, 2), (FailureClass::RateLimited, 1)]),
        ttft_seconds: Some(percentiles(5, 0.21, 0.3, 0.31)),
        first_answer_token_seconds: Some(percentiles(5, 1.21, 1.3, 1.31)),
        tpot_seconds: None,
        request_tps: None,
        client_saturated: Some(true),
        incomplete: true,
        ..good.clone()
    };
    let ladder = LadderReport {
        sweep: Arc::from("hourly"),
        target: Arc::from("gateway"),
        model: Arc::from("qwen3-8b"),
        prompt_tokens: 16_000,
        levels: vec![good, bad],
        not_run: vec![NotRun {
            concurrency: 8,
            rate: None,
            reason: "3 of 8 requests failed at concurrency 4".into(),
        }],
        knee: Knee::Found(1),
        decided: None,
        scaling: None,
        growth: None,
        control: None,
        findings: vec![Found {
            finding: Finding::ClientSaturated,
            level: Some(4),
            rate: None,
            evidence: BTreeMap::new(),
            basis: Basis::Observed,
        }],
        safe_concurrency: Some(1),
        safe_rate: None,
    };
    SweepReport { ladders: vec![ladder], result: SweepResult::Completed }
}

fn with_report(check: impl FnOnce(&Named<'_>)) {
    let report = report();
    check(&Named { sweep: "hourly", started_at: "2026-01-01T00:00:00.000Z", report: &report });
}

#[test]
fn the_table_reads_well() {
    with_report(|named| {
        let text = format!("{}\n\n{}", table(named, Style::Text), legend(named).join("\n"));
        insta::assert_snapshot!("table", text);
    });
}

#[test]
fn markdown_is_a_markdown_table() {
    with_report(|named| insta::assert_snapshot!("markdown", table(named, Style::Markdown)));
}

#[test]
fn a_bar_in_a_name_does_not_break_the_markdown_table() {
    let row = |style: Style| style.row(vec!["a|b".to_owned()]);
    assert_eq!((row(Style::Text), row(Style::Markdown)), (vec!["a|b".to_owned()], vec!["a\\|b".to_owned()]));
}

#[test]
fn csv_has_base_units() {
    with_report(|named| insta::assert_snapshot!("csv", csv(named).unwrap()));
}

#[test]
fn json_is_the_published_object() {
    with_report(|named| {
        let value: serde_json::Value = serde_json::from_str(&sweep_json(named).unwrap()).unwrap();
        insta::assert_snapshot!("json", serde_json::to_string_pretty(&value).unwrap());
    });
}
