//! `POST {base}/completions`: what is asked. What is answered is `openai_chunk`'s.

use serde_json::{Map, Value};

use super::{Ask, openai_chat};

/// The request's body before `extra_body`.
pub(super) fn body(ask: &Ask<'_>) -> Map<String, Value> {
    let mut body = openai_chat::common(ask);
    body.insert("prompt".into(), ask.prompt.into());
    body
}
