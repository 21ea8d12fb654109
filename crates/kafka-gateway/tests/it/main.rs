//! Sessions without sockets: requests in, answers out, with the time and the arrival of events in the tests' hands.

mod acls;
mod answers;
mod bearer;
mod broker_configs;
mod drain;
mod fetch_sessions;
mod filters;
mod full_disk;
mod gated;
mod idempotence;
mod limits;
mod login;
mod long_poll;
mod long_requests;
mod many_items;
mod memory;
mod node;
mod offsets;
mod one_journal;
mod order;
mod queue_group;
mod queues;
mod quotas;
mod repeated;
mod share;
mod together;
mod transactions;
mod two_journals;
mod unpacking;

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;
