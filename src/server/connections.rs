//! Connections of the HTTP surface: how many, how long, and how they end.
//!
//! Knows nothing of paths. `axum::serve` has no deadline for request headers and no limit of connections; one
//! client that opens a thousand and says nothing would take the files away that probes need. When there are too many, the
//! one that has waited longest makes room: whoever asks at once, as a scrape does, gets an answer however many others
//! only hold their connection.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::Router;
use hyper::{
    server::conn::http1,
    service::{Service as _, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{AbortHandle, JoinSet},
    time::timeout,
};
use tokio_rustls::TlsAcceptor;

use super::web::Web;

/// Most connections at a time; for further ones the idlest is closed, and counted.
const CONNECTIONS_MAX: usize = 256;
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
    let waiting = Waiting::default();
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
        while connections.try_join_next().is_some() {}
        if connections.len() >= CONNECTIONS_MAX {
            refused();
            if !waiting.close_longest() {
                // A courtesy: a client whose buffer is full only sees the connection close.
                let _ = stream.try_write(REFUSAL);
                continue;
            }
        }
        let place = waiting.place();
        let connection =
            secured(stream, web.current().tls.clone(), router.clone(), place.clone(), close.clone());
        let handle = connections.spawn(connection);
        place.taken_by(handle);
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
    place: Arc<Place>,
    close: watch::Receiver<()>,
) {
    let _ = stream.set_nodelay(true);
    let Some(tls) = tls else { return answer(stream, router, place, close).await };
    match timeout(HANDSHAKE_TIMEOUT, TlsAcceptor::from(tls).accept(stream)).await {
        Ok(Ok(stream)) => answer(stream, router, place, close).await,
        Ok(Err(error)) => tracing::debug!(%error, "a client's TLS handshake failed"),
        Err(_) => tracing::debug!("a client's TLS handshake took too long"),
    }
}

/// Answers the requests of one connection until it ends or is told to close.
async fn answer(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    router: Router,
    place: Arc<Place>,
    mut close: watch::Receiver<()>,
) {
    let service = TowerToHyperService::new(router);
    let service = service_fn(move |request| {
        let (service, place) = (service.clone(), place.clone());
        async move {
            place.works();
            let response = service.call(request).await;
            // Also while the answer is written: a client that does not read it waits, too.
            place.waits();
            response
        }
    });
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_READ_TIMEOUT)
            .max_buf_size(HEADER_BYTES_MAX)
            .serve_connection(TokioIo::new(stream), service)
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

/// The connections on which nobody is being answered, the longest first.
#[derive(Debug, Clone, Default)]
struct Waiting(Arc<Mutex<Queue>>);

#[derive(Debug, Default)]
struct Queue {
    next: u64,
    tasks: BTreeMap<u64, AbortHandle>,
}

/// One connection's place among them.
#[derive(Debug)]
struct Place {
    waiting: Waiting,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    task: Option<AbortHandle>,
    works: bool,
    number: Option<u64>,
}

impl Waiting {
    fn place(&self) -> Arc<Place> {
        Arc::new(Place { waiting: self.clone(), state: Mutex::default() })
    }

    /// Ends the connection that has waited longest; `false` when all are being answered.
    fn close_longest(&self) -> bool {
        let longest = self.queue().tasks.pop_first();
        longest.map(|(_, task)| task.abort()).is_some()
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// The connection is served by a task, and waits unless that was faster.
    fn taken_by(&self, task: AbortHandle) {
        let mut state = self.state();
        state.task = Some(task);
        if !state.works {
            self.queue_up(&mut state);
        }
    }

    fn works(&self) {
        let mut state = self.state();
        state.works = true;
        if let Some(number) = state.number.take() {
            self.waiting.queue().tasks.remove(&number);
        }
    }

    fn waits(&self) {
        let mut state = self.state();
        state.works = false;
        self.queue_up(&mut state);
    }

    fn queue_up(&self, state: &mut State) {
        let Some(task) = &state.task else { return };
        let mut queue = self.waiting.queue();
        let number = queue.next;
        queue.next += 1;
        queue.tasks.insert(number, task.clone());
        state.number = Some(number);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.works();
    }
}
