//! The journal as its users see it, on the real file system, with its threads running.

mod archive;
mod compaction;
mod damage;
mod damages;
mod drops;
mod ends;
mod expiry;
mod faults;
mod headers;
mod history;
mod io_modes;
mod lost_pages;
mod memory;
mod node;
mod objects;
mod pinning;
mod races;
mod repair;
mod retention;
mod seams;
mod shared;
mod small_windows;
mod space;
mod starts;
mod transactions;
mod window;
