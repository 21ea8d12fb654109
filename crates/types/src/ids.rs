//! Names of things: none of them is reused once given out.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

id!(
    /// One log (a partition or a queue) of one node, unique for ever.
    LogId(u64), "log-"
);
id!(
    /// One machine of the cluster; Kafka's broker id.
    NodeId(i32), "node-"
);
id!(
    /// Position of a partition in its topic, from 0.
    PartitionIndex(u32), "partition-"
);
id!(
    /// A network shard: one thread that owns the connections given to it.
    ShardId(u16), "shard-"
);
id!(
    /// One client connection, unique within the life of the process.
    ConnectionId(u64), "connection-"
);

/// A topic's stable identity: deleting and creating the same name gives another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicId(pub uuid::Uuid);

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
