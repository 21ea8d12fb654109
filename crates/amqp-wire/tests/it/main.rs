//! Tests of the codec: against bytes that RabbitMQ wrote, against a second table of methods, against models of tables
//! and properties, against cut, damaged and hostile bytes.

mod allocations;
mod content;
mod frame;
mod golden;
mod method;
mod properties;
mod random;
mod reply_code;
mod table;

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;
