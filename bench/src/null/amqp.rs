//! AMQP 0-9-1 for publishers with confirms, and consumers of what they publish to the default exchange: any exchange and queue exists.
//!
//! After the client's eight bytes `AMQP 0 0 9 1` everything is frames
//! (<https://www.rabbitmq.com/resources/specs/amqp0-9-1.pdf>, 4.2.3; confirms: <https://www.rabbitmq.com/docs/confirms>):
//!
//! ```text
//! frame     byte type, u16 channel, u32 size, size bytes, byte 0xce
//! method    type 1: u16 class, u16 method, arguments
//! header    type 2: u16 class, u16 weight, u64 size of the content, properties
//! body      type 3: content
//! heartbeat type 8: nothing
//! ```
//!
//! A message is a basic.publish method, a header, and bodies up to the size that the header says; of these only sizes are
//! looked at. All messages of a channel that ended in one read are confirmed by one basic.ack. Where somebody consumes from the
//! queue, header and bodies go to him as they are (`relay.rs`), before the confirm.

use std::io::Write;
use std::net::TcpStream;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail, ensure};

use super::relay::{Batch, Outlet, Relay, Writer};
use super::scan::Scan;
use super::{MESSAGE_BYTES_MAX, Session};

const PROTOCOL: [u8; 8] = *b"AMQP\0\0\x09\x01";
const METHOD: u8 = 1;
const HEADER: u8 = 2;
const BODY: u8 = 3;
const HEARTBEAT: u8 = 8;
const FRAME_END: u8 = 0xce;
/// Of a frame, beyond what it carries.
const FRAME_OVERHEAD: usize = 8;
/// As RabbitMQ proposes it, and clients size their buffers by it.
const FRAME_MAX: usize = 131_072;
const CHANNEL_MAX: u16 = 2047;

/// One connection.
pub struct Amqp {
    relay: Arc<Relay>,
    writer: Writer,
    /// Its own consumers.
    outlets: Vec<Arc<Outlet>>,
    batch: Option<Batch>,
    greeted: bool,
    channels: Vec<Channel>,
    /// Channels with messages to confirm.
    unconfirmed: Vec<u16>,
    /// The channel whose message is whole as soon as the last piece has passed.
    due: Option<u16>,
}

#[derive(Clone, Default)]
struct Channel {
    open: bool,
    confirming: bool,
    content: Content,
    published: u64,
    confirmed: u64,
    prefetch: u64,
    target: Target,
}

/// Where messages with the last routing key go.
#[derive(Clone, Default)]
struct Target {
    queue: Vec<u8>,
    version: u64,
    outlets: Vec<Arc<Outlet>>,
    turn: usize,
    /// The message that is being read goes to one of them.
    wanted: bool,
}

/// What of a message comes next.
#[derive(Clone, Copy, Default)]
enum Content {
    #[default]
    Nothing,
    Header,
    /// As many bytes of it.
    Body(u64),
}

impl Session for Amqp {
    fn step(&mut self, input: &[u8], answers: &mut Vec<u8>) -> Result<Option<usize>> {
        if let Some(channel) = self.due.take() {
            self.published(channel)?;
        }
        if !self.greeted {
            let Some(protocol) = input.first_chunk() else { return Ok(None) };
            ensure!(*protocol == PROTOCOL, "not AMQP 0-9-1");
            self.greeted = true;
            start(answers);
            return Ok(Some(PROTOCOL.len()));
        }
        let mut scan = Scan::new(input);
        let (Some(kind), Some(channel), Some(size)) = (scan.byte(), scan.u16(), scan.u32()) else { return Ok(None) };
        let frame = size as usize + FRAME_OVERHEAD;
        ensure!(frame <= FRAME_MAX, "a frame of {frame} bytes");
        ensure!(input.get(frame - 1).is_none_or(|byte| *byte == FRAME_END), "a frame without its end");
        if kind == BODY {
            if self.is_wanted(channel) {
                let Some(whole) = input.get(..frame) else { return Ok(None) };
                self.hand_on(whole);
            }
            self.body(channel, u64::from(size))?;
            return Ok(Some(frame));
        }
        let Some(whole) = input.get(..frame) else { return Ok(None) };
        let payload = &whole[FRAME_OVERHEAD - 1..frame - 1];
        match kind {
            METHOD => self.method(channel, payload, answers)?,
            HEADER => {
                if self.is_wanted(channel) {
                    self.hand_on(whole);
                }
                self.header(channel, payload)?;
            }
            // Clients that want a sign of life are given one for each of theirs.
            HEARTBEAT => write_frame(answers, HEARTBEAT, 0, |_| {}),
            other => bail!("a frame of type {other}"),
        }
        Ok(Some(frame))
    }

