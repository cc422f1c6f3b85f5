//! The stream of one connection, which holds its place, and whose reader may not stall for ever.
//!
//! Owns the patience with a peer that does not read its answer. Reading passes straight through.

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use holdgate_core::limits::RESPONSE_STALL_MS;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Sleep;

/// A stream that fails once writing has made no progress for `RESPONSE_STALL_MS`.
pub(super) struct Stalling<S> {
    stream: S,
    /// Held until the stream is dropped, whoever has it by then.
    _place: OwnedSemaphorePermit,
    /// Runs while the peer takes nothing.
    patience: Option<Pin<Box<Sleep>>>,
}

impl<S> Stalling<S> {
    pub(super) fn new(stream: S, place: OwnedSemaphorePermit) -> Self {
        Self { stream, _place: place, patience: None }
    }

    fn bounded<T>(&mut self, context: &mut Context<'_>, written: Poll<Result<T>>) -> Poll<Result<T>> {
        if written.is_ready() {
            self.patience = None;
            return written;
        }
        let patience = self.patience.get_or_insert_with(|| {
            Box::pin(tokio::time::sleep(Duration::from_millis(RESPONSE_STALL_MS.unsigned_abs())))
        });
        match patience.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(Error::new(ErrorKind::TimedOut, "the peer does not read"))),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Stalling<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stalling<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.bounded(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.bounded(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.bounded(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.bounded(context, shut)
    }
}
