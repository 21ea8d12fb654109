//! A connection with one channel: methods are sent, and answers waited for, one after the other.

use std::io::{Error, Read, Result, Write};
use std::net::TcpStream;
use std::time::Duration;

use amqp_wire::{
    Content, ContentHeader, Encode, EncodedProperties, FrameKind, Method, Parsed, ProtocolHeader, Table, channel,
    connection, parse_frame, short, write_content, write_method,
};
use bytes::BytesMut;

const FRAME_MAX: u32 = 131_072;
/// An answer that takes longer does not come any more.
const PATIENCE: Duration = Duration::from_secs(60);

/// See the head of the file.
pub struct Link {
    stream: TcpStream,
    out: BytesMut,
    input: Vec<u8>,
    read: usize,
}

fn unexpected(what: &str, method: &Method<'_>) -> Error {
    Error::other(format!("{what}: the broker says {method:?}"))
}

impl Link {
    /// Connects, and opens virtual host `/` and channel 1.
    pub fn open(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut link = Self { stream, out: BytesMut::new(), input: Vec::new(), read: 0 };
        link.out.extend_from_slice(&ProtocolHeader::AMQP_0_9_1.to_bytes());
        link.answer("start", |method| matches!(method, Method::Connection(connection::Method::Start(_))))?;
        let properties = Table::build(|_| ());
        let (mechanism, locale) = (short("PLAIN"), short("en_US"));
        link.send(
            0,
            &connection::StartOk {
                client_properties: properties.view(),
                mechanism,
                response: b"\0guest\0guest",
                locale,
            },
        );
        link.answer("login", |method| matches!(method, Method::Connection(connection::Method::Tune(_))))?;
        link.send(0, &connection::TuneOk { channel_max: 2047, frame_max: FRAME_MAX, heartbeat: 0 });
        link.send(0, &connection::Open { virtual_host: short("/") });
        link.answer("open", |method| matches!(method, Method::Connection(connection::Method::OpenOk(_))))?;
        link.send(1, &channel::Open {});
        link.answer("channel", |method| matches!(method, Method::Channel(channel::Method::OpenOk(_))))?;
        Ok(link)
    }

    /// Writes a method behind what is not sent yet.
    pub fn send(&mut self, channel: u16, method: &impl Encode) {
        write_method(&mut self.out, channel, method);
    }

    /// Writes a message without properties behind what is not sent yet.
    pub fn send_content(&mut self, method: &impl Content, body: &[u8]) {
        write_content(&mut self.out, 1, method, EncodedProperties::trusted(&[0, 0]), body, FRAME_MAX);
    }

    /// Sends what was written, and hands the next method to `take`; a message's body is passed over.
    ///
    /// # Errors
    /// Of the socket, or when the broker closes or stays silent.
    pub fn next<T>(&mut self, take: impl FnOnce(&Method<'_>) -> T) -> Result<T> {
        if !self.out.is_empty() {
            self.stream.write_all(&self.out)?;
            self.out.clear();
        }
        let at = self.frame(0)?;
        let Ok(Parsed::Frame(frame)) = parse_frame(&self.input[self.read..], FRAME_MAX) else {
            unreachable!("it was read whole")
        };
        let method = Method::decode(frame.payload).map_err(Error::other)?;
        let has_content = method.id().info().is_some_and(|info| info.content);
        let taken = take(&method);
        let mut end = at;
        if has_content {
            let header = end;
            end = self.frame(header)?;
            let mut left = self.header_at(header)?;
            while left > 0 {
                let body = end;
                end = self.frame(body)?;
                left = left.saturating_sub((end - body) as u64 - 8);
            }
        }
        self.read += end;
        if self.read == self.input.len() {
            self.input.clear();
            self.read = 0;
        }
        Ok(taken)
    }

    /// Waits for a method that `is` what is wanted; any other one is an error of `what`.
    ///
    /// # Errors
    /// As [`Link::next`].
    pub fn answer(&mut self, what: &str, is: impl FnOnce(&Method<'_>) -> bool) -> Result<()> {
        self.next(|method| if is(method) { Ok(()) } else { Err(unexpected(what, method)) })?
    }

    /// Says good-bye, and waits until that is agreed.
    ///
    /// # Errors
    /// As [`Link::next`].
    pub fn close(mut self) -> Result<()> {
        self.send(0, &connection::Close { reply_code: 200, ..connection::Close::default() });
        self.answer("close", |method| matches!(method, Method::Connection(connection::Method::CloseOk(_))))
    }

    /// Has the frame that begins at `from` behind what was taken in memory; where it ends.
    fn frame(&mut self, from: usize) -> Result<usize> {
        let mut piece = [0; 16 << 10];
        loop {
            match parse_frame(&self.input[self.read + from..], FRAME_MAX).map_err(Error::other)? {
                Parsed::Frame(frame) => return Ok(from + frame.bytes()),
                Parsed::More(_) => match self.stream.read(&mut piece)? {
                    0 => return Err(Error::other("the broker has closed the connection")),
                    count => self.input.extend_from_slice(&piece[..count]),
                },
            }
        }
    }

    fn header_at(&self, from: usize) -> Result<u64> {
        match parse_frame(&self.input[self.read + from..], FRAME_MAX) {
            Ok(Parsed::Frame(frame)) if frame.kind == FrameKind::Header => {
                ContentHeader::decode(frame.payload).map(|header| header.body_size).map_err(Error::other)
            }
            _ => Err(Error::other("a message without a header")),
        }
    }
}
