//! From what a server says went wrong to one of the failure classes.
//!
//! Machine codes beat words beat status; within each, the order is that of the tables: auth, quota, content filter,
//! unsupported or too long, not found, overloaded, rate. Knows nothing of bytes.

mod tables;

use std::borrow::Cow;

use self::tables::{CODES, Row, UNSUPPORTED, WEAK_CODES, WORDS};
use super::complaint::Complaint;
use crate::measurement::FailureClass::{
    self, Auth, BadRequest, ContentFilter, Edge, EndpointNotFound, ModelNotFound, Overloaded, Quota,
    RateLimited, UpstreamError,
};

/// A class and what is finer than it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ruling {
    pub(super) class: FailureClass,
    pub(super) subclass: Option<Cow<'static, str>>,
}

/// What surrounds a complaint.
#[derive(Debug, Clone, Copy)]
pub(super) struct Circumstances<'a> {
    /// HTTP status of the answer.
    pub(super) http_status: u16,
    /// Host asked.
    pub(super) host: &'a str,
    /// Some of the answer had come already.
    pub(super) has_answer: bool,
}

impl Ruling {
    pub(super) fn new(class: FailureClass, subclass: &'static str) -> Self {
        Self { class, subclass: Some(Cow::Borrowed(subclass)) }
    }

    pub(super) fn of(class: FailureClass) -> Self {
        Self { class, subclass: None }
    }

    fn from_table(class: FailureClass, subclass: &'static str) -> Self {
        if subclass.is_empty() { Self::of(class) } else { Self::new(class, subclass) }
    }
}

/// Judges plain words; `None` when they say nothing that the status does not.
pub(super) fn classify_words(text: &str, around: Circumstances<'_>) -> Option<Ruling> {
    let complaint = Complaint::gather(&serde_json::Value::String(text.to_owned()));
    Some(refine(by_words(&complaint, around)?, &complaint, around))
}

/// Judges a complaint.
pub(super) fn classify(complaint: &Complaint, around: Circumstances<'_>) -> Ruling {
    let ruling = by_code(complaint, around)
        .or_else(|| by_words(complaint, around))
        .or_else(|| by_status(complaint, around))
        .unwrap_or_else(|| by_weak_code(complaint));
    refine(ruling, complaint, around)
}

fn find(table: &'static [Row], mut hits: impl FnMut(&str) -> bool) -> Option<(FailureClass, &'static str)> {
    table.iter().find(|(key, ..)| hits(key)).map(|(_, class, subclass)| (*class, *subclass))
}

fn has_code(complaint: &Complaint, key: &str) -> bool {
    match key.strip_suffix('*') {
        Some(prefix) => complaint.codes.iter().any(|code| code.starts_with(prefix)),
        None => complaint.codes.iter().any(|code| code == key),
    }
}

fn by_code(complaint: &Complaint, around: Circumstances<'_>) -> Option<Ruling> {
    let per_day = complaint.codes.iter().any(|code| code.contains("perday"));
    if per_day && has_code(complaint, "resourceexhausted") {
        return Some(Ruling::new(Quota, "exhausted"));
    }
    let (class, subclass) = find(CODES, |key| has_code(complaint, key))?;
    // The same words mean money at OpenAI and a limit per minute here.
    if class == Quota && subclass == "billing" && is_aliyun(around.host) {
        return Some(Ruling::of(RateLimited));
    }
    Some(Ruling::from_table(class, subclass))
}

fn by_words(complaint: &Complaint, around: Circumstances<'_>) -> Option<Ruling> {
    let words = complaint.words.as_str();
    // A request that comes too often is in no way too long: "too many tokens" are those of a minute.
    let too_often = status_of(complaint, around) == Some(429);
    let fits = |class: FailureClass| !(too_often && class == BadRequest);
    let found = WORDS.iter().find(|(key, class, _)| words.contains(key) && fits(*class));
    let found = found.map(|(_, class, subclass)| (*class, *subclass));
    let not_found = names_missing_model(complaint);
    let (class, subclass) = match found {
        // Not found stands before overloaded and rate in the order.
        Some((Overloaded | RateLimited | EndpointNotFound, _)) | None if not_found => (ModelNotFound, ""),
        Some(found) => found,
        None => return None,
    };
    let minutely = is_aliyun(around.host) || complaint.retry_delay.is_some();
    if class == Quota && subclass == "billing" && minutely {
        return Some(Ruling::of(RateLimited));
    }
    Some(Ruling::from_table(class, subclass))
}

fn is_aliyun(host: &str) -> bool {
    host == "aliyuncs.com" || host.ends_with(".aliyuncs.com")
}

/// Whether the words say that the model is not there.
fn names_missing_model(complaint: &Complaint) -> bool {
    const MISSING: [&str; 17] = [
        "not found",
        "does not exist",
        "doesn't exist",
        "not exist",
        "could not find",
        "decommissioned",
        "no longer available",
        "no such model",
        "unknown model",
        "invalid model",
        "not a valid model",
        "no endpoints found",
        "no models loaded",
        "could not resolve the foundation model",
        "model identifier is invalid",
        "不存在",
        "无可用渠道",
    ];
    let words = complaint.words.as_str();
    // NVIDIA serves each model as a function.
    let about_model = ["model", "模型", "no endpoints found", "not found for account"];
    let about_model = about_model.iter().any(|phrase| words.contains(phrase));
    let missing = about_model && MISSING.iter().any(|phrase| words.contains(phrase));
    missing || (words.trim_start().starts_with("model:") && has_code(complaint, "notfound*"))
}

