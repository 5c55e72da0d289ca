//! What an endpoint says it serves: `GET {base}/models`, asked outside of any measurement.
//!
//! Nothing here is timed, so an ordinary client does it.

use std::{io, time::Duration};

use serde::Deserialize;

use super::{Endpoint, trust};

/// A list that takes longer is not waited for: it only serves a hint.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Longest list that is read.
const BYTES_MAX: u64 = 4 << 20;

#[derive(Deserialize)]
struct List {
    data: Vec<Model>,
}

#[derive(Deserialize)]
struct Model {
    id: String,
}

impl Endpoint {
    /// The same trust as for probes; HTTP/1.1, the only version this client speaks.
    fn plain_tls(&self) -> io::Result<rustls::ClientConfig> {
        let mut config = match &self.tls {
            Some(config) => config.as_ref().clone(),
            None => trust::trusting_nobody()?,
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }

    /// The names of the models the endpoint lists, in its order.
    ///
    /// # Errors
    /// One line that says why there is no list: many endpoints have none.
    pub async fn served_models(&self) -> Result<Vec<String>, String> {
        // The error's own words may name the proxy with its credential.
        let failed = |error: reqwest::Error| self.redactor.redact(&error.to_string()).into_owned();
        let mut builder = reqwest::Client::builder()
            .tls_backend_preconfigured(self.plain_tls().map_err(|error| error.to_string())?)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(TIMEOUT);
        if let Some(proxy) = &self.target.proxy {
            builder = builder.proxy(reqwest::Proxy::all(proxy.to_string()).map_err(failed)?);
        }
        let request = builder
            .build()
            .map_err(failed)?
            .get(self.target.base_url.join("/models").to_string())
            .headers(self.headers()?);
        let response = request.send().await.and_then(reqwest::Response::error_for_status).map_err(failed)?;
        if response.content_length().is_some_and(|length| length > BYTES_MAX) {
            return Err("the list of models is too long".into());
        }
        let list: List = response.json().await.map_err(failed)?;
        Ok(list.data.into_iter().map(|model| model.id).collect())
    }
}
