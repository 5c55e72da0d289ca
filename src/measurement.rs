//! What one probe observed: a timeline (when) and an outcome (what), and the latencies derived from them.
//!
//! A failed probe is a value here, never an `Err`. This module knows nothing of sockets, wire formats or
//! clocks: every instant is a [`Duration`] since the probe's t0, which was read before a connection was acquired.

pub mod rate_limit;
pub mod record;

#[cfg(test)]
mod tests;

use std::{borrow::Cow, collections::BTreeSet, sync::Arc, time::Duration};

use serde::Serialize;

use self::rate_limit::RateLimit;

/// Everything one probe observed.
#[derive(Debug, Clone, PartialEq)]
pub struct Measurement {
    /// When things happened.
    pub timeline: Timeline,
    /// What happened.
    pub outcome: Outcome,
    /// Which kind of text the first answer token was; `None` when no answer token came.
    pub first_token_kind: Option<TokenKind>,
    /// What the server, or failing that the chunk count, says was generated and read.
    pub tokens: Tokens,
    /// Gaps between consecutive reads that carried tokens, of fixed size whatever the length of the answer.
    pub gaps: GapSketch,
    /// Why the server says it stopped.
    pub finish_reason: Option<String>,
    /// Oddities seen on the way.
    pub flags: BTreeSet<Flag>,
    /// Whether the probe opened its connection or used one that stood already.
    pub connection: ConnectionUse,
    /// The model name in the answer, if any.
    pub served_model: Option<String>,
    /// `system_fingerprint` of the answer, if any.
    pub fingerprint: Option<String>,
    /// The server's own id of the request (`x-request-id` and its kin), if any.
    pub request_id: Option<String>,
    /// Allowances that the answer's headers told of.
    pub rate_limits: Vec<RateLimit>,
    /// The visible text, kept only when asked for and only up to a limit.
    pub visible_text: Option<String>,
}

/// Instants and spans of one probe. Spans of connecting are durations; all else counts from t0.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Timeline {
    /// How long after it was due the probe began, where t0 is the instant at which it was due (a span); `None` in a
    /// closed loop, where it began at t0.
    pub late: Option<Duration>,
    /// Name resolution (a span); `None` on a reused connection or when no name had to be resolved.
    pub dns: Option<Duration>,
    /// TCP handshake (a span); `None` on a reused connection.
    pub tcp: Option<Duration>,
    /// TLS handshake (a span); `None` without TLS or on a reused connection.
    pub tls: Option<Duration>,
    /// Connection in hand, request handed to it.
    pub sent: Option<Duration>,
    /// Status line and headers arrived.
    pub headers: Option<Duration>,
    /// First byte-carrying read of the body, whatever it held.
    pub first_event: Option<Duration>,
    /// First visible token: content, refusal, tool name or arguments.
    pub first_answer_token: Option<Duration>,
    /// First reasoning token.
    pub first_reasoning_token: Option<Duration>,
    /// Last token of any kind.
    pub last_token: Option<Duration>,
    /// Last visible token.
    pub last_answer_token: Option<Duration>,
    /// The answer was complete, or the probe gave up.
    pub end: Duration,
}

/// Token counts of one probe.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tokens {
    /// Prompt tokens the server counted.
    pub prompt: Option<u64>,
    /// Prompt tokens the server took from its prefix cache.
    pub cached_prompt: Option<u64>,
    /// Output tokens, reasoning included.
    pub output: Option<u64>,
    /// Reasoning tokens the server counted.
    pub reasoning: Option<u64>,
    /// Where [`Tokens::output`] comes from.
    pub source: TokenSource,
    /// Chunks that carried tokens: a lower bound of the tokens.
    pub chunks: u64,
    /// Chunks that carried visible tokens.
    pub answer_chunks: u64,
    /// Reads that carried tokens.
    pub reads: u64,
    /// Reads that carried visible tokens.
    pub answer_reads: u64,
}

