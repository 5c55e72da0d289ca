//! `[[targets]]`: one endpoint of the file, and its rules between keys.
//!
//! Knows nothing of sweeps. Whatever may be a credential is masked before anything is said about it.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    sync::Arc,
};

use http::{HeaderName, HeaderValue, Uri};
use secrecy::ExposeSecret;
use serde_json::{Map, Value};

use super::{
    ClientCertificate, Credential, HttpVersion, Target, TlsTrust, budget, credential,
    diagnostic::Placed,
    file::{Base, Concurrency, FilePath, Flag, MetricsUrl, Model, Name, PositiveDuration, Text},
    secret::{Environment, Secret, SecretError, check_certificates, check_private_key},
    section::{Section, kind},
    written_secret::written_secret,
};
use crate::protocol::{MaxTokensField, Protocol};

/// What reading a target needs from outside the file.
pub(super) struct Surroundings<'a> {
    /// Where secrets named by a variable come from.
    pub environment: &'a dyn Environment,
    /// What relative paths are relative to.
    pub directory: &'a Path,
}

const PROTOCOLS: [&str; 8] = [
    "openai-chat",
    "openai-completions",
    "openai-responses",
    "anthropic",
    "gemini",
    "ollama",
    "dashscope",
    "bedrock",
];
const MAX_TOKENS_FIELDS: [&str; 2] = ["max_tokens", "max_completion_tokens"];
const HTTP_VERSIONS: [&str; 3] = ["auto", "1.1", "2"];
/// Headers the client itself writes; another value would break the request or the measurement.
const MANAGED_HEADERS: [&str; 5] =
    ["accept-encoding", "connection", "content-length", "host", "transfer-encoding"];
/// Words in a header's name that make its value a credential.
const CREDENTIAL_WORDS: [&str; 7] = ["auth", "key", "token", "secret", "cookie", "pass", "credential"];

/// Reads one target; `None` when it has no usable name, URL or models (which was complained about).
pub(super) fn read(section: Section<'_>, surroundings: &Surroundings<'_>) -> Option<Placed<Target>> {
    let name = section.value::<Name>("name");
    if section.raw("name").is_none() {
        section.missing("name", "add name = \"...\", it becomes the label `target`");
    }
    mask_url(&section, "base_url");
    mask_url(&section, "proxy");
    mask_url(&section, "engine_metrics_url");
    let base_url = section.value::<Base>("base_url");
    if section.raw("base_url").is_none() {
        section.missing("base_url", "add base_url = \"https://host/v1\"");
    }
    let models = models(&section);
    let protocol: Protocol = section.choice("protocol", &PROTOCOLS).unwrap_or_default();
    let max_tokens_field: MaxTokensField =
        section.choice("max_tokens_field", &MAX_TOKENS_FIELDS).unwrap_or_default();
    let http_version: HttpVersion = section.choice("http_version", &HTTP_VERSIONS).unwrap_or_default();
    let credential = credential::read(&section, surroundings, base_url.as_ref().map(|url| &url.value.0));
    let auth_header = credential::header(&section, &credential);
    let extra_headers = extra_headers(&section, surroundings, !matches!(credential, Credential::None));
    let query = query(&section, surroundings);
    let extra_body = extra_body(&section);
    let engine_metrics_url = section.value::<MetricsUrl>("engine_metrics_url").map(|url| url.value.0);
    let proxy = proxy(&section);
    let tls = tls(&section, surroundings);
    let allow_overlap = section.value::<Flag>("allow_overlap").is_some_and(|flag| flag.value.0);
    let max_in_flight = section.value::<Concurrency>("max_in_flight").map(|most| most.value.0);
    let cold_after =
        section.value::<PositiveDuration>("cold_after").map_or(super::COLD_AFTER, |after| after.value.0);
    mask_url(&section, "awake_url");
    let awake_url = section.value::<Base>("awake_url").map(|url| url.value.0);
    let prices = budget::prices(&section, models.as_deref().unwrap_or_default());
    let limits = budget::limits(&section);
    if let (Some(name), Some(models)) = (&name, &models) {
        budget::complain_if_own_unpriced(&section, &limits, &name.value.0, &prices, models);
    }
    if let (Some(url), Some(tls_at)) = (&base_url, section.raw("tls"))
        && !url.value.0.is_tls()
    {
        section.notes().warn(&section.at("tls", tls_at.span()), "has no effect: base_url is not https");
    }
    section.finish();
    let name = name?;
    let target = Target {
        name: name.value.0.into(),
        base_url: base_url?.value.0,
        protocol,
        credential,
        auth_header,
        query,
        models: models?,
        extra_body,
        extra_headers,
        max_tokens_field,
        http_version,
        engine_metrics_url,
        proxy,
        tls,
        allow_overlap,
        max_in_flight,
        cold_after,
        awake_url,
        prices,
        budget: limits,
    };
    Some(Placed { value: target, at: name.at })
}

