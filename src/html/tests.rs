use chrono::{DateTime, TimeDelta, Utc};
use maud::Markup;

use super::*;
use crate::{
    cell::Load,
    measurement::record::{Record, RecordedFailure, RecordedPhases, SCHEMA},
};

fn level(concurrency: u32, ttft: f64, throughput: f64) -> LevelPoint {
    LevelPoint {
        load: Load::Concurrency(concurrency),
        ttft_p50: Some(ttft),
        ttft_p95: Some(ttft * 1.2),
        throughput: Some(throughput),
    }
}

#[test]
fn a_ladder_is_two_curves_with_its_knee() {
    let curves = LadderCurves {
        levels: vec![
            level(1, 0.1683, 48.0),
            level(4, 0.1827, 170.0),
            level(8, 0.2104, 290.0),
            level(16, 0.3, 310.0),
        ],
        knee: Some(Load::Concurrency(8)),
        safe: Some(Load::Concurrency(5)),
        objective: Some(0.25),
    };
    insta::assert_snapshot!(ladder_chart(&curves).into_string().replace("><", ">\n<"));
}

#[test]
fn odd_ladders_are_drawn_or_told() {
    let curves = |levels| LadderCurves { levels, knee: None, safe: None, objective: Some(100.0) };
    let unmeasured =
        LevelPoint { load: Load::Concurrency(1), ttft_p50: None, ttft_p95: None, throughput: None };
    for empty in [Vec::new(), vec![unmeasured]] {
        assert!(ladder_chart(&curves(empty)).into_string().contains("no curve to draw"));
    }
    let zero = LevelPoint { throughput: Some(0.0), ..unmeasured };
    for levels in [vec![level(7, 0.1, 10.0)], vec![unmeasured, level(2, 1e-5, 0.1)], vec![zero]] {
        let drawn = ladder_chart(&curves(levels)).into_string();
        assert!(!drawn.contains("NaN") && !drawn.contains("inf"), "{drawn}");
        assert!(
            !drawn.contains("class=\"objective\""),
            "an objective far away presses the curve flat: {drawn}"
        );
    }
}

