//! An error as a server words it: gathers machine codes, words, status and hints from whatever shape it has.
//!
//! Shapes differ without end (`error` as object, string, list; codes at the top; errors inside errors), so the tree is
//! walked by member names. Gathers, does not judge. Prompts echoed in errors are not looked at.

use std::time::Duration;

use serde_json::Value;

use super::{json_scan::split_values, openai_chunk::is_well, retry_hint, text_head};

/// Bounds of what is gathered: an error is small, and who sends more is not worth reading.
const DEPTH_MAX: usize = 8;
const NODES_MAX: usize = 512;
const CODES_MAX: usize = 32;
const WORDS_BYTES_MAX: usize = 2048;

/// What a server says went wrong.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Complaint {
    /// Machine codes, lower case, letters and digits only.
    pub(super) codes: Vec<String>,
    /// Every sentence for humans, lower case.
    pub(super) words: String,
    /// The first sentence for humans, as written.
    pub(super) message: String,
    /// A numeric code that can stand in for the HTTP status.
    pub(super) status: Option<u16>,
    /// The request's member at fault.
    pub(super) param: Option<String>,
    /// `RetryInfo.retryDelay`.
    pub(super) retry_delay: Option<Duration>,
    /// `estimated_time`.
    pub(super) estimated_time: Option<Duration>,
}

