//! Wire formats: what a request looks like going out, and what its answer means coming in.
//!
//! Pure: knows nothing of sockets, files or clocks. Bytes come in with the instant (since the probe's t0) at
//! which the read that delivered them returned; a [`Reply`] turns them into tokens with times, an outcome and
//! token counts. The same code is driven by a fake clock in tests and by the network in [`crate::probe`].
//!
//! Layers, top down: [`Reply`] (one answer, whatever the format) <- `story` (what the events add up to) <- one file per
//! wire format (an event's payload to a `gist`; `familiar` spares it) <- framing (`sse`: bytes to events). Beside them: `transcript` (clocks
//! and counts of tokens), `ledger` (which token counts to believe), `complaint` and `classify` (errors to classes),
//! `verdict` (the outcome).

mod anthropic;
mod bedrock;
mod classify;
mod complaint;
mod dashscope;
mod echo;
mod edge;
mod event_stream;
mod excuse;
mod familiar;
mod fold;
mod framing;
mod gemini;
mod gist;
mod head;
mod inflate;
mod json_scan;
mod ledger;
mod lines;
mod ollama;
mod openai_chat;
mod openai_chunk;
mod openai_completions;
mod openai_responses;
mod reply;
mod retry_hint;
mod sse;
mod story;
mod think;
mod transcript;
mod transport;
mod verdict;

#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue, header};
use serde_json::{Map, Value};

pub(crate) use self::excuse::one_line;
use self::gist::Gist;
pub use self::reply::Reply;
use crate::measurement::Failure;

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
    /// `POST {base}/responses`, streamed as server-sent events.
    #[serde(rename = "openai-responses")]
    OpenAiResponses,
    /// `POST {base}/messages`, streamed as server-sent events.
    #[serde(rename = "anthropic")]
    Anthropic,
    /// `POST {base}/models/{model}:streamGenerateContent?alt=sse`, streamed as server-sent events.
    #[serde(rename = "gemini")]
    Gemini,
    /// `POST {base}/chat`, streamed as one JSON value per line.
    #[serde(rename = "ollama")]
    Ollama,
    /// `POST {base}/services/aigc/text-generation/generation`, streamed as server-sent events.
    #[serde(rename = "dashscope")]
    DashScope,
    /// `POST {base}/model/{model}/converse-stream`, streamed as AWS's binary events.
    #[serde(rename = "bedrock")]
    Bedrock,
}

impl Protocol {
    /// The path behind the base URL, query included.
    #[must_use]
    pub fn path(self, model: &str) -> String {
        match self {
            Self::OpenAiChat => "/chat/completions".into(),
            Self::OpenAiCompletions => "/completions".into(),
            Self::OpenAiResponses => "/responses".into(),
            Self::Anthropic => "/messages".into(),
            Self::Gemini => gemini::path(model),
            Self::Ollama => "/chat".into(),
            Self::DashScope => "/services/aigc/text-generation/generation".into(),
            Self::Bedrock => bedrock::path(model),
        }
    }

    /// The request's body, as JSON.
    #[must_use]
    pub fn body(self, ask: &Ask<'_>) -> Vec<u8> {
        /// Room for all but the prompt and its escapes.
        const REST_BYTES: usize = 512;
        let mut body = match self {
            Self::OpenAiChat => openai_chat::body(ask),
            Self::OpenAiCompletions => openai_completions::body(ask),
            Self::OpenAiResponses => openai_responses::body(ask),
            Self::Anthropic => anthropic::body(ask),
            Self::Gemini => gemini::body(ask),
            Self::Ollama => ollama::body(ask),
            Self::DashScope => dashscope::body(ask),
            Self::Bedrock => bedrock::body(ask),
        };
        merge(&mut body, ask.extra_body);
        let mut bytes = Vec::with_capacity(ask.prompt.len() + REST_BYTES);
        // Neither a tree of values nor memory can fail to be written.
        let _ = serde_json::to_writer(&mut bytes, &body);
        bytes
    }

    /// The header a protocol wants beside the usual ones; configured headers win over it.
    #[must_use]
    pub fn own_header(self) -> Option<(HeaderName, HeaderValue)> {
        match self {
            Self::Anthropic => Some(anthropic::VERSION),
            Self::DashScope => Some(dashscope::STREAM),
            Self::OpenAiChat
            | Self::OpenAiCompletions
            | Self::OpenAiResponses
            | Self::Gemini
            | Self::Ollama
            | Self::Bedrock => None,
        }
    }

