//! The configuration of a run as JSON that holds no secret: every setting that can make one run differ from another.

use serde_json::{Map, Value, json};

use crate::{
    config::{Credential, REDACTED, Redactor, Sweep, Target},
    prompt::Prompts,
};

/// A sweep's whole plan. What it repeats of the configuration's texts goes through `redactor`.
#[must_use]
pub fn run_plan(sweep: &Sweep, redactor: &Redactor) -> Value {
    let level = &sweep.level;
    let timeouts = &level.timeouts;
    let objectives = &sweep.objectives;
    let seconds = |time: Option<std::time::Duration>| time.map(|time| time.as_secs_f64());
    let targets: Map<String, Value> = sweep
        .targets
        .iter()
        .map(|(target, models)| (target.name.to_string(), of_target(target, models)))
        .collect();
    let mut plan = json!({
        "sweep": &*sweep.name,
        "schedule": sweep.schedule.to_string(),
        "targets": targets,
        "prompt_tokens": sweep.prompt_tokens,
        "concurrency": sweep.concurrency,
        "requests_per_level": level.requests,
        "warmup_requests": level.warmup_requests,
        "max_tokens": level.max_tokens,
        "reasoning_budget": level.reasoning_budget,
        "temperature": level.temperature,
        "timeout": {
            "connect": timeouts.connect.as_secs_f64(),
            "headers": timeouts.headers.as_secs_f64(),
            "first_token": timeouts.first_token.as_secs_f64(),
            "stall": timeouts.stall.as_secs_f64(),
            "total": timeouts.total.as_secs_f64(),
        },
        "connection": word(&level.connection),
        "prefix_cache": level.prefix_cache.to_string(),
        "prompt_language": word(&level.prompt_language),
        "prompts": prompts(&level.prompts),
        "calibrate": level.calibrate,
        "refine": sweep.refine,
        "max_tokens_control": sweep.max_tokens_control,
        "objectives": {
            "ttft": seconds(objectives.ttft),
            "tpot": seconds(objectives.tpot),
            "duration": seconds(objectives.duration),
            "success_ratio": objectives.success_ratio,
        },
        "abort": { "failure_ratio": sweep.abort.failure_ratio, "after_knee": sweep.abort.after_knee },
    });
    if let Some(members) = plan.as_object_mut().filter(|_| !sweep.rates.is_empty()) {
        members.insert("rates".into(), json!(sweep.rates));
        members.insert("arrivals".into(), json!(level.arrivals));
    }
    redact(&mut plan, redactor);
    plan
}

/// Where prompts come from; texts by a mark that tells them apart.
fn prompts(prompts: &Prompts) -> Value {
    match prompts {
        Prompts::Generated => "generated".into(),
        Prompts::Text(_) => format!("text {}", prompts.mark()).into(),
        Prompts::Real(_) => "real".into(),
    }
}

fn of_target(target: &Target, models: &[std::sync::Arc<str>]) -> Value {
    let models: Vec<&str> = models.iter().map(AsRef::as_ref).collect();
    let headers: Vec<&str> = target.extra_headers.iter().map(|(name, _)| name.as_str()).collect();
    let parameters: Vec<&str> = target.query.iter().map(|(name, _)| name.as_str()).collect();
    json!({
        "base_url": target.base_url.as_str(),
        "protocol": target.protocol,
        "models": models,
        "credential": kind(&target.credential),
        "auth_header": target.auth_header.as_ref().map(http::HeaderName::as_str),
        "query": parameters,
        "extra_body": target.extra_body,
        "extra_headers": headers,
        "max_tokens_field": target.max_tokens_field,
        "http_version": word(&target.http_version),
        "engine_metrics_url": target.engine_metrics_url.as_ref().map(engine_url),
        // Host and port: the user information of a proxy is a credential.
        "proxy": target.proxy.as_ref().and_then(|proxy| Some(format!("{}:{}", proxy.host()?, proxy.port_u16().unwrap_or(80)))),
        "tls_insecure_skip_verify": target.tls.insecure_skip_verify,
        "tls_ca_file": target.tls.ca_file.as_ref().map(|path| path.display().to_string()),
        "allow_overlap": target.allow_overlap,
    })
}

/// Without its query, which may hold a credential.
fn engine_url(url: &http::Uri) -> String {
    let place = url.authority().map_or("", http::uri::Authority::as_str);
    format!("{}://{place}{}", url.scheme_str().unwrap_or("http"), url.path())
}

/// What proves who asks, without the proof.
fn kind(credential: &Credential) -> &'static str {
    match credential {
        Credential::None => "none",
        Credential::Keys(_) => "api_key",
        Credential::OAuth2(_) => "oauth2",
        Credential::Command(_) => "token_command",
        Credential::Aws(_) => "aws",
    }
}

/// An enum's variant as a word; these types have no wire form of their own.
fn word(value: &impl std::fmt::Debug) -> String {
    format!("{value:?}").to_ascii_lowercase()
}

fn redact(value: &mut Value, redactor: &Redactor) {
    match value {
        Value::String(text) => *text = redactor.redact(text).into_owned(),
        Value::Array(elements) => elements.iter_mut().for_each(|element| redact(element, redactor)),
        Value::Object(members) => {
            for (name, member) in members {
                if member.is_string() && names_a_secret(name) {
                    *member = REDACTED.into();
                } else {
                    redact(member, redactor);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// A credential that stands in `extra_body` is not known as one; its name gives it away.
fn names_a_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["key", "secret", "password", "_token", "authorization"].iter().any(|ending| name.ends_with(ending))
}
