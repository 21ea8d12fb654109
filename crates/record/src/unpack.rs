//! Records of a batch as they come out of its codec, a piece at a time: what is looked at and not kept takes no memory, and no more is
//! unpacked than the caller allows. Each thread counts the bytes that it unpacks ([`unpacked_bytes`]).
//!
//! A zstd frame may ask for a window of up to 128 MiB. Of that memory no more is touched than was unpacked.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::ops::ControlFlow;

use types::{Offset, Timestamp};

use crate::header::HEADER_BYTES;
use crate::retain::varint;
use crate::{BatchError, BatchHeader, Compression};

/// What is taken out of a codec at once.
const PIECE_BYTES: usize = 32 << 10;
/// Three bytes of a snappy block stand for at most 64: a block that says more than this of itself is not one.
const RATIO_MAX: usize = 64;
/// A varint of 64 bits takes at most so many bytes.
const VARINT_BYTES_MAX: usize = 10;

thread_local! {
    static UNPACKED: Cell<u64> = const { Cell::new(0) };
}

/// Bytes that this thread has unpacked so far. Records that are not compressed do not count.
pub fn unpacked_bytes() -> u64 {
    UNPACKED.get()
}

/// So many more were unpacked.
pub(crate) fn count(bytes: usize) {
    UNPACKED.set(UNPACKED.get() + bytes as u64);
}

/// Lets at most so many bytes out of a codec, and counts them. More is [`ErrorKind::QuotaExceeded`].
struct Limited<R> {
    codec: R,
    left: usize,
    is_over: bool,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.is_over {
            return Err(ErrorKind::QuotaExceeded.into());
        }
        // One byte beyond the limit tells that there is more.
        let most = into.len().min(self.left.saturating_add(1));
        let read = self.codec.read(&mut into[..most])?;
        count(read);
        if read > self.left {
            self.is_over = true;
            return if self.left > 0 {
                Ok(std::mem::take(&mut self.left))
            } else {
                Err(ErrorKind::QuotaExceeded.into())
            };
        }
        self.left -= read;
        Ok(read)
    }
}

/// Java frames snappy: a 16-byte head, then blocks with a big-endian length each. Others send it raw, which is one block.
struct Snappy<'a> {
    packed: &'a [u8],
    framed: bool,
    block: Vec<u8>,
    at: usize,
    left: usize,
}

impl<'a> Snappy<'a> {
    const JAVA: &'static [u8] = b"\x82SNAPPY\0";

    fn new(packed: &'a [u8], bytes_max: usize) -> io::Result<Self> {
        let framed = packed.starts_with(Self::JAVA);
        let packed = if framed { packed.get(16..).ok_or(ErrorKind::InvalidData)? } else { packed };
        Ok(Self { packed, framed, block: Vec::new(), at: 0, left: bytes_max })
    }

    /// Unpacks the next block; false: there is none.
    fn next_block(&mut self) -> io::Result<bool> {
        let block = if self.framed {
            let Some((length, rest)) = self.packed.split_first_chunk::<4>() else { return Ok(false) };
            let (block, rest) =
                rest.split_at_checked(u32::from_be_bytes(*length) as usize).ok_or(ErrorKind::InvalidData)?;
            self.packed = rest;
            block
        } else {
            std::mem::take(&mut self.packed)
        };
        if block.is_empty() {
            return Ok(self.framed);
        }
        let unpacked = snap::raw::decompress_len(block).map_err(|_| ErrorKind::InvalidData)?;
        if unpacked / RATIO_MAX > block.len() {
            return Err(ErrorKind::InvalidData.into());
        }
        self.left = self.left.checked_sub(unpacked).ok_or(ErrorKind::QuotaExceeded)?;
        self.block.resize(unpacked, 0);
        let unpacked =
            snap::raw::Decoder::new().decompress(block, &mut self.block).map_err(|_| ErrorKind::InvalidData)?;
        self.block.truncate(unpacked);
        self.at = 0;
        count(unpacked);
        Ok(true)
    }
}

