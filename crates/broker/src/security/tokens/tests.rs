//! Tokens that an authority of the test's own signs, good ones and bad ones; sets of keys.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
use serde_json::json;

use super::*;
use crate::security::UserLimits;

const NOW_MS: i64 = 1_700_000_000_000;
const HERE: &str = "127.0.0.1:4";
const ELSEWHERE: &str = "192.0.2.1:4";

fn base64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Signs by ES256.
struct Authority {
    id: &'static str,
    pair: EcdsaKeyPair,
}

impl Authority {
    fn new(id: &'static str) -> Self {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).expect("a key");
        let pair =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref(), &random).expect("a key");
        Self { id, pair }
    }

    fn key(&self) -> Value {
        let point = self.pair.public_key().as_ref();
        json!({"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": self.id, "x": base64(&point[1..33]), "y": base64(&point[33..])})
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        let message = format!("{}.{}", base64(header.to_string()), base64(claims.to_string()));
        let signature = self.pair.sign(&SystemRandom::new(), message.as_bytes()).expect("a signature");
        format!("{message}.{}", base64(signature))
    }

    /// A token about alice with these claims instead of good ones; null takes one away.
    fn token(&self, changes: Value) -> String {
        let mut claims = json!({"sub": "alice", "iss": "authority", "aud": "broker", "iat": NOW_MS / 1000, "exp": NOW_MS / 1000 + 60});
        for (name, value) in changes.as_object().expect("claims") {
            match value {
                Value::Null => drop(claims.as_object_mut().expect("claims").remove(name)),
                value => claims[name] = value.clone(),
            }
        }
        self.sign(&json!({"alg": "ES256", "typ": "JWT", "kid": self.id}), &claims)
    }
}

fn set(keys: &[Value]) -> TokenKeys {
    TokenKeys::parse(json!({ "keys": keys }).to_string().as_bytes()).expect("a set")
}

fn security(wishes: &[(&str, &str)], keys: &[Value]) -> Security {
    let mut settings = Settings::default();
    let usual = [
        ("sasl.oauthbearer.expected.issuer", "authority"),
        ("sasl.oauthbearer.expected.audience", "other, broker"),
        ("mainstem.login.failures", "3"),
    ];
    for (name, value) in usual.iter().chain(wishes) {
        settings.set(name, value).expect("a setting");
    }
    let security = Security::new(&settings);
    security.tokens().put_keys(set(keys));
    security
}

fn login(security: &Security, token: &str) -> Result<(String, i64), TokenRefused> {
    let outcome = security.authenticate_by_token(token, HERE.parse().expect("an address"), NOW_MS);
    outcome.map(|login| (login.user.name().to_owned(), login.expires_ms)).map_err(|refusal| refusal.reason)
}

#[test]
fn a_good_token_says_who_it_is_and_how_long() {
    let authority = Authority::new("one");
    let security = security(&[], &[authority.key()]);
    let until = NOW_MS + 60_000;
    assert_eq!(login(&security, &authority.token(json!({}))), Ok(("alice".to_owned(), until)));
    for changes in [
        json!({"aud": ["x", "broker"]}),
        json!({"scope": "a b"}),
        json!({"scope": ["a", "b"]}),
        json!({"nbf": NOW_MS / 1000 + 30}),
    ] {
        assert_eq!(login(&security, &authority.token(changes.clone())), Ok(("alice".to_owned(), until)), "{changes}");
    }
    let without_id = authority.sign(
        &json!({"alg": "ES256"}),
        &json!({"sub": "bob", "iss": "authority", "aud": "broker", "iat": 1, "exp": NOW_MS / 1000}),
    );
    assert_eq!(login(&security, &without_id), Ok(("bob".to_owned(), NOW_MS)), "within the skew");
}

