//! A socket that notes when its last read returned.
//!
//! The stamp is taken here, beneath TLS and HTTP, before a byte is decrypted or parsed: whatever the layers
//! above cut the read into, all of it arrived at this instant. Knows nothing of what the bytes mean.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::Instant,
};

/// The instant of a socket's latest read, shared between the socket and whoever asks.
///
/// Both live in one task (see [`super::http`]), so the order of the accesses needs no fence.
#[derive(Debug, Clone)]
pub(super) struct LastRead {
    epoch: Instant,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    nanos: AtomicU64,
    bytes: AtomicU64,
}

impl LastRead {
    fn stamp(&self) {
        let nanos = self.epoch.elapsed().as_nanos();
        self.shared.nanos.store(u64::try_from(nanos).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// When the latest read that brought bytes, an error or the end of the stream returned.
    pub(super) fn instant(&self) -> Instant {
        self.epoch + Duration::from_nanos(self.shared.nanos.load(Ordering::Relaxed))
    }

    /// Bytes read so far.
    pub(super) fn bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::Relaxed)
    }
}

/// A TCP stream whose reads are stamped.
#[derive(Debug)]
pub(super) struct Stamped {
    stream: TcpStream,
    last_read: LastRead,
}

impl Stamped {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self { stream, last_read: LastRead { epoch: Instant::now(), shared: Arc::default() } }
    }

    pub(super) fn last_read(&self) -> LastRead {
        self.last_read.clone()
    }
}

impl AsyncRead for Stamped {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let filled = buf.filled().len();
        let poll = Pin::new(&mut self.stream).poll_read(cx, buf);
        if poll.is_ready() {
            self.last_read.stamp();
            let read = (buf.filled().len() - filled) as u64;
            self.last_read.shared.bytes.fetch_add(read, Ordering::Relaxed);
        }
        poll
    }
}

impl AsyncWrite for Stamped {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
