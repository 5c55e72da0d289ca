//! Reads the engine's own metrics, outside of any measurement: `engine_metrics_url` of a target.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Uri};

use super::{
    Endpoint,
    catalogue::{bounded, own_client},
    trust,
};
use crate::{config::Target, engine::Snapshot};

/// A page that takes longer is not waited for.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Longest page that is read: an engine of many ranks writes a megabyte.
const BYTES_MAX: usize = 16 << 20;

impl Endpoint {
    /// What the engine says of itself now; `None` when the target names no page of it. Shows the target's credential
    /// only to the target's own host and port.
    ///
    /// # Errors
    /// One line that says why there is nothing.
    pub async fn engine(&self, model: &str) -> Option<Result<Snapshot, String>> {
        let url = self.target.engine_metrics_url.as_ref()?;
        let page = self.page(url).await;
        Some(page.and_then(|page| {
            let snapshot = Snapshot::of(&String::from_utf8_lossy(&page), model);
            let nothing = || format!("{url} holds none of the metrics of an engine that is known");
            if snapshot.is_empty() { Err(nothing()) } else { Ok(snapshot) }
        }))
    }

    async fn page(&self, url: &Uri) -> Result<Vec<u8>, String> {
        let failed = |error: reqwest::Error| {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
            self.redactor.redact(&format!("{error}{}", cause.unwrap_or_default())).into_owned()
        };
        let tls = match &self.tls {
            Some(config) => Ok(config.as_ref().clone()),
            None if url.scheme_str() == Some("https") => trust::token_endpoint_config(&self.target.tls),
            None => trust::trusting_nobody(),
        };
        let tls = tls.map_err(|error| error.to_string())?;
        let client = own_client(tls, TIMEOUT).map_err(failed)?;
        let headers = if is_same_place(url, &self.target) {
            let shown = self.headers(&Method::GET, url, &Bytes::new()).await;
            shown.map_err(|failure| failure.message)?.0
        } else {
            HeaderMap::new()
        };
        let response = client
            .get(url.to_string())
            .headers(headers)
            .header(http::header::ACCEPT, "text/plain")
            .send()
            .await
            .and_then(reqwest::Response::error_for_status)
            .map_err(failed)?;
        let page = bounded(response, BYTES_MAX).await.map_err(failed)?;
        page.ok_or_else(|| format!("{url} is longer than {} MiB", BYTES_MAX >> 20))
    }
}

fn is_same_place(url: &Uri, target: &Target) -> bool {
    let is_tls = url.scheme_str() == Some("https");
    let port = url.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
    let base = &target.base_url;
    url.host() == Some(base.host()) && port == base.port() && is_tls == base.is_tls()
}
