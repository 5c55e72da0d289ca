//! Bedrock's `ConverseStream`: `POST {base}/model/{model}/converse-stream`, answered as a binary event stream.
//!
//! Knows nothing of framing, nothing of time, and nothing of request signing.

use serde::de::MapAccess;
use serde_json::{Map, Value, json};

use super::{
    Ask,
    fold::{self, Members, Object},
    gist::{self, Channel, Counts, Gist},
    openai_chunk::set,
    url_path,
};
use crate::measurement::TokenKind;

/// The path of a model: an id or an ARN, as one segment.
pub(super) fn path(model: &str) -> String {
    format!("/model/{}/converse-stream", url_path(model, ""))
}

/// The request's body before `extra_body`.
pub(super) fn body(ask: &Ask<'_>) -> Map<String, Value> {
    let mut config = json!({ "maxTokens": ask.max_tokens });
    if let (Some(temperature), Some(config)) = (ask.temperature, config.as_object_mut()) {
        config.insert("temperature".into(), temperature.into());
    }
    let mut body = Map::new();
    body.insert("messages".into(), json!([{ "role": "user", "content": [{ "text": ask.prompt }] }]));
    body.insert("inferenceConfig".into(), config);
    body
}

/// Reads one event.
pub(super) fn read(payload: &[u8], gist: &mut Gist) -> Result<(), serde_json::Error> {
    fold::fold(payload, &mut Event(gist))
}

/// The members of all event types; no two types share one with another meaning.
struct Event<'a>(&'a mut Gist);

impl Members for Event<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "delta" | "start" => map.next_value_seed(Object(&mut Block(self.0))),
            "stopReason" => {
                if let Some(reason) = fold::word(map)? {
                    self.0.finish_with(&reason);
                }
                Ok(())
            }
            "usage" => {
                map.next_value_seed(Object(&mut Usage { counts: &mut self.0.usage, cache_written: 0 }))
            }
            // A reply that was not streamed.
            "output" => {
                self.0.whole_reply |= fold::truth(map)?;
                Ok(())
            }
            _ => fold::skip(map),
        }
    }
}

struct Block<'a>(&'a mut Gist);

impl Members for Block<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "text" => gist::text(map, self.0, Channel::Answer(TokenKind::Content)),
            "reasoningContent" => map.next_value_seed(Object(&mut Reasoning(self.0))),
            "toolUse" => map.next_value_seed(Object(&mut ToolUse(self.0))),
            _ => fold::skip(map),
        }
    }
}

struct Reasoning<'a>(&'a mut Gist);

impl Members for Reasoning<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "text" => gist::text(map, self.0, Channel::Reasoning),
            "redactedContent" => {
                self.0.veiled_reasoning |= fold::truth(map)?;
                Ok(())
            }
            _ => fold::skip(map),
        }
    }
}

struct ToolUse<'a>(&'a mut Gist);

impl Members for ToolUse<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "name" | "input" => gist::text(map, self.0, Channel::Answer(TokenKind::ToolCall)),
            _ => fold::skip(map),
        }
    }
}

/// `inputTokens` leaves out what the cache read and wrote.
struct Usage<'a> {
    counts: &'a mut Counts,
    cache_written: u64,
}

impl Members for Usage<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "inputTokens" => set(&mut self.counts.prompt, map),
            "outputTokens" => set(&mut self.counts.output, map),
            "cacheReadInputTokens" => set(&mut self.counts.cached_prompt, map),
            "cacheWriteInputTokens" => {
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
