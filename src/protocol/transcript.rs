//! The tokens of one answer: when the first and the last of each channel came, how many chunks, in how many reads,
//! with what gaps.
//!
//! Knows nothing of wire formats (it is told pieces of text and their channels) and nothing of outcomes. Memory does
//! not grow with the answer: the text is kept only on request, and up to a limit.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use super::{
    echo::{Echo, News},
    gist::Channel,
    text_head,
    think::{Finding, Origin, Part, ThinkSplitter},
};
use crate::measurement::{Flag, GapSketch, TokenKind};

/// Most bytes of visible text kept.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// Head of the visible text kept to see whether it reads like an error.
const HEAD_BYTES_MAX: usize = 512;
/// Visible chunks in [`BURST_READS_MAX`] reads that make a burst.
const BURST_CHUNKS_MIN: u64 = 8;
const BURST_READS_MAX: u64 = 2;

/// The read that delivered something: its instant since t0, and its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) at: Duration,
    pub(super) read: u64,
}

/// Everything known of the tokens of one answer.
#[derive(Debug)]
pub(super) struct Transcript {
    content: Echo,
    reasoning: Echo,
    think: ThinkSplitter<Stamp>,
    tally: Tally,
    last_heard: Option<Duration>,
    flags: BTreeSet<Flag>,
}

/// What was counted and timed.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) first_answer: Option<Duration>,
    pub(super) first_kind: Option<TokenKind>,
    pub(super) first_reasoning: Option<Duration>,
    pub(super) last: Option<Duration>,
    pub(super) last_answer: Option<Duration>,
    pub(super) chunks: u64,
    pub(super) answer_chunks: u64,
    pub(super) reads: u64,
    pub(super) answer_reads: u64,
    pub(super) gaps: GapSketch,
    pub(super) text: Option<String>,
    head: String,
    last_read: u64,
    last_answer_read: u64,
    /// A read brought several chunks.
    coalesced: bool,
}

impl Transcript {
    /// An empty one. `may_accumulate`: see [`Echo::new`].
    pub(super) fn new(gap_bounds: Arc<[f64]>, keep_text: bool, may_accumulate: bool) -> Self {
        Self {
            content: Echo::new(may_accumulate),
            reasoning: Echo::new(may_accumulate),
            think: ThinkSplitter::new(),
            tally: Tally::new(gap_bounds, keep_text),
            last_heard: None,
            flags: BTreeSet::new(),
        }
    }

    /// Takes in the pieces of text of one event: channel, choice, text. `is_last`: the answer ends with it.
    pub(super) fn take<'t>(
        &mut self,
        stamp: Stamp,
        pieces: impl Iterator<Item = (Channel, u64, &'t str)>,
        is_last: bool,
    ) {
        let mut origin = Origin::new(stamp);
        let mut choice_before = None;
        for (channel, choice, text) in pieces {
            if choice_before.replace(choice).is_some_and(|before| before != choice) {
                origin = Origin::new(stamp);
            }
            let echo = match channel {
                Channel::Reasoning => Some(&mut self.reasoning),
                Channel::Answer(TokenKind::Content) => Some(&mut self.content),
                Channel::Answer(TokenKind::Refusal | TokenKind::ToolCall) => None,
            };
            let text = match echo.filter(|_| choice == 0).map(|echo| echo.news(text, is_last)) {
                None => text,
                Some(News::Fresh(text)) => text,
                Some(News::Nothing) => continue,
                Some(News::Repeat) => {
                    self.flags.insert(Flag::RepeatChunk);
                    continue;
                }
            };
            self.take_piece(channel, choice, text, &mut origin);
        }
    }

    /// When generated text last came, whichever it was: what deadlines count from.
    pub(super) fn last_heard(&self) -> Option<Duration> {
        self.last_heard
    }

    /// Whether any of the answer came.
    pub(super) fn has_answer(&self) -> bool {
        self.tally.answer_chunks > 0
    }

    /// Whether any reasoning came.
    pub(super) fn has_reasoning(&self) -> bool {
        self.tally.first_reasoning.is_some()
    }

    /// Nothing more will come.
    pub(super) fn finish(mut self) -> (Tally, BTreeSet<Flag>) {
        self.settle_held();
        let tally = &mut self.tally;
        if tally.answer_chunks >= BURST_CHUNKS_MIN && tally.answer_reads <= BURST_READS_MAX {
            tally.gaps.clear();
            self.flags.insert(Flag::Burst);
        } else if tally.coalesced {
            self.flags.insert(Flag::Coalesced);
        }
        if self.content.is_cumulative() || self.reasoning.is_cumulative() {
            self.flags.insert(Flag::CumulativeText);
        }
        if reads_like_error(&self.tally.head) {
            self.flags.insert(Flag::ContentLooksLikeError);
        }
        (self.tally, self.flags)
    }

    /// Text that was waiting to become a tag is text.
    pub(super) fn settle_held(&mut self) {
        let (tally, flags) = (&mut self.tally, &mut self.flags);
        self.think.flush(&mut |finding| tally.note(finding, flags));
    }

    fn take_piece(&mut self, channel: Channel, choice: u64, text: &str, origin: &mut Origin<Stamp>) {
        self.last_heard = self.last_heard.max(Some(origin.stamp.at));
        match channel {
            Channel::Answer(TokenKind::Content) if choice == 0 => {
                let (tally, flags) = (&mut self.tally, &mut self.flags);
                self.think.push(text, origin, &mut |finding| tally.note(finding, flags));
            }
            Channel::Answer(kind) => {
                self.settle_held();
                self.tally.answer(kind, text, choice, origin);
            }
            Channel::Reasoning => self.tally.reasoning(origin),
        }
    }
}

