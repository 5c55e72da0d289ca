//! Ollama's own chat: `POST {base}/chat`, answered as one JSON value per line.
//!
//! Knows nothing of framing and nothing of time.

use serde::de::MapAccess;
use serde_json::{Map, Value, json};

use super::{
    Ask,
    fold::{self, Each, Members, Object},
    gist::{self, Channel, Counts, Gist},
    openai_chunk::{copy, set},
};
use crate::measurement::TokenKind;

/// Loading that takes longer is no bookkeeping: the model was not there. Nanoseconds.
const COLD_LOAD_NANOS: u64 = 100_000_000;

/// The request's body before `extra_body`.
pub(super) fn body(ask: &Ask<'_>) -> Map<String, Value> {
    let mut options = json!({ "num_predict": ask.max_tokens });
    if let (Some(temperature), Some(options)) = (ask.temperature, options.as_object_mut()) {
        options.insert("temperature".into(), temperature.into());
    }
    let mut body = Map::new();
    body.insert("model".into(), ask.model.into());
    body.insert("messages".into(), json!([{ "role": "user", "content": ask.prompt }]));
    body.insert("options".into(), options);
    body.insert("stream".into(), true.into());
    body
}

/// Reads one line.
pub(super) fn read(payload: &[u8], gist: &mut Gist) -> Result<(), serde_json::Error> {
    fold::fold(payload, &mut Line { gist, counts: Counts::default() })
}

struct Line<'a> {
    gist: &'a mut Gist,
    counts: Counts,
}

impl Members for Line<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "message" => map.next_value_seed(Object(&mut Message(self.gist)))?,
            "response" => gist::text(map, self.gist, Channel::Answer(TokenKind::Content))?,
            "model" => copy(&mut self.gist.model, map)?,
            "done" => self.gist.terminal |= fold::truth(map)?,
            "done_reason" => {
                if let Some(reason) = fold::word(map)? {
                    self.gist.finish_with(&reason);
                }
            }
            "eval_count" => set(&mut self.counts.output, map)?,
            "prompt_eval_count" => set(&mut self.counts.prompt, map)?,
            "load_duration" => {
                self.gist.cold_start |= fold::number(map)?.is_some_and(|nanos| nanos >= COLD_LOAD_NANOS);
            }
            "error" => self.gist.complaint |= fold::truth(map)?,
            _ => fold::skip(map)?,
        }
        Ok(())
    }

    fn end(&mut self) {
        // The last line of a stream is empty: one that holds all of several tokens and the end was not streamed.
        let is_several = self.counts.output.is_some_and(|output| output > 1);
        self.gist.whole_reply = self.gist.terminal && self.gist.piece_count() > 0 && is_several;
        if self.counts != Counts::default() {
            self.gist.vendor = Some(("vendor:eval_count", self.counts));
        }
    }
}

struct Message<'a>(&'a mut Gist);

impl Members for Message<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "content" => gist::text(map, self.0, Channel::Answer(TokenKind::Content)),
            "thinking" => gist::text(map, self.0, Channel::Reasoning),
            "tool_calls" => map.next_value_seed(Each(&mut ToolCall(self.0))),
            _ => fold::skip(map),
        }
    }
}

/// A tool call comes whole; its arguments are an object, not text.
struct ToolCall<'a>(&'a mut Gist);

impl Members for ToolCall<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "function" => map.next_value_seed(Object(&mut Function(self.0))),
            _ => fold::skip(map),
        }
    }
}

struct Function<'a>(&'a mut Gist);

impl Members for Function<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "name" => gist::text(map, self.0, Channel::Answer(TokenKind::ToolCall)),
            _ => fold::skip(map),
        }
    }
}
