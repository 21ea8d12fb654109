//! The coordinators in virtual time: what members and transactional producers are told, and when.

mod membership;
mod offsets;
mod room;
mod transactions;
