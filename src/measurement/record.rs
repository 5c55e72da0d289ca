//! The wire form of a measurement: the JSON object `tokenprobe.measurement/1`, printed by `request` and archived.
//!
//! Unknown is `null`, times are seconds. Its names are public and only ever added to. Knows nothing of how a measurement
//! came about.

use std::{borrow::Cow, time::Duration};

use serde::{Deserialize, Serialize};

use super::{ConnectionUse, Failure, Measurement, TokenKind};

/// The `schema` of every record.
pub const SCHEMA: &str = "tokenprobe.measurement/1";

/// What was probed: what a measurement itself does not know.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// Name of the target, or the base URL of a probe without a file.
    pub target: &'a str,
    /// Model asked for.
    pub model: &'a str,
    /// Wall clock at t0, RFC 3339.
    pub started_at: &'a str,
    /// Trace id sent with the request.
    pub trace_id: Option<&'a str>,
}

/// One measurement as JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`SCHEMA`].
    pub schema: Cow<'static, str>,
    /// Name of the target.
    pub target: String,
    /// Model asked for.
    pub model: String,
    /// Model that says it answered.
    pub served_model: Option<String>,
    /// Wall clock at t0, RFC 3339.
    pub started_at: String,
    /// `ok`, `partial`, `empty`, `unmeasurable` or `error`.
    pub outcome: Cow<'static, str>,
    /// Why it failed; `null` when it did not.
    pub error: Option<RecordedFailure>,
    /// The earlier of the next two.
    pub time_to_first_token_seconds: Option<f64>,
    /// First visible token.
    pub time_to_first_answer_token_seconds: Option<f64>,
    /// First reasoning token.
    pub time_to_first_reasoning_token_seconds: Option<f64>,
    /// Mean time per output token after the first.
    pub time_per_output_token_seconds: Option<f64>,
    /// Output tokens per second after the first.
    pub output_tokens_per_second: Option<f64>,
    /// The whole probe.
    pub duration_seconds: f64,
    /// The longest gap between reads that carried tokens.
    pub chunk_gap_max_seconds: Option<f64>,
    /// `content`, `refusal` or `tool_call`.
    pub first_token_kind: Option<Cow<'static, str>>,
    /// Prompt tokens the server counted.
    pub prompt_tokens: Option<u64>,
    /// Prompt tokens from the server's prefix cache.
    pub cached_prompt_tokens: Option<u64>,
    /// Output tokens, reasoning included.
    pub output_tokens: Option<u64>,
    /// Reasoning tokens the server counted.
    pub reasoning_tokens: Option<u64>,
    /// Where `output_tokens` comes from.
    pub output_tokens_source: Cow<'static, str>,
    /// Why the server says it stopped.
    pub finish_reason: Option<String>,
    /// Oddities of the stream.
    pub flags: Vec<Cow<'static, str>>,
    /// `new` or `reused`.
    pub connection: Cow<'static, str>,
    /// Spans of connecting, and instants since t0.
    pub phases: RecordedPhases,
    /// The server's id of the request.
    pub request_id: Option<String>,
    /// Trace id sent with the request.
    pub trace_id: Option<String>,
    /// The text, only when it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visible_text: Option<String>,
}

/// A failure as JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordedFailure {
    /// One of the failure classes.
    pub class: Cow<'static, str>,
    /// Finer than the class.
    pub subclass: Option<String>,
    /// HTTP status, when there was an answer.
    pub http_status: Option<u16>,
    /// How long the server asks to be left alone.
    pub retry_after_seconds: Option<f64>,
    /// Short, one line, redacted.
    pub message: String,
}

/// The timeline before the first token as JSON: spans of connecting, else instants since t0.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RecordedPhases {
    /// How long after it was due the probe began; `null` in a closed loop.
    #[serde(default)]
    pub late: Option<f64>,
    /// Name resolution.
    pub dns: Option<f64>,
    /// TCP handshake.
    pub tcp: Option<f64>,
    /// TLS handshake.
    pub tls: Option<f64>,
    /// Request handed to the connection.
    pub sent: Option<f64>,
    /// Headers arrived.
    pub headers: Option<f64>,
    /// First bytes of the body.
    pub first_event: Option<f64>,
}

impl Record {
    /// The record of a measurement of `subject`.
    #[must_use]
    pub fn new(measurement: &Measurement, subject: Subject<'_>) -> Self {
        let line = &measurement.timeline;
        let tokens = &measurement.tokens;
        Self {
            schema: Cow::Borrowed(SCHEMA),
            target: subject.target.to_owned(),
            model: subject.model.to_owned(),
            served_model: measurement.served_model.clone(),
            started_at: subject.started_at.to_owned(),
            outcome: Cow::Borrowed(measurement.outcome.as_str()),
            error: measurement.outcome.failure().map(RecordedFailure::new),
            time_to_first_token_seconds: seconds(line.first_token()),
            time_to_first_answer_token_seconds: seconds(line.first_answer_token),
            time_to_first_reasoning_token_seconds: seconds(line.first_reasoning_token),
            time_per_output_token_seconds: seconds(measurement.time_per_output_token()),
            output_tokens_per_second: measurement.output_tokens_per_second(),
            duration_seconds: line.end.as_secs_f64(),
            chunk_gap_max_seconds: seconds(measurement.gaps.max()),
            first_token_kind: measurement.first_token_kind.map(kind_name),
            prompt_tokens: tokens.prompt,
            cached_prompt_tokens: tokens.cached_prompt,
            output_tokens: tokens.output,
            reasoning_tokens: tokens.reasoning,
            output_tokens_source: Cow::Borrowed(tokens.source.as_str()),
            finish_reason: measurement.finish_reason.clone(),
            flags: measurement.flags.iter().map(|flag| Cow::Borrowed(flag.as_str())).collect(),
            connection: Cow::Borrowed(match measurement.connection {
                ConnectionUse::New => "new",
                ConnectionUse::Reused => "reused",
            }),
            phases: RecordedPhases {
                late: seconds(line.late),
                dns: seconds(line.dns),
                tcp: seconds(line.tcp),
                tls: seconds(line.tls),
                sent: seconds(line.sent),
                headers: seconds(line.headers),
                first_event: seconds(line.first_event),
            },
            request_id: measurement.request_id.clone(),
            trace_id: subject.trace_id.map(str::to_owned),
            visible_text: measurement.visible_text.clone(),
        }
    }
}

impl RecordedFailure {
    fn new(failure: &Failure) -> Self {
        Self {
            class: Cow::Borrowed(failure.class.as_str()),
            subclass: failure.subclass.as_deref().map(str::to_owned),
            http_status: failure.http_status,
            retry_after_seconds: seconds(failure.retry_after),
            message: failure.message.clone(),
        }
    }
}

fn seconds(time: Option<Duration>) -> Option<f64> {
    time.map(|time| time.as_secs_f64())
}

fn kind_name(kind: TokenKind) -> Cow<'static, str> {
    Cow::Borrowed(match kind {
        TokenKind::Content => "content",
        TokenKind::Refusal => "refusal",
        TokenKind::ToolCall => "tool_call",
    })
}
