//! Connections of the HTTP surface: how many, how long, and how they end.
//!
//! Knows nothing of paths. `axum::serve` has no deadline for request headers and no limit of connections; one
//! client that opens a thousand and says nothing would take the files away that probes need.

use std::{future::Future, pin::pin, sync::Arc, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::TlsAcceptor;

use super::web::Web;

/// Most connections at a time; further ones are refused and counted.
const CONNECTIONS_MAX: usize = 128;
/// Longest time from opening a connection, or from the end of the last answer, to the end of the next request's headers.
const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time for a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Most bytes of request headers (and the least that hyper allows).
const HEADER_BYTES_MAX: usize = 16 * 1024;
/// How long running answers may go on after shutdown.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(3);
/// Rest after an accept that failed, as it does when there are no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a refused client reads.
const REFUSAL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// Accepts connections until `shutdown` resolves, then lets running answers end, within [`DRAIN_TIMEOUT`].
pub(super) async fn serve(
    listener: TcpListener,
    (router, web): (Router, Web),
    refused: impl Fn(),
    shutdown: impl Future<Output = ()>,
) {
    let mut shutdown = pin!(shutdown);
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let (closing, close) = watch::channel(());
    let mut connections = JoinSet::new();
    let mut watch = pin!(web.watch());
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            () = &mut watch => continue,
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(permit) = permits.clone().try_acquire_owned() else {
            refused();
            // A courtesy: a client whose buffer is full only sees the connection close.
            let _ = stream.try_write(REFUSAL);
            continue;
        };
        let connection = secured(stream, web.current().tls.clone(), router.clone(), close.clone());
        connections.spawn(async move {
            connection.await;
            drop(permit);
        });
    }
    drop(listener);
    drop(closing);
    let drained = timeout(DRAIN_TIMEOUT, async { while connections.join_next().await.is_some() {} });
    if drained.await.is_err() {
        tracing::debug!(open = connections.len(), "connections were cut at shutdown");
    }
}

/// Shakes hands where TLS is configured, then answers.
async fn secured(
    stream: TcpStream,
    tls: Option<Arc<rustls::ServerConfig>>,
    router: Router,
    close: watch::Receiver<()>,
) {
    let _ = stream.set_nodelay(true);
    let Some(tls) = tls else { return answer(stream, router, close).await };
    match timeout(HANDSHAKE_TIMEOUT, TlsAcceptor::from(tls).accept(stream)).await {
        Ok(Ok(stream)) => answer(stream, router, close).await,
        Ok(Err(error)) => tracing::debug!(%error, "a client's TLS handshake failed"),
        Err(_) => tracing::debug!("a client's TLS handshake took too long"),
    }
}

/// Answers the requests of one connection until it ends or is told to close.
async fn answer(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    router: Router,
    mut close: watch::Receiver<()>,
) {
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_READ_TIMEOUT)
            .max_buf_size(HEADER_BYTES_MAX)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
    );
    tokio::select! {
        ended = &mut connection => return log(ended),
        _ = close.changed() => connection.as_mut().graceful_shutdown(),
    }
    log(connection.await);
}

fn log(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "a client's connection broke");
    }
}
