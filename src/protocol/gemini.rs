//! Gemini: `POST {base}/models/{model}:streamGenerateContent?alt=sse`, answered as server-sent events.
//!
//! Knows nothing of framing and nothing of time.

use serde::de::MapAccess;
use serde_json::{Map, Value, json};

use super::{
    Ask,
    fold::{self, Each, Members, Object},
    gist::{self, Channel, Counts, Gist},
    openai_chunk::{copy, set},
    url_path,
};
use crate::measurement::TokenKind;

/// The path of a model; a `models/` in front of its name is taken for the path's own.
pub(super) fn path(model: &str) -> String {
    let model = model.strip_prefix("models/").unwrap_or(model);
    format!("/models/{}:streamGenerateContent?alt=sse", url_path(model, "/:"))
}

/// The request's body before `extra_body`.
pub(super) fn body(ask: &Ask<'_>) -> Map<String, Value> {
    let mut config = json!({ "maxOutputTokens": ask.max_tokens });
    if let (Some(temperature), Some(config)) = (ask.temperature, config.as_object_mut()) {
        config.insert("temperature".into(), temperature.into());
    }
    let mut body = Map::new();
    body.insert("contents".into(), json!([{ "role": "user", "parts": [{ "text": ask.prompt }] }]));
    body.insert("generationConfig".into(), config);
    body
}

/// Reads one event.
pub(super) fn read(payload: &[u8], gist: &mut Gist) -> Result<(), serde_json::Error> {
    fold::fold(payload, &mut Event(gist))
}

struct Event<'a>(&'a mut Gist);

impl Members for Event<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "candidates" => map.next_value_seed(Each(&mut Candidate::new(self.0))),
            "usageMetadata" => {
                map.next_value_seed(Object(&mut Usage { counts: &mut self.0.usage, candidates: None }))
            }
            "promptFeedback" => map.next_value_seed(Object(&mut PromptFeedback(self.0))),
            "modelVersion" => copy(&mut self.0.model, map),
            "error" => {
                self.0.complaint |= fold::truth(map)?;
                Ok(())
            }
            _ => fold::skip(map),
        }
    }
}

struct Candidate<'a> {
    gist: &'a mut Gist,
    index: u64,
    first_piece: usize,
}

impl<'a> Candidate<'a> {
    fn new(gist: &'a mut Gist) -> Self {
        let first_piece = gist.piece_count();
        Self { gist, index: 0, first_piece }
    }
}

impl Members for Candidate<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "index" => self.index = fold::number(map)?.unwrap_or(0),
            "content" => map.next_value_seed(Object(&mut Content(self.gist)))?,
            "finishReason" => {
                if let Some(reason) = fold::word(map)? {
                    self.gist.finish_with(&reason);
                }
            }
            _ => fold::skip(map)?,
        }
        Ok(())
    }

    fn end(&mut self) {
        self.gist.assign_choice(self.first_piece, self.index);
        self.first_piece = self.gist.piece_count();
        self.index = 0;
    }
}

struct Content<'a>(&'a mut Gist);

impl Members for Content<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "parts" => {
                let first_piece = self.0.piece_count();
                map.next_value_seed(Each(&mut Part { gist: self.0, first_piece, is_thought: false }))
            }
            _ => fold::skip(map),
        }
    }
}

/// A part; that it is a thought may be said behind its text.
struct Part<'a> {
    gist: &'a mut Gist,
    first_piece: usize,
    is_thought: bool,
}

impl Members for Part<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "text" => gist::text(map, self.gist, Channel::Answer(TokenKind::Content)),
            "thought" => {
                self.is_thought = fold::truth(map)?;
                Ok(())
            }
            "functionCall" => map.next_value_seed(Object(&mut FunctionCall(self.gist))),
            _ => fold::skip(map),
        }
    }

    fn end(&mut self) {
        if self.is_thought {
            self.gist.assign_channel(self.first_piece, Channel::Reasoning);
        }
        self.is_thought = false;
        self.first_piece = self.gist.piece_count();
    }
}

struct FunctionCall<'a>(&'a mut Gist);

impl Members for FunctionCall<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "name" => gist::text(map, self.0, Channel::Answer(TokenKind::ToolCall)),
            _ => fold::skip(map),
        }
    }
}

/// Output is candidates and thoughts.
struct Usage<'a> {
    counts: &'a mut Counts,
    candidates: Option<u64>,
}

impl Members for Usage<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "promptTokenCount" => set(&mut self.counts.prompt, map),
            "cachedContentTokenCount" => set(&mut self.counts.cached_prompt, map),
            "candidatesTokenCount" => set(&mut self.candidates, map),
            "thoughtsTokenCount" => set(&mut self.counts.reasoning, map),
            _ => fold::skip(map),
        }
    }

    fn end(&mut self) {
        self.counts.output = match (self.candidates, self.counts.reasoning) {
            (None, None) => None,
            (candidates, thoughts) => Some(candidates.unwrap_or(0).saturating_add(thoughts.unwrap_or(0))),
        };
    }
}

struct PromptFeedback<'a>(&'a mut Gist);

impl Members for PromptFeedback<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "blockReason" => {
                self.0.complaint |= fold::truth(map)?;
                Ok(())
            }
            _ => fold::skip(map),
        }
    }
}
