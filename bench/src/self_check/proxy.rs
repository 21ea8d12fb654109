//! A proxy for AMQP 0-9-1 that stands before a null broker and plants one fault in what goes to clients.
//!
//! Frames are those that `null/amqp.rs` describes. A delivery is a basic.deliver method (60, 60), a header and its bodies.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

const METHOD: u8 = 1;
const HEADER: u8 = 2;
const DELIVER: [u8; 4] = [0, 60, 0, 60];
const CONFIRM: [u8; 4] = [0, 60, 0, 80];
/// Of a frame: type, channel, size; and its end.
const HEAD: usize = 7;

/// What is planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Between two confirms of a connection passes at least this time.
    Pace(Duration),
    /// Nothing goes to a client for so long, once on each connection, this long after the proxy has begun.
    Stall { after: Duration, time: Duration },
    /// The delivery of this number, from 1, is not handed on.
    Lose(u64),
    /// It is handed on twice.
    Double(u64),
    /// It is handed on after the next one.
    Swap(u64),
    /// The last byte of its content is another.
    Change(u64),
}

/// A running proxy; it ends when dropped, and so do its connections once either side has ended.
pub struct Proxy {
    pub address: SocketAddr,
    ended: Arc<AtomicBool>,
}

/// What the connections of a proxy share.
struct Planted {
    fault: Fault,
    began: Instant,
    deliveries: AtomicU64,
}

impl Proxy {
    /// Before the server at this address.
    ///
    /// # Errors
    /// There is no port or thread to be had.
    pub fn start(server: SocketAddr, fault: Fault) -> Result<Self> {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen on the loopback interface")?;
        let address = listener.local_addr()?;
        let ended = Arc::new(AtomicBool::new(false));
        let planted = Planted { fault, began: Instant::now(), deliveries: AtomicU64::new(0) };
        let (stop, planted) = (ended.clone(), Arc::new(planted));
        thread::Builder::new().name("plant-accept".to_owned()).spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                if stop.load(Ordering::Acquire) {
                    return;
                }
                // A connection that cannot be served ends, which its client notices.
                let _ = serve(client, server, &planted);
            }
        })?;
        Ok(Self { address, ended })
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(client: TcpStream, server: SocketAddr, planted: &Arc<Planted>) -> Result<()> {
    let server = TcpStream::connect(server)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut from_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
    thread::Builder::new().name("plant-up".to_owned()).spawn(move || {
        let _ = std::io::copy(&mut from_client, &mut to_server);
        let _ = to_server.shutdown(Shutdown::Both);
    })?;
    let planted = planted.clone();
    thread::Builder::new().name("plant-down".to_owned()).spawn(move || {
        crate::process::wake_on_time();
        let _ = Down {
            planted,
            delivery: Vec::new(),
            content_left: 0,
            held: None,
            confirmed: Instant::now(),
            stalled: false,
        }
        .run(&server, &client);
        let _ = client.shutdown(Shutdown::Both);
        let _ = server.shutdown(Shutdown::Both);
    })?;
    Ok(())
}

/// What goes from the server to one client.
struct Down {
    planted: Arc<Planted>,
    /// The frames of a delivery that is not whole yet.
    delivery: Vec<u8>,
    content_left: u64,
    /// A delivery that goes after the next one.
    held: Option<Vec<u8>>,
    confirmed: Instant,
    stalled: bool,
}

impl Down {
    fn run(&mut self, mut server: &TcpStream, mut client: &TcpStream) -> Result<()> {
        let mut input = Vec::new();
        let mut bytes = [0; 64 << 10];
        loop {
            let read = server.read(&mut bytes)?;
            if read == 0 {
                return Ok(());
            }
            input.extend_from_slice(&bytes[..read]);
            let mut output = Vec::new();
            let mut taken = 0;
            while let Some(frame) = first_frame(&input[taken..]) {
                self.pass(frame, &mut output);
                taken += frame.len();
            }
            input.drain(..taken);
            self.stall();
            client.write_all(&output)?;
        }
    }

    fn pass(&mut self, frame: &[u8], output: &mut Vec<u8>) {
        let payload = &frame[HEAD..frame.len() - 1];
        let begins = frame[0] == METHOD && payload.starts_with(&DELIVER);
        if begins || !self.delivery.is_empty() {
            self.delivery.extend_from_slice(frame);
            match frame[0] {
                HEADER => {
                    self.content_left = payload
                        .get(4..12)
                        .map_or(0, |size| size.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
                }
                METHOD => {}
                _ => self.content_left = self.content_left.saturating_sub(payload.len() as u64),
            }
            if frame[0] != METHOD && self.content_left == 0 {
                let delivery = std::mem::take(&mut self.delivery);
                self.deliver(delivery, output);
            }
            return;
        }
        if let Fault::Pace(time) = self.planted.fault
            && frame[0] == METHOD
            && payload.starts_with(&CONFIRM)
        {
            thread::sleep(time.saturating_sub(self.confirmed.elapsed()));
            self.confirmed = Instant::now();
        }
        output.extend_from_slice(frame);
    }

    fn deliver(&mut self, mut delivery: Vec<u8>, output: &mut Vec<u8>) {
        let number = self.planted.deliveries.fetch_add(1, Ordering::Relaxed) + 1;
        match self.planted.fault {
            Fault::Lose(lost) if lost == number => return,
            Fault::Double(doubled) if doubled == number => output.extend_from_slice(&delivery),
            Fault::Swap(swapped) if swapped == number => {
                self.held = Some(delivery);
                return;
            }
            Fault::Change(changed) if changed == number => {
                // Before the end of the frame.
                if let Some(byte) = delivery.iter_mut().rev().nth(1) {
                    *byte ^= 1;
                }
            }
            _ => {}
        }
        output.extend_from_slice(&delivery);
        output.extend(self.held.take().into_iter().flatten());
    }

    fn stall(&mut self) {
        if let Fault::Stall { after, time } = self.planted.fault
            && self.planted.began.elapsed() >= after
            && !self.stalled
        {
            self.stalled = true;
            thread::sleep(time);
        }
    }
}

/// The first frame of these bytes, if it is whole.
fn first_frame(input: &[u8]) -> Option<&[u8]> {
    let size = u32::from_be_bytes(input.get(3..HEAD)?.try_into().ok()?) as usize;
    input.get(..HEAD + size + 1)
}
