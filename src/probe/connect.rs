//! From a target to an open byte stream: resolve, connect, tunnel, handshake, each timed.
//!
//! Knows nothing of HTTP beyond a proxy's CONNECT. The environment's proxies are not looked at.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::{
    net::TcpStream,
    time::{Instant, timeout},
};

use super::{
    http::Stream,
    stamped::{LastRead, Stamped},
};
use crate::{
    config::{HttpVersion, Target},
    protocol::{Deadline, TransportFailure},
};

/// How to reach one target; built once, used for every connection.
#[derive(Debug)]
pub(super) struct Dialer {
    host: String,
    port: u16,
    tls: Option<Arc<rustls::ClientConfig>>,
    proxy: Option<Proxy>,
    http_version: HttpVersion,
}

#[derive(Debug)]
struct Proxy {
    host: String,
    port: u16,
    /// `Proxy-Authorization`, from the URL's userinfo.
    authorization: Option<http::HeaderValue>,
}

/// Spans of opening a connection; `None` for a step that was not needed.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Spans {
    pub(super) dns: Option<Duration>,
    pub(super) tcp: Option<Duration>,
    pub(super) tls: Option<Duration>,
}

/// An open byte stream and what was agreed on it.
pub(super) struct Dialed {
    pub(super) stream: Stream,
    pub(super) last_read: LastRead,
    pub(super) http2: bool,
}

impl Dialer {
    pub(super) fn new(target: &Target, tls: Option<Arc<rustls::ClientConfig>>) -> Self {
        let proxy = target.proxy.as_ref().map(|uri| Proxy {
            host: uri.host().unwrap_or_default().to_owned(),
            port: uri.port_u16().unwrap_or(80),
            authorization: proxy_authorization(uri),
        });
        Self {
            host: target.base_url.host().to_owned(),
            port: target.base_url.port(),
            tls,
            proxy,
            http_version: target.http_version,
        }
    }

    /// Whether requests go through a proxy in the clear, which wants the absolute form of the URI.
    pub(super) fn forwards(&self) -> bool {
        self.proxy.is_some() && self.tls.is_none()
    }

    /// The proxy's credential, for requests that it forwards; a tunnel has shown it already.
    pub(super) fn forward_authorization(&self) -> Option<&http::HeaderValue> {
        self.proxy.as_ref().filter(|_| self.forwards())?.authorization.as_ref()
    }

    /// Opens a connection within `limit`. The spans are filled as far as it got, also when it fails.
    pub(super) async fn dial(&self, limit: Duration, spans: &mut Spans) -> Result<Dialed, TransportFailure> {
        timeout(limit, self.dial_unbounded(limit, spans))
            .await
            .unwrap_or(Err(TransportFailure::Deadline(Deadline::Connect)))
    }

    async fn dial_unbounded(&self, limit: Duration, spans: &mut Spans) -> Result<Dialed, TransportFailure> {
        let (host, port) = self.proxy.as_ref().map_or((self.host.as_str(), self.port), |p| (&p.host, p.port));
        let addresses = resolve(host, port, spans).await?;
        let tcp = connect(&addresses, limit, spans).await.map_err(|failure| match &self.proxy {
            _ if failure.is_ours() => TransportFailure::Internal(format!(
                "the prober cannot open a connection: {}; raise its limits (ulimit -n), or lower the concurrency",
                failure.words
            )),
            Some(_) => {
                TransportFailure::Refused(format!("the proxy does not take connections: {}", failure.words))
            }
            None => TransportFailure::Refused(failure.words),
        })?;
        // Small writes must not wait for an acknowledgement; a socket that refuses the option still works.
        let _ = tcp.set_nodelay(true);
        let stamped = Stamped::new(tcp);
        let last_read = stamped.last_read();
        let Some(tls) = &self.tls else {
            let http2 = self.http_version == HttpVersion::Http2;
            return Ok(Dialed { stream: Stream::Plain(stamped), last_read, http2 });
        };
        let (stream, http2) = match &self.proxy {
            None => {
                let (stream, http2) = handshake(tls, &self.host, stamped, spans).await?;
                (Stream::Tls(Box::new(stream)), http2)
            }
            Some(proxy) => {
                let tunnel = self.tunnel(proxy, stamped).await?;
                let (stream, http2) = handshake(tls, &self.host, tunnel, spans).await?;
                (Stream::Tunnelled(Box::new(stream)), http2)
            }
        };
        Ok(Dialed { stream, last_read, http2 })
    }

    /// Asks the proxy for a tunnel to the target (CONNECT).
    async fn tunnel(
        &self,
        proxy: &Proxy,
        stamped: Stamped,
    ) -> Result<TokioIo<hyper::upgrade::Upgraded>, TransportFailure> {
        let broken = |error: hyper::Error| {
            TransportFailure::Proxy(format!("proxy {}:{}: {error}", proxy.host, proxy.port))
        };
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stamped)).await.map_err(broken)?;
        let authority = format!("{}:{}", self.host, self.port);
        let mut request = http::Request::connect(&authority).header(http::header::HOST, &authority);
        if let Some(value) = &proxy.authorization {
            request = request.header(http::header::PROXY_AUTHORIZATION, value);
        }
        let request = request
            .body(Empty::<bytes::Bytes>::new())
            .map_err(|error| TransportFailure::Proxy(format!("{authority}: {error}")))?;
        let connection = connection.with_upgrades();
        let exchange = async {
            let response = sender.send_request(request).await.map_err(broken)?;
            match response.status().as_u16() {
                200..=299 => hyper::upgrade::on(response).await.map(TokioIo::new).map_err(broken),
                407 => Err(TransportFailure::ProxyAuth(format!(
                    "proxy {}:{} answered 407 to CONNECT",
                    proxy.host, proxy.port
                ))),
                status => Err(TransportFailure::Proxy(format!(
                    "proxy {}:{} answered {status} to CONNECT",
                    proxy.host, proxy.port
                ))),
            }
        };
        // The connection only moves while polled; it ends when it has handed the stream over.
        tokio::pin!(exchange, connection);
        tokio::select! {
            biased;
            result = &mut exchange => result,
            result = &mut connection => match result {
                Ok(()) => exchange.await,
                Err(error) => Err(broken(error)),
            },
        }
    }
}

