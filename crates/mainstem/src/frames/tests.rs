//! Lending, the bound, and use again.

use super::*;

#[test]
fn memory_comes_back_and_the_bound_holds() {
    let pool = FramePool::new(300 << 10);
    let mut first = pool.take(100_000).expect("within the bound");
    let second = pool.take(1).expect("within the bound");
    assert_eq!(pool.used_bytes(), (128 + 32) << 10);
    assert!(pool.take(256 << 10).is_none(), "beyond the bound");
    first.as_mut().fill(7);
    let bytes = first.freeze();
    assert_eq!((bytes.len(), bytes[99_999]), (100_000, 7));
    let address = bytes.as_ptr();
    let slice = bytes.slice(10..20);
    drop((bytes, second));
    assert_eq!(pool.used_bytes(), 128 << 10, "a slice holds the buffer");
    drop(slice);
    assert_eq!(pool.used_bytes(), 0);
    let again = pool.take(70_000).expect("all is back");
    assert_eq!(again.as_ref().as_ptr(), address, "the same memory");
}

#[test]
fn one_frame_larger_than_the_bound_is_granted_alone() {
    let pool = FramePool::new(1 << 20);
    let large = pool.take(40 << 20).expect("nothing else is out");
    assert!(pool.take(1).is_none());
    drop(large);
    assert_eq!(pool.used_bytes(), 0);
}
