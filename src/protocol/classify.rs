//! From what a server says went wrong to one of the failure classes.
//!
//! Machine codes beat words beat status; within each, the order is that of the tables: auth, quota, content filter,
//! unsupported or too long, not found, overloaded, rate. Pure tables and their reading: knows nothing of bytes.

use std::borrow::Cow;

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

/// Judges a complaint.
pub(super) fn classify(complaint: &Complaint, around: Circumstances<'_>) -> Ruling {
    let ruling = by_code(complaint, around)
        .or_else(|| by_words(complaint, around))
        .or_else(|| by_status(complaint, around))
        .unwrap_or_else(|| by_weak_code(complaint));
    refine(ruling, complaint, around)
}

type Row = (&'static str, FailureClass, &'static str);

/// Machine codes, lower case, letters and digits only. One that ends in `*` stands for all that begin so.
const CODES: &[Row] = &[
    ("invalidgrant", Auth, "expired"),
    ("tokenexpired*", Auth, "expired"),
    ("expiredkey", Auth, "expired"),
    ("expiredtoken*", Auth, "expired"),
    ("zhipu1003", Auth, "expired"),
    ("accountdeactivated", Auth, "revoked"),
    ("tokenrevoked", Auth, "revoked"),
    ("invalidapikey*", Auth, "invalid_key"),
    ("incorrectapikey*", Auth, "invalid_key"),
    ("missingapikey", Auth, "invalid_key"),
    ("apikeyinvalid", Auth, "invalid_key"),
    ("autherror", Auth, "invalid_key"),
    ("authenticationerror", Auth, "invalid_key"),
    ("authenticationfailed", Auth, "invalid_key"),
    ("invalidauthentication*", Auth, "invalid_key"),
    ("unauthenticated", Auth, "invalid_key"),
    // LiteLLM without a database knows only its master key, and would look any other up there.
    ("nodbconnection", Auth, "invalid_key"),
    ("unauthorized*", Auth, "invalid_key"),
    ("invalidtoken", Auth, "invalid_key"),
    ("invalidclient", Auth, "invalid_key"),
    ("tokennotfoundindb", Auth, "invalid_key"),
    ("unrecognizedclient*", Auth, "invalid_key"),
    ("invalidsignature*", Auth, "invalid_key"),
    ("incompletesignature*", Auth, "invalid_key"),
    ("missingauthenticationtoken*", Auth, "invalid_key"),
    ("minimax1004", Auth, "invalid_key"),
    ("minimax2049", Auth, "invalid_key"),
    ("zhipu1000", Auth, "invalid_key"),
    ("zhipu1001", Auth, "invalid_key"),
    ("zhipu1002", Auth, "invalid_key"),
    ("zhipu1004", Auth, "invalid_key"),
    ("permission*", Auth, "forbidden"),
    ("accessdenied*", Auth, "forbidden"),
    ("modelaccessdenied*", Auth, "forbidden"),
    ("keymodelaccessdenied", Auth, "forbidden"),
    ("teammodelaccessdenied", Auth, "forbidden"),
    ("forbidden*", Auth, "forbidden"),
    ("servicedisabled", Auth, "forbidden"),
    ("apikeyserviceblocked", Auth, "forbidden"),
    ("unsupportedcountryregionterritory", Auth, "forbidden"),
    ("zhipu1112", Auth, "forbidden"),
    ("zhipu1220", Auth, "forbidden"),
    ("insufficientquota", Quota, "billing"),
    ("billing*", Quota, "billing"),
    ("arrearage*", Quota, "balance"),
    ("insufficientbalance*", Quota, "balance"),
    ("insufficientcredit*", Quota, "balance"),
    ("prepaidbilloverdue", Quota, "balance"),
    ("postpaidbilloverdue", Quota, "balance"),
    ("commoditynotpurchased", Quota, "balance"),
    ("minimax1008", Quota, "balance"),
    ("zhipu1113", Quota, "balance"),
    ("quotaexhausted", Quota, "exhausted"),
    ("quotaexceeded", Quota, "exhausted"),
    ("allocationquota*", Quota, "exhausted"),
    ("budgetexceeded*", Quota, "exhausted"),
    ("usagelimitreached", Quota, "exhausted"),
    ("servicequotaexceeded*", Quota, "exhausted"),
    ("minimax2056", Quota, "exhausted"),
    ("zhipu1304", Quota, "exhausted"),
    ("zhipu1308", Quota, "exhausted"),
    ("zhipu1309", Quota, "exhausted"),
    ("zhipu1310", Quota, "exhausted"),
    ("minimax1027", ContentFilter, "output"),
    ("contentfilter*", ContentFilter, ""),
    ("contentpolicy*", ContentFilter, ""),
    ("responsibleaipolicyviolation", ContentFilter, ""),
    ("prohibitedcontent", ContentFilter, ""),
    ("safety*", ContentFilter, ""),
    ("blocklist", ContentFilter, ""),
    ("sensitive*", ContentFilter, ""),
    ("datainspection*", ContentFilter, ""),
    ("moderation*", ContentFilter, ""),
    ("minimax1026", ContentFilter, "prompt"),
    ("zhipu1301", ContentFilter, ""),
    ("contextlength*", BadRequest, "context_length"),
    ("exceedcontextsize*", BadRequest, "context_length"),
    ("contextwindow*", BadRequest, "context_length"),
    ("stringabovemaxlength", BadRequest, "context_length"),
    ("requesttoolarge", BadRequest, "context_length"),
    ("prompttoolong", BadRequest, "context_length"),
    ("zhipu1261", BadRequest, "context_length"),
    ("unsupportedparameter*", BadRequest, UNSUPPORTED),
    ("unsupportedvalue", BadRequest, UNSUPPORTED),
    ("unknownparameter", BadRequest, UNSUPPORTED),
    ("unrecognizedrequestargument", BadRequest, UNSUPPORTED),
    ("extraforbidden", BadRequest, UNSUPPORTED),
    ("modelnotfound*", ModelNotFound, ""),
    ("modelnotexist*", ModelNotFound, ""),
    ("modelnotavailable", ModelNotFound, ""),
    ("modelnotsupported", ModelNotFound, ""),
    ("invalidmodel*", ModelNotFound, ""),
    ("deploymentnotfound", ModelNotFound, ""),
    ("zhipu1211", ModelNotFound, ""),
    ("unknownurl", EndpointNotFound, ""),
    ("modelnotready*", Overloaded, "loading"),
    ("modelloading", Overloaded, "loading"),
    ("overloaded*", Overloaded, ""),
    ("engineoverloaded*", Overloaded, ""),
    ("serverisoverloaded", Overloaded, ""),
    ("serveroverloaded", Overloaded, ""),
    ("modeloverloaded", Overloaded, ""),
    ("slowdown", Overloaded, ""),
    ("unavailable", Overloaded, ""),
    ("unavailableerror", Overloaded, ""),
    ("serviceunavailable*", Overloaded, ""),
    ("capacityexceeded", Overloaded, ""),
    ("insufficientsystemresource", Overloaded, ""),
    ("zhipu1305", Overloaded, ""),
    ("ratelimit*", RateLimited, ""),
    ("throttling*", RateLimited, ""),
    ("toomanyrequests*", RateLimited, ""),
    ("resourceexhausted", RateLimited, ""),
    ("limitrequests", RateLimited, ""),
    ("limitburstrate", RateLimited, ""),
    ("minimax1002", RateLimited, ""),
    ("minimax1039", RateLimited, ""),
    ("minimax1041", RateLimited, ""),
    ("zhipu1302", RateLimited, ""),
    ("zhipu1303", RateLimited, ""),
];

