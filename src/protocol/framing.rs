//! How events are wrapped: one decoder per wrapping, and the frames all of them find.
//!
//! Knows nothing of what a payload means, nor of time.

use super::{event_stream::EventStreamDecoder, lines::LineDecoder, sse::SseDecoder};

/// Longest event, in bytes.
pub(super) const EVENT_BYTES_MAX: usize = 1 << 20;

/// What a decoder found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame<'a> {
    /// One payload: the event's name (may be empty) and its data.
    Payload { name: &'a str, data: &'a [u8] },
    /// The payload of llama.cpp's `error:` field.
    ErrorField(&'a [u8]),
    /// An exception in place of an event: its machine code and its words.
    Exception { code: &'a str, data: &'a [u8] },
    /// Lines outside any field that together form a JSON value.
    Stray(&'a [u8]),
    /// A block of comments and nothing else.
    Comments,
    /// Framing off the standard was tolerated.
    Lax,
    /// An event or a line outgrew its limit; nothing more will be decoded.
    TooLong,
    /// Binary framing that is broken; nothing more will be decoded.
    Broken,
}

/// The wrapping of one stream.
#[derive(Debug)]
pub(super) enum Framing {
    /// Server-sent events.
    Sse(Box<SseDecoder>),
    /// One JSON value per line.
    Lines(LineDecoder),
    /// AWS's binary event stream.
    Binary(EventStreamDecoder),
}

impl Framing {
    /// Decodes one read.
    pub(super) fn feed(&mut self, bytes: &[u8], sink: &mut impl FnMut(Frame<'_>)) {
        match self {
            Self::Sse(decoder) => decoder.feed(bytes, sink),
            Self::Lines(decoder) => decoder.feed(bytes, sink),
            Self::Binary(decoder) => decoder.feed(bytes, sink),
        }
    }

    /// The end of the stream; `clean` when it was the body's proper end.
    pub(super) fn finish(&mut self, clean: bool, sink: &mut impl FnMut(Frame<'_>)) {
        match self {
            Self::Sse(decoder) => decoder.finish(clean, sink),
            Self::Lines(decoder) => decoder.finish(clean, sink),
            Self::Binary(_) => {}
        }
    }
}
