//! From `crates/kafka-wire/schema/*.kafka` to `crates/kafka-wire/src/generated/*.rs`. Run it after a change of a
//! schema: `cargo run -p kafka-wire-gen`; a test fails when the committed code is stale.
//!
//! The notation, one file per API:
//!
//! ```text
//! api 1 Fetch                              number and name
//! versions 4-18                            what we speak
//! flexible 12+                             from here: compact lengths, tagged fields
//!
//! request
//!   rack_id: string 11+                    name: type, versions in which it is on the wire
//!   topics: [FetchTopic] 0+                an array of the struct that is indented below
//!     topic_id: uuid 13+
//!   cluster_id: string 12+ nullable 12+ tag 0 = null
//!                                          may be null; is tagged field 0; default
//! response
//!   ...
//!   struct Name 0+                         a struct that several fields share
//! ```
//!
//! Types: `bool int8 int16 uint16 int32 uint32 int64 float64 uuid string bytes records`, a struct's name,
//! and arrays of them. A field that is not on the wire in a version keeps its default.

mod emit;
mod generate;
mod parse;

pub use generate::{GenerateError, generate, read_schema};
pub use parse::{Api, Field, ParseError, Struct, Type, Versions, parse};