/// Words for humans, lower case.
const WORDS: &[Row] = &[
    ("incorrect api key", Auth, "invalid_key"),
    ("invalid api key", Auth, "invalid_key"),
    ("invalid api-key", Auth, "invalid_key"),
    ("api key not valid", Auth, "invalid_key"),
    ("api key is invalid", Auth, "invalid_key"),
    ("api key expired", Auth, "expired"),
    ("no api key", Auth, "invalid_key"),
    ("missing api key", Auth, "invalid_key"),
    ("didn't provide an api key", Auth, "invalid_key"),
    ("invalid x-api-key", Auth, "invalid_key"),
    ("invalid authentication", Auth, "invalid_key"),
    ("authentication fail", Auth, "invalid_key"),
    ("authentication error", Auth, "invalid_key"),
    ("no auth credentials", Auth, "invalid_key"),
    ("no cookie auth credentials", Auth, "invalid_key"),
    ("invalid token", Auth, "invalid_key"),
    ("invalid bearer", Auth, "invalid_key"),
    ("invalid credential", Auth, "invalid_key"),
    ("token has expired", Auth, "expired"),
    ("token expired", Auth, "expired"),
    ("token is expired", Auth, "expired"),
    ("has been revoked", Auth, "revoked"),
    ("insufficient balance", Quota, "balance"),
    ("insufficient credit", Quota, "balance"),
    ("insufficient funds", Quota, "balance"),
    ("credit balance", Quota, "balance"),
    ("out of credit", Quota, "balance"),
    ("more credits", Quota, "balance"),
    ("available credits", Quota, "balance"),
    ("in good standing", Quota, "balance"),
    ("arrears", Quota, "balance"),
    ("exceeded your current quota", Quota, "billing"),
    ("billing details", Quota, "billing"),
    ("billing hard limit", Quota, "billing"),
    ("payment required", Quota, "billing"),
    ("budget has been exceeded", Quota, "exhausted"),
    ("exceeded your monthly", Quota, "exhausted"),
    ("exceeded your daily", Quota, "exhausted"),
    ("daily limit", Quota, "exhausted"),
    ("monthly limit", Quota, "exhausted"),
    ("weekly limit", Quota, "exhausted"),
    ("spending limit", Quota, "exhausted"),
    ("usage limit", Quota, "exhausted"),
    ("free quota", Quota, "exhausted"),
    ("content management policy", ContentFilter, ""),
    ("content policy", ContentFilter, ""),
    ("content filter", ContentFilter, ""),
    ("content_filter", ContentFilter, ""),
    ("usage policy", ContentFilter, ""),
    ("usage policies", ContentFilter, ""),
    ("safety system", ContentFilter, ""),
    ("was flagged", ContentFilter, ""),
    ("inappropriate content", ContentFilter, ""),
    ("sensitive content", ContentFilter, ""),
    ("maximum context length", BadRequest, "context_length"),
    ("context length", BadRequest, "context_length"),
    ("context window", BadRequest, "context_length"),
    ("context size", BadRequest, "context_length"),
    ("prompt is too long", BadRequest, "context_length"),
    ("prompt too long", BadRequest, "context_length"),
    ("input is too long", BadRequest, "context_length"),
    ("input too long", BadRequest, "context_length"),
    ("too many tokens", BadRequest, "context_length"),
    ("too many input tokens", BadRequest, "context_length"),
    ("input token count", BadRequest, "context_length"),
    ("max_new_tokens` must be", BadRequest, "context_length"),
    ("maximum prompt length", BadRequest, "context_length"),
    ("max message tokens", BadRequest, "context_length"),
    ("max_model_len", BadRequest, "context_length"),
    ("maximum input length", BadRequest, "context_length"),
    ("range of input length", BadRequest, "context_length"),
    ("reduce the length", BadRequest, "context_length"),
    ("verified to stream", BadRequest, "stream_not_allowed"),
    ("streaming is not supported", BadRequest, "stream_not_allowed"),
    ("stream is not supported", BadRequest, "stream_not_allowed"),
    ("does not support streaming", BadRequest, "stream_not_allowed"),
    ("doesn't support streaming", BadRequest, "stream_not_allowed"),
    ("not support stream", BadRequest, "stream_not_allowed"),
    ("unsupported parameter", BadRequest, UNSUPPORTED),
    ("unsupported value", BadRequest, UNSUPPORTED),
    ("unknown parameter", BadRequest, UNSUPPORTED),
    ("unrecognized request argument", BadRequest, UNSUPPORTED),
    ("extra inputs are not permitted", BadRequest, UNSUPPORTED),
    ("extra fields not permitted", BadRequest, UNSUPPORTED),
    ("extra_forbidden", BadRequest, UNSUPPORTED),
    ("does not support parameters", BadRequest, UNSUPPORTED),
    ("unexpected keyword argument", BadRequest, UNSUPPORTED),
    ("unknown name \"", BadRequest, UNSUPPORTED),
    ("unknown field", BadRequest, UNSUPPORTED),
    ("is unsupported", BadRequest, UNSUPPORTED),
    ("is not supported with this model", BadRequest, UNSUPPORTED),
    ("is not supported for this model", BadRequest, UNSUPPORTED),
    ("is deprecated for this model", BadRequest, UNSUPPORTED),
    ("invalid url", EndpointNotFound, ""),
    ("unknown request url", EndpointNotFound, ""),
    ("no route", EndpointNotFound, ""),
    ("route not found", EndpointNotFound, ""),
    ("missing authentication token", EndpointNotFound, ""),
    ("method not allowed", EndpointNotFound, ""),
    ("file not found", EndpointNotFound, ""),
    ("currently loading", Overloaded, "loading"),
    ("loading model", Overloaded, "loading"),
    ("model is loading", Overloaded, "loading"),
    ("still loading", Overloaded, "loading"),
    ("being loaded", Overloaded, "loading"),
    ("warming up", Overloaded, "loading"),
    ("overloaded", Overloaded, ""),
    ("server is busy", Overloaded, ""),
    ("server busy", Overloaded, ""),
    ("too busy", Overloaded, ""),
    ("high demand", Overloaded, ""),
    ("at capacity", Overloaded, ""),
    ("over capacity", Overloaded, ""),
    ("queue is full", Overloaded, ""),
    ("queue full", Overloaded, ""),
    ("temporarily unavailable", Overloaded, ""),
    ("no available workers", Overloaded, ""),
    ("rate limit", RateLimited, ""),
    ("rate-limit", RateLimited, ""),
    ("ratelimit", RateLimited, ""),
    ("too many requests", RateLimited, ""),
    ("requests per minute", RateLimited, ""),
    ("tokens per minute", RateLimited, ""),
    ("throttl", RateLimited, ""),
];

