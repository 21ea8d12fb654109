//! Answers that are made, and connections that do not take them.

use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::get;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};

use super::*;
use crate::serving::{Bounds, Connections, serve};

const SHORT: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(60);
const TOTAL: usize = 1 << 20;

/// An account of its own.
fn account(total: usize) -> &'static Account {
    Box::leak(Box::new(Account::new(total)))
}

fn item(number: usize) -> Value {
    json!({"name": format!("queue-{number}"), "arguments": {"x": [number, null, "\u{fc}"]}})
}

fn write(count: usize) -> impl Fn(Text) -> Text + Send + Sync + 'static {
    move |mut text| {
        text.list(|put| (0..count).for_each(|number| put(&item(number))));
        text
    }
}

fn itself(text: &Text) -> Option<&Text> {
    Some(text)
}

async fn made(account: &'static Account, doing: Doing, count: usize, patience: Duration) -> Result<Text, Unmade> {
    make_in(account, (doing, patience), write(count), itself).await
}

/// Items whose text is about so long.
fn items_of(bytes: usize) -> usize {
    bytes / item(10_000).to_string().len()
}

#[test]
fn texts_are_those_of_whole_values() {
    let items: Vec<Value> = (0..5000).map(item).collect();
    let mut text = Text::anyway();
    let parts = [
        ("total", Part::Value(5000.into())),
        ("items", Part::items(items.clone().into_iter())),
        ("more", Part::Written(Box::new(|text| text.list(|_| {})))),
        ("again", Part::List(Box::new(|put| items.iter().for_each(put)))),
    ];
    text.object(BTreeMap::from(parts));
    let whole = json!({"total": 5000, "items": items, "more": [], "again": items});
    assert_eq!(String::from_utf8(text.to_vec()), Ok(whole.to_string()));
}

#[tokio::test]
async fn a_body_has_the_text_and_gives_its_pieces_back() {
    let account = account(TOTAL);
    let count = items_of(TOTAL / 2);
    let text = made(account, Doing::Looks, count, SHORT).await.expect("there is room");
    let (expected, length) = (text.to_vec(), text.length);
    let body = text.into_body();
    assert_eq!((account.used(), hyper::body::Body::size_hint(&body).exact()), (length, Some(length as u64)));
    let read = axum::body::to_bytes(body, usize::MAX).await.expect("it does not fail");
    assert_eq!((read.to_vec(), account.used()), (expected, 0));
    let small = made(account, Doing::Looks, 3, SHORT).await.expect("it is small");
    assert_eq!(account.used(), 0);
    assert!(!hyper::body::Body::is_end_stream(&small.into_body()));
}

#[tokio::test]
async fn who_finds_no_room_waits_for_it_and_is_told_if_none_comes() {
    let account = account(TOTAL);
    let count = items_of(TOTAL / 3 * 2);
    let first = made(account, Doing::Looks, count, SHORT).await.expect("there is room").into_body();
    let held = account.used();
    assert_eq!(made(account, Doing::Looks, count, SHORT).await.err(), Some(Unmade::Busy));
    assert!(made(account, Doing::Looks, 3, SHORT).await.is_ok(), "small ones do not wait");
    assert_eq!(account.used(), held, "nothing of them is left");
    let waits = tokio::spawn(made(account, Doing::Looks, count, LONG));
    sleep(SHORT).await;
    drop(first);
    let second = waits.await.expect("no defect").expect("there is room now");
    assert_eq!(second.to_vec(), serde_json::to_vec(&(0..count).map(item).collect::<Vec<_>>()).expect("texts"));
    drop(second);
    assert_eq!(account.used(), 0);
}

#[tokio::test]
async fn what_is_little_passes_those_who_wait() {
    let account = account(TOTAL);
    account.take_anyway(TOTAL / 2);
    let waits = tokio::spawn(account.take(TOTAL * 2, Instant::now() + LONG));
    let is_passed = |bytes, has| {
        let taken = account.try_take(bytes, has);
        account.give(if taken { bytes } else { 0 });
        taken
    };
    until(|| !is_passed(TOTAL / 4, 0)).await;
    assert!(is_passed(TOTAL / 32, TOTAL / 32));
    assert!(!is_passed(TOTAL / 32, TOTAL / 16), "it has much already");
    account.give(TOTAL / 2);
    assert_eq!(waits.await.expect("no defect"), Some(TOTAL));
}