    /// The header that carries the credential, marked sensitive. White space around the key is dropped.
    ///
    /// # Errors
    /// When the key is empty or holds what no header can carry.
    pub fn auth_header(self, key: &str) -> Result<(HeaderName, HeaderValue), KeyError> {
        let key = key.trim();
        if key.is_empty() {
            return Err(KeyError::Empty);
        }
        if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(KeyError::Unsendable);
        }
        let (name, value) = match self {
            Self::Anthropic => (HeaderName::from_static("x-api-key"), key.to_owned()),
            Self::Gemini => (HeaderName::from_static("x-goog-api-key"), key.to_owned()),
            Self::OpenAiChat
            | Self::OpenAiCompletions
            | Self::OpenAiResponses
            | Self::Ollama
            | Self::DashScope
            | Self::Bedrock => (header::AUTHORIZATION, format!("Bearer {key}")),
        };
        let mut value = HeaderValue::try_from(value).map_err(|_| KeyError::Unsendable)?;
        value.set_sensitive(true);
        Ok((name, value))
    }

    /// Reads the payload of one event.
    fn read(self, payload: &[u8], gist: &mut Gist) -> Result<(), serde_json::Error> {
        match self {
            Self::OpenAiChat | Self::OpenAiCompletions => openai_chunk::read(payload, gist),
            Self::OpenAiResponses => openai_responses::read(payload, gist),
            Self::Anthropic => anthropic::read(payload, gist),
            Self::Gemini => gemini::read(payload, gist),
            Self::Ollama => ollama::read(payload, gist),
            Self::DashScope => dashscope::read(payload, gist),
            Self::Bedrock => bedrock::read(payload, gist),
        }
    }

    /// Whether a stream should end with `[DONE]`.
    fn ends_with_done(self) -> bool {
        matches!(self, Self::OpenAiChat | Self::OpenAiCompletions)
    }

    /// Whether usage comes only when asked for.
    fn asks_for_usage(self) -> bool {
        matches!(self, Self::OpenAiChat | Self::OpenAiCompletions)
    }

    /// Whether frames may repeat the whole text as a habit of the format.
    fn may_accumulate(self) -> bool {
        self == Self::DashScope
    }
}

/// The failure a response stands for, whole, whatever endpoint it came from (a token endpoint, a list of models).
///
/// A success without an error in it is classified as what it would be as an answer.
#[must_use]
pub fn failure_of_response(head: &ReplyHead<'_>, body: &[u8]) -> Option<Failure> {
    let mut reply = Reply::new(head, Duration::ZERO);
    reply.read(Duration::ZERO, body);
    reply.end(Duration::ZERO, Ending::Clean).outcome.failure().cloned()
}

/// Merges `patch` over `body` (RFC 7396): objects member by member, `null` removes, all else replaces.
fn merge(body: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (name, value) in patch {
        match (body.get_mut(name), value) {
            (_, Value::Null) => {
                body.remove(name);
            }
            (Some(Value::Object(body)), Value::Object(patch)) => merge(body, patch),
            (_, Value::Object(patch)) => {
                let mut fresh = Map::new();
                merge(&mut fresh, patch);
                body.insert(name.clone(), Value::Object(fresh));
            }
            (_, value) => {
                body.insert(name.clone(), value.clone());
            }
        }
    }
}

/// A name as part of a URL's path: everything but letters, digits, `-._~` and what is `kept` is escaped.
fn url_path(name: &str, kept: &str) -> String {
    let mut path = String::with_capacity(name.len());
    for byte in name.bytes() {
        let c = char::from(byte);
        if c.is_ascii_alphanumeric() || "-._~".contains(c) || kept.contains(c) {
            path.push(c);
        } else {
            let digit =
                |value: u8| char::from_digit(value.into(), 16).unwrap_or_default().to_ascii_uppercase();
            path.extend(['%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
    path
}

/// The longest head of `text` of at most `bytes` bytes.
fn text_head(text: &str, bytes: usize) -> &str {
    if text.len() <= bytes {
        return text;
    }
    let boundary = (0..=bytes).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.get(..boundary).unwrap_or_default()
}

/// Why a key cannot be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyError {
    /// Nothing is left once white space is dropped.
    Empty,
    /// Spaces, control or other characters inside it.
    Unsendable,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "the API key is empty",
            Self::Unsendable => {
                "the API key holds a space, a line break or another character that no key has: check how it was pasted"
            }
        })
    }
}

impl std::error::Error for KeyError {}

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
    /// Merged over the body last, so that it wins: objects member by member, a `null` removes a member (RFC 7396).
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

impl MaxTokensField {
    /// The name of the member.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MaxTokens => "max_tokens",
            Self::MaxCompletionTokens => "max_completion_tokens",
        }
    }
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