/// Codes so general that words and status know better.
const WEAK_CODES: &[Row] = &[
    ("invalidrequest*", BadRequest, "other"),
    ("badrequest*", BadRequest, "other"),
    ("invalidargument", BadRequest, "other"),
    ("invalidparameter*", BadRequest, "other"),
    ("validation*", BadRequest, "other"),
    ("failedprecondition", BadRequest, "other"),
    ("minimax2013", BadRequest, "other"),
    ("notfound*", EndpointNotFound, ""),
    ("resourcenotfound*", EndpointNotFound, ""),
];

/// Marks a rejected parameter; the name is added by [`refine`].
const UNSUPPORTED: &str = "unsupported_param";

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
    let found = find(WORDS, |key| words.contains(key));
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
    const MISSING: [&str; 13] = [
        "not found",
        "does not exist",
        "doesn't exist",
        "not exist",
        "no such model",
        "unknown model",
        "invalid model",
        "not a valid model",
        "no endpoints found",
        "could not find model",
        "no models loaded",
        "could not resolve the foundation model",
        "model identifier is invalid",
    ];
    let words = complaint.words.as_str();
    let about_model = words.contains("model") || words.contains("no endpoints found");
    let missing = about_model && MISSING.iter().any(|phrase| words.contains(phrase));
    missing || (words.trim_start().starts_with("model:") && has_code(complaint, "notfound*"))
}

