//! Answers that never reach the engine: refusals in vLLM's words, and the faults that come before an answer.
//!
//! Pure: decides from the request and the faults, and touches nothing.

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};

use super::{
    engine::Finish,
    fault::{Fault, Faults},
    profile::ModelProfile,
    wire::{self, Request},
};

/// An answer instead of a generation.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    body: Content,
    retry_after_seconds: Option<u32>,
}

#[derive(Debug, Clone, PartialEq)]
enum Content {
    Json(Value),
    Html(&'static str),
}

impl Refusal {
    fn json(status: StatusCode, body: Value) -> Self {
        Self { status, body: Content::Json(body), retry_after_seconds: None }
    }

    fn error(status: StatusCode, kind: &str, param: Option<&str>, message: &str) -> Self {
        Self::json(status, wire::error(status.as_u16(), kind, param, message))
    }

    pub(super) fn unauthorized() -> Self {
        Self::json(StatusCode::UNAUTHORIZED, json!({"error": "Unauthorized"}))
    }

    pub(super) fn bad_json(why: &str) -> Self {
        Self::error(
            StatusCode::BAD_REQUEST,
            "Bad Request",
            Some("body"),
            &format!("1 validation error:\n  {why}"),
        )
    }

    pub(super) fn missing(member: &str) -> Self {
        let message = format!(
            "1 validation error:\n  {{'type': 'missing', 'loc': 'body.{member}', 'msg': 'Field required'}}"
        );
        Self::error(StatusCode::BAD_REQUEST, "Bad Request", Some(&format!("body.{member}")), &message)
    }

    pub(super) fn unknown_model(asked: &str, known: &[ModelProfile]) -> Self {
        let known = known.iter().map(|model| model.name.as_str()).collect::<Vec<_>>().join(", ");
        let message = format!("The model `{asked}` does not exist. Valid aliases: {known}.");
        Self::error(StatusCode::NOT_FOUND, "NotFoundError", Some("model"), &message)
    }

    pub(super) fn unknown_suffix(asked: &str, suffix: &str) -> Self {
        let message = format!(
            "The model `{asked}` does not exist: unknown suffix `+{suffix}`. Known ones: {}.",
            Faults::names()
        );
        Self::error(StatusCode::NOT_FOUND, "NotFoundError", Some("model"), &message)
    }

    pub(super) fn stopping() -> Self {
        Self::error(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", None, "The simulator is stopping.")
    }

    /// The refusal that a fault asks for, if one does. `request_number` counts from one.
    pub(super) fn by_fault(faults: Faults, request: &Request, request_number: u64) -> Option<Self> {
        const FLAKY_EVERY: u64 = 5;
        let model = &request.model;
        if faults.has(Fault::Unauthorized) {
            return Some(Self::unauthorized());
        }
        if faults.has(Fault::NotFound) {
            return Some(Self::unknown_model(model, &[]));
        }
        if faults.has(Fault::RateLimited) {
            let message = "Rate limit reached for requests. Please try again in 1s.";
            let refusal = Self::error(StatusCode::TOO_MANY_REQUESTS, "RateLimitError", None, message);
            return Some(Self { retry_after_seconds: Some(1), ..refusal });
        }
        let flaked = faults.has(Fault::Flaky) && request_number.is_multiple_of(FLAKY_EVERY);
        if faults.has(Fault::ServerError) || flaked {
            let message = "EngineCore encountered an issue. See stack trace (above) for the root cause.";
            return Some(Self::error(
                StatusCode::INTERNAL_SERVER_ERROR,
                "InternalServerError",
                None,
                message,
            ));
        }
        if faults.has(Fault::Unavailable) {
            let message = "The server is overloaded or not ready yet.";
            return Some(Self::error(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", None, message));
        }
        if faults.has(Fault::Html) {
            let page =
                "<!DOCTYPE html><html><head><title>Sign in</title></head><body>Please sign in.</body></html>";
            return Some(Self {
                status: StatusCode::OK,
                body: Content::Html(page),
                retry_after_seconds: None,
            });
        }
        if faults.has(Fault::UsageRejected) && request.stream_options.is_some() {
            let message = "Unsupported parameter: 'stream_options' is not supported with this model.";
            return Some(Self::error(
                StatusCode::BAD_REQUEST,
                "BadRequestError",
                Some("stream_options"),
                message,
            ));
        }
        None
    }
}

/// How many tokens to generate, and why the last will be the last; or why none.
pub(super) fn output(
    request: &Request,
    profile: &ModelProfile,
    prompt_tokens: u32,
    reasoning_tokens: u32,
) -> Result<(u32, Finish), Refusal> {
    let (param, asked) = match (request.max_completion_tokens, request.max_tokens) {
        (Some(tokens), _) => ("max_completion_tokens", Some(tokens)),
        (None, tokens) => ("max_tokens", tokens),
    };
    let room = profile.context_tokens.saturating_sub(prompt_tokens);
    if room == 0 {
        return Err(too_long(profile.context_tokens, prompt_tokens));
    }
    let natural = profile.answer_tokens.saturating_add(reasoning_tokens).max(1);
    let limit = match asked {
        None => room,
        Some(tokens) if tokens < 1 => return Err(too_few(param, tokens)),
        Some(tokens) => match u32::try_from(tokens) {
            Ok(tokens) if tokens <= room => tokens,
            _ => return Err(too_many(param, tokens, profile.context_tokens, prompt_tokens)),
        },
    };
    if request.ignore_eos && asked.is_some() {
        return Ok((limit, Finish::Length));
    }
    Ok(if natural <= limit { (natural, Finish::Stop) } else { (limit, Finish::Length) })
}

fn too_few(param: &str, tokens: i64) -> Refusal {
    let message = format!("{param} must be at least 1, got {tokens}. (parameter={param}, value={tokens})");
    Refusal::error(StatusCode::BAD_REQUEST, "BadRequestError", Some(param), &message)
}

fn too_many(param: &str, tokens: i64, context_tokens: u32, prompt_tokens: u32) -> Refusal {
    let message = if tokens > i64::from(context_tokens) {
        format!(
            "{param}={tokens} cannot be greater than max_model_len={context_tokens}. Please request fewer output \
             tokens. (parameter={param}, value={tokens})"
        )
    } else {
        format!(
            "This model's maximum context length is {context_tokens} tokens. However, you requested {tokens} output \
             tokens and your prompt contains {prompt_tokens} input tokens, for a total of {} tokens. Please reduce the \
             length of the input prompt or the number of requested output tokens. (parameter={param}, value={tokens})",
            tokens + i64::from(prompt_tokens)
        )
    };
    Refusal::error(StatusCode::BAD_REQUEST, "BadRequestError", Some(param), &message)
}

fn too_long(context_tokens: u32, prompt_tokens: u32) -> Refusal {
    let message = format!(
        "This model's maximum context length is {context_tokens} tokens. However, your prompt contains at least \
         {prompt_tokens} input tokens, which exceeds this limit even without any output tokens. Please reduce the \
         length of the input prompt. (parameter=input_tokens, value={prompt_tokens})"
    );
    Refusal::error(StatusCode::BAD_REQUEST, "BadRequestError", Some("input_tokens"), &message)
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (kind, body) = match self.body {
            Content::Json(body) => ("application/json", Body::from(wire::bytes(&body))),
            Content::Html(page) => ("text/html; charset=utf-8", Body::from(page)),
        };
        let mut response = (self.status, [(header::CONTENT_TYPE, kind)], body).into_response();
        if let Some(seconds) = self.retry_after_seconds {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
