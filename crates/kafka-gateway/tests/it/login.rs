//! Logins on sessions: order, time, and what becomes of those who are not let in.

use std::sync::Arc;
use std::time::Duration;

use broker::{PasswordWish, ScramMechanism, UserWish};
use bytes::Bytes;
use kafka_gateway::{CloseReason, SaslMechanism, SaslRules};
use kafka_wire::metadata::MetadataRequest;
use kafka_wire::sasl_authenticate::{SaslAuthenticateRequest, SaslAuthenticateResponse};
use kafka_wire::sasl_handshake::{SaslHandshakeRequest, SaslHandshakeResponse};
use kafka_wire::{ErrorCode, Reader};

use crate::node::{Node, flexible};

const HANDSHAKE: (i16, i16) = (17, 1);
const AUTHENTICATE: (i16, i16) = (36, 2);
const METADATA: (i16, i16) = (3, 12);
const DELAY: Duration = Duration::from_millis(100);
const LOGIN_MAX: Duration = Duration::from_secs(10);
const SESSION: Duration = Duration::from_secs(60);

fn rules(session_max: Option<Duration>) -> Option<Arc<SaslRules>> {
    let mechanisms = vec![SaslMechanism::Plain, SaslMechanism::Scram(ScramMechanism::Sha256)];
    Some(Arc::new(SaslRules {
        mechanisms,
        session_max,
        request_bytes_max: 1000,
        login_max: LOGIN_MAX,
        refusal_delay: DELAY,
    }))
}

/// A node whose only user is alice, with few iterations.
fn node(folder: &std::path::Path) -> Node {
    let node = Node::start(folder, &[("mainstem.password.iterations", "1000")]);
    let wish = |name: &str| UserWish {
        name: name.to_owned(),
        password: PasswordWish::Clear("wonder".to_owned()),
        tags: None,
        limits: None,
    };
    node.broker().put_user(wish("alice")).expect("taken");
    node.broker().put_user(wish("bob")).expect("taken");
    node
}

fn handshake(node: &mut Node, client: usize, mechanism: &str) -> i16 {
    let request = SaslHandshakeRequest { mechanism: mechanism.into(), ..Default::default() };
    node.send(client, HANDSHAKE, 1, |writer| request.encode(writer, HANDSHAKE.1)).expect("taken");
    let (_, body) = node.answer(client);
    SaslHandshakeResponse::decode(&mut Reader::new(body), HANDSHAKE.1).expect("an answer").error_code
}

fn send_token(node: &mut Node, client: usize, token: &[u8]) {
    let request = SaslAuthenticateRequest { auth_bytes: Bytes::copy_from_slice(token), ..Default::default() };
    node.send(client, AUTHENTICATE, 2, |writer| request.encode(writer, AUTHENTICATE.1)).expect("taken");
}

fn told(body: Bytes) -> SaslAuthenticateResponse {
    SaslAuthenticateResponse::decode(&mut flexible(AUTHENTICATE, body), AUTHENTICATE.1).expect("an answer")
}

/// What happens meanwhile, and what who began is told.
type Change<'a> = (&'a dyn Fn(&Node), i16);

/// The password is right when it is looked at, and the answer is on its way.
#[test]
fn a_login_ends_with_the_user_with_whom_it_began() {
    let define = |node: &Node, password: &str, tags: &[&str]| {
        let tags = Some(tags.iter().map(|tag| (*tag).to_owned()).collect());
        let wish = UserWish {
            name: "alice".to_owned(),
            password: PasswordWish::Clear(password.to_owned()),
            tags,
            limits: None,
        };
        node.broker().put_user(wish).expect("taken");
    };
    let delete = |node: &Node| assert!(node.broker().delete_user("alice").expect("deleted"));
    let again = |node: &Node| {
        delete(node);
        define(node, "wonder", &["administrator"]);
    };
    let (refused, let_in) = (ErrorCode::SaslAuthenticationFailed.code(), 0);
    let changes: [Change<'_>; 4] =
        [(&|_| {}, let_in), (&delete, refused), (&again, refused), (&|node| define(node, "other", &[]), refused)];
    for (number, (change, expected)) in changes.into_iter().enumerate() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut node = node(folder.path());
        let client = node.connect_to(rules(None));
        assert_eq!(handshake(&mut node, client, "PLAIN"), 0);
        send_token(&mut node, client, b"\0alice\0wonder");
        let events = node.arrived(1);
        change(&node);
        node.hand_out(events);
        node.advance(DELAY);
        let (_, body) = node.answer(client);
        assert_eq!(told(body).error_code, expected, "change {number}");
        node.stop();
    }
}

fn ask(node: &mut Node, client: usize) -> Result<(), CloseReason> {
    node.send(client, METADATA, 3, |writer| MetadataRequest::default().encode(writer, METADATA.1))
}

