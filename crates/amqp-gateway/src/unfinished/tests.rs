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
    assert_eq!(taken, [100, 100, 0, 0, 0, 0, 0, 0, 0, 0]);
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
    assert_eq!(next.room(4 * MIB, Some(now + WAIT_MAX), || user("one")), Room::No);
    assert_eq!(next.room(4 * MIB, None, || user("one")), Room::No, "who cannot wait");
    drop(one);
    assert_eq!(next.room(4 * MIB, Some(now + WAIT_MAX), || user("one")), Room::Yes);
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
