//! The chunk of the OpenAI family (`chat.completion.chunk`, `text_completion`), as its many imitators send it.
//!
//! Knows nothing of requests and nothing of time.

use serde::de::MapAccess;

use super::{
    fold::{self, Each, Members, Object},
    gist::{self, Channel, Counts, Gist},
};
use crate::measurement::TokenKind;

/// Reads one chunk.
pub(super) fn read(payload: &[u8], gist: &mut Gist) -> Result<(), serde_json::Error> {
    fold::fold(payload, &mut Chunk { gist, has_choices: false, suspicious: false, well: false })
}

struct Chunk<'a> {
    gist: &'a mut Gist,
    has_choices: bool,
    /// A member that only errors have, unless there are choices beside it.
    suspicious: bool,
    /// A code that says so: some send one with every chunk.
    well: bool,
}

impl Members for Chunk<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "choices" => {
                self.has_choices = true;
                map.next_value_seed(Each(&mut Choice::new(self.gist)))?;
            }
            "usage" => map.next_value_seed(Object(&mut Usage(&mut self.gist.usage)))?,
            "model" => copy(&mut self.gist.model, map)?,
            "system_fingerprint" => copy(&mut self.gist.fingerprint, map)?,
            "timings" => map.next_value_seed(Object(&mut Timings(self.gist)))?,
            "x_groq" => map.next_value_seed(Object(&mut Groq(self.gist)))?,
            "error" => self.gist.complaint |= fold::truth(map)?,
            "base_resp" => map.next_value_seed(Object(&mut BaseResponse(self.gist)))?,
            "object" | "type" => {
                let word = fold::word(map)?;
                self.gist.complaint |= word.as_deref() == Some("error");
                self.gist.cold_start |= word.is_some_and(|word| word.starts_with("model_load"));
            }
            "code" => {
                let code = fold::code(map)?;
                self.well |= is_well(&code);
                self.suspicious |= !code.is_empty();
            }
            "message" | "detail" | "errors" | "error_type" | "error_code" => {
                self.suspicious |= fold::truth(map)?;
            }
            _ => fold::skip(map)?,
        }
        Ok(())
    }

    fn end(&mut self) {
        self.gist.complaint |= self.suspicious && !self.has_choices && !self.well;
    }
}

/// Whether a code is that of success.
pub(super) fn is_well(code: &str) -> bool {
    matches!(code, "0" | "200")
}

/// Reads a member into `into`, unless it is not a word.
pub(super) fn copy<'de, A: MapAccess<'de>>(into: &mut String, map: &mut A) -> Result<(), A::Error> {
    if let Some(word) = fold::word(map)? {
        into.clear();
        into.push_str(&word);
    }
    Ok(())
}

struct Choice<'a> {
    gist: &'a mut Gist,
    index: u64,
    first_piece: usize,
    has_message: bool,
}

impl<'a> Choice<'a> {
    fn new(gist: &'a mut Gist) -> Self {
        let first_piece = gist.piece_count();
        Self { gist, index: 0, first_piece, has_message: false }
    }
}

impl Members for Choice<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "index" => self.index = fold::number(map)?.unwrap_or(0),
            "delta" => map.next_value_seed(Object(&mut Delta::new(self.gist)))?,
            "text" => gist::text(map, self.gist, Channel::Answer(TokenKind::Content))?,
            "message" => self.has_message = fold::truth(map)?,
            "finish_reason" => {
                if let Some(reason) = fold::word(map)? {
                    self.gist.finish_with(&reason);
                }
            }
            "usage" => {
                let mut counts = Counts::default();
                map.next_value_seed(Object(&mut Usage(&mut counts)))?;
                if counts != Counts::default() {
                    self.gist.vendor = Some(("vendor:choices[0].usage", counts));
                }
            }
            "error" => self.gist.complaint |= fold::truth(map)?,
            _ => fold::skip(map)?,
        }
        Ok(())
    }

    fn end(&mut self) {
        // A message in place of a delta is the whole reply; beside one it repeats what was said.
        self.gist.whole_reply |= self.has_message && self.gist.piece_count() == self.first_piece;
        self.has_message = false;
        self.gist.assign_choice(self.first_piece, self.index);
        self.first_piece = self.gist.piece_count();
        self.index = 0;
    }
}

/// A delta, or a message that is one in all but name.
pub(super) struct Delta<'a> {
    gist: &'a mut Gist,
    /// One name of the reasoning gave text: the others repeat it.
    reasoned: bool,
}

impl<'a> Delta<'a> {
    pub(super) fn new(gist: &'a mut Gist) -> Self {
        Self { gist, reasoned: false }
    }
}

