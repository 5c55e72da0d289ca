//! OAuth2 client credentials: one form out, one token in.

use std::{sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderValue, header};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use url::form_urlencoded;

use super::{
    command::seconds,
    issuer::{Issue, LIFETIME_UNKNOWN},
};
use crate::{
    config::{ClientAuth, OAuth2},
    measurement::{Failure, FailureClass},
    protocol::{Protocol, ReplyHead, failure_of_response},
};

/// Longest answer that is read.
const BYTES_MAX: usize = 256 << 10;

#[derive(Deserialize)]
struct Token {
    access_token: String,
    #[serde(default)]
    expires_in: serde_json::Value,
}

/// Asks the token endpoint.
pub(super) async fn fetch(oauth2: &OAuth2, client: &reqwest::Client) -> Result<Issue, Failure> {
    let host = oauth2.token_url.host().unwrap_or_default();
    let unreachable = |error: reqwest::Error| failed_transport(host, error);
    let mut request = client
        .post(oauth2.token_url.to_string())
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        .header(header::ACCEPT, "application/json")
        .body(form(oauth2));
    if oauth2.client_auth == ClientAuth::Basic {
        request = request.header(header::AUTHORIZATION, basic(oauth2));
    }
    let mut response = request.send().await.map_err(unreachable)?;
    let (status, headers) = (response.status(), response.headers().clone());
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
        if body.len() + chunk.len() > BYTES_MAX {
            return Err(failure(FailureClass::Protocol, host, "the answer is too long for a token"));
        }
        body.extend_from_slice(&chunk);
    }
    match serde_json::from_slice::<Token>(&body) {
        Ok(token) if status.is_success() && !token.access_token.is_empty() => {
            let lifetime = seconds(&token.expires_in).unwrap_or(LIFETIME_UNKNOWN);
            Ok(Issue { values: vec![SecretString::from(token.access_token)], lifetime })
        }
        Ok(_) | Err(_) if status.is_success() && !holds_error(&body) => {
            Err(failure(FailureClass::Protocol, host, "the answer holds no access_token: check token_url"))
        }
        Ok(_) | Err(_) => Err(refusal(host, status.as_u16(), &headers, &body)),
    }
}

fn holds_error(body: &[u8]) -> bool {
    serde_json::from_slice::<serde_json::Value>(body).is_ok_and(|value| value.get("error").is_some())
}

fn form(oauth2: &OAuth2) -> String {
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.append_pair("grant_type", "client_credentials");
    if oauth2.client_auth == ClientAuth::Body {
        form.append_pair("client_id", oauth2.client_id.reveal().expose_secret());
        form.append_pair("client_secret", oauth2.client_secret.reveal().expose_secret());
    }
    if !oauth2.scopes.is_empty() {
        form.append_pair("scope", &oauth2.scopes.join(" "));
    }
    for (name, value) in &oauth2.params {
        form.append_pair(name, value);
    }
    form.finish()
}

/// Both halves are form-encoded before they are joined (RFC 6749, section 2.3.1).
fn basic(oauth2: &OAuth2) -> HeaderValue {
    let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let id = encoded(oauth2.client_id.reveal().expose_secret());
    let secret = encoded(oauth2.client_secret.reveal().expose_secret());
    let text = format!("Basic {}", STANDARD.encode(format!("{id}:{secret}")));
    let mut value = HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("Basic"));
    value.set_sensitive(true);
    value
}

/// The endpoint answered, and not with a token.
fn refusal(host: &str, status: u16, headers: &http::HeaderMap, body: &[u8]) -> Failure {
    let head = ReplyHead {
        protocol: Protocol::OpenAiChat,
        host,
        status,
        headers,
        include_usage: false,
        keep_text: false,
        gap_bounds: Arc::new([]),
    };
    let Some(mut found) = failure_of_response(&head, body) else {
        return failure(FailureClass::Protocol, host, "no token in the answer");
    };
    found.message = if matches!(found.class, FailureClass::EndpointNotFound | FailureClass::ModelNotFound) {
        // There is no model here, and no base URL to be mended.
        found.class = FailureClass::EndpointNotFound;
        format!("token endpoint {host}: HTTP {status}: check token_url")
    } else {
        format!("token endpoint {host}: {}", found.message)
    };
    found
}

fn failed_transport(host: &str, error: reqwest::Error) -> Failure {
    let class = if error.is_timeout() { FailureClass::Timeout } else { FailureClass::Connect };
    let error = error.without_url();
    let mut text = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    failure(class, host, &text)
}

fn failure(class: FailureClass, host: &str, words: &str) -> Failure {
    Failure {
        class,
        subclass: Some("token_endpoint".into()),
        http_status: None,
        retry_after: None,
        message: format!("token endpoint {host}: {words}"),
    }
}

/// How long the token endpoint is waited for.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(15);
