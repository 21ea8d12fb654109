//! Chunks that were replayed and of which nothing says that they are on the disk. When reads come from the page cache that has to be
//! brought about: after a flush that failed, Linux keeps the pages as clean, so that a restart finds them, and a flush that succeeds
//! later leaves them out. They are written again before the flush with which a journal opens.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use types::LogIndex;

use crate::chunk::ChunkHeader;
use crate::disk::{File, Storage};

/// Bytes that are written again at once, at most.
const PIECE_BYTES: u64 = 4 << 20;

/// A chunk, where it is read from.
struct Place {
    index: LogIndex,
    file: Arc<dyn File>,
    position: u64,
    bytes: u64,
}

/// By index.
#[derive(Default)]
pub(super) struct Unproven(VecDeque<Place>);

impl Unproven {
    /// Adds a chunk. Its header says how far the journal was durable before it was written.
    pub fn add(&mut self, header: &ChunkHeader, file: &Arc<dyn File>, position: u64) {
        while self.0.front().is_some_and(|place| place.index <= header.durable_index) {
            self.0.pop_front();
        }
        self.0.push_back(Place {
            index: header.index,
            file: Arc::clone(file),
            position,
            bytes: u64::from(header.chunk_bytes),
        });
    }

    /// Writes them again as they are read. The caller flushes.
    pub fn write_again(mut self, storage: &dyn Storage) -> io::Result<()> {
        if !storage.reads_from_cache() {
            return Ok(());
        }
        while let Some(Place { file, position, bytes, .. }) = self.0.pop_front() {
            let mut end = position + bytes;
            while let Some(next) = self.0.pop_front_if(|next| Arc::ptr_eq(&next.file, &file) && next.position == end) {
                end += next.bytes;
            }
            for from in (position..end).step_by(PIECE_BYTES as usize) {
                let mut piece = vec![0; PIECE_BYTES.min(end - from) as usize];
                if file.read_at(from, &mut piece)? < piece.len() {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                file.write_at(from, &piece)?;
            }
        }
        Ok(())
    }
}
