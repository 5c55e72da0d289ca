//! What an answer was worth, once its body has ended: outcome, counts, flags, the measurement.
//!
//! Decides in the order transport, body, status; knows nothing of framing and reads no stream.

use std::time::Duration;

use serde_json::Value;

use super::{
    Deadline, Ending,
    classify::{self, Circumstances, Ruling},
    complaint::{Complaint, is_complaint},
    edge,
    excuse::{self, Wording},
    framing::Frame,
    gist::Gist,
    head::HeadFacts,
    json_scan::split_values,
    ledger,
    reply::{Body, Shape},
    sse::SseDecoder,
    story::{FinishFailure, Story, Unreadable, failure_of_finish},
    transcript::Tally,
};
use crate::measurement::{
    ConnectionUse, Failure,
    FailureClass::{
        ContentFilter, EmptyOutput, NotStreaming, Overloaded, Protocol as Unspeakable, StreamTruncated,
        Timeout, UpstreamError,
    },
    Flag, Measurement, Outcome, Timeline, TokenSource, Tokens,
};

/// Everything known when the body has ended.
#[derive(Debug)]
pub(super) struct Closing {
    pub(super) head: HeadFacts,
    pub(super) body: Body,
    pub(super) story: Story,
    pub(super) ending: Ending,
    pub(super) headers_at: Duration,
    pub(super) first_event: Option<Duration>,
    pub(super) last_read: Option<Duration>,
    /// Of the body, as they came.
    pub(super) bytes: u64,
    pub(super) at: Duration,
}

/// Makes the measurement.
pub(super) fn close(mut closing: Closing) -> Measurement {
    let outcome = closing.outcome();
    let end = closing.end(&outcome);
    let Closing { head, body, story, headers_at, first_event, bytes, .. } = closing;
    let is_stream = head.is_success() && !matches!(body, Body::Whole { .. });
    let mut flags = story.flags.clone();
    flags.extend(stream_flags(&head, &story, is_stream, &outcome));
    let reasoning_billed = story.ledger.reasoning() > 0;
    let include_usage = head.include_usage;
    let (tally, seen) = story.transcript.finish();
    flags.extend(seen);
    let verdict = story.ledger.verdict(tally.chunks, bytes);
    flags.extend(count_flags(&verdict, &tally, reasoning_billed));
    let complete = story.terminal_at.is_some() && story.failed_at.is_none();
    let uncounted = matches!(verdict.source, TokenSource::ChunkCount | TokenSource::None);
    if include_usage
        && head.protocol.asks_for_usage()
        && is_stream
        && complete
        && uncounted
        && !story.ledger.has_usage
    {
        flags.insert(Flag::UsageMissing);
    }
    let shown = matches!(outcome, Outcome::Ok | Outcome::Partial(_));
    Measurement {
        timeline: timeline(&tally, headers_at, first_event, end),
        outcome,
        first_token_kind: tally.first_kind,
        tokens: tokens(&verdict, &tally),
        gaps: tally.gaps,
        finish_reason: story.finish,
        flags,
        connection: ConnectionUse::default(),
        served_model: story.model,
        fingerprint: story.fingerprint,
        rate_limits: head.hints.rate_limits,
        request_id: head.request_id,
        visible_text: tally.text.filter(|_| shown),
    }
}

fn timeline(tally: &Tally, headers: Duration, first_event: Option<Duration>, end: Duration) -> Timeline {
    Timeline {
        headers: Some(headers),
        first_event,
        first_answer_token: tally.first_answer,
        first_reasoning_token: tally.first_reasoning,
        last_token: tally.last,
        last_answer_token: tally.last_answer,
        end,
        ..Timeline::default()
    }
}

fn tokens(verdict: &ledger::Verdict, tally: &Tally) -> Tokens {
    Tokens {
        prompt: verdict.counts.prompt,
        cached_prompt: verdict.counts.cached_prompt,
        output: verdict.counts.output,
        reasoning: verdict.counts.reasoning,
        source: verdict.source,
        chunks: tally.chunks,
        answer_chunks: tally.answer_chunks,
        reads: tally.reads,
        answer_reads: tally.answer_reads,
    }
}

