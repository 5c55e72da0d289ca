//! A measurement as one JSON object, `tokenprobe.measurement/1`: public API, printed and archived alike.
//!
//! Wire types only: `null` where a value is unknown, seconds everywhere.

use std::time::Duration;

use serde::Serialize;

use super::{ConnectionUse, Failure, Flag, Measurement, TokenKind};

/// A measurement with what identifies it.
#[derive(Debug, Serialize)]
pub struct Record<'a> {
    schema: &'static str,
    target: &'a str,
    model: &'a str,
    served_model: Option<&'a str>,
    started_at: &'a str,
    outcome: &'static str,
    error: Option<ErrorRecord<'a>>,
    time_to_first_token_seconds: Option<f64>,
    time_to_first_answer_token_seconds: Option<f64>,
    time_to_first_reasoning_token_seconds: Option<f64>,
    time_per_output_token_seconds: Option<f64>,
    output_tokens_per_second: Option<f64>,
    duration_seconds: f64,
    chunk_gap_max_seconds: Option<f64>,
    first_token_kind: Option<TokenKind>,
    prompt_tokens: Option<u64>,
    cached_prompt_tokens: Option<u64>,
    output_tokens: Option<u64>,
    reasoning_tokens: Option<u64>,
    output_tokens_source: &'static str,
    finish_reason: Option<&'a str>,
    flags: Vec<Flag>,
    connection: ConnectionUse,
    phases: Phases,
    request_id: Option<&'a str>,
    trace_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    visible_text: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct ErrorRecord<'a> {
    class: &'static str,
    subclass: Option<&'a str>,
    http_status: Option<u16>,
    retry_after_seconds: Option<f64>,
    message: &'a str,
}

/// The first three are spans, the others count from the start.
#[derive(Debug, Serialize)]
struct Phases {
    dns: Option<f64>,
    tcp: Option<f64>,
    tls: Option<f64>,
    sent: Option<f64>,
    headers: Option<f64>,
    first_event: Option<f64>,
}

impl<'a> Record<'a> {
    /// The object of a probe of `model` at `target` that started at `started_at` (RFC 3339).
    #[must_use]
    pub fn new(
        measurement: &'a Measurement,
        target: &'a str,
        model: &'a str,
        started_at: &'a str,
        trace_id: &'a str,
    ) -> Self {
        let line = &measurement.timeline;
        let tokens = &measurement.tokens;
        Self {
            schema: "tokenprobe.measurement/1",
            target,
            model,
            served_model: measurement.served_model.as_deref(),
            started_at,
            outcome: measurement.outcome.as_str(),
            error: measurement.outcome.failure().map(ErrorRecord::new),
            time_to_first_token_seconds: seconds(line.first_token()),
            time_to_first_answer_token_seconds: seconds(line.first_answer_token),
            time_to_first_reasoning_token_seconds: seconds(line.first_reasoning_token),
            time_per_output_token_seconds: seconds(measurement.time_per_output_token()),
            output_tokens_per_second: measurement.output_tokens_per_second(),
            duration_seconds: line.end.as_secs_f64(),
            chunk_gap_max_seconds: seconds(measurement.gaps.max()),
            first_token_kind: measurement.first_token_kind,
            prompt_tokens: tokens.prompt,
            cached_prompt_tokens: tokens.cached_prompt,
            output_tokens: tokens.output,
            reasoning_tokens: tokens.reasoning,
            output_tokens_source: tokens.source.as_str(),
            finish_reason: measurement.finish_reason.as_deref(),
            flags: measurement.flags.iter().copied().collect(),
            connection: measurement.connection,
            phases: Phases {
                dns: seconds(line.dns),
                tcp: seconds(line.tcp),
                tls: seconds(line.tls),
                sent: seconds(line.sent),
                headers: seconds(line.headers),
                first_event: seconds(line.first_event),
            },
            request_id: measurement.request_id.as_deref(),
            trace_id,
            visible_text: measurement.visible_text.as_deref(),
        }
    }
}

impl<'a> ErrorRecord<'a> {
    fn new(failure: &'a Failure) -> Self {
        Self {
            class: failure.class.as_str(),
            subclass: failure.subclass.as_deref(),
            http_status: failure.http_status,
            retry_after_seconds: seconds(failure.retry_after),
            message: &failure.message,
        }
    }
}

fn seconds(duration: Option<Duration>) -> Option<f64> {
    duration.map(|duration| duration.as_secs_f64())
}
