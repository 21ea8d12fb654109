//! Opening of batches for AMQP consumers, who get records one by one. What a network thread may unpack for it is bounded; what takes more is
//! opened by a thread that reads history. The memory of what was unpacked counts until the last record of it has been sent
//! (`window_memory.rs`). A large batch is opened piece by piece, each time from its begin.
//!
//! A batch whose records make no sense, as its producer packed them, is passed over from the first such record on, with a line in the log and a count: those behind it are given out.
//!
//! Queues refuse batches that unpack to more than `mainstem.batch.unpacked.max.bytes` when they are produced. What a queue with a log of its own has
//! taken it gives out, also where the bound was larger then: nothing of it is passed over, and at a record for which there is too little memory the
//! queue waits. From a topic that was there before, and from streams, what is beyond the bound is passed over, with a line in the log and a count:
//! it stays there for Kafka clients.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use journal::Log;
use record::{BatchError, Compression, OpenLimits, Record, open_records, sliced_batches, unpacked_bytes};
use types::Offset;

use super::window_memory::WindowMemory;
use crate::{Broker, aborted};

/// What a turn of a queue or of a reader may unpack on a network thread.
pub(super) const HERE_BYTES_MAX: usize = 512 << 10;
/// Memory of the records that are opened at once, about, and where memory is short.
const PIECE_BYTES: usize = 4 << 20;
const SHORT_PIECE_BYTES: usize = 1 << 20;
/// And on a network thread, of what is not packed: some thousand short records, which is about a millisecond.
const HERE_PIECE_BYTES: usize = 256 << 10;

/// How batches are opened, and what may be unpacked for it.
pub(super) struct Opening<'a> {
    broker: &'a Broker,
    /// On a network thread: so much more.
    left: Option<&'a mut usize>,
    /// Nothing is passed over: it would be lost.
    keeps: bool,
}

/// Why batches were not opened.
pub(super) enum NotOpened {
    /// More would have to be unpacked than this thread may.
    Later,
    /// The first record is too large for this node.
    TooLarge(BatchError),
    /// They make no sense.
    Broken(BatchError),
}

impl From<BatchError> for NotOpened {
    fn from(error: BatchError) -> Self {
        Self::Broken(error)
    }
}

/// What was opened.
pub(super) struct Opened {
    /// Offset after it.
    pub next: u64,
    /// Something of it was unpacked, into memory of its own.
    pub unpacked: bool,
}

impl<'a> Opening<'a> {
    /// On a network thread, which may unpack `left` bytes more.
    pub fn here(broker: &'a Broker, left: &'a mut usize) -> Self {
        Self { broker, left: Some(left), keeps: true }
    }

    /// On a thread that may wait. What is too large is passed over.
    pub fn elsewhere(broker: &'a Broker) -> Self {
        Self { broker, left: None, keeps: false }
    }

    /// The same for a queue whose own the log is: nothing is passed over.
    pub fn whole(broker: &'a Broker) -> Self {
        Self { broker, left: None, keeps: true }
    }

    fn memory(&self) -> &'a Arc<WindowMemory> {
        &self.broker.vhosts.windows
    }

    /// Shows the records of `range` that consumers may see, as many as there is room for: at least one, if there is one.
    ///
    /// # Errors
    /// `Later` when the first batch takes more than this thread may unpack; `TooLarge` when none may.
    pub fn open(
        &mut self,
        log: &Log,
        slices: &[Bytes],
        range: &Range<u64>,
        mut each: impl FnMut(Record),
    ) -> Result<Opened, NotOpened> {
        let found = sliced_batches(slices)?;
        let dead = aborted(log, slices, &found, Offset(range.start), Offset(range.end));
        let memory = self.memory();
        let mut room = if memory.is_short() { SHORT_PIECE_BYTES } else { PIECE_BYTES };
        // What is packed is unpacked from its begin for each piece: of that a piece is as long as elsewhere.
        let mut here = if self.left.is_some() { HERE_PIECE_BYTES } else { usize::MAX };
        let (mut opened, mut some) = (Opened { next: range.end, unpacked: false }, false);
        for (batch, _) in found.iter().zip(dead).filter(|(batch, dead)| !batch.header.control() && !dead) {
            let (base, end) = (batch.header.base().0, batch.header.next().0);
            if end <= range.start || base >= range.end {
                continue;
            }
            if room.min(here) == 0 && some {
                return Ok(Opened { next: base, ..opened });
            }
            let is_plain = batch.header.compression() == Some(Compression::None);
            let limits = self.limits(if is_plain { room.min(here) } else { room });
            let before = unpacked_bytes();
            let vouched = self.broker.is_before_marks(log, &batch.header);
            let shown =
                open_records(slices, batch, Offset(range.start), limits, &|bytes| memory.own(bytes), |mut record| {
                    if record.offset.0 < range.end {
                        some = true;
                        record.vouched |= vouched;
                        each(record);
                    }
                });
            let spent = usize::try_from(unpacked_bytes() - before).unwrap_or(usize::MAX);
            opened.unpacked |= spent > 0;
            if let Some(left) = &mut self.left {
                **left = left.saturating_sub(spent);
            }
            match shown {
                Ok(shown) => {
                    room = room.saturating_sub(shown.memory);
                    here = here.saturating_sub(if is_plain { shown.memory } else { 0 });
                    if let Some(next) = shown.next.filter(|next| next.0 < range.end) {
                        return Ok(Opened { next: next.0, ..opened });
                    }
                }
                Err(BatchError::TooLarge { .. }) if some && self.keeps => return Ok(Opened { next: base, ..opened }),
                Err(BatchError::TooLarge { .. }) if self.left.is_some() => return Err(NotOpened::Later),
                Err(error @ BatchError::TooLarge { .. }) if self.keeps => return Err(NotOpened::TooLarge(error)),
                Err(BatchError::TooLarge { .. }) => self.note_passed_over(log, base),
                // Its checksum fits: so it was produced, and so it stays.
                Err(error) => self.note_damaged(log, base, &error),
            }
        }
        Ok(opened)
    }

    fn note_damaged(&self, log: &Log, base: u64, error: &BatchError) {
        self.broker.unpacking().counts().damaged.fetch_add(1, Ordering::Relaxed);
        tracing::error!(%error, log = %log.id(), offset = base, "records of a batch that make no sense are passed over by AMQP consumers");
    }

    fn limits(&self, memory: usize) -> OpenLimits {
        let unpacking = self.broker.unpacking();
        let usual = OpenLimits { memory, unpacked: unpacking.bytes_max(), record: unpacking.bytes_max() };
        match &self.left {
            Some(left) => OpenLimits { unpacked: (**left).min(usual.unpacked), ..usual },
            None if self.keeps => unpacking.limits_of_taken(memory),
            None => usual,
        }
    }

    fn note_passed_over(&self, log: &Log, base: u64) {
        let limit = self.broker.unpacking().bytes_max();
        self.broker.unpacking().counts().passed_over.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(log = %log.id(), offset = base, limit, "records of a batch that unpacks to too much are passed over by AMQP consumers");
    }
}

#[cfg(test)]
mod tests;
