//! How often a piece of code asks for memory, on its own thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ASKED: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, with a count per thread.
pub struct Counting;

// SAFETY: every call goes to the system's allocator as it came; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that is going away allocates without being counted.
        let _ = ASKED.try_with(|asked| asked.set(asked.get() + 1));
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// What `work` gives, and how often it allocated.
pub fn count<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = ASKED.with(Cell::get);
    let value = work();
    (value, ASKED.with(Cell::get) - before)
}

#[test]
fn allocations_are_counted() {
    let (held, asked) = count(|| vec![1u8; 1000]);
    assert_eq!((held.len(), asked), (1000, 1));
}
