//! What the headers of an answer tell a measurement.

use http::HeaderMap;

use super::{Protocol, ReplyHead, excuse::one_line, inflate::Encoding, retry_hint::HeaderHints};

/// Facts kept of the head of an answer.
#[derive(Debug)]
pub(super) struct HeadFacts {
    pub(super) protocol: Protocol,
    pub(super) host: String,
    pub(super) status: u16,
    pub(super) include_usage: bool,
    pub(super) encoding: Encoding,
    pub(super) hints: HeaderHints,
    pub(super) request_id: Option<String>,
    /// A gateway's cache answered.
    pub(super) cached_response: bool,
    /// Something asks for a browser.
    pub(super) challenged: bool,
    /// A machine code in the headers.
    pub(super) error_code: Option<String>,
    /// Where a redirect leads, without query.
    pub(super) location: Option<String>,
}

impl HeadFacts {
    pub(super) fn read(head: &ReplyHead<'_>) -> Self {
        let text = |name: &str| header(head.headers, name);
        Self {
            protocol: head.protocol,
            host: head.host.to_ascii_lowercase(),
            status: head.status,
            include_usage: head.include_usage,
            encoding: Encoding::of(text("content-encoding")),
            hints: HeaderHints::read(head.headers),
            request_id: REQUEST_IDS.iter().find_map(|name| text(name)).map(|id| one_line(id, 128)),
            cached_response: is_cache_hit(head.headers),
            challenged: CHALLENGES.iter().filter_map(|name| text(name)).any(is_challenge),
            error_code: text("x-amzn-errortype").and_then(|code| code.split(':').next()).map(str::to_owned),
            location: text("location").and_then(|place| place.split(['?', '#']).next()).map(without_userinfo),
        }
    }

    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// Headers in which Cloudflare, Vercel and AWS say that they ask for a browser.
const CHALLENGES: [&str; 3] = ["cf-mitigated", "x-vercel-mitigated", "x-amzn-waf-action"];

fn is_challenge(value: &str) -> bool {
    ["challenge", "captcha"].iter().any(|word| value.eq_ignore_ascii_case(word))
}

/// Headers that carry the server's id of a request, the most telling first.
const REQUEST_IDS: [&str; 7] = [
    "x-request-id",
    "request-id",
    "x-amzn-requestid",
    "apim-request-id",
    "x-ms-request-id",
    "x-litellm-call-id",
    "cf-ray",
];

fn header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim).filter(|value| !value.is_empty())
}

fn is_cache_hit(headers: &HeaderMap) -> bool {
    const STATUSES: [&str; 11] = [
        "cf-aig-cache-status",
        "cf-cache-status",
        "x-cache",
        "x-cache-status",
        "x-cache-hit",
        "x-proxy-cache",
        "x-vercel-cache",
        "cache-status",
        "x-portkey-cache-status",
        "helicone-cache",
        "x-litellm-cache-hit",
    ];
    let is_hit = |value: &str| {
        let value = value.to_ascii_lowercase();
        // `cache-status` names the cache first (RFC 9211).
        value.starts_with("hit") || value.contains("; hit") || value == "true"
    };
    STATUSES.iter().any(|name| header(headers, name).is_some_and(is_hit))
        || header(headers, "x-litellm-cache-key").is_some()
}

fn without_userinfo(place: &str) -> String {
    let place = one_line(place, 256);
    match place.split_once("://") {
        Some((scheme, rest)) => {
            let authority_end = rest.find('/').unwrap_or(rest.len());
            let (authority, path) = rest.split_at(authority_end);
            let host = authority.rsplit('@').next().unwrap_or_default();
            format!("{scheme}://{host}{path}")
        }
        None => place,
    }
}