fn by_status(complaint: &Complaint, around: Circumstances<'_>) -> Option<Ruling> {
    let status =
        if (200..300).contains(&around.http_status) { complaint.status? } else { around.http_status };
    Some(match status {
        401 => Ruling::new(Auth, "invalid_key"),
        402 => Ruling::new(Quota, "billing"),
        403 => Ruling::new(Auth, "forbidden"),
        300..=399 => Ruling::new(EndpointNotFound, "redirect"),
        404 | 405 | 410 => Ruling::of(EndpointNotFound),
        407 => Ruling::new(Edge, "proxy_auth"),
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
        Auth if says_expired(words) => Ruling::new(Auth, "expired"),
        Auth if ["revoked", "deactivated", "suspended"].iter().any(|word| words.contains(word)) => {
            Ruling::new(Auth, "revoked")
        }
        Auth if ruling.subclass.as_deref() == Some("invalid_key") && around.http_status == 403 => {
            Ruling::new(Auth, if words.contains("api key") { "invalid_key" } else { "forbidden" })
        }
        ContentFilter if ruling.subclass.is_none() => {
            let of_output = around.has_answer || words.contains("output data");
            Ruling::new(ContentFilter, if of_output { "output" } else { "prompt" })
        }
        Quota if words.contains("balance") || words.contains("credits") => Ruling::new(Quota, "balance"),
        Overloaded if words.contains("loading") => Ruling::new(Overloaded, "loading"),
        BadRequest if ruling.subclass.as_deref() == Some(UNSUPPORTED) => unsupported(complaint),
        _ => ruling,
    }
}

/// "invalid, or expired" leaves open which.
fn says_expired(words: &str) -> bool {
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
    let quoted = message.split(['\'', '"', '`']).skip(1).step_by(2).find(is_name);
    let name = quoted.or_else(|| {
        let mut sides = message.split(':').map(str::trim);
        sides.find(|side| is_name(side) && side.chars().any(|c| c.is_ascii_lowercase()))
    })?;
    name.split('.').find(|part| *part != "body").map(str::to_owned)
}
