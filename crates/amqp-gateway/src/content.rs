//! A message on its way in: the method, then the header, then as many body frames as it needs. What has come is kept as slices of the
//! memory it was read into.

use amqp_wire::{ContentHeader, EncodedProperties, Frame, FrameKind, MethodId, Parsed, ReplyCode, basic, parse_frame};
use broker::{LimitKind, Limits, MessageTraits};
use bytes::Bytes;
use smallvec::SmallVec;

use crate::error::Failure;
use crate::message::Message;

/// A body that is announced as larger is not waited for.
const ANNOUNCED_MAX: u64 = 512 << 20;

/// A publish that is not whole yet.
#[derive(Debug)]
pub(crate) struct Content {
    pub exchange: Bytes,
    pub routing_key: Bytes,
    pub mandatory: bool,
    part: Part,
}

#[derive(Debug)]
enum Part {
    Header,
    /// `max`: as large as it may be.
    Body { properties: Bytes, body: SmallVec<[Bytes; 2]>, size: u64, left: u64, max: u64 },
}

impl Content {
    /// After the method, which lies in `input`.
    pub fn new(method: &basic::Publish<'_>, input: &Bytes) -> Self {
        let (exchange, routing_key) = (input.slice_ref(&method.exchange), input.slice_ref(&method.routing_key));
        Self { exchange, routing_key, mandatory: method.mandatory, part: Part::Header }
    }

    /// Takes the next frame; true: the message is whole. A body that is too large is not kept.
    ///
    /// # Errors
    /// *505*: a frame of another kind was due. *501*: more of the body than was announced, or far more announced than is taken. Those of the header's decoding.
    pub fn take(&mut self, frame: &Frame<'_>, input: &Bytes, limits: &Limits) -> Result<bool, Failure> {
        match &mut self.part {
            Part::Header => {
                let header = header(frame)?;
                if header.body_size > ANNOUNCED_MAX {
                    let text = format!("content body size {} exceeds maximum allowed size {ANNOUNCED_MAX}", header.body_size);
                    return Err(Failure::connection(ReplyCode::FrameError, text).of(basic::Publish::ID));
                }
                let (properties, size, max) = (input.slice_ref(header.properties.as_bytes()), header.body_size, limits.message_bytes_max());
                if size > max {
                    limits.note_refusal(LimitKind::MessageBytes);
                }
                self.part = Part::Body { properties, body: SmallVec::new(), size, left: size, max };
                Ok(size == 0)
            }
            Part::Body { body, size, left, max, .. } => {
                let bytes = payload(frame, *left)?;
                *left -= bytes.len() as u64;
                if *size <= *max && !bytes.is_empty() {
                    body.push(input.slice_ref(bytes));
                }
                Ok(*left == 0)
            }
        }
    }

    /// The whole message.
    ///
    /// # Errors
    /// *406*: the body is too large.
    pub fn with_message<T>(&self, take: impl FnOnce(Message<'_>) -> Result<T, Failure>) -> Result<T, Failure> {
        let Part::Body { properties, body, size, max, .. } = &self.part else {
            return Err(Failure::connection(ReplyCode::InternalError, "a message without a header"));
        };
        check_size(*size, *max)?;
        let pieces: SmallVec<[&[u8]; 4]> = body.iter().map(|piece| &piece[..]).collect();
        let properties = EncodedProperties::trusted(properties);
        take(Message {
            exchange: &self.exchange,
            routing_key: &self.routing_key,
            properties,
            traits: MessageTraits::default(),
            body: &pieces,
        })
    }
}

/// Header and body that follow a method at once, the body in one frame, and their bytes on the wire. None if it is not so simple.
pub(crate) fn whole<'a>(rest: &'a [u8], channel: u16, limits: &Limits) -> Option<(ContentHeader<'a>, &'a [u8], usize)> {
    let next = |rest: &'a [u8]| match parse_frame(rest, u32::MAX) {
        Ok(Parsed::Frame(frame)) if frame.channel == channel => Some(frame),
        _ => None,
    };
    let first = next(rest)?;
    let header = header(&first).ok()?;
    if header.body_size == 0 {
        return Some((header, &[], first.bytes()));
    }
    let second = next(&rest[first.bytes()..])?;
    let body = payload(&second, header.body_size).ok().filter(|body| body.len() as u64 == header.body_size)?;
    (header.body_size <= limits.message_bytes_max()).then(|| (header, body, first.bytes() + second.bytes()))
}

/// The header that is due.
pub(crate) fn header<'a>(frame: &Frame<'a>) -> Result<ContentHeader<'a>, Failure> {
    if frame.kind != FrameKind::Header {
        return Err(unexpected("expected content header for class 60, got non content header frame instead"));
    }
    let class = frame.payload.first_chunk().map(|bytes| u16::from_be_bytes(*bytes));
    if let Some(class) = class.filter(|class| *class != PUBLISH.class) {
        return Err(unexpected(&format!("expected content header for class 60, got one for class {class} instead")));
    }
    ContentHeader::decode(frame.payload).map_err(|error| Failure::from(error).of(PUBLISH))
}

/// The piece of a body that is due.
pub(crate) fn payload<'a>(frame: &Frame<'a>, left: u64) -> Result<&'a [u8], Failure> {
    if frame.kind != FrameKind::Body {
        return Err(unexpected("expected content body, got non content body frame instead"));
    }
    if frame.payload.len() as u64 > left {
        return Err(Failure::connection(ReplyCode::FrameError, "content body frame exceeds remaining content size").of(PUBLISH));
    }
    Ok(frame.payload)
}

/// # Errors
/// *406*: it is too large.
pub(crate) fn check_size(body_bytes: u64, max: u64) -> Result<(), Failure> {
    if body_bytes <= max {
        return Ok(());
    }
    Err(Failure::precondition(format_args!("message size {body_bytes} is larger than configured max size {max}")))
}

const PUBLISH: MethodId = basic::Publish::ID;

fn unexpected(explanation: &str) -> Failure {
    Failure::unexpected(explanation).of(PUBLISH)
}
