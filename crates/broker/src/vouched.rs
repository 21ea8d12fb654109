//! For which records the broker vouches: what they say of who sent a message, and by which way it came, is believed of these alone.
//!
//! A batch that the broker writes for a client of AMQP, or for HTTP, has a mark that no producer may set (`record`, `header.rs`). Batches of
//! releases that set none are taken for marked: the state of each journal has the term in which the first release that sets it began, and each batch
//! the term in which it was written. So who wrote forged messages before that is believed still; who does so later is not.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use journal::{AppendItem, Journal, Log};
use record::BatchHeader;

use crate::Broker;

/// Key in the state of a journal.
pub(crate) const VOUCHED_KEY: &[u8] = b"mvouched";
const VERSION: u8 = 1;

/// Of one journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VouchedSince {
    /// Batches of earlier terms need no mark.
    term: u32,
    /// The journal has it in its state.
    known: bool,
}

impl VouchedSince {
    /// From the state of a journal.
    pub fn find(journal: &Journal, state: &[(Bytes, Bytes)]) -> Self {
        let now = journal.term().0;
        let found = state.iter().find(|(key, _)| key == VOUCHED_KEY).and_then(|(_, value)| decode(value));
        // What was salvaged into a journal that counts its terms anew has its marks.
        let found = found.filter(|term| *term <= now);
        Self { term: found.unwrap_or(now), known: found.is_some() }
    }
}

fn decode(mut value: &[u8]) -> Option<u32> {
    (value.try_get_u8().ok()? == VERSION).then_some(())?;
    value.try_get_u32().ok()
}

fn encode(term: u32) -> Bytes {
    let mut value = BytesMut::new();
    value.put_u8(VERSION);
    value.put_u32(term);
    value.freeze()
}

impl Broker {
    /// Writes from when on marks count, where that is not known yet. What a journal does not take now it gets with the next start.
    pub(crate) fn write_vouched(&self) {
        for (number, since) in self.vouched.iter().enumerate().filter(|(_, since)| !since.known) {
            let item = AppendItem::State { key: Bytes::from_static(VOUCHED_KEY), value: Some(encode(since.term)) };
            if let Err(error) = self.commit(number, vec![item]) {
                tracing::warn!(%error, journal = number, "from when on messages are marked is not written: messages of Kafka producers of this run are believed after the next start");
            }
        }
    }

    /// Is a batch of a log from before batches were marked? The broker vouches for all of those.
    pub(crate) fn is_before_marks(&self, log: &Log, header: &BatchHeader) -> bool {
        let since = self.vouched[self.journal_number(log.id())].term;
        // What was never in a journal has no term.
        u32::try_from(header.leader_epoch).is_ok_and(|term| term < since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        assert_eq!(decode(&encode(7)), Some(7));
        assert_eq!((decode(&[1, 0, 0]), decode(&[2, 0, 0, 0, 7])), (None, None));
    }
}
