//! What the events of one answer add up to while they come in: text, counts, the end, the complaint.
//!
//! Knows what events mean (through the wire format's reader), not how they were framed and not what the whole is worth
//! in the end: that is `verdict`'s.

use std::{collections::BTreeSet, time::Duration};

use super::{
    Protocol, ReplyHead,
    complaint::Complaint,
    excuse::one_line,
    familiar::Familiar,
    fold,
    framing::Frame,
    gist::Gist,
    json_scan::split_values,
    ledger::Ledger,
    transcript::{Stamp, Transcript},
};
use crate::measurement::Flag;

/// The story so far.
#[derive(Debug)]
pub(super) struct Story {
    protocol: Protocol,
    gist: Gist,
    familiar: Familiar,
    pub(super) transcript: Transcript,
    pub(super) ledger: Ledger,
    pub(super) flags: BTreeSet<Flag>,
    /// Payloads seen, junk not counted.
    pub(super) events: u64,
    pub(super) last_event: Option<Duration>,
    /// Why the server says it stopped.
    pub(super) finish: Option<String>,
    /// When the answer was complete.
    pub(super) terminal_at: Option<Duration>,
    pub(super) done_at: Option<Duration>,
    /// What the server says went wrong.
    pub(super) complaint: Option<Complaint>,
    /// When the answer failed for good.
    pub(super) failed_at: Option<Duration>,
    /// Bytes that cannot be read.
    pub(super) unreadable: Option<Unreadable>,
    /// An event held the whole answer.
    pub(super) whole_reply: bool,
    /// Reasoning took place that is not shown.
    pub(super) veiled_reasoning: bool,
    /// A filter cut the answer.
    pub(super) filtered: bool,
    pub(super) model: Option<String>,
    pub(super) fingerprint: Option<String>,
}

/// Why bytes cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// Data that is not JSON.
    BadJson,
    /// An event, a line or a body past its limit.
    TooLong,
    /// Compressed data that cannot be inflated.
    Encoding,
    /// Binary framing that is broken.
    BadFrame,
}

impl Story {
    pub(super) fn new(head: &ReplyHead<'_>) -> Self {
        Self {
            protocol: head.protocol,
            gist: Gist::default(),
            familiar: Familiar::default(),
            transcript: Transcript::new(
                head.gap_bounds.clone(),
                head.keep_text,
                head.protocol.may_accumulate(),
            ),
            ledger: Ledger::default(),
            flags: BTreeSet::new(),
            events: 0,
            last_event: None,
            finish: None,
            terminal_at: None,
            done_at: None,
            complaint: None,
            failed_at: None,
            unreadable: None,
            whole_reply: false,
            veiled_reasoning: false,
            filtered: false,
            model: None,
            fingerprint: None,
        }
    }

    /// The wire format asked for.
    pub(super) fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Takes in what the framing found.
    pub(super) fn frame(&mut self, stamp: Stamp, frame: &Frame<'_>) {
        match *frame {
            Frame::Payload { name, data } => self.payload(stamp, name, data.trim_ascii()),
            Frame::Exception { code, data } => {
                self.event(stamp);
                self.complain(stamp, data);
                if let Some(complaint) = &mut self.complaint {
                    complaint.add_code(code);
                }
            }
            Frame::Broken => self.give_up(stamp, Unreadable::BadFrame),
            Frame::ErrorField(data) => {
                self.event(stamp);
                self.complain(stamp, data);
            }
            Frame::Stray(data) => self.stray(stamp, data),
            Frame::Comments => {
                self.flags.insert(Flag::KeepaliveComments);
            }
            Frame::Lax => {
                self.flags.insert(Flag::LaxFraming);
            }
            Frame::TooLong => self.give_up(stamp, Unreadable::TooLong),
        }
    }

    /// Nothing that follows can be read.
    pub(super) fn give_up(&mut self, stamp: Stamp, why: Unreadable) {
        if self.failed_at.is_none() {
            self.unreadable = Some(why);
            self.failed_at = Some(stamp.at);
        }
    }

    fn payload(&mut self, stamp: Stamp, name: &str, data: &[u8]) {
        if data.is_empty() || data.starts_with(b":") {
            self.flags.insert(Flag::JunkData);
            return;
        }
        self.event(stamp);
        if data.starts_with(b"[DONE]") {
            return self.done(stamp);
        }
        if self.failed_at.is_some() {
            return;
        }
        if name == "error" {
            return self.complain(stamp, data);
        }
        if let Some(piece) = self.familiar.recognize(data) {
            self.transcript.take(stamp, [piece].into_iter(), false);
            self.ledger.hear();
            return;
        }
        self.gist.clear();
        if self.protocol.read(data, &mut self.gist).is_ok() {
            self.familiar.keep(data, &self.gist, |event, gist| self.protocol.read(event, gist));
            self.apply(stamp, data);
        } else {
            self.read_harder(stamp, data);
        }
    }