    fn settle(&mut self, answers: &mut Vec<u8>) {
        // The connections of consumers that are gone notice it themselves.
        if let Some(mut batch) = self.batch.take() {
            self.batch = batch.split();
            let _ = batch.send();
        }
        for number in self.unconfirmed.drain(..) {
            let channel = &mut self.channels[usize::from(number)];
            let multiple = channel.published > channel.confirmed + 1;
            channel.confirmed = channel.published;
            let tag = channel.published;
            reply(answers, number, (60, 80), |arguments| {
                arguments.extend_from_slice(&tag.to_be_bytes());
                arguments.push(u8::from(multiple));
            });
        }
        if !self.outlets.is_empty() && !answers.is_empty() {
            // Others write here, too.
            let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = writer.write_all(answers);
            answers.clear();
        }
    }
}

impl Drop for Amqp {
    fn drop(&mut self) {
        self.relay.remove(&self.outlets);
    }
}

impl Amqp {
    /// A connection that has just come.
    ///
    /// # Errors
    /// There are no more file descriptors.
    pub fn new(stream: &TcpStream, relay: Arc<Relay>) -> Result<Self> {
        Ok(Self {
            relay,
            writer: Arc::new(Mutex::new(stream.try_clone()?)),
            outlets: Vec::new(),
            batch: None,
            greeted: false,
            channels: Vec::new(),
            unconfirmed: Vec::new(),
            due: None,
        })
    }

    fn is_wanted(&self, number: u16) -> bool {
        self.channels.get(usize::from(number)).is_some_and(|channel| channel.target.wanted)
    }

    /// A message begins: if somebody wants it, its delivery does, too.
    fn publish(&mut self, number: u16, mut arguments: Scan<'_>) -> Result<()> {
        let version = self.relay.version();
        let relay = Arc::clone(&self.relay);
        let channel = self.channel(number)?;
        ensure!(matches!(channel.content, Content::Nothing), "a publish within a message");
        channel.content = Content::Header;
        let target = &mut channel.target;
        target.wanted = false;
        if version == 0 {
            return Ok(());
        }
        arguments.u16();
        let exchange = name(&mut arguments)?;
        let queue = name(&mut arguments)?;
        if target.version != version || target.queue != queue {
            *target = Target { queue: queue.to_owned(), version, outlets: relay.of(queue), turn: 0, wanted: false };
        }
        target.wanted = exchange.is_empty() && !target.outlets.is_empty();
        if target.wanted {
            target.turn = (target.turn + 1) % target.outlets.len();
            let outlet = Arc::clone(&target.outlets[target.turn]);
            self.begin_delivery(outlet, queue)?;
        }
        Ok(())
    }

