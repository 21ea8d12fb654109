//! What somebody can do to the administration port who has not said who he is, or by somebody else's browser.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;

use crate::administration::{ask, change, log_in};
use crate::process::{PATIENCE, Process};

#[test]
fn metrics_come_by_a_name_of_this_machine_too() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &[]);
    for (host, status) in [
        ("localhost", 200),
        ("LocalHost:8160", 200),
        ("127.0.0.1:8160", 200),
        ("[::1]:8160", 200),
        ("evil.example", 403),
        ("127.0.0.1.evil.example:8160", 403),
    ] {
        assert_eq!(ask(&process, "GET", "/metrics", &[("host", host)], "").status, status, "{host}");
    }
    assert_eq!(
        ask(&process, "GET", "/metrics", &[("host", "localhost"), ("origin", "http://evil.example")], "").status,
        403
    );
    assert_eq!(
        ask(&process, "GET", "/metrics", &[("host", "localhost"), ("host", "evil.example")], "").status,
        403,
        "one name"
    );
    assert_eq!(
        ask(&process, "GET", "/health/ready", &[("host", "probe")], "").status,
        200,
        "it says nothing that somebody could want"
    );
}

#[test]
fn pages_of_other_sites_change_nothing_by_the_management_api() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &[]);
    let basic = ("authorization", "Basic Z3Vlc3Q6Z3Vlc3Q=");
    let from =
        |header: (&'static str, &'static str)| ask(&process, "PUT", "/api/vhosts/shop", &[basic, header], "").status;
    for header in [
        ("origin", "http://evil.example"),
        ("origin", "null"),
        ("origin", "http://localhost:1"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ] {
        assert_eq!(from(header), 403, "{header:?}");
    }
    assert_eq!(ask(&process, "GET", "/api/vhosts/shop", &[basic], "").status, 404);
    assert_eq!(from(("origin", "http://localhost")), 201, "a page of ours");
    assert_eq!(ask(&process, "DELETE", "/api/vhosts/shop", &[basic], "").status, 204, "no page at all");
}

#[test]
fn little_is_read_before_it_is_known_who_asks() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &["--set", "mainstem.password.iterations=1000"]);
    assert_eq!(
        change(&process, "PUT", "/v1/users/anna", json!({"password": "secret", "tags": ["administrator"]})).status,
        201
    );
    let long = json!({"user": "anna", "password": "x".repeat(20_000)}).to_string();
    let answer = ask(&process, "POST", "/v1/session", &[], &long);
    assert_eq!((answer.status, &answer.body["error"]), (413, &json!("too_large")), "{}", answer.body);
    // Others are told who they are not before a byte of the body has come.
    let mut socket = TcpStream::connect(process.admin).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(socket, "POST /v1/topics HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 1000000\r\n\r\n").unwrap();
    let mut told = [0; 12];
    socket.read_exact(&mut told).unwrap();
    assert_eq!(&told, b"HTTP/1.1 401");
}

#[test]
fn whom_a_proxy_on_this_machine_asks_for_is_not_on_it() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &[]);
    let basic = ("authorization", "Basic Z3Vlc3Q6Z3Vlc3Q=");
    assert_eq!(ask(&process, "GET", "/v1/overview", &[basic], "").status, 200);
    assert_eq!(ask(&process, "GET", "/api/overview", &[basic], "").status, 200);
    let login = json!({"user": "guest", "password": "guest"}).to_string();
    for header in [
        ("forwarded", "for=192.0.2.1"),
        ("x-forwarded-for", "192.0.2.1"),
        ("x-real-ip", "192.0.2.1"),
        ("via", "1.1 proxy"),
    ] {
        assert_eq!(ask(&process, "GET", "/v1/overview", &[header], "").status, 401, "{header:?}");
        assert_eq!(ask(&process, "GET", "/v1/overview", &[basic, header], "").status, 401, "{header:?}");
        assert_eq!(ask(&process, "GET", "/api/overview", &[basic, header], "").status, 401, "{header:?}");
        assert_eq!(ask(&process, "POST", "/v1/session", &[header], &login).status, 401, "{header:?}");
    }
}

#[test]
fn passwords_that_are_verified_leave_threads_to_those_who_are_known() {
    const STRANGERS: usize = 40;
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &["--set", "mainstem.password.iterations=1000000"]);
    assert_eq!(
        change(&process, "PUT", "/v1/users/anna", json!({"password": "secret", "tags": ["administrator"]})).status,
        201
    );
    let (cookie, _) = log_in(&process, "anna", "secret");
    let refused = AtomicUsize::new(0);
    let wrong = |number: usize| json!({"user": format!("nobody {number}"), "password": "wrong"}).to_string();
    std::thread::scope(|scope| {
        for number in 0..STRANGERS {
            let (process, refused) = (&process, &refused);
            scope.spawn(move || {
                let status = ask(process, "POST", "/v1/session", &[], &wrong(number)).status;
                assert!([401, 503].contains(&status), "{status}");
                refused.fetch_add(1, Ordering::SeqCst);
            });
        }
        while refused.load(Ordering::SeqCst) < 2 {
            std::thread::sleep(Duration::from_millis(5));
        }
        for _ in 0..5 {
            assert_eq!(ask(&process, "GET", "/v1/session", &[("cookie", &cookie)], "").status, 200);
        }
        assert!(refused.load(Ordering::SeqCst) < STRANGERS / 2, "{refused:?} of {STRANGERS} went before");
    });
}