impl Members for Delta<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "content" | "text" => gist::text(map, self.gist, Channel::Answer(TokenKind::Content)),
            "refusal" => gist::text(map, self.gist, Channel::Answer(TokenKind::Refusal)),
            "reasoning_content" | "reasoning" | "thinking" if !self.reasoned => {
                let before = self.gist.piece_count();
                gist::text(map, self.gist, Channel::Reasoning)?;
                self.reasoned = self.gist.piece_count() > before;
                Ok(())
            }
            "reasoning_details" if !self.reasoned => {
                let before = self.gist.piece_count();
                map.next_value_seed(Each(&mut ReasoningDetail(self.gist)))?;
                self.reasoned = self.gist.piece_count() > before;
                Ok(())
            }
            "tool_calls" => map.next_value_seed(Each(&mut ToolCall::new(self.gist))),
            "function_call" => {
                let mut call = ToolCall::new(self.gist);
                map.next_value_seed(Object(&mut Function(&mut call)))?;
                call.end();
                Ok(())
            }
            _ => fold::skip(map),
        }
    }
}

/// An element of OpenRouter's `reasoning_details`: text, a summary, or an opaque blob.
struct ReasoningDetail<'a>(&'a mut Gist);

impl Members for ReasoningDetail<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "text" | "summary" => gist::text(map, self.0, Channel::Reasoning),
            "data" => {
                self.0.veiled_reasoning |= fold::truth(map)?;
                Ok(())
            }
            _ => fold::skip(map),
        }
    }
}

/// A tool call's fragment; said name first, whatever the order of the members.
struct ToolCall<'a> {
    gist: &'a mut Gist,
    name: String,
    arguments: String,
}

impl<'a> ToolCall<'a> {
    fn new(gist: &'a mut Gist) -> Self {
        Self { gist, name: String::new(), arguments: String::new() }
    }
}

impl Members for ToolCall<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "function" | "custom" => map.next_value_seed(Object(&mut Function(self))),
            _ => fold::skip(map),
        }
    }

    fn end(&mut self) {
        for text in [&mut self.name, &mut self.arguments] {
            self.gist.say(Channel::Answer(TokenKind::ToolCall), 0, text);
            text.clear();
        }
    }
}

struct Function<'a, 'b>(&'a mut ToolCall<'b>);

impl Members for Function<'_, '_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "name" => copy(&mut self.0.name, map),
            "arguments" | "input" => copy(&mut self.0.arguments, map),
            _ => fold::skip(map),
        }
    }
}

/// The `usage` object, under the names of both OpenAI APIs and of those who added some.
pub(super) struct Usage<'a>(pub(super) &'a mut Counts);

impl Members for Usage<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "prompt_tokens" | "input_tokens" => set(&mut self.0.prompt, map),
            "completion_tokens" | "output_tokens" => set(&mut self.0.output, map),
            "reasoning_tokens" => set(&mut self.0.reasoning, map),
            "cached_tokens" | "prompt_cache_hit_tokens" => set(&mut self.0.cached_prompt, map),
            "completion_tokens_details"
            | "output_tokens_details"
            | "prompt_tokens_details"
            | "input_tokens_details" => map.next_value_seed(Object(&mut UsageDetails(self.0))),
            _ => fold::skip(map),
        }
    }
}

struct UsageDetails<'a>(&'a mut Counts);

impl Members for UsageDetails<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "reasoning_tokens" => set(&mut self.0.reasoning, map),
            "cached_tokens" => set(&mut self.0.cached_prompt, map),
            _ => fold::skip(map),
        }
    }
}

/// Reads a number into a count, unless it is not one.
pub(super) fn set<'de, A: MapAccess<'de>>(count: &mut Option<u64>, map: &mut A) -> Result<(), A::Error> {
    if let Some(number) = fold::number(map)? {
        *count = Some(number);
    }
    Ok(())
}

/// llama.cpp's `timings`: counts beside the server's own clock, which is not ours to use.
struct Timings<'a>(&'a mut Gist);

impl Members for Timings<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        let (_, counts) = self.0.vendor.get_or_insert(("vendor:timings.predicted_n", Counts::default()));
        match name {
            "predicted_n" => set(&mut counts.output, map),
            "prompt_n" => set(&mut counts.prompt, map),
            "cache_n" => set(&mut counts.cached_prompt, map),
            _ => fold::skip(map),
        }
    }

    fn end(&mut self) {
        // `prompt_n` counts what had to be processed: without what the cache held.
        if let Some((_, counts)) = &mut self.0.vendor {
            counts.prompt =
                counts.prompt.map(|fresh| fresh.saturating_add(counts.cached_prompt.unwrap_or(0)));
        }
    }
}

struct Groq<'a>(&'a mut Gist);

impl Members for Groq<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "usage" => {
                let (_, counts) = self.0.vendor.insert(("vendor:x_groq.usage", Counts::default()));
                map.next_value_seed(Object(&mut Usage(counts)))
            }
            "error" => {
                self.0.complaint |= fold::truth(map)?;
                Ok(())
            }
            _ => fold::skip(map),
        }
    }
}

/// `MiniMax`'s `base_resp`: zero is well.
struct BaseResponse<'a>(&'a mut Gist);

impl Members for BaseResponse<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "status_code" => {
                self.0.complaint |= fold::number(map)?.is_some_and(|code| code != 0);
                Ok(())
            }
            _ => fold::skip(map),
        }
    }
}