/// Flags of how the stream was sent.
fn stream_flags(head: &HeadFacts, story: &Story, is_stream: bool, outcome: &Outcome) -> Vec<Flag> {
    let mut flags = Vec::new();
    if !is_stream {
        return flags;
    }
    if head.protocol.ends_with_done() {
        match story.done_at {
            None => flags.push(Flag::MissingDone),
            Some(_) if story.finish.is_none() && story.failed_at.is_none() && !story.whole_reply => {
                flags.push(Flag::NoFinishReason);
            }
            Some(_) => {}
        }
    }
    if head.cached_response && !matches!(outcome, Outcome::Error(_)) {
        flags.push(Flag::CachedResponse);
    }
    flags
}

/// Flags of what was counted.
fn count_flags(verdict: &ledger::Verdict, tally: &Tally, reasoning_billed: bool) -> Vec<Flag> {
    let mut flags = Vec::new();
    let counted = !matches!(verdict.source, TokenSource::ChunkCount | TokenSource::None);
    let reasoning_shown = tally.first_reasoning.is_some();
    if counted && has_many_tokens_per_chunk(verdict, tally) {
        flags.push(Flag::MultiTokenChunks);
    }
    if reasoning_billed && !reasoning_shown && tally.answer_chunks > 0 {
        flags.push(Flag::HiddenReasoning);
    }
    if verdict.repeated {
        flags.push(Flag::UsageEveryChunk);
    }
    if verdict.zero_distrusted {
        flags.push(Flag::UsageZeroDistrusted);
    }
    if verdict.excess_distrusted {
        flags.push(Flag::UsageExcessDistrusted);
    }
    if verdict.counts.cached_prompt.is_some_and(|cached| cached > 0) {
        flags.push(Flag::PromptCached);
    }
    flags
}

/// Whether chunks of the answer hold several tokens: more tokens were billed than chunks came, and more than the
/// tokens without text explain (the end of the text, the two tags around reasoning).
fn has_many_tokens_per_chunk(verdict: &ledger::Verdict, tally: &Tally) -> bool {
    const END_TOKEN: u64 = 1;
    const TAG_TOKENS: u64 = 2;
    let output = verdict.counts.output.unwrap_or(0);
    let reasoning = verdict.counts.reasoning.unwrap_or(tally.chunks - tally.answer_chunks);
    let tags = if tally.first_reasoning.is_some() { TAG_TOKENS } else { 0 };
    tally.answer_chunks > 0
        && output.saturating_sub(reasoning) > tally.answer_chunks + END_TOKEN
        && output > tally.chunks + END_TOKEN + tags
}

impl Closing {
    fn outcome(&mut self) -> Outcome {
        match std::mem::replace(&mut self.body, Body::Undecided { bom: 0 }) {
            Body::Whole { shape, bytes } => {
                let outcome = match shape {
                    _ if self.story.unreadable.is_some() => Outcome::Error(self.unreadable()),
                    Shape::Json => self.json_reply(&bytes),
                    Shape::Html | Shape::Excuse => Outcome::Error(self.excuse(&bytes)),
                };
                self.body = Body::Whole { shape, bytes: Vec::new() };
                outcome
            }
            Body::Stream { head, .. } => self.stream(&head),
            Body::Undecided { .. } => self.stream(&[]),
        }
    }

    /// A complete answer ended with its last event, all else when it was given up or read to its end.
    fn end(&self, outcome: &Outcome) -> Duration {
        let complete = self.story.terminal_at.is_some() || self.story.failed_at.is_some();
        match outcome {
            _ if complete && !matches!(self.body, Body::Whole { .. }) => {
                self.story.last_event.unwrap_or(self.at)
            }
            Outcome::Unmeasurable(_) => self.last_read.unwrap_or(self.at),
            Outcome::Ok | Outcome::Partial(_) | Outcome::Empty(_) | Outcome::Error(_) => self.at,
        }
    }

    fn stream(&self, head: &[u8]) -> Outcome {
        let story = &self.story;
        let has_answer = story.transcript.has_answer();
        let failure = if let Some(complaint) = &story.complaint {
            self.complaint(complaint)
        } else if story.unreadable.is_some() {
            self.unreadable()
        } else if let Some(failure) = story.finish.as_deref().and_then(failure_of_finish) {
            self.failed_finish(failure)
        } else if story.filtered {
            self.failed_finish(FinishFailure::Filtered)
        } else if story.terminal_at.is_some() {
            return match has_answer {
                true => Outcome::Ok,
                false if story.whole_reply => Outcome::Unmeasurable(self.whole_reply()),
                false => Outcome::Empty(self.empty()),
            };
        } else if story.whole_reply && !has_answer && self.ending == Ending::Clean {
            return Outcome::Unmeasurable(self.whole_reply());
        } else {
            self.cut(head)
        };
        if has_answer { Outcome::Partial(failure) } else { Outcome::Error(failure) }
    }

