//! Shares of connections and users, waiting, and the account.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::*;

const MIB: usize = 1 << 20;

fn memory(max: usize) -> Arc<UnfinishedMemory> {
    let memory = Arc::new(UnfinishedMemory::default());
    memory.set_max(max);
    memory
}

fn user(name: &str) -> Holder {
    Holder::of(Some(name), Ipv4Addr::LOCALHOST.into())
}

/// Takes pieces of 64 KiB as long as there is room, as if a turn of reading brought each; how many bytes.
fn fill(one: &mut Unfinished, holder: &Holder, now: Instant) -> usize {
    const PIECE: usize = 64 << 10;
    let before = one.bytes;
    while one.room(PIECE, Some(now), || holder.clone()) == Room::Yes {
        one.add(PIECE);
        one.settle();
    }
    one.bytes - before
}

#[test]
fn a_connection_and_a_user_leave_room_to_others() {
    let (memory, now) = (memory(400 * MIB), Instant::now());
    let mut greedy: Vec<Unfinished> = (0..10).map(|_| Unfinished::new(&memory)).collect();
    let taken: Vec<usize> = greedy.iter_mut().map(|one| fill(one, &user("greedy"), now) / MIB).collect();
    assert_eq!(taken, [200, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let mut other = Unfinished::new(&memory);
    assert_eq!(fill(&mut other, &user("other"), now) / MIB, 100, "half of what is free");
    drop(greedy);
    assert_eq!(memory.used(), other.bytes);
    drop(other);
    assert_eq!((memory.used(), memory.holders.lock().len()), (0, 0));
}

#[test]
fn the_largest_message_fits_into_the_smallest_memory() {
    let (memory, now) = (memory(0), Instant::now());
    let mut one = Unfinished::new(&memory);
    assert!(fill(&mut one, &user("one"), now) >= 16 * MIB + (64 << 10));
}

#[test]
fn what_finds_no_room_waits_only_for_others_and_a_small_message_does_not() {
    let (memory, now) = (memory(40 * MIB), Instant::now());
    let mut one = Unfinished::new(&memory);
    fill(&mut one, &user("one"), now);
    assert_eq!(one.room(64 << 10, Some(now), || user("one")), Room::No, "nobody else can finish");
    assert!(memory.refused() >= 1);
    let mut next = Unfinished::new(&memory);
    assert_eq!(next.room(ALWAYS_BYTES, Some(now), || user("one")), Room::Yes);
    let later = next.room(4 * MIB, Some(now), || user("one"));
    assert!(matches!(later, Room::Later(at) if at > now), "{later:?}");
    assert!(one.gives_way() && !next.gives_way());
    assert_eq!(next.room(4 * MIB, None, || user("one")), Room::No, "who cannot wait");
    drop(one);
    assert_eq!(next.room(4 * MIB, Some(now), || user("one")), Room::Yes);
}

/// Connections that each hold something, and that find no room for more.
fn stuck<const N: usize>(memory: &Arc<UnfinishedMemory>, now: Instant) -> [Unfinished; N] {
    std::array::from_fn(|number| {
        let mut one = Unfinished::new(memory);
        assert_eq!(one.room(6 * MIB, Some(now), || user("one")), Room::Yes, "{number}");
        one.add(6 * MIB);
        one.settle();
        one
    })
}

#[test]
fn the_first_in_line_goes_beyond_the_bound_and_then_the_next() {
    let (memory, now) = (memory(40 * MIB), Instant::now());
    let [mut first, mut second, mut third] = stuck(&memory, now);
    let ask = |one: &mut Unfinished, after| one.room(6 * MIB, Some(now + after), || user("one"));
    let (soon, late) = (BEYOND_AFTER / 2, BEYOND_AFTER);
    assert!([&mut first, &mut second, &mut third].into_iter().all(|one| matches!(ask(one, soon / 2), Room::Later(_))));
    assert!(matches!(ask(&mut second, late + soon), Room::Later(_)), "it is not the first");
    assert_eq!(ask(&mut first, late + soon), Room::Yes);
    first.add(6 * MIB);
    first.settle();
    assert!(matches!(ask(&mut second, late + soon), Room::Later(_)), "one at a time");
    assert_eq!(ask(&mut first, late + soon), Room::Yes, "it goes on");
    assert_eq!(first.room(9 * MIB, Some(now), || user("one")), Room::No, "as far as a connection may");
    first.sub(12 * MIB);
    first.settle();
    let ask = |one: &mut Unfinished, after| one.room(12 * MIB, Some(now + after), || user("one"));
    assert!(matches!(ask(&mut third, late + soon), Room::Later(_)));
    assert_eq!(ask(&mut second, late + soon), Room::Yes);
    drop((first, second));
    assert_eq!(ask(&mut third, late + soon), Room::Yes, "there is room");
    drop(third);
    let line = memory.line.lock();
    assert_eq!(
        (memory.used(), memory.waiting.load(Ordering::Relaxed), line.waiting.len(), line.beyond),
        (0, 0, 0, false)
    );
}

#[test]
fn who_lets_others_wait_waits_not_for_ever() {
    let (memory, now) = (memory(40 * MIB), Instant::now());
    let [mut first, mut holds, _third] = stuck(&memory, now);
    let mut free = Unfinished::new(&memory);
    let ask = |one: &mut Unfinished, after| one.room(12 * MIB, Some(now + after), || user("one"));
    assert!(
        [&mut first, &mut holds, &mut free].into_iter().all(|one| matches!(ask(one, Duration::ZERO), Room::Later(_)))
    );
    assert_eq!(ask(&mut first, BEYOND_AFTER), Room::Yes);
    first.add(12 * MIB);
    first.settle();
    assert!(matches!(ask(&mut holds, WAIT_MAX / 2), Room::Later(_)));
    assert_eq!(ask(&mut holds, WAIT_MAX), Room::No);
    assert!(matches!(ask(&mut free, 100 * WAIT_MAX), Room::Later(_)), "it has its turn");
    assert!(
        matches!(first.room(MIB, Some(now + BEYOND_AFTER + BEYOND_MAX), || user("one")), Room::Later(_)),
        "others have theirs"
    );
    drop(first);
    assert_eq!(ask(&mut free, 100 * WAIT_MAX), Room::Yes);
}

#[test]
fn holders_take_turns_beyond_the_bound() {
    let (memory, now) = (memory(40 * MIB), Instant::now());
    let holding: [Unfinished; 3] = stuck(&memory, now);
    let mut waiting: Vec<(Unfinished, &str)> =
        ["one", "one", "one", "other"].map(|name| (Unfinished::new(&memory), name)).into();
    let ask =
        |(one, name): &mut (Unfinished, &str), after| one.room(15 * MIB, Some(now + after), || user(name)) == Room::Yes;
    assert!(waiting.iter_mut().all(|one| !ask(one, Duration::ZERO)));
    let mut order = Vec::new();
    while !waiting.is_empty() {
        let at = (0..waiting.len()).find(|at| ask(&mut waiting[*at], BEYOND_AFTER)).expect("one has its turn");
        let (mut gone, name) = waiting.remove(at);
        gone.add(15 * MIB);
        gone.settle();
        assert!(waiting.iter_mut().all(|one| !ask(one, BEYOND_AFTER)));
        order.push(name);
    }
    assert_eq!(order, ["one", "other", "one", "one"]);
    drop(holding);
}

#[test]
fn who_holds_no_more_than_his_share_gives_way_to_no_other() {
    let (memory, now) = (memory(40 * MIB), Instant::now());
    let (mut small, mut large, mut next) =
        (Unfinished::new(&memory), Unfinished::new(&memory), Unfinished::new(&memory));
    assert_eq!(small.room(MIB, Some(now), || user("small")), Room::Yes);
    small.add(MIB);
    small.settle();
    fill(&mut large, &user("large"), now);
    large.wait_no_more();
    assert!(matches!(next.room(4 * MIB, Some(now), || user("large")), Room::Later(_)));
    assert!(large.gives_way() && !small.gives_way());
}

#[test]
fn nobody_gives_way_when_nobody_waits() {
    let (memory, now) = (memory(40 * MIB), Instant::now());
    let (mut one, mut next) = (Unfinished::new(&memory), Unfinished::new(&memory));
    fill(&mut one, &user("one"), now);
    assert!(one.next(now).is_some() && !one.gives_way());
    assert!(matches!(next.room(4 * MIB, Some(now), || user("one")), Room::Later(_)));
    assert!(one.gives_way());
    drop(next);
    assert!(!one.gives_way());
}

#[test]
fn clients_without_a_user_count_by_address() {
    let of = |address: IpAddr| Holder::of(None, address);
    let v6 = |low: u16| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, low));
    assert_eq!(of(v6(1)), of(v6(2)));
    assert_eq!(of(Ipv4Addr::LOCALHOST.to_ipv6_mapped().into()), of(Ipv4Addr::LOCALHOST.into()));
    assert_ne!(of(Ipv4Addr::new(10, 0, 0, 1).into()), of(Ipv4Addr::new(10, 0, 0, 2).into()));
}
