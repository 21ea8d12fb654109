//! How much memory a piece of code asks for at most, on its own thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, with a count per thread.
pub struct Counting;

fn count(bytes: isize) {
    // A thread that is going away allocates without being counted.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(held.get())));
    });
}

// SAFETY: every call goes to the system's allocator as it came; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // As if the old and the new block were held at once, which is the worst that the system does.
        count(size.cast_signed());
        count(-layout.size().cast_signed());
        // SAFETY: as the caller promises.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// The most bytes that `work` held at once beyond what was there before.
pub fn peak<T>(work: impl FnOnce() -> T) -> (T, usize) {
    HELD.with(|held| held.set(0));
    PEAK.with(|peak| peak.set(0));
    let value = work();
    (value, PEAK.with(Cell::get).cast_unsigned())
}

/// How many bytes of what `work` asked for it has not given back.
pub fn kept<T>(work: impl FnOnce() -> T) -> (T, isize) {
    HELD.with(|held| held.set(0));
    let value = work();
    (value, HELD.with(Cell::get))
}

#[test]
fn memory_is_counted() {
    let (held, bytes) = peak(|| {
        drop(vec![1u8; 5000]);
        vec![1u8; 1000]
    });
    assert_eq!((held.len(), bytes), (1000, 5000));
}
