//! The broker as gateways use it, on journals of the real file system, with its threads running, through restarts.

mod deletions;
mod done;
mod gets;
mod log_ends;
mod names;
mod node;
mod rehearsal;
