//! Tests of the binary as a process, and of the tree as a whole.

mod administration;
mod monitoring;
mod process;
mod records;
mod reference;
mod serve;
mod tree;
