//! The wire shapes of vLLM's OpenAI-compatible API: requests in; chunks, bodies and errors out.
//!
//! Pure text: knows nothing of sockets, engines or time.

use std::fmt::Write as _;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    engine::Finish,
    tokens::{self, Prompt},
};

/// Which of the two generating endpoints was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Endpoint {
    Chat,
    Completions,
}

/// What the simulator reads of a request's body; everything else is accepted and ignored.
#[derive(Debug, Deserialize)]
pub(super) struct Request {
    pub(super) model: String,
    messages: Option<Vec<Message>>,
    prompt: Option<Text>,
    #[serde(default)]
    pub(super) stream: bool,
    pub(super) stream_options: Option<StreamOptions>,
    pub(super) max_tokens: Option<i64>,
    pub(super) max_completion_tokens: Option<i64>,
    #[serde(default)]
    pub(super) ignore_eos: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct StreamOptions {
    #[serde(default)]
    pub(super) include_usage: bool,
}

#[derive(Debug, Deserialize)]
struct Message {
    role: String,
    content: Option<Text>,
}

/// A text, or a list of texts or of parts that may hold one.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Text {
    One(String),
    Many(Vec<Part>),
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Part {
    Plain(String),
    Typed { text: Option<String> },
}

impl Request {
    /// The prompt, counted; `None` if the body holds none for this endpoint.
    pub(super) fn prompt(&self, endpoint: Endpoint) -> Option<Prompt> {
        // What a chat template adds around every message.
        const TEMPLATE_TOKENS: u32 = 4;
        match endpoint {
            Endpoint::Chat => {
                let messages = self.messages.as_ref().filter(|messages| !messages.is_empty())?;
                let texts: Vec<_> = messages.iter().map(Message::text).collect();
                Some(tokens::count(texts.iter().map(String::as_str), TEMPLATE_TOKENS))
            }
            Endpoint::Completions => Some(tokens::count([self.prompt.as_ref()?.text().as_str()], 1)),
        }
    }
}

impl Message {
    fn text(&self) -> String {
        format!("{}\n{}", self.role, self.content.as_ref().map(Text::text).unwrap_or_default())
    }
}

impl Text {
    fn text(&self) -> String {
        match self {
            Self::One(text) => text.clone(),
            Self::Many(parts) => parts.iter().filter_map(Part::text).collect(),
        }
    }
}

impl Part {
    fn text(&self) -> Option<&str> {
        match self {
            Self::Plain(text) => Some(text),
            Self::Typed { text } => text.as_deref(),
        }
    }
}

/// One piece of generated text, of one or several tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) reasoning: bool,
    pub(super) text: String,
}

impl Piece {
    /// The text of token number `index`: fixed, so that an answer can be checked word for word.
    pub(super) fn of(index: u32, reasoning: bool) -> Self {
        const WORDS: [&str; 10] =
            ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"];
        let word = WORDS.get(index as usize % WORDS.len()).copied().unwrap_or_default();
        let text = if index == 0 { word.to_owned() } else { format!(" {word}") };
        Self { reasoning, text }
    }
}

/// What an answer is told to have cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) prompt_tokens: u32,
    pub(super) cached_tokens: u32,
    pub(super) completion_tokens: u32,
    pub(super) reasoning_tokens: u32,
}

impl Usage {
    fn json(self) -> Value {
        json!({
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "completion_tokens": self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": self.reasoning_tokens},
        })
    }
}

/// Writes one answer: the parts that are the same in each of its chunks.
#[derive(Debug, Clone)]
pub(super) struct Writer {
    pub(super) endpoint: Endpoint,
    pub(super) id: String,
    pub(super) model: String,
    pub(super) created: u64,
}

/// The end of every stream.
pub(super) const DONE: &str = "data: [DONE]\n\n";

/// A comment: no event, but bytes.
pub(super) const COMMENT: &str = ": keepalive\n\n";

impl Writer {
    /// The chunk that names the role and carries no text; completions have none.
    pub(super) fn role(&self, into: &mut String) {
        if self.endpoint == Endpoint::Chat {
            self.event(into, &json!({"role": "assistant", "content": ""}), None);
        }
    }

    pub(super) fn piece(&self, into: &mut String, piece: &Piece, finish: Option<Finish>) {
        match (self.endpoint, piece.reasoning) {
            (Endpoint::Completions, _) => self.event(into, &json!(piece.text), finish),
            (Endpoint::Chat, true) => self.event(into, &json!({"reasoning": piece.text}), finish),
            (Endpoint::Chat, false) => self.event(into, &json!({"content": piece.text}), finish),
        }
    }

    /// A finish without text.
    pub(super) fn finish(&self, into: &mut String, finish: Finish) {
        match self.endpoint {
            Endpoint::Chat => self.event(into, &json!({}), Some(finish)),
            Endpoint::Completions => self.event(into, &json!(""), Some(finish)),
        }
    }

    pub(super) fn usage(&self, into: &mut String, usage: Usage) {
        let chunk = json!({
            "id": self.id, "object": self.chunk_object(), "created": self.created, "model": self.model,
            "choices": [], "usage": usage.json(), "system_fingerprint": FINGERPRINT,
        });
        push_event(into, &chunk);
    }

    fn event(&self, into: &mut String, delta: &Value, finish: Option<Finish>) {
        let member = if self.endpoint == Endpoint::Chat { "delta" } else { "text" };
        let chunk = json!({
            "id": self.id, "object": self.chunk_object(), "created": self.created, "model": self.model,
            "choices": [{"index": 0, member: delta, "logprobs": null, "finish_reason": finish.map(name)}],
        });
        push_event(into, &chunk);
    }

    /// The whole answer as one document.
    pub(super) fn document(&self, pieces: &[Piece], finish: Finish, usage: Option<Usage>) -> Value {
        let text = |reasoning: bool| -> Option<String> {
            let mut texts = pieces.iter().filter(|piece| piece.reasoning == reasoning).peekable();
            texts.peek().is_some().then(|| texts.map(|piece| piece.text.as_str()).collect())
        };
        let (object, choice) = match self.endpoint {
            Endpoint::Chat => (
                "chat.completion",
                json!({"index": 0, "logprobs": null, "finish_reason": name(finish), "message":
                    {"role": "assistant", "content": text(false), "reasoning": text(true)}}),
            ),
            Endpoint::Completions => (
                "text_completion",
                json!({"index": 0, "logprobs": null, "finish_reason": name(finish),
                    "text": pieces.iter().map(|piece| piece.text.as_str()).collect::<String>()}),
            ),
        };
        json!({
            "id": self.id, "object": object, "created": self.created, "model": self.model, "choices": [choice],
            "usage": usage.map(Usage::json), "system_fingerprint": FINGERPRINT,
        })
    }

    fn chunk_object(&self) -> &'static str {
        match self.endpoint {
            Endpoint::Chat => "chat.completion.chunk",
            Endpoint::Completions => "text_completion",
        }
    }
}

const FINGERPRINT: &str = "tokenprobe-simulator";

fn name(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "stop",
        Finish::Length => "length",
    }
}

/// Appends `data` as one server-sent event.
pub(super) fn push_event(into: &mut String, data: &Value) {
    // Writing to a string cannot fail.
    let _ = write!(into, "data: {data}\n\n");
}

/// An error body as vLLM shapes it.
pub(super) fn error(code: u16, kind: &str, param: Option<&str>, message: &str) -> Value {
    json!({"error": {"message": message, "type": kind, "param": param, "code": code}})
}

/// The bytes of a JSON document.
pub(super) fn bytes(document: &Value) -> Bytes {
    Bytes::from(document.to_string())
}