impl Read for Snappy<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let from = self.fill_buf()?;
        let read = from.len().min(into.len());
        into[..read].copy_from_slice(&from[..read]);
        self.consume(read);
        Ok(read)
    }
}

impl BufRead for Snappy<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.at >= self.block.len() {
            if !self.next_block()? {
                return Ok(&[]);
            }
        }
        Ok(&self.block[self.at..])
    }

    fn consume(&mut self, bytes: usize) {
        self.at += bytes;
    }
}

/// What a reader of unpacked records could not do.
fn failed(error: &io::Error, bytes_max: usize) -> BatchError {
    match error.kind() {
        ErrorKind::QuotaExceeded => BatchError::TooLarge { bytes: bytes_max.saturating_add(1), max: bytes_max },
        _ => BatchError::Corrupt { what: "compressed records" },
    }
}

/// Lets `look` read the records as they come out of their codec, at most so many bytes: more is `TooLarge`.
pub(crate) fn with_unpacked<T>(
    codec: Compression,
    packed: &[u8],
    bytes_max: usize,
    look: impl FnOnce(&mut dyn BufRead) -> Result<T, BatchError>,
) -> Result<T, BatchError> {
    fn limited(codec: impl Read, left: usize) -> impl BufRead {
        BufReader::with_capacity(PIECE_BYTES, Limited { codec, left, is_over: false })
    }
    let failed = |error: io::Error| failed(&error, bytes_max);
    match codec {
        Compression::None => look(&mut &packed[..]),
        Compression::Gzip => look(&mut limited(flate2::bufread::MultiGzDecoder::new(packed), bytes_max)),
        Compression::Snappy => look(&mut Snappy::new(packed, bytes_max).map_err(failed)?),
        Compression::Lz4 => look(&mut limited(lz4_flex::frame::FrameDecoder::new(packed), bytes_max)),
        Compression::Zstd => {
            let codec = zstd::stream::read::Decoder::with_buffer(packed).map_err(failed)?;
            look(&mut limited(codec, bytes_max))
        }
    }
}

/// All of the records at once, at most so many bytes; more is `TooLarge`.
pub(crate) fn unpack(codec: Compression, packed: &[u8], bytes_max: usize) -> Result<Vec<u8>, BatchError> {
    with_unpacked(codec, packed, bytes_max, |from| {
        let mut out = Vec::new();
        from.read_to_end(&mut out).map_err(|error| failed(&error, bytes_max))?;
        Ok(out)
    })
}

/// Head and packed records of a batch, and how they are packed.
pub(crate) fn opened(batch: &[u8]) -> Result<(BatchHeader, Compression, &[u8]), BatchError> {
    let header = BatchHeader::parse(batch)?;
    let need = header.total_bytes();
    let packed = batch.get(HEADER_BYTES..need).ok_or(BatchError::Truncated { need, have: batch.len() })?;
    let codec = header.compression().ok_or(BatchError::UnknownCompression)?;
    Ok((header, codec, packed))
}

/// Reads records one after the other.
pub(crate) struct Pull<'r> {
    from: &'r mut dyn BufRead,
    bytes_max: usize,
}

impl<'r> Pull<'r> {
    pub fn new(from: &'r mut dyn BufRead, bytes_max: usize) -> Self {
        Self { from, bytes_max }
    }

    fn available(&mut self) -> Result<&[u8], BatchError> {
        let bytes_max = self.bytes_max;
        let available = self.from.fill_buf().map_err(|error| failed(&error, bytes_max))?;
        if available.is_empty() { Err(BatchError::Corrupt { what: "record length" }) } else { Ok(available) }
    }

