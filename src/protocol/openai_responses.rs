//! OpenAI's Responses: `POST {base}/responses`, answered as server-sent events.
//!
//! Knows nothing of framing and nothing of time.

use serde::de::MapAccess;
use serde_json::{Map, Value};

use super::{
    Ask,
    fold::{self, Each, Members, Object},
    gist::{self, Channel, Gist},
    openai_chunk::{Usage, copy},
};
use crate::measurement::TokenKind;

/// The request's body before `extra_body`.
pub(super) fn body(ask: &Ask<'_>) -> Map<String, Value> {
    let mut body = Map::new();
    body.insert("model".into(), ask.model.into());
    body.insert("input".into(), ask.prompt.into());
    body.insert("max_output_tokens".into(), ask.max_tokens.into());
    if let Some(temperature) = ask.temperature {
        body.insert("temperature".into(), temperature.into());
    }
    body.insert("stream".into(), true.into());
    body
}

/// Reads one event.
pub(super) fn read(payload: &[u8], gist: &mut Gist) -> Result<(), serde_json::Error> {
    fold::fold(payload, &mut Event { gist, kind: String::new(), is_response: false })
}

struct Event<'a> {
    gist: &'a mut Gist,
    kind: String,
    /// The payload is a response itself, not an event about one.
    is_response: bool,
}

impl Members for Event<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "type" => copy(&mut self.kind, map)?,
            // Which channel it belongs to is known once the type is.
            "delta" => gist::text(map, self.gist, Channel::Reasoning)?,
            "item" => map.next_value_seed(Object(&mut Item::new(self.gist)))?,
            "response" => map.next_value_seed(Object(&mut Response(self.gist)))?,
            "object" => self.is_response = fold::word(map)?.as_deref() == Some("response"),
            _ => Response(self.gist).member(name, map)?,
        }
        Ok(())
    }

    fn end(&mut self) {
        match self.kind.as_str() {
            "response.completed" | "response.incomplete" | "response.cancelled" => self.gist.terminal = true,
            "response.failed" => {
                self.gist.complaint = true;
            }
            "error" => self.gist.complaint = true,
            "response.output_item.added" => {}
            "" if self.is_response => {
                self.gist.whole_reply = true;
                self.gist.terminal = true;
            }
            kind => match channel(kind) {
                Some(channel) => self.gist.assign_channel(0, channel),
                None => self.gist.retract_text(),
            },
        }
        // The status of a response that is under way is no reason to stop.
        if !self.gist.terminal {
            self.gist.finish.clear();
        }
    }
}

/// The channel of a `*.delta` event.
fn channel(kind: &str) -> Option<Channel> {
    let subject = kind.strip_prefix("response.")?.strip_suffix(".delta")?;
    match subject {
        "output_text" => Some(Channel::Answer(TokenKind::Content)),
        "refusal" => Some(Channel::Answer(TokenKind::Refusal)),
        "function_call_arguments"
        | "mcp_call_arguments"
        | "custom_tool_call_input"
        | "code_interpreter_call_code" => Some(Channel::Answer(TokenKind::ToolCall)),
        _ if subject.starts_with("reasoning") => Some(Channel::Reasoning),
        _ => None,
    }
}

struct Response<'a>(&'a mut Gist);

impl Members for Response<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "model" => copy(&mut self.0.model, map),
            "status" => copy(&mut self.0.finish, map),
            "usage" => map.next_value_seed(Object(&mut Usage(&mut self.0.usage))),
            "output" => map.next_value_seed(Each(&mut Output(self.0))),
            "incomplete_details" => map.next_value_seed(Object(&mut IncompleteDetails(self.0))),
            "error" => {
                self.0.complaint |= fold::truth(map)?;
                Ok(())
            }
            _ => fold::skip(map),
        }
    }
}

/// What a response holds as a whole: a repeat of what was streamed, or all there is.
struct Output<'a>(&'a mut Gist);

impl Members for Output<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "content" => map.next_value_seed(Each(&mut OutputPart(self.0))),
            _ => fold::skip(map),
        }
    }
}

struct OutputPart<'a>(&'a mut Gist);

impl Members for OutputPart<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "text" | "refusal" => {
                self.0.whole_reply |= fold::truth(map)?;
                Ok(())
            }
            _ => fold::skip(map),
        }
    }
}

struct IncompleteDetails<'a>(&'a mut Gist);

impl Members for IncompleteDetails<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "reason" => {
                self.0.filtered |= fold::word(map)?.as_deref() == Some("content_filter");
                Ok(())
            }
            _ => fold::skip(map),
        }
    }
}

/// An output item as it begins: of a tool call the name is text, of anything else nothing.
struct Item<'a> {
    gist: &'a mut Gist,
    is_call: bool,
    name: String,
}

impl<'a> Item<'a> {
    fn new(gist: &'a mut Gist) -> Self {
        Self { gist, is_call: false, name: String::new() }
    }
}

impl Members for Item<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "type" => self.is_call = fold::word(map)?.is_some_and(|kind| kind.ends_with("_call")),
            "name" => copy(&mut self.name, map)?,
            _ => fold::skip(map)?,
        }
        Ok(())
    }

    fn end(&mut self) {
        if self.is_call {
            self.gist.say(Channel::Answer(TokenKind::ToolCall), 0, &self.name);
        }
    }
}
