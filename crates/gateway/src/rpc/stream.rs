//! The bytes under a connection, of which a stranger gets few.
//!
//! Owns the bound on what is read before a peer has shown who it is. Knows nothing of frames.

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream that gives out only so many bytes until it is opened.
pub(super) struct Bounded<S> {
    stream: S,
    left: Option<usize>,
}

impl<S> Bounded<S> {
    /// A stream of at most `bytes`.
    pub(super) fn new(stream: S, bytes: usize) -> Self {
        Self { stream, left: Some(bytes) }
    }

    /// Takes the bound off.
    pub(super) fn open(&mut self) {
        self.left = None;
    }

    /// Whether the bound was reached.
    pub(super) fn is_spent(&self) -> bool {
        self.left == Some(0)
    }

    /// The stream itself.
    pub(super) fn into_inner(self) -> S {
        self.stream
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        let Some(left) = self.left else {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        };
        if left == 0 {
            return Poll::Ready(Err(Error::new(ErrorKind::QuotaExceeded, "too much before the handshake")));
        }
        let room = left.min(buffer.remaining());
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(room));
        let read = Pin::new(&mut self.stream).poll_read(context, &mut part);
        let filled = part.filled().len();
        buffer.advance(filled);
        self.left = Some(left - filled);
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bounded<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