#[test]
fn a_password_is_verified_elsewhere_and_nothing_is_read_meanwhile() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = node(folder.path());
    let client = node.connect_to(rules(None));
    assert!(!node.session(client).is_known());
    assert!(
        node.session(client).check_frame_length(1001).is_err() && node.session(client).check_frame_length(1000).is_ok()
    );
    assert_eq!(handshake(&mut node, client, "PLAIN"), 0);
    send_token(&mut node, client, b"\0alice\0wonder");
    assert!(!node.session(client).wants_read(), "who it is comes first");
    let (_, body) = node.answer(client);
    let answer = told(body);
    assert_eq!((answer.error_code, answer.session_lifetime_ms), (0, 0));
    assert!(node.session(client).is_known() && node.session(client).wants_read());
    assert!(node.session(client).check_frame_length(1001).is_ok());
    ask(&mut node, client).expect("served");
    assert_eq!(node.answer(client).0, 3);
    assert_eq!(handshake(&mut node, client, "PLAIN"), ErrorCode::IllegalSaslState.code());
    node.stop();
}

#[test]
fn a_refusal_comes_late_and_ends_the_connection() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = node(folder.path());
    for token in [&b"\0alice\0wander"[..], b"\0nobody\0wonder", b"", b"bob\0alice\0wonder"] {
        let client = node.connect_to(rules(None));
        assert_eq!(handshake(&mut node, client, "PLAIN"), 0);
        send_token(&mut node, client, token);
        // Until the password was looked at there is no time at which it is answered.
        while node.timeout(client).is_none_or(|left| left > DELAY) {
            std::thread::sleep(Duration::from_millis(1));
            assert!(node.poll(client).is_none());
        }
        node.advance(DELAY - Duration::from_millis(1));
        assert!(node.poll(client).is_none() && node.refusal(client).is_none());
        node.advance(Duration::from_millis(1));
        let answer = told(node.answer(client).1);
        assert_eq!(answer.error_code, ErrorCode::SaslAuthenticationFailed.code());
        let reason = node.refusal(client).expect("it ends");
        assert!(matches!(reason, CloseReason::Login { mechanism: "PLAIN", .. }), "{reason}");
        assert!(!reason.to_string().contains("wander"));
        assert!(
            node.session(client).is_idle() && !node.session(client).wants_read() && !node.session(client).is_known()
        );
    }
    node.stop();
}

#[test]
fn who_does_not_say_who_he_is_goes() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = node(folder.path());
    let silent = node.connect_to(rules(None));
    let half = node.connect_to(rules(None));
    assert_eq!(handshake(&mut node, half, "SCRAM-SHA-256"), 0);
    node.advance(Duration::from_secs(9));
    assert!(node.refusal(silent).is_none() && node.refusal(half).is_none());
    node.advance(Duration::from_secs(1));
    for client in [silent, half] {
        assert!(matches!(node.refusal(client), Some(CloseReason::Late)));
        assert!(node.session(client).is_idle());
    }
    let hasty = node.connect_to(rules(None));
    assert!(matches!(ask(&mut node, hasty), Err(CloseReason::Unexpected(3))));
    node.stop();
}

#[test]
fn a_session_ends_unless_its_user_renews_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = node(folder.path());
    let login = |node: &mut Node, client, token: &[u8]| {
        assert_eq!(handshake(node, client, "PLAIN"), 0);
        send_token(node, client, token);
    };
    let client = node.connect_to(rules(Some(SESSION)));
    login(&mut node, client, b"\0alice\0wonder");
    assert_eq!(told(node.answer(client).1).session_lifetime_ms, 60_000);
    node.advance(SESSION - Duration::from_secs(1));
    login(&mut node, client, b"\0alice\0wonder");
    assert_eq!(told(node.answer(client).1).error_code, 0);
    node.advance(SESSION);
    ask(&mut node, client).expect("it was renewed");
    assert_eq!(node.answer(client).0, 3);
    node.advance(Duration::from_millis(1));
    assert!(matches!(ask(&mut node, client), Err(CloseReason::SessionOver)));

    let client = node.connect_to(rules(Some(SESSION)));
    login(&mut node, client, b"\0alice\0wonder");
    assert_eq!(told(node.answer(client).1).error_code, 0);
    login(&mut node, client, b"\0bob\0wonder");
    while node.timeout(client).is_none_or(|left| left > DELAY) {
        std::thread::sleep(Duration::from_millis(1));
        assert!(node.poll(client).is_none());
    }
    node.advance(DELAY);
    assert_eq!(told(node.answer(client).1).error_code, ErrorCode::SaslAuthenticationFailed.code(), "another user");
    assert!(node.refusal(client).is_some());
    node.stop();
}

#[test]
fn who_is_deleted_is_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = node(folder.path());
    let client = node.connect_to(rules(None));
    assert_eq!(handshake(&mut node, client, "PLAIN"), 0);
    send_token(&mut node, client, b"\0bob\0wonder");
    assert_eq!(told(node.answer(client).1).error_code, 0);
    assert_eq!(node.broker().security().seats().of_user("bob"), 1);
    node.broker().delete_user("bob").expect("deleted");
    assert!(node.poll(client).is_none());
    assert!(
        matches!(node.refusal(client), Some(CloseReason::Dismissed(reason)) if reason.contains("'bob' is deleted"))
    );
    node.close(client);
    node.stop();
}
