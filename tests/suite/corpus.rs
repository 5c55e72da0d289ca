//! The conformance corpus: cases read from `tests/data/quirks.jsonl` and, of the same kinds and in the same form, from
//! `tests/data/further.jsonl`; and the comparison of a measurement with what a case expects. Shared by the run with a
//! fake clock and the run over sockets.

use std::{collections::BTreeSet, time::Duration};

use base64::Engine as _;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use tokenprobe::{
    measurement::{Measurement, TokenKind},
    protocol::{Protocol, Timeouts},
};

/// One case.
#[derive(Debug, Clone, Deserialize)]
pub struct Case {
    pub id: String,
    pub request_hint: RequestHint,
    /// A failure before any HTTP answer.
    pub transport: Option<String>,
    pub response_status: Option<u16>,
    pub response_headers: Option<std::collections::BTreeMap<String, String>>,
    pub head_delay_ms: Option<u64>,
    pub body_chunks: Option<Vec<Chunk>>,
    pub end: Option<End>,
    pub expected: Expected,
}

#[derive(Debug, Clone, Deserialize)]
pub struct RequestHint {
    pub api: String,
    pub body: serde_json::Value,
    pub host: Option<String>,
    #[serde(default)]
    pub client_timeouts: ClientTimeouts,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[expect(clippy::struct_field_names, reason = "the corpus names them")]
pub struct ClientTimeouts {
    pub headers_ms: Option<u64>,
    pub first_token_ms: Option<u64>,
    pub stall_ms: Option<u64>,
    pub total_ms: Option<u64>,
}

/// One write of the server.
#[derive(Debug, Clone, Deserialize)]
pub struct Chunk {
    pub delay_ms: u64,
    bytes: String,
    encoding: Option<String>,
}

/// How the body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    Clean,
    Abort,
    Hang,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Expected {
    pub outcome: String,
    pub ttft_ms: Option<u64>,
    pub first_reasoning_chunk_index: Option<usize>,
    pub first_token_kind: Option<TokenKindName>,
    pub output_tokens: Option<u64>,
    pub output_tokens_source: String,
    pub error_class: Option<String>,
    pub error_subclass: Option<String>,
    pub finish_reason: Option<String>,
    pub flags: BTreeSet<String>,
    pub visible_text: Option<String>,
    pub retry_after_ms: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenKindName {
    Content,
    Refusal,
    ToolCall,
}

/// Every case of the corpus.
pub fn load() -> Vec<Case> {
    read(include_str!("../data/quirks.jsonl"))
}

/// Cases of our own: other providers, other wordings, two quirks at once.
pub fn load_further() -> Vec<Case> {
    read(include_str!("../data/further.jsonl"))
}

fn read(lines: &str) -> Vec<Case> {
    let case = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    lines.lines().map(case).collect()
}

/// How times are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// To the microsecond.
    Exact,
    /// Never earlier than expected, and later by at most this.
    #[allow(dead_code, reason = "for the run over sockets")]
    Slack(Duration),
    /// To the microsecond, but reads were cut differently: flags about reads do not count.
    Bytewise,
}

/// Everything in which `measurement` differs from what `case` expects.
pub fn differences(case: &Case, measurement: &Measurement, clock: Clock) -> Vec<String> {
    let expected = &case.expected;
    let failure = measurement.outcome.failure();
    let mut differences = Differences(Vec::new());
    differences.compare("outcome", expected.outcome.as_str(), measurement.outcome.as_str());
    differences.compare(
        "class",
        expected.error_class.as_deref(),
        failure.map(|failure| failure.class.as_str()),
    );
    differences.compare(
        "subclass",
        expected.error_subclass.as_deref(),
        failure.and_then(|failure| failure.subclass.as_deref()),
    );
    differences.compare(
        "kind",
        expected.first_token_kind,
        measurement.first_token_kind.map(|kind| match kind {
            TokenKind::Content => TokenKindName::Content,
            TokenKind::Refusal => TokenKindName::Refusal,
            TokenKind::ToolCall => TokenKindName::ToolCall,
        }),
    );
    differences.compare("output tokens", expected.output_tokens, measurement.tokens.output);
    differences.compare("source", expected.output_tokens_source.as_str(), measurement.tokens.source.as_str());
    differences.compare("finish", expected.finish_reason.as_deref(), measurement.finish_reason.as_deref());
    differences.compare("text", expected.visible_text.as_deref(), visible_text(measurement));
    let retry_after = failure.and_then(|failure| failure.retry_after);
    differences.compare("retry after", expected.retry_after_ms.map(Duration::from_millis), retry_after);
    let line = &measurement.timeline;
    differences.compare_time("first answer token", clock, case.first_answer(), line.first_answer_token);
    differences.compare_time(
        "first reasoning token",
        clock,
        case.first_reasoning(),
        line.first_reasoning_token,
    );
    let about_reads = |flag: &&str| clock != Clock::Exact && ["burst", "coalesced"].contains(flag);
    let flags: BTreeSet<&str> =
        measurement.flags.iter().map(|flag| flag.as_str()).filter(|flag| !about_reads(flag)).collect();
    let wanted = expected.flags.iter().map(String::as_str).filter(|flag| !about_reads(flag)).collect();
    differences.compare("flags", wanted, flags);
    differences.0
}

fn visible_text(measurement: &Measurement) -> Option<&str> {
    measurement.visible_text.as_deref().filter(|text| !text.is_empty())
}

struct Differences(Vec<String>);

impl Differences {
    #[expect(clippy::needless_pass_by_value, reason = "callers compare what they just made")]
    fn compare<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, expected: T, found: T) {
        if expected != found {
            self.0.push(format!("{what}: expected {expected:?}, found {found:?}"));
        }
    }

