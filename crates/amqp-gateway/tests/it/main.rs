//! Sessions without sockets: bytes in, frames out, with the time and the arrival of events in the tests' hands.

mod channels;
mod confirms;
mod consuming;
mod counts;
mod deletions;
mod full_disk;
mod garbage;
mod gets;
mod handshake;
mod letters;
mod limits;
mod methods;
mod node;
mod policies;
mod pressure;
mod quotas;
mod security;
mod streams;
mod topology;
mod transactions;
mod unfinished;
mod unsettled;
mod vouched;
mod written;