    fn event(&mut self, stamp: Stamp) {
        self.events += 1;
        self.last_event = Some(stamp.at);
    }

    fn done(&mut self, stamp: Stamp) {
        if self.done_at.is_some() {
            self.flags.insert(Flag::DuplicateDone);
        }
        self.done_at = Some(stamp.at);
        self.terminal_at.get_or_insert(stamp.at);
    }

    /// Reads a payload that is not quite JSON, or several values in one.
    fn read_harder(&mut self, stamp: Stamp, data: &[u8]) {
        let mended = fold::mend(data);
        let data = mended.as_deref().unwrap_or(data);
        let (values, rest) = split_values(data);
        if values.is_empty() || !rest.trim_ascii().is_empty() {
            return self.give_up(stamp, Unreadable::BadJson);
        }
        if values.len() > 1 {
            self.flags.insert(Flag::LaxFraming);
        }
        for value in values {
            self.gist.clear();
            if self.protocol.read(value, &mut self.gist).is_err() {
                return self.give_up(stamp, Unreadable::BadJson);
            }
            self.apply(stamp, value);
        }
    }

    /// Takes in an event that was read whole.
    fn apply(&mut self, stamp: Stamp, data: &[u8]) {
        // The text of a reply that comes whole, and first, has no times.
        let is_whole = self.gist.whole_reply && self.gist.terminal && self.transcript.last_heard().is_none();
        if self.gist.piece_count() > 0 && !is_whole {
            self.transcript.take(stamp, self.gist.pieces(), self.gist.terminal);
        }
        if self.gist.terminal {
            self.terminal_at.get_or_insert(stamp.at);
        }
        if !self.gist.finish.is_empty() {
            self.note_finish();
        }
        self.ledger.take(&self.gist, self.terminal_at.is_some());
        self.whole_reply |= self.gist.whole_reply;
        self.veiled_reasoning |= self.gist.veiled_reasoning;
        self.filtered |= self.gist.filtered;
        if self.gist.cold_start {
            self.flags.insert(Flag::ColdStart);
        }
        note_once(&mut self.model, &self.gist.model);
        note_once(&mut self.fingerprint, &self.gist.fingerprint);
        if self.gist.complaint {
            self.complain(stamp, data);
        }
    }

    /// Takes in the facts of an answer that came whole; its text has no times.
    pub(super) fn adopt(&mut self, gist: &Gist) {
        self.ledger.take(gist, true);
        note_once(&mut self.finish, &gist.finish);
        note_once(&mut self.model, &gist.model);
        note_once(&mut self.fingerprint, &gist.fingerprint);
    }

    /// The first reason stands, unless a later one is a failure.
    fn note_finish(&mut self) {
        let is_first = self.finish.is_none();
        if is_first || failure_of_finish(&self.gist.finish).is_some() {
            self.finish = Some(one_line(&self.gist.finish, 64));
        }
    }

    fn complain(&mut self, stamp: Stamp, data: &[u8]) {
        if self.failed_at.is_some() {
            return;
        }
        self.failed_at = Some(stamp.at);
        let complaint = Complaint::read(data).unwrap_or_else(|| {
            Complaint::gather(&serde_json::Value::String(String::from_utf8_lossy(data).into_owned()))
        });
        self.complaint = Some(complaint);
    }

    /// A stray JSON value matters only when it is an error.
    fn stray(&mut self, stamp: Stamp, data: &[u8]) {
        let value = serde_json::from_slice(data);
        if value.is_ok_and(|value| super::complaint::is_complaint(&value)) {
            self.flags.insert(Flag::LaxFraming);
            self.event(stamp);
            self.complain(stamp, data);
        }
    }
}

/// The failure a finish word stands for: its class's name in `verdict`'s terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FinishFailure {
    Upstream,
    Overloaded,
    Filtered,
}

/// The failure a finish word stands for; unknown words are normal ends.
pub(super) fn failure_of_finish(word: &str) -> Option<FinishFailure> {
    match word.to_ascii_lowercase().as_str() {
        "error" | "network_error" | "model_error" | "upstream_error" | "aborted" => {
            Some(FinishFailure::Upstream)
        }
        "insufficient_system_resource" => Some(FinishFailure::Overloaded),
        "content_filter"
        | "content_filtered"
        | "sensitive"
        | "safety"
        | "prohibited_content"
        | "blocklist"
        | "spii"
        | "guardrail_intervened" => Some(FinishFailure::Filtered),
        _ => None,
    }
}

fn note_once(known: &mut Option<String>, said: &str) {
    if known.is_none() && !said.is_empty() {
        *known = Some(one_line(said, 128)).filter(|said| !said.is_empty());
    }
}