fn models(section: &Section<'_>) -> Option<Vec<Arc<str>>> {
    let models = section.list::<Model>("models");
    if section.raw("models").is_none() {
        section.missing("models", "add models = [\"...\"], as GET /models of the endpoint names them");
    }
    let models = models?.value;
    let mut seen = HashSet::new();
    for model in &models {
        if !seen.insert(model.value.0.as_str()) {
            section.notes().complain(&model.at, format!("\"{}\" is listed twice; remove one", model.value.0));
        }
    }
    Some(models.iter().map(|model| Arc::from(model.value.0.as_str())).collect())
}

/// Hides a URL that holds a credential where URLs have them.
fn mask_url(section: &Section<'_>, key: &'static str) {
    let Some(raw) = section.raw(key) else { return };
    if raw.get_ref().as_str().is_none_or(|text| text.contains(['@', '?'])) {
        section.notes().mask(raw.span());
    }
}

fn extra_headers(
    section: &Section<'_>,
    surroundings: &Surroundings<'_>,
    has_key: bool,
) -> Vec<(HeaderName, Secret)> {
    let Some(headers) = section.section("extra_headers") else { return Vec::new() };
    let mut list = Vec::new();
    for (name, raw) in headers.entries() {
        let Ok(header) = HeaderName::from_bytes(name.value.as_bytes()) else {
            section.notes().mask(raw.span());
            section.notes().complain(&name.at, "is not a header name; write one like \"X-Team\"");
            continue;
        };
        if let Some(message) = refused_header(&header, has_key) {
            section.notes().mask(raw.span());
            section.notes().complain(&name.at, message);
            continue;
        }
        let is_credential = CREDENTIAL_WORDS.iter().any(|word| header.as_str().contains(word));
        let literal = if is_credential { Secret::literal } else { Secret::plain };
        let at = headers.at(name.value, raw.span());
        let Some(value) = written_secret(&headers, "extra_headers", &at, raw, surroundings, literal) else {
            continue;
        };
        if HeaderValue::from_str(value.reveal().expose_secret()).is_err() {
            section
                .notes()
                .complain(&at, "holds characters a header cannot carry; keep it to one line of text");
        }
        if is_credential && value.is_literal() {
            section.notes().warn(&at, "looks like a credential; { env = \"...\" } keeps it out of the file");
        }
        list.push((header, value));
    }
    list
}

fn refused_header(header: &HeaderName, has_key: bool) -> Option<String> {
    if MANAGED_HEADERS.contains(&header.as_str()) {
        return Some("is written by tokenprobe itself; remove it".to_owned());
    }
    (has_key && header == http::header::AUTHORIZATION)
        .then(|| "is already made from the target's credential; remove one of the two".to_owned())
}

/// Parameters behind every URL, as gateways and Azure want them.
fn query(section: &Section<'_>, surroundings: &Surroundings<'_>) -> Vec<(String, Secret)> {
    let Some(query) = section.section("query") else { return Vec::new() };
    let mut list = Vec::new();
    for (name, raw) in query.entries() {
        let lower = name.value.to_ascii_lowercase();
        let is_credential = CREDENTIAL_WORDS.iter().any(|word| lower.contains(word));
        let literal = if is_credential { Secret::literal } else { Secret::plain };
        let at = query.at(name.value, raw.span());
        let Some(value) = written_secret(&query, "query", &at, raw, surroundings, literal) else { continue };
        if is_credential && value.is_literal() {
            query.notes().warn(&at, "looks like a credential; { env = \"...\" } keeps it out of the file");
        }
        list.push((name.value.to_owned(), value));
    }
    list
}