#[test]
fn a_time_chart_has_round_times() {
    let at = |text: &str| text.parse::<DateTime<Utc>>().unwrap().timestamp_millis();
    let ticks = |from: &str, to: &str| {
        let window = Window { from: at(from), to: at(to) };
        let lines =
            vec![Line { class: "ttft", name: "P95", points: vec![(window.from, 0.1), (window.to, 0.2)] }];
        let chart = Moments { title: "t", window, lines, objective: None, unit: Unit::Seconds };
        let drawn = time_chart(&chart).into_string();
        assert!(!drawn.contains("NaN"), "{drawn}");
        let texts = drawn.split("text-anchor=\"middle\">").skip(1);
        texts.map(|rest| rest.split('<').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(ticks("2026-06-01T11:58:00Z", "2026-06-01T12:01:00Z"), ["11:58", "11:59", "12:00", "12:01"]);
    assert_eq!(ticks("2026-06-01T00:30:00Z", "2026-06-02T00:30:00Z"), ["06:00", "12:00", "18:00", "Jun 2"]);
    assert_eq!(
        ticks("2025-06-02T00:00:00Z", "2026-06-01T00:00:00Z"),
        ["Jul 2025", "Oct 2025", "Jan 2026", "Apr 2026"]
    );
    let decades = ticks("1990-06-02T00:00:00Z", "2026-06-01T00:00:00Z");
    assert_eq!(decades.len(), 7, "{decades:?}");
}

#[test]
fn a_sparkline_of_equals_is_flat_and_of_one_is_none() {
    let drawn = |values: &[f64]| sparkline(values, "").into_string();
    assert!(
        drawn(&[0.1, 0.1, 0.1]).contains("M2.0 14.0L59.0 14.0L116.0 14.0"),
        "{}",
        drawn(&[0.1, 0.1, 0.1])
    );
    assert!(drawn(&[0.1]).contains("none") && drawn(&[]).contains("none"));
    assert!(!drawn(&[0.0, 0.0]).contains("NaN"));
}

fn record() -> Record {
    Record {
        schema: SCHEMA.into(),
        target: "t".into(),
        model: "m".into(),
        served_model: None,
        started_at: "2026-06-01T12:00:00.000Z".into(),
        outcome: "ok".into(),
        error: None,
        time_to_first_token_seconds: Some(0.3),
        time_to_first_answer_token_seconds: Some(0.3),
        time_to_first_reasoning_token_seconds: None,
        time_per_output_token_seconds: Some(0.02),
        output_tokens_per_second: Some(50.0),
        duration_seconds: 1.0,
        chunk_gap_max_seconds: None,
        first_token_kind: None,
        prompt_tokens: None,
        cached_prompt_tokens: None,
        output_tokens: Some(64),
        reasoning_tokens: None,
        output_tokens_source: "usage".into(),
        finish_reason: None,
        flags: Vec::new(),
        connection: "new".into(),
        phases: RecordedPhases {
            late: None,
            dns: Some(0.01),
            tcp: Some(0.02),
            tls: None,
            sent: Some(0.031),
            headers: Some(0.2),
            first_event: Some(0.21),
        },
        request_id: Some("req-1".into()),
        trace_id: Some("abc".into()),
        visible_text: None,
    }
}

/// Names and lengths of a timeline's parts.
fn parts(markup: &Markup) -> Vec<String> {
    let text = markup.clone().into_string();
    let parts =
        text.split("■</span> ").skip(1).map(|rest| rest.split("</b>").next().unwrap().replace("<b>", ""));
    parts.collect()
}

#[test]
fn a_timeline_says_what_took_how_long() {
    let expect = [
        "DNS 10.0 ms",
        "TCP 20.0 ms",
        "sending 1.00 ms",
        "waiting for headers 169 ms",
        "waiting for the stream 10.0 ms",
        "waiting for a token 90.0 ms",
        "streaming 700 ms",
    ];
    assert_eq!(parts(&timeline(&record())), expect);
    let refused = Record {
        error: Some(RecordedFailure {
            class: "connect".into(),
            subclass: None,
            http_status: None,
            retry_after_seconds: None,
            message: "refused".into(),
        }),
        time_to_first_token_seconds: None,
        duration_seconds: 0.002,
        phases: RecordedPhases::default(),
        ..record()
    };
    assert_eq!(parts(&timeline(&refused)), ["until it failed 2.00 ms"]);
    assert!(probe_details(&refused).into_string().contains("refused"));
}

#[test]
fn a_distribution_shows_some_of_many_levels() {
    let levels: Vec<_> =
        (1..=20).map(|n| (format!("level {n}"), vec![(0.1, 5), (0.2, 4), (2.0, 1)])).collect();
    let drawn = distribution("TTFT", &levels).into_string();
    assert_eq!(drawn.matches("<path").count(), 6);
    assert!(drawn.contains("level 1:") && drawn.contains("level 20:") && !drawn.contains("NaN"));
    assert_eq!(distribution("TTFT", &[]).into_string(), "");
    let narrow = vec![("1".to_owned(), vec![(0.0313, 5), (0.0452, 5)])];
    let drawn = distribution("TTFT", &narrow).into_string();
    assert!(drawn.contains(">30 ms<") && drawn.contains(">45 ms<"), "round ticks: {drawn}");
}

#[test]
fn numbers_are_as_exact_as_they_are_known() {
    let told = [0.00931, 0.0168, 0.1683, 1.683, 16.83, 168.3].map(latency);
    assert_eq!(told, ["9.31 ms", "16.8 ms", "168 ms", "1.68 s", "16.8 s", "168 s"]);
    assert_eq!(
        [0.0, 999.0, 1000.0, 1_234_567.0].map(grouped),
        ["0", "999", "1\u{202f}000", "1\u{202f}234\u{202f}567"]
    );
    assert_eq!(percent_change(2.0, 3.0), Some(50.0));
    assert_eq!(percent_change(0.0, 3.0), None);
    assert_eq!(span(TimeDelta::seconds(90_061)), "1 d 1 h");
    let now = "2026-06-01T12:00:00Z".parse::<DateTime<Utc>>().unwrap();
    let text = |seconds| moment(Some(now + TimeDelta::seconds(seconds)), now).into_string();
    assert!(
        text(60).contains(">in 1 min<") && text(-60).contains(">1 min ago<") && text(0).contains(">now<")
    );
}
