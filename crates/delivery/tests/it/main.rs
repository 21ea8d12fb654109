//! The coordinators in virtual time: what members and transactional producers are told, and when. Shared subscriptions and queues against a
//! model.

mod allocations;
mod assignors;
mod available;
mod change_over;
mod consumer_groups;
mod crowd;
mod gaps;
mod many_consumers;
mod membership;
mod offsets;
mod queue;
mod queue_model;
mod reads;
mod room;
mod share_groups;
mod sight;
mod streams_groups;
mod subscription;
mod time_outs;
mod transactions;

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;