impl Complaint {
    /// Reads the first JSON value of `bytes`; `None` when there is none.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (values, _) = split_values(bytes);
        let value = serde_json::from_slice(values.first()?).ok()?;
        Some(Self::gather(&value))
    }

    /// Walks an error that was read already.
    pub(super) fn gather(value: &Value) -> Self {
        let mut complaint = Self::default();
        let mut nodes = NODES_MAX;
        complaint.walk(value, DEPTH_MAX, &mut nodes);
        complaint
    }

    /// Adds a machine code found outside the body (a header, an exception's type).
    pub(super) fn add_code(&mut self, code: &str) {
        let code: String = code
            .chars()
            .filter(char::is_ascii_alphanumeric)
            .take(96)
            .collect::<String>()
            .to_ascii_lowercase();
        if !code.is_empty() && self.codes.len() < CODES_MAX {
            self.codes.push(code);
        }
    }

    fn walk(&mut self, value: &Value, depth: usize, nodes: &mut usize) {
        if depth == 0 || *nodes == 0 {
            return;
        }
        *nodes -= 1;
        match value {
            Value::Object(members) => {
                // Zhipu numbers its errors and says no more; beside a type the number is another's.
                let is_typed = members.contains_key("type");
                for (name, value) in members {
                    if !(is_typed && name == "code" && is_serial(value)) {
                        self.member(name, value, depth, nodes);
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.walk(item, depth - 1, nodes)),
            Value::String(words) => self.add_words(words),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn member(&mut self, name: &str, value: &Value, depth: usize, nodes: &mut usize) {
        match (name, value) {
            // Of an answer's members only the choices hold errors.
            ("choices", Value::Array(choices)) => {
                for error in choices.iter().filter_map(|choice| choice.get("error")) {
                    self.member("error", error, depth, nodes);
                }
            }
            // What the request said, echoed; and members of an ordinary answer.
            ("input" | "ctx" | "usage" | "content" | "model" | "id" | "request_id" | "url", _) => {}
            ("loc", Value::Array(path)) => self.param = self.param.take().or_else(|| param_of_path(path)),
            ("loc" | "param", Value::String(param)) => {
                self.param = self.param.take().or_else(|| param_root(param));
            }
            ("blockReason", Value::String(_)) => self.add_code("content_filter"),
            ("retryDelay", Value::String(delay)) => self.retry_delay = retry_hint::go_duration(delay),
            ("estimated_time", Value::Number(seconds)) => {
                self.estimated_time = seconds.as_f64().and_then(retry_hint::seconds);
            }
            (
                "code" | "type" | "status" | "error_type" | "error_code" | "reason" | "__type" | "quotaId"
                | "status_code" | "statusCode" | "http_status",
                Value::String(_) | Value::Number(_),
            ) => self.add_scalar(name, value),
            ("error", Value::String(word)) if is_code_like(word) => self.add_code(word),
            (
                "message" | "Message" | "msg" | "detail" | "error" | "error_description" | "status_msg"
                | "error_msg" | "error_message" | "faultstring" | "raw" | "title" | "errors",
                Value::String(words),
            ) => self.add_words(words),
            (_, Value::Object(_)) => self.walk(value, depth - 1, nodes),
            (_, Value::Array(items)) => {
                // A list of bare strings holds words only where words are expected.
                let worded = matches!(name, "message" | "detail" | "errors" | "error" | "details");
                for item in items.iter().filter(|item| worded || !item.is_string()) {
                    self.walk(item, depth - 1, nodes);
                }
            }
            _ => {}
        }
    }

    fn add_scalar(&mut self, name: &str, value: &Value) {
        let number = match value {
            Value::Number(number) => number.as_u64(),
            Value::String(word) => word.parse().ok(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        };
        match (number, value) {
            (Some(number @ 400..=599), _) => {
                self.status = self.status.or(u16::try_from(number).ok());
            }
            // MiniMax numbers its errors under one name, Zhipu under another; both would collide.
            (Some(number), _) if name == "status_code" => self.add_code(&format!("minimax{number}")),
            (Some(number), Value::String(_)) => self.add_code(&format!("zhipu{number}")),
            (None, Value::String(word)) => self.add_code(word),
            _ => {}
        }
    }

    fn add_words(&mut self, words: &str) {
        if words.trim().is_empty() || self.words.len() >= WORDS_BYTES_MAX {
            return;
        }
        if self.message.is_empty() {
            self.message = words.chars().take(WORDS_BYTES_MAX).collect();
        }
        let head = text_head(words, WORDS_BYTES_MAX - self.words.len());
        self.words.push_str(&head.to_lowercase());
        self.words.push('\n');
    }
}

/// Members that answers have.
const ANSWERS: [&str; 8] =
    ["choices", "candidates", "content", "output", "message", "response", "results", "delta"];

/// Members that only errors have, unless they stand beside one of the above.
const COMPLAINTS: [&str; 9] =
    ["code", "message", "detail", "errors", "error_type", "error_code", "msg", "__type", "Message"];

/// Whether a JSON value says that something failed, rather than being an answer.
pub(super) fn is_complaint(value: &Value) -> bool {
    let value = match value {
        Value::Array(items) => items.first().unwrap_or(&Value::Null),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => value,
    };
    let Value::Object(members) = value else { return false };
    let says = |name: &str| members.get(name).is_some_and(is_something);
    let is = |name: &str, word: &str| members.get(name).and_then(Value::as_str) == Some(word);
    let minimax = members.get("base_resp").and_then(|base| base.get("status_code")).and_then(Value::as_i64);
    if says("error") || is("type", "error") || is("object", "error") || minimax.is_some_and(|code| code != 0)
    {
        return true;
    }
    let answers = ANSWERS
        .iter()
        .any(|name| members.get(*name).is_some_and(|value| value.is_object() || value.is_array()));
    let well = members.get("code").is_some_and(|code| match code {
        Value::String(code) => is_well(code),
        Value::Number(code) => code.as_u64().is_some_and(|code| is_well(&code.to_string())),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => false,
    });
    !answers && !well && COMPLAINTS.iter().any(|name| says(name))
}

fn is_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(truth) => *truth,
        Value::String(word) => !word.is_empty(),
        Value::Number(number) => number.as_i64() != Some(0),
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
    }
}

/// A number written as text that is no status.
fn is_serial(value: &Value) -> bool {
    value
        .as_str()
        .and_then(|text| text.parse::<u64>().ok())
        .is_some_and(|number| !(400..600).contains(&number))
}

fn is_code_like(word: &str) -> bool {
    word.contains('_') && !word.contains(' ')
}

fn param_of_path(path: &[Value]) -> Option<String> {
    let mut names = path.iter().filter_map(Value::as_str).filter(|name| *name != "body");
    names.next().and_then(param_root)
}

/// The request's own member: `body.stream_options.include_usage` is about `stream_options`.
fn param_root(param: &str) -> Option<String> {
    let param = param.strip_prefix("body.").unwrap_or(param);
    let root = param.split(['.', '[']).next().unwrap_or_default();
    let is_name =
        !root.is_empty() && root.len() <= 64 && root.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    (is_name && root != "None" && root != "body").then(|| root.to_owned())
}
