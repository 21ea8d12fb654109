//! Long lists of an answer, written one part after the other: kept as the bytes that are sent, which are a fraction of what the parts take before
//! they are written.

use std::sync::Arc;

use bytes::Bytes;
use kafka_wire::Writer;

use crate::answer_room::AnswerRoom;
use crate::body::Body;
use crate::pinned::{Pinned, Reserved};

/// A piece is over when more would come than that: what was written is not moved again and again.
const PIECE_BYTES: usize = 1 << 20;

/// Parts of a list, written.
#[derive(Default)]
pub(crate) struct Parts {
    pieces: Vec<Bytes>,
    open: Writer,
    count: usize,
    bytes: usize,
    /// Counts them among answers that are not read.
    counted: Option<Reserved>,
}

impl Parts {
    /// None yet. They count as long as they, or the answer made of them, are there.
    pub fn counted(pinned: &Arc<Pinned>) -> Self {
        Self { counted: Some(pinned.count()), ..Self::default() }
    }

    /// Bytes of all parts.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a part, if there is room for it; false: there is not, and what follows finds none either.
    pub fn push(&mut self, room: &mut AnswerRoom, write: impl FnOnce(&mut Writer)) -> bool {
        let mut part = Writer::new();
        write(&mut part);
        let fits = room.take_bytes(part.len());
        if fits {
            self.put(part);
        }
        fits
    }

    /// Adds a part that is there whether there is room or not: it says that something else is not.
    pub fn add(&mut self, write: impl FnOnce(&mut Writer)) {
        let mut part = Writer::new();
        write(&mut part);
        self.put(part);
    }

    fn put(&mut self, part: Writer) {
        self.count += 1;
        self.bytes += part.len();
        if let Some(counted) = &mut self.counted {
            counted.grow_to(self.bytes);
        }
        if !self.open.is_empty() && self.open.len() + part.len() > PIECE_BYTES {
            // A long list: the next piece gets what it will need, and no more.
            let full = std::mem::replace(&mut self.open, Writer::with_capacity(PIECE_BYTES));
            self.pieces.append(&mut full.finish());
        }
        part.finish().iter().for_each(|bytes| self.open.raw(bytes));
    }

    /// All of it as the list of a response, whose own is empty.
    pub fn of<R: Listing>(mut self, response: R) -> Written<R> {
        self.pieces.append(&mut self.open.finish());
        Written { response, pieces: self.pieces, count: self.count, _counted: self.counted }
    }
}

/// A response with one long list.
pub(crate) trait Listing: Body {
    /// Of a version: are lengths of few bytes, and how many bytes come behind the list, always as many?
    fn behind(version: i16) -> (bool, usize);
}

/// A response of which the list is written.
pub(crate) struct Written<R> {
    response: R,
    pieces: Vec<Bytes>,
    count: usize,
    /// Until it is counted as it is sent.
    _counted: Option<Reserved>,
}

impl<R: Listing> Body for Written<R> {
    fn encode(&self, writer: &mut Writer, version: i16) {
        let (flexible, behind) = R::behind(version);
        let mut whole = Writer::new();
        self.response.encode(&mut whole, version);
        let whole = whole.finish().concat();
        let (rest, tail) = whole.split_at(whole.len() - behind);
        let mut empty = Writer::new();
        empty.array(flexible, Some(0));
        writer.raw(&rest[..rest.len() - empty.len()]);
        writer.array(flexible, Some(self.count));
        self.pieces.iter().for_each(|piece| writer.share(piece));
        writer.raw(tail);
    }

    fn set_throttle(&mut self, milliseconds: i32) {
        self.response.set_throttle(milliseconds);
    }
}

#[cfg(test)]
mod tests;
