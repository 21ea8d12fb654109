//! The AMQP 0-9-1 gateway: towards clients RabbitMQ 4.3, a session state machine without I/O ([`Session`]) and one handler file per
//! class or family of methods. Knows the broker API, the routing table and the AMQP codec, nothing below or beside.
//!
//! A frame's way: [`Session::handle_bytes`] → `handlers` → the broker. A publish is routed and joins a batch of this turn
//! (`publisher`), which is appended when the turn ends; what comes of it arrives by [`Session::handle_reply`] and becomes a confirm.
//! A method that needs the controller stops the connection's frames until its outcome is there. Deliveries come by
//! [`Session::handle_reply`] as well. [`Session::poll_transmit`] hands out what is to be sent.

mod access;
mod arguments;
mod channel;
mod confirms;
mod connection;
mod consumer_memory;
mod content;
mod delayed;
mod error;
mod gateway;
mod handlers;
mod heartbeat;
mod letters;
mod message;
mod metrics;
mod outgoing;
mod post;
mod publisher;
mod quota;
mod reply;
mod seen;
mod session;
mod transaction;
mod unacked;
mod unfinished;

pub use error::CloseReason;
pub use gateway::Gateway;
pub use metrics::GatewayMetrics;
pub use post::{Postcard, open, post};
pub use session::Session;
