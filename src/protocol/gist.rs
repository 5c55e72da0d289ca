//! What one event says, whatever the wire format: the pieces of text in it and the facts beside them.
//!
//! One gist serves a whole stream, cleared between events, so that reading an event allocates nothing. Knows nothing
//! of time, and does not judge: an event that cannot be read to its end leaves no trace.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::fold::{self, Members, Object, drain_list, skip_scalars};
use crate::measurement::TokenKind;

/// What a piece of text is part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Channel {
    /// The answer, or part of one.
    Answer(TokenKind),
    /// Thinking aloud.
    Reasoning,
}

/// What one event says.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts of one event, not a state")]
pub(super) struct Gist {
    text: String,
    pieces: Vec<Piece>,
    /// Why the server stopped; empty when the event does not say.
    pub(super) finish: String,
    /// The event ends the answer, whether or not it says why.
    pub(super) terminal: bool,
    /// The `[DONE]` of the OpenAI family.
    pub(super) done: bool,
    /// The event says that something failed: it has to be read again, as a complaint.
    pub(super) complaint: bool,
    /// The whole answer is in this event: nothing was streamed.
    pub(super) whole_reply: bool,
    /// Token counts of the usual place.
    pub(super) usage: Counts,
    /// Token counts of a provider's own place.
    pub(super) vendor: Option<(&'static str, Counts)>,
    /// The counts belong to the beginning of the answer and say nothing of its length.
    pub(super) provisional: bool,
    /// A model had to be loaded first.
    pub(super) cold_start: bool,
    /// The answer was cut by a filter.
    pub(super) filtered: bool,
    /// Reasoning took place that is not shown.
    pub(super) veiled_reasoning: bool,
    /// Model that answers; empty when the event does not say.
    pub(super) model: String,
    /// `system_fingerprint`; empty when the event does not say.
    pub(super) fingerprint: String,
}

/// Token counts as one event gives them.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) prompt: Option<u64>,
    pub(super) cached_prompt: Option<u64>,
    /// Reasoning included.
    pub(super) output: Option<u64>,
    pub(super) reasoning: Option<u64>,
}

/// One piece of text: a range of [`Gist::text`].
#[derive(Debug, Clone, Copy)]
struct Piece {
    channel: Channel,
    choice: u64,
    end: usize,
}

impl Gist {
    /// Forgets the last event.
    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.pieces.clear();
        self.finish.clear();
        self.model.clear();
        self.fingerprint.clear();
        self.terminal = false;
        self.done = false;
        self.complaint = false;
        self.whole_reply = false;
        self.usage = Counts::default();
        self.vendor = None;
        self.provisional = false;
        self.cold_start = false;
        self.veiled_reasoning = false;
        self.filtered = false;
    }

    /// Adds a piece of text; an empty one is none.
    pub(super) fn say(&mut self, channel: Channel, choice: u64, text: &str) {
        if !text.is_empty() {
            self.text.push_str(text);
            self.pieces.push(Piece { channel, choice, end: self.text.len() });
        }
    }

    /// Notes why the answer ended. Empty and `"null"` are no reasons.
    pub(super) fn finish_with(&mut self, reason: &str) {
        if !reason.is_empty() && reason != "null" {
            self.finish.clear();
            self.finish.push_str(reason);
            self.terminal = true;
        }
    }

    /// `(channel, choice, text)` of every piece, in order.
    pub(super) fn pieces(&self) -> impl Iterator<Item = (Channel, u64, &str)> {
        let mut from = 0;
        self.pieces.iter().map(move |piece| {
            let text = self.text.get(from..piece.end).unwrap_or_default();
            from = piece.end;
            (piece.channel, piece.choice, text)
        })
    }

    /// The event's text, if it says one text and nothing else but who answers.
    pub(super) fn only_text(&self) -> Option<(Channel, u64, &str)> {
        let Self {
            text,
            pieces,
            finish,
            terminal,
            done,
            complaint,
            whole_reply,
            usage,
            vendor,
            provisional,
            cold_start,
            filtered,
            veiled_reasoning,
            model: _,
            fingerprint: _,
        } = self;
        let facts =
            [terminal, done, complaint, whole_reply, provisional, cold_start, filtered, veiled_reasoning];
        let says_more = facts.into_iter().any(|fact| *fact)
            || !finish.is_empty()
            || *usage != Counts::default()
            || vendor.is_some();
        let [piece] = pieces.as_slice() else { return None };
        (!says_more).then_some((piece.channel, piece.choice, text.as_str()))
    }

    /// Who answers: model and fingerprint.
    pub(super) fn names(&self) -> (&str, &str) {
        (&self.model, &self.fingerprint)
    }

    /// How many pieces there are.
    pub(super) fn piece_count(&self) -> usize {
        self.pieces.len()
    }

    /// Gives the pieces from number `from` on to a channel: what they are part of may be said behind them.
    pub(super) fn assign_channel(&mut self, from: usize, channel: Channel) {
        for piece in self.pieces.iter_mut().skip(from) {
            piece.channel = channel;
        }
    }

    /// Takes back every piece: the event turned out to carry no text.
    pub(super) fn retract_text(&mut self) {
        self.pieces.clear();
        self.text.clear();
    }

    /// Gives the pieces from number `from` on to a choice: its index may come behind its text.
    pub(super) fn assign_choice(&mut self, from: usize, choice: u64) {
        for piece in self.pieces.iter_mut().skip(from) {
            piece.choice = choice;
        }
    }
}

