//! Connection that fails if the client does not read for too long.

use std::io::{self, Error, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// Connection with a limit on the time of each write.
pub(crate) struct WriteTimeout<T> {
    inner: T,
    timeout: Duration,
    /// Timer of the present write.
    timer: Pin<Box<Sleep>>,
    /// True if the timer runs.
    is_waiting: bool,
}

impl<T> WriteTimeout<T> {
    /// Limits the time of each write.
    pub(crate) fn new(inner: T, timeout: Duration) -> Self {
        Self { inner, timeout, timer: Box::pin(sleep(timeout)), is_waiting: false }
    }

    /// Returns the result of a write, or an error if the write took too long.
    fn limit<R>(&mut self, result: Poll<io::Result<R>>, context: &mut Context<'_>) -> Poll<io::Result<R>> {
        if result.is_ready() {
            self.is_waiting = false;
            return result;
        }
        if !self.is_waiting {
            self.timer.as_mut().reset(Instant::now() + self.timeout);
            self.is_waiting = true;
        }
        ready!(self.timer.as_mut().poll(context));
        Poll::Ready(Err(Error::new(ErrorKind::TimedOut, "the client does not read")))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for WriteTimeout<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.limit(result, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.inner).poll_flush(context);
        self.limit(result, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.inner).poll_shutdown(context);
        self.limit(result, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write_vectored(context, slices);
        self.limit(result, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::WriteTimeout;

    #[test]
    fn a_client_that_does_not_read_ends_the_connection() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (near, mut far) = duplex(4);
            let mut near = WriteTimeout::new(near, Duration::from_millis(5));
            near.write_all(b"1234").await.unwrap();
            let mut read = [0; 4];
            far.read_exact(&mut read).await.unwrap();
            near.write_all(b"5678").await.unwrap();
            let error = near.write_all(b"9").await.unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
        });
    }
}
