//! Rooms of bodies, and who waits for whom.

use futures_util::{StreamExt, stream};

use super::*;

#[test]
fn values_outside_of_text_take_memory() {
    assert_eq!(memory(b"{}"), 0);
    assert_eq!(
        memory(br#"{"a,[": [1, 2, "\",,,", {"b": null}]}"#),
        2 * OBJECT_BYTES + 4 * ELEMENT_BYTES + 2 * KEY_BYTES
    );
    assert_eq!(memory("[".repeat(1000).as_bytes()), 1000 * ELEMENT_BYTES);
}

fn announces(bytes: usize) -> HeaderMap {
    HeaderMap::from_iter([(header::CONTENT_LENGTH, bytes.to_string().parse().expect("digits"))])
}

fn refused(outcome: Result<Read, Unread>) -> Option<Unread> {
    outcome.err()
}

#[tokio::test]
async fn bodies_are_bounded_in_bytes_values_and_together() {
    let nested = "[1],".repeat(30_000);
    assert_eq!(
        refused(read_within(LONG, &HeaderMap::new(), Body::from(nested), Bounds::USUAL, "anna").await),
        Some(Unread::TooManyValues)
    );
    let queues = r#"{"name": "orders", "durable": true, "arguments": {}},"#.repeat(30_000);
    let read_all = read_within(LONG, &HeaderMap::new(), Body::from(queues.clone()), Bounds::DEFINITIONS, "anna")
        .await
        .map(|read| read.bytes().len());
    assert_eq!(read_all, Ok(queues.len()));
    assert_eq!(
        refused(read_within(LONG, &announces(SMALL_MAX + 1), Body::empty(), Bounds::USUAL, "anna").await),
        Some(Unread::TooLarge)
    );
    assert_eq!(
        refused(read_within(LONG, &announces(10), Body::from("x".repeat(11)), Bounds::USUAL, "anna").await),
        Some(Unread::TooLarge),
        "it is longer than was said"
    );
}

#[tokio::test]
async fn what_is_made_of_bodies_is_bounded_together() {
    let memory = Memory { free: Semaphore::const_new(100), total_kib: AtomicUsize::new(100) };
    let refused = async |bytes: usize| memory.take(bytes, SHORT).await.err();
    assert_eq!(refused(UNCOUNTED).await, None);
    let first = memory.take(80 << 10, SHORT).await.expect("there is room");
    assert_eq!((refused(80 << 10).await, refused(UNCOUNTED).await), (Some(Unread::Busy), None));
    drop(first);
    assert_eq!(refused(80 << 10).await, None);
    memory.resize(2000);
    assert_eq!((refused(1 << 20).await, memory.free.available_permits()), (None, 2000));
}

#[tokio::test]
async fn what_is_more_than_all_is_worked_on_alone() {
    let memory = Memory { free: Semaphore::const_new(1000), total_kib: AtomicUsize::new(1000) };
    memory.resize(100);
    let refused = async |bytes: usize| memory.take(bytes, SHORT).await.err();
    assert_eq!(
        (refused(ALONE_MAX_KIB << 10).await, refused((ALONE_MAX_KIB + 1) << 10).await),
        (None, Some(Unread::TooMuch))
    );
    let one = memory.take(70 << 10, SHORT).await.expect("there is room");
    assert_eq!((refused(1 << 20).await, memory.used()), (Some(Unread::Busy), 70 << 10));
    drop(one);
    let alone = memory.take(1 << 20, SHORT).await.expect("no other is worked on");
    assert_eq!((refused(70 << 10).await, memory.used()), (Some(Unread::Busy), 100 << 10));
    drop(alone);
}

#[tokio::test]
async fn a_body_that_has_room_takes_no_more_than_that() {
    static ROOM: Room = small_room(4 << 20);
    let (body, most) = (in_parts(10, 90 * KIB, Duration::ZERO), 900 * KIB);
    let (bytes, share) = gather(body, most, Times { waits: LONG, comes: LONG, paced: LONG }, ROOM.begin("anna"))
        .await
        .expect("there is room");
    assert_eq!((bytes.len(), bytes.capacity(), ROOM.held()), (most, most, most - (16 << 10)));
    drop(share);
}

const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(50);
/// Of the tests that use the room for large bodies.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[tokio::test]
async fn who_is_slow_or_large_keeps_others_waiting_for_a_time_at_most() {
    let _alone = ALONE.lock().await;
    let first =
        read_within(LONG, &announces(LARGEST), blank(LARGEST), Bounds::MESSAGE, "anna").await.expect("there is room");
    let large = async |time| {
        refused(read_within(time, &announces(SMALL_MAX + 1), blank(100 * KIB), Bounds::DEFINITIONS, "bob").await)
    };
    assert_eq!(large(SHORT).await, Some(Unread::Busy));
    assert!(
        read_within(SHORT, &announces(100 * KIB), blank(100 * KIB), Bounds::DEFINITIONS, "anna").await.is_ok(),
        "small ones do not wait"
    );
    drop(first);
    assert_eq!(large(LONG).await, None);
    let silent = Body::from_stream(futures_util::stream::pending::<Result<bytes::Bytes, std::io::Error>>());
    assert_eq!(refused(read_within(SHORT, &announces(10), silent, Bounds::USUAL, "anna").await), Some(Unread::TooSlow));
}

fn blank(bytes: usize) -> Body {
    Body::from(vec![b' '; bytes])
}

/// A body that comes in parts of so many bytes, each after a while.
fn in_parts(parts: usize, bytes: usize, after: Duration) -> Body {
    let part = move |_| async move {
        tokio::time::sleep(after).await;
        Ok::<_, std::io::Error>(bytes::Bytes::from(vec![b' '; bytes]))
    };
    Body::from_stream(stream::iter(0..parts).then(part))
}

/// A body of which so many bytes come, and then nothing.
fn stops_after(bytes: usize) -> Body {
    let part = stream::iter([Ok::<_, std::io::Error>(bytes::Bytes::from(vec![b' '; bytes]))]);
    Body::from_stream(part.chain(stream::pending()))
}

const KIB: usize = 1 << 10;

const fn small_room(total: usize) -> Room {
    Room::new(total, SMALL_MAX, Rule::Half)
}

/// Sends a small body of at most `most` bytes; how long it was.
async fn send(room: &Room, user: &str, body: Body, most: usize, time: Duration) -> Result<usize, Unread> {
    gather(body, most, Times { waits: time, comes: time, paced: time }, room.begin(user))
        .await
        .map(|(bytes, _)| bytes.len())
}

#[tokio::test]
async fn a_user_whose_bodies_do_not_end_leaves_as_much_to_others() {
    static ROOM: Room = small_room(256 * KIB);
    let unfinished = tokio::spawn(send(&ROOM, "anna", stops_after(100 * KIB), 128 * KIB, LONG));
    // Until it has come.
    while ROOM.held() == 0 {
        tokio::task::yield_now().await;
    }
    let send = |user: &'static str, bytes, time| send(&ROOM, user, blank(bytes), bytes, time);
    assert_eq!(send("anna", 60 * KIB, SHORT).await, Err(Unread::Busy), "half is what one user has");
    assert_eq!(send("anna", 16 * KIB, SHORT).await, Ok(16 * KIB), "that much has room in any case");
    assert_eq!(send("bob", 60 * KIB, LONG).await, Ok(60 * KIB));
    unfinished.abort();
    assert!(unfinished.await.is_err());
    assert_eq!(send("anna", 100 * KIB, LONG).await, Ok(100 * KIB), "what a body had is given back when it ends");
    assert_eq!(ROOM.held(), 0);
}

#[tokio::test]
async fn a_body_that_does_not_go_on_gives_its_room_to_who_waits() {
    static ROOM: Room = small_room(256 * KIB);
    let send = |body: Body| send(&ROOM, "anna", body, 120 * KIB, LONG);
    let (slow, quick) = tokio::join!(send(stops_after(100 * KIB)), send(blank(100 * KIB)));
    assert_eq!((slow, quick), (Err(Unread::TooSlow), Ok(100 * KIB)));
}

#[tokio::test]
async fn bodies_of_one_user_do_not_keep_each_other_from_their_ends() {
    static ROOM: Room = small_room(256 * KIB);
    let send = |_| send(&ROOM, "anna", in_parts(10, 10 * KIB, Duration::from_millis(1)), 100 * KIB, LONG);
    let ended = futures_util::future::join_all((0..20).map(send)).await;
    assert_eq!(ended, vec![Ok(100 * KIB); 20]);
    assert_eq!(ROOM.held(), 0);
}

#[tokio::test]
async fn bodies_of_many_users_do_not_keep_each_other_from_their_ends() {
    static ROOM: Room = small_room(256 * KIB);
    let users: Vec<String> = (0..20).map(|user| user.to_string()).collect();
    let send = |user| send(&ROOM, user, in_parts(10, 10 * KIB, Duration::from_millis(1)), 100 * KIB, LONG);
    let ended = futures_util::future::join_all(users.iter().map(|user| send(user))).await;
    assert_eq!(ended, vec![Ok(100 * KIB); 20]);
}

#[tokio::test]
async fn short_bodies_do_not_wait_for_all_long_ones_that_came_before() {
    static ROOM: Room = small_room(4 << 20);
    let lacking = futures_util::future::join_all(
        (0..50).map(|_| send(&ROOM, "anna", stops_after(SMALL_MAX - 1), SMALL_MAX, LONG)),
    );
    tokio::select! {
        biased;
        _ = lacking => unreachable!("the last of them wait for longer"),
        short = async { send(&ROOM, "anna", blank(200 * KIB), 200 * KIB, LONG).await } => assert_eq!(short, Ok(200 * KIB)),
    }
    assert_eq!(ROOM.held(), 0, "those who waited have left nothing behind");
}

#[tokio::test]
async fn room_that_was_given_to_somebody_who_has_gone_is_given_back() {
    static ROOM: Room = small_room(256 * KIB);
    let mut first = ROOM.begin("anna");
    first.take(100 * KIB, 128 * KIB).await;
    let mut second = ROOM.begin("anna");
    let mut third = ROOM.begin("anna");
    assert!(timeout(SHORT, second.take(100 * KIB, 128 * KIB)).await.is_err());
    assert!(timeout(SHORT, third.take(100 * KIB, 128 * KIB)).await.is_err());
    drop(first);
    assert_eq!(ROOM.held(), 112 * KIB);
    drop(second);
    drop(third);
    assert_eq!(ROOM.held(), 0);
}

#[tokio::test]
async fn a_large_body_that_does_not_go_on_ends_while_others_wait_and_a_user_has_one_at_a_time() {
    let _alone = ALONE.lock().await;
    let unannounced = HeaderMap::new();
    let large = |user, body| read_within(LONG, &unannounced, body, Bounds::MESSAGE, user);
    let length = |read: Result<Read, Unread>| read.map(|read| read.bytes().len());
    // All of them are taken to be as large as they may be: no content-length was sent.
    let slow = async { length(large("slow", stops_after(100 * KIB)).await) };
    let again = async { length(large("slow", stops_after(100 * KIB)).await) };
    let other = async { length(large("other", blank(100 * KIB)).await) };
    tokio::select! {
        (slow, other) = async { tokio::join!(slow, other) } => assert_eq!((slow, other), (Err(Unread::TooSlow), Ok(100 * KIB))),
        _ = async { tokio::task::yield_now().await; again.await } => unreachable!("its turn comes after the other user's"),
    }
}

#[tokio::test]
async fn a_large_body_that_comes_slowly_ends_while_others_wait() {
    let _alone = ALONE.lock().await;
    // 17 KiB and more in a second are no pace for 32 MiB.
    let slow = in_parts(1000, 40 * KIB, Duration::from_millis(500));
    let slow = async { refused(read_within(LONG, &announces(LARGEST), slow, Bounds::MESSAGE, "slow").await) };
    let other = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        refused(read_within(LONG, &announces(2 << 20), blank(2 << 20), Bounds::DEFINITIONS, "other").await)
    };
    assert_eq!(tokio::join!(slow, other), (Some(Unread::TooSlow), None));
}

#[tokio::test]
async fn large_bodies_that_are_worked_on_do_not_keep_their_user_from_sending_the_next() {
    let _alone = ALONE.lock().await;
    let head = announces(2 << 20);
    let send = || read_within(LONG, &head, blank(2 << 20), Bounds::MESSAGE, "anna");
    let first = send().await;
    assert!(first.is_ok() && timeout(LONG / 2, send()).await.is_ok_and(|second| second.is_ok()));
}