/// Where the number of output tokens comes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TokenSource {
    /// The server's usage, given once.
    Usage,
    /// The server's usage, repeated and growing: the last value.
    UsageCumulative,
    /// A provider's own field, named by its path: `vendor:timings.predicted_n`.
    Vendor(&'static str),
    /// Chunks were counted: an estimate, and a lower bound.
    ChunkCount,
    /// Nothing was generated, or nothing says how much.
    #[default]
    None,
}

impl TokenSource {
    /// The name used in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Usage => "usage",
            Self::UsageCumulative => "usage_cumulative",
            Self::Vendor(path) => path,
            Self::ChunkCount => "chunk_count",
            Self::None => "none",
        }
    }
}

impl Serialize for TokenSource {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// What a visible token was part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenKind {
    /// Answer text.
    Content,
    /// Refusal text.
    Refusal,
    /// A tool's name or arguments.
    ToolCall,
}

/// Whether a probe opened its connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionUse {
    /// Opened by this probe.
    #[default]
    New,
    /// Opened by an earlier one.
    Reused,
}

/// How a probe ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Visible tokens and a proper end.
    Ok,
    /// Visible tokens, then an error, a cut or a filter: its first-token time is valid, the probe failed.
    Partial(Failure),
    /// A proper end and nothing visible.
    Empty(Failure),
    /// The endpoint answered, but not as a stream: total time is valid, first-token time unknown.
    Unmeasurable(Failure),
    /// No answer.
    Error(Failure),
}

/// Why a probe failed.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// One of the 17 classes; the `reason` label of the failures counter.
    pub class: FailureClass,
    /// Finer than the class.
    pub subclass: Option<Cow<'static, str>>,
    /// HTTP status, when there was an answer.
    pub http_status: Option<u16>,
    /// How long the server asks to be left alone.
    pub retry_after: Option<Duration>,
    /// The server's words or ours: short, one line, secrets redacted.
    pub message: String,
}

macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $text)] $variant),+ }

        impl $name {
            /// Every value, in declaration order.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The name used in labels, JSON and tables.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.pad(self.as_str()) }
        }
    };
}
pub(crate) use named;

named! {
    /// The classes of failure, closed and public: the `reason` label.
    FailureClass {
        /// No connection, or lost before any header.
        Connect = "connect",
        /// Handshake or certificate.
        Tls = "tls",
        /// An intermediary answered, not the model server.
        Edge = "edge",
        /// One of our deadlines passed.
        Timeout = "timeout",
        /// The credential.
        Auth = "auth",
        /// Money or a long-term allowance.
        Quota = "quota",
        /// Wait a short while.
        RateLimited = "rate_limited",
        /// Server full or warming up.
        Overloaded = "overloaded",
        /// The route is right, the model is not.
        ModelNotFound = "model_not_found",
        /// Wrong path, base URL, method or scheme.
        EndpointNotFound = "endpoint_not_found",
        /// The shape of our request.
        BadRequest = "bad_request",
        /// Prompt or output blocked.
        ContentFilter = "content_filter",
        /// Fault of the model server, in the status or in the stream.
        UpstreamError = "upstream_error",
        /// Ended without a terminal marker.
        StreamTruncated = "stream_truncated",
        /// Bytes that cannot be read.
        Protocol = "protocol",
        /// A clean end and nothing visible.
        EmptyOutput = "empty_output",
        /// The whole reply at once.
        NotStreaming = "not_streaming",
    }
}