fn proxy_authorization(uri: &http::Uri) -> Option<http::HeaderValue> {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let (userinfo, _) = uri.authority()?.as_str().rsplit_once('@')?;
    let decoded = percent_encoding::percent_decode_str(userinfo).decode_utf8().ok()?;
    let mut value =
        http::HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(decoded.as_bytes()))).ok()?;
    value.set_sensitive(true);
    Some(value)
}

async fn resolve(host: &str, port: u16, spans: &mut Spans) -> Result<Vec<SocketAddr>, TransportFailure> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = bare.parse() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let started = Instant::now();
    let found = tokio::net::lookup_host((bare, port)).await;
    spans.dns = Some(started.elapsed());
    match found.map(Iterator::collect::<Vec<_>>) {
        Ok(addresses) if !addresses.is_empty() => Ok(addresses),
        Ok(_) => Err(TransportFailure::Dns(format!("{bare}: no addresses"))),
        Err(error) => Err(TransportFailure::Dns(format!("{bare}: {error}"))),
    }
}

/// The last address's failure.
struct ConnectFailure {
    words: String,
    code: Option<i32>,
}

impl ConnectFailure {
    /// Whether it says something about this machine rather than about the other: no file descriptors, no ports, no
    /// buffers, no memory left.
    fn is_ours(&self) -> bool {
        use rustix::io::Errno;
        let ours = [Errno::MFILE, Errno::NFILE, Errno::ADDRNOTAVAIL, Errno::NOBUFS, Errno::NOMEM];
        self.code.is_some_and(|code| ours.iter().any(|errno| errno.raw_os_error() == code))
    }
}

/// Tries the addresses in the resolver's order. Each gets an equal share of what is left of the limit, so that
/// one that never answers cannot eat the time of the next.
async fn connect(
    addresses: &[SocketAddr],
    limit: Duration,
    spans: &mut Spans,
) -> Result<TcpStream, ConnectFailure> {
    let started = Instant::now();
    let mut last = ConnectFailure { words: "no addresses".to_owned(), code: None };
    for (tried, address) in addresses.iter().enumerate() {
        let left = u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
        let attempt = Instant::now();
        let is_last = left == 1;
        let share = limit.saturating_sub(started.elapsed()) / left;
        let connecting = TcpStream::connect(address);
        // The last one may use all that is left: the caller's deadline ends it.
        let result = if is_last {
            connecting.await
        } else {
            timeout(share, connecting).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        };
        match result {
            Ok(stream) => {
                spans.tcp = Some(attempt.elapsed());
                return Ok(stream);
            }
            Err(error) => {
                last = ConnectFailure { words: format!("{address}: {error}"), code: error.raw_os_error() };
            }
        }
    }
    spans.tcp = Some(started.elapsed());
    Err(last)
}

async fn handshake<S>(
    config: &Arc<rustls::ClientConfig>,
    host: &str,
    stream: S,
    spans: &mut Spans,
) -> Result<(tokio_rustls::client::TlsStream<S>, bool), TransportFailure>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let bare = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let name = ServerName::try_from(bare)
        .map_err(|error| TransportFailure::TlsHandshake(format!("{host}: {error}")))?;
    let started = Instant::now();
    let result = tokio_rustls::TlsConnector::from(config.clone()).connect(name, stream).await;
    spans.tls = Some(started.elapsed());
    let stream = result.map_err(|error| tls_failure(&error))?;
    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    Ok((stream, http2))
}

/// The common reasons in words; the others as the library names them.
#[allow(clippy::wildcard_enum_match_arm, reason = "the library may name more")]
fn in_words(reason: &rustls::CertificateError) -> String {
    use rustls::CertificateError as Reason;
    let text = reason.to_string();
    match reason {
        Reason::Expired | Reason::ExpiredContext { .. } => "it has expired".into(),
        Reason::NotValidYet | Reason::NotValidYetContext { .. } => "it is not valid yet".into(),
        Reason::UnknownIssuer => "nobody trusted here has issued it".into(),
        Reason::NotValidForName | Reason::NotValidForNameContext { .. } => "it is for another name".into(),
        Reason::Revoked => "it is revoked".into(),
        _ if text.contains("CaUsedAsEndEntity") => "it is self-signed".into(),
        _ => text,
    }
}

fn tls_failure(error: &io::Error) -> TransportFailure {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidCertificate(reason)) => {
            TransportFailure::TlsUntrusted(format!("certificate not accepted: {}", in_words(reason)))
        }
        _ => TransportFailure::TlsHandshake(error.to_string()),
    }
}
