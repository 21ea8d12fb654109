//! The administration API, under `/v1`: all that can be seen and changed of a broker while it runs, whatever protocol its clients speak.
//! The command line and the console are its clients. Documented in `docs/api.md`; the OpenAPI document at `/v1/openapi.json` is made
//! from the tables of routes.
//!
//! One file a resource, each with its table of routes ([`route::Route`]); `route::TABLES` names them all. A request's origin and sender
//! are looked at before its body is read; it is answered on a thread that may wait, and changes run on the broker's controller.

mod acls;
mod answer;
mod bindings;
mod call;
mod config;
mod connections;
mod exchanges;
mod filters;
mod groups;
mod journals;
mod latency;
mod listing;
mod live;
mod login;
mod messages;
mod openapi;
mod operations;
mod overview;
mod permissions;
mod places;
mod queues;
mod quotas;
mod records;
mod reset;
mod rights;
mod route;
mod schema;
mod server;
mod sessions;
mod settings;
mod topics;
mod users;
mod vhosts;
mod vitals;
mod why;

pub use latency::{Buckets, Latencies};
pub use server::Server;
pub use vitals::{Memory, MemoryUse, NodeTotals, Vitals};
