//! A table that network threads share.
//!
//! One lock around a table that changes in place: a thread takes it once for all messages that it has read from its socket, not
//! per message, and a change takes it for about a microsecond. Copies that are swapped would spare readers the lock, but each change
//! would copy the path to what it changes in every index, and each reader would have to pick up the new copy.
//! `examples/routes.rs` measures what threads that route lose to one that binds without a pause.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::account::DefinitionMemory;
use crate::table::Table;

/// A [`Table`] behind a lock.
#[derive(Debug, Default)]
pub struct Exchanges(RwLock<Table>);

/// The right to route, and to look at the table, for as long as it is held. Held for a batch of messages, not over waiting.
#[derive(Debug)]
pub struct Routes<'a>(RwLockReadGuard<'a, Table>);

/// The right to change the table. Several changes under one of them are seen together.
#[derive(Debug)]
pub struct Changes<'a>(RwLockWriteGuard<'a, Table>);

impl Exchanges {
    /// A table with the predeclared exchanges.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same, whose exchanges and bindings are counted there.
    pub fn counted(account: Arc<DefinitionMemory>) -> Self {
        Self(RwLock::new(Table::counted(account)))
    }

    /// Waits for a change under way.
    pub fn read(&self) -> Routes<'_> {
        Routes(self.0.read())
    }

    /// Waits for threads that route, and for other changes.
    pub fn write(&self) -> Changes<'_> {
        Changes(self.0.write())
    }
}

impl Deref for Routes<'_> {
    type Target = Table;

    fn deref(&self) -> &Table {
        &self.0
    }
}

impl Deref for Changes<'_> {
    type Target = Table;

    fn deref(&self) -> &Table {
        &self.0
    }
}

impl DerefMut for Changes<'_> {
    fn deref_mut(&mut self) -> &mut Table {
        &mut self.0
    }
}
