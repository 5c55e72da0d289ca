//! The socket below HTTP: no delay, the true time of every write that carries tokens, and connection resets.
//!
//! Knows nothing of requests beyond whose record is current.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use axum::{
    extract::connect_info::Connected,
    serve::{IncomingStream, Listener},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
};

use super::oracle::{Record, lock};

/// Accepts connections for the HTTP server.
pub(super) struct Doorway(pub(super) TcpListener);

/// What a handler can do to the connection that its request came by.
#[derive(Debug, Clone, Default)]
pub(super) struct Connection(Arc<State>);

#[derive(Debug, Default)]
struct State {
    record: Mutex<Option<Record>>,
    reset: AtomicBool,
}

impl Connection {
    /// Writes from now on belong to this request.
    pub(super) fn serves(&self, record: &Record) {
        *lock(&self.0.record) = Some(record.clone());
    }

    /// The next write resets the connection instead.
    pub(super) fn reset(&self) {
        self.0.reset.store(true, Ordering::Release);
    }
}

impl Listener for Doorway {
    type Io = Wire;
    type Addr = Connection;

    async fn accept(&mut self) -> (Wire, Connection) {
        let (stream, _) = Listener::accept(&mut self.0).await;
        // Without it a token would wait for the acknowledgement of the one before; a socket that refuses is lost anyway.
        let _ = stream.set_nodelay(true);
        let connection = Connection::default();
        (Wire { stream, connection: connection.clone() }, connection)
    }

    fn local_addr(&self) -> io::Result<Connection> {
        Ok(Connection::default())
    }
}

impl Connected<IncomingStream<'_, Doorway>> for Connection {
    fn connect_info(stream: IncomingStream<'_, Doorway>) -> Self {
        stream.remote_addr().clone()
    }
}

/// One connection's bytes.
pub(super) struct Wire {
    stream: TcpStream,
    connection: Connection,
}

impl Wire {
    fn before_write(&self) -> io::Result<()> {
        if self.connection.0.reset.load(Ordering::Acquire) {
            self.stream.set_zero_linger()?;
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        if let Some(record) = &*lock(&self.connection.0.record) {
            record.stamp_write();
        }
        Ok(())
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.before_write()?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.before_write()?;
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
