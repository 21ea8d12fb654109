//! A message on its way in: the method, then the header, then as many body frames as it needs. What has to be kept until the message is whole is
//! copied: what was read with it would be held as well, and a byte of a body could hold all that came with it. The frame that makes the message
//! whole is not kept, so a body that comes in one frame is not copied here. Memory is allocated as pieces come, but all of it is counted when the first
//! piece is kept: a message for which there was room then can be finished.

use std::time::{Duration, Instant};

use amqp_wire::{ContentHeader, EncodedProperties, Frame, FrameKind, MethodId, Parsed, ReplyCode, basic, parse_frame};
use broker::{Limits, MessageTraits};
use bytes::Bytes;
use smallvec::SmallVec;

use crate::error::Failure;
use crate::message::Message;

/// A body that is announced as larger is not waited for.
const ANNOUNCED_MAX: u64 = 512 << 20;
/// Pieces of a body are kept in blocks of so many bytes, the first ones in smaller ones.
const BLOCK_BYTES: usize = 64 << 10;
/// Blocks that are smaller than that, at most: each is at least as long as all before it.
const SMALL_BLOCKS: usize = 10;
/// A message is stalled when less than so much of it came …
const PROGRESS_BYTES: usize = 32 << 10;
/// … or less than such a part …
const PROGRESS_SHARE: usize = 30;
/// … for this long.
const STALLED_AFTER: Duration = Duration::from_secs(2);
/// What is counted for a message beside its bytes, and for a block.
const AROUND: usize = 128;

/// A publish that is not whole yet.
#[derive(Debug)]
pub(crate) struct Content {
    /// Exchange and routing key.
    names: Box<[u8]>,
    exchange_bytes: usize,
    pub mandatory: bool,
    part: Part,
    /// Bytes that are counted for it.
    kept: usize,
    /// Bytes of its body that have come.
    arrived: usize,
    /// When it was looked at whether more of it comes, and what had arrived then.
    progress: (Instant, usize),
}

#[derive(Debug)]
enum Part {
    Header,
    /// `max`: as large as it may be.
    Body {
        properties: Box<[u8]>,
        body: Vec<Vec<u8>>,
        size: u64,
        left: u64,
        max: u64,
    },
}

/// What a frame made of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken<'f> {
    /// More is to come.
    Part,
    /// It is whole with this last piece of its body.
    Whole(&'f [u8]),
}

impl Content {
    /// After the method.
    pub fn new(method: &basic::Publish<'_>, now: Instant) -> Self {
        let names: Box<[u8]> = [&method.exchange[..], &method.routing_key[..]].concat().into();
        let kept = AROUND + names.len();
        Self {
            names,
            exchange_bytes: method.exchange.len(),
            mandatory: method.mandatory,
            part: Part::Header,
            kept,
            arrived: 0,
            progress: (now, 0),
        }
    }

    /// Bytes of memory that are counted for it.
    pub fn kept(&self) -> usize {
        self.kept
    }

    /// Has little of it come lately? `since`: when it could have, after a time.
    pub fn is_stalled(&self, now: Instant, since: impl FnOnce(Instant) -> Instant) -> bool {
        now.saturating_duration_since(since(self.progress.0)) >= STALLED_AFTER
    }

    /// How many more are to be counted with this frame, if it is one that is due.
    pub fn keeps(&self, frame: &Frame<'_>) -> usize {
        let bytes = frame.payload.len();
        match &self.part {
            Part::Header => bytes,
            Part::Body { body, size, left, max, .. }
                if size <= max && (bytes as u64) < *left && body.is_empty() && bytes > 0 =>
            {
                let size = usize::try_from(*size).unwrap_or(usize::MAX);
                size.saturating_add((size / BLOCK_BYTES + SMALL_BLOCKS) * AROUND)
            }
            Part::Body { .. } => 0,
        }
    }

    /// Bytes of the block that is needed for what does not fit into the last one. They grow with what has come, whatever was announced.
    fn block_bytes(&self, bytes: usize) -> usize {
        let Part::Body { body, left, .. } = &self.part else { return 0 };
        let more = bytes.saturating_sub(room(body));
        if more == 0 {
            return 0;
        }
        let left = usize::try_from(*left).unwrap_or(usize::MAX).saturating_sub(bytes - more);
        more.max((AROUND + self.arrived).min(BLOCK_BYTES)).min(left)
    }