impl Tally {
    fn new(gap_bounds: Arc<[f64]>, keep_text: bool) -> Self {
        Self {
            first_answer: None,
            first_kind: None,
            first_reasoning: None,
            last: None,
            last_answer: None,
            chunks: 0,
            answer_chunks: 0,
            reads: 0,
            answer_reads: 0,
            gaps: GapSketch::new(gap_bounds),
            text: keep_text.then(String::new),
            head: String::with_capacity(HEAD_BYTES_MAX),
            last_read: 0,
            last_answer_read: 0,
            coalesced: false,
        }
    }

    fn note(&mut self, finding: Finding<'_, Stamp>, flags: &mut BTreeSet<Flag>) {
        match finding {
            Finding::Text(Part::Answer, text, origin) => self.answer(TokenKind::Content, text, 0, origin),
            Finding::Text(Part::Reasoning, _, origin) => self.reasoning(origin),
            Finding::Opened => {
                flags.insert(Flag::InlineThink);
            }
            Finding::Relabel => {
                flags.extend([Flag::InlineThink, Flag::ThinkCloseOnly]);
                self.relabel();
            }
        }
    }

    fn answer(&mut self, kind: TokenKind, text: &str, choice: u64, origin: &mut Origin<Stamp>) {
        self.chunk(origin);
        let Stamp { at, read } = origin.stamp;
        if !origin.counted_answer {
            origin.counted_answer = true;
            self.answer_chunks += 1;
            if read > self.last_answer_read {
                self.last_answer_read = read;
                self.answer_reads += 1;
            }
        }
        if self.first_answer.is_none_or(|first| at < first) {
            self.first_answer = Some(at);
            self.first_kind = Some(kind);
        }
        self.last_answer = self.last_answer.max(Some(at));
        if choice == 0 {
            push_within(&mut self.head, text, HEAD_BYTES_MAX);
            if let Some(kept) = &mut self.text {
                push_within(kept, text, TEXT_BYTES_MAX);
            }
        }
    }

    fn reasoning(&mut self, origin: &mut Origin<Stamp>) {
        self.chunk(origin);
        let at = origin.stamp.at;
        self.first_reasoning = Some(self.first_reasoning.map_or(at, |first| first.min(at)));
    }

    /// Counts a chunk of any channel, once.
    fn chunk(&mut self, origin: &mut Origin<Stamp>) {
        if std::mem::replace(&mut origin.counted, true) {
            return;
        }
        let Stamp { at, read } = origin.stamp;
        self.chunks += 1;
        if read > self.last_read {
            if let Some(gap) = self.last.and_then(|last| at.checked_sub(last)) {
                self.gaps.record(gap);
            }
            self.last_read = read;
            self.reads += 1;
        } else {
            self.coalesced = true;
        }
        self.last = self.last.max(Some(at));
    }

    /// What looked like the answer was thinking: its clock starts anew.
    fn relabel(&mut self) {
        let first = self.first_reasoning.into_iter().chain(self.first_answer.take()).min();
        self.first_reasoning = first;
        self.first_kind = None;
        self.last_answer = None;
        self.answer_chunks = 0;
        self.answer_reads = 0;
        self.last_answer_read = 0;
        self.head.clear();
        if let Some(text) = &mut self.text {
            text.clear();
        }
    }
}

fn push_within(kept: &mut String, text: &str, limit: usize) {
    kept.push_str(text_head(text, limit.saturating_sub(kept.len())));
}

/// Whether text reads like the failure of something on the way rather than like an answer. A guess, and flagged as one.
fn reads_like_error(head: &str) -> bool {
    const OPENINGS: [&str; 13] = [
        "error",
        "[error",
        "api error",
        "http error",
        "litellm.",
        "http ",
        "an error occurred",
        "request failed",
        "upstream",
        "internal server error",
        "bad gateway",
        "service unavailable",
        "too many requests",
    ];
    const SIGNS: [&str; 8] = [
        "\"error\"",
        "api request",
        "request failed",
        "status code",
        "rate limit",
        "unavailable",
        "upstream",
        "timed out",
    ];
    let head = head.trim_start().trim_start_matches(['*', '⚠', '❌', '\u{fe0f}', ' ']).to_lowercase();
    let is_document = ["{\"error\"", "[{\"error\"", "{\"detail\"", "<!doctype html", "<html"];
    if is_document.iter().any(|opening| head.starts_with(opening)) || opens_with_status(&head) {
        return true;
    }
    OPENINGS.iter().any(|opening| head.starts_with(opening))
        && (SIGNS.iter().any(|sign| head.contains(sign)) || has_error_status(&head))
}

/// Whether text begins like a status line: `503 Service Unavailable`, with or without the version before it.
fn opens_with_status(text: &str) -> bool {
    const REASONS: [&str; 9] = [
        "bad request",
        "unauthorized",
        "forbidden",
        "too many requests",
        "internal server error",
        "bad gateway",
        "service unavailable",
        "service temporarily unavailable",
        "gateway time",
    ];
    let line =
        text.strip_prefix("http/").and_then(|rest| rest.split_once(' ')).map_or(text, |(_, line)| line);
    let Some((status, reason)) = line.split_once([' ', ':']) else { return false };
    matches!(status.parse(), Ok(400..=599_u16))
        && REASONS.iter().any(|words| reason.trim_start().starts_with(words))
}

fn has_error_status(text: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric())
        .any(|word| word.len() == 3 && matches!(word.parse(), Ok(400..=599_u16)))
}
