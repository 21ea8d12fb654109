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
pub use reader::{DecodeError, Problem, Reader};
pub use text::{Records, Str, UnknownTags};
pub use writer::Writer;

/// What generated code uses.
mod runtime {
    pub(crate) use crate::reader::{DecodeError, Reader};
    pub(crate) use crate::text::{Records, Str, UnknownTags};
    pub(crate) use crate::writer::Writer;
    pub(crate) use bytes::Bytes;
    pub(crate) use uuid::Uuid;
}
