//! Tests of the binary as a process, and of the tree as a whole.

mod administration;
mod certificates;
mod client;
mod monitoring;
mod operations;
mod process;
mod records;
mod reference;
mod rights;
mod serve;
mod strangers;
mod tls;
mod tree;