    fn begin_delivery(&mut self, outlet: Arc<Outlet>, queue: &[u8]) -> Result<()> {
        let between = self.batch.as_ref().is_some_and(|batch| batch.whole < batch.bytes.len());
        ensure!(!between, "messages of two channels between each other's frames");
        if self.batch.as_ref().is_none_or(|batch| !Arc::ptr_eq(&batch.outlet, &outlet)) {
            let other = self.batch.replace(Batch::new(outlet));
            let _ = other.map(Batch::send);
        }
        let Some(Batch { outlet, bytes, tags_at, .. }) = &mut self.batch else { return Ok(()) };
        write_frame(bytes, METHOD, outlet.channel, |payload| {
            payload.extend_from_slice(&[0, 60, 0, 60, outlet.consumer_tag.len() as u8]);
            payload.extend_from_slice(&outlet.consumer_tag);
            tags_at.push(payload.len());
            // The tag, not delivered before, the default exchange.
            payload.extend_from_slice(&[0; 10]);
            payload.push(queue.len() as u8);
            payload.extend_from_slice(queue);
        });
        Ok(())
    }

    /// A frame of a message that somebody wants.
    fn hand_on(&mut self, frame: &[u8]) {
        if let Some(batch) = &mut self.batch {
            batch.bytes.push(frame[0]);
            batch.bytes.extend_from_slice(&batch.outlet.channel.to_be_bytes());
            batch.bytes.extend_from_slice(&frame[3..]);
        }
    }

    /// basic.qos, basic.consume, basic.cancel, basic.ack.
    fn basic_method(&mut self, number: u16, method: u16, mut arguments: Scan<'_>, answers: &mut Vec<u8>) -> Result<()> {
        let cut_off = "arguments are cut off";
        match method {
            10 => {
                let count = arguments.u32().and_then(|_| arguments.u16()).context(cut_off)?;
                self.channel(number)?.prefetch = u64::from(count);
                reply_ok(answers, number, (60, 10))
            }
            20 => {
                arguments.u16();
                let queue = name(&mut arguments)?;
                let tag = match name(&mut arguments)? {
                    b"" => format!("null-{number}-{}", self.outlets.len()).into_bytes(),
                    tag => tag.to_owned(),
                };
                let bits = arguments.byte().context(cut_off)?;
                let (no_ack, no_wait) = (bits & 0x02 != 0, bits & 0x08 != 0);
                let prefetch = if no_ack { 0 } else { self.channel(number)?.prefetch };
                self.settle(answers);
                let outlet = Arc::new(Outlet::new(number, tag.clone(), prefetch, Arc::clone(&self.writer)));
                self.outlets.push(Arc::clone(&outlet));
                // Nothing that is published after the answer may miss it, and no delivery goes before the answer: both wait for the writer.
                let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
                self.relay.add(queue, outlet);
                if !no_wait {
                    reply(answers, number, (60, 21), |arguments| {
                        arguments.push(tag.len() as u8);
                        arguments.extend_from_slice(&tag);
                    });
                }
                writer.write_all(answers)?;
                drop(writer);
                answers.clear();
                Ok(())
            }
            30 => {
                let tag = name(&mut arguments)?;
                let no_wait = arguments.byte().context(cut_off)? & 1 != 0;
                self.end_outlets(|outlet| outlet.channel == number && outlet.consumer_tag == tag);
                if !no_wait {
                    reply(answers, number, (60, 31), |arguments| {
                        arguments.push(tag.len() as u8);
                        arguments.extend_from_slice(tag);
                    });
                }
                Ok(())
            }
            80 => {
                let tag = arguments.u64().context(cut_off)?;
                let multiple = arguments.byte().context(cut_off)? & 1 != 0;
                // With several consumers on a channel their tags would be one sequence; nobody here has that.
                let outlet = self.outlets.iter().find(|outlet| outlet.channel == number);
                outlet.context("an acknowledgement without a consumer")?.acknowledge(tag, multiple);
                Ok(())
            }
            other => bail!("method {other} of class 60 is not served"),
        }
    }

    fn end_outlets(&mut self, ends: impl Fn(&Outlet) -> bool) {
        let (gone, left) = self.outlets.drain(..).partition(|outlet| ends(outlet));
        self.outlets = left;
        self.relay.remove(&gone);
    }

    fn channel(&mut self, number: u16) -> Result<&mut Channel> {
        self.channels.get_mut(usize::from(number)).filter(|channel| channel.open).context("a channel that is not open")
    }

