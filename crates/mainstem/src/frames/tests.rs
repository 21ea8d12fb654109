//! Lending, the bound, and use again.

use kafka_gateway::RequestRoom;

use super::*;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// So many bytes come.
fn come(frame: &mut Frame, bytes: usize) {
    let mut left = bytes;
    while left > 0 {
        left -= frame
            .fill(|memory, room| {
                let now = left.min(room);
                memory.extend(std::iter::repeat_n(7, now));
                Ok(now)
            })
            .expect("nothing fails");
    }
}

fn may_read(frame: &mut Frame) -> bool {
    frame.may_read(&Arc::default())
}

fn whole(pool: &Arc<FramePool>, of: &Arc<AddressUse>, bytes: usize) -> Bytes {
    let mut frame = pool.begin(bytes, of);
    assert!(may_read(&mut frame));
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
    let mut held = Held::new(&pool, &of);
    held.set(MIB);
    assert!(!pool.is_scarce());
    held.set(MIB + 1);
    assert!(pool.is_scarce() && may_read(&mut pool.begin(MIB, &of)), "one can be finished");
    drop(held);
    assert_eq!((pool.used_bytes(), of.used.load(Ordering::Relaxed), pool.is_scarce()), (0, 0, false));
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

/// Nothing is counted any longer.
fn is_empty(pool: &FramePool, of: &AddressUse) -> bool {
    let line = pool.line.lock();
    let counters = [&pool.waiting, &of.used, &of.waiting].map(|counter| counter.load(Ordering::Relaxed));
    (pool.used_bytes(), counters, line.is_at_rest()) == (0, [0; 3], true)
}

/// One request is beyond the bound.
fn go_beyond(pool: &Arc<FramePool>, of: &Arc<AddressUse>) -> Frame {
    let mut frame = pool.begin(1000 * MIB, of);
    assert!(may_read(&mut frame));
    assert_eq!(frame.grant, Some(Grant::Beyond));
    frame
}

#[test]
fn beyond_half_what_can_be_finished_is_read() {
    let (pool, of) = (FramePool::new(16 * MIB), Arc::default());
    let (mut first, mut second, mut third) =
        (pool.begin(5 * MIB, &of), pool.begin(5 * MIB, &of), pool.begin(5 * MIB, &of));
    assert!(may_read(&mut first) && may_read(&mut second) && may_read(&mut third));
    come(&mut first, 4 * MIB);
    come(&mut second, 4 * MIB);
    come(&mut third, KIB);
    let beyond = go_beyond(&pool, &of);
    assert!(may_read(&mut first), "a megabyte is missing of it, and there");
    assert_eq!(pool.used_bytes(), 9 * MIB + KIB);
    assert!(!may_read(&mut third) && pool.is_scarce());
    assert!(may_read(&mut second), "less is missing of it");
    // The first does not go on: what it has is kept, what is missing is the others'.
    first.lapse();
    assert!(!may_read(&mut third));
    come(&mut second, MIB);
    drop(second.freeze());
    assert!(may_read(&mut third), "it was granted when the second was done");
    assert_eq!(third.grant, Some(Grant::Reserved));
    drop((first, third, beyond));
    assert!(is_empty(&pool, &of));
}

#[test]
fn one_request_goes_beyond_the_bound_when_nothing_fits() {
    let (pool, of) = (FramePool::new(MIB), Arc::default());
    let mut stuck: Vec<Frame> = (0..4).map(|_| pool.begin(512 * KIB, &of)).collect();
    stuck.iter_mut().for_each(|frame| come(frame, 300 * KIB));
    assert!(may_read(&mut stuck[0]) && !may_read(&mut stuck[1]));
    let mut large = pool.begin(40 * MIB, &of);
    assert!(!may_read(&mut large));
    let mut first = stuck.remove(0);
    come(&mut first, 212 * KIB);
    assert!(!may_read(&mut stuck[0]) && !may_read(&mut large), "it is whole, and will go by itself");
    drop(first.freeze());
    assert!(may_read(&mut stuck[0]) && !may_read(&mut large), "first come, first served");
    drop(stuck.remove(0));
    assert!(may_read(&mut large));
    come(&mut large, 40 * MIB);
    assert_eq!(pool.used_bytes(), 40 * MIB + 600 * KIB);
    drop((large.freeze(), stuck));
    assert!(is_empty(&pool, &of));
}

#[test]
fn what_is_slow_beyond_the_bound_leaves_others_their_memory() {
    let (pool, slow, other) = (FramePool::new(16 * MIB), Arc::default(), Arc::default());
    let mut large = pool.begin(100 * MIB, &slow);
    come(&mut large, 8 * MIB + 200 * KIB);
    assert!(may_read(&mut large));
    come(&mut large, 50 * MIB);
    for of in [&slow, &other] {
        drop(whole(&pool, of, MIB));
    }
    assert!(!large.is_in_the_way(), "nobody waits");
    let mut second = pool.begin(100 * MIB, &other);
    assert!(!may_read(&mut second) && large.is_in_the_way());
    assert_eq!(large.pace_floor(), 5 * MIB);
    drop(large);
    assert!(may_read(&mut second));
}

#[test]
fn an_address_leaves_room_for_others() {
    let (pool, many, other) = (FramePool::new(16 * MIB), Arc::default(), Arc::default());
    let held = (0..8).map(|_| whole(&pool, &many, MIB)).collect::<Vec<_>>();
    let beyond = go_beyond(&pool, &many);
    let begin = |of| (0..10).map(|_| pool.begin(MIB, of)).collect::<Vec<Frame>>();
    let granted = |frames: &mut [Frame]| frames.iter_mut().filter_map(|frame| may_read(frame).then_some(())).count();
    let mut of_many = begin(&many);
    assert_eq!(granted(&mut of_many), 4, "three quarters of all");
    assert!(of_many[0].is_in_the_way(), "others of its address wait");
    let mut of_other = begin(&other);
    assert_eq!(granted(&mut of_other), 3);
    drop(held);
    let now = (granted(&mut of_many), granted(&mut of_other));
    assert!(now.0 + now.1 == 13 && now.0.abs_diff(now.1) == 1, "what becomes free goes to both in turn: {now:?}");
    drop((beyond, of_many, of_other));
    assert!(is_empty(&pool, &many) && is_empty(&pool, &other));
}

#[test]
fn who_waits_is_woken_in_order_and_may_leave() {
    let (pool, of) = (FramePool::new(4 * MIB), Arc::default());
    let full = whole(&pool, &of, 4 * MIB);
    let beyond = go_beyond(&pool, &of);
    let wakes: Vec<Arc<Notify>> = (0..4).map(|_| Arc::default()).collect();
    let mut waiting: Vec<Frame> = wakes
        .iter()
        .map(|wake| {
            let mut frame = pool.begin(3 * MIB, &of);
            assert!(!frame.may_read(wake));
            frame
        })
        .collect();
    let woken = |number: usize| {
        let mut notified = std::pin::pin!(wakes[number].notified());
        notified.as_mut().enable()
    };
    waiting.remove(0).rest();
    assert!((0..4).all(|number| !woken(number)));
    drop(full);
    assert_eq!([1, 2, 3].map(woken), [true, false, false], "there is room for one");
    // It goes without having looked at what it was granted.
    drop(waiting.remove(0));
    assert_eq!([2, 3].map(woken), [true, false]);
    drop(beyond);
    assert!(woken(3), "beyond the bound");
    drop(waiting);
    assert!(is_empty(&pool, &of));
}

#[test]
fn those_that_have_little_to_send_let_others_go_before() {
    let (pool, of) = (FramePool::new(4 * MIB), Arc::default());
    let full = whole(&pool, &of, 4 * MIB);
    let mut beyond = go_beyond(&pool, &of);
    come(&mut beyond, 1000);
    beyond.note_drained();
    let begin = |bytes| {
        let mut frame = pool.begin(bytes, &of);
        (!may_read(&mut frame)).then_some(frame).expect("it waits")
    };
    let mut stalled: Vec<Frame> = (0..500).map(|_| begin(2 * MIB)).collect();
    let mut last = begin(2 * MIB);
    beyond.note_drained();
    assert_eq!(beyond.grant, Some(Grant::Beyond), "what has come of it would be too much");
    drop(full);
    for frame in &mut stalled {
        assert!(may_read(frame), "its turn comes when the one before has nothing to send");
        come(frame, 100);
        frame.note_drained();
        assert_eq!(frame.grant, None);
    }
    assert!(may_read(&mut last));
    come(&mut last, AT_ONCE);
    let mut next = begin(2 * MIB);
    last.note_drained();
    assert_eq!(last.grant, Some(Grant::Reserved), "it gets on");
    beyond.note_drained();
    assert_eq!(beyond.grant, None);
    assert!(may_read(&mut next));
    drop((beyond, stalled, last, next));
    assert!(is_empty(&pool, &of));
}

#[test]
fn free_buffers_are_bounded_and_every_size_has_some() {
    let (pool, of) = (FramePool::new(16 * MIB), Arc::default());
    let kept = || pool.kept.load(Ordering::Relaxed);
    for kib in [40, 100, 200, 500, 1000, 1500] {
        drop((0..5).map(|_| whole(&pool, &of, kib * KIB)).collect::<Vec<_>>());
        assert!(kept() <= 8 * MIB, "{kib} KiB: {}", kept());
    }
    drop(whole(&pool, &of, 9 * MIB));
    let large = pool.begin(1500 * KIB, &of);
    assert!(large.kept > 0, "one was kept");
    let listed: usize =
        pool.free.iter().map(|free| free.lock().expect("no panic").iter().map(Vec::capacity).sum::<usize>()).sum();
    assert_eq!(kept(), listed + large.kept);
}

fn ask(pool: &Arc<FramePool>, of: &Arc<AddressUse>, bytes: usize) -> RoomRequest {
    RoomRequest::new(pool, of, bytes, None, &Arc::default())
}

#[test]
fn what_requests_are_decoded_to_counts_and_waits_in_line() {
    let (pool, of) = (FramePool::new(16 * MIB), Arc::default());
    let first = ask(&pool, &of, 4 * MIB).take().expect("there is enough");
    assert_eq!((pool.used_bytes(), first.is_wanted()), (4 * MIB, false));
    let mut second = ask(&pool, &of, 8 * MIB);
    let held = second.take().expect("three quarters are for one address");
    assert!(second.take().is_none(), "once");
    let large = ask(&pool, &of, 1000 * MIB).take().expect("one is beyond the bound");
    assert_eq!(pool.used_bytes(), 1012 * MIB);
    let (mut third, mut fourth) = (ask(&pool, &of, 4 * MIB), ask(&pool, &of, 1000 * MIB));
    assert!(third.take().is_none() && fourth.take().is_none() && first.is_wanted());
    assert!(!may_read(&mut pool.begin(6 * MIB, &of)), "frames wait in the same line");
    drop(first);
    let third = third.take().expect("what was given back");
    drop((held, third));
    assert!(fourth.take().is_none(), "one at a time");
    drop(large);
    assert!(fourth.take().is_some());
    drop(fourth);
    assert!(is_empty(&pool, &of));
}

#[test]
fn who_goes_while_he_waits_leaves_what_he_was_granted() {
    let (pool, of) = (FramePool::new(4 * MIB), Arc::default());
    let beyond = ask(&pool, &of, 1000 * MIB).take().expect("nobody is there");
    let (waits, mut next) = (ask(&pool, &of, 1000 * MIB), ask(&pool, &of, 1000 * MIB));
    let goes = ask(&pool, &of, 1000 * MIB);
    drop(goes);
    drop(beyond);
    assert!(next.take().is_none(), "the one before has been granted it");
    drop(waits);
    assert!(next.take().is_some());
    drop(next);
    assert!(is_empty(&pool, &of));
}

/// Each holds its frame while it waits, and none what another waits for.
#[test]
fn whole_requests_that_all_need_more_than_there_is_get_it_one_after_the_other() {
    let (pool, many, other) = (FramePool::new(4 * MIB), Arc::default(), Arc::default());
    let frames: Vec<(Bytes, &Arc<AddressUse>)> =
        [&many, &many, &other, &other].map(|of| (whole(&pool, of, 512 * KIB), of)).into();
    let mut large = pool.begin(100 * MIB, &many);
    come(&mut large, 2 * MIB);
    assert!(may_read(&mut large) && large.is_beyond());
    let mut waiting: Vec<(RoomRequest, Bytes)> =
        frames.into_iter().map(|(frame, of)| (ask(&pool, of, 50 * MIB), frame)).collect();
    assert!(waiting.iter_mut().all(|(request, _)| request.take().is_none()));
    // It is whole, and goes on beyond the bound.
    come(&mut large, 98 * MIB);
    let frame = large.freeze();
    let room =
        RoomRequest::new(&pool, &many, 50 * MIB, Some(frame.clone()), &Arc::default()).take().expect("it is the one");
    drop(frame);
    assert!(waiting.iter_mut().all(|(request, _)| request.take().is_none()), "it is not done with its frame");
    drop(room);
    for _ in 0..4 {
        let mut rooms: Vec<_> = waiting.iter_mut().map(|(request, _)| request.take()).collect();
        let granted = rooms.iter().position(Option::is_some).expect("one of them");
        assert_eq!(rooms.iter().flatten().count(), 1);
        drop(waiting.remove(granted));
        rooms.clear();
    }
    assert!(is_empty(&pool, &many) && is_empty(&pool, &other));
}

#[test]
fn of_an_address_that_has_much_so_many_wait_and_no_more() {
    let (pool, of, other) = (FramePool::new(16 * MIB), Arc::default(), Arc::default());
    let begin = |of: &Arc<AddressUse>| {
        let mut frame = pool.begin(MIB, of);
        frame.take(&mut BytesMut::zeroed(8 * KIB));
        let waits = !may_read(&mut frame);
        (frame, waits)
    };
    let mut waiting = Vec::new();
    let first = loop {
        let (frame, waits) = begin(&of);
        if frame.is_one_too_many() {
            break frame;
        }
        waiting.push((frame, waits));
    };
    assert_eq!((pool.taken() - 8 * KIB).div_ceil(MIB), 24, "half as much as there is waits");
    drop(first);
    let (frame, waits) = begin(&other);
    assert!(waits && !frame.is_one_too_many(), "who has little may wait");
    drop((frame, waiting));
    assert!(!begin(&of).1 && pool.line.lock().is_at_rest());
}

#[test]
fn the_bound_may_change_while_requests_are_read() {
    let (pool, of) = (FramePool::new(16 * MIB), Arc::default());
    let held = whole(&pool, &of, 6 * MIB);
    assert!(!pool.asks_for_grants() && !pool.is_over());
    pool.set_max(4 * MIB);
    assert!(pool.asks_for_grants() && pool.is_over());
    let beyond = go_beyond(&pool, &of);
    let mut waits = pool.begin(MIB, &of);
    assert!(!may_read(&mut waits));
    pool.set_max(64 * MIB);
    assert!(may_read(&mut waits));
    drop((held, beyond, waits));
    assert!(is_empty(&pool, &of));
}
