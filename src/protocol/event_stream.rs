//! The binary event stream of AWS (`application/vnd.amazon.eventstream`): bytes, however they were cut, to messages.
//!
//! A message is a prelude (two lengths and their checksum), headers, a payload, a checksum. Knows nothing of what a
//! payload means, nor of time.

use flate2::Crc;

use super::framing::{EVENT_BYTES_MAX, Frame};

const PRELUDE_BYTES: usize = 12;
const CHECKSUM_BYTES: usize = 4;

/// Incremental decoder of one binary event stream.
#[derive(Debug, Default)]
pub(super) struct EventStreamDecoder {
    pending: Vec<u8>,
    broken: bool,
}

impl EventStreamDecoder {
    /// Decodes one read.
    pub(super) fn feed(&mut self, bytes: &[u8], sink: &mut impl FnMut(Frame<'_>)) {
        if self.broken {
            return;
        }
        self.pending.extend_from_slice(bytes);
        let pending = std::mem::take(&mut self.pending);
        let mut rest = pending.as_slice();
        loop {
            match Message::cut(rest) {
                Cut::Message(message, behind) => {
                    message.announce(sink);
                    rest = behind;
                }
                Cut::Incomplete => break,
                Cut::Broken => {
                    self.broken = true;
                    return sink(Frame::Broken);
                }
                Cut::TooLong => {
                    self.broken = true;
                    return sink(Frame::TooLong);
                }
            }
        }
        let consumed = pending.len() - rest.len();
        self.pending = pending;
        self.pending.drain(..consumed);
    }
}

/// One message.
#[derive(Debug, Default)]
struct Message<'a> {
    /// `:message-type`: event, exception or error.
    kind: &'a str,
    /// `:event-type`, `:exception-type` or `:error-code`.
    name: &'a str,
    payload: &'a [u8],
}

enum Cut<'a> {
    Message(Message<'a>, &'a [u8]),
    Incomplete,
    Broken,
    TooLong,
}

impl<'a> Message<'a> {
    fn cut(bytes: &'a [u8]) -> Cut<'a> {
        let Some((prelude, _)) = bytes.split_first_chunk::<PRELUDE_BYTES>() else { return Cut::Incomplete };
        let [lengths @ .., c0, c1, c2, c3] = prelude;
        if checksum(lengths) != u32::from_be_bytes([*c0, *c1, *c2, *c3]) {
            return Cut::Broken;
        }
        let [t0, t1, t2, t3, h0, h1, h2, h3] = *lengths;
        let total = length([t0, t1, t2, t3]);
        let headers = length([h0, h1, h2, h3]);
        if total > EVENT_BYTES_MAX {
            return Cut::TooLong;
        }
        if bytes.len() < total {
            return Cut::Incomplete;
        }
        Self::read(bytes, total, headers).unwrap_or(Cut::Broken)
    }

    fn read(bytes: &'a [u8], total: usize, headers: usize) -> Option<Cut<'a>> {
        let (message, rest) = bytes.split_at_checked(total)?;
        let (checked, sum) = message.split_last_chunk::<CHECKSUM_BYTES>()?;
        if checksum(checked) != u32::from_be_bytes(*sum) {
            return None;
        }
        let (headers, payload) = checked.get(PRELUDE_BYTES..)?.split_at_checked(headers)?;
        let mut message = Self { payload, ..Self::default() };
        message.read_headers(headers)?;
        Some(Cut::Message(message, rest))
    }

    fn read_headers(&mut self, mut headers: &'a [u8]) -> Option<()> {
        while let Some((name_len, rest)) = headers.split_first() {
            let (name, rest) = rest.split_at_checked(usize::from(*name_len))?;
            let (value_type, rest) = rest.split_first()?;
            let (value, rest) = value(*value_type, rest)?;
            let text = || std::str::from_utf8(value).unwrap_or_default();
            match name {
                b":message-type" => self.kind = text(),
                b":event-type" | b":exception-type" | b":error-code" => self.name = text(),
                _ => {}
            }
            headers = rest;
        }
        Some(())
    }

    fn announce(&self, sink: &mut impl FnMut(Frame<'_>)) {
        match self.kind {
            "exception" | "error" => sink(Frame::Exception { code: self.name, data: self.payload }),
            _ if self.payload.is_empty() => {}
            _ => sink(Frame::Payload { name: self.name, data: self.payload }),
        }
    }
}

/// Cuts a header's value, of whichever type.
fn value(value_type: u8, rest: &[u8]) -> Option<(&[u8], &[u8])> {
    const BYTES: u8 = 6;
    const STRING: u8 = 7;
    let size = match value_type {
        0 | 1 => 0,
        2 => 1,
        3 => 2,
        4 => 4,
        5 | 8 => 8,
        9 => 16,
        BYTES | STRING => {
            let (len, rest) = rest.split_first_chunk::<2>()?;
            return rest.split_at_checked(usize::from(u16::from_be_bytes(*len)));
        }
        _ => return None,
    };
    rest.split_at_checked(size)
}

fn length(bytes: [u8; 4]) -> usize {
    usize::try_from(u32::from_be_bytes(bytes)).unwrap_or(usize::MAX)
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum()
}
