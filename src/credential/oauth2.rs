//! OAuth2 client credentials: one form out, one token in.

use std::{sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderValue, header};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use url::form_urlencoded;

use super::{
    command::seconds,
    endpoint::{Answer, ask, failure},
    issuer::{Issue, LIFETIME_UNKNOWN},
};
use crate::{
    config::{ClientAuth, OAuth2},
    measurement::{Failure, FailureClass},
    protocol::{Protocol, ReplyHead, failure_of_response},
};

#[derive(Deserialize)]
struct Token {
    access_token: String,
    #[serde(default)]
    expires_in: serde_json::Value,
}

/// Asks the token endpoint.
pub(super) async fn fetch(oauth2: &OAuth2, client: &reqwest::Client) -> Result<Issue, Failure> {
    let who = format!("token endpoint {}", oauth2.token_url.host().unwrap_or_default());
    let mut request = client
        .post(oauth2.token_url.to_string())
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        .header(header::ACCEPT, "application/json")
        .body(form(oauth2));
    if oauth2.client_auth == ClientAuth::Basic {
        request = request.header(header::AUTHORIZATION, basic(oauth2));
    }
    let answer = ask(request, &who).await?;
    match serde_json::from_slice::<Token>(&answer.body) {
        Ok(token) if answer.status.is_success() && !token.access_token.is_empty() => {
            let lifetime = seconds(&token.expires_in).unwrap_or(LIFETIME_UNKNOWN);
            Ok(Issue { values: vec![SecretString::from(token.access_token)], lifetime })
        }
        Ok(_) | Err(_) if answer.status.is_success() && !holds_error(&answer.body) => {
            Err(failure(FailureClass::Protocol, &who, "the answer holds no access_token: check token_url"))
        }
        Ok(_) | Err(_) => Err(refusal(&who, oauth2.token_url.host().unwrap_or_default(), &answer)),
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
fn refusal(who: &str, host: &str, answer: &Answer) -> Failure {
    let status = answer.status.as_u16();
    let head = ReplyHead {
        protocol: Protocol::OpenAiChat,
        host,
        status,
        headers: &answer.headers,
        include_usage: false,
        keep_text: false,
        gap_bounds: Arc::new([]),
    };
    let Some(mut found) = failure_of_response(&head, &answer.body) else {
        return failure(FailureClass::Protocol, who, "no token in the answer");
    };
    found.message = if matches!(found.class, FailureClass::EndpointNotFound | FailureClass::ModelNotFound) {
        // There is no model here, and no base URL to be mended.
        found.class = FailureClass::EndpointNotFound;
        format!("{who}: HTTP {status}: check token_url")
    } else {
        format!("{who}: {}", found.message)
    };
    found
}

/// How long the token endpoint is waited for.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(15);
