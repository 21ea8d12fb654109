//! The group coordinator in virtual time: what members are told, and when.

mod membership;
mod offsets;
mod room;
