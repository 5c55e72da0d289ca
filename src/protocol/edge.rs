//! Bodies that are not JSON: pages and plain words, mostly of something that stands before the model server.
//!
//! Knows nothing of headers but what it is told.

use super::classify::Ruling;
use crate::measurement::FailureClass::{
    Auth, BadRequest, ContentFilter, Edge, EndpointNotFound, Overloaded, RateLimited, StreamTruncated,
    UpstreamError,
};

/// Words of a page that asks for a browser.
const CHALLENGES: [&str; 14] = [
    "just a moment",
    "challenge-platform",
    "cf-chl",
    "cf_chl",
    "attention required",
    "checking your browser",
    "captcha",
    "enable javascript and cookies",
    "ddos protection",
    "verify you are human",
    "human verification",
    "security checkpoint",
    "pardon our interruption",
    "incapsula incident",
];

/// Words of a proxy that could not reach what is behind it.
const UPSTREAM_CONNECT: [&str; 6] = [
    "upstream connect error",
    "disconnect/reset before headers",
    "no healthy upstream",
    "upstream_reset_before_response_started",
    "connection refused",
    "connect: cannot assign",
];

/// Judges a body that is not JSON. `text` is its head, lower case; `challenged` what `cf-mitigated` says.
pub(super) fn rule(status: u16, text: &str, is_html: bool, challenged: bool) -> Ruling {
    if challenged || (is_html && CHALLENGES.iter().any(|words| text.contains(words))) {
        return Ruling::new(Edge, "challenge");
    }
    if UPSTREAM_CONNECT.iter().any(|words| text.contains(words)) {
        return Ruling::new(Edge, "upstream_connect");
    }
    match status {
        403 if is_refused_by_rule(text) => Ruling::new(Edge, "html_403"),
        _ if is_wrong_scheme(text) => Ruling::of(EndpointNotFound),
        200..=299 if is_html => Ruling::of(EndpointNotFound),
        200..=299 => Ruling::new(StreamTruncated, "no_events"),
        300..=399 => Ruling::new(EndpointNotFound, "redirect"),
        407 => Ruling::new(Edge, "proxy_auth"),
        401 => Ruling::new(Auth, "invalid_key"),
        403 if is_html => Ruling::new(Edge, "html_403"),
        403 => Ruling::new(Auth, "forbidden"),
        404 | 405 | 410 => Ruling::of(EndpointNotFound),
        413 => Ruling::new(BadRequest, "context_length"),
        424 => Ruling::of(UpstreamError),
        429 => Ruling::of(RateLimited),
        451 => Ruling::new(ContentFilter, "prompt"),
        529 => Ruling::of(Overloaded),
        500.. => Ruling { class: Edge, subclass: Some(format!("gateway_{status}").into()) },
        _ => Ruling::new(BadRequest, "other"),
    }
}

/// Whether words are those of something before the model server.
pub(super) fn names_itself(text: &str) -> bool {
    UPSTREAM_CONNECT.iter().any(|words| text.contains(words))
        || is_refused_by_rule(text)
        || is_wrong_scheme(text)
}

/// Cloudflare's 1xxx codes: its own rules refused the client.
fn is_refused_by_rule(text: &str) -> bool {
    text.trim_start().starts_with("error code: 10")
}

fn is_wrong_scheme(text: &str) -> bool {
    text.contains("plain http request was sent to https port")
        || text.contains("client sent an http request to an https server")
}
