//! Failures before any HTTP answer, as measurements.

use std::time::Duration;

use super::{
    Deadline, TransportFailure,
    classify::Ruling,
    excuse::{self, one_line},
};
use crate::measurement::{
    Failure,
    FailureClass::{Auth, Connect, Edge, EndpointNotFound, Protocol, Timeout, Tls},
    Measurement, Outcome, Timeline,
};

/// Most characters of the system's own words.
const WORDS_CHARS_MAX: usize = 110;

impl TransportFailure {
    /// The measurement of a probe that got no answer and gave up at `at` (since t0).
    #[must_use]
    pub fn into_measurement(self, at: Duration) -> Measurement {
        let (ruling, words) = self.judge();
        let mut message = one_line(&words, WORDS_CHARS_MAX);
        if let Some(hint) = excuse::hint(ruling.class, ruling.subclass.as_deref()) {
            message = format!("{message} ({hint})");
        }
        let failure = Failure {
            class: ruling.class,
            subclass: ruling.subclass,
            http_status: None,
            retry_after: None,
            message,
        };
        Measurement::bare(Outcome::Error(failure), Timeline { end: at, ..Timeline::default() })
    }

    fn judge(self) -> (Ruling, String) {
        match self {
            Self::Dns(words) => (Ruling::new(Connect, "dns"), words),
            Self::Refused(words) => (Ruling::new(Connect, "refused"), words),
            Self::TlsHandshake(words) => (Ruling::new(Tls, "handshake"), words),
            Self::TlsUntrusted(words) => (Ruling::new(Tls, "untrusted"), words),
            Self::ProxyAuth(words) => (Ruling::new(Edge, "proxy_auth"), words),
            Self::Proxy(words) => (Ruling::new(Edge, "upstream_connect"), words),
            Self::ResetBeforeHeaders(words) => (Ruling::new(Connect, "reset_before_headers"), words),
            Self::NotHttp(words) if is_tls_answer(&words) => (Ruling::of(EndpointNotFound), words),
            Self::NotHttp(words) | Self::Internal(words) => (Ruling::of(Protocol), words),
            Self::Credential(words) => (Ruling::new(Auth, "invalid_key"), words),
            Self::Deadline(deadline) => {
                let (subclass, words) = excuse::deadline(deadline);
                (Ruling::new(Timeout, subclass), words.to_owned())
            }
        }
    }
}

/// Whether the other side answered plain HTTP with TLS: the wrong scheme.
fn is_tls_answer(words: &str) -> bool {
    words.to_ascii_lowercase().contains("tls")
}

impl From<Deadline> for TransportFailure {
    fn from(deadline: Deadline) -> Self {
        Self::Deadline(deadline)
    }
}
