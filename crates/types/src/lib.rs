//! Domain newtypes shared by every layer: what an offset, a term, a log or a byte size is, with only
//! the operations that mean something. Protocol spellings (Kafka's signed offsets, leader epochs)
//! are converted in the gateways, never here.

mod byte_size;
mod clock;
mod durability;
mod gate;
mod ids;
mod offset;

pub use byte_size::{ByteSize, ParseByteSizeError};
pub use clock::{Clock, SystemClock, Timestamp};
pub use durability::{Durability, ParseDurabilityError};
pub use gate::Gate;
pub use ids::{ConnectionId, LogId, NodeId, PartitionIndex, ShardId, TopicId};
pub use offset::{LogIndex, Offset, Term};
