//! AMQP 0-9-1 with RabbitMQ's extensions: bytes to frames, methods, tables and properties, and back, nothing else.
//! Both directions of everything, so that a broker and a client can be built of it. Sources: the specification
//! (AMQP 0-9-1, sections 2.3 and 4.2) and, where RabbitMQ differs, what RabbitMQ 4.3 does.
//!
//! A stream is a [`ProtocolHeader`], then frames ([`parse_frame`]). A method frame holds a [`Method`]; publish, return,
//! deliver and get-ok are followed by a header frame ([`ContentHeader`]) and as many body frames as the body needs.
//!
//! What is allocated: nothing while reading. Decoded values borrow from the frame; a table stays encoded and is read in
//! place ([`TableRef`]), so that no announced length or count can make a reader ask for memory. Writers append to the
//! caller's `BytesMut` and build nothing beside it. [`Table`] is the one owner of bytes, for what a broker keeps.
//!
//! Malformed input is a [`DecodeError`] with the reply code that a peer closes with. Nothing panics on any input.

mod content;
mod error;
mod field;
mod frame;
mod methods;
mod properties;
mod reply_code;
mod short;
mod table;
mod table_writer;

pub use content::{BodyFrame, BodyFrames, ContentHeader, body_frames, write_body, write_content, write_content_head};
pub use error::{DecodeError, Problem};
pub use field::Writer;
pub use frame::{FRAME_END, FRAME_OVERHEAD, Frame, FrameKind, Parsed, ParsedHeader, ProtocolHeader};
pub use frame::{parse_frame, write_heartbeat, write_method};
pub use methods::{Content, Encode, Method, MethodId, MethodInfo, Sender};
pub use methods::{access, basic, channel, confirm, connection, exchange, queue, tx};
pub use properties::{EncodedProperties, Properties};
pub use reply_code::{ReplyCode, Severity};
pub use short::{ShortBytes, ShortStr, short};
pub use table::{ArrayRef, TABLE_DEPTH_MAX, TableRef, Value};
pub use table_writer::{ArrayWriter, Table, TableWriter};
