mod findings;
mod knees;
mod offered;
mod statistics;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::*;
use crate::measurement::{
    Failure, GapSketch, Measurement, Outcome, Timeline, TokenKind, TokenSource, Tokens,
};

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A probe with its first token at `first`, its last at `last`, ended at `last`.
fn probe(first: u64, last: u64, tokens: u64) -> Measurement {
    Measurement {
        timeline: Timeline {
            first_answer_token: Some(ms(first)),
            last_token: Some(ms(last)),
            last_answer_token: Some(ms(last)),
            end: ms(last),
            ..Timeline::default()
        },
        outcome: Outcome::Ok,
        first_token_kind: Some(TokenKind::Content),
        tokens: Tokens {
            prompt: Some(100),
            cached_prompt: Some(25),
            output: Some(tokens),
            source: TokenSource::Usage,
            chunks: tokens,
            answer_chunks: tokens,
            reads: tokens,
            answer_reads: tokens,
            ..Tokens::default()
        },
        gaps: GapSketch::new(Arc::from([])),
        finish_reason: None,
        flags: std::collections::BTreeSet::new(),
        connection: crate::measurement::ConnectionUse::Reused,
        served_model: None,
        fingerprint: None,
        request_id: None,
        rate_limits: Vec::new(),
        visible_text: None,
    }
}

fn failed(at: u64) -> Measurement {
    let mut measurement = probe(1, at, 1);
    measurement.outcome = Outcome::Error(Failure {
        class: FailureClass::UpstreamError,
        subclass: None,
        http_status: Some(500),
        retry_after: None,
        message: String::new(),
    });
    measurement.timeline = Timeline { end: ms(at), ..Timeline::default() };
    measurement.tokens = Tokens::default();
    measurement
}

#[test]
fn total_tps_at_concurrency_1_is_the_throughput_of_one_request_not_their_sum() {
    // Eight requests one after the other, each 1000 ms with 50 tokens: 50 tokens a second, not 8 x 50.
    let samples: Vec<Sample> = (0..8).map(|i| Sample::of(&probe(20, 1000, 50), ms(1000 * i), true)).collect();
    let window = FullWindow { from: ms(0), to: ms(8000) };
    let summary = summarize(1, &samples, Some(window), None, false);
    assert!((summary.throughput_tokens_per_second.unwrap() - 50.0).abs() < 1e-9);
    assert!((summary.throughput_requests_per_second.unwrap() - 1.0).abs() < 1e-9);
    // (50 - 1) / 0.98 s
    assert!((summary.request_tps.unwrap().mean - 50.0).abs() < 1e-9);
}

#[test]
fn tokens_outside_of_the_full_window_do_not_count() {
    // 101 tokens, one each 10 ms from 0 to 1000; the window holds those after 250 up to 500.
    let samples = [Sample::of(&probe(0, 1000, 101), ms(0), false)];
    let window = FullWindow { from: ms(250), to: ms(500) };
    let summary = summarize(1, &samples, Some(window), None, false);
    assert_eq!(summary.requests, 0, "a warm-up is no request");
    assert_eq!(summary.throughput_tokens_per_second, None, "nothing measured succeeded");
    let measured = [samples[0].clone(), Sample::of(&probe(1, 2, 1), ms(2000), true)];
    let summary = summarize(1, &measured, Some(window), None, false);
    assert!((summary.throughput_tokens_per_second.unwrap() - 100.0).abs() < 1e-9);
}

#[test]
fn failures_are_in_every_denominator_and_in_no_latency() {
    let samples = [Sample::of(&probe(100, 200, 11), ms(0), true), Sample::of(&failed(5), ms(200), true)];
    let summary = summarize(1, &samples, None, Some(false), false);
    assert_eq!((summary.requests, summary.ok), (2, 1));
    assert_eq!(summary.failures, BTreeMap::from([(FailureClass::UpstreamError, 1)]));
    let ttft = summary.ttft_seconds.unwrap();
    assert_eq!(ttft.count, 1);
    assert!((ttft.p50 - 0.1).abs() < 1e-12);
    assert_eq!(summary.duration_seconds.unwrap().count, 1);
    assert_eq!(summary.throughput_tokens_per_second, None, "the level was never full");
    assert_eq!(summary.cached_ratio, Some(0.25));
    assert_eq!(summary.prompt_tokens_measured, Some(100.0));
}

#[test]
fn time_per_output_token_is_withheld_when_only_chunks_were_counted() {
    let mut estimated = probe(100, 200, 11);
    estimated.tokens.source = TokenSource::ChunkCount;
    let summary = summarize(1, &[Sample::of(&estimated, ms(0), true)], None, None, false);
    assert_eq!(summary.tpot_seconds, None);
    assert_eq!(summary.request_tps, None);
    assert!(summary.ttft_seconds.is_some());
}

fn level(concurrency: u32, ok: u32, fail: u32, tps: f64, ttft_p95_ms: f64) -> LevelSummary {
    let percentiles = Percentiles {
        count: ok as usize,
        mean: ttft_p95_ms / 1000.0,
        p50: ttft_p95_ms / 1000.0,
        p95: ttft_p95_ms / 1000.0,
        p99: ttft_p95_ms / 1000.0,
        intervals: PercentileIntervals::default(),
    };
    LevelSummary {
        concurrency,
        requests: ok + fail,
        ok,
        failures: BTreeMap::new(),
        ttft_seconds: (ok > 0).then_some(percentiles),
        first_answer_token_seconds: None,
        tpot_seconds: None,
        request_tps: None,
        duration_seconds: None,
        throughput_tokens_per_second: (ok > 0).then_some(tps),
        throughput_requests_per_second: None,
        prompt_tokens_measured: None,
        cached_ratio: None,
        client_saturated: None,
        ..LevelSummary::default()
    }
}
