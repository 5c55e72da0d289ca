//! The words of a failure: short, one line, with the likely cause and its mend.
//!
//! Never sees a request: nothing of it can leak into a message.

use super::{Deadline, classify::Ruling};
use crate::measurement::FailureClass::{
    self, Auth, BadRequest, Connect, ContentFilter, Edge, EmptyOutput, EndpointNotFound, ModelNotFound,
    NotStreaming, Overloaded, Protocol, Quota, RateLimited, StreamTruncated, Timeout, Tls, UpstreamError,
};

/// Most characters of the server's own words.
const WORDS_CHARS_MAX: usize = 110;
/// Bytes of a body looked at for words.
const HEAD_BYTES_MAX: usize = 4 << 10;

/// What a message is made of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wording<'a> {
    pub(super) status: u16,
    /// Where a redirect leads.
    pub(super) location: Option<&'a str>,
    /// The server's words, or ours.
    pub(super) words: &'a str,
}

impl Wording<'_> {
    /// `HTTP 404: the words (what to do)`.
    pub(super) fn message(&self, ruling: &Ruling) -> String {
        let words = one_line(self.words, WORDS_CHARS_MAX);
        let mut message = match (self.status, words.is_empty()) {
            (200..=299, false) => words,
            (200..=299, true) => ruling.class.to_string(),
            (status, false) => format!("HTTP {status}: {words}"),
            (status, true) => format!("HTTP {status}"),
        };
        if let Some(place) = self.location.filter(|_| ruling.subclass.as_deref() == Some("redirect")) {
            message.push_str(" to ");
            message.push_str(&one_line(place, WORDS_CHARS_MAX));
        }
        if let Some(hint) = hint(ruling.class, ruling.subclass.as_deref()) {
            message.push_str(" (");
            message.push_str(hint);
            message.push(')');
        }
        message
    }
}

/// What mends a failure, or where to look first.
pub(super) fn hint(class: FailureClass, subclass: Option<&str>) -> Option<&'static str> {
    Some(match (class, subclass) {
        (Connect, Some("dns")) => "check the host name in the base URL",
        (Connect, Some("refused")) => "check host and port, and that the server is up",
        (Connect, _) => "the server or something before it closed the connection before answering",
        (Tls, Some("untrusted")) => "set tls.ca_file to its authority; --insecure to try without",
        (Tls, _) => "check that the port speaks TLS",
        (Edge, Some("proxy_auth")) => "the proxy wants a credential",
        (Edge, Some("challenge")) => "something before the server wants a browser: allow this client there",
        (Edge, Some("html_403")) => "something before the server refuses this client",
        (Edge, _) => "a gateway answered in place of the model server",
        (Timeout, Some("connect")) => "no answer to the connection: firewall, or wrong host",
        (Timeout, Some("first_token")) => "queue or prefill took longer than timeout.first_token",
        (Timeout, _) => "the endpoint was slower than the configured timeout",
        (Auth, Some("expired")) => "renew the credential",
        (Auth, Some("revoked")) => "the credential was withdrawn: get a new one",
        (Auth, Some("forbidden")) => "the key is known but may not do this: check its permissions",
        (Auth, _) => "check the key: stray spaces, the wrong key, or disabled",
        (Quota, _) => "waiting does not help: check plan, budget and balance",
        (RateLimited, _) => "lower the load, or raise the limit",
        (Overloaded, Some("loading")) => "the model is still loading",
        (ModelNotFound, _) => "check the model's name and whether the key may use it",
        (EndpointNotFound, Some("redirect")) => {
            "redirects are not followed: put the final address into the base URL"
        }
        (EndpointNotFound, _) => {
            "the base URL is joined as written: check a missing or doubled /v1, and http or https"
        }
        (BadRequest, Some("context_length")) => {
            "the prompt is too long: for the model, or for a body limit on the way"
        }
        (BadRequest, Some("stream_not_allowed")) => {
            "this key may not stream: time to first token cannot be measured"
        }
        (BadRequest, Some(subclass)) if subclass.starts_with("unsupported_param:") => {
            "drop it with extra_body = { name = null } or use the name this server wants"
        }
        (EmptyOutput, Some("budget_spent_on_reasoning")) => {
            "thinking used up max_tokens: raise it or reasoning_budget, or turn thinking off by extra_body"
        }
        (EmptyOutput, _) => "the model sent no text: max_tokens too small, or a filter",
        (NotStreaming, _) => "time to first token is unknown: the server or a gateway does not stream",
        (Protocol, Some("bad_json")) => "check that the base URL belongs to this protocol",
        (Overloaded | BadRequest | ContentFilter | UpstreamError | StreamTruncated | Protocol, _) => {
            return None;
        }
    })
}

/// Subclass and words of a deadline that passed.
pub(super) fn deadline(deadline: Deadline) -> (&'static str, &'static str) {
    match deadline {
        Deadline::Connect => ("connect", "no connection in time"),
        Deadline::Headers => ("headers", "no response headers in time"),
        Deadline::FirstToken => ("first_token", "no token in time"),
        Deadline::Stall => ("stall", "silence between tokens"),
        Deadline::Total | Deadline::Grace => ("total", "the whole took too long"),
    }
}

/// Words on one line: control characters and runs of white space become one space. Nothing is left that could steer a
/// terminal or turn the direction of writing.
pub(crate) fn one_line(words: &str, chars_max: usize) -> String {
    let mut line = String::new();
    let mut chars = 0;
    for word in words.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()) {
        if chars > 0 {
            line.push(' ');
            chars += 1;
        }
        for c in word.chars().filter(|c| !is_mark_of_direction(*c)) {
            if chars >= chars_max {
                line.push('…');
                return line;
            }
            line.push(c);
            chars += 1;
        }
    }
    line
}

/// Unicode's bidirectional marks, embeddings, overrides and isolates.
fn is_mark_of_direction(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The head of a body, lower case.
pub(super) fn lower_head(bytes: &[u8]) -> String {
    head(bytes).to_lowercase()
}

/// What of a body that is not JSON a human would read: a page's title, or the words themselves.
pub(super) fn readable(bytes: &[u8], is_html: bool) -> String {
    let text = head(bytes);
    if !is_html {
        return text;
    }
    let lower = text.to_ascii_lowercase();
    let title = lower.find("<title>").map(|at| at + "<title>".len()).and_then(|from| {
        let to = lower.get(from..)?.find("</title>")?;
        text.get(from..from + to)
    });
    format!("an HTML page{}", title.map(|title| format!(", {:?}", title.trim())).unwrap_or_default())
}

fn head(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.get(..HEAD_BYTES_MAX).unwrap_or(bytes)).into_owned()
}
