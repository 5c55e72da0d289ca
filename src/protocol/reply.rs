//! One answer, from its first body byte to the measurement, whatever its format.
//!
//! Time is an argument: the stamp of the read that delivered the bytes. Knows nothing of sockets.

use std::time::Duration;

use super::{
    Deadline, Ending, Protocol, ReplyHead, Timeouts,
    event_stream::EventStreamDecoder,
    framing::Framing,
    head::HeadFacts,
    inflate::{InflateError, Inflater},
    lines::LineDecoder,
    story::{Story, Unreadable},
    transcript::Stamp,
    verdict::{self, Closing},
};
use crate::measurement::Measurement;

/// Longest wait for usage and `[DONE]` once the answer is complete.
const GRACE: Duration = Duration::from_secs(2);
/// Longest wait once nothing more is expected: after `[DONE]`, after an error.
const LAST_GRACE: Duration = Duration::from_millis(250);
/// Most bytes kept of an answer that is not a stream.
const WHOLE_BYTES_MAX: usize = 4 << 20;
/// Most bytes kept of a body that only explains a failure; the rest is dropped.
const EXCUSE_BYTES_MAX: usize = 64 << 10;
/// Head of a stream kept for the case that it is none.
const HEAD_BYTES_MAX: usize = 2 << 10;

/// One answer being read.
#[derive(Debug)]
pub struct Reply {
    head: HeadFacts,
    headers_at: Duration,
    inflater: Inflater,
    body: Body,
    story: Story,
    reads: u64,
    /// Of the body, as they came.
    bytes: u64,
    first_event: Option<Duration>,
    last_read: Option<Duration>,
}

/// The body, as its first byte shows it.
#[derive(Debug)]
pub(super) enum Body {
    /// Nothing but a byte order mark or white space so far.
    Undecided { bom: usize },
    /// A stream of events, and the head of it.
    Stream { framing: Framing, head: Vec<u8> },
    /// Something to be read as a whole: JSON, a page, the explanation of a failure.
    Whole { shape: Shape, bytes: Vec<u8> },
}

/// What a body that is read as a whole is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Json,
    Html,
    /// Whatever came with a status that is not a success.
    Excuse,
}

impl Reply {
    /// An answer whose headers arrived at `at` (since t0).
    #[must_use]
    pub fn new(head: &ReplyHead<'_>, at: Duration) -> Self {
        let facts = HeadFacts::read(head);
        let body = if facts.is_success() {
            Body::Undecided { bom: 0 }
        } else {
            Body::Whole { shape: Shape::Excuse, bytes: Vec::new() }
        };
        Self {
            inflater: Inflater::new(facts.encoding),
            head: facts,
            headers_at: at,
            body,
            story: Story::new(head),
            reads: 0,
            bytes: 0,
            first_event: None,
            last_read: None,
        }
    }

    /// Takes in one network read that returned at `at` (since t0, stamped before anything else was done with it).
    pub fn read(&mut self, at: Duration, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        // One read of the socket may come as several pieces: they share its stamp.
        if self.last_read != Some(at) {
            self.reads += 1;
        }
        self.first_event.get_or_insert(at);
        self.last_read = Some(at);
        self.bytes += bytes.len() as u64;
        if self.is_finished() {
            return;
        }
        let stamp = Stamp { at, read: self.reads };
        let (body, story) = (&mut self.body, &mut self.story);
        let read = self.inflater.feed(bytes, &mut |bytes| body.take(stamp, bytes, story));
        match read {
            Ok(()) => {}
            Err(InflateError::TooLarge) => story.give_up(stamp, Unreadable::TooLong),
            Err(InflateError::Corrupt | InflateError::UnknownEncoding) => {
                story.give_up(stamp, Unreadable::Encoding);
            }
        }
    }

    /// The deadline that passes next, since t0.
    #[must_use]
    pub fn due(&self, timeouts: &Timeouts) -> (Duration, Deadline) {
        let grace = self.grace_ends();
        let (at, deadline) = match (grace, &self.body) {
            (Some(at), _) => (at, Deadline::Grace),
            (None, Body::Whole { .. }) => {
                (self.last_read.unwrap_or(self.headers_at) + timeouts.stall, Deadline::Stall)
            }
            (None, Body::Stream { .. } | Body::Undecided { .. }) => {
                match self.story.transcript.last_heard() {
                    Some(heard) => (heard + timeouts.stall, Deadline::Stall),
                    None => (timeouts.first_token, Deadline::FirstToken),
                }
            }
        };
        if at <= timeouts.total {
            (at, deadline)
        } else if grace.is_some() {
            (timeouts.total, Deadline::Grace)
        } else {
            (timeouts.total, Deadline::Total)
        }
    }

