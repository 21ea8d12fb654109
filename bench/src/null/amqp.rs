//! AMQP 0-9-1 for publishers with confirms: any exchange and queue exists.
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
//! looked at. All messages of a channel that ended in one read are confirmed by one basic.ack.

use anyhow::{Context, Result, bail, ensure};

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

/// One connection of a publisher.
#[derive(Default)]
pub struct Amqp {
    greeted: bool,
    channels: Vec<Channel>,
    /// Channels with messages to confirm.
    unconfirmed: Vec<u16>,
    /// The channel whose message is whole as soon as the last piece has passed.
    due: Option<u16>,
}

#[derive(Clone, Copy, Default)]
struct Channel {
    open: bool,
    confirming: bool,
    content: Content,
    published: u64,
    confirmed: u64,
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
            self.body(channel, u64::from(size))?;
            return Ok(Some(frame));
        }
        let Some(payload) = input.get(FRAME_OVERHEAD - 1..frame - 1) else { return Ok(None) };
        match kind {
            METHOD => self.method(channel, payload, answers)?,
            HEADER => self.header(channel, payload)?,
            // Clients that want a sign of life are given one for each of theirs.
            HEARTBEAT => write_frame(answers, HEARTBEAT, 0, |_| {}),
            other => bail!("a frame of type {other}"),
        }
        Ok(Some(frame))
    }

    fn settle(&mut self, answers: &mut Vec<u8>) {
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
    }
}

impl Amqp {
    fn channel(&mut self, number: u16) -> Result<&mut Channel> {
        self.channels.get_mut(usize::from(number)).filter(|channel| channel.open).context("a channel that is not open")
    }

    /// A message of this channel has ended.
    fn published(&mut self, number: u16) -> Result<()> {
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
            (60, 40) => {
                let channel = self.channel(number)?;
                ensure!(matches!(channel.content, Content::Nothing), "a publish within a message");
                channel.content = Content::Header;
            }
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
        // basic.qos and confirm.select have other arguments: the former always waits.
        (60, 10) => return reply_ok(answers, number, method),
        (85, 10) => {
            let no_wait = arguments.byte().context("no arguments")? & 1 != 0;
            return if no_wait { Ok(()) } else { reply_ok(answers, number, method) };
        }
        (class, method) => bail!("method {method} of class {class} is not served"),
    };
    arguments.u16();
    let mut first: &[u8] = &[];
    for index in 0..names {
        let name =
            arguments.byte().and_then(|length| arguments.take(usize::from(length))).context("a name is cut off")?;
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