#[test]
fn a_bad_token_is_refused_for_what_is_wrong_with_it() {
    let authority = Authority::new("one");
    let security = security(&[], &[authority.key()]);
    let claim = |name: &str| TokenRefused::Claim(name.to_owned());
    let seconds = NOW_MS / 1000;
    for (changes, expected) in [
        (json!({"exp": seconds - 30}), TokenRefused::Expired),
        (json!({"exp": null}), claim("exp")),
        (json!({"exp": "soon"}), claim("exp")),
        (json!({"exp": 1e300}), claim("exp")),
        (json!({"iat": null}), claim("iat")),
        (json!({"nbf": seconds + 31}), TokenRefused::Early),
        (json!({"nbf": "now"}), claim("nbf")),
        (json!({"iss": "another"}), TokenRefused::Issuer("another".to_owned())),
        (json!({"iss": null}), claim("iss")),
        (json!({"iss": ["authority"]}), claim("iss")),
        (json!({"aud": "x"}), TokenRefused::Audience("x".to_owned())),
        (json!({"aud": []}), TokenRefused::Audience(String::new())),
        (json!({"aud": null}), TokenRefused::Audience(String::new())),
        (json!({"aud": 5}), claim("aud")),
        (json!({"sub": null}), claim("sub")),
        (json!({"sub": " "}), claim("sub")),
        (json!({"sub": 5}), claim("sub")),
        (json!({"exp": -1}), claim("exp")),
        (json!({"exp": true}), claim("exp")),
        (json!({"sub": "x".repeat(256)}), claim("sub")),
        (json!({"scope": ["a", "a"]}), claim("scope")),
        (json!({"scope": [1]}), claim("scope")),
    ] {
        assert_eq!(login(&security, &authority.token(changes.clone())), Err(expected), "{changes}");
    }
    for changes in [
        json!({"sub": ["alice"]}),
        json!({"sub": {"name": "alice"}}),
        json!({"aud": ["broker", 5]}),
        json!({"aud": {"broker": true}}),
        json!({"exp": [1]}),
    ] {
        let refused = login(&security, &authority.token(changes.clone()));
        assert!(matches!(refused, Err(TokenRefused::Malformed | TokenRefused::Claim(_))), "{changes}: {refused:?}");
    }
}

#[test]
fn who_is_not_the_authority_signs_nothing() {
    let (authority, other) = (Authority::new("one"), Authority::new("one"));
    let security = security(&[("mainstem.login.failures", "0")], &[authority.key()]);
    assert_eq!(login(&security, &other.token(json!({}))), Err(TokenRefused::Signature));
    let good = authority.token(json!({}));
    let (message, signature) = good.rsplit_once('.').expect("three parts");
    let claims = message.split_once('.').expect("two").1;
    for algorithm in ["none", "None", "ES512", "x"] {
        let header = base64(json!({ "alg": algorithm }).to_string());
        for signature in ["", signature] {
            assert_eq!(
                login(&security, &format!("{header}.{claims}.{signature}")),
                Err(TokenRefused::Malformed),
                "{algorithm}"
            );
        }
    }
    // Whoever knows the public key could make this one.
    let header = base64(json!({"alg": "HS256", "kid": "one"}).to_string());
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, authority.pair.public_key().as_ref());
    let forged = format!("{header}.{claims}");
    let forged = format!("{forged}.{}", base64(ring::hmac::sign(&key, forged.as_bytes())));
    assert_eq!(login(&security, &forged), Err(TokenRefused::Algorithm("HS256".to_owned())));
    let odd = authority.sign(&json!({"alg": "ES256", "kid": "one", "crit": ["x"], "x": 1}), &json!({"sub": "alice"}));
    assert_eq!(login(&security, &odd), Err(TokenRefused::Algorithm("extension \"x\"".to_owned())));
    let rsa = authority.sign(&json!({"alg": "RS256", "kid": "one"}), &json!({"sub": "alice"}));
    assert_eq!(
        login(&security, &rsa),
        Err(TokenRefused::UnknownKey("one".to_owned())),
        "the key is for another algorithm"
    );
    for text in ["", ".", "..", "a.b", "a.b.c", message, &format!("{good}.x"), &format!("{good}="), &"x".repeat(30_000)]
    {
        assert_eq!(login(&security, text), Err(TokenRefused::Malformed), "{text}");
    }
    for at in 0..good.len() {
        let mut damaged = good.clone().into_bytes();
        damaged[at] = if damaged[at] == b'A' { b'B' } else { b'A' };
        let damaged = String::from_utf8(damaged).expect("letters");
        // The last letter of base64 has bits that say nothing.
        assert!(login(&security, &damaged).is_err() || at == good.len() - 1, "{at}");
    }
}

