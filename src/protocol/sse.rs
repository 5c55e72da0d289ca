//! Server-sent events: bytes, however they were cut, to event payloads.
//!
//! An event is handed on in the very call that delivered its last data byte, whether or not its blank line has
//! come: that is what lets the caller date it by the read that brought it. An event that lies whole in one read is
//! never copied. Knows nothing of what a payload means, nor of time. The price: an event's name that stands behind its
//! data is seen only when both come in one read. Nobody sends that.
//!
//! Tolerated, and said so ([`Frame::Lax`]): events without a blank line between them, a pending event at the end of
//! the body, stray lines that together form a JSON value.

use memchr::{memchr, memchr2};

use super::{
    framing::{EVENT_BYTES_MAX, Frame},
    json_scan::JsonScan,
};

/// Longest line that is not data: an event's name, or a stray line.
const OTHER_LINE_BYTES_MAX: usize = 64 << 10;
/// Longest event name kept.
const NAME_BYTES_MAX: usize = 64;

/// Incremental decoder of one event stream.
#[derive(Debug, Default)]
pub(super) struct SseDecoder {
    line: LineState,
    /// The unfinished line, while it is not data.
    pending: Vec<u8>,
    /// Data of the unfinished event, lines joined with LF.
    data: Vec<u8>,
    has_data: bool,
    scan: JsonScan,
    name: String,
    block: Block,
    stray: Vec<u8>,
    stray_scan: JsonScan,
    after_cr: bool,
    too_long: bool,
}

/// What the unfinished line is known to be.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum LineState {
    /// Not known yet: kept in `pending`.
    #[default]
    Open,
    /// A data line: its value goes straight into `data`.
    Data,
    /// A comment, or too long to matter: dropped.
    Skip,
}

/// What the unfinished event block has had so far.
#[derive(Debug, Default, Clone, Copy)]
struct Block {
    comment: bool,
    field: bool,
    /// A value of this block was handed on already.
    dispatched: bool,
}