/// A table, or JSON in a string for what TOML cannot say (`null`).
fn extra_body(section: &Section<'_>) -> Map<String, Value> {
    let Some(raw) = section.raw("extra_body") else { return Map::new() };
    let at = section.at("extra_body", raw.span());
    let body = match raw.get_ref().as_str() {
        Some(text) => serde_json::from_str(text).map_err(|error| format!("is not JSON: {error}")),
        None if raw.get_ref().is_table() => section
            .value::<toml::Table>("extra_body")
            .map_or_else(|| Ok(Value::Object(Map::new())), |table| json(toml::Value::Table(table.value))),
        None => Err(format!("must be a table, not {}", kind(raw.get_ref()))),
    };
    let message = match body {
        Ok(Value::Object(members)) => {
            if members.get("stream").is_some_and(|stream| *stream != Value::Bool(true)) {
                let message = "sets `stream`: without a stream there is no first token to time; leave it out";
                section.notes().warn(&at, message);
            }
            return members;
        }
        Ok(_) => "must be a JSON object; write '{ \"name\": ... }'".to_owned(),
        Err(message) => message,
    };
    section.notes().complain(&at, message);
    Map::new()
}

fn json(value: toml::Value) -> Result<Value, String> {
    Ok(match value {
        toml::Value::String(text) => Value::String(text),
        toml::Value::Integer(number) => Value::from(number),
        toml::Value::Float(number) => serde_json::Number::from_f64(number)
            .map(Value::Number)
            .ok_or_else(|| format!("holds {number}, which JSON does not know"))?,
        toml::Value::Boolean(flag) => Value::Bool(flag),
        toml::Value::Datetime(date) => Value::String(date.to_string()),
        toml::Value::Array(list) => Value::Array(list.into_iter().map(json).collect::<Result<_, _>>()?),
        toml::Value::Table(table) => {
            let members = table.into_iter().map(|(key, value)| Ok((key, json(value)?)));
            Value::Object(members.collect::<Result<_, String>>()?)
        }
    })
}

fn proxy(section: &Section<'_>) -> Option<Uri> {
    let text = section.value::<Text>("proxy")?;
    let uri: Option<Uri> = text.value.0.trim().parse().ok();
    let good = uri.filter(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty())
    });
    if good.is_none() {
        section
            .notes()
            .complain(&text.at, "is not a proxy's URL; write one like \"http://proxy.example:3128\"");
    }
    good
}

fn tls(section: &Section<'_>, surroundings: &Surroundings<'_>) -> TlsTrust {
    let Some(tls) = section.section("tls") else { return TlsTrust::default() };
    let skip = tls.value::<Flag>("insecure_skip_verify");
    let ca_file = tls.value::<FilePath>("ca_file").and_then(|path| ca_file(&tls, &path, surroundings));
    if let Some(skip) = skip.as_ref().filter(|skip| skip.value.0) {
        tls.notes().warn(&skip.at, "accepts any certificate, so the key can be stolen; ca_file is safer");
    }
    let client_certificate = client_certificate(&tls, surroundings);
    tls.finish();
    TlsTrust { insecure_skip_verify: skip.is_some_and(|skip| skip.value.0), ca_file, client_certificate }
}

fn client_certificate(tls: &Section<'_>, surroundings: &Surroundings<'_>) -> Option<ClientCertificate> {
    let file = |key: &'static str, check: fn(&Path) -> Result<(), SecretError>| {
        let path = tls.value::<FilePath>(key)?;
        let full = surroundings.directory.join(&path.value.0);
        check(&full).map_err(|error| tls.notes().complain(&path.at, error.to_string())).ok()?;
        Some(full)
    };
    let cert_file = file("client_cert_file", check_certificates);
    let key_file = file("client_key_file", check_private_key);
    for (key, other) in [("client_cert_file", "client_key_file"), ("client_key_file", "client_cert_file")] {
        if tls.raw(key).is_none() && tls.raw(other).is_some() {
            tls.missing(key, "a client certificate needs its key, and a key its certificate: add the other");
        }
    }
    Some(ClientCertificate { cert_file: cert_file?, key_file: key_file? })
}

fn ca_file(tls: &Section<'_>, path: &Placed<FilePath>, surroundings: &Surroundings<'_>) -> Option<PathBuf> {
    let full = surroundings.directory.join(&path.value.0);
    match check_certificates(&full) {
        Ok(()) => Some(full),
        Err(error) => {
            tls.notes().complain(&path.at, error.to_string());
            None
        }
    }
}
