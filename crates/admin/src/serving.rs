//! Takes connections of HTTP, within bounds that hold before it is known who asks: so many at once, so many of one address, a time for
//! the head of a request, and one after which nobody waits any longer for a peer that reads nothing of its answer. What a request's body
//! may cost is bounded where it is read.
//!
//! At a limit the oldest connection without a request in progress is closed for a new one: of the same address at its limit, of the address with most
//! connections where descriptors run out. At the limit of all connections one of an address that has many gives way to who comes from another (`Crowd`).

use std::future::Future;
use std::io::{Error, ErrorKind, IoSlice, Result};
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::extract::ConnectInfo;
use axum::{Extension, Router};
use broker::{Crowd, place_of};
use bytes::Bytes;
use hyper::Request;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep, sleep};

use crate::origin::Peers;

/// Bytes of the head of a request.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// After an error of the system nothing is accepted for so long.
const PAUSE: Duration = Duration::from_millis(100);

/// How long, and how many bytes, a peer that has been told the last may go on sending; of these, read at once.
const LINGER_MAX: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 64 << 20;
const DISCARDED_BYTES: usize = 8 << 10;

/// What connections may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// At once.
    pub connections: usize,
    /// Of one address.
    pub of_address: usize,
    /// The number of a socket's descriptor is lower.
    pub descriptors: i32,
    /// From one answer, or the beginning, to the end of the next request's head.
    pub head_time: Duration,
    /// A peer that reads nothing of an answer for so long is gone.
    pub stall_time: Duration,
}

impl Bounds {
    /// Those of the broker.
    pub const USUAL: Self = Self {
        connections: 1000,
        of_address: 250,
        descriptors: i32::MAX,
        head_time: Duration::from_secs(60),
        stall_time: Duration::from_secs(30),
    };
}

/// All connections of the ports that share it.
pub(crate) struct Connections {
    bounds: Bounds,
    inner: Mutex<Crowd<Member>>,
}

/// A connection as the others see it.
#[derive(Default)]
struct Member {
    /// Told when another takes its place.
    goes: Notify,
    /// Requests that are not answered yet.
    requests: AtomicUsize,
}

impl Member {
    fn is_idle(&self) -> bool {
        self.requests.load(Ordering::Relaxed) == 0
    }
}

/// A request in progress; over when its answer is done with.
struct InProgress(Arc<Member>);

impl InProgress {
    fn new(member: &Arc<Member>) -> Self {
        member.requests.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(member))
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The body of an answer, whose request is in progress until it is dropped.
struct Answer {
    body: axum::body::Body,
    _in_progress: InProgress,
}

impl Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The place of one connection; given back with it.
struct Place {
    of: Arc<Connections>,
    address: IpAddr,
    member: Arc<Member>,
}

impl Connections {
    pub fn new(bounds: Bounds) -> Arc<Self> {
        Arc::new(Self { bounds, inner: Mutex::default() })
    }

    /// `None`: there is no place for another from there. Without a descriptor of its own it needs that of another.
    fn enter(self: &Arc<Self>, address: IpAddr, has_descriptor: bool) -> Option<Place> {
        let address = place_of(address);
        let mut inner = self.inner.lock();
        let displaced = if !has_descriptor {
            Some(inner.displace_first(None, Member::is_idle)?)
        } else if inner.of(address) >= self.bounds.of_address {
            Some(inner.displace_first(Some(address), Member::is_idle)?)
        } else if inner.len() >= self.bounds.connections {
            Some(
                inner
                    .displace_for(address)
                    .map(|(_, one)| one)
                    .or_else(|| inner.displace_first(Some(address), Member::is_idle))?,
            )
        } else {
            None
        };
        if let Some(displaced) = displaced {
            displaced.goes.notify_one();
        }
        let member = Arc::<Member>::default();
        inner.push(address, Arc::clone(&member));
        Some(Place { of: Arc::clone(self), address, member })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.of.inner.lock().remove(self.address, &self.member);
    }
}

/// Serves those who connect, without an end.
pub(crate) async fn serve(listener: TcpListener, router: Router, connections: Arc<Connections>) {
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "connection to the administration pages not accepted");
                sleep(PAUSE).await;
                continue;
            }
        };
        let has_descriptor = stream.as_raw_fd() < connections.bounds.descriptors;
        let Some(place) = connections.enter(peer.ip(), has_descriptor) else {
            tracing::debug!(address = %peer.ip(), "connection to the administration pages refused: there are too many");
            continue;
        };
        let peers = Peers { local: stream.local_addr().unwrap_or(peer), peer };
        tokio::spawn(serve_one(stream, router.clone().layer(Extension(ConnectInfo(peers))), place));
        if !has_descriptor {
            // The one that gave way closes its socket before another is accepted.
            tokio::task::yield_now().await;
        }
    }
}

