//! One probe: connect, send, read, stamp, give up in time.
//!
//! The only place where the monotonic clock meets a network read. What the bytes mean is decided by
//! [`crate::protocol`]; what to ask and how often is decided by [`crate::sweep`]. A probe never fails: what goes
//! wrong is part of the measurement.
//!
//! Top down: [`Lane`] (one worker's connection and its probes) <- `http` (one connection) <- `connect` (dial)
//! <- `stamped` (socket), `reading` (an answer's body), with `bell` for wake-ups and `trust` for certificates. `catalogue`
//! and `scrape` ask, outside of any measurement, which models there are and what the engine says of itself.

mod awake;
mod bell;
mod catalogue;
mod certificate;
mod connect;
mod http;
mod inspect;
mod reading;
mod scrape;
mod stamped;
mod trust;

pub use self::inspect::{Inspection, Security};
pub(crate) use self::trust::authorities_config;
use std::{io, sync::Arc, time::Duration};

use ::http::{HeaderMap, HeaderValue, Method, Request, Uri, header};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use secrecy::ExposeSecret as _;
use tokio::time::{Instant, sleep_until};
use url::form_urlencoded;

use self::{
    connect::{Dialer, Spans},
    http::Connection,
    reading::Reading,
};
use crate::{
    config::{ConnectionPolicy, Redactor, Target},
    credential::{self, Outgoing, Presented, TOKEN_TIMEOUT, Wallet},
    measurement::{ConnectionUse, Failure, Measurement, Outcome, Timeline},
    protocol::{Ask, Deadline, Reply, ReplyHead, Timeouts, TransportFailure},
};

/// What every probe calls itself.
const USER_AGENT: &str = concat!("tokenprobe/", env!("CARGO_PKG_VERSION"));

/// Every protocol's requests are JSON.
const CONTENT_TYPE: &str = "application/json";

/// What every probe carries, so that gateways, logs and bills can tell probe traffic from users'.
const PROBE_HEADER: &str = "x-tokenprobe";

/// One target, ready to be probed: certificates loaded, headers prepared.
#[derive(Debug)]
pub struct Endpoint {
    target: Arc<Target>,
    tls: Option<Arc<rustls::ClientConfig>>,
    dialer: Dialer,
    wallet: Wallet,
    redactor: Arc<Redactor>,
}

/// Asks whoever pays whether a request may leave once more.
#[derive(Clone, Copy)]
pub struct Again<'a>(pub &'a (dyn Fn() -> bool + Send + Sync));

impl std::fmt::Debug for Again<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Again")
    }
}

/// One probe to send.
#[derive(Debug, Clone)]
pub struct Shot<'a> {
    /// What to ask.
    pub ask: Ask<'a>,
    /// When to give up.
    pub timeouts: Timeouts,
    /// Whether to keep the visible text in the measurement.
    pub keep_text: bool,
    /// Bucket bounds of the gap sketch.
    pub gap_bounds: Arc<[f64]>,
    /// Sent as `traceparent`, so that the target's own traces can be found.
    pub trace_id: TraceId,
    /// When it is to leave, and what all its times count from; at once when unset.
    pub due: Option<Instant>,
    /// Asked before it is sent once more, as over a connection that the server was just closing; it may be when unset.
    pub again: Option<Again<'a>>,
}

/// A W3C trace id: 16 random bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceId(u128);

/// One worker's connection to an endpoint and the probes it sends over it.
pub struct Lane {
    endpoint: Arc<Endpoint>,
    policy: ConnectionPolicy,
    connection: Option<Connection>,
}

impl TraceId {
    /// A fresh one.
    #[must_use]
    pub fn random() -> Self {
        Self(fastrand::u128(1..))
    }

    fn traceparent(self) -> String {
        format!("00-{self}-{:016x}-01", fastrand::u64(1..))
    }
}

impl std::fmt::Display for TraceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl Endpoint {
    /// Prepares a target.
    ///
    /// # Errors
    /// Its certificates cannot be loaded.
    pub fn new(target: Arc<Target>, redactor: Arc<Redactor>) -> io::Result<Self> {
        let tls = if target.base_url.is_tls() {
            Some(trust::client_config(&target.tls, target.http_version)?)
        } else {
            None
        };
        let dialer = Dialer::new(&target, tls.clone());
        let token_client = || {
            let tls = trust::token_endpoint_config(&target.tls).map_err(|error| error.to_string())?;
            let client = catalogue::plain_client(&target, tls, TOKEN_TIMEOUT);
            client.map_err(|error| redactor.redact(&error.to_string()).into_owned())
        };
        let wallet = Wallet::new(target.clone(), token_client).map_err(io::Error::other)?;
        Ok(Self { target, tls, dialer, wallet, redactor })
    }

