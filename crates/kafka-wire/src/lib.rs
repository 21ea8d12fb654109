//! Kafka's wire protocol: bytes to messages and back, nothing else. The messages are generated from
//! `schema/*.kafka` (see `kafka-wire-gen`); a struct holds all fields of all versions, and the version is
//! an argument of `decode` and `encode`.
//!
//! Lengths are checked against what is left in the frame before anything is allocated.

mod api_key;
mod error_code;
mod generated;
mod header;
mod reader;
mod text;
mod writer;

pub use api_key::ApiKey;
pub use error_code::ErrorCode;
pub use generated::*;
pub use header::{RequestHeader, encode_response_header};
pub use reader::{DecodeError, ITEMS_MAX, Mark, Problem, Reader};
pub use text::{Records, Str, UnknownTags};
pub use writer::Writer;

/// The items of a request of an API, of which `reader` stands at the body: it is decoded without anything being kept of it.
///
/// # Errors
/// Those of decoding it, apart from strings that are not UTF-8.
pub fn count_items(api: i16, version: i16, reader: &Reader) -> Result<usize, DecodeError> {
    let mut counting = reader.counting();
    generated::pass(api, &mut counting, version)?;
    Ok(counting.items())
}

/// What generated code uses.
mod runtime {
    pub(crate) use crate::reader::{DecodeError, Reader};
    pub(crate) use crate::text::{Records, Str, UnknownTags};
    pub(crate) use crate::writer::Writer;
    pub(crate) use bytes::Bytes;
    pub(crate) use uuid::Uuid;
}
