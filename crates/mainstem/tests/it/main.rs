//! Tests of the binary as a process, and of the tree as a whole.

mod administration;
mod monitoring;
mod process;
mod records;
mod serve;
mod tree;