    /// The target this endpoint reaches.
    #[must_use]
    pub fn target(&self) -> &Arc<Target> {
        &self.target
    }

    /// Where a path of the protocol is asked for, with the configured parameters.
    fn uri(&self, path: &str) -> Uri {
        let mut path = path.to_owned();
        for (name, value) in &self.target.query {
            let separator = if path.contains('?') { '&' } else { '?' };
            let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
            path = format!("{path}{separator}{}={}", encoded(name), encoded(value.reveal().expose_secret()));
        }
        self.target.base_url.join(&path)
    }

    /// Headers of a request, credentials included (marked sensitive). Waits while a token is fetched.
    async fn headers(
        &self,
        method: &Method,
        uri: &Uri,
        body: &Bytes,
    ) -> Result<(HeaderMap, Presented), Failure> {
        let target = &self.target;
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
        headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream, application/json"));
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
        headers.insert(PROBE_HEADER, HeaderValue::from_static("probe"));
        if let Some((name, value)) = target.protocol.own_header() {
            headers.insert(name, value);
        }
        let request = Outgoing { method, uri, content_type: CONTENT_TYPE, body };
        let presented = self.wallet.present(&request).await?;
        headers.extend(presented.headers.iter().cloned());
        for (name, secret) in &target.extra_headers {
            let mut value = HeaderValue::from_str(secret.reveal().expose_secret()).map_err(|_| {
                credential::unusable(format!(
                    "extra_headers.{name}: not allowed in a header: control characters"
                ))
            })?;
            value.set_sensitive(true);
            headers.insert(name.clone(), value);
        }
        Ok((headers, presented))
    }

    fn request(&self, uri: &Uri, mut headers: HeaderMap, body: Bytes, http2: bool) -> Request<Full<Bytes>> {
        let form = if http2 || self.dialer.forwards() {
            uri.clone()
        } else {
            let path = uri.path_and_query().map_or("/", ::http::uri::PathAndQuery::as_str);
            path.parse().unwrap_or_else(|_| uri.clone())
        };
        if let Some(value) = self.dialer.forward_authorization() {
            headers.insert(header::PROXY_AUTHORIZATION, value.clone());
        }
        if !http2
            && let Some(authority) = uri.authority()
            && let Ok(value) = HeaderValue::from_str(authority.as_str())
        {
            headers.insert(header::HOST, value);
        }
        // Credentials are marked sensitive: their values are not printed. A query may hold one.
        tracing::trace!(path = form.path(), ?headers, bytes = body.len(), "request");
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = ::http::Method::POST;
        *request.uri_mut() = form;
        *request.headers_mut() = headers;
        request
    }
}

impl Lane {
    /// A lane without a connection: its first probe opens one.
    #[must_use]
    pub fn new(endpoint: Arc<Endpoint>, policy: ConnectionPolicy) -> Self {
        Self { endpoint, policy, connection: None }
    }

    /// Sends one probe and reads its answer to the end, or to a deadline.
    pub async fn probe(&mut self, shot: &Shot<'_>) -> Measurement {
        let endpoint = self.endpoint.clone();
        let protocol = endpoint.target.protocol;
        // All that can be prepared is prepared before t0.
        let uri = endpoint.uri(&protocol.path(shot.ask.model));
        let body = Bytes::from(protocol.body(&shot.ask));
        let prepared = endpoint.headers(&Method::POST, &uri, &body).await;
        if let Some(due) = shot.due {
            sleep_until(due).await;
        }
        let begun = Instant::now();
        let mut flight = Flight {
            shot,
            endpoint: &endpoint,
            // Whoever asked when it was due has waited since then, whatever kept us from sending.
            t0: shot.due.unwrap_or(begun),
            late: shot.due.map(|due| begun.saturating_duration_since(due)),
            spans: Spans::default(),
            sent: None,
            connection_use: ConnectionUse::New,
        };
        let (mut headers, presented) = match prepared {
            Ok(prepared) => prepared,
            Err(failure) => {
                return flight.complete(Ok(Measurement::bare(Outcome::Error(failure), Timeline::default())));
            }
        };
        if let Ok(value) = HeaderValue::from_str(&shot.trace_id.traceparent()) {
            headers.insert("traceparent", value);
        }
        let result = flight.fly(self, &uri, headers, body).await;
        let mut measurement = flight.complete(result);
        endpoint.wallet.heed(&presented, &mut measurement);
        measurement
    }

    /// Takes the standing connection if it is still good.
    fn standing(&mut self) -> Option<Connection> {
        let mut connection = self.connection.take()?;
        (self.policy == ConnectionPolicy::Reuse && connection.is_open()).then_some(connection)
    }
}

/// One probe under way.
struct Flight<'a> {
    shot: &'a Shot<'a>,
    endpoint: &'a Endpoint,
    t0: Instant,
    late: Option<Duration>,
    spans: Spans,
    sent: Option<Duration>,
    connection_use: ConnectionUse,
}

