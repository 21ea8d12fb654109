//! Tests of the binary as a process, and of the tree as a whole.

mod operations;
mod process;
mod serve;
mod tree;
