//! The journal: one append-only sequence of chunks on disk that carries the batches of many logs. It
//! owns chunks, segments, their index, group commit, recovery, the tail cache and cold reads; it
//! reaches the disk, the clock and the network shards only through seams.

pub mod disk;
mod run;

pub use run::Run;
