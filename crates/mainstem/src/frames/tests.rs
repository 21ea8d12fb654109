//! Lending, the bound, and use again.

use super::*;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// So many bytes come.
fn come(frame: &mut Frame, bytes: usize) {
    let mut left = bytes;
    while left > 0 {
        left -= frame.fill(|memory, room| {
            let now = left.min(room);
            memory.extend(std::iter::repeat_n(7, now));
            Ok(now)
        }).expect("nothing fails");
    }
}

fn whole(pool: &Arc<FramePool>, of: &Arc<AddressUse>, bytes: usize) -> Bytes {
    let mut frame = pool.begin(bytes, of);
    assert!(frame.may_read());
    come(&mut frame, bytes);
    frame.freeze()
}

#[test]
fn memory_comes_back_and_is_used_again() {
    let (pool, of) = (FramePool::new(16 * MIB), Arc::default());
    let mut frame = pool.begin(MIB, &of);
    assert_eq!(pool.used_bytes(), 0, "a length takes nothing");
    frame.take(&mut BytesMut::from(&[1, 2, 3][..]));
    come(&mut frame, MIB - 3);
    assert_eq!((frame.missing(), pool.used_bytes()), (0, MIB));
    let bytes = frame.freeze();
    assert_eq!((bytes.len(), &bytes[..5]), (MIB, &[1, 2, 3, 7, 7][..]));
    let address = bytes.as_ptr();
    let slice = bytes.slice(10..20);
    drop(bytes);
    assert_eq!(pool.used_bytes(), MIB, "a slice holds the buffer");
    drop(slice);
    assert_eq!((pool.used_bytes(), pool.kept.load(Ordering::Relaxed)), (0, MIB));
    let again = whole(&pool, &of, 600 * KIB);
    assert_eq!((again.as_ptr(), pool.kept.load(Ordering::Relaxed)), (address, 0), "the same memory");
}

#[test]
fn small_requests_count() {
    let (pool, of) = (FramePool::new(MIB), Arc::default());
    let mut held = Held::new(&pool);
    held.set(MIB);
    assert!(!pool.is_scarce());
    held.set(MIB + 1);
    assert!(pool.is_scarce() && pool.begin(MIB, &of).may_read(), "one can be finished");
    drop(held);
    assert_eq!((pool.used_bytes(), pool.is_scarce()), (0, false));
}

#[test]
fn what_comes_behind_a_request_is_left() {
    let (pool, of) = (FramePool::new(16 * MIB), Arc::default());
    let mut frame = pool.begin(40 * KIB, &of);
    let mut buffer = BytesMut::from(&[1; 50 * KIB][..]);
    frame.take(&mut buffer);
    assert_eq!((frame.missing(), buffer.len()), (0, 10 * KIB));
}

#[test]
fn long_requests_grow_with_what_comes() {
    let (pool, of) = (FramePool::new(256 * MIB), Arc::default());
    let mut frame = pool.begin(60 * MIB, &of);
    assert_eq!(frame.memory.capacity(), FIRST_BYTES);
    come(&mut frame, FIRST_BYTES);
    assert_eq!(frame.memory.capacity(), FIRST_BYTES);
    come(&mut frame, 1);
    assert_eq!(frame.memory.capacity(), FIRST_BYTES * GROWTH);
    come(&mut frame, 60 * MIB - FIRST_BYTES - 1);
    assert_eq!((frame.missing(), frame.memory.capacity()), (0, 64 * MIB));
    assert!(frame.freeze().iter().all(|byte| *byte == 7));
}

#[test]
fn beyond_half_what_can_be_finished_is_read() {
    let (pool, of) = (FramePool::new(4 * MIB), Arc::default());
    let (mut first, mut second) = (pool.begin(2 * MIB, &of), pool.begin(2 * MIB, &of));
    let mut third = pool.begin(2 * MIB, &of);
    assert!(first.may_read() && second.may_read() && third.may_read());
    come(&mut first, MIB);
    come(&mut second, MIB);
    come(&mut third, KIB);
    assert!(first.may_read(), "a megabyte is missing of it, and there");
    assert_eq!(pool.used_bytes(), 3 * MIB + KIB);
    assert!(!second.may_read() && !third.may_read() && pool.is_scarce());
    come(&mut first, MIB - 1);
    assert!(!second.may_read());
    // The first does not go on: what it has is kept, what is missing is the others'.
    first.lapse();
    assert!(second.may_read());
    come(&mut second, MIB);
    assert!(!first.may_read(), "all is taken");
    drop(second.freeze());
    assert!(first.may_read() && third.may_read());
    drop((first, third));
    assert_eq!((pool.used_bytes(), pool.able.load(Ordering::Relaxed), pool.is_scarce()), (0, 0, false));
    assert_eq!((of.granted.load(Ordering::Relaxed), of.waiting.load(Ordering::Relaxed)), (0, 0));
}

#[test]
fn one_request_goes_beyond_the_bound_when_none_would_end_otherwise() {
    let (pool, of) = (FramePool::new(MIB), Arc::default());
    let mut stuck: Vec<Frame> = (0..4).map(|_| pool.begin(512 * KIB, &of)).collect();
    stuck.iter_mut().for_each(|frame| come(frame, 300 * KIB));
    assert!(stuck[0].may_read() && !stuck[1].may_read());
    let mut large = pool.begin(40 * MIB, &of);
    assert!(!large.may_read());
    let mut first = stuck.remove(0);
    come(&mut first, 212 * KIB);
    assert!(!stuck[0].may_read() && !large.may_read(), "it is whole, and will go by itself");
    drop(first.freeze());
    assert!(large.may_read());
    come(&mut large, 40 * MIB);
    drop((large.freeze(), stuck));
    assert_eq!((pool.used_bytes(), pool.able.load(Ordering::Relaxed)), (0, 0));
}

#[test]
fn an_address_leaves_room_for_those_that_wait() {
    let (pool, many, other) = (FramePool::new(8 * MIB), Arc::default(), Arc::default());
    let mut free = pool.begin(5 * MIB, &many);
    come(&mut free, 4 * MIB);
    let mut granted = pool.begin(2 * MIB, &many);
    assert!(granted.may_read());
    let mut more = pool.begin(MIB, &many);
    assert!(more.may_read(), "nobody else waits");
    more.lapse();
    let mut large = pool.begin(3 * MIB, &other);
    assert!(!large.may_read());
    assert!(!more.may_read(), "a quarter is granted to this address already");
    drop(granted);
    assert!(large.may_read());
    assert!(more.may_read(), "now nobody waits");
}

#[test]
fn free_buffers_are_bounded_and_every_size_has_some() {
    let (pool, of) = (FramePool::new(16 * MIB), Arc::default());
    let kept = || pool.kept.load(Ordering::Relaxed);
    for kib in [40, 100, 200, 500, 1000, 1500] {
        drop((0..50).map(|_| pool.begin(kib * KIB, &of)).collect::<Vec<_>>());
        assert!(kept() <= 8 * MIB, "{kib} KiB: {}", kept());
    }
    drop(whole(&pool, &of, 9 * MIB));
    let large = pool.begin(1500 * KIB, &of);
    assert!(large.kept > 0, "one was kept");
    let listed: usize = pool.free.iter().map(|free| free.lock().expect("no panic").iter().map(Vec::capacity).sum::<usize>()).sum();
    assert_eq!(kept(), listed + large.kept);
}