    /// The stream stopped before it said that it was complete.
    fn cut(&self, head: &[u8]) -> Failure {
        match self.ending {
            Ending::TooLarge => self.failure(Ruling::of(Unspeakable), "the response outgrew the size limit"),
            Ending::Aborted => {
                self.failure(Ruling::new(StreamTruncated, "aborted"), "the connection was lost")
            }
            Ending::Deadline(deadline) => self.timed_out(deadline),
            Ending::Clean if self.story.events == 0 && (!head.is_empty() || self.head.challenged) => {
                let text = excuse::lower_head(head);
                let ruling = edge::rule(self.head.status, &text, false, self.head.challenged);
                let looks_like_words = !text.starts_with([':', 'd', 'e', 'i', 'r']) || text.contains(' ');
                self.failure(ruling, if looks_like_words { &text } else { "no event came" })
            }
            Ending::Clean if self.story.events == 0 => {
                self.failure(Ruling::new(StreamTruncated, "no_events"), "the body ended without one event")
            }
            Ending::Clean => self.failure(
                Ruling::new(StreamTruncated, "no_terminal"),
                "the stream ended before its last event",
            ),
        }
    }

    fn timed_out(&self, deadline: Deadline) -> Failure {
        let (subclass, message) = excuse::deadline(deadline);
        self.failure(Ruling::new(Timeout, subclass), message)
    }

    fn failed_finish(&self, failure: FinishFailure) -> Failure {
        let ruling = match failure {
            FinishFailure::Upstream => Ruling::new(UpstreamError, "finish_reason"),
            FinishFailure::Overloaded => Ruling::new(Overloaded, "finish_reason"),
            FinishFailure::Filtered => Ruling::new(ContentFilter, "output"),
        };
        let word = self.story.finish.as_deref().unwrap_or_default();
        self.failure(ruling, &format!("finish reason {word:?}"))
    }

    fn empty(&self) -> Failure {
        let story = &self.story;
        let word = story.finish.as_deref().unwrap_or_default().to_ascii_lowercase();
        let ran_out = ["length", "max_tokens", "max_output_tokens", "incomplete"].contains(&word.as_str());
        let reasoned =
            story.transcript.has_reasoning() || story.ledger.reasoning() > 0 || story.veiled_reasoning;
        let ruling = if ran_out && reasoned {
            Ruling::new(EmptyOutput, "budget_spent_on_reasoning")
        } else {
            Ruling::new(EmptyOutput, "no_visible_text")
        };
        self.failure(ruling, "a proper end, and no visible text")
    }

    fn whole_reply(&self) -> Failure {
        self.failure(Ruling::new(NotStreaming, "json_reply"), "the whole reply came at once")
    }

    fn unreadable(&self) -> Failure {
        match self.story.unreadable {
            Some(Unreadable::TooLong) => {
                self.failure(Ruling::of(Unspeakable), "an event or the body outgrew its size limit")
            }
            Some(Unreadable::Encoding) => self.failure(
                Ruling::of(Unspeakable),
                "compressed although identity was asked for, and unreadable",
            ),
            Some(Unreadable::BadFrame) => {
                self.failure(Ruling::of(Unspeakable), "broken event-stream framing")
            }
            Some(Unreadable::BadJson) | None => {
                self.failure(Ruling::new(Unspeakable, "bad_json"), "data that is not JSON")
            }
        }
    }

    /// A 2xx body that is JSON.
    fn json_reply(&mut self, bytes: &[u8]) -> Outcome {
        let (values, _) = split_values(bytes);
        let value =
            values.first().and_then(|text| Some((*text, serde_json::from_slice::<Value>(text).ok()?)));
        let Some((text, value)) = value else {
            return Outcome::Error(match self.ending {
                Ending::Clean => {
                    self.failure(Ruling::new(Unspeakable, "bad_json"), "the JSON reply is broken")
                }
                Ending::Aborted | Ending::Deadline(_) | Ending::TooLarge => self.cut(&[]),
            });
        };
        if is_complaint(&value) {
            return Outcome::Error(self.complaint(&Complaint::gather(&value)));
        }
        let mut gist = Gist::default();
        let read = match &value {
            // Gemini's stream without server-sent events: a list of what would be events.
            Value::Array(items) => items
                .iter()
                .try_for_each(|item| self.head.protocol.read(item.to_string().as_bytes(), &mut gist)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
                self.head.protocol.read(text, &mut gist)
            }
        };
        if read.is_err() || !(gist.whole_reply || gist.terminal || gist.piece_count() > 0) {
            let ruling = Ruling::new(Unspeakable, "bad_json");
            return Outcome::Error(self.failure(ruling, "JSON that is not an answer"));
        }
        self.story.adopt(&gist);
        Outcome::Unmeasurable(self.whole_reply())
    }