    /// Body and properties, of a message that is whole with this frame; 0: it is not.
    pub fn whole_bytes(&self, frame: &Frame<'_>) -> usize {
        match &self.part {
            Part::Body { properties, size, left, max, .. } if size <= max && frame.payload.len() as u64 == *left => {
                properties.len() + *size as usize
            }
            Part::Header | Part::Body { .. } => 0,
        }
    }

    /// Is its body larger than it may be?
    pub fn is_too_large(&self) -> bool {
        matches!(self.part, Part::Body { size, max, .. } if size > max)
    }

    /// Takes the next frame. A body of more than `max` bytes is not kept; `max` counts with the header.
    ///
    /// # Errors
    /// *505*: a frame of another kind was due. *501*: more of the body than was announced, or far more announced than is taken. Those of the header's decoding.
    pub fn take<'f>(&mut self, frame: &Frame<'f>, max: u64, now: Instant) -> Result<Taken<'f>, Failure> {
        let (keeps, block) = (self.keeps(frame), self.block_bytes(frame.payload.len()));
        let whole: Option<&'f [u8]> = match &mut self.part {
            Part::Header => {
                let header = header(frame)?;
                if header.body_size > ANNOUNCED_MAX {
                    let text =
                        format!("content body size {} exceeds maximum allowed size {ANNOUNCED_MAX}", header.body_size);
                    return Err(Failure::connection(ReplyCode::FrameError, text).of(basic::Publish::ID));
                }
                let (properties, size) = (header.properties.as_bytes().into(), header.body_size);
                self.part = Part::Body { properties, body: Vec::new(), size, left: size, max };
                (size == 0).then_some(&[][..])
            }
            Part::Body { body, size, left, max, .. } => {
                let bytes = payload(frame, *left)?;
                *left -= bytes.len() as u64;
                if *left > 0 && size <= max {
                    keep(body, bytes, block);
                }
                self.arrived += bytes.len();
                (*left == 0).then_some(bytes)
            }
        };
        self.kept += keeps;
        if self.arrived >= self.progress.1 + PROGRESS_BYTES.max(self.kept / PROGRESS_SHARE) {
            self.progress = (now, self.arrived);
        }
        Ok(whole.map_or(Taken::Part, Taken::Whole))
    }

    /// The whole message, whose body ends with `last`.
    ///
    /// # Errors
    /// *406*: the body is too large.
    pub fn with_message<T>(
        &self,
        last: &[u8],
        take: impl FnOnce(Message<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let Part::Body { properties, body, size, max, .. } = &self.part else {
            return Err(Failure::connection(ReplyCode::InternalError, "a message without a header"));
        };
        check_size(*size, *max)?;
        let pieces: SmallVec<[&[u8]; 4]> = body.iter().map(Vec::as_slice).chain([last]).collect();
        let properties = EncodedProperties::trusted(properties);
        let (exchange, routing_key) = self.names.split_at(self.exchange_bytes);
        take(Message { exchange, routing_key, properties, traits: MessageTraits::default(), body: &pieces })
    }

    /// The same with what was kept of the body, for who goes on keeping it.
    ///
    /// # Errors
    /// *406*: the body is too large.
    pub fn with_blocks<T>(
        mut self,
        last: &[u8],
        take: impl FnOnce(Message<'_>, &[Bytes]) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let kept = match &mut self.part {
            Part::Body { body, .. } => std::mem::take(body),
            Part::Header => Vec::new(),
        };
        let blocks: Vec<Bytes> = kept.into_iter().map(Bytes::from).collect();
        self.with_message(last, |message| {
            let pieces: SmallVec<[&[u8]; 4]> = blocks.iter().map(|block| &block[..]).chain([last]).collect();
            take(Message { body: &pieces, ..message }, &blocks)
        })
    }
}

/// Bytes that fit into the last block.
fn room(body: &[Vec<u8>]) -> usize {
    body.last().map_or(0, |last| last.capacity() - last.len())
}

/// Copies a piece: into the last block, and what does not fit there into a new one of `block` bytes.
fn keep(body: &mut Vec<Vec<u8>>, bytes: &[u8], block: usize) {
    let (fits, rest) = bytes.split_at(room(body).min(bytes.len()));
    if let Some(last) = body.last_mut() {
        last.extend_from_slice(fits);
    }
    if !rest.is_empty() {
        let mut fresh = Vec::with_capacity(block);
        fresh.extend_from_slice(rest);
        body.push(fresh);
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
        return Err(
            Failure::connection(ReplyCode::FrameError, "content body frame exceeds remaining content size").of(PUBLISH)
        );
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

#[cfg(test)]
mod tests;
