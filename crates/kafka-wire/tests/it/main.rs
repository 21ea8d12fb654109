//! Tests of the codec: against another codec, against committed bytes, against malformed and hostile frames, and
//! of the generated code against its schema.

mod codecs;
mod cross_check;
mod frame;
mod generated;
mod golden;
mod hostile;
mod memory;
mod message;
mod truncated;

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;
