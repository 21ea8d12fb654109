//! Blocks: aligned memory in which chunks are built, written from and served from. One pool per journal,
//! shared by the writer (which fills), the tail cache and readers (which hold). Memory comes in steps
//! of 16 MiB on first use and goes back to the pool, not to the system. The first touch of a huge page can
//! take milliseconds on a virtual machine, so the keeper touches the next ones before the writer does.

use std::alloc::{Layout, alloc, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::disk::SECTOR;

/// Length of a block; a chunk larger than this gets a block of its own.
pub const BLOCK_BYTES: usize = 1 << 20;
const STEP_BLOCKS: usize = 16;
/// Steps begin on a huge page, so that they can consist of them.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Blocks that nobody holds.
#[derive(Default)]
struct Free {
    touched: Vec<NonNull<u8>>,
    untouched: Vec<NonNull<u8>>,
}

/// Memory for the blocks of a journal.
pub struct BlockPool {
    free: Mutex<Free>,
    slabs: Mutex<Vec<NonNull<u8>>>,
    allocated_bytes: AtomicUsize,
    used_bytes: AtomicUsize,
    max_bytes: usize,
}

// SAFETY: the pointers name memory that the pool owns and hands out to one owner at a time.
unsafe impl Send for BlockPool {}
// SAFETY: as above; the lists are behind mutexes.
unsafe impl Sync for BlockPool {}

fn slab_layout() -> Layout {
    Layout::from_size_align(BLOCK_BYTES * STEP_BLOCKS, HUGE_PAGE_BYTES).expect("a constant, valid layout")
}

fn single_layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, SECTOR).expect("length checked by the caller")
}

impl BlockPool {
    /// A pool that holds at most `max_bytes` (at least one step) and nothing at first.
    pub fn new(max_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            free: Mutex::default(),
            slabs: Mutex::new(Vec::new()),
            allocated_bytes: AtomicUsize::new(0),
            used_bytes: AtomicUsize::new(0),
            max_bytes: max_bytes.max(BLOCK_BYTES * STEP_BLOCKS),
        })
    }

    /// Bytes taken from the system.
    pub fn allocated_bytes(&self) -> usize {
        self.allocated_bytes.load(Ordering::Relaxed)
    }

    /// Bytes in blocks that somebody holds.
    pub fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// A block of at least `bytes`; `None` when the pool is at its limit and every block is held. For more than [`BLOCK_BYTES`] the caller has asked
    /// [`BlockPool::may_take_single`]: what others have taken since, to touch it, does not count.
    pub fn take(self: &Arc<Self>, bytes: usize) -> Option<Block> {
        if bytes > BLOCK_BYTES {
            return self.take_single(bytes.div_ceil(SECTOR) * SECTOR);
        }
        let memory = self.free.lock().pop();
        let memory = match memory {
            Some(memory) => memory,
            None => {
                self.grow()?;
                self.free.lock().pop()?
            }
        };
        Some(self.block(memory))
    }

    fn block(self: &Arc<Self>, memory: NonNull<u8>) -> Block {
        self.used_bytes.fetch_add(BLOCK_BYTES, Ordering::Relaxed);
        Block { memory, bytes: BLOCK_BYTES, pooled: true, pool: Arc::clone(self) }
    }

    /// Will the next block be the first to touch its memory?
    pub fn wants_touching(&self) -> bool {
        self.free.lock().touched.is_empty() && self.used_bytes() < self.max_bytes
    }

    /// Touches the memory of the next block, when it never was.
    pub fn touch_next(self: &Arc<Self>) {
        if !self.wants_touching() {
            return;
        }
        let untouched = self.free.lock().untouched.pop();
        let memory = untouched.or_else(|| {
            self.grow()?;
            self.free.lock().untouched.pop()
        });
        if let Some(memory) = memory {
            let block = self.block(memory);
            // SAFETY: the block was just taken and nothing of it is shared.
            let memory = unsafe { block.range_mut(0, BLOCK_BYTES) };
            memory.chunks_mut(SECTOR).for_each(|page| page[0] = 0);
        }
    }

    /// Is there memory for a block of any size?
    pub fn may_take_single(&self) -> bool {
        self.used_bytes() <= self.max_bytes
    }

    /// Oversized blocks go back to the system when dropped; they may exceed the limit by one of them.
    fn take_single(self: &Arc<Self>, bytes: usize) -> Option<Block> {
        // SAFETY: the layout has a non-zero size.
        let memory = NonNull::new(unsafe { alloc(single_layout(bytes)) })?;
        self.allocated_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.used_bytes.fetch_add(bytes, Ordering::Relaxed);
        Some(Block { memory, bytes, pooled: false, pool: Arc::clone(self) })
    }

    fn grow(&self) -> Option<()> {
        let step = BLOCK_BYTES * STEP_BLOCKS;
        let mut slabs = self.slabs.lock();
        if (slabs.len() + 1) * step > self.max_bytes {
            return None;
        }
        // SAFETY: the layout has a non-zero size.
        let slab = NonNull::new(unsafe { alloc(slab_layout()) })?;
        // SAFETY: advice about memory that was just allocated and is page-aligned; failure changes nothing.
        unsafe { libc::madvise(slab.as_ptr().cast(), step, libc::MADV_HUGEPAGE) };
        slabs.push(slab);
        self.allocated_bytes.fetch_add(step, Ordering::Relaxed);
        let mut free = self.free.lock();
        for number in (0..STEP_BLOCKS).rev() {
            // SAFETY: inside the slab.
            free.untouched.push(unsafe { slab.add(number * BLOCK_BYTES) });
        }
        Some(())
    }
}