async fn serve_one(stream: TcpStream, router: Router, place: Place) {
    let bounds = place.of.bounds;
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(bounds.head_time).max_buf_size(HEAD_BYTES_MAX);
    let member = Arc::clone(&place.member);
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |request: Request<Incoming>| {
        let (answering, in_progress) = (router.call(request), InProgress::new(&member));
        async move {
            // Requests that came together are no reason to let others wait.
            tokio::task::yield_now().await;
            answering.await.map(|response| response.map(|body| Answer { body, _in_progress: in_progress }))
        }
    });
    let stream = Watched {
        stream,
        stall_time: bounds.stall_time,
        stalled: Box::pin(sleep(bounds.stall_time)),
        waits: false,
        left: None,
    };
    tokio::select! {
        // A peer that breaks off, or keeps to no rule, is nothing that anybody has to look after.
        _ = http.serve_connection(TokioIo::new(stream), service) => {}
        () = place.member.goes.notified() => {}
    }
}

/// A socket whose peer has to read what is sent to it. At its end it is read for a while without looking at what comes: a socket that is closed with bytes
/// unread, those of a body that was refused for instance, is reset, and the peer may lose the answer.
struct Watched {
    stream: TcpStream,
    stall_time: Duration,
    /// Runs while something waits to be sent, and from the end on.
    stalled: Pin<Box<Sleep>>,
    waits: bool,
    /// Bytes that may still come, once nothing more is sent.
    left: Option<usize>,
}

impl Watched {
    fn watch(&mut self, written: Poll<Result<usize>>, context: &mut Context<'_>) -> Poll<Result<usize>> {
        if written.is_ready() {
            self.waits = false;
            return written;
        }
        if !self.waits {
            self.waits = true;
            let until = Instant::now() + self.stall_time;
            self.stalled.as_mut().reset(until);
        }
        self.stalled.as_mut().poll(context).map(|()| Err(Error::new(ErrorKind::TimedOut, "the peer reads nothing")))
    }
}

impl AsyncRead for Watched {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.watch(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let mut left = match self.left {
            Some(left) => left,
            None => {
                ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
                let until = Instant::now() + LINGER_MAX;
                self.stalled.as_mut().reset(until);
                LINGER_BYTES
            }
        };
        loop {
            self.left = Some(left);
            let mut scratch = [0; DISCARDED_BYTES];
            let mut buffer = ReadBuf::new(&mut scratch);
            let late = self.stalled.as_mut().poll(context).is_ready();
            match Pin::new(&mut self.stream).poll_read(context, &mut buffer) {
                _ if late => return Poll::Ready(Ok(())),
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(_)) => return Poll::Ready(Ok(())),
                Poll::Ready(Ok(())) => match left.checked_sub(buffer.filled().len()) {
                    Some(rest) if rest < left => left = rest,
                    _ => return Poll::Ready(Ok(())),
                },
            }
        }
    }
}

#[cfg(test)]
mod tests;