impl Flight<'_> {
    async fn fly(
        &mut self,
        lane: &mut Lane,
        uri: &Uri,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Measurement, TransportFailure> {
        let (connection, response) = self.reach(lane, uri, headers, body).await?;
        let is_reusable = is_reusable(&response);
        let (measurement, connection) = self.reading(connection, response).begin().await?;
        lane.connection = connection.filter(|_| is_reusable);
        Ok(measurement)
    }

    /// The head of an answer, over the standing connection or a new one.
    async fn reach(
        &mut self,
        lane: &mut Lane,
        uri: &Uri,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<(Connection, ::http::Response<Incoming>), TransportFailure> {
        if let Some(mut connection) = lane.standing() {
            self.connection_use = ConnectionUse::Reused;
            let bytes_before = connection.bytes_read();
            match self.exchange(&mut connection, uri, headers.clone(), body.clone()).await {
                // A server may close an idle connection just as the request leaves. Not a byte came back: the
                // request goes out once more on a new connection, on the same clock.
                // Somebody may have been charged for it, so whoever pays is asked.
                Err(TransportFailure::ResetBeforeHeaders(_))
                    if connection.bytes_read() == bytes_before
                        && self.shot.again.is_none_or(|Again(may)| may()) => {}
                result => return result.map(|response| (connection, response)),
            }
        }
        self.connection_use = ConnectionUse::New;
        let limit =
            self.shot.timeouts.connect.min(self.shot.timeouts.total).saturating_sub(self.t0.elapsed());
        let dialed = self.endpoint.dialer.dial(limit, &mut self.spans).await?;
        let mut connection = Connection::open(dialed)
            .await
            .map_err(|error| TransportFailure::ResetBeforeHeaders(describe(&error)))?;
        let response = self.exchange(&mut connection, uri, headers, body).await?;
        Ok((connection, response))
    }

    /// Sends the request and waits for the head of its answer.
    async fn exchange(
        &mut self,
        connection: &mut Connection,
        uri: &Uri,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<::http::Response<Incoming>, TransportFailure> {
        let request = self.endpoint.request(uri, headers, body, connection.is_http2());
        self.sent = Some(self.t0.elapsed());
        let timeouts = &self.shot.timeouts;
        let (due, deadline) = [
            (timeouts.headers, Deadline::Headers),
            (timeouts.first_token, Deadline::FirstToken),
            (timeouts.total, Deadline::Total),
        ]
        .into_iter()
        .min_by_key(|(due, _)| *due)
        .unwrap_or((timeouts.total, Deadline::Total));
        match tokio::time::timeout_at(self.t0 + due, connection.send(request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(send_failure(&error)),
            Err(_) => Err(TransportFailure::Deadline(deadline)),
        }
    }

    /// All that is needed to read the answer to its end.
    fn reading(&self, connection: Connection, response: ::http::Response<Incoming>) -> Reading {
        let at = connection.last_read().saturating_duration_since(self.t0);
        let (head, body) = response.into_parts();
        let reply = Reply::new(
            &ReplyHead {
                protocol: self.endpoint.target.protocol,
                host: self.endpoint.target.base_url.host(),
                status: head.status.as_u16(),
                headers: &head.headers,
                include_usage: self.shot.ask.include_usage,
                keep_text: self.shot.keep_text,
                gap_bounds: self.shot.gap_bounds.clone(),
            },
            at,
        );
        Reading { t0: self.t0, timeouts: self.shot.timeouts, connection, body, reply }
    }

    /// Adds what only the network side knows, and redacts what the other side said.
    fn complete(&self, result: Result<Measurement, TransportFailure>) -> Measurement {
        let mut measurement = result.unwrap_or_else(|failure| failure.into_measurement(self.t0.elapsed()));
        measurement.connection = self.connection_use;
        let timeline = &mut measurement.timeline;
        timeline.late = self.late;
        timeline.dns = self.spans.dns;
        timeline.tcp = self.spans.tcp;
        timeline.tls = self.spans.tls;
        timeline.sent = self.sent;
        measurement.redact(|text| self.endpoint.redactor.redact(text).into_owned());
        measurement
    }
}

/// Whether the connection may carry another request after this answer.
fn is_reusable(response: &::http::Response<Incoming>) -> bool {
    let closes = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"close");
    response.version() != ::http::Version::HTTP_10
        && !response.headers().get_all(header::CONNECTION).iter().any(closes)
}

fn send_failure(error: &hyper::Error) -> TransportFailure {
    if error.is_parse() {
        TransportFailure::NotHttp(describe(error))
    } else {
        TransportFailure::ResetBeforeHeaders(describe(error))
    }
}

/// The whole chain of causes: hyper's outer message alone says little.
fn describe(error: &hyper::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