impl Free {
    fn pop(&mut self) -> Option<NonNull<u8>> {
        self.touched.pop().or_else(|| self.untouched.pop())
    }
}

impl Drop for BlockPool {
    fn drop(&mut self) {
        for slab in self.slabs.lock().drain(..) {
            // SAFETY: allocated with this layout; every block holds the pool, so none is out.
            unsafe { dealloc(slab.as_ptr(), slab_layout()) };
        }
    }
}

/// Aligned memory. The writer fills disjoint ranges of it one after the other; a range that has been
/// filled and shared as [`Bytes`] is never written again.
pub struct Block {
    memory: NonNull<u8>,
    bytes: usize,
    pooled: bool,
    pool: Arc<BlockPool>,
}

// SAFETY: a block is plain memory; ranges are written by one thread before they are shared.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Never true; for the lint's sake.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The range as memory to fill.
    ///
    /// # Safety
    /// No other reference to any byte of the range may exist: the caller is the only one who fills this
    /// block, and has not shared the range yet.
    #[expect(clippy::mut_from_ref, reason = "disjoint ranges of one block are filled while others are read")]
    pub unsafe fn range_mut(&self, start: usize, bytes: usize) -> &mut [u8] {
        assert!(start + bytes <= self.bytes, "range inside the block");
        // SAFETY: in bounds; exclusive by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr().add(start), bytes) }
    }

    /// Shares a filled range. It must not be written afterwards.
    pub fn share(self: &Arc<Self>, start: usize, bytes: usize) -> Bytes {
        assert!(start + bytes <= self.bytes, "range inside the block");
        Bytes::from_owner(Shared { block: Arc::clone(self), start, bytes })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.pool.used_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        if self.pooled {
            self.pool.free.lock().touched.push(self.memory);
        } else {
            self.pool.allocated_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
            // SAFETY: allocated with this layout in `take_single`.
            unsafe { dealloc(self.memory.as_ptr(), single_layout(self.bytes)) };
        }
    }
}

struct Shared {
    block: Arc<Block>,
    start: usize,
    bytes: usize,
}

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: in bounds (checked in `share`), and never written again.
        unsafe { std::slice::from_raw_parts(self.block.memory.as_ptr().add(self.start), self.bytes) }
    }
}

/// Aligned zeroes, shared by everybody who writes them.
pub(crate) fn zeroes(bytes: usize) -> Bytes {
    static ZEROES: std::sync::OnceLock<Bytes> = std::sync::OnceLock::new();
    let block = ZEROES.get_or_init(|| {
        let pool = BlockPool::new(0);
        let block = pool.take_single(BLOCK_BYTES * 2).expect("memory for two blocks");
        // SAFETY: the block was just taken and nothing of it is shared.
        unsafe { block.range_mut(0, BLOCK_BYTES * 2) }.fill(0);
        Arc::new(block).share(0, BLOCK_BYTES * 2)
    });
    block.slice(..bytes)
}
