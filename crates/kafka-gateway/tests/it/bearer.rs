//! Logins by tokens on sessions: what is answered to good ones and bad ones, how long a session lasts, and who may renew it.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use broker::TokenKeys;
use bytes::Bytes;
use kafka_gateway::{CloseReason, SaslMechanism, SaslRules};
use kafka_wire::metadata::MetadataRequest;
use kafka_wire::sasl_authenticate::{SaslAuthenticateRequest, SaslAuthenticateResponse};
use kafka_wire::sasl_handshake::{SaslHandshakeRequest, SaslHandshakeResponse};
use kafka_wire::{ErrorCode, Reader};
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair};

use crate::node::{Node, flexible};

const HANDSHAKE: (i16, i16) = (17, 1);
const AUTHENTICATE: (i16, i16) = (36, 2);
const METADATA: (i16, i16) = (3, 12);
const DELAY: Duration = Duration::from_millis(100);
const LOGIN_MAX: Duration = Duration::from_secs(10);
const INVALID: &[u8] = b"{\"status\":\"invalid_token\"}";

fn rules(session_max: Option<Duration>) -> Option<Arc<SaslRules>> {
    let mechanisms = vec![SaslMechanism::OauthBearer];
    Some(Arc::new(SaslRules {
        mechanisms,
        session_max,
        request_bytes_max: 10_000,
        login_max: LOGIN_MAX,
        refusal_delay: DELAY,
    }))
}

fn base64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Whoever signs tokens.
struct Authority(Ed25519KeyPair);

impl Authority {
    fn new() -> Self {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("a key");
        Self(Ed25519KeyPair::from_pkcs8(document.as_ref()).expect("a key"))
    }

