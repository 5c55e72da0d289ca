//! Anthropic's Messages: `POST {base}/messages`, answered as server-sent events.
//!
//! Knows nothing of framing and nothing of time.

use http::{HeaderName, HeaderValue};
use serde::de::MapAccess;
use serde_json::{Map, Value, json};

use super::{
    Ask,
    fold::{self, Members, Object},
    gist::{self, Channel, Counts, Gist},
    openai_chunk::{copy, set},
};
use crate::measurement::TokenKind;

/// The version of the API asked for: servers refuse a request without one.
pub(super) const VERSION: (HeaderName, HeaderValue) =
    (HeaderName::from_static("anthropic-version"), HeaderValue::from_static("2023-06-01"));

/// The request's body before `extra_body`.
pub(super) fn body(ask: &Ask<'_>) -> Map<String, Value> {
    let mut body = Map::new();
    body.insert("model".into(), ask.model.into());
    body.insert("max_tokens".into(), ask.max_tokens.into());
    body.insert("messages".into(), json!([{ "role": "user", "content": ask.prompt }]));
    if let Some(temperature) = ask.temperature {
        body.insert("temperature".into(), temperature.into());
    }
    body.insert("stream".into(), true.into());
    body
}

/// Reads one event.
pub(super) fn read(payload: &[u8], gist: &mut Gist) -> Result<(), serde_json::Error> {
    fold::fold(payload, &mut Event { gist })
}

struct Event<'a> {
    gist: &'a mut Gist,
}

impl Members for Event<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "type" => match fold::word(map)?.as_deref() {
                Some("message_stop") => self.gist.terminal = true,
                Some("error") => self.gist.complaint = true,
                Some("message") => self.gist.whole_reply = true,
                _ => {}
            },
            // `message_start`: its counts are those of the beginning.
            "message" => {
                self.gist.provisional = true;
                map.next_value_seed(Object(&mut Message(self.gist)))?;
            }
            "delta" | "content_block" => map.next_value_seed(Object(&mut Block(self.gist)))?,
            "error" => self.gist.complaint |= fold::truth(map)?,
            _ => Message(self.gist).member(name, map)?,
        }
        Ok(())
    }

    fn end(&mut self) {
        if self.gist.whole_reply {
            self.gist.terminal = true;
        }
    }
}

/// What a message says of itself, at its start or as a whole.
struct Message<'a>(&'a mut Gist);

impl Members for Message<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "model" => copy(&mut self.0.model, map),
            "usage" => map.next_value_seed(Object(&mut Usage::new(&mut self.0.usage))),
            "stop_reason" => copy(&mut self.0.finish, map),
            _ => fold::skip(map),
        }
    }
}

/// A content block's beginning, a piece of one, or the delta of the message.
struct Block<'a>(&'a mut Gist);

impl Members for Block<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "text" => gist::text(map, self.0, Channel::Answer(TokenKind::Content)),
            "thinking" => gist::text(map, self.0, Channel::Reasoning),
            "name" | "partial_json" => gist::text(map, self.0, Channel::Answer(TokenKind::ToolCall)),
            "stop_reason" => copy(&mut self.0.finish, map),
            // `redacted_thinking`: an opaque blob.
            "data" => {
                self.0.veiled_reasoning |= fold::truth(map)?;
                Ok(())
            }
            _ => fold::skip(map),
        }
    }
}

/// `input_tokens` leaves out what the cache read and wrote.
struct Usage<'a> {
    counts: &'a mut Counts,
    cache_written: u64,
}

impl<'a> Usage<'a> {
    fn new(counts: &'a mut Counts) -> Self {
        Self { counts, cache_written: 0 }
    }
}

impl Members for Usage<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "input_tokens" => set(&mut self.counts.prompt, map),
            "output_tokens" => set(&mut self.counts.output, map),
            "cache_read_input_tokens" => set(&mut self.counts.cached_prompt, map),
            "cache_creation_input_tokens" => {
                self.cache_written = fold::number(map)?.unwrap_or(0);
                Ok(())
            }
            _ => fold::skip(map),
        }
    }

    fn end(&mut self) {
        let cached = self.counts.cached_prompt.unwrap_or(0).saturating_add(self.cache_written);
        self.counts.prompt = self.counts.prompt.map(|fresh| fresh.saturating_add(cached));
    }
}