impl SseDecoder {
    /// Decodes one read.
    pub(super) fn feed(&mut self, bytes: &[u8], sink: &mut impl FnMut(Frame<'_>)) {
        let mut bytes = bytes;
        if self.after_cr && !bytes.is_empty() {
            self.after_cr = false;
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some((line, next)) = self.cut_line(bytes) {
            self.end_line(line, next, sink);
            bytes = next;
        }
        self.extend_line(bytes, sink);
        if self.has_data && !self.too_long {
            self.dispatch_complete(sink);
        }
    }

    /// The end of the stream; `clean` when it was the body's proper end.
    pub(super) fn finish(&mut self, clean: bool, sink: &mut impl FnMut(Frame<'_>)) {
        if self.line == LineState::Open && !self.pending.is_empty() {
            let line = std::mem::take(&mut self.pending);
            if clean || !line.starts_with(b"data") {
                self.whole_line(&line, false, sink);
            }
        }
        if self.has_data {
            self.dispatch_complete(sink);
        }
        if clean && self.block.dispatched {
            sink(Frame::Lax);
        }
        if self.block.comment && !self.block.field {
            sink(Frame::Comments);
        }
    }

    /// Bytes held.
    #[cfg(test)]
    pub(super) fn footprint(&self) -> usize {
        self.pending.capacity() + self.data.capacity() + self.stray.capacity() + self.name.capacity()
    }

    fn cut_line<'b>(&mut self, bytes: &'b [u8]) -> Option<(&'b [u8], &'b [u8])> {
        let (line, tail) = bytes.split_at_checked(memchr2(b'\n', b'\r', bytes)?)?;
        if let Some(next) = tail.strip_prefix(b"\r\n").or_else(|| tail.strip_prefix(b"\n")) {
            return Some((line, next));
        }
        let next = tail.get(1..)?;
        self.after_cr = next.is_empty();
        Some((line, next))
    }

    fn end_line(&mut self, line: &[u8], next: &[u8], sink: &mut impl FnMut(Frame<'_>)) {
        match self.line {
            LineState::Open if self.pending.is_empty() => {
                let blank_follows = next.first().is_some_and(|byte| matches!(byte, b'\n' | b'\r'));
                self.whole_line(line, blank_follows, sink);
            }
            LineState::Open => {
                let mut whole = std::mem::take(&mut self.pending);
                whole.extend_from_slice(line);
                self.whole_line(&whole, false, sink);
                whole.clear();
                self.pending = whole;
            }
            LineState::Data => self.push_data(line, sink),
            LineState::Skip => {}
        }
        self.line = LineState::Open;
    }

    fn whole_line(&mut self, line: &[u8], blank_follows: bool, sink: &mut impl FnMut(Frame<'_>)) {
        if line.is_empty() {
            return self.end_block(sink);
        }
        match Field::parse(line) {
            Field::Comment => self.block.comment = true,
            Field::Data(value) => {
                if blank_follows && !self.has_data && !self.block.dispatched && value.len() <= EVENT_BYTES_MAX
                {
                    self.block.field = true;
                    self.stray.clear();
                    if !self.too_long {
                        sink(Frame::Payload { name: &self.name, data: value });
                    }
                } else {
                    self.begin_data(sink);
                    self.push_data(value, sink);
                }
            }
            Field::Event(value) => {
                self.block.field = true;
                self.name.clear();
                let name = value.get(..value.len().min(NAME_BYTES_MAX)).unwrap_or_default();
                self.name.push_str(std::str::from_utf8(name).unwrap_or_default());
            }
            Field::Error(value) => {
                self.block.field = true;
                sink(Frame::ErrorField(value));
            }
            Field::Ignored => self.block.field = true,
            Field::Unknown => {
                self.block.field = true;
                self.stray_line(line, sink);
            }
        }
    }

    fn end_block(&mut self, sink: &mut impl FnMut(Frame<'_>)) {
        if self.has_data {
            self.dispatch_all(sink);
        } else if self.block.comment && !self.block.field {
            sink(Frame::Comments);
        }
        self.clear_data();
        self.block = Block::default();
        self.name.clear();
    }

    /// Takes in the unfinished line at the end of a read.
    fn extend_line(&mut self, bytes: &[u8], sink: &mut impl FnMut(Frame<'_>)) {
        match self.line {
            _ if bytes.is_empty() => {}
            LineState::Skip => {}
            LineState::Data => self.push_data(bytes, sink),
            LineState::Open => {
                self.pending.extend_from_slice(bytes);
                self.settle_line(sink);
            }
        }
    }

    /// Decides what the unfinished line is as soon as its head tells.
    fn settle_line(&mut self, sink: &mut impl FnMut(Frame<'_>)) {
        if self.pending.starts_with(b":") {
            self.block.comment = true;
            self.line = LineState::Skip;
        } else if self.pending.len() > b"data:".len() && self.pending.starts_with(b"data:") {
            let line = std::mem::take(&mut self.pending);
            self.begin_data(sink);
            if let Field::Data(value) = Field::parse(&line) {
                self.push_data(value, sink);
            }
            self.pending = line;
            self.line = LineState::Data;
        } else if self.pending.len() > OTHER_LINE_BYTES_MAX {
            self.block.field = true;
            self.line = LineState::Skip;
        } else {
            return;
        }
        self.pending.clear();
    }

    /// A data line begins: what is buffered is either one event with it, or a complete event of its own.
    fn begin_data(&mut self, sink: &mut impl FnMut(Frame<'_>)) {
        self.stray.clear();
        self.block.field = true;
        if self.has_data {
            self.dispatch_complete(sink);
        }
        if self.has_data {
            if self.scan.first_byte() == Some(b':') {
                self.dispatch_all(sink);
            } else {
                self.data.push(b'\n');
            }
        }
        self.has_data = true;
    }

    fn push_data(&mut self, value: &[u8], sink: &mut impl FnMut(Frame<'_>)) {
        if self.too_long {
            return;
        }
        if self.data.len() + value.len() > EVENT_BYTES_MAX {
            self.too_long = true;
            self.data = Vec::new();
            return sink(Frame::TooLong);
        }
        // Whitespace behind a value that was handed on says nothing.
        let follows_value = self.block.dispatched && self.data.is_empty();
        let value = if follows_value { value.trim_ascii_start() } else { value };
        self.has_data |= !value.is_empty();
        self.data.extend_from_slice(value);
    }

    /// Hands on every value that is complete in the buffer, and keeps the rest.
    fn dispatch_complete(&mut self, sink: &mut impl FnMut(Frame<'_>)) {
        if self.scan.advance(&self.data).is_none() {
            return;
        }
        let mut data = std::mem::take(&mut self.data);
        let mut rest = data.as_slice();
        while let Some((value, behind)) = self.scan.advance(rest).and_then(|end| rest.split_at_checked(end)) {
            self.dispatch(value, sink);
            self.scan = JsonScan::default();
            rest = behind.trim_ascii_start();
        }
        let kept = data.len() - rest.len();
        data.drain(..kept);
        self.has_data = !data.is_empty();
        self.data = data;
        self.scan = JsonScan::default();
    }

    /// Hands on the buffer as one payload, complete or not.
    fn dispatch_all(&mut self, sink: &mut impl FnMut(Frame<'_>)) {
        let data = std::mem::take(&mut self.data);
        if !(self.block.dispatched && data.is_empty()) {
            self.dispatch(&data, sink);
        }
        self.data = data;
        self.clear_data();
    }

    fn dispatch(&mut self, value: &[u8], sink: &mut impl FnMut(Frame<'_>)) {
        if self.block.dispatched {
            sink(Frame::Lax);
        }
        self.block.dispatched = true;
        if !self.too_long {
            sink(Frame::Payload { name: &self.name, data: value });
        }
    }

    fn clear_data(&mut self) {
        self.data.clear();
        self.has_data = false;
        self.scan = JsonScan::default();
    }

    fn stray_line(&mut self, line: &[u8], sink: &mut impl FnMut(Frame<'_>)) {
        if self.stray.is_empty() {
            if !matches!(line.trim_ascii_start().first(), Some(b'{' | b'[')) {
                return;
            }
            self.stray_scan = JsonScan::default();
        }
        self.stray.extend_from_slice(line);
        self.stray.push(b'\n');
        if let Some(end) = self.stray_scan.advance(&self.stray) {
            sink(Frame::Stray(self.stray.get(..end).unwrap_or_default()));
            self.stray.clear();
        } else if self.stray.len() > OTHER_LINE_BYTES_MAX {
            self.stray.clear();
        }
    }
}

enum Field<'a> {
    Comment,
    Data(&'a [u8]),
    Event(&'a [u8]),
    Error(&'a [u8]),
    /// `id` and `retry`.
    Ignored,
    Unknown,
}

impl<'a> Field<'a> {
    fn parse(line: &'a [u8]) -> Self {
        let (name, value) = match memchr(b':', line).and_then(|colon| line.split_at_checked(colon)) {
            Some((name, rest)) => (name, rest.get(1..).unwrap_or_default()),
            None => (line, [].as_slice()),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"data" => Self::Data(value),
            b"" => Self::Comment,
            b"event" => Self::Event(value),
            b"error" => Self::Error(value),
            b"id" | b"retry" => Self::Ignored,
            _ => Self::Unknown,
        }
    }
}