    fn compare_time(
        &mut self,
        what: &str,
        clock: Clock,
        expected: Option<Duration>,
        found: Option<Duration>,
    ) {
        match (clock, expected, found) {
            (Clock::Slack(slack), Some(expected), Some(found)) => {
                if found < expected || found > expected + slack {
                    self.0.push(format!(
                        "{what}: expected {expected:?} and up to {slack:?} more, found {found:?}"
                    ));
                }
            }
            _ => self.compare(what, expected, found),
        }
    }
}

impl Case {
    /// The wire format, when the product speaks it.
    pub fn protocol(&self) -> Option<Protocol> {
        Some(match self.request_hint.api.as_str() {
            // A token endpoint's refusal is read like any other.
            "openai_chat" | "oauth_token" => Protocol::OpenAiChat,
            "openai_completions" => Protocol::OpenAiCompletions,
            "openai_responses" => Protocol::OpenAiResponses,
            "anthropic_messages" => Protocol::Anthropic,
            "gemini" => Protocol::Gemini,
            "ollama_chat" => Protocol::Ollama,
            "dashscope" => Protocol::DashScope,
            "bedrock_converse" => Protocol::Bedrock,
            _ => return None,
        })
    }

    pub fn include_usage(&self) -> bool {
        self.request_hint.body.pointer("/stream_options/include_usage") == Some(&true.into())
    }

    pub fn timeouts(&self) -> Timeouts {
        let hint = &self.request_hint.client_timeouts;
        let or = |hint: Option<u64>, generous| Duration::from_millis(hint.unwrap_or(generous));
        Timeouts {
            connect: Duration::from_secs(5),
            headers: or(hint.headers_ms, 60_000),
            first_token: or(hint.first_token_ms, 60_000),
            stall: or(hint.stall_ms, 30_000),
            total: or(hint.total_ms, 120_000),
        }
    }

    pub fn headers(&self) -> HeaderMap {
        let headers = self.response_headers.iter().flatten();
        let pair = |(name, value): (&String, &String)| {
            (
                HeaderName::try_from(name).expect("a header name"),
                HeaderValue::try_from(value).expect("a value"),
            )
        };
        headers.map(pair).collect()
    }

    /// When the headers are written, since the request.
    pub fn headers_at(&self) -> Duration {
        Duration::from_millis(self.head_delay_ms.unwrap_or(0))
    }

    /// `(when written since the request, bytes)` of every write.
    pub fn writes(&self) -> Vec<(Duration, Vec<u8>)> {
        let mut at = self.headers_at();
        let chunks = self.body_chunks.iter().flatten();
        chunks
            .map(|chunk| {
                at += Duration::from_millis(chunk.delay_ms);
                (at, chunk.bytes())
            })
            .collect()
    }

    pub fn first_answer(&self) -> Option<Duration> {
        self.expected.ttft_ms.map(Duration::from_millis)
    }

    pub fn first_reasoning(&self) -> Option<Duration> {
        self.expected.first_reasoning_chunk_index.map(|index| self.writes()[index].0)
    }
}

impl Chunk {
    pub fn bytes(&self) -> Vec<u8> {
        match self.encoding.as_deref() {
            None => self.bytes.clone().into_bytes(),
            Some("base64") => {
                base64::engine::general_purpose::STANDARD.decode(&self.bytes).expect("valid base64")
            }
            Some(other) => panic!("unknown encoding {other}"),
        }
    }
}