#[test]
fn forged_tokens_are_guesses_and_expired_ones_are_not() {
    let (authority, other) = (Authority::new("one"), Authority::new("one"));
    let security = security(&[], &[authority.key()]);
    let good = authority.token(json!({}));
    for _ in 0..10 {
        assert_eq!(login(&security, &authority.token(json!({"exp": 1}))), Err(TokenRefused::Expired));
    }
    for _ in 0..3 {
        assert_eq!(login(&security, &other.token(json!({}))), Err(TokenRefused::Signature));
    }
    assert_eq!(login(&security, &good), Err(TokenRefused::Throttled));
    assert!(login(&security, &authority.token(json!({"sub": "bob"}))).is_ok(), "another name");
    assert!(
        security.authenticate_by_token(&good, ELSEWHERE.parse().expect("an address"), NOW_MS).is_ok(),
        "another address"
    );
}

#[test]
fn keys_are_wanted_when_a_token_names_one_that_is_not_there() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let security = security(&[], &[old.key()]);
    assert!(login(&security, &old.token(json!({}))).is_ok() && !security.tokens().take_wanted());
    assert_eq!(login(&security, &new.token(json!({}))), Err(TokenRefused::UnknownKey("new".to_owned())));
    assert!(security.tokens().take_wanted() && !security.tokens().take_wanted());
    security.tokens().put_keys(set(&[new.key()]));
    assert!(login(&security, &new.token(json!({}))).is_ok());
    assert_eq!(
        login(&security, &old.token(json!({}))),
        Err(TokenRefused::UnknownKey("old".to_owned())),
        "it is no longer in force"
    );
    let fresh = Security::new(&Settings::default());
    assert_eq!(login(&fresh, &old.token(json!({}))), Err(TokenRefused::NoKeys));
    assert!(fresh.tokens().take_wanted() && !fresh.tokens().are_taken());
}

#[test]
fn the_user_is_that_of_the_catalog_or_one_without_rights() {
    let authority = Authority::new("one");
    let security = security(&[("sasl.oauthbearer.sub.claim.name", "user")], &[authority.key()]);
    let admin = User::new("root".to_owned(), None, vec!["administrator".to_owned()], UserLimits::default());
    security.change(|inner| drop(inner.users.insert("root".to_owned(), Arc::new(admin))));
    let tags = |name: &str, peer: &str| {
        let outcome = security.authenticate_by_token(
            &authority.token(json!({ "user": name })),
            peer.parse().expect("an address"),
            NOW_MS,
        );
        outcome.map(|login| login.user.tags().len()).map_err(|refusal| refusal.reason)
    };
    assert_eq!((tags("root", ELSEWHERE), tags("alice", ELSEWHERE), tags("guest", HERE)), (Ok(1), Ok(0), Ok(0)));
    assert_eq!(tags("guest", ELSEWHERE), Err(TokenRefused::NotLocal));
    let refusal = security.authenticate_by_token(
        &authority.token(json!({"user": "é".repeat(200)})),
        HERE.parse().expect("an address"),
        NOW_MS,
    );
    assert_eq!(refusal.err().map(|refusal| refusal.name), Some("é".repeat(127)), "what the log shows is short");
}

#[test]
fn a_token_may_stand_in_the_place_of_a_password() {
    let authority = Authority::new("one");
    let token = authority.token(json!({}));
    let security = security(&[("sasl.oauthbearer.jwks.endpoint.url", "file:///keys")], &[authority.key()]);
    assert_eq!(security.tokens().in_place_of(token.as_bytes()), Some(token.as_str()));
    for password in ["", "secret", "eyJ", "eyJ.x", "eyJ.x.y.z", "xeyJ.x.y"] {
        assert_eq!(security.tokens().in_place_of(password.as_bytes()), None, "{password}");
    }
    assert_eq!(Security::new(&Settings::default()).tokens().in_place_of(token.as_bytes()), None, "no tokens are taken");
}