    /// A message of this channel has ended.
    fn published(&mut self, number: u16) -> Result<()> {
        let wanted = self.is_wanted(number);
        if let Some(batch) = self.batch.as_mut().filter(|_| wanted) {
            batch.whole = batch.bytes.len();
        }
        let channel = self.channel(number)?;
        if channel.confirming {
            channel.published += 1;
            if channel.published == channel.confirmed + 1 {
                self.unconfirmed.push(number);
            }
        }
        Ok(())
    }

    fn header(&mut self, number: u16, payload: &[u8]) -> Result<()> {
        let channel = self.channel(number)?;
        ensure!(matches!(channel.content, Content::Header), "a header without a publish");
        let size = payload.get(4..).and_then(|rest| Scan::new(rest).u64()).context("a header without a size")?;
        ensure!(size <= MESSAGE_BYTES_MAX as u64, "a message of {size} bytes");
        channel.content = if size == 0 { Content::Nothing } else { Content::Body(size) };
        if size == 0 { self.published(number) } else { Ok(()) }
    }

    fn body(&mut self, number: u16, size: u64) -> Result<()> {
        let channel = self.channel(number)?;
        let Content::Body(left) = channel.content else { bail!("a body without a header") };
        let left = left.checked_sub(size).context("a body that is too long")?;
        channel.content = if left == 0 { Content::Nothing } else { Content::Body(left) };
        if left == 0 {
            self.due = Some(number);
        }
        Ok(())
    }

    fn method(&mut self, number: u16, payload: &[u8], answers: &mut Vec<u8>) -> Result<()> {
        let mut arguments = Scan::new(payload);
        let (Some(class), Some(method)) = (arguments.u16(), arguments.u16()) else {
            bail!("a method without a number")
        };
        match (class, method) {
            (60, 40) => self.publish(number, arguments)?,
            (60, _) => self.basic_method(number, method, arguments, answers)?,
            (10, _) => connection_method(number, method, answers)?,
            (20, _) => self.channel_method(number, method, answers)?,
            _ => {
                let channel = self.channel(number)?;
                channel.confirming |= (class, method) == (85, 10);
                answer(number, (class, method), arguments, answers)?;
            }
        }
        Ok(())
    }

    fn channel_method(&mut self, number: u16, method: u16, answers: &mut Vec<u8>) -> Result<()> {
        match method {
            10 => {
                ensure!((1..=CHANNEL_MAX).contains(&number), "channel {number}");
                let index = usize::from(number);
                if index >= self.channels.len() {
                    self.channels.resize(index + 1, Channel::default());
                }
                ensure!(!self.channels[index].open, "channel {number} is open already");
                self.channels[index].open = true;
                reply(answers, number, (20, 11), |arguments| arguments.extend_from_slice(&0_u32.to_be_bytes()));
            }
            40 => {
                // Confirms come before the end, or the client wouldn't know their channel.
                self.end_outlets(|outlet| outlet.channel == number);
                self.settle(answers);
                *self.channel(number)? = Channel::default();
                reply(answers, number, (20, 41), |_| {});
            }
            other => bail!("method {other} of channels is not served"),
        }
        Ok(())
    }
}

/// Answers start-ok, tune-ok, open and close.
fn connection_method(number: u16, method: u16, answers: &mut Vec<u8>) -> Result<()> {
    ensure!(number == 0, "a method of connections on channel {number}");
    match method {
        11 => reply(answers, 0, (10, 30), |arguments| {
            arguments.extend_from_slice(&CHANNEL_MAX.to_be_bytes());
            arguments.extend_from_slice(&(FRAME_MAX as u32).to_be_bytes());
            // No heartbeats asked for.
            arguments.extend_from_slice(&0_u16.to_be_bytes());
        }),
        31 => {}
        40 => reply(answers, 0, (10, 41), |arguments| arguments.push(0)),
        50 => reply(answers, 0, (10, 51), |_| {}),
        other => bail!("method {other} of connections is not served"),
    }
    Ok(())
}

