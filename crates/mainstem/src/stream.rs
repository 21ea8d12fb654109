//! A connection's socket, plain or with TLS, behind the same words: what can be read and written now, and when more can.
//!
//! With TLS what was received and decrypted may wait here while the socket is empty ([`Stream::ready`] then does not wait), and what was
//! encrypted may wait for the socket ([`Stream::wants_write`]). Both are bounded: rustls decrypts a record only when the last one
//! was taken, and takes no more than [`UNSENT_MAX`] to be sent.

use std::cell::RefCell;
use std::io::{BufRead, Error, ErrorKind, IoSlice, Read, Result, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use rustls::{ServerConfig, ServerConnection};
use tokio::io::{Interest, Ready};
use tokio::net::TcpStream;

/// Bytes that wait encrypted for the socket.
const UNSENT_MAX: usize = 256 << 10;
/// How long, and how many bytes, a peer that has been told of the end may go on sending.
const LINGER_MAX: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 64 << 20;
/// Of these, read at once.
const DISCARDED_BYTES: usize = 16 << 10;
/// How long a peer may take to hang up where that is for it to do.
const HANG_UP_MAX: Duration = Duration::from_secs(5);

/// The socket of a connection.
pub enum Stream {
    /// As it is.
    Plain(TcpStream),
    /// Encrypted.
    Tls(Box<TlsStream>),
}

/// The other side of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// It may send.
    There,
    /// It has closed its side, and may still read.
    SendsNoMore,
    /// It takes nothing more. What it had sent before can still be read.
    Gone,
}

/// A socket and the state of TLS on it.
pub struct TlsStream {
    tcp: TcpStream,
    tls: RefCell<ServerConnection>,
}

/// The socket for rustls.
struct Socket<'a>(&'a TcpStream);

