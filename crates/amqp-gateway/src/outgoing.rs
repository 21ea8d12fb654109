//! What is to be sent: small frames copied into one buffer, large bodies as they lie in memory, and whom to tell when frames have
//! been handed over.

use std::collections::VecDeque;
use std::sync::Arc;

use amqp_wire::{
    Content, ContentHeader, Encode, EncodedProperties, FRAME_END, body_frames, write_content, write_content_head,
    write_method,
};
use broker::{Account, ChannelFlow};
use bytes::{Bytes, BytesMut};

/// Bodies from this size on are not copied, in bytes.
const SHARED_FROM_BYTES: usize = 8 << 10;
/// A buffer of copied frames is handed on when it has so many bytes.
const BUFFER_BYTES: usize = 16 << 10;
/// Bytes that may wait for the socket at once; the rest stays here.
const HANDED_BYTES_MAX: usize = 256 << 10;

/// Bytes of answers that may wait; then no more is read that would be answered.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// How many times its own bytes a message takes on the wire, at most, about.
const AROUND_MESSAGES: usize = 8;

/// Bytes of messages for a channel that have been handed to the socket.
#[derive(Debug)]
pub(crate) struct Taken {
    pub channel: Arc<ChannelFlow>,
    pub bytes: usize,
    /// That of their queue, when it is far behind.
    pub laggard: Option<Arc<Account>>,
}

#[derive(Debug)]
enum Piece {
    Bytes(Bytes),
    Taken(Taken),
}

/// Frames on their way to the socket, in order.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    pieces: VecDeque<Piece>,
    tail: BytesMut,
    /// Bytes in `pieces`.
    sealed: usize,
    /// Bytes of messages among them, as their queues count.
    noted: usize,
}

impl Outgoing {
    /// A method.
    pub fn method(&mut self, channel: u16, method: &impl Encode) {
        write_method(&mut self.tail, channel, method);
        self.seal_if_large();
    }

    /// A heartbeat.
    pub fn heartbeat(&mut self) {
        amqp_wire::write_heartbeat(&mut self.tail);
    }

    /// Bytes that are no frame.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
    }

    /// A message whose body is copied.
    pub fn content(
        &mut self,
        channel: u16,
        method: &impl Content,
        properties: EncodedProperties<'_>,
        body: &[&[u8]],
        frame_max: u32,
    ) {
        if let [body] = body {
            write_content(&mut self.tail, channel, method, properties, body, frame_max);
        } else {
            let body = body.concat();
            write_content(&mut self.tail, channel, method, properties, &body, frame_max);
        }
        self.seal_if_large();
    }

    /// A message whose body is in shared memory.
    pub fn shared(
        &mut self,
        channel: u16,
        method: &impl Content,
        properties: EncodedProperties<'_>,
        body: &Bytes,
        frame_max: u32,
    ) {
        if body.len() < SHARED_FROM_BYTES {
            return self.content(channel, method, properties, &[body], frame_max);
        }
        write_content_head(&mut self.tail, channel, method, ContentHeader { body_size: body.len() as u64, properties });
        for frame in body_frames(channel, body.len(), frame_max) {
            self.tail.extend_from_slice(&frame.head);
            self.seal();
            self.sealed += frame.body.len();
            self.pieces.push_back(Piece::Bytes(body.slice(frame.body)));
            self.tail.extend_from_slice(&[FRAME_END]);
        }
    }

    /// Tells of the frames before it once they have been handed over.
    pub fn note(&mut self, taken: Taken) {
        self.seal();
        self.noted += taken.bytes;
        self.pieces.push_back(Piece::Taken(taken));
    }

    fn seal_if_large(&mut self) {
        if self.tail.len() >= BUFFER_BYTES {
            self.seal();
        }
    }

    fn seal(&mut self) {
        if !self.tail.is_empty() {
            self.sealed += self.tail.len();
            self.pieces.push_back(Piece::Bytes(self.tail.split().freeze()));
        }
    }

    /// Is there nothing to be sent?
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.tail.is_empty()
    }

    /// Frees memory that is only kept for what comes next.
    pub fn rest(&mut self) {
        if self.is_empty() {
            (self.pieces, self.tail) = (VecDeque::new(), BytesMut::new());
        }
    }

    /// Do more answers wait than a client should leave unread? What consumers get is not counted: their queues see to that.
    pub fn is_crowded(&self) -> bool {
        // A short message takes several times its own bytes on the wire.
        (self.sealed + self.tail.len()).saturating_sub(AROUND_MESSAGES * self.noted) > ANSWER_BYTES_MAX
    }

    /// Hands over what fits beside what waits in `out`; how many bytes that were.
    pub fn poll(&mut self, out: &mut VecDeque<Bytes>, mut taken: impl FnMut(Taken)) -> usize {
        if self.is_empty() {
            return 0;
        }
        self.seal();
        let (mut waiting, mut sent): (usize, usize) = (out.iter().map(Bytes::len).sum(), 0);
        while let Some(piece) = self.pieces.pop_front() {
            match piece {
                Piece::Taken(note) => {
                    self.noted -= note.bytes;
                    taken(note);
                }
                Piece::Bytes(bytes) if waiting < HANDED_BYTES_MAX => {
                    (waiting, sent) = (waiting + bytes.len(), sent + bytes.len());
                    self.sealed -= bytes.len();
                    out.push_back(bytes);
                }
                bytes @ Piece::Bytes(_) => {
                    self.pieces.push_front(bytes);
                    break;
                }
            }
        }
        sent
    }
}
