//! Frames, and what a connection begins with.
//!
//! ```text
//! offset  bytes  what
//! 0       1      type: 1 method, 2 content header, 3 content body, 8 heartbeat
//! 1       2      channel, 0 for the connection
//! 3       4      length of the payload
//! 7       n      payload
//! 7 + n   1      0xCE
//! ```
//! Big-endian. Source: AMQP 0-9-1, section 4.2.3; the header before the first frame: 4.2.2.
//!
//! The limit `frame_max` is in bytes of a whole frame, and never the wire's 0 for "no limit": who negotiates that passes a
//! bound of his own. Writers stay within it. The reader lets a payload be as long as `frame_max`, eight bytes more than
//! the specification does, because RabbitMQ lets it and clients get it wrong.

use bytes::{BufMut, BytesMut};

use crate::{DecodeError, Encode, Problem, Writer};

/// The last byte of a frame.
pub const FRAME_END: u8 = 0xCE;
/// What a frame is longer than its payload, in bytes: 7 before and 1 after.
pub const FRAME_OVERHEAD: u32 = HEAD_BYTES as u32 + 1;

pub(crate) const HEAD_BYTES: usize = 7;

/// What a payload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// A `Method`.
    Method = 1,
    /// A `ContentHeader`.
    Header = 2,
    /// A part of a body.
    Body = 3,
    /// Nothing; the peer is alive.
    Heartbeat = 8,
}

/// A whole frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// What the payload is.
    pub kind: FrameKind,
    /// Channel, 0 for the connection.
    pub channel: u16,
    /// A slice of the input; `Bytes::slice_ref` makes a shared one of it without a copy.
    pub payload: &'a [u8],
}

impl Frame<'_> {
    /// Bytes of the whole frame, which the caller goes on by.
    pub const fn bytes(&self) -> usize {
        self.payload.len() + FRAME_OVERHEAD as usize
    }
}

/// What the input begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// Less than a frame; at least so many bytes are missing, exactly so many once the first seven are there.
    More(usize),
    /// A frame.
    Frame(Frame<'a>),
}

/// Takes the first frame of `input`.
///
/// # Errors
/// All are 501 FRAME_ERROR: *FrameKind*: the type is unknown; *FrameTooLarge*: the payload is longer than `frame_max`,
/// told as soon as its length is there; *FrameEnd*: the last byte is another one.
pub fn parse_frame(input: &[u8], frame_max: u32) -> Result<Parsed<'_>, DecodeError> {
    let fail = |offset, field, problem| Err(DecodeError { offset, field, problem });
    let Some((head, rest)) = input.split_first_chunk::<HEAD_BYTES>() else {
        return match input.first() {
            Some(first) if kind(*first).is_none() => fail(0, "type", Problem::FrameKind(*first)),
            _ => Ok(Parsed::More(HEAD_BYTES + 1 - input.len())),
        };
    };
    let [first, channel @ .., a, b, c, d] = *head;
    let Some(kind) = kind(first) else { return fail(0, "type", Problem::FrameKind(first)) };
    let bytes = u32::from_be_bytes([a, b, c, d]);
    if bytes > frame_max {
        return fail(3, "length", Problem::FrameTooLarge { bytes, max: frame_max });
    }
    match rest.split_at_checked(bytes as usize) {
        Some((payload, [FRAME_END, ..])) => {
            Ok(Parsed::Frame(Frame { kind, channel: u16::from_be_bytes(channel), payload }))
        }
        Some((_, [end, ..])) => fail(HEAD_BYTES + bytes as usize, "end", Problem::FrameEnd(*end)),
        _ => Ok(Parsed::More(bytes as usize + 1 - rest.len())),
    }
}

const fn kind(byte: u8) -> Option<FrameKind> {
    match byte {
        1 => Some(FrameKind::Method),
        2 => Some(FrameKind::Header),
        3 => Some(FrameKind::Body),
        8 => Some(FrameKind::Heartbeat),
        _ => None,
    }
}

/// The seven bytes before a payload.
pub(crate) fn head(kind: FrameKind, channel: u16, payload_bytes: u32) -> [u8; HEAD_BYTES] {
    let ([a, b], [c, d, e, f]) = (channel.to_be_bytes(), payload_bytes.to_be_bytes());
    [kind as u8, a, b, c, d, e, f]
}

/// Appends a frame whose payload is what `write` appends.
pub(crate) fn write_frame(out: &mut BytesMut, kind: FrameKind, channel: u16, write: impl FnOnce(&mut BytesMut)) {
    let start = out.len();
    out.put_slice(&head(kind, channel, 0));
    write(out);
    let bytes = (out.len() - start - HEAD_BYTES) as u32;
    out[start..start + HEAD_BYTES].copy_from_slice(&head(kind, channel, bytes));
    out.put_u8(FRAME_END);
}

/// Appends a method frame. A method is never split: the caller's strings and tables keep it below `frame_max`.
pub fn write_method(out: &mut BytesMut, channel: u16, method: &impl Encode) {
    write_frame(out, FrameKind::Method, channel, |out| {
        let id = method.id();
        out.put_u32(u32::from(id.class) << 16 | u32::from(id.method));
        method.write_arguments(&mut Writer::new(out));
    });
}

/// Appends a heartbeat.
pub fn write_heartbeat(out: &mut BytesMut) {
    write_frame(out, FrameKind::Heartbeat, 0, |_| ());
}

/// The eight bytes that a client begins with, and a broker answers a version with that it does not speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtocolHeader {
    /// 0 for AMQP 0-9-1; 1 for AMQP 0-9 over TCP; 2 and 3 for TLS and SASL of AMQP 1.0.
    pub id: u8,
    /// Major, minor, revision.
    pub version: [u8; 3],
}

/// What the first bytes of a connection are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParsedHeader {
    /// Less than a header, so far like one; so many bytes are missing.
    More(usize),
    /// A header of eight bytes; see `ProtocolHeader::is_spoken`.
    Header(ProtocolHeader),
    /// Another protocol: TLS, HTTP, anything.
    Foreign,
}

impl ProtocolHeader {
    /// Bytes on the wire.
    pub const BYTES: usize = 8;
    /// AMQP 0-9-1.
    pub const AMQP_0_9_1: Self = Self { id: 0, version: [0, 9, 1] };
    /// AMQP 0-9, which RabbitMQ takes for 0-9-1.
    pub const AMQP_0_9: Self = Self { id: 1, version: [1, 0, 9] };
    const NAME: &'static [u8; 4] = b"AMQP";

    /// What a connection begins with.
    pub fn parse(input: &[u8]) -> ParsedHeader {
        match *input {
            [b'A', b'M', b'Q', b'P', id, major, minor, revision, ..] => {
                ParsedHeader::Header(Self { id, version: [major, minor, revision] })
            }
            _ if input.len() < Self::BYTES && input.iter().zip(Self::NAME).all(|(a, b)| a == b) => {
                ParsedHeader::More(Self::BYTES - input.len())
            }
            _ => ParsedHeader::Foreign,
        }
    }

    /// Is it one of those that this codec is for? To another one a broker answers `AMQP_0_9_1` and closes.
    pub fn is_spoken(self) -> bool {
        self == Self::AMQP_0_9_1 || self == Self::AMQP_0_9
    }

    /// The bytes on the wire.
    pub const fn to_bytes(self) -> [u8; Self::BYTES] {
        let ([a, m, q, p], [major, minor, revision]) = (*Self::NAME, self.version);
        [a, m, q, p, self.id, major, minor, revision]
    }
}
