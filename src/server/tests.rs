//! The page and the small decisions of the surface.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta};

use super::{scrape::accepts_gzip, *};
use crate::{
    analysis::{LevelSummary, PercentileIntervals, Percentiles},
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
fn the_page_shows_what_was_measured() {
    let page = page(&status());
    insta::assert_snapshot!(page);
}

#[test]
fn the_page_marks_percentiles_that_rest_on_too_few_samples() {
    let marks = |count| {
        let mut status = status();
        status.cells = vec![CellStatus::measured(&cell(), &summary(count), now())];
        page(&status).matches("title=\"only").count()
    };
    assert_eq!(marks(8), 2, "P95 and P99");
    assert_eq!(marks(40), 1, "P99");
    assert_eq!(marks(100), 0);
}

#[test]
fn names_cannot_become_markup() {
    let mut status = status();
    let odd = Cell { model: "<b onload='x'>\"&".into(), ..cell() };
    status.cells = vec![CellStatus::measured(&odd, &summary(8), now())];
    status.sweeps[0].name = "<script>".into();
    let page = page(&status);
    assert!(page.contains("&lt;b onload=&#39;x&#39;&gt;&quot;&amp;") && page.contains("&lt;script&gt;"));
    assert!(!page.contains("<b ") && !page.contains("<script"));
}

#[test]
fn an_empty_status_says_what_is_missing() {
    let page = page(&Status::new(now()));
    assert!(page.contains("No sweep is configured.") && page.contains("Nothing is measured yet"));
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
    assert_eq!(json["sweeps"][0]["last_result"], "completed");
}

fn page(status: &Status) -> String {
    page::render(status, Readiness::Ready, now())
}

fn now() -> DateTime<Utc> {
    DateTime::parse_from_rfc3339("2025-01-02T03:04:05Z").unwrap().to_utc()
}

fn cell() -> Cell {
    Cell {
        sweep: "hourly".into(),
        target: "gateway".into(),
        model: "org/model:1".into(),
        prompt_tokens: 16_000,
        concurrency: 8,
        rate: None,
    }
}

fn summary(count: usize) -> LevelSummary {
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

fn status() -> Status {
    let minutes = |minutes| Some(now() + TimeDelta::minutes(minutes));
    Status {
        leader: None,
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
        }],
        cells: vec![
            CellStatus::measured(&cell(), &summary(40), now() - TimeDelta::minutes(1)),
            CellStatus::unmeasured(&Cell { concurrency: 16, ..cell() }),
        ],
        budgets: vec![BudgetStatus {
            scope: "target:<b>".into(),
            unit: "requests",
            period: "day",
            limit: 1000.0,
            remaining: 0.0,
        }],
    }
}
