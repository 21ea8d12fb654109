//! Rooms of bodies, and who waits for whom.

use super::*;

#[test]
fn values_outside_of_text_take_memory() {
    assert_eq!(memory(b"{}"), 0);
    assert_eq!(memory(br#"{"a,[": [1, 2, "\",,,", {"b": null}]}"#), 2 * OBJECT_BYTES + 4 * ELEMENT_BYTES + 2 * KEY_BYTES);
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
    assert_eq!(refused(read_within(LONG, &HeaderMap::new(), Body::from(nested), Bounds::USUAL, "anna").await), Some(Unread::TooManyValues));
    let queues = r#"{"name": "orders", "durable": true, "arguments": {}},"#.repeat(30_000);
    let read_all = read_within(LONG, &HeaderMap::new(), Body::from(queues.clone()), Bounds::DEFINITIONS, "anna").await.map(|read| read.bytes().len());
    assert_eq!(read_all, Ok(queues.len()));
    assert_eq!(refused(read_within(LONG, &announces(SMALL_MAX + 1), Body::empty(), Bounds::USUAL, "anna").await), Some(Unread::TooLarge));
    assert_eq!(refused(read_within(LONG, &announces(10), Body::from("x".repeat(11)), Bounds::USUAL, "anna").await), Some(Unread::TooLarge), "it is longer than was said");
}

#[tokio::test]
async fn what_is_made_of_bodies_is_bounded_together() {
    let memory = Memory { free: Semaphore::const_new(100), total_kib: AtomicUsize::new(100) };
    let refused = async |bytes: usize| memory.take(bytes, SHORT).await.err();
    assert_eq!((refused(1 << 20).await, refused(UNCOUNTED).await), (Some(Unread::TooMuch), None));
    let first = memory.take(80 << 10, SHORT).await.expect("there is room");
    assert_eq!((refused(80 << 10).await, refused(UNCOUNTED).await), (Some(Unread::Busy), None));
    drop(first);
    assert_eq!(refused(80 << 10).await, None);
    memory.enlarge(2000);
    memory.enlarge(1000);
    assert_eq!((refused(1 << 20).await, memory.free.available_permits()), (None, 2000));
}

const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(50);
/// Of the tests that use the room for large bodies.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[tokio::test]
async fn who_is_slow_or_large_keeps_others_waiting_for_a_time_at_most() {
    let _alone = ALONE.lock().await;
    let first = read_within(LONG, &announces(LARGEST), Body::from("{}"), Bounds::DEFINITIONS, "anna").await.expect("there is room");
    let large = || announces(SMALL_MAX + 1);
    assert_eq!(refused(read_within(SHORT, &large(), Body::from("{}"), Bounds::DEFINITIONS, "anna").await), Some(Unread::Busy));
    assert!(read_within(SHORT, &announces(2), Body::from("{}"), Bounds::DEFINITIONS, "anna").await.is_ok(), "small ones do not wait");
    drop(first);
    assert!(read_within(SHORT, &large(), Body::from("{}"), Bounds::DEFINITIONS, "anna").await.is_ok());
    let silent = Body::from_stream(futures_util::stream::pending::<Result<bytes::Bytes, std::io::Error>>());
    assert_eq!(refused(read_within(SHORT, &announces(10), silent, Bounds::USUAL, "anna").await), Some(Unread::TooSlow));
}

/// A body of which so many bytes come, and then nothing.
fn stops_after(bytes: usize) -> Body {
    use futures_util::{StreamExt, stream};
    let part = stream::iter([Ok::<_, std::io::Error>(bytes::Bytes::from(vec![b' '; bytes]))]);
    Body::from_stream(part.chain(stream::pending()))
}

const KIB: usize = 1 << 10;

#[tokio::test]
async fn a_user_whose_bodies_do_not_end_leaves_as_much_to_others() {
    static ROOM: Room = Room::new(256 * KIB);
    let send = |user: &'static str, body: Body, time| gather(body, SMALL_MAX, time, Source::Share(ROOM.begin(user)));
    let outcome = |read: Result<(Vec<u8>, Option<Share<'static>>), Unread>| read.map(|(bytes, _)| bytes.len());
    let unfinished = tokio::spawn(send("anna", stops_after(100 * KIB), LONG));
    // Until it has come.
    while ROOM.take("anna", 128 * KIB) {
        ROOM.give_back("anna", 128 * KIB);
        tokio::task::yield_now().await;
    }
    let body = |bytes| Body::from(vec![b' '; bytes]);
    assert_eq!(outcome(send("anna", body(60 * KIB), SHORT).await), Err(Unread::Busy), "half is what one user has");
    assert_eq!(outcome(send("anna", body(16 * KIB), SHORT).await), Ok(16 * KIB), "that much has room in any case");
    assert_eq!(outcome(send("bob", body(60 * KIB), LONG).await), Ok(60 * KIB));
    unfinished.abort();
    assert!(unfinished.await.is_err());
    assert_eq!(outcome(send("anna", body(100 * KIB), LONG).await), Ok(100 * KIB), "what a body had is given back when it ends");
}

#[tokio::test]
async fn a_body_that_does_not_go_on_gives_its_room_to_who_waits() {
    static ROOM: Room = Room::new(256 * KIB);
    let send = |body: Body| gather(body, SMALL_MAX, LONG, Source::Share(ROOM.begin("anna")));
    let (slow, quick) = tokio::join!(send(stops_after(100 * KIB)), send(Body::from(vec![b' '; 100 * KIB])));
    assert_eq!(slow.err(), Some(Unread::TooSlow));
    assert_eq!(quick.map(|(bytes, _)| bytes.len()).ok(), Some(100 * KIB));
}

#[tokio::test]
async fn a_large_body_that_does_not_go_on_ends_while_others_wait_and_a_user_has_one_at_a_time() {
    let _alone = ALONE.lock().await;
    let unannounced = HeaderMap::new();
    let large = |user, body| read_within(LONG, &unannounced, body, Bounds::MESSAGE, user);
    let length = |read: Result<Read, Unread>| read.map(|read| read.bytes().len());
    // All of them are taken to be as large as they may be: no content-length was sent.
    let slow = async { length(large("slow", stops_after(100)).await) };
    let again = async { length(large("slow", stops_after(100)).await) };
    let other = async { length(large("other", Body::from("{}")).await) };
    tokio::select! {
        (slow, other) = async { tokio::join!(slow, other) } => assert_eq!((slow, other), (Err(Unread::TooSlow), Ok(2))),
        _ = async { tokio::task::yield_now().await; again.await } => unreachable!("its turn comes after the other user's"),
    }
}