/// Reads text that comes as a string, or as a list of parts (`text`, `thinking`), into a gist.
pub(super) struct Text<'a> {
    pub(super) gist: &'a mut Gist,
    pub(super) channel: Channel,
}

/// Reads a member as text.
pub(super) fn text<'de, A: MapAccess<'de>>(
    map: &mut A,
    gist: &mut Gist,
    channel: Channel,
) -> Result<(), A::Error> {
    map.next_value_seed(Text { gist, channel })
}

impl<'de> DeserializeSeed<'de> for Text<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Text<'_> {
    type Value = ();

    skip_scalars!(());

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.gist.say(self.channel, 0, text);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        // Parts nest (a thinking part holds text parts); three levels are more than anyone sends.
        let mut part = Part::new(self.gist, self.channel, 0);
        while list.next_element_seed(PartSeed(&mut part))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        Object(&mut Part::new(self.gist, self.channel, 0)).visit_map(map)
    }
}

struct Part<'a> {
    gist: &'a mut Gist,
    channel: Channel,
    depth: u8,
    first_piece: usize,
    /// Its type says so, which may come behind its text.
    is_reasoning: bool,
}

impl<'a> Part<'a> {
    fn new(gist: &'a mut Gist, channel: Channel, depth: u8) -> Self {
        let first_piece = gist.piece_count();
        Self { gist, channel, depth, first_piece, is_reasoning: false }
    }
}

struct PartSeed<'a, 'b>(&'a mut Part<'b>);

impl<'de> DeserializeSeed<'de> for PartSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for PartSeed<'_, '_> {
    type Value = ();

    skip_scalars!(());

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.0.gist.say(self.0.channel, 0, text);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        if self.0.depth >= 2 {
            return drain_list(list).map(|_| ());
        }
        let mut part = Part::new(&mut *self.0.gist, self.0.channel, self.0.depth + 1);
        while list.next_element_seed(PartSeed(&mut part))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        Object(self.0).visit_map(map)
    }
}

impl Members for Part<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        let channel = match name {
            "text" => self.channel,
            "thinking" | "reasoning" | "summary" => Channel::Reasoning,
            "refusal" => Channel::Answer(TokenKind::Refusal),
            "type" => {
                let kind = fold::word(map)?;
                self.is_reasoning |= matches!(kind.as_deref(), Some("reasoning" | "thinking"));
                return Ok(());
            }
            _ => return fold::skip(map),
        };
        map.next_value_seed(PartSeed(&mut Part::new(&mut *self.gist, channel, self.depth)))
    }

    fn end(&mut self) {
        if self.is_reasoning {
            self.gist.assign_channel(self.first_piece, Channel::Reasoning);
        }
        self.is_reasoning = false;
        self.first_piece = self.gist.piece_count();
    }
}
