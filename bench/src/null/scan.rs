//! Reads the numbers that binary protocols are made of, off the front of a slice. `None` is: it ends before.

/// What is left to read.
#[derive(Clone, Copy, Debug)]
pub struct Scan<'a> {
    rest: &'a [u8],
    length: usize,
}

macro_rules! number {
    ($($(#[$doc:meta])* $name:ident -> $type:ty),* $(,)?) => {
        $(
            $(#[$doc])*
            pub fn $name(&mut self) -> Option<$type> {
                let (bytes, rest) = self.rest.split_first_chunk()?;
                self.rest = rest;
                Some(<$type>::from_be_bytes(*bytes))
            }
        )*
    };
}

impl<'a> Scan<'a> {
    /// At the front of these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, length: bytes.len() }
    }

    /// Bytes read so far.
    pub fn position(&self) -> usize {
        self.length - self.rest.len()
    }

    /// Is nothing left?
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    number! {
        /// One byte.
        byte -> u8,
        /// Big-endian.
        u16 -> u16,
        /// Big-endian.
        u32 -> u32,
        /// Big-endian.
        u64 -> u64,
        /// Big-endian.
        i16 -> i16,
        /// Big-endian.
        i32 -> i32,
    }

    /// As many bytes.
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    /// Seven bits a byte, low first, at most ten bytes. An endless one ends nowhere, so it is `None` too.
    pub fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}