named! {
    /// Oddities of a stream that do not decide its outcome.
    Flag {
        /// Comment-only blocks seen.
        KeepaliveComments = "keepalive_comments",
        /// Empty or `:` data payload skipped.
        JunkData = "junk_data",
        /// Non-conformant framing tolerated.
        LaxFraming = "lax_framing",
        /// OpenAI-style stream without `[DONE]`.
        MissingDone = "missing_done",
        /// `[DONE]` but no finish reason.
        NoFinishReason = "no_finish_reason",
        /// More than one `[DONE]`.
        DuplicateDone = "duplicate_done",
        /// A read carried several token events.
        Coalesced = "coalesced",
        /// Eight or more token events in at most two reads.
        Burst = "burst",
        /// More tokens than token events.
        MultiTokenChunks = "multi_token_chunks",
        /// Usage repeated, cumulative.
        UsageEveryChunk = "usage_every_chunk",
        /// Usage 0 beside text.
        UsageZeroDistrusted = "usage_zero_distrusted",
        /// Usage of more tokens than the answer's bytes can hold.
        UsageExcessDistrusted = "usage_excess_distrusted",
        /// Usage was asked for and none came.
        UsageMissing = "usage_missing",
        /// The server reports cached prompt tokens.
        PromptCached = "prompt_cached",
        /// A gateway's cache answered.
        CachedResponse = "cached_response",
        /// A model load lies inside the time to first token.
        ColdStart = "cold_start",
        /// `<think>` inside the content.
        InlineThink = "inline_think",
        /// `</think>` without its opener.
        ThinkCloseOnly = "think_close_only",
        /// Frames repeat the whole text.
        CumulativeText = "cumulative_text",
        /// Reasoning billed, not streamed.
        HiddenReasoning = "hidden_reasoning",
        /// A delta repeated earlier text.
        RepeatChunk = "repeat_chunk",
        /// Visible text reads like an HTTP error.
        ContentLooksLikeError = "content_looks_like_error",
    }
}

impl Failure {
    /// Whether the prompt is longer than the model takes.
    #[must_use]
    pub fn is_context_length(&self) -> bool {
        self.subclass.as_deref() == Some("context_length")
    }
}

impl Outcome {
    /// The name used in JSON.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Partial(_) => "partial",
            Self::Empty(_) => "empty",
            Self::Unmeasurable(_) => "unmeasurable",
            Self::Error(_) => "error",
        }
    }

    /// Why it failed; `None` when it did not.
    #[must_use]
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Ok => None,
            Self::Partial(failure)
            | Self::Empty(failure)
            | Self::Unmeasurable(failure)
            | Self::Error(failure) => Some(failure),
        }
    }

    /// The same, to add to what it says.
    #[must_use]
    pub fn failure_mut(&mut self) -> Option<&mut Failure> {
        match self {
            Self::Ok => None,
            Self::Partial(failure)
            | Self::Empty(failure)
            | Self::Unmeasurable(failure)
            | Self::Error(failure) => Some(failure),
        }
    }
}

impl Timeline {
    /// Time to first token: the earlier of the first answer token and the first reasoning token.
    #[must_use]
    pub fn first_token(&self) -> Option<Duration> {
        match (self.first_answer_token, self.first_reasoning_token) {
            (Some(answer), Some(reasoning)) => Some(answer.min(reasoning)),
            (answer, reasoning) => answer.or(reasoning),
        }
    }
}

impl Measurement {
    /// A measurement of which nothing is known but how it ended and when.
    #[must_use]
    pub fn bare(outcome: Outcome, timeline: Timeline) -> Self {
        Self {
            timeline,
            outcome,
            first_token_kind: None,
            tokens: Tokens::default(),
            gaps: GapSketch::default(),
            finish_reason: None,
            flags: BTreeSet::new(),
            connection: ConnectionUse::default(),
            served_model: None,
            fingerprint: None,
            request_id: None,
            rate_limits: Vec::new(),
            visible_text: None,
        }
    }

