//! The three requests to the API server: read the lease, create it, replace the version that was read.

use std::{path::Path, time::Duration};

use reqwest::{StatusCode, header};
use secrecy::ExposeSecret as _;

use super::{Settings, lease::Lease};
use crate::{config::Secret, probe};

/// Most bytes of an answer that are read.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Words of a refusal that are logged.
const WORDS_CHARS_MAX: usize = 200;

/// Asks for one lease.
#[derive(Debug)]
pub(super) struct Api {
    client: reqwest::Client,
    collection: String,
    name: String,
    token: Option<Secret>,
}

/// What the API server said.
#[derive(Debug)]
pub(super) enum Answer {
    /// The lease as it is now.
    Lease(Box<Lease>),
    /// There is none.
    Missing,
    /// Somebody else wrote first.
    Conflict,
    /// Nothing that helps, in words.
    Failed(String),
}

impl Api {
    /// # Errors
    /// The token or the certificates cannot be read: one line with the mend.
    pub(super) fn new(settings: &Settings) -> Result<Self, String> {
        let token = settings.token_file.as_deref().map(Secret::from_file).transpose();
        let token = token.map_err(|error| format!("leader election: {error}"))?;
        let base = settings.api_server.trim_end_matches('/');
        let namespace = &settings.namespace;
        Ok(Self {
            client: client(settings.ca_file.as_deref())?,
            collection: format!("{base}/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"),
            name: settings.lease.clone(),
            token,
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) async fn read(&self) -> Answer {
        self.ask(self.client.get(format!("{}/{}", self.collection, self.name))).await
    }

    pub(super) async fn create(&self, lease: &Lease) -> Answer {
        self.ask(self.client.post(&self.collection).json(lease)).await
    }

    pub(super) async fn replace(&self, lease: &Lease) -> Answer {
        self.ask(self.client.put(format!("{}/{}", self.collection, self.name)).json(lease)).await
    }

    async fn ask(&self, request: reqwest::RequestBuilder) -> Answer {
        let request = match &self.token {
            Some(token) => request.bearer_auth(token.reveal().expose_secret()),
            None => request,
        };
        let mut response = match request.header(header::ACCEPT, "application/json").send().await {
            Ok(response) => response,
            Err(error) => return Answer::Failed(error.without_url().to_string()),
        };
        let status = response.status();
        let mut body = Vec::new();
        loop {
            match response.chunk().await {
                Ok(Some(chunk)) if body.len() + chunk.len() <= ANSWER_BYTES_MAX => {
                    body.extend_from_slice(&chunk);
                }
                Ok(Some(_)) => return Answer::Failed("the answer is too long for a lease".into()),
                Ok(None) => break,
                Err(error) => return Answer::Failed(error.without_url().to_string()),
            }
        }
        answer(status, &body)
    }
}

fn answer(status: StatusCode, body: &[u8]) -> Answer {
    match status {
        status if status.is_success() => match serde_json::from_slice(body) {
            Ok(lease) => Answer::Lease(Box::new(lease)),
            Err(error) => Answer::Failed(format!("the answer is no lease: {error}")),
        },
        StatusCode::NOT_FOUND => Answer::Missing,
        StatusCode::CONFLICT => Answer::Conflict,
        status => {
            let status_object: Option<serde_json::Value> = serde_json::from_slice(body).ok();
            let words = status_object.as_ref().and_then(|object| object.get("message")?.as_str());
            let words: String = words.unwrap_or_default().chars().take(WORDS_CHARS_MAX).collect();
            let mend = match status.as_u16() {
                401 | 403 => "; let this service account get, create and update leases",
                _ => "",
            };
            Answer::Failed(format!("{status}: {}{mend}", words.escape_debug()))
        }
    }
}

fn client(ca_file: Option<&Path>) -> Result<reqwest::Client, String> {
    /// Idle connections to a server that is gone must not be met again and again.
    const IDLE_MAX: Duration = Duration::from_secs(30);
    let tls = probe::authorities_config(ca_file)
        .map_err(|error| format!("leader election: {error}; name the cluster's authorities in a PEM file"))?;
    reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .pool_idle_timeout(IDLE_MAX)
        .user_agent(concat!("tokenprobe/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| format!("leader election: {error}"))
}
