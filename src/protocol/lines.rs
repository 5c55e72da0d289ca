//! One JSON value per line: bytes, however they were cut, to payloads.
//!
//! A value is handed on in the very call that delivered its last byte, whether or not its line end has come. Knows
//! nothing of what a payload means, nor of time.

use memchr::memchr;

use super::{
    framing::{EVENT_BYTES_MAX, Frame},
    json_scan::JsonScan,
};

/// Incremental decoder of one stream of lines.
#[derive(Debug, Default)]
pub(super) struct LineDecoder {
    pending: Vec<u8>,
    scan: JsonScan,
    too_long: bool,
}

impl LineDecoder {
    /// Decodes one read.
    pub(super) fn feed(&mut self, bytes: &[u8], sink: &mut impl FnMut(Frame<'_>)) {
        let mut bytes = bytes;
        while let Some((line, rest)) = memchr(b'\n', bytes).and_then(|end| bytes.split_at_checked(end)) {
            if self.pending.is_empty() && line.len() <= EVENT_BYTES_MAX {
                dispatch(line, sink);
            } else {
                self.extend(line, sink);
                dispatch(&self.pending, sink);
            }
            self.clear();
            bytes = rest.get(1..).unwrap_or_default();
        }
        self.extend(bytes, sink);
        if self.scan.advance(&self.pending).is_some_and(|end| end == self.pending.len()) {
            dispatch(&self.pending, sink);
            self.clear();
        }
    }

    /// The end of the stream; half a line is dropped.
    pub(super) fn finish(&mut self, clean: bool, sink: &mut impl FnMut(Frame<'_>)) {
        if clean && self.scan.advance(&self.pending).is_some() {
            dispatch(&self.pending, sink);
        }
        self.clear();
    }

    fn extend(&mut self, bytes: &[u8], sink: &mut impl FnMut(Frame<'_>)) {
        if self.too_long {
            return;
        }
        if self.pending.len() + bytes.len() > EVENT_BYTES_MAX {
            self.too_long = true;
            self.pending = Vec::new();
            return sink(Frame::TooLong);
        }
        self.pending.extend_from_slice(bytes);
    }

    fn clear(&mut self) {
        self.pending.clear();
        self.scan = JsonScan::default();
    }
}

fn dispatch(line: &[u8], sink: &mut impl FnMut(Frame<'_>)) {
    let data = line.trim_ascii();
    if !data.is_empty() {
        sink(Frame::Payload { name: "", data });
    }
}
