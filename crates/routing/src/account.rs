//! Memory of what is declared: exchanges, bindings, and arguments, which may be 128 KiB each; likewise of policies, and of what connections remember of access
//! control entries. Many tables share an account. What a table holds is counted, whatever the bound: the caller asks before it makes something new, and does not
//! ask when it restores.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Bytes that definitions take, about.
#[derive(Debug)]
pub struct DefinitionMemory {
    bytes: AtomicUsize,
    bytes_max: AtomicUsize,
    refused: AtomicU64,
}

impl Default for DefinitionMemory {
    fn default() -> Self {
        Self { bytes: AtomicUsize::new(0), bytes_max: AtomicUsize::new(usize::MAX), refused: AtomicU64::new(0) }
    }
}

impl DefinitionMemory {
    /// Bytes that they may take.
    pub fn set_bytes_max(&self, bytes: usize) {
        self.bytes_max.store(bytes, Ordering::Relaxed);
    }

    /// Bytes that they take.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// How often something was refused.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Do they take more than they may?
    pub fn is_over(&self) -> bool {
        self.bytes() > self.bytes_max.load(Ordering::Relaxed)
    }

    /// May something be made that takes so many bytes? A refusal is counted.
    pub fn admits(&self, bytes: usize) -> bool {
        let admits = self.bytes().saturating_add(bytes) <= self.bytes_max.load(Ordering::Relaxed);
        self.refused.fetch_add(u64::from(!admits), Ordering::Relaxed);
        admits
    }
}

/// What one holder takes of an account, until it goes.
#[derive(Debug, Default)]
pub struct Counted {
    account: Arc<DefinitionMemory>,
    bytes: usize,
}

impl Counted {
    /// So many bytes.
    pub fn new(account: Arc<DefinitionMemory>, bytes: usize) -> Self {
        let mut counted = Self { account, bytes: 0 };
        counted.add(bytes);
        counted
    }

    /// The account.
    pub fn account(&self) -> &Arc<DefinitionMemory> {
        &self.account
    }

    /// What this holder takes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// So many bytes more.
    pub fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.account.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many bytes less.
    pub fn sub(&mut self, bytes: usize) {
        self.bytes -= bytes;
        self.account.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.account.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
