//! How an endpoint is reached, step by step, without asking it anything: for `tokenprobe check`.

use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::time::Instant;

use super::{Endpoint, certificate, connect::Spans, http::Stream};
use crate::measurement::Failure;

/// What opening a connection showed, as far as it got.
#[derive(Debug, Clone, Default)]
pub struct Inspection {
    /// Name resolution; `None` when the host is an address.
    pub dns: Option<Duration>,
    /// TCP handshake.
    pub tcp: Option<Duration>,
    /// TLS handshake.
    pub tls: Option<Duration>,
    /// What was agreed on over TLS.
    pub security: Option<Security>,
    /// Why it got no further.
    pub failure: Option<Failure>,
}

/// A TLS session and the certificates shown in it.
#[derive(Debug, Clone)]
pub struct Security {
    /// `TLSv1_3`, as the library names it.
    pub version: String,
    /// Whether ALPN agreed on HTTP/2.
    pub http2: bool,
    /// Certificates in the chain.
    pub certificates: usize,
    /// The first end of validity in the chain.
    pub not_after: Option<DateTime<Utc>>,
}

impl Endpoint {
    /// Opens a connection and closes it again.
    pub async fn inspect(&self, limit: Duration) -> Inspection {
        let started = Instant::now();
        let mut spans = Spans::default();
        let dialed = self.dialer.dial(limit, &mut spans).await;
        let mut inspection =
            Inspection { dns: spans.dns, tcp: spans.tcp, tls: spans.tls, ..Inspection::default() };
        match dialed {
            Ok(dialed) => {
                inspection.security = match &dialed.stream {
                    Stream::Plain(_) => None,
                    Stream::Tls(stream) => Some(Security::of(stream.get_ref().1, dialed.http2)),
                    Stream::Tunnelled(stream) => Some(Security::of(stream.get_ref().1, dialed.http2)),
                };
            }
            Err(failure) => {
                let mut measurement = failure.into_measurement(started.elapsed());
                measurement.redact(|text| self.redactor.redact(text).into_owned());
                inspection.failure = measurement.outcome.failure().cloned();
            }
        }
        inspection
    }
}

impl Security {
    fn of(session: &rustls::ClientConnection, http2: bool) -> Self {
        let chain = session.peer_certificates().unwrap_or_default();
        Self {
            version: session.protocol_version().map_or_else(String::new, |version| format!("{version:?}")),
            http2,
            certificates: chain.len(),
            not_after: chain.iter().filter_map(|der| certificate::not_after(der)).min(),
        }
    }
}
