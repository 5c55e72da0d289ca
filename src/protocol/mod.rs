//! Wire formats: what a request looks like going out, and what its answer means coming in.
//!
//! Pure: knows nothing of sockets, files or clocks. Bytes come in with the instant (since the probe's t0) at
//! which the read that delivered them returned; a [`Reply`] turns them into tokens with times, an outcome and
//! token counts. The same code is driven by a fake clock in tests and by the network in [`crate::probe`].
//!
//! Layers, top down: [`Reply`] (one answer, whatever the format) <- one file per wire format (an event's payload
//! to deltas) <- framing (`sse`) (bytes to events).

mod stub; pub use stub::*;
use std::{sync::Arc, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value};

use crate::measurement::{Failure, GapSketch};

/// The wire formats spoken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, serde::Deserialize, serde::Serialize)]
pub enum Protocol {
    /// `POST {base}/chat/completions`, streamed as server-sent events.
    #[default]
    #[serde(rename = "openai-chat")]
    OpenAiChat,
    /// `POST {base}/completions`, streamed as server-sent events.
    #[serde(rename = "openai-completions")]
    OpenAiCompletions,
}

/// What one probe asks for.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// The model, exactly as configured: `/` and `:` included.
    pub model: &'a str,
    /// The prompt, its nonce at the head.
    pub prompt: &'a str,
    /// Most tokens to generate.
    pub max_tokens: u32,
    /// Name of the field that carries it.
    pub max_tokens_field: MaxTokensField,
    /// Sampling temperature; the field is left out when unset.
    pub temperature: Option<f64>,
    /// Whether to ask for usage in the stream (`stream_options.include_usage`).
    pub include_usage: bool,
    /// Members merged over the body last, so that they win; a `null` removes a member.
    pub extra_body: &'a Map<String, Value>,
}

/// How the output limit is spelled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MaxTokensField {
    /// `max_tokens`
    #[default]
    MaxTokens,
    /// `max_completion_tokens`
    MaxCompletionTokens,
}

/// Deadlines of one probe, each counted from t0 unless said otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Connection established (DNS, TCP, TLS).
    pub connect: Duration,
    /// Status line and headers.
    pub headers: Duration,
    /// First token of any channel.
    pub first_token: Duration,
    /// Longest silence between token events.
    pub stall: Duration,
    /// The whole probe.
    pub total: Duration,
}

/// The deadline that passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deadline {
    /// No connection in time.
    Connect,
    /// No headers in time.
    Headers,
    /// No token in time.
    FirstToken,
    /// Silence between tokens.
    Stall,
    /// The whole took too long.
    Total,
    /// The answer was complete and the body did not end within the grace: a proper end, not a failure.
    Grace,
}

/// How the body of an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The proper end of the body.
    Clean,
    /// The connection was lost before it.
    Aborted,
    /// One of our deadlines passed.
    Deadline(Deadline),
    /// It grew past the response size limit.
    TooLarge,
}

/// What is known of an answer before its body.
#[derive(Debug, Clone)]
pub struct ReplyHead<'a> {
    /// The wire format asked for.
    pub protocol: Protocol,
    /// Host asked, without port: a few words mean different things at different providers.
    pub host: &'a str,
    /// HTTP status.
    pub status: u16,
    /// Response headers.
    pub headers: &'a HeaderMap,
    /// Whether usage was asked for.
    pub include_usage: bool,
    /// Whether to keep the visible text (up to a limit).
    pub keep_text: bool,
    /// Bucket bounds of the gap sketch.
    pub gap_bounds: Arc<[f64]>,
}

/// A failure before any HTTP answer, as the network code saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransportFailure {
    /// The name did not resolve.
    Dns(String),
    /// Nobody listens there, or the network refused.
    Refused(String),
    /// Handshake failed for another reason than the certificate.
    TlsHandshake(String),
    /// The certificate is not trusted (unknown issuer, expired, wrong name).
    TlsUntrusted(String),
    /// The proxy wants a credential (407).
    ProxyAuth(String),
    /// The proxy could not be used, or refused for another reason.
    Proxy(String),
    /// Connected, request sent, connection lost before any header.
    ResetBeforeHeaders(String),
    /// The other side does not speak HTTP, or breaks it.
    NotHttp(String),
    /// The credential cannot be sent as a header.
    Credential(String),
    /// The prober itself broke.
    Internal(String),
    /// A deadline before the headers.
    Deadline(Deadline),
}
