//! A message on the wire: a method frame, a header frame, and the body in as many frames as `frame_max` asks for.
//!
//! ```text
//! header payload: class (2, always 60), weight (2, always 0), body size (8), properties
//! ```
//! Big-endian. Source: AMQP 0-9-1, section 4.2.6. A body of no bytes has no body frames.
//!
//! [`write_content`] copies the body behind the rest; right for small ones. For a large one that is shared,
//! [`write_content_head`] writes what comes before it and [`body_frames`] tells how to lay out the pieces of a `writev`.

use std::ops::Range;

use bytes::{BufMut, BytesMut};

use crate::frame::{HEAD_BYTES, head, write_frame};
use crate::{Content, DecodeError, EncodedProperties, FRAME_END, FRAME_OVERHEAD, FrameKind, Problem, write_method};

/// The class whose messages have content.
const BASIC: u16 = 60;
/// Bytes before the properties.
const FIXED_BYTES: usize = 12;

/// What a header frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentHeader<'a> {
    /// Bytes of the body, in all its frames. Any number that a peer likes to send: compare it with a limit first.
    pub body_size: u64,
    /// The properties, which are well-formed.
    pub properties: EncodedProperties<'a>,
}

impl<'a> ContentHeader<'a> {
    /// Of the payload of a header frame.
    ///
    /// # Errors
    /// *Short*: 501; *ContentClass*, *Weight*: 505, as RabbitMQ has it; those of `EncodedProperties::check`: 502.
    pub fn decode(payload: &'a [u8]) -> Result<Self, DecodeError> {
        let fail = |offset, field, problem| Err(DecodeError { offset, field, problem });
        let Some((fixed, properties)) = payload.split_first_chunk::<FIXED_BYTES>() else {
            return fail(0, "header", Problem::Short { need: FIXED_BYTES, have: payload.len() });
        };
        let [class @ .., c, d, e, f, g, h, i, j, k, l] = *fixed;
        let (class, weight) = (u16::from_be_bytes(class), u16::from_be_bytes([c, d]));
        if class != BASIC {
            return fail(0, "class", Problem::ContentClass(class));
        }
        if weight != 0 {
            return fail(2, "weight", Problem::Weight(weight));
        }
        let properties = EncodedProperties::check_at(properties, FIXED_BYTES)?;
        Ok(Self { body_size: u64::from_be_bytes([e, f, g, h, i, j, k, l]), properties })
    }

    /// Appends a header frame. Properties are not split: the caller keeps them below `frame_max`.
    pub fn write(&self, out: &mut BytesMut, channel: u16) {
        write_frame(out, FrameKind::Header, channel, |out| {
            out.put_u16(BASIC);
            out.put_u16(0);
            out.put_u64(self.body_size);
            out.put_slice(self.properties.as_bytes());
        });
    }
}

/// Appends all frames of a message: the method, the header, and a copy of the body.
pub fn write_content(
    out: &mut BytesMut,
    channel: u16,
    method: &impl Content,
    properties: EncodedProperties<'_>,
    body: &[u8],
    frame_max: u32,
) {
    write_content_head(out, channel, method, ContentHeader { body_size: body.len() as u64, properties });
    write_body(out, channel, body, frame_max);
}

/// Appends the frames before the body.
pub fn write_content_head(out: &mut BytesMut, channel: u16, method: &impl Content, header: ContentHeader<'_>) {
    write_method(out, channel, method);
    header.write(out, channel);
}

/// Appends the frames of a body.
pub fn write_body(out: &mut BytesMut, channel: u16, body: &[u8], frame_max: u32) {
    let frames = body_frames(channel, body.len(), frame_max);
    out.reserve(body.len() + frames.len() * FRAME_OVERHEAD as usize);
    for frame in frames {
        out.put_slice(&frame.head);
        out.put_slice(&body[frame.body]);
        out.put_u8(FRAME_END);
    }
}

/// A frame of a body that lies elsewhere: these seven bytes, that part of the body, and the byte `FRAME_END`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyFrame {
    /// What comes before the payload.
    pub head: [u8; HEAD_BYTES],
    /// Which bytes of the body are the payload.
    pub body: Range<usize>,
}

/// The frames of a body, in order.
#[derive(Clone, Debug)]
pub struct BodyFrames {
    channel: u16,
    left: Range<usize>,
    payload_max: usize,
}

/// Splits a body of so many bytes. All frames are full but the last. A `frame_max` that leaves no room for a payload counts
/// as one that leaves a byte.
pub fn body_frames(channel: u16, body_bytes: usize, frame_max: u32) -> BodyFrames {
    let payload_max = frame_max.saturating_sub(FRAME_OVERHEAD).max(1) as usize;
    BodyFrames { channel, left: 0..body_bytes, payload_max }
}

impl Iterator for BodyFrames {
    type Item = BodyFrame;

    fn next(&mut self) -> Option<BodyFrame> {
        if self.left.is_empty() {
            return None;
        }
        let end = self.left.end.min(self.left.start.saturating_add(self.payload_max));
        let body = self.left.start..end;
        self.left.start = end;
        Some(BodyFrame { head: head(FrameKind::Body, self.channel, body.len() as u32), body })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let count = self.left.len().div_ceil(self.payload_max);
        (count, Some(count))
    }
}

impl ExactSizeIterator for BodyFrames {}
