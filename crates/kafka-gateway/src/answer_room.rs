//! Room for an answer that may be a thousand times as long as its request: a share of the memory for answers that clients have not read, and
//! never more than the protocol can say. What finds no room is answered with an error on which clients ask for it again, alone.

use kafka_wire::Writer;

use crate::gateway::Gateway;

/// Of one answer, in any case less than the 2 GiB that the length of a frame can say.
const BYTES_MAX: usize = 1 << 30;
/// An answer takes more memory before it is written than the bytes that it has.
const SHARE: usize = 2;
/// What every client needs fits up to here, whatever others have not read.
const USUAL_BYTES: usize = 1 << 20;

/// How much more an answer may have, in bytes as they are sent.
pub(crate) struct AnswerRoom {
    left: usize,
    is_first: bool,
}

impl AnswerRoom {
    /// For an answer that is begun now.
    pub fn new(gateway: &Gateway) -> Self {
        Self { left: (gateway.pinned.room() / SHARE).min(BYTES_MAX), is_first: true }
    }

    /// The same for an answer that no client gets on without.
    pub fn for_all(gateway: &Gateway) -> Self {
        Self::for_all_behind(0, gateway)
    }

    /// The same for what is left of one that is made in turns, of which so many bytes are written and [counted](crate::pinned::Pinned::count).
    pub fn for_all_behind(written: usize, gateway: &Gateway) -> Self {
        let whole = ((gateway.pinned.room() + written) / SHARE).clamp(USUAL_BYTES, BYTES_MAX);
        Self { left: whole.saturating_sub(written), is_first: written == 0 }
    }

    /// How many bytes more.
    pub fn left(&self) -> usize {
        self.left
    }

    /// Is there any?
    pub fn is_there(&self) -> bool {
        self.left > 0
    }

    /// Takes room for a part of the answer. False: there is not enough, and what follows finds none either. The first part may have more, so that
    /// who asks again gets on.
    pub fn take(&mut self, write: impl FnOnce(&mut Writer)) -> bool {
        let mut writer = Writer::new();
        write(&mut writer);
        self.take_bytes(writer.len())
    }

    /// The same for a part of so many bytes.
    pub fn take_bytes(&mut self, bytes: usize) -> bool {
        let fits = bytes <= self.left || std::mem::take(&mut self.is_first) && bytes <= BYTES_MAX;
        self.is_first = false;
        self.left = if fits { self.left.saturating_sub(bytes) } else { 0 };
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_part_fits_and_nothing_follows_what_did_not_fit() {
        let mut room = AnswerRoom { left: 100, is_first: true };
        let of = |bytes: usize| move |writer: &mut Writer| (0..bytes).for_each(|_| writer.int8(0));
        assert!(room.take(of(1000)) && !room.is_there());
        let mut room = AnswerRoom { left: 100, is_first: true };
        assert!(room.take(of(50)) && room.take(of(40)) && !room.take(of(20)) && !room.take(of(1)));
    }
}
