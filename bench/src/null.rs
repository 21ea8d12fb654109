//! Null brokers: servers that acknowledge what publishing clients send and keep nothing.
//!
//! Against one of these a load generator meets no broker's limits, only its own and those of its client library. They
//! serve what publishing clients need and nothing beyond: no consuming (but for AMQP), no authentication, no TLS, and
//! whatever topic, queue or stream is named exists. A client that asks for more is refused, mostly by ending its connection.
//!
//! This file owns the sockets: a thread per connection reads in bulk, lets a [`Session`] take pieces off what arrived and
//! gathers the answers of a read into one write. A piece may go beyond what has arrived; a message's payload is such a
//! piece, and long ones are dropped inside the kernel. Nothing is allocated because a length says so: the buffer grows
//! only when it is full of bytes that did arrive, up to a bound, and frames are refused by their length before.

mod amqp;
mod kafka;
mod nats;
mod pulsar;
mod relay;
mod scan;

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use self::relay::Relay;
use crate::drivers::NAMES;
use crate::nearest;

/// Taken by one read, at most, unless the buffer had to grow.
const READ_BYTES: usize = 256 << 10;
/// A piece that must lie in memory whole: everything but payloads.
const PIECE_BYTES_MAX: usize = 4 << 20;
/// A message with all that surrounds it.
const MESSAGE_BYTES_MAX: usize = 128 << 20;
/// Answers leave at the end of a read, or when there are this many bytes of them.
const ANSWER_BYTES: usize = 64 << 10;
/// From here on a payload is dropped by the kernel; below, reading it together with what follows it is cheaper.
const DROP_BYTES_MIN: usize = 64 << 10;
const _: () = assert!(DROP_BYTES_MIN <= READ_BYTES, "what is not dropped fits into the buffer");
const CONNECTIONS_MAX: usize = 4096;
/// After a failure to accept, which is mostly the lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// What clients are told.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Of every topic, for protocols whose topics have partitions.
    pub partitions: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { partitions: 1 }
    }
}

/// A running null broker in this process' threads; ends when dropped.
#[derive(Debug)]
pub struct Null {
    /// Where it listens.
    pub address: SocketAddr,
    connections: Arc<Connections>,
    acceptor: Option<JoinHandle<()>>,
}

/// Starts a null broker on a free port of the loopback interface.
///
/// # Errors
/// The protocol is none of [`NAMES`], or there is no port or thread to be had.
pub fn start(protocol: &str, options: Options) -> Result<Null> {
    let serve = protocol_named(protocol)?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen on the loopback interface")?;
    let address = listener.local_addr()?;
    let connections = Arc::new(Connections::default());
    let of_acceptor = connections.clone();
    let acceptor = thread::Builder::new()
        .name("null-accept".to_owned())
        .spawn(move || accept(&listener, serve, options, &of_acceptor))?;
    Ok(Null { address, connections, acceptor: Some(acceptor) })
}

impl Drop for Null {
    fn drop(&mut self) {
        self.connections.ended.store(true, Ordering::Release);
        // Accepting blocks: one more connection lets it see that it is over.
        let woken = TcpStream::connect(self.address).is_ok();
        if let Some(acceptor) = self.acceptor.take()
            && woken
        {
            let _ = acceptor.join();
        }
    }
}

/// Serves one connection until it ends.
type Serve = fn(&TcpStream, Options, &Arc<Relay>) -> Result<()>;

fn protocol_named(name: &str) -> Result<Serve> {
    Ok(match name {
        "kafka" => |stream, options, _| converse(stream, kafka::Kafka::new(options, stream.local_addr()?)),
        "amqp" => |stream, _, relay| converse(stream, amqp::Amqp::new(stream, Arc::clone(relay))?),
        "pulsar" => |stream, options, _| converse(stream, pulsar::Pulsar::new(options, stream.local_addr()?)),
        "nats" => |stream, _, _| converse(stream, nats::Nats::default()),
        other => bail!("no null broker for `{other}`; did you mean `{}`?", nearest(NAMES.into_iter(), other)),
    })
}

/// The connections of one null broker.
#[derive(Debug, Default)]
struct Connections {
    ended: AtomicBool,
    open: Mutex<HashMap<u64, Arc<TcpStream>>>,
    relay: Arc<Relay>,
}

