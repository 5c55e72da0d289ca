//! Derived latencies, the gap sketch, and the wire form.

use std::{borrow::Cow, collections::BTreeSet, sync::Arc, time::Duration};

use super::{
    ConnectionUse, Failure, FailureClass, Flag, GapSketch, Measurement, Outcome, Timeline, TokenKind,
    TokenSource, Tokens,
    record::{Record, Subject},
};

fn ms(value: u64) -> Duration {
    Duration::from_millis(value)
}

fn measurement() -> Measurement {
    Measurement {
        timeline: Timeline {
            dns: Some(ms(1)),
            tcp: Some(ms(2)),
            sent: Some(ms(4)),
            headers: Some(ms(50)),
            first_event: Some(ms(60)),
            first_answer_token: Some(ms(160)),
            first_reasoning_token: Some(ms(100)),
            last_token: Some(ms(400)),
            last_answer_token: Some(ms(400)),
            end: ms(410),
            ..Timeline::default()
        },
        first_token_kind: Some(TokenKind::Content),
        tokens: Tokens {
            prompt: Some(9),
            cached_prompt: Some(0),
            output: Some(16),
            reasoning: Some(4),
            source: TokenSource::Usage,
            chunks: 16,
            answer_chunks: 12,
            reads: 16,
            answer_reads: 12,
        },
        finish_reason: Some("stop".into()),
        flags: BTreeSet::from([Flag::KeepaliveComments]),
        served_model: Some("demo-1".into()),
        request_id: Some("r-1".into()),
        ..Measurement::bare(Outcome::Ok, Timeline::default())
    }
}

const SUBJECT: Subject<'_> =
    Subject { target: "gateway", model: "org/demo:1", started_at: "2026-01-01T00:00:00Z", trace_id: None };

#[test]
fn latencies_follow_their_formulas() {
    let measurement = measurement();
    assert_eq!(measurement.timeline.first_token(), Some(ms(100)));
    assert_eq!(measurement.time_per_output_token(), Some(ms(20)));
    assert_eq!(measurement.output_tokens_per_second(), Some(50.0));
}

#[test]
fn hidden_reasoning_leaves_the_visible_tokens() {
    let mut measurement = measurement();
    measurement.timeline.first_reasoning_token = None;
    measurement.flags.insert(Flag::HiddenReasoning);
    measurement.timeline.last_answer_token = Some(ms(270));
    assert_eq!(measurement.time_per_output_token(), Some(ms(10)));
}

#[test]
fn one_read_or_one_token_has_no_time_per_token() {
    let mut measurement = measurement();
    measurement.tokens.reads = 1;
    assert_eq!(measurement.time_per_output_token(), None);
    measurement.tokens.reads = 2;
    measurement.tokens.output = Some(1);
    assert_eq!(measurement.time_per_output_token(), None);
    measurement.tokens.output = None;
    assert_eq!(measurement.output_tokens_per_second(), None);
}

#[test]
fn the_gap_sketch_keeps_counts_and_sums_per_bucket() {
    let mut gaps = GapSketch::new(Arc::from([0.01, 0.1]));
    for gap in [5, 7, 50, 500] {
        gaps.record(ms(gap));
    }
    let means: Vec<_> = gaps.means().collect();
    assert_eq!(means.iter().map(|(count, _)| *count).collect::<Vec<_>>(), [2, 1, 1]);
    let sum: f64 = means.iter().map(|(count, mean)| f64::from(*count) * mean).sum();
    assert!((sum - 0.562).abs() < 1e-9);
    assert_eq!(gaps.max(), Some(ms(500)));
    gaps.clear();
    assert_eq!((gaps.means().count(), gaps.max()), (0, None));
}

fn pretty(record: &Record) -> String {
    serde_json::to_string_pretty(record).unwrap()
}

#[test]
fn a_record_of_a_good_probe() {
    insta::assert_snapshot!(pretty(&Record::new(&measurement(), SUBJECT)), @r#"
    {
      "schema": "tokenprobe.measurement/1",
      "target": "gateway",
      "model": "org/demo:1",
      "served_model": "demo-1",
      "started_at": "2026-01-01T00:00:00Z",
      "outcome": "ok",
      "error": null,
      "time_to_first_token_seconds": 0.1,
      "time_to_first_answer_token_seconds": 0.16,
      "time_to_first_reasoning_token_seconds": 0.1,
      "time_per_output_token_seconds": 0.02,
      "output_tokens_per_second": 50.0,
      "duration_seconds": 0.41,
      "chunk_gap_max_seconds": null,
      "first_token_kind": "content",
      "prompt_tokens": 9,
      "cached_prompt_tokens": 0,
      "output_tokens": 16,
      "reasoning_tokens": 4,
      "output_tokens_source": "usage",
      "finish_reason": "stop",
      "flags": [
        "keepalive_comments"
      ],
      "connection": "new",
      "phases": {
        "late": null,
        "dns": 0.001,
        "tcp": 0.002,
        "tls": null,
        "sent": 0.004,
        "headers": 0.05,
        "first_event": 0.06
      },
      "request_id": "r-1",
      "trace_id": null
    }
    "#);
}

#[test]
fn a_record_of_a_failed_probe() {
    let failure = Failure {
        class: FailureClass::RateLimited,
        subclass: None,
        http_status: Some(429),
        retry_after: Some(ms(1500)),
        message: "HTTP 429: slow down".into(),
    };
    let timeline = Timeline { headers: Some(ms(50)), end: ms(60), ..Timeline::default() };
    let mut measurement = Measurement::bare(Outcome::Error(failure), timeline);
    measurement.connection = ConnectionUse::Reused;
    let subject = Subject { trace_id: Some("4bf92f3577b34da6a3ce929d0e0e4736"), ..SUBJECT };
    insta::assert_snapshot!(pretty(&Record::new(&measurement, subject)), @r#"
    {
      "schema": "tokenprobe.measurement/1",
      "target": "gateway",
      "model": "org/demo:1",
      "served_model": null,
      "started_at": "2026-01-01T00:00:00Z",
      "outcome": "error",
      "error": {
        "class": "rate_limited",
        "subclass": null,
        "http_status": 429,
        "retry_after_seconds": 1.5,
        "message": "HTTP 429: slow down"
      },
      "time_to_first_token_seconds": null,
      "time_to_first_answer_token_seconds": null,
      "time_to_first_reasoning_token_seconds": null,
      "time_per_output_token_seconds": null,
      "output_tokens_per_second": null,
      "duration_seconds": 0.06,
      "chunk_gap_max_seconds": null,
      "first_token_kind": null,
      "prompt_tokens": null,
      "cached_prompt_tokens": null,
      "output_tokens": null,
      "reasoning_tokens": null,
      "output_tokens_source": "none",
      "finish_reason": null,
      "flags": [],
      "connection": "reused",
      "phases": {
        "late": null,
        "dns": null,
        "tcp": null,
        "tls": null,
        "sent": null,
        "headers": 0.05,
        "first_event": null
      },
      "request_id": null,
      "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736"
    }
    "#);
}

#[test]
fn a_record_survives_being_written_and_read() {
    let mut measurement = measurement();
    measurement.outcome = Outcome::Partial(Failure {
        class: FailureClass::Timeout,
        subclass: Some(Cow::Borrowed("stall")),
        http_status: Some(200),
        retry_after: None,
        message: "silence".into(),
    });
    measurement.visible_text = Some("Teal door".into());
    let record = Record::new(&measurement, SUBJECT);
    let written = serde_json::to_string(&record).unwrap();
    assert_eq!(serde_json::from_str::<Record>(&written).unwrap(), record);
}
