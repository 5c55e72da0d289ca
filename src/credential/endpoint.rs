//! One bounded question to a service that issues credentials, and what went wrong with it in words.

use http::{HeaderMap, StatusCode};

use crate::measurement::{Failure, FailureClass};

/// Longest answer that is read.
const BYTES_MAX: usize = 256 << 10;

/// What the service said.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

/// Sends the request and reads its answer, whatever its status; `who` names the service in failures.
pub(super) async fn ask(request: reqwest::RequestBuilder, who: &str) -> Result<Answer, Failure> {
    let unreachable = |error: reqwest::Error| failed_transport(who, error);
    let mut response = request.send().await.map_err(unreachable)?;
    let (status, headers) = (response.status(), response.headers().clone());
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
        if body.len() + chunk.len() > BYTES_MAX {
            return Err(failure(FailureClass::Protocol, who, "the answer is too long for a token"));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Answer { status, headers, body })
}

fn failed_transport(who: &str, error: reqwest::Error) -> Failure {
    let class = if error.is_timeout() { FailureClass::Timeout } else { FailureClass::Connect };
    let error = error.without_url();
    let mut text = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    failure(class, who, &text)
}

/// A failure of the service itself.
pub(super) fn failure(class: FailureClass, who: &str, words: &str) -> Failure {
    Failure {
        class,
        subclass: Some("token_endpoint".into()),
        http_status: None,
        retry_after: None,
        message: format!("{who}: {words}"),
    }
}