impl Connections {
    fn open(&self) -> MutexGuard<'_, HashMap<u64, Arc<TcpStream>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers it, so that it can be ended; not when there are too many.
    fn add(&self, number: u64, stream: &Arc<TcpStream>) -> bool {
        let mut open = self.open();
        let room = open.len() < CONNECTIONS_MAX;
        if room {
            open.insert(number, stream.clone());
        }
        room
    }
}

/// Accepts connections, each on a thread of its own, until told to end; all of them have ended then.
fn accept(listener: &TcpListener, serve: Serve, options: Options, connections: &Connections) {
    thread::scope(|scope| {
        for number in 0.. {
            let accepted = listener.accept();
            if connections.ended.load(Ordering::Acquire) {
                break;
            }
            let Ok((stream, _)) = accepted else {
                thread::sleep(ACCEPT_PAUSE);
                continue;
            };
            let stream = Arc::new(stream);
            if !connections.add(number, &stream) {
                continue;
            }
            let spawned = thread::Builder::new().name("null-serve".to_owned()).spawn_scoped(scope, move || {
                // Clients come and go as they like, and what they were refused they notice themselves.
                let _ = serve(&stream, options, &connections.relay);
                connections.open().remove(&number);
            });
            if spawned.is_err() {
                connections.open().remove(&number);
            }
        }
        for stream in connections.open().values() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    });
}

/// The server's side of one connection.
trait Session {
    /// What the server says first.
    fn greet(&mut self, _answers: &mut Vec<u8>) {}

    /// Takes the next piece off the input: how long it is, even if that goes beyond the input, or `None` when this needs
    /// more input. The next call follows when the piece has passed, with whatever has arrived behind it, if only nothing.
    ///
    /// # Errors
    /// The client makes no sense or wants what is not served.
    fn step(&mut self, input: &[u8], answers: &mut Vec<u8>) -> Result<Option<usize>>;

    /// Answers what is answered in batches; before every write.
    fn settle(&mut self, _answers: &mut Vec<u8>) {}
}

/// Speaks with one client until either side ends it.
fn converse<S: Session>(mut stream: &TcpStream, mut session: S) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; READ_BYTES];
    let mut answers = Vec::new();
    let (mut begin, mut end) = (0, 0);
    session.greet(&mut answers);
    loop {
        while let Some(taken) = session.step(&buffer[begin..end], &mut answers)? {
            let beyond = (begin + taken).saturating_sub(end);
            begin = end.min(begin + taken);
            if beyond > 0 || answers.len() >= ANSWER_BYTES {
                send(stream, &mut session, &mut answers)?;
            }
            if beyond > 0 {
                let Some(more) = pass(stream, &mut buffer, beyond)? else { return Ok(()) };
                (begin, end) = more;
            }
        }
        send(stream, &mut session, &mut answers)?;
        buffer.copy_within(begin..end, 0);
        (begin, end) = (0, end - begin);
        if end == buffer.len() {
            ensure!(end < PIECE_BYTES_MAX, "a piece of more than {end} bytes");
            buffer.resize(2 * end, 0);
        }
        match stream.read(&mut buffer[end..]) {
            Ok(0) => return Ok(()),
            Ok(read) => end += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn send(mut stream: &TcpStream, session: &mut impl Session, answers: &mut Vec<u8>) -> Result<()> {
    session.settle(answers);
    if !answers.is_empty() {
        stream.write_all(answers)?;
        answers.clear();
    }
    Ok(())
}

/// Lets that many bytes pass; where in the buffer the bytes behind them are then, or `None` when the client has gone.
fn pass(mut stream: &TcpStream, buffer: &mut [u8], mut bytes: usize) -> Result<Option<(usize, usize)>> {
    while bytes >= DROP_BYTES_MIN {
        match drop_received(stream, bytes) {
            Ok(0) => return Ok(None),
            Ok(dropped) => bytes -= dropped,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    let mut end = 0;
    while end < bytes {
        match stream.read(&mut buffer[end..]) {
            Ok(0) => return Ok(None),
            Ok(read) => end += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Some((bytes, end)))
}

/// Drops received bytes without copying them out of the kernel, waiting for the first: tcp(7), `MSG_TRUNC`.
fn drop_received(stream: &TcpStream, bytes: usize) -> std::io::Result<usize> {
    // SAFETY: with this flag a TCP socket writes nothing to the buffer.
    let dropped = unsafe { libc::recv(stream.as_raw_fd(), std::ptr::null_mut(), bytes, libc::MSG_TRUNC) };
    usize::try_from(dropped).map_err(|_| std::io::Error::last_os_error())
}

#[cfg(test)]
mod tests;
