//! `POST {base}/chat/completions`: what is asked. What is answered is `openai_chunk`'s.

use serde_json::{Map, Value, json};

use super::Ask;

/// The request's body before `extra_body`.
pub(super) fn body(ask: &Ask<'_>) -> Map<String, Value> {
    let mut body = common(ask);
    body.insert("messages".into(), json!([{ "role": "user", "content": ask.prompt }]));
    body
}

/// What chat and completions share.
pub(super) fn common(ask: &Ask<'_>) -> Map<String, Value> {
    let mut body = Map::new();
    body.insert("model".into(), ask.model.into());
    body.insert(ask.max_tokens_field.as_str().into(), ask.max_tokens.into());
    if let Some(temperature) = ask.temperature {
        body.insert("temperature".into(), temperature.into());
    }
    body.insert("stream".into(), true.into());
    if ask.include_usage {
        body.insert("stream_options".into(), json!({ "include_usage": true }));
    }
    body
}