    /// A varint, and how many bytes it took.
    fn varint(&mut self) -> Result<(i64, usize), BatchError> {
        let (mut value, mut taken) = (0u64, 0);
        loop {
            let available = self.available()?;
            let (mut read, mut ends) = (0, false);
            for byte in available.iter().take(VARINT_BYTES_MAX - taken) {
                value |= u64::from(byte & 0x7f) << (7 * (taken + read));
                read += 1;
                if byte & 0x80 == 0 {
                    ends = true;
                    break;
                }
            }
            self.from.consume(read);
            taken += read;
            if ends {
                return Ok(((value >> 1) as i64 ^ -((value & 1) as i64), taken));
            }
            if taken >= VARINT_BYTES_MAX {
                return Err(BatchError::Corrupt { what: "varint in a record" });
            }
        }
    }

    /// Shows the next bytes, piece by piece.
    fn take(&mut self, mut bytes: usize, mut piece: impl FnMut(&[u8])) -> Result<(), BatchError> {
        while bytes > 0 {
            let available = self.available()?;
            let step = available.len().min(bytes);
            piece(&available[..step]);
            self.from.consume(step);
            bytes -= step;
        }
        Ok(())
    }

    /// The next record, without a look at its headers. `with_key` is shown the bytes of its key, piece by piece.
    fn scan(&mut self, header: &BatchHeader, mut with_key: impl FnMut(&[u8])) -> Result<(Scanned, Body), BatchError> {
        let mut body = self.begin()?;
        self.skip_in(&mut body, 1)?;
        let timestamp_delta = self.varint_in(&mut body)?;
        let delta = self.varint_in(&mut body)?;
        let key = self.varint_in(&mut body)?;
        let keyed = key >= 0;
        if keyed {
            let length = body.take(key)?;
            self.take(length, &mut with_key)?;
        }
        let value = self.skip_field(&mut body)?;
        let timestamp = if header.append_time() {
            header.max_timestamp
        } else {
            header.base_timestamp.wrapping_add(timestamp_delta)
        };
        Ok((
            Scanned {
                offset: Offset(header.base().0.saturating_add_signed(delta)),
                timestamp,
                keyed,
                tombstone: value.is_none(),
                value_bytes: value.unwrap_or(0),
            },
            body,
        ))
    }

    /// Goes to the end of a record, through its headers.
    fn check_headers(&mut self, body: &mut Body) -> Result<(), BatchError> {
        let headers = self.varint_in(body)?;
        if headers < 0 || headers as usize > body.left {
            return Err(BatchError::Corrupt { what: "header count" });
        }
        for _ in 0..headers {
            if self.skip_field(body)?.is_none() {
                return Err(BatchError::Corrupt { what: "header name" });
            }
            self.skip_field(body)?;
        }
        self.skip_rest(body)
    }

    /// The length of the next record.
    fn begin(&mut self) -> Result<Body, BatchError> {
        let (length, _) = self.varint()?;
        let left = usize::try_from(length)
            .ok()
            .filter(|left| *left > 0)
            .ok_or(BatchError::Corrupt { what: "record length" })?;
        Ok(Body { left })
    }

    /// Appends the next record to `out`, with its length in front; its offset. `None`: it lies before `from`, and was passed over.
    ///
    /// # Errors
    /// `Corrupt`; `TooLarge` when it is longer than `record_max`, or than what may be unpacked.
    pub fn copy(
        &mut self,
        header: &BatchHeader,
        from: Offset,
        record_max: usize,
        out: &mut Vec<u8>,
    ) -> Result<Option<Offset>, BatchError> {
        let Body { left } = self.begin()?;
        if left > self.bytes_max {
            return Err(BatchError::TooLarge { bytes: left, max: self.bytes_max });
        }
        let start = out.len();
        let mut length = (left as u64) << 1;
        while length >= 0x80 {
            out.push(length as u8 | 0x80);
            length >>= 7;
        }
        out.push(length as u8);
        let head = left.min(1 + 2 * VARINT_BYTES_MAX);
        let body = out.len();
        self.take(head, |piece| out.extend_from_slice(piece))?;
        let mut fields = &out[body + 1..];
        varint(&mut fields)?;
        let offset = Offset(header.base().0.saturating_add_signed(varint(&mut fields)?));
        if offset < from {
            out.truncate(start);
            self.take(left - head, |_| {})?;
            return Ok(None);
        }
        if left > record_max {
            return Err(BatchError::TooLarge { bytes: left, max: record_max });
        }
        out.reserve(left - head);
        self.take(left - head, |piece| out.extend_from_slice(piece))?;
        Ok(Some(offset))
    }

