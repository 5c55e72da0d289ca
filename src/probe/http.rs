//! One HTTP connection, driven by whoever waits for it.
//!
//! reqwest and hyper's own client keep connections in a pool and move them in background tasks: a pool hides
//! whether a probe opened its connection, races new connections against idle ones, and a background task may
//! read on before the last read's bytes were looked at, which blurs the stamps. So this path uses hyper's bare
//! connections: each belongs to one lane and makes progress only inside that lane's task.

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;
use tokio_rustls::client::TlsStream;

use super::{
    bell::Bell,
    connect::Dialed,
    stamped::{LastRead, Stamped},
};

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// An open connection with everything needed to move it.
pub(super) struct Connection {
    sender: Sender,
    driver: Driver,
    last_read: LastRead,
}

enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

/// The futures that move a connection; polled by the lane, never spawned.
struct Driver {
    running: Vec<Task>,
    spawned: Lap,
    bell: Bell,
}

/// hyper's HTTP/2 client wants an executor: this one only collects, the lane polls.
#[derive(Clone, Default)]
struct Lap(Arc<Collected>);

#[derive(Default)]
struct Collected {
    /// Looked at before the lock is: nearly always there is nothing.
    any: AtomicBool,
    tasks: Mutex<Vec<Task>>,
}

impl Lap {
    fn take(&self) -> Vec<Task> {
        if !self.0.any.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        std::mem::take(&mut *self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<F> hyper::rt::Executor<F> for Lap
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, future: F) {
        self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner).push(Box::pin(future));
        self.0.any.store(true, Ordering::Release);
    }
}

impl Driver {
    fn new() -> Self {
        Self { running: Vec::new(), spawned: Lap::default(), bell: Bell::new() }
    }

    /// Moves everything once; finished futures are dropped.
    fn poll(&mut self, cx: &mut Context<'_>) {
        move_all(&mut self.running, &self.spawned, cx);
    }

    /// Runs `future` while moving the connection it depends on.
    async fn drive<F: Future>(&mut self, future: F) -> F::Output {
        let mut future = pin!(future);
        let Self { running, spawned, bell } = self;
        std::future::poll_fn(|cx| {
            bell.answer(cx, |cx| {
                // First what arrived already, so that it is taken before the next read overwrites its stamp.
                if let Poll::Ready(output) = future.as_mut().poll(cx) {
                    return Poll::Ready(output);
                }
                move_all(running, spawned, cx);
                future.as_mut().poll(cx)
            })
        })
        .await
    }
}

fn move_all(running: &mut Vec<Task>, spawned: &Lap, cx: &mut Context<'_>) {
    running.retain_mut(|task| task.as_mut().poll(cx).is_pending());
    loop {
        let mut fresh = spawned.take();
        if fresh.is_empty() {
            return;
        }
        fresh.retain_mut(|task| task.as_mut().poll(cx).is_pending());
        running.append(&mut fresh);
    }
}

impl Connection {
    /// Speaks first: the HTTP/2 preface, or nothing for HTTP/1.1.
    pub(super) async fn open(dialed: Dialed) -> Result<Self, hyper::Error> {
        let mut driver = Driver::new();
        let io = TokioIo::new(dialed.stream);
        let sender = if dialed.http2 {
            let handshake = http2::Builder::new(driver.spawned.clone())
                .timer(TokioTimer::new())
                .initial_stream_window_size(1 << 20)
                .initial_connection_window_size(1 << 20)
                .handshake(io);
            let (sender, connection) = driver.drive(handshake).await?;
            driver.running.push(Box::pin(async move {
                // Its error reaches the request that was in flight.
                let _ = connection.await;
            }));
            Sender::Http2(sender)
        } else {
            let (sender, connection) = http1::handshake(io).await?;
            driver.running.push(Box::pin(async move {
                let _ = connection.await;
            }));
            Sender::Http1(sender)
        };
        Ok(Self { sender, driver, last_read: dialed.last_read })
    }

    /// Whether the connection still takes requests, as far as can be known without waiting.
    pub(super) fn is_open(&mut self) -> bool {
        self.driver.poll(&mut Context::from_waker(Waker::noop()));
        match &self.sender {
            Sender::Http1(sender) => sender.is_ready(),
            Sender::Http2(sender) => sender.is_ready(),
        }
    }

    /// Whether requests carry the absolute URI rather than path and `Host`.
    pub(super) fn is_http2(&self) -> bool {
        matches!(self.sender, Sender::Http2(_))
    }

    /// Sends a request and waits for the response's head.
    pub(super) async fn send(
        &mut self,
        request: http::Request<Full<Bytes>>,
    ) -> Result<http::Response<Incoming>, hyper::Error> {
        match &mut self.sender {
            Sender::Http1(sender) => {
                self.driver.drive(sender.ready()).await?;
                self.driver.drive(sender.send_request(request)).await
            }
            Sender::Http2(sender) => {
                self.driver.drive(sender.ready()).await?;
                self.driver.drive(sender.send_request(request)).await
            }
        }
    }

    /// Waits for `future` (a read of the body) while moving the connection.
    pub(super) async fn drive<F: Future>(&mut self, future: F) -> F::Output {
        self.driver.drive(future).await
    }

    /// Bytes read so far, whatever they were.
    pub(super) fn bytes_read(&self) -> u64 {
        self.last_read.bytes()
    }

    /// When the latest read returned.
    pub(super) fn last_read(&self) -> Instant {
        self.last_read.instant()
    }
}

/// A byte stream to a target: in the clear, over TLS, or over TLS inside a proxy's tunnel.
pub(super) enum Stream {
    Plain(Stamped),
    Tls(Box<TlsStream<Stamped>>),
    Tunnelled(Box<TlsStream<TokioIo<hyper::upgrade::Upgraded>>>),
}

macro_rules! each_stream {
    ($self:expr, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            Stream::Plain($stream) => $call,
            Stream::Tls($stream) => $call,
            Stream::Tunnelled($stream) => $call,
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        each_stream!(self, stream => Pin::new(stream).poll_read(cx, buf))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        each_stream!(self, stream => Pin::new(stream).poll_write(cx, buf))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        each_stream!(self, stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        each_stream!(self, stream => Pin::new(stream).poll_shutdown(cx))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        each_stream!(self, stream => Pin::new(stream).poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
            Self::Tunnelled(stream) => stream.is_write_vectored(),
        }
    }
}
