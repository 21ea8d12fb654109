//! Peers that send half a request, read nothing, or are too many.

use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

const PATIENCE: Duration = Duration::from_secs(60);
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";

fn bounds() -> Bounds {
    Bounds { head_time: Duration::from_secs(3600), stall_time: Duration::from_secs(3600), ..Bounds::USUAL }
}

/// An address that answers with so many bytes.
async fn served(bounds: Bounds, bytes: usize) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let router = Router::new().route("/", get(move || async move { "x".repeat(bytes) }));
    tokio::spawn(serve(listener, router, Connections::new(bounds)));
    address
}

async fn connect(address: std::net::SocketAddr) -> TcpStream {
    TcpStream::connect(address).await.expect("somebody listens")
}

/// What comes until the other side has ended it.
async fn rest(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut text)).await.expect("it ends");
    // It may end with a reset.
    let _ = read;
    String::from_utf8_lossy(&text).into_owned()
}

async fn answer(stream: &mut TcpStream) -> String {
    stream.write_all(REQUEST).await.expect("sent");
    let mut text = vec![0; 4096];
    let got = tokio::time::timeout(PATIENCE, stream.read(&mut text)).await.expect("an answer").unwrap_or(0);
    String::from_utf8_lossy(&text[..got]).into_owned()
}

#[tokio::test]
async fn who_does_not_end_his_head_is_not_waited_for() {
    let address = served(Bounds { head_time: Duration::from_millis(100), ..bounds() }, 1).await;
    for part in [&b""[..], b"GET / HTTP/1.1\r\nhost: loc"] {
        let mut stream = connect(address).await;
        stream.write_all(part).await.expect("sent");
        let told = rest(&mut stream).await;
        assert!(told.is_empty() || told.starts_with("HTTP/1.1 408"), "{told}");
    }
    assert!(answer(&mut connect(address).await).await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn a_head_is_not_longer_than_may_be() {
    let address = served(bounds(), 1).await;
    let mut stream = connect(address).await;
    let long = format!("GET / HTTP/1.1\r\nhost: localhost\r\nx: {}", "x".repeat(HEAD_BYTES_MAX * 2));
    let _ = stream.write_all(long.as_bytes()).await;
    let told = rest(&mut stream).await;
    assert!(told.is_empty() || told.starts_with("HTTP/1.1 431"), "{told}");
}

#[tokio::test]
async fn who_reads_nothing_is_not_waited_for() {
    let address = served(Bounds { stall_time: Duration::from_millis(100), ..bounds() }, 64 << 20).await;
    let mut stream = connect(address).await;
    stream.write_all(REQUEST).await.expect("sent");
    // Nothing is read until the other side has given up: then something cannot be sent any more.
    let gone = async {
        while stream.write_all(b"x").await.is_ok() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("it ends");
}

#[tokio::test]
async fn an_address_has_so_many_connections_and_no_more() {
    let address = served(Bounds { of_address: 2, ..bounds() }, 1).await;
    let (mut first, mut second) = (connect(address).await, connect(address).await);
    assert!(
        answer(&mut first).await.starts_with("HTTP/1.1 200") && answer(&mut second).await.starts_with("HTTP/1.1 200")
    );
    let mut third = connect(address).await;
    assert!(answer(&mut third).await.starts_with("HTTP/1.1 200"), "in the place of the first, which asks for nothing");
    assert_eq!(rest(&mut first).await, "");
    assert!(answer(&mut second).await.starts_with("HTTP/1.1 200"));
}

#[test]
fn who_is_being_answered_stays() {
    let connections = Connections::new(Bounds { of_address: 2, ..bounds() });
    let enter = |has_descriptor| connections.enter("192.0.2.1".parse().expect("an address"), has_descriptor);
    let (first, second) = (enter(true).expect("room"), enter(true).expect("room"));
    let busy = (InProgress::new(&first.member), InProgress::new(&second.member));
    assert!(enter(true).is_none() && enter(false).is_none());
    drop(busy.1);
    let _third = enter(false).expect("the second has nothing to do");
    assert!(enter(true).is_some(), "nor has the third");
    assert_eq!(connections.inner.lock().len(), 1, "the first");
}

#[tokio::test]
async fn who_fills_all_places_does_not_keep_others_out() {
    let connections = Connections::new(Bounds { connections: 3, ..bounds() });
    let enter = |address: &str| connections.enter(address.parse().expect("an address"), true);
    let many: Vec<Place> = (0..3).filter_map(|_| enter("192.0.2.1")).collect();
    assert_eq!(many.len(), 3);
    let busy: Vec<_> = many.iter().map(|place| InProgress::new(&place.member)).collect();
    assert!(enter("192.0.2.1").is_none(), "all are being answered");
    let other = enter("2001:db8::1").expect("another's place");
    many[0].member.goes.notified().await;
    let answered = InProgress::new(&other.member);
    assert!(enter("2001:db8::2").is_none(), "its network would have as many as the other");
    let third = enter("192.0.2.3").expect("another's place");
    many[1].member.goes.notified().await;
    drop((many, busy, answered, other, third));
    assert!(connections.inner.lock().is_empty());
}