    fn varint_in(&mut self, body: &mut Body) -> Result<i64, BatchError> {
        let (value, bytes) = self.varint()?;
        body.take(bytes as i64)?;
        Ok(value)
    }

    fn skip_in(&mut self, body: &mut Body, bytes: usize) -> Result<(), BatchError> {
        let bytes = body.take(bytes as i64)?;
        self.take(bytes, |_| {})
    }

    fn skip_rest(&mut self, body: &mut Body) -> Result<(), BatchError> {
        let left = std::mem::take(&mut body.left);
        self.take(left, |_| {})
    }

    /// Its length; `None`: it is null.
    fn skip_field(&mut self, body: &mut Body) -> Result<Option<usize>, BatchError> {
        let length = self.varint_in(body)?;
        if length < 0 {
            return Ok(None);
        }
        let length = body.take(length)?;
        self.take(length, |_| {})?;
        Ok(Some(length))
    }
}

/// What is left of a record.
struct Body {
    left: usize,
}

impl Body {
    fn take(&mut self, bytes: i64) -> Result<usize, BatchError> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.left = self.left.checked_sub(bytes).ok_or(BatchError::Corrupt { what: "length in a record" })?;
        Ok(bytes)
    }
}

/// What [`scan`] shows of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scanned {
    /// Its position in the log.
    pub offset: Offset,
    /// Milliseconds since 1970; the batch's when the broker stamped it.
    pub timestamp: Timestamp,
    /// It has a key.
    pub keyed: bool,
    /// It has no value.
    pub tombstone: bool,
    /// Bytes of its value.
    pub value_bytes: usize,
}

/// Shows the records of a batch one by one, until `visit` has seen enough. Takes no memory for them.
///
/// # Errors
/// `Corrupt`, `UnknownCompression`, `TooLarge` when more than `bytes_max` bytes would be unpacked; the checksum is not looked at.
pub fn scan(
    batch: &[u8],
    bytes_max: usize,
    mut visit: impl FnMut(&Scanned) -> ControlFlow<()>,
) -> Result<(), BatchError> {
    let (header, codec, packed) = opened(batch)?;
    let count = usize::try_from(header.records_count).map_err(|_| BatchError::Corrupt { what: "record count" })?;
    with_unpacked(codec, packed, bytes_max, |from| {
        let mut records = Pull::new(from, bytes_max);
        for _ in 0..count {
            let (scanned, mut body) = records.scan(&header, |_| {})?;
            records.check_headers(&mut body)?;
            if visit(&scanned).is_break() {
                break;
            }
        }
        Ok(())
    })
}

/// The same, with the key of each record that has one, and without a look at headers. A key is put together in memory, the rest is not.
///
/// # Errors
/// As [`scan`].
pub fn scan_keys(batch: &[u8], bytes_max: usize, mut visit: impl FnMut(&Scanned, &[u8])) -> Result<(), BatchError> {
    let (header, codec, packed) = opened(batch)?;
    let count = usize::try_from(header.records_count).map_err(|_| BatchError::Corrupt { what: "record count" })?;
    with_unpacked(codec, packed, bytes_max, |from| {
        let (mut records, mut key) = (Pull::new(from, bytes_max), Vec::new());
        for _ in 0..count {
            key.clear();
            let (scanned, mut body) = records.scan(&header, |piece| key.extend_from_slice(piece))?;
            records.skip_rest(&mut body)?;
            visit(&scanned, &key);
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests;