#[test]
fn of_a_set_the_keys_that_verify_are_taken() {
    let authority = Authority::new("one");
    let change = |name: &str, value: Value| {
        let mut key = authority.key();
        key[name] = value;
        key
    };
    let random = SystemRandom::new();
    let edwards =
        Ed25519KeyPair::from_pkcs8(Ed25519KeyPair::generate_pkcs8(&random).expect("a key").as_ref()).expect("a key");
    let edwards_key = json!({"kty": "OKP", "crv": "Ed25519", "kid": "two", "x": base64(edwards.public_key())});
    let rsa = |bytes: usize| json!({"kty": "RSA", "n": base64([&[0][..], &vec![1; bytes]].concat()), "e": "AQAB"});
    for (key, count) in [
        (authority.key(), 1),
        (edwards_key.clone(), 1),
        (rsa(256), 1),
        (rsa(255), 0),
        (rsa(1025), 0),
        (change("use", json!("enc")), 0),
        (change("key_ops", json!(["sign"])), 0),
        (change("alg", json!("RS256")), 0),
        (change("alg", json!("HS256")), 0),
        (change("alg", json!("ECDH-ES")), 0),
        (change("crv", json!("P-521")), 0),
        (change("kty", json!("XYZ")), 0),
        (change("x", json!("*")), 0),
        (json!({"kty": "oct", "k": "c2VjcmV0", "alg": "HS256"}), 0),
        (json!(5), 0),
    ] {
        let all = json!({"keys": [key, authority.key()]}).to_string();
        assert_eq!(TokenKeys::parse(all.as_bytes()).map(|keys| keys.count()).ok(), Some(count + 1), "{all}");
    }
    let security = security(&[], &[edwards_key]);
    let message =
        format!("{}.{}", base64(r#"{"alg":"EdDSA"}"#), authority.token(json!({})).split('.').nth(1).expect("claims"));
    let token = format!("{message}.{}", base64(edwards.sign(message.as_bytes())));
    assert!(login(&security, &token).is_ok());
    let refused = |text: &str| TokenKeys::parse(text.as_bytes()).err().expect("no set").to_string();
    assert!(refused("<html>").starts_with("it is no JSON Web Key Set: "));
    assert_eq!(refused("{}"), "it is no JSON Web Key Set: it has no list \"keys\"");
    assert!(refused(r#"{"keys":[{"kty":"oct","k":"AA"}]}"#).starts_with("none of its 1 keys verifies"));
    assert_eq!(refused(&json!({"keys": vec![5; 1001]}).to_string()), "it has 1001 keys, at most 1000 are taken");
}

#[test]
fn keys_that_share_an_id_or_have_none_are_tried_and_odd_documents_are_not() {
    let (first, second) = (Authority::new("one"), Authority::new("one"));
    let twins = security(&[], &[first.key(), second.key()]);
    assert!([&first, &second].iter().all(|authority| login(&twins, &authority.token(json!({}))).is_ok()));
    let mut nameless = first.key();
    nameless.as_object_mut().expect("a key").remove("kid");
    let without = security(&[], &[nameless]);
    let claims = json!({"sub": "bob", "iss": "authority", "aud": "broker", "iat": 1, "exp": NOW_MS / 1000});
    assert!(login(&without, &first.sign(&json!({"alg": "ES256"}), &claims)).is_ok());
    assert_eq!(
        login(&without, &first.token(json!({}))),
        Err(TokenRefused::UnknownKey("one".to_owned())),
        "it names another"
    );
    let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    for text in [
        deep.clone(),
        format!("{{\"keys\":{deep}}}"),
        format!("{{\"keys\":[{deep}]}}"),
        r#"{"keys":{}}"#.to_owned(),
        "\u{feff}{}".to_owned(),
        String::new(),
    ] {
        assert!(TokenKeys::parse(text.as_bytes()).is_err());
    }
    // The header of a token may be as odd as its maker likes.
    let message = |header: &str| format!("{}.{}", base64(header), base64(claims.to_string()));
    for header in [
        format!("{{\"alg\":\"ES256\",\"x\":{deep}}}"),
        r#"{"alg":"none","alg":"ES256"}"#.to_owned(),
        r#"{"alg":["ES256"]}"#.to_owned(),
        "[]".to_owned(),
        r#"{"alg":"ES256","kid":5}"#.to_owned(),
    ] {
        let token = format!(
            "{}.{}",
            message(&header),
            base64(first.pair.sign(&SystemRandom::new(), message(&header).as_bytes()).expect("a signature"))
        );
        assert_eq!(login(&without, &token), Err(TokenRefused::Malformed), "{}", &header[..header.len().min(40)]);
    }
}
