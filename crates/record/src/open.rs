//! Some of the records of a batch, for readers that hand them out one by one: from an offset on, as many as there is room for. A batch
//! that unpacks to much is gone through from its begin each time, and only what is handed out is kept in memory.

use bytes::Bytes;
use types::Offset;

use crate::records::{HeaderMemory, record};
use crate::sliced::{SlicedBatch, whole};
use crate::unpack::{Pull, with_unpacked};
use crate::{BatchError, BatchHeader, Compression, HEADER_BYTES, Record};

/// How much of a batch may be opened at once, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct OpenLimits {
    /// Memory of the records, about. One record may take more.
    pub memory: usize,
    /// What may be unpacked on the way to the records and for them.
    pub unpacked: usize,
    /// The longest record that is unpacked, and what the headers of one may take. Those beyond it are left out.
    pub record: usize,
}

/// What came of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// Where the records begin for which there was no room; `None`: there are none.
    pub next: Option<Offset>,
    /// Memory of the records, about. Of records that are not compressed, what they take beside the batch.
    pub memory: usize,
}

/// Hands out the records of one of the batches that lie in `slices`, from `from` on. Records that are not compressed share the memory of
/// the slices, others get memory that `hold` accounts for.
///
/// # Errors
/// `Corrupt`, `UnknownCompression`; `TooLarge` when `limits.unpacked` was reached before the first record, or that is longer than `limits.record`.
/// The checksum is not looked at.
pub fn open_records(
    slices: &[Bytes],
    batch: &SlicedBatch,
    from: Offset,
    limits: OpenLimits,
    hold: &dyn Fn(Vec<u8>) -> Bytes,
    each: impl FnMut(Record),
) -> Result<Opened, BatchError> {
    let (header, length) = (&batch.header, batch.header.total_bytes());
    let codec = header.compression().ok_or(BatchError::UnknownCompression)?;
    let count = usize::try_from(header.records_count).map_err(|_| BatchError::Corrupt { what: "record count" })?;
    let packed = whole(slices, batch.at + HEADER_BYTES, length - HEADER_BYTES);
    if codec == Compression::None {
        return hand_out(header, packed, count, from, limits, each);
    }
    let (mut unpacked, mut last) = (Vec::new(), from);
    let (copied, is_whole) = with_unpacked(codec, &packed, limits.unpacked, |reader| {
        let (mut records, mut copied) = (Pull::new(reader, limits.unpacked), 0);
        for _ in 0..count {
            if copied > 0 && unpacked.len() + copied * size_of::<Record>() >= limits.memory {
                return Ok((copied, false));
            }
            let before = unpacked.len();
            match records.copy(header, from, limits.record, &mut unpacked) {
                Ok(None) => {}
                Ok(Some(offset)) => (copied, last) = (copied + 1, offset),
                Err(BatchError::TooLarge { .. }) if copied > 0 => {
                    unpacked.truncate(before);
                    return Ok((copied, false));
                }
                Err(error) => return Err(error),
            }
        }
        Ok((copied, true))
    })?;
    if copied == 0 {
        return Ok(Opened::default());
    }
    unpacked.shrink_to_fit();
    let memory = unpacked.len();
    // Of what was unpacked nothing is left over: it would have to be unpacked again.
    let limits = OpenLimits { memory: usize::MAX, ..limits };
    let handed_out = hand_out(header, hold(unpacked), copied, from, limits, each)?;
    let next = (!is_whole).then(|| last.plus(1));
    Ok(Opened { next, memory: memory + handed_out.memory })
}

/// Hands out `count` records, of which some lie before `from`.
fn hand_out(
    header: &BatchHeader,
    mut bytes: Bytes,
    count: usize,
    from: Offset,
    limits: OpenLimits,
    mut each: impl FnMut(Record),
) -> Result<Opened, BatchError> {
    // A record takes at least seven bytes.
    if count > bytes.len() / 7 + 1 {
        return Err(BatchError::Corrupt { what: "record count" });
    }
    let (mut opened, mut last) = (Opened::default(), None);
    for _ in 0..count {
        if opened.memory >= limits.memory
            && let Some(last) = last
        {
            return Ok(Opened { next: Some(Offset::plus(last, 1)), ..opened });
        }
        let mut memory = HeaderMemory::cut(limits.record);
        let record = record(header, &mut bytes, &mut memory)?;
        if record.offset >= from {
            opened.memory += size_of::<Record>() + memory.used();
            last = Some(record.offset);
            each(record);
        }
    }
    Ok(opened)
}

#[cfg(test)]
mod tests;