    /// A body that explains a failure: JSON, JSON in an event, or words.
    fn excuse(&self, bytes: &[u8]) -> Failure {
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).trim_ascii();
        let complaint = match bytes.first() {
            Some(b'{' | b'[') => Complaint::read(bytes),
            Some(b'<') | None => None,
            Some(_) => event_data(bytes).and_then(|data| Complaint::read(&data)),
        };
        if let Some(complaint) = complaint {
            return self.complaint(&complaint);
        }
        if let Some(code) = &self.head.error_code {
            let mut complaint = Complaint::gather(&Value::Null);
            complaint.add_code(code);
            return self.complaint(&complaint);
        }
        let text = excuse::lower_head(bytes);
        let is_html = bytes.starts_with(b"<");
        let ruling = self.words_of_server(&text, is_html);
        let ruling =
            ruling.unwrap_or_else(|| edge::rule(self.head.status, &text, is_html, self.head.challenged));
        self.failure(ruling, &excuse::readable(bytes, is_html))
    }

    /// What plain words stand for that only the model server, or what speaks for it, would say. Of faults on the way
    /// anyone may tell, so there only that a model is loading counts.
    fn words_of_server(&self, text: &str, is_html: bool) -> Option<Ruling> {
        if is_html || self.head.challenged || edge::names_itself(text) {
            return None;
        }
        let is_loading = |ruling: &Ruling| ruling.subclass.as_deref() == Some("loading");
        classify::classify_words(text, self.around())
            .filter(|ruling| (400..500).contains(&self.head.status) || is_loading(ruling))
    }

    fn around(&self) -> Circumstances<'_> {
        Circumstances {
            http_status: self.head.status,
            host: &self.head.host,
            has_answer: self.story.transcript.has_answer(),
        }
    }

    fn complaint(&self, complaint: &Complaint) -> Failure {
        let mut complaint = complaint.clone();
        if let Some(code) = &self.head.error_code {
            complaint.add_code(code);
        }
        let ruling = classify::classify(&complaint, self.around());
        let body_hint = complaint.retry_delay.or(complaint.estimated_time);
        let mut failure = self.failure(ruling, &complaint.message);
        failure.retry_after = self.head.hints.retry_after.or(body_hint).or(self.bucket_reset(&failure));
        failure
    }

    fn failure(&self, ruling: Ruling, words: &str) -> Failure {
        let wording = Wording { status: self.head.status, location: self.head.location.as_deref(), words };
        let mut failure = Failure {
            message: wording.message(&ruling),
            class: ruling.class,
            subclass: ruling.subclass,
            http_status: Some(self.head.status),
            retry_after: None,
        };
        if !self.head.is_success() {
            failure.retry_after = self.head.hints.retry_after.or(self.bucket_reset(&failure));
        }
        failure
    }

    /// The reset of an empty bucket says something only about failures that waiting mends.
    fn bucket_reset(&self, failure: &Failure) -> Option<Duration> {
        use crate::measurement::FailureClass::{Quota, RateLimited};
        let mends = matches!(failure.class, RateLimited | Quota | Overloaded);
        self.head.hints.bucket_reset.filter(|_| mends)
    }
}

/// The data of the first event, when a failure's body is an event stream.
fn event_data(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut found = None;
    let mut decoder = SseDecoder::default();
    let mut note = |frame: Frame<'_>| match frame {
        Frame::Payload { data, .. } | Frame::ErrorField(data) | Frame::Stray(data) => {
            found.get_or_insert(data.to_vec());
        }
        Frame::Comments | Frame::Lax | Frame::TooLong | Frame::Exception { .. } | Frame::Broken => {}
    };
    decoder.feed(bytes, &mut note);
    decoder.finish(true, &mut note);
    found
}
