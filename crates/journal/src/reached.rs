//! How far the journal had come: the newest chunk that was durable when a start had recovered it, or when it ended. What a crash tears lies behind
//! that; where a journal ends before, something is gone.
//!
//! ```text
//! 0 u32 magic "MSRE"   4 u16 version (1)   8 [16] journal UUID   24 u64 index   4092 u32 CRC-32C of bytes 0..4092
//! ```
//!
//! One sector, written in place and flushed. A torn one says nothing, as one that is not there.

use std::io;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use types::LogIndex;
use uuid::Uuid;

use crate::chunk::crc32c;
use crate::disk::{SECTOR, Storage};

/// File name.
pub(crate) const NAME: &str = "reached";

const MAGIC: u32 = u32::from_le_bytes(*b"MSRE");
const VERSION: u16 = 1;
const CRC_AT: usize = SECTOR - 4;

/// Chunks up to here are on stable storage.
pub(crate) fn write(storage: &dyn Storage, journal: Uuid, index: LogIndex) -> io::Result<()> {
    let mut sector = vec![0; SECTOR];
    sector[0..4].copy_from_slice(&MAGIC.to_le_bytes());
    sector[4..6].copy_from_slice(&VERSION.to_le_bytes());
    sector[8..24].copy_from_slice(journal.as_bytes());
    sector[24..32].copy_from_slice(&index.0.to_le_bytes());
    let crc = crc32c(&sector[..CRC_AT]);
    sector[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
    let is_new = !storage.list()?.iter().any(|name| name == NAME);
    let file = if is_new { storage.create(NAME, SECTOR as u64)? } else { storage.open(NAME)? };
    file.write_at(0, &sector)?;
    file.sync()?;
    if is_new { storage.sync_folder() } else { Ok(()) }
}

/// How far `journal` had come at least; 0 when nobody knows.
pub(crate) fn read(storage: &dyn Storage, journal: Uuid) -> LogIndex {
    let mut sector = vec![0; SECTOR];
    let Ok(got) = storage.open(NAME).and_then(|file| file.read_at(0, &mut sector)) else { return LogIndex(0) };
    let is_whole = got == SECTOR
        && sector[0..4] == MAGIC.to_le_bytes()
        && crc32c(&sector[..CRC_AT]).to_le_bytes() == sector[CRC_AT..];
    if !is_whole || sector[4..6] != VERSION.to_le_bytes() || sector[8..24] != *journal.as_bytes() {
        return LogIndex(0);
    }
    let mut index = [0; 8];
    index.copy_from_slice(&sector[24..32]);
    LogIndex(u64::from_le_bytes(index))
}

/// Has the writer ended? At a shutdown the keeper waits for that, and writes how far the journal has come.
#[derive(Default)]
pub(crate) struct WriterEnded(Mutex<bool>, Condvar);

impl WriterEnded {
    pub fn note(&self) {
        *self.0.lock() = true;
        self.1.notify_all();
    }

    /// False when it takes longer than `patience`.
    pub fn wait(&self, patience: Duration) -> bool {
        let mut ended = self.0.lock();
        !self.1.wait_while_for(&mut ended, |ended| !*ended, patience).timed_out()
    }
}
