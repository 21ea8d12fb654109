//! What has been read becomes frames that are looked at. Most are taken several at once out of what one read brought. The caller may read a large frame into
//! memory of its own where memory for that is scarce.

use std::time::Instant;

use amqp_wire::{Parsed, ParsedHeader, ProtocolHeader, parse_frame};
use bytes::{Bytes, BytesMut};

use super::{Phase, Session, Slot};
use crate::error::{CloseReason, Failure};
use crate::handlers::{self, Handshake};

impl Session {
    /// Bytes of the frame that `buffer` begins with, of which a part is there and everything before has been looked at.
    pub fn begun_frame_bytes(&self, buffer: &[u8]) -> Option<usize> {
        match parse_frame(buffer, self.connection.limits.frame_max) {
            Ok(Parsed::More(missing)) if self.phase == Phase::Running && self.takes_frame() => {
                Some(buffer.len() + missing)
            }
            _ => None,
        }
    }

    /// Has everything been looked at that came before, so that a frame may follow?
    pub fn takes_frame(&self) -> bool {
        matches!(self.phase, Phase::Running | Phase::Closing { .. }) && self.input.is_empty() && self.wants_read()
    }

    /// Takes a whole frame, which is looked at with what comes next ([`Session::handle_bytes`]).
    pub fn take_frame(&mut self, frame: Bytes) {
        if let Err(error) = parse_frame(&frame, self.connection.limits.frame_max) {
            return self.refuse_frame(error.into());
        }
        self.note_received(frame.len());
        self.input = frame;
    }

    fn note_received(&mut self, bytes: usize) {
        self.connection.gateway.metrics.received_bytes.inc_by(bytes as u64);
        self.connection.received(bytes);
    }

    pub(super) fn take_protocol_header(&mut self, buffer: &mut BytesMut) -> bool {
        let Phase::Protocol { until } = self.phase else { return false };
        match ProtocolHeader::parse(buffer) {
            ParsedHeader::More(_) => return false,
            ParsedHeader::Header(header) if header.is_spoken() => {
                drop(buffer.split_to(ProtocolHeader::BYTES));
                handlers::start(&mut self.connection);
                self.phase = Phase::Handshake { until, due: Handshake::Start };
            }
            ParsedHeader::Header(_) | ParsedHeader::Foreign => {
                self.connection.out.raw(&ProtocolHeader::AMQP_0_9_1.to_bytes());
                self.end = Some(CloseReason::Foreign);
            }
        }
        true
    }

    /// Takes the whole frames of `buffer`; during the handshake one, because what follows may have other limits.
    pub(super) fn take_frames(&mut self, buffer: &mut BytesMut) {
        let mut total = 0;
        loop {
            match parse_frame(&buffer[total..], self.connection.limits.frame_max) {
                Ok(Parsed::Frame(frame)) => total += frame.bytes(),
                Ok(Parsed::More(_)) => break,
                // It is told of when the frames before it have been looked at.
                Err(_) if total > 0 => break,
                Err(error) => {
                    buffer.clear();
                    return self.refuse_frame(error.into());
                }
            }
            if self.phase != Phase::Running {
                break;
            }
        }
        if total > 0 {
            self.input = buffer.split_to(total).freeze();
            self.note_received(total);
        }
    }

    /// A frame that cannot be taken apart: nothing after it can.
    fn refuse_frame(&mut self, failure: Failure) {
        match self.phase {
            Phase::Running => {
                self.connection.flush();
                self.close_connection(&failure);
                self.end = Some(CloseReason::Error(failure.text));
            }
            Phase::Closing { .. } => self.end = Some(CloseReason::Error(std::mem::take(&mut self.reason))),
            Phase::Protocol { .. } | Phase::Handshake { .. } | Phase::Ended => {
                self.end = Some(CloseReason::Handshake(failure.text))
            }
        }
    }

    /// The rest of a frame is not read for want of memory.
    pub fn note_unread(&mut self, now: Instant) {
        self.note_life(now);
        self.connection.unfinished.note_unread(now);
    }

    /// Bytes of a frame have come that is not whole: the client lives.
    pub fn note_life(&mut self, now: Instant) {
        if let Some(heartbeat) = &mut self.heartbeat {
            heartbeat.received(now);
        }
    }

    /// Nothing was read or sent for a while: memory that is only kept for what comes next is freed.
    pub fn rest(&mut self) {
        self.connection.rest();
        for slot in self.channels.values_mut() {
            if let Slot::Open(channel) = slot {
                channel.rest();
            }
        }
    }
}