    /// Whether the answer came to a proper end and nothing of it was visible.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self.outcome, Outcome::Empty(_))
    }

    /// Whether the probe got a whole answer.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        matches!(self.outcome, Outcome::Ok)
    }

    /// Passes everything the other side said through `redact`: a server may echo what it was sent.
    pub fn redact(&mut self, redact: impl Fn(&str) -> String) {
        if let Some(failure) = self.outcome.failure_mut() {
            failure.message = redact(&failure.message);
            failure.subclass = failure.subclass.take().map(|words| match words {
                Cow::Borrowed(ours) => Cow::Borrowed(ours),
                Cow::Owned(theirs) => Cow::Owned(redact(&theirs)),
            });
        }
        let said =
            [&mut self.finish_reason, &mut self.served_model, &mut self.fingerprint, &mut self.request_id];
        for text in said.into_iter().chain([&mut self.visible_text]).flatten() {
            *text = redact(text);
        }
    }

    /// Time per output token: `(last token - first token) / (output tokens - 1)`.
    ///
    /// Only for two or more tokens that arrived in two or more reads. When reasoning was billed but not
    /// streamed, the visible tokens and the visible times are used: the hidden ones have no span.
    #[must_use]
    pub fn time_per_output_token(&self) -> Option<Duration> {
        let (span, tokens) = self.decode_span()?;
        Some(span.div_f64((tokens - 1) as f64))
    }

    /// Output tokens per second of this request: `(output tokens - 1) / (last token - first token)`.
    #[must_use]
    pub fn output_tokens_per_second(&self) -> Option<f64> {
        let (span, tokens) = self.decode_span()?;
        Some((tokens - 1) as f64 / span.as_secs_f64())
    }

    fn decode_span(&self) -> Option<(Duration, u64)> {
        let output = self.tokens.output?;
        let hidden = self.flags.contains(&Flag::HiddenReasoning);
        let (first, last, tokens, reads) = if hidden {
            let visible = output.saturating_sub(self.tokens.reasoning.unwrap_or(0));
            let line = &self.timeline;
            (line.first_answer_token?, line.last_answer_token?, visible, self.tokens.answer_reads)
        } else {
            (self.timeline.first_token()?, self.timeline.last_token?, output, self.tokens.reads)
        };
        let span = last.checked_sub(first)?;
        (tokens >= 2 && reads >= 2 && !span.is_zero()).then_some((span, tokens))
    }
}

/// Counts and sums of gaps per histogram bucket: bounded memory, yet exact when merged into a histogram with the
/// same bounds (observing a bucket's mean as often as its count reproduces both its count and its sum).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GapSketch {
    bounds: Arc<[f64]>,
    /// How many gaps fell into each bucket, and their sum.
    buckets: Vec<(u32, f64)>,
    max: Option<Duration>,
}

impl GapSketch {
    /// An empty sketch over ascending upper bounds in seconds; what lies above the last falls into one more bucket.
    #[must_use]
    pub fn new(bounds: Arc<[f64]>) -> Self {
        let buckets = vec![(0, 0.0); bounds.len() + 1];
        Self { bounds, buckets, max: None }
    }

    /// Adds one gap.
    pub fn record(&mut self, gap: Duration) {
        let seconds = gap.as_secs_f64();
        let bucket = self.bounds.partition_point(|bound| *bound < seconds);
        if let Some((count, sum)) = self.buckets.get_mut(bucket) {
            *count = count.saturating_add(1);
            *sum += seconds;
        }
        self.max = self.max.max(Some(gap));
    }

    /// The longest gap.
    #[must_use]
    pub fn max(&self) -> Option<Duration> {
        self.max
    }

    /// `(how many, their mean in seconds)` for every bucket that is not empty.
    pub fn means(&self) -> impl Iterator<Item = (u32, f64)> + '_ {
        let uppers = self.bounds.iter().copied().chain([f64::INFINITY]);
        let lowers = [0.0].into_iter().chain(self.bounds.iter().map(|bound| bound.next_up()));
        let buckets = self.buckets.iter().zip(lowers.zip(uppers));
        // Rounding must not carry a mean over the edge of the bucket its gaps fell into.
        buckets
            .filter(|((count, _), _)| *count > 0)
            .map(|((count, sum), (lower, upper))| (*count, (sum / f64::from(*count)).clamp(lower, upper)))
    }

    /// About the `q`-quantile in seconds: the mean of the bucket it falls into.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let total: u64 = self.buckets.iter().map(|(count, _)| u64::from(*count)).sum();
        let mut seen = 0;
        self.means().find_map(|(count, mean)| {
            seen += u64::from(count);
            (seen as f64 >= q * total as f64).then_some(mean)
        })
    }

    /// Forgets every gap: what a stream that turned out to be a burst must do.
    pub fn clear(&mut self) {
        self.buckets.fill((0, 0.0));
        self.max = None;
    }
}