/// Answers a method that has no effect, unless its last bit says that nobody waits. Behind 16 reserved bits, these begin
/// with names; bits follow.
fn answer(number: u16, method: (u16, u16), mut arguments: Scan<'_>, answers: &mut Vec<u8>) -> Result<()> {
    // Names before the bits, the bit for not waiting, and zeros in the answer.
    let (names, no_wait, zeros) = match method {
        // exchange.declare, exchange.delete
        (40, 10) => (2, 0x10, 0),
        (40, 20) => (1, 0x02, 0),
        // queue.declare, queue.bind, queue.delete
        (50, 10) => (1, 0x10, 8),
        (50, 20) => (3, 0x01, 0),
        (50, 40) => (1, 0x04, 4),
        // confirm.select has another argument.
        (85, 10) => {
            let no_wait = arguments.byte().context("no arguments")? & 1 != 0;
            return if no_wait { Ok(()) } else { reply_ok(answers, number, method) };
        }
        (class, method) => bail!("method {method} of class {class} is not served"),
    };
    arguments.u16();
    let mut first: &[u8] = &[];
    for index in 0..names {
        let name = name(&mut arguments)?;
        if index == 0 {
            first = name;
        }
    }
    let bits = arguments.byte().context("no bits follow the names")?;
    if bits & no_wait != 0 {
        return Ok(());
    }
    reply(answers, number, (method.0, method.1 + 1), |arguments| {
        if method == (50, 10) {
            let name = if first.is_empty() { b"null" } else { first };
            arguments.push(name.len() as u8);
            arguments.extend_from_slice(name);
        }
        arguments.resize(arguments.len() + zeros, 0);
    });
    Ok(())
}

/// A short string.
fn name<'a>(arguments: &mut Scan<'a>) -> Result<&'a [u8]> {
    arguments.byte().and_then(|length| arguments.take(usize::from(length))).context("a name is cut off")
}

fn reply_ok(answers: &mut Vec<u8>, channel: u16, method: (u16, u16)) -> Result<()> {
    reply(answers, channel, (method.0, method.1 + 1), |_| {});
    Ok(())
}

/// connection.start: version 0-9, properties, mechanisms, locales.
fn start(answers: &mut Vec<u8>) {
    // A table with one table in it: names are short strings, `F` is a table and `t` a boolean.
    let capabilities = b"\x12publisher_confirmst\x01\x0abasic.nackt\x01";
    let properties = 1 + "capabilities".len() + 1 + 4 + capabilities.len();
    reply(answers, 0, (10, 10), |arguments| {
        arguments.extend_from_slice(&[0, 9]);
        arguments.extend_from_slice(&(properties as u32).to_be_bytes());
        arguments.extend_from_slice(b"\x0ccapabilitiesF");
        arguments.extend_from_slice(&(capabilities.len() as u32).to_be_bytes());
        arguments.extend_from_slice(capabilities);
        for text in ["PLAIN", "en_US"] {
            arguments.extend_from_slice(&(text.len() as u32).to_be_bytes());
            arguments.extend_from_slice(text.as_bytes());
        }
    });
}

fn reply(answers: &mut Vec<u8>, channel: u16, (class, method): (u16, u16), arguments: impl FnOnce(&mut Vec<u8>)) {
    write_frame(answers, METHOD, channel, |payload| {
        payload.extend_from_slice(&class.to_be_bytes());
        payload.extend_from_slice(&method.to_be_bytes());
        arguments(payload);
    });
}

fn write_frame(answers: &mut Vec<u8>, kind: u8, channel: u16, payload: impl FnOnce(&mut Vec<u8>)) {
    answers.push(kind);
    answers.extend_from_slice(&channel.to_be_bytes());
    let size_at = answers.len();
    answers.extend_from_slice(&[0; 4]);
    payload(answers);
    let size = (answers.len() - size_at - 4) as u32;
    answers[size_at..size_at + 4].copy_from_slice(&size.to_be_bytes());
    answers.push(FRAME_END);
}