    fn keys(&self) -> TokenKeys {
        let key = base64(self.0.public_key());
        TokenKeys::parse(format!(r#"{{"keys":[{{"kty":"OKP","crv":"Ed25519","x":"{key}"}}]}}"#).as_bytes())
            .expect("a set")
    }

    /// What a client says first, with a token about somebody that lasts so many seconds from now.
    fn message(&self, node: &Node, name: &str, seconds: i64) -> Vec<u8> {
        let now = node.broker().now_ms() / 1000;
        let claims = format!(r#"{{"sub":"{name}","iat":{now},"exp":{}}}"#, now + seconds);
        let message = format!("{}.{}", base64(r#"{"alg":"EdDSA"}"#), base64(claims));
        format!("n,,\u{1}auth=Bearer {message}.{}\u{1}\u{1}", base64(self.0.sign(message.as_bytes()))).into_bytes()
    }
}

fn node(folder: &std::path::Path) -> (Node, Authority) {
    let (node, authority) = (Node::start(folder, &[]), Authority::new());
    node.broker().security().tokens().put_keys(authority.keys());
    (node, authority)
}

fn handshake(node: &mut Node, client: usize) -> i16 {
    let request = SaslHandshakeRequest { mechanism: "OAUTHBEARER".into(), ..Default::default() };
    node.send(client, HANDSHAKE, 1, |writer| request.encode(writer, HANDSHAKE.1)).expect("taken");
    let (_, body) = node.answer(client);
    SaslHandshakeResponse::decode(&mut Reader::new(body), HANDSHAKE.1).expect("an answer").error_code
}

fn say(node: &mut Node, client: usize, message: &[u8]) {
    let request = SaslAuthenticateRequest { auth_bytes: Bytes::copy_from_slice(message), ..Default::default() };
    node.send(client, AUTHENTICATE, 2, |writer| request.encode(writer, AUTHENTICATE.1)).expect("taken");
}

fn told(node: &mut Node, client: usize) -> SaslAuthenticateResponse {
    let (_, body) = node.answer(client);
    SaslAuthenticateResponse::decode(&mut flexible(AUTHENTICATE, body), AUTHENTICATE.1).expect("an answer")
}

fn login(node: &mut Node, client: usize, message: &[u8]) -> SaslAuthenticateResponse {
    assert_eq!(handshake(node, client), 0);
    say(node, client, message);
    told(node, client)
}

fn ask(node: &mut Node, client: usize) -> Result<(), CloseReason> {
    node.send(client, METADATA, 3, |writer| MetadataRequest::default().encode(writer, METADATA.1))
}

/// The refusal that comes late, and the end of the connection.
fn refused(node: &mut Node, client: usize) -> SaslAuthenticateResponse {
    assert!(node.poll(client).is_none(), "it comes late");
    node.advance(DELAY);
    let answer = told(node, client);
    assert_eq!(answer.error_code, ErrorCode::SaslAuthenticationFailed.code());
    assert!(matches!(node.refusal(client), Some(CloseReason::Login { mechanism: "OAUTHBEARER", .. })));
    answer
}

#[test]
fn a_session_lasts_as_long_as_its_token() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut node, authority) = node(folder.path());
    let client = node.connect_to(rules(None));
    let first = authority.message(&node, "alice", 60);
    let answer = login(&mut node, client, &first);
    assert_eq!((answer.error_code, answer.auth_bytes.len()), (0, 0));
    assert!((50_000..=60_000).contains(&answer.session_lifetime_ms), "{}", answer.session_lifetime_ms);
    assert_eq!(node.broker().security().seats().of_user("alice"), 1, "nobody has defined her");
    node.advance(Duration::from_secs(40));
    let second = authority.message(&node, "alice", 600);
    assert!(login(&mut node, client, &second).session_lifetime_ms > 500_000);
    node.advance(Duration::from_secs(300));
    ask(&mut node, client).expect("it was renewed");
    assert_eq!(node.answer(client).0, 3);
    node.advance(Duration::from_secs(301));
    assert!(matches!(ask(&mut node, client), Err(CloseReason::SessionOver)));

    let short = node.connect_to(rules(Some(Duration::from_secs(30))));
    assert_eq!(login(&mut node, short, &second).session_lifetime_ms, 30_000, "the shorter of both");
    node.stop();
}

#[test]
fn a_bad_token_is_told_first_and_refused_then() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut node, authority) = node(folder.path());
    let (expired, forged) = (authority.message(&node, "alice", -60), Authority::new().message(&node, "alice", 60));
    for (bad, heard) in [
        (&expired, &b"\x01"[..]),
        (&forged, b"\x01"),
        (&expired, b""),
        (&expired, &authority.message(&node, "alice", 60)[..]),
    ] {
        let client = node.connect_to(rules(None));
        let answer = login(&mut node, client, bad);
        assert_eq!((answer.error_code, &answer.auth_bytes[..], answer.session_lifetime_ms), (0, INVALID, 0));
        assert!(!node.session(client).is_known());
        say(&mut node, client, heard);
        let answer = refused(&mut node, client);
        assert_eq!(answer.error_message.as_deref(), std::str::from_utf8(INVALID).ok());
    }
    let good = authority.message(&node, "alice", 60);
    let other = [b"n,a=bob,", &good[3..]].concat();
    for (message, expected) in [
        (&b"\x01"[..], "due to invalid credentials with SASL mechanism OAUTHBEARER"),
        (b"n,,\x01auth=Basic x\x01\x01", "due to invalid credentials with SASL mechanism OAUTHBEARER"),
        (
            &other,
            "Client requested an authorization id (bob) that is different from the token's principal name (alice)",
        ),
    ] {
        let client = node.connect_to(rules(None));
        assert_eq!(handshake(&mut node, client), 0);
        say(&mut node, client, message);
        let answer = refused(&mut node, client);
        assert!(
            answer.error_message.as_deref().is_some_and(|text| text.ends_with(expected)),
            "{:?}",
            answer.error_message
        );
    }
    node.stop();
}

#[test]
fn a_session_is_renewed_by_a_token_of_the_same_user() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut node, authority) = node(folder.path());
    let client = node.connect_to(rules(None));
    let (alice, bob) = (authority.message(&node, "alice", 60), authority.message(&node, "bob", 60));
    assert_eq!(login(&mut node, client, &alice).error_code, 0);
    assert_eq!(handshake(&mut node, client), 0);
    say(&mut node, client, &bob);
    let answer = refused(&mut node, client);
    assert!(
        answer.error_message.is_some_and(|text| text.contains("Cannot change principals during re-authentication"))
    );
    node.stop();
}
