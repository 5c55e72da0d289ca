//! The small decisions of the surface, and its wire types.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};

use axum::http::{HeaderMap, HeaderValue, header};

use super::{scrape::accepts_gzip, *};
use crate::{
    analysis::{Basis, Finding, Found, LevelSummary, PercentileIntervals, Percentiles},
    cell::Cell,
    measurement::FailureClass,
    metrics::SweepResult,
};

#[test]
fn gzip_is_used_only_where_it_is_accepted() {
    for (header, expect) in [
        (None, false),
        (Some("gzip"), true),
        (Some("deflate, GZIP;q=0.5"), true),
        (Some("identity"), false),
        (Some("gzip;q=0"), false),
        (Some("gzip; q=0.0, *"), false),
        (Some("*"), true),
        (Some("*;q=0"), false),
        (Some("gzip;q=nonsense"), false),
    ] {
        let mut headers = HeaderMap::new();
        if let Some(value) = header {
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(value));
        }
        assert_eq!(accepts_gzip(&headers), expect, "{header:?}");
    }
}

#[test]
fn the_json_has_the_names_of_the_sweep_report() {
    let json = serde_json::to_value(status()).unwrap();
    let cell = &json["cells"][0];
    assert_eq!(cell["ttft_seconds"]["p95"], 0.3);
    assert_eq!(cell["ttft_seconds"]["low_confidence"], serde_json::json!(["p99"]));
    assert_eq!(cell["failures"], serde_json::json!({"rate_limited": 2}));
    assert_eq!(cell["measured_at"], "2025-01-02T03:03:05.000Z");
    assert_eq!(json["cells"][1]["ttft_seconds"], serde_json::Value::Null);
    assert_eq!(json["cells"][1]["not_run"], "2 of 42 requests failed at concurrency 8");
    assert_eq!(json["ladders"][0]["findings"][0]["finding"], "throughput_knee");
    assert_eq!(json["sweeps"][0]["last_result"], "completed");
}

pub(super) fn now() -> DateTime<Utc> {
    DateTime::parse_from_rfc3339("2025-01-02T03:04:05Z").unwrap().to_utc()
}

pub(super) fn cell() -> Cell {
    Cell {
        sweep: "hourly".into(),
        target: "gateway".into(),
        model: "org/model:1".into(),
        prompt_tokens: 16_000,
        concurrency: 8,
        rate: None,
    }
}

pub(super) fn summary(count: usize) -> LevelSummary {
    LevelSummary {
        concurrency: 8,
        requests: 42,
        ok: 40,
        failures: BTreeMap::from([(FailureClass::RateLimited, 2)]),
        ttft_seconds: Some(Percentiles {
            count,
            mean: 0.21,
            p50: 0.2,
            p95: 0.3,
            p99: 0.4,
            intervals: PercentileIntervals::default(),
        }),
        first_answer_token_seconds: None,
        tpot_seconds: Some(Percentiles {
            count,
            mean: 0.02,
            p50: 0.0183,
            p95: 0.02,
            p99: 0.02,
            intervals: PercentileIntervals::default(),
        }),
        request_tps: None,
        duration_seconds: None,
        throughput_tokens_per_second: Some(325.04),
        throughput_requests_per_second: None,
        prompt_tokens_measured: None,
        cached_ratio: None,
        client_saturated: None,
        incomplete: false,
        ..LevelSummary::default()
    }
}

pub(super) fn status() -> Status {
    let minutes = |minutes| Some(now() + TimeDelta::minutes(minutes));
    let evidence = [("gain".into(), 0.12), ("ttft_p95_seconds".into(), 0.3)].into();
    Status {
        ladders: vec![LadderStatus {
            sweep: "hourly".into(),
            target: "gateway".into(),
            model: "org/model:1".into(),
            prompt_tokens: 16_000,
            ended_at: now() - TimeDelta::minutes(1),
            state: "found".into(),
            knee_concurrency: Some(8),
            safe_concurrency: Some(5),
            knee_requests_per_second: None,
            safe_requests_per_second: None,
            findings: vec![Found {
                finding: Finding::ThroughputKnee,
                level: Some(8),
                rate: None,
                evidence,
                basis: Basis::Observed,
            }],
        }],
        version: "1.2.3",
        started_at: now() - TimeDelta::hours(30),
        sweeps: vec![SweepStatus {
            name: "hourly".into(),
            schedule: "0 0 * * * *".into(),
            running: false,
            paused: true,
            last_start: minutes(-4),
            last_end: minutes(-1),
            last_result: Some(SweepResult::Completed),
            next_start: minutes(56),
            objectives: ObjectiveStatus { ttft_seconds: Some(0.25), ..ObjectiveStatus::default() },
            ..SweepStatus::unstarted("hourly".into())
        }],
        cells: vec![
            CellStatus::measured(&cell(), &summary(40), now() - TimeDelta::minutes(1)),
            CellStatus::left_out(
                &Cell { concurrency: 16, ..cell() },
                "2 of 42 requests failed at concurrency 8".into(),
            ),
            CellStatus::unmeasured(&Cell { concurrency: 32, ..cell() }),
        ],
        budgets: vec![BudgetStatus {
            scope: "target:<b>".into(),
            unit: "requests",
            period: "day",
            limit: 1000.0,
            remaining: 0.0,
        }],
        ..Status::new(now())
    }
}
