//! DashScope's own text generation: `POST {base}/services/aigc/text-generation/generation`, answered as server-sent
//! events whose text may be cumulative.
//!
//! Knows nothing of framing and nothing of time.

use http::{HeaderName, HeaderValue};
use serde::de::MapAccess;
use serde_json::{Map, Value, json};

use super::{
    Ask,
    fold::{self, Each, Members, Object},
    gist::{self, Channel, Gist},
    openai_chunk::{Delta, Usage},
};
use crate::measurement::TokenKind;

/// Asks for a stream: without it the whole answer comes at once.
pub(super) const STREAM: (HeaderName, HeaderValue) =
    (HeaderName::from_static("x-dashscope-sse"), HeaderValue::from_static("enable"));

/// The request's body before `extra_body`.
pub(super) fn body(ask: &Ask<'_>) -> Map<String, Value> {
    let mut parameters =
        json!({ "result_format": "message", "incremental_output": true, "max_tokens": ask.max_tokens });
    if let (Some(temperature), Some(parameters)) = (ask.temperature, parameters.as_object_mut()) {
        parameters.insert("temperature".into(), temperature.into());
    }
    let mut body = Map::new();
    body.insert("model".into(), ask.model.into());
    body.insert("input".into(), json!({ "messages": [{ "role": "user", "content": ask.prompt }] }));
    body.insert("parameters".into(), parameters);
    body
}

/// Reads one event.
pub(super) fn read(payload: &[u8], gist: &mut Gist) -> Result<(), serde_json::Error> {
    fold::fold(payload, &mut Event { gist, has_output: false, suspicious: false })
}

struct Event<'a> {
    gist: &'a mut Gist,
    has_output: bool,
    suspicious: bool,
}

impl Members for Event<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "output" => {
                self.has_output = true;
                map.next_value_seed(Object(&mut Output(self.gist)))?;
            }
            "usage" => map.next_value_seed(Object(&mut Usage(&mut self.gist.usage)))?,
            "code" | "message" => self.suspicious |= fold::truth(map)?,
            _ => fold::skip(map)?,
        }
        Ok(())
    }

    fn end(&mut self) {
        self.gist.complaint |= self.suspicious && !self.has_output;
    }
}

/// The output, in the `message` or the older `text` format.
struct Output<'a>(&'a mut Gist);

impl Members for Output<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "choices" => map.next_value_seed(Each(&mut Choice(self.0))),
            "text" => gist::text(map, self.0, Channel::Answer(TokenKind::Content)),
            "finish_reason" => finish(self.0, map),
            _ => fold::skip(map),
        }
    }
}

struct Choice<'a>(&'a mut Gist);

impl Members for Choice<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "message" => map.next_value_seed(Object(&mut Delta::new(self.0))),
            "finish_reason" => finish(self.0, map),
            _ => fold::skip(map),
        }
    }
}

fn finish<'de, A: MapAccess<'de>>(gist: &mut Gist, map: &mut A) -> Result<(), A::Error> {
    if let Some(reason) = fold::word(map)? {
        gist.finish_with(&reason);
    }
    Ok(())
}