impl Read for Socket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        self.0.try_read(buffer)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> Result<usize> {
        self.0.try_write_vectored(slices)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

/// What the socket does not take now waits.
fn flush(tls: &mut ServerConnection, tcp: &TcpStream) -> Result<()> {
    while tls.wants_write() {
        match tls.write_tls(&mut Socket(tcp)) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Takes what the socket has; 0 bytes: the peer sends no more.
fn receive(tls: &mut ServerConnection, tcp: &TcpStream) -> Result<usize> {
    let got = tls.read_tls(&mut Socket(tcp))?;
    if let Err(error) = tls.process_new_packets() {
        // The peer is told why, if it can be.
        let _ = flush(tls, tcp);
        return Err(Error::new(ErrorKind::InvalidData, error));
    }
    flush(tls, tcp)?;
    Ok(got)
}

impl TlsStream {
    /// Waits until some plain text is there, as far as that needs no waiting for the socket; 0: there is no more.
    fn fill(&self, tls: &mut ServerConnection) -> Result<usize> {
        loop {
            match tls.reader().fill_buf() {
                Ok(chunk) => return Ok(chunk.len()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            if receive(tls, &self.tcp)? == 0 {
                return Ok(0);
            }
        }
    }
}

impl Stream {
    /// Shakes hands on a fresh socket.
    ///
    /// # Errors
    /// When the peer speaks no TLS, is not trusted, or takes longer than `within`: `TimedOut`.
    pub async fn accept(tcp: TcpStream, config: Arc<ServerConfig>, within: Duration) -> Result<Self> {
        let mut tls = ServerConnection::new(config).map_err(Error::other)?;
        tls.set_buffer_limit(Some(UNSENT_MAX));
        let shaking = async {
            loop {
                flush(&mut tls, &tcp)?;
                if !tls.is_handshaking() {
                    return Ok(());
                }
                let interest =
                    if tls.wants_write() { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
                if !tcp.ready(interest).await?.is_readable() {
                    continue;
                }
                match receive(&mut tls, &tcp) {
                    Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
        };
        tokio::time::timeout(within, shaking)
            .await
            .map_err(|_| Error::new(ErrorKind::TimedOut, format!("it took longer than {} ms", within.as_millis())))??;
        Ok(Self::Tls(Box::new(TlsStream { tcp, tls: RefCell::new(tls) })))
    }

    /// The certificate of the peer, if it has shown one.
    pub fn certificate(&self) -> Option<Vec<u8>> {
        let Self::Tls(stream) = self else { return None };
        stream.tls.borrow().peer_certificates().and_then(|chain| chain.first()).map(|one| one.to_vec())
    }

    /// What the system knows of the peer, for those who do not read, whom nobody tells.
    pub fn peer(&self) -> Peer {
        let mut asked = libc::pollfd { fd: self.tcp().as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
        // SAFETY: one entry, on an open descriptor, without waiting.
        let found = unsafe { libc::poll(&raw mut asked, 1, 0) };
        match if found > 0 { asked.revents } else { 0 } {
            events if events & (libc::POLLHUP | libc::POLLERR) != 0 => Peer::Gone,
            events if events & libc::POLLRDHUP != 0 => Peer::SendsNoMore,
            _ => Peer::There,
        }
    }

    /// Bytes that were sent and that the peer has not confirmed.
    pub fn untaken(&self) -> u64 {
        let mut bytes: libc::c_int = 0;
        // SAFETY: it writes a number to where it is told, on an open descriptor.
        let found = unsafe { libc::ioctl(self.tcp().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
        if found == 0 { u64::try_from(bytes).unwrap_or(0) } else { 0 }
    }

    /// Is it the socket itself, so that a read which does not fill its buffer has emptied it?
    pub fn is_plain(&self) -> bool {
        matches!(self, Self::Plain(_))
    }

    /// Does something that was written wait for the socket?
    pub fn wants_write(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(stream) => stream.tls.borrow().wants_write(),
        }
    }

    /// Sends what was written and waits, as far as the socket takes it.
    pub fn flush(&self) -> Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Tls(stream) => flush(&mut stream.tls.borrow_mut(), &stream.tcp),
        }
    }

    /// Waits until the peer hangs up, at most for a time; what it still sends is not looked at. A client that has asked for the end of its
    /// connection, and reads the end of the stream right behind the answer, may take that for a failure.
    /// `answered`: or until it has said anything more.
    pub async fn await_hang_up(&self, answered: bool) {
        let bytes = if answered { 0 } else { LINGER_BYTES };
        let _ = tokio::time::timeout(HANG_UP_MAX, self.discard(bytes)).await;
    }

    /// Sends no more, and reads without looking at it what the peer still sends, until it closes its side or a bound is reached. A socket
    /// that is closed with bytes unread is reset, and the peer may lose the last words sent to it.
    pub async fn linger(&self) {
        self.close();
        if socket2::SockRef::from(self.tcp()).shutdown(Shutdown::Write).is_ok() {
            let _ = tokio::time::timeout(LINGER_MAX, self.discard(LINGER_BYTES)).await;
        }
    }

    /// Tells the peer that no more comes.
    pub fn close(&self) {
        if let Self::Tls(stream) = self {
            let mut tls = stream.tls.borrow_mut();
            tls.send_close_notify();
            let _ = flush(&mut tls, &stream.tcp);
        }
    }

    /// Ends at once when it is dropped: the peer hears of a reset. What it does not take would stay in the system otherwise, for minutes.
    pub fn abort(&self) {
        let _ = socket2::SockRef::from(self.tcp()).set_linger(Some(Duration::ZERO));
    }

    /// Reads and drops what comes until there is no more, or more than so much.
    async fn discard(&self, mut room: usize) {
        while self.ready(Interest::READABLE).await.is_ok() {
            // Nothing is kept while it waits: there may be thousands that were ended together.
            let mut scratch = Vec::with_capacity(DISCARDED_BYTES);
            match self.try_read(&mut scratch, DISCARDED_BYTES) {
                Ok(0) => return,
                Ok(got) if got > room => return,
                Ok(got) => room -= got,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    }

    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(stream) => &stream.tcp,
        }
    }

    /// Waits until one of these is possible.
    pub async fn ready(&self, interest: Interest) -> Result<Ready> {
        match self {
            Self::Plain(tcp) => tcp.ready(interest).await,
            Self::Tls(stream) => {
                let waits = interest.is_readable() && stream.tls.borrow_mut().reader().fill_buf().is_ok();
                if waits { Ok(Ready::READABLE) } else { stream.tcp.ready(interest).await }
            }
        }
    }

    /// Notes that a read has emptied the socket, so that [`Stream::ready`] waits for more.
    pub fn set_drained(&self) {
        if let Self::Plain(tcp) = self {
            let _ = tcp.try_io(Interest::READABLE, || Err::<(), _>(ErrorKind::WouldBlock.into()));
        }
    }

    /// Acknowledges what has come, which the system otherwise puts off for up to 40 ms. A peer that follows Nagle's algorithm sends the rest of
    /// a request when its first part is acknowledged: librdkafka 2.0 does, and sends each request in parts with TLS.
    pub fn acknowledge(&self) {
        #[cfg(target_os = "linux")]
        let _ = self.tcp().set_quickack(true);
    }

    /// Reads at most `most` bytes into the free room of a buffer, which is there; 0: no more comes.
    pub fn try_read(&self, buffer: &mut Vec<u8>, most: usize) -> Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.try_read_buf(&mut buffer.limit(most)),
            Self::Tls(stream) => {
                let mut tls = stream.tls.borrow_mut();
                let got = stream.fill(&mut tls)?.min(most);
                if got > 0 {
                    let mut reader = tls.reader();
                    buffer.extend_from_slice(&reader.fill_buf()?[..got]);
                    reader.consume(got);
                }
                Ok(got)
            }
        }
    }

    /// Reads into the free room of a buffer; 0: no more comes.
    pub fn try_read_buf(&self, buffer: &mut BytesMut) -> Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.try_read_buf(buffer),
            Self::Tls(stream) => {
                let mut tls = stream.tls.borrow_mut();
                let got = stream.fill(&mut tls)?.min(buffer.capacity() - buffer.len());
                if got > 0 {
                    let mut reader = tls.reader();
                    buffer.extend_from_slice(&reader.fill_buf()?[..got]);
                    reader.consume(got);
                }
                Ok(got)
            }
        }
    }

    /// Writes what is taken now.
    pub fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.try_write_vectored(slices),
            Self::Tls(stream) => {
                let mut tls = stream.tls.borrow_mut();
                flush(&mut tls, &stream.tcp)?;
                if tls.wants_write() {
                    return Err(ErrorKind::WouldBlock.into());
                }
                let taken = tls.writer().write_vectored(slices)?;
                flush(&mut tls, &stream.tcp)?;
                Ok(taken)
            }
        }
    }
}