#[tokio::test]
async fn an_answer_longer_than_all_is_made_alone() {
    let account = account(TOTAL);
    let alone = made(account, Doing::Looks, items_of(TOTAL * 3), SHORT).await.expect("it is alone").into_body();
    assert!(account.used() > TOTAL * 5 / 2);
    assert_eq!(made(account, Doing::Looks, items_of(TOTAL / 2), SHORT).await.err(), Some(Unmade::Busy));
    assert_eq!(
        made(account, Doing::Takes, 3, SHORT).await.err(),
        Some(Unmade::Busy),
        "nothing is taken away before there is room"
    );
    let changed = made(account, Doing::Changes, items_of(TOTAL / 2), SHORT).await.expect("it is done");
    drop((alone, changed));
    assert_eq!(account.used(), 0);
}

#[tokio::test]
async fn a_defect_gives_everything_back() {
    let account = account(TOTAL);
    let work = |text: Text| -> Text {
        drop(write(items_of(TOTAL / 2))(text).into_body());
        panic!("a defect")
    };
    assert_eq!(make_in(account, (Doing::Looks, SHORT), work, itself).await.err(), Some(Unmade::Defect));
    assert_eq!(account.used(), 0);
}

const LIST: usize = 16 << 20;

/// An address with a long list, and what it takes of an account in which there is room for one of it.
async fn served(bounds: Bounds) -> (std::net::SocketAddr, &'static Account, &'static AtomicUsize) {
    let account = account(LIST + LIST / 4);
    let refused: &'static AtomicUsize = Box::leak(Box::default());
    let list = move || async move {
        match made(account, Doing::Looks, items_of(LIST), SHORT).await {
            Ok(text) => text.into_body().into_response(),
            Err(_) => {
                refused.fetch_add(1, Ordering::SeqCst);
                StatusCode::SERVICE_UNAVAILABLE.into_response()
            }
        }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let router = Router::new().route("/list", get(list)).route("/health", get(|| async { "live" }));
    tokio::spawn(serve(listener, router, Connections::new(bounds)));
    (address, account, refused)
}

async fn ask(address: std::net::SocketAddr, path: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a small buffer");
    let mut stream = socket.connect(address).await.expect("somebody listens");
    stream
        .write_all(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").as_bytes())
        .await
        .expect("sent");
    stream
}

async fn until(what: impl Fn() -> bool) {
    let comes = async {
        while !what() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(LONG, comes).await.expect("it comes");
}

#[tokio::test]
async fn connections_that_do_not_read_take_what_there_is_and_no_more() {
    let (address, account, refused) = served(Bounds::USUAL).await;
    let mut unread = Vec::new();
    for _ in 0..12 {
        unread.push(ask(address, "/list").await);
    }
    let most = async {
        let mut most = 0;
        while refused.load(Ordering::SeqCst) < 11 {
            most = most.max(account.used());
            sleep(Duration::from_millis(5)).await;
        }
        most
    };
    let most = timeout(LONG, most).await.expect("one has it, the others are refused");
    assert!(most <= account.total() && account.used() > LIST / 4, "{most} {}", account.used());
    let mut health = String::new();
    timeout(LONG, ask(address, "/health").await.read_to_string(&mut health)).await.expect("it answers").expect("text");
    assert!(health.ends_with("live"), "{health}");
    drop(unread);
    until(|| account.used() == 0).await;
    let mut text = Vec::new();
    timeout(LONG, ask(address, "/list").await.read_to_end(&mut text)).await.expect("it comes").expect("all of it");
    let expected = serde_json::to_vec(&(0..items_of(LIST)).map(item).collect::<Vec<_>>()).expect("texts");
    assert!(text.ends_with(&expected));
    assert!(String::from_utf8_lossy(&text[..512]).contains(&format!("content-length: {}", expected.len())));
}

#[tokio::test]
async fn an_answer_is_in_the_account_until_its_reader_is_given_up() {
    let (address, account, _) = served(Bounds { stall_time: Duration::from_millis(500), ..Bounds::USUAL }).await;
    let unread = ask(address, "/list").await;
    until(|| account.used() > LIST / 4).await;
    until(|| account.used() == 0).await;
    drop(unread);
}