/// The status of the answer, or the one that stands in for it in a stream.
fn status_of(complaint: &Complaint, around: Circumstances<'_>) -> Option<u16> {
    if (200..300).contains(&around.http_status) { complaint.status } else { Some(around.http_status) }
}

fn by_status(complaint: &Complaint, around: Circumstances<'_>) -> Option<Ruling> {
    let mut words = complaint.words.split(|c: char| !c.is_alphanumeric());
    Some(match status_of(complaint, around)? {
        401 => Ruling::new(Auth, "invalid_key"),
        402 => Ruling::new(Quota, "billing"),
        403 => Ruling::new(Auth, "forbidden"),
        300..=399 => Ruling::new(EndpointNotFound, "redirect"),
        404 | 410 if words.any(|word| word == "model") => Ruling::of(ModelNotFound),
        404 | 405 | 410 => Ruling::of(EndpointNotFound),
        407 => Ruling::new(Edge, "proxy_auth"),
        451 => Ruling::of(ContentFilter),
        408 | 424 | 499 => Ruling::of(UpstreamError),
        413 => Ruling::new(BadRequest, "context_length"),
        429 => Ruling::of(RateLimited),
        503 | 529 => Ruling::of(Overloaded),
        400..=499 => Ruling::new(BadRequest, "other"),
        _ => Ruling::of(UpstreamError),
    })
}

fn by_weak_code(complaint: &Complaint) -> Ruling {
    find(WEAK_CODES, |key| has_code(complaint, key))
        .map_or(Ruling::of(UpstreamError), |(class, subclass)| Ruling::from_table(class, subclass))
}

/// Adds what is finer than the class and depends on more than one word.
#[expect(clippy::wildcard_enum_match_arm, reason = "most classes have nothing finer")]
fn refine(ruling: Ruling, complaint: &Complaint, around: Circumstances<'_>) -> Ruling {
    let words = complaint.words.as_str();
    match ruling.class {
        Auth if says_expired(complaint) => Ruling::new(Auth, "expired"),
        Auth if ["revoked", "deactivated", "suspended"].iter().any(|word| words.contains(word)) => {
            Ruling::new(Auth, "revoked")
        }
        Auth if ruling.subclass.is_none() => {
            let known = around.http_status == 403 && !words.contains("api key");
            Ruling::new(Auth, if known { "forbidden" } else { "invalid_key" })
        }
        ContentFilter if ruling.subclass.is_none() => {
            let of_output = around.has_answer || blames_output(words);
            Ruling::new(ContentFilter, if of_output { "output" } else { "prompt" })
        }
        Quota if ruling.subclass.as_deref() == Some("billing") && names_balance(words) => {
            Ruling::new(Quota, "balance")
        }
        Overloaded if words.contains("loading") => Ruling::new(Overloaded, "loading"),
        BadRequest if ruling.subclass.as_deref() == Some(UNSUPPORTED) => unsupported(complaint),
        _ => ruling,
    }
}

fn names_balance(words: &str) -> bool {
    words.contains("balance") || words.contains("credits")
}

/// Whether a filter stopped what the model wrote, not what it was asked.
fn blames_output(words: &str) -> bool {
    words.contains("output") && !words.contains("input") && !words.contains("prompt")
}

/// "invalid, or expired" leaves open which.
fn says_expired(complaint: &Complaint) -> bool {
    let words = complaint.words.as_str();
    if complaint.codes.iter().any(|code| code.contains("expired")) {
        return true;
    }
    let leaves_open = ["or expired", "or has expired", "or have expired", "or is expired"];
    words.contains("expired") && !leaves_open.iter().any(|phrase| words.contains(phrase))
}

fn unsupported(complaint: &Complaint) -> Ruling {
    let name = complaint.param.clone().or_else(|| quoted_name(&complaint.message));
    match name.as_deref() {
        Some("stream") => Ruling::new(BadRequest, "stream_not_allowed"),
        Some(name) => Ruling { class: BadRequest, subclass: Some(format!("{UNSUPPORTED}:{name}").into()) },
        None => Ruling::new(BadRequest, "other"),
    }
}

/// The first thing in a sentence that is written like a parameter: quoted, or before or behind a colon.
fn quoted_name(message: &str) -> Option<String> {
    let is_name = |word: &&str| {
        !word.is_empty()
            && word.len() <= 64
            && word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.'))
    };
    // Validators of Python name the place before the fault: `'loc': ('body', 'seed')`.
    let place = message.split_once("'loc'").map_or(message, |(_, place)| place);
    let quoted =
        place.split(['\'', '"', '`']).skip(1).step_by(2).find(|word| is_name(word) && *word != "body");
    let bracketed = || message.split(['[', ']']).skip(1).step_by(2).find(is_name);
    let name = quoted.or_else(bracketed).or_else(|| {
        let mut sides = message.split([':', ',']).map(str::trim);
        sides.find(|side| is_name(side) && side.starts_with(|c: char| c.is_ascii_lowercase()))
    })?;
    name.split('.').find(|part| *part != "body").map(str::to_owned)
}