    /// Whether nothing more can change the outcome: the caller may stop reading.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        match self.story.unreadable {
            Some(Unreadable::TooLong | Unreadable::Encoding | Unreadable::BadFrame) => true,
            Some(Unreadable::BadJson) | None => false,
        }
    }

    /// The measurement, after the body ended as `ending` says at `at` (since t0).
    ///
    /// What happened before the headers (name resolution, connecting, sending) is left for the caller to fill in.
    #[must_use]
    pub fn end(mut self, at: Duration, ending: Ending) -> Measurement {
        let stamp = Stamp { at: self.last_read.unwrap_or(at), read: self.reads };
        if let Body::Stream { framing, .. } = &mut self.body {
            let story = &mut self.story;
            framing.finish(ending == Ending::Clean, &mut |frame| story.frame(stamp, &frame));
        }
        self.story.transcript.settle_held();
        verdict::close(Closing {
            head: self.head,
            body: self.body,
            story: self.story,
            ending,
            headers_at: self.headers_at,
            first_event: self.first_event,
            last_read: self.last_read,
            bytes: self.bytes,
            at,
        })
    }

    /// When to stop waiting for what may follow a complete or failed answer.
    fn grace_ends(&self) -> Option<Duration> {
        let last = self.story.failed_at.into_iter().chain(self.story.done_at).min();
        let terminal =
            self.story.terminal_at.map(|at| at.max(self.story.transcript.last_heard().unwrap_or(at)));
        last.map(|at| at + LAST_GRACE).or(terminal.map(|at| at + GRACE))
    }
}

impl Body {
    fn take(&mut self, stamp: Stamp, bytes: &[u8], story: &mut Story) {
        let mut bytes = bytes;
        if let Self::Undecided { bom } = self {
            match sniff(story.protocol(), bom, bytes) {
                None => return,
                Some((body, rest)) => {
                    *self = body;
                    bytes = rest;
                }
            }
        }
        match self {
            Self::Undecided { .. } => {}
            Self::Stream { framing, head } => {
                keep(head, bytes, HEAD_BYTES_MAX);
                framing.feed(bytes, &mut |frame| story.frame(stamp, &frame));
            }
            Self::Whole { shape: Shape::Json, bytes: kept } => {
                if keep(kept, bytes, WHOLE_BYTES_MAX) < bytes.len() {
                    story.give_up(stamp, Unreadable::TooLong);
                }
            }
            Self::Whole { shape: Shape::Html | Shape::Excuse, bytes: kept } => {
                keep(kept, bytes, EXCUSE_BYTES_MAX);
            }
        }
    }
}

/// Appends what fits; how much that was.
fn keep(kept: &mut Vec<u8>, bytes: &[u8], limit: usize) -> usize {
    let fits = bytes.get(..limit.saturating_sub(kept.len())).unwrap_or(bytes);
    kept.extend_from_slice(fits);
    fits.len()
}

/// Decides what a body is by its first byte, a byte order mark and white space apart: `content-type` lies.
fn sniff<'b>(protocol: Protocol, bom: &mut usize, bytes: &'b [u8]) -> Option<(Body, &'b [u8])> {
    const BOM: [u8; 3] = [0xef, 0xbb, 0xbf];
    let mut rest = bytes;
    while let Some((first, behind)) = rest.split_first() {
        if BOM.get(*bom) == Some(first) {
            *bom += 1;
        } else if first.is_ascii_whitespace() {
            *bom = BOM.len();
        } else {
            break;
        }
        rest = behind;
    }
    let stream = |framing| Body::Stream { framing, head: Vec::with_capacity(HEAD_BYTES_MAX) };
    let body = match rest.first()? {
        b'{' if protocol == Protocol::Ollama => stream(Framing::Lines(LineDecoder::default())),
        0 if protocol == Protocol::Bedrock => stream(Framing::Binary(EventStreamDecoder::default())),
        b'{' | b'[' => Body::Whole { shape: Shape::Json, bytes: Vec::new() },
        b'<' => Body::Whole { shape: Shape::Html, bytes: Vec::new() },
        _ => stream(Framing::Sse(Box::default())),
    };
    Some((body, rest))
}
