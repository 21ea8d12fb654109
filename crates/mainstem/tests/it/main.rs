//! Tests of the binary as a process, and of the tree as a whole.

mod process;
mod serve;
mod tree;
