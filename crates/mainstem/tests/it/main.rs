//! Tests of the binary as a process, and of the tree as a whole.

mod administration;
mod backups;
mod certificates;
mod client;
mod commands;
mod damages;
mod definitions;
mod fairness;
mod hang_ups;
mod kills;
mod long_requests;
mod memory;
mod monitoring;
mod openapi;
mod operations;
mod process;
mod records;
mod reference;
mod rights;
mod serve;
mod service;
mod slow_clients;
mod strangers;
mod tls;
mod tree;
mod unpacking;
