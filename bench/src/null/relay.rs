//! Messages that a null broker hands on: from the connection on which they came straight to that of a consumer, in the same thread, kept
//! nowhere. A generator that publishes and consumes meets only its own limits.
//!
//! A consumer gets what is published to its queue through the default exchange; several take turns. Beyond a consumer's prefetch the
//! publishing connection waits, so that what is confirmed has been handed on. Lock order: a connection's writer, then an outlet's tags.

use std::collections::HashMap;
use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use anyhow::Result;

/// The writing half of a connection that consumes.
pub type Writer = Arc<Mutex<TcpStream>>;

/// The consumers of all queues of one null broker.
#[derive(Debug, Default)]
pub struct Relay {
    outlets: Mutex<HashMap<Vec<u8>, Vec<Arc<Outlet>>>>,
    /// Grows when consumers come or go.
    version: AtomicU64,
}

/// One consumer.
#[derive(Debug)]
pub struct Outlet {
    pub channel: u16,
    pub consumer_tag: Vec<u8>,
    /// Unacknowledged messages, at most; 0 is no bound.
    prefetch: u64,
    writer: Writer,
    tags: Mutex<Tags>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Tags {
    sent: u64,
    /// All up to this one are acknowledged.
    floor: u64,
    /// And so many above it.
    singles: u64,
    ended: bool,
}

/// Deliveries on their way to one consumer.
#[derive(Debug)]
pub struct Batch {
    pub outlet: Arc<Outlet>,
    pub bytes: Vec<u8>,
    /// Where delivery tags are to be written.
    pub tags_at: Vec<usize>,
    /// Bytes up to the end of the last whole message.
    pub whole: usize,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Relay {
    /// The number of the present state.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The consumers of a queue.
    pub fn of(&self, queue: &[u8]) -> Vec<Arc<Outlet>> {
        locked(&self.outlets).get(queue).cloned().unwrap_or_default()
    }

    /// A consumer has come.
    pub fn add(&self, queue: &[u8], outlet: Arc<Outlet>) {
        locked(&self.outlets).entry(queue.to_owned()).or_default().push(outlet);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Consumers have gone.
    pub fn remove(&self, gone: &[Arc<Outlet>]) {
        for outlet in gone {
            locked(&outlet.tags).ended = true;
            outlet.changed.notify_all();
        }
        let mut outlets = locked(&self.outlets);
        outlets.values_mut().for_each(|all| all.retain(|one| !gone.iter().any(|other| Arc::ptr_eq(one, other))));
        outlets.retain(|_, all| !all.is_empty());
        drop(outlets);
        self.version.fetch_add(1, Ordering::Release);
    }
}

impl Outlet {
    /// Where deliveries to a consumer go.
    pub fn new(channel: u16, consumer_tag: Vec<u8>, prefetch: u64, writer: Writer) -> Self {
        Self { channel, consumer_tag, prefetch, writer, tags: Mutex::default(), changed: Condvar::new() }
    }

    /// The client has acknowledged one message, or all up to it.
    pub fn acknowledge(&self, tag: u64, multiple: bool) {
        let mut tags = locked(&self.tags);
        if multiple {
            tags.floor = tags.floor.max(if tag == 0 { tags.sent } else { tag });
            tags.singles = 0;
        } else {
            tags.singles += 1;
        }
        drop(tags);
        self.changed.notify_all();
    }
}

impl Tags {
    fn unacknowledged(&self) -> u64 {
        self.sent.saturating_sub(self.floor + self.singles)
    }
}

impl Batch {
    /// Nothing yet.
    pub fn new(outlet: Arc<Outlet>) -> Self {
        Self { outlet, bytes: Vec::new(), tags_at: Vec::new(), whole: 0 }
    }

    /// Takes off the message that is not whole yet, if there is one: nothing may come between its frames.
    pub fn split(&mut self) -> Option<Self> {
        let bytes = self.bytes.split_off(self.whole);
        let tags_at: Vec<usize> =
            self.tags_at.iter().filter(|at| **at >= self.whole).map(|at| at - self.whole).collect();
        self.tags_at.retain(|at| *at < self.whole);
        (!bytes.is_empty()).then(|| Self { outlet: Arc::clone(&self.outlet), bytes, tags_at, whole: 0 })
    }

    /// Sends it as soon as the consumer takes more; dropped if it has gone.
    ///
    /// # Errors
    /// Those of the consumer's socket.
    pub fn send(mut self) -> Result<()> {
        let outlet = Arc::clone(&self.outlet);
        let mut tags = locked(&outlet.tags);
        while !tags.ended && outlet.prefetch > 0 && tags.unacknowledged() >= outlet.prefetch {
            tags = outlet.changed.wait(tags).unwrap_or_else(PoisonError::into_inner);
        }
        if tags.ended {
            return Ok(());
        }
        // Whoever waits for credit holds up nobody else who writes here; several publishers may pass the bound by a batch each.
        drop(tags);
        let mut writer = locked(&outlet.writer);
        let mut tags = locked(&outlet.tags);
        for at in &self.tags_at {
            tags.sent += 1;
            self.bytes[*at..*at + 8].copy_from_slice(&tags.sent.to_be_bytes());
        }
        drop(tags);
        Ok(writer.write_all(&self.bytes)?)
    }
}
