//! What an endpoint says it serves: `GET {base}/models`, asked outside of any measurement.
//!
//! Nothing here is timed, so an ordinary client does it.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use serde::Deserialize;

use super::{Endpoint, trust};
use crate::{config::Target, protocol::one_line};

/// A list that takes longer is not waited for: it only serves a hint.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Longest list that is read.
const BYTES_MAX: usize = 4 << 20;

/// Longest name that is told.
const NAME_CHARS_MAX: usize = 256;

#[derive(Deserialize)]
struct List {
    data: Vec<Model>,
}

#[derive(Deserialize)]
struct Model {
    id: String,
}

impl Endpoint {
    /// The names of the models the endpoint lists, in its order.
    ///
    /// # Errors
    /// One line that says why there is no list: many endpoints have none.
    pub async fn served_models(&self) -> Result<Vec<String>, String> {
        // The error's own words may name the proxy with its credential.
        let failed = |error: reqwest::Error| self.redactor.redact(&error.to_string()).into_owned();
        let tls = match &self.tls {
            Some(config) => config.as_ref().clone(),
            None => trust::trusting_nobody().map_err(|error| error.to_string())?,
        };
        let client = plain_client(&self.target, tls, TIMEOUT).map_err(failed)?;
        let uri = self.uri("/models");
        let (headers, _) =
            self.headers(&Method::GET, &uri, &Bytes::new()).await.map_err(|failure| failure.message)?;
        let request = client.get(uri.to_string()).headers(headers);
        let response = request.send().await.and_then(reqwest::Response::error_for_status).map_err(failed)?;
        let body = bounded(response, BYTES_MAX).await.map_err(failed)?;
        let body = body.ok_or("the list of models is too long")?;
        let list: List = serde_json::from_slice(&body)
            .map_err(|error| format!("the answer is not a list of models: {error}"))?;
        Ok(list.data.into_iter().map(|model| one_line(&model.id, NAME_CHARS_MAX)).collect())
    }
}

/// The whole body; `None` when it has more bytes, which are not read.
pub(super) async fn bounded(
    mut response: reqwest::Response,
    bytes_max: usize,
) -> reqwest::Result<Option<Vec<u8>>> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > bytes_max {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body))
}

/// An ordinary client, for what is not measured: HTTP/1.1, the only version it speaks, through the target's proxy.
pub(super) fn plain_client(
    target: &Target,
    tls: rustls::ClientConfig,
    timeout: Duration,
) -> reqwest::Result<reqwest::Client> {
    let mut builder = builder(tls, timeout);
    if let Some(proxy) = &target.proxy {
        builder = builder.proxy(reqwest::Proxy::all(proxy.to_string())?);
    }
    builder.build()
}

/// The same, past the target's proxy.
pub(super) fn own_client(tls: rustls::ClientConfig, timeout: Duration) -> reqwest::Result<reqwest::Client> {
    builder(tls, timeout).build()
}

fn builder(mut tls: rustls::ClientConfig, timeout: Duration) -> reqwest::ClientBuilder {
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .timeout(timeout)
}
