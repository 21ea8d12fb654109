//! What an operator may order of the node itself, not of what it serves. The process does it; `api/operations.rs` takes the orders.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use serde_json::Value;

/// What the process does when it is told to.
pub trait Operations: Send + Sync {
    /// Begins to end.
    fn drain(&self);
    /// Begins a backup to a folder of this machine.
    ///
    /// # Errors
    /// Why not, in words.
    fn backup(&self, to: &Path) -> Result<(), String>;
    /// Reads configuration and certificates again; what came of it, as JSON.
    ///
    /// # Errors
    /// What is wrong, with file and line; nothing has changed then.
    fn reload(&self) -> Result<Value, String>;
    /// How far the last backup is, as JSON.
    fn backup_progress(&self) -> Value;
}

/// Who carries orders out, once there is somebody.
#[derive(Clone, Default)]
pub struct Operator(Arc<OnceLock<Arc<dyn Operations>>>);

impl Operator {
    /// There is a node: orders are carried out from now on.
    pub fn attach(&self, operations: Arc<dyn Operations>) {
        let _ = self.0.set(operations);
    }

    /// The node.
    pub(crate) fn get(&self) -> Option<&Arc<dyn Operations>> {
        self.0.get()
    }
}
