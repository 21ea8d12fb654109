//! The Kafka gateway: a session state machine without I/O ([`Session`]) and one handler file per API. Knows the
//! broker API and the Kafka codec, nothing below or beside.
//!
//! A request's way: [`Session::handle_frame`] → `handlers::dispatch` → handler → answer, or a wait that
//! [`Session::handle_reply`] ends → [`Session::poll_transmit`], strictly in the order of requests.

mod access;
mod answer_room;
mod body;
mod error_code;
mod fetch_sessions;
mod gateway;
mod group_of;
mod handlers;
mod long_polls;
mod metrics;
mod pinned;
mod principal_rules;
mod session;
mod share_sessions;
mod written;

pub use gateway::{Advertise, Gateway};
pub use handlers::{Api, apis};
pub use metrics::{ApiLabel, GatewayMetrics};
pub use pinned::MemoryPressure;
pub use principal_rules::{InvalidRules, PrincipalRules};
pub use session::{CloseReason, RequestRoom, SaslMechanism, SaslRules, Session, ShardContext};
