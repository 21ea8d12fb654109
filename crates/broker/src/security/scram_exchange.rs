//! The server's side of SCRAM (RFC 5802 §5) as a state machine: two messages of the client, two answers. Neither takes longer than some
//! microseconds, so it may run on a network thread. Of a name that nobody has the salt is made up, always the same, of a length and with
//! iterations as users have them, so that only the end tells that the login was refused.
//!
//! ```text
//! client  gs2-header "n=" name ",r=" nonce extensions        gs2-header: "n," or "y,", [ "a=" name ], ","
//! server  "r=" nonce of both ",s=" salt ",i=" iterations
//! client  "c=" gs2-header ",r=" nonce of both extensions ",p=" proof
//! server  "v=" signature
//! ```
//! Salt, header, proof and signature are base64; in names `,` and `=` are `=2C` and `=3D`. Channel bindings are not offered: who wants one (`p=`) is
//! refused. An extension is letters, `=` and a value; `m` is for those that have to be understood, and none is.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::rand::{SecureRandom, SystemRandom};

use super::Security;
use super::scram::{ScramCredential, ScramMechanism};
use super::user::{NAME_BYTES_MAX, User};

/// Random bytes of the server's nonce.
const NONCE_BYTES: usize = 24;
/// Letters of the client's.
const NONCE_LETTERS_MAX: usize = 1024;

/// Why an exchange ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScramRefused {
    /// A message that is none.
    #[error("the message is not understood")]
    Malformed,
    /// Somebody wants to act for another.
    #[error("Authentication failed: Client requested an authorization id that is different from username")]
    OtherName,
    /// No such user, no keys of his, or the wrong proof.
    #[error("invalid credentials")]
    Credentials,
}

/// An exchange of which the first half is done.
pub struct ScramExchange {
    /// As claimed.
    name: String,
    /// `None`: nobody is, so nobody can prove that he is.
    user: Option<Arc<User>>,
    credential: ScramCredential,
    /// Both nonces.
    nonce: String,
    /// What the client has to repeat.
    header: String,
    /// `client-first-message-bare "," server-first-message`
    said: String,
}

/// The parts of the client's first message.
struct First<'a> {
    header: &'a str,
    bare: &'a str,
    name: String,
    authorization: Option<String>,
    nonce: &'a str,
}

fn is_nonce(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= NONCE_LETTERS_MAX
        && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',')
}

/// A name with its escapes resolved; `None`: it is none.
fn name_of(text: &str) -> Option<String> {
    let mut parts = text.split('=');
    let mut name = parts.next()?.to_owned();
    for part in parts {
        let (letter, rest) =
            part.strip_prefix("2C").map(|rest| (',', rest)).or_else(|| Some(('=', part.strip_prefix("3D")?)))?;
        name.push(letter);
        name.push_str(rest);
    }
    Some(name).filter(|name| !name.is_empty() && name.len() <= NAME_BYTES_MAX)
}

impl<'a> First<'a> {
    fn parse(message: &'a [u8]) -> Option<Self> {
        let text = std::str::from_utf8(message).ok()?;
        let mut parts = text.splitn(3, ',');
        let (binding, authorization, bare) = (parts.next()?, parts.next()?, parts.next()?);
        matches!(binding, "n" | "y").then_some(())?;
        let authorization = match authorization {
            "" => None,
            named => Some(name_of(named.strip_prefix("a=")?)?),
        };
        // An extension that has to be understood would stand before the name.
        let mut fields = bare.split(',');
        let name = name_of(fields.next()?.strip_prefix("n=")?)?;
        let nonce = fields.next()?.strip_prefix("r=").filter(|nonce| is_nonce(nonce))?;
        fields.all(is_extension).then_some(())?;
        Some(Self { header: &text[..text.len() - bare.len()], bare, name, authorization, nonce })
    }
}

/// An extension that may be passed over. Whoever sends `m` says that it may not (RFC 5802 §5.1).
fn is_extension(text: &str) -> bool {
    let name = text.split_once('=').filter(|(_, value)| !value.is_empty()).map(|(name, _)| name);
    name.is_some_and(|name| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphabetic()) && name != "m")
}

impl ScramExchange {
    /// Takes the client's first message; what is to be answered stands beside.
    ///
    /// # Errors
    /// `Malformed`, `OtherName`.
    pub fn begin(
        security: &Security,
        mechanism: ScramMechanism,
        message: &[u8],
    ) -> Result<(Self, String), ScramRefused> {
        let First { header, bare, name, authorization, nonce } =
            First::parse(message).ok_or(ScramRefused::Malformed)?;
        if authorization.is_some_and(|other| other != name) {
            return Err(ScramRefused::OtherName);
        }
        let mut random = [0; NONCE_BYTES];
        SystemRandom::new().fill(&mut random).expect("the system has random numbers");
        let nonce = format!("{nonce}{}", STANDARD.encode(random));
        let user = security.user(&name).filter(|user| user.scram().get(mechanism).is_some());
        let known = user.as_ref().and_then(|user| user.scram().get(mechanism)).cloned();
        let credential = known.unwrap_or_else(|| security.scram_of_nobody(mechanism, &name));
        let (salt, iterations) = (STANDARD.encode(credential.salt()), credential.iterations());
        let answer = format!("r={nonce},s={salt},i={iterations}");
        let said = format!("{bare},{answer}");
        Ok((Self { name, user, credential, nonce, header: STANDARD.encode(header), said }, answer))
    }

    /// Who he says he is.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Takes the client's last message: who he is, and what is to be answered. A client may take its time, and the user may be gone, or have another password,
    /// since it began.
    ///
    /// # Errors
    /// `Malformed`, `Credentials`.
    pub fn finish(self, security: &Security, message: &[u8]) -> Result<(Arc<User>, String), ScramRefused> {
        let text = std::str::from_utf8(message).map_err(|_| ScramRefused::Malformed)?;
        let (without_proof, proof) = text.rsplit_once(",p=").ok_or(ScramRefused::Malformed)?;
        let proof = STANDARD.decode(proof).map_err(|_| ScramRefused::Malformed)?;
        let mut fields = without_proof.split(',');
        let header = fields.next().and_then(|field| field.strip_prefix("c=")).ok_or(ScramRefused::Malformed)?;
        let nonce = fields.next().and_then(|field| field.strip_prefix("r=")).ok_or(ScramRefused::Malformed)?;
        // Some releases of librdkafka put their own nonce before both once more. Kafka took that until 3.7; ours is still at its end, and the
        // proof covers it, so nothing old can be said again.
        if header != self.header || !nonce.ends_with(&self.nonce) || !fields.all(is_extension) {
            return Err(ScramRefused::Malformed);
        }
        let said = format!("{},{without_proof}", self.said);
        let signature = self.credential.verify_proof(said.as_bytes(), &proof);
        let (user, signature) = self.user.zip(signature).ok_or(ScramRefused::Credentials)?;
        let user = security.still_is(&user).ok_or(ScramRefused::Credentials)?;
        Ok((user, format!("v={}", STANDARD.encode(signature))))
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::super::scram::ScramCredentials;
    use super::super::user::UserLimits;
    use super::*;
    use crate::Settings;

    fn security(name: &str, password: &str) -> Security {
        let security = Security::new(&Settings::default());
        let scram = ScramCredentials::of(&[ScramMechanism::Sha256], password.as_bytes());
        let user = Arc::new(User::new(name.to_owned(), None, Vec::new(), UserLimits::default()).with_scram(scram));
        security.change(|inner| drop(inner.users.insert(name.to_owned(), user)));
        security
    }

    /// The client's side, as the standard has it.
    fn prove(bare: &str, server_first: &str, password: &str) -> String {
        prove_with(("", ""), bare, server_first, password)
    }

    /// As above, with something before both nonces and behind them.
    fn prove_with((before, behind): (&str, &str), bare: &str, server_first: &str, password: &str) -> String {
        use ring::{digest, hmac, pbkdf2};
        let field = |at: usize| &server_first.split(',').nth(at).expect("a field")[2..];
        let (nonce, salt) = (field(0), STANDARD.decode(field(1)).expect("base64"));
        let iterations = NonZeroU32::new(field(2).parse().expect("a number")).expect("not 0");
        let mut salted = [0; 32];
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, iterations, &salt, password.as_bytes(), &mut salted);
        let mac = |key: &[u8], text: &[u8]| hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text);
        let client_key = mac(&salted, b"Client Key");
        let stored = digest::digest(&digest::SHA256, client_key.as_ref());
        let without_proof = format!("c=biws,r={before}{nonce}{behind}");
        let signature = mac(stored.as_ref(), format!("{bare},{server_first},{without_proof}").as_bytes());
        let proof: Vec<u8> =
            client_key.as_ref().iter().zip(signature.as_ref()).map(|(one, other)| one ^ other).collect();
        format!("{without_proof},p={}", STANDARD.encode(proof))
    }

    fn begin(security: &Security, message: &str) -> Result<(ScramExchange, String), ScramRefused> {
        ScramExchange::begin(security, ScramMechanism::Sha256, message.as_bytes())
    }

    #[test]
    fn who_knows_the_password_comes_in_and_nobody_else() {
        let security = security("a,b=c", "secret");
        for (name, password, expected) in
            [("a=2Cb=3Dc", "secret", true), ("a=2Cb=3Dc", "Secret", false), ("nobody", "secret", false)]
        {
            let bare = format!("n={name},r=abc");
            let (exchange, answer) = begin(&security, &format!("n,,{bare}")).expect("a first message");
            assert!(answer.starts_with("r=abc"));
            let outcome = exchange.finish(&security, prove(&bare, &answer, password).as_bytes());
            assert_eq!(outcome.as_ref().err(), (!expected).then_some(&ScramRefused::Credentials), "{name}");
            assert!(
                outcome.is_err() || outcome.is_ok_and(|(user, last)| user.name() == "a,b=c" && last.starts_with("v="))
            );
        }
    }

    /// What happens meanwhile, and whether who began comes in.
    type Change<'a> = (&'a dyn Fn(&Security), bool);

    #[test]
    fn an_exchange_ends_with_the_keys_that_it_began_with() {
        let define = |security: &Security, password: &str, tags: &[&str]| {
            let scram = ScramCredentials::of(&[ScramMechanism::Sha256], password.as_bytes());
            let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
            let user = Arc::new(User::new("bob".to_owned(), None, tags, UserLimits::default()).with_scram(scram));
            security.change(|inner| drop(inner.users.insert("bob".to_owned(), user)));
        };
        let again = |security: &Security| {
            let same = Arc::new(security.user("bob").expect("he is there").again());
            security.change(|inner| drop(inner.users.insert("bob".to_owned(), same)));
        };
        let changes: [Change<'_>; 5] = [
            (&|_| {}, true),
            (&again, true),
            (&|security| security.change(|inner| drop(inner.users.remove("bob"))), false),
            (&|security| define(security, "other", &[]), false),
            (&|security| define(security, "secret", &["administrator"]), false),
        ];
        for (number, (change, expected)) in changes.into_iter().enumerate() {
            let security = security("bob", "secret");
            let (exchange, answer) = begin(&security, "n,,n=bob,r=abc").expect("a first message");
            let last = prove("n=bob,r=abc", &answer, "secret");
            change(&security);
            assert_eq!(exchange.finish(&security, last.as_bytes()).is_ok(), expected, "change {number}");
        }
    }

    #[test]
    fn a_nonce_that_the_client_says_twice_is_taken() {
        let security = security("bob", "secret");
        let bare = "n=bob,r=abc";
        let finish = |change: &dyn Fn(&str) -> String| {
            let (exchange, answer) = begin(&security, &format!("n,,{bare}")).expect("a first message");
            exchange.finish(&security, change(&answer).as_bytes()).map(|(user, _)| user.name().to_owned())
        };
        assert_eq!(finish(&|answer| prove_with(("abc", ""), bare, answer, "secret")).as_deref(), Ok("bob"));
        assert_eq!(finish(&|answer| prove_with(("abc", ""), bare, answer, "Secret")), Err(ScramRefused::Credentials));
        // The proof is about what was said, and both nonces come last.
        assert_eq!(
            finish(&|answer| prove(bare, answer, "secret").replacen("r=abc", "r=abcabc", 1)),
            Err(ScramRefused::Credentials)
        );
        assert_eq!(
            finish(&|answer| prove(bare, &answer.replacen(",s=", "x,s=", 1), "secret")),
            Err(ScramRefused::Malformed)
        );
    }

    #[test]
    fn a_name_that_nobody_has_looks_like_any_other() {
        let security = security("bob", "secret");
        let salt = |name: &str| {
            begin(&security, &format!("n,,n={name},r=x"))
                .expect("a message")
                .1
                .split_once(",s=")
                .expect("a salt")
                .1
                .to_owned()
        };
        assert_eq!(salt("eve"), salt("eve"));
        assert_ne!(salt("eve"), salt("mallory"));
        assert_eq!(salt("eve").len(), salt("bob").len());
        assert!(salt("eve").ends_with(",i=8192") && salt("bob").ends_with(",i=8192"));
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let security = security("bob", "secret");
        for text in [
            "",
            "n",
            "n,,",
            "n,,n=bob",
            "p=tls-unique,,n=bob,r=x",
            "n,,m=x,n=bob,r=x",
            "n,,n=,r=x",
            "n,,n=b=2,r=x",
            "n,,n=bob,r=",
            "n,b=x,n=bob,r=x",
            "n,,n=bob,r=x,y",
            "n,,n=bob,r=\u{7f}",
            "n,,n=bob,r=x,m=y",
            "n,,n=bob,r=x,t=",
            "n,,n=bob,r=x,=y",
            "n,,n=bob,r=x,t1=y",
        ] {
            assert_eq!(begin(&security, text).err(), Some(ScramRefused::Malformed), "{text:?}");
        }
        assert_eq!(begin(&security, "n,a=eve,n=bob,r=x").err(), Some(ScramRefused::OtherName));
        assert!(
            begin(&security, "y,a=bob,n=bob,r=x,t=true").is_ok()
                && begin(&security, "n,,n=bob,r=x,tokenauth=true").is_ok()
        );
        let long = format!("n,,n={},r=x", "b".repeat(256));
        assert_eq!(begin(&security, &long).err(), Some(ScramRefused::Malformed));
        let bare = "n=bob,r=x";
        for damage in ["c=eSws", "r=x"] {
            let (exchange, answer) = begin(&security, "n,,n=bob,r=x").expect("a message");
            let right = prove(bare, &answer, "secret");
            let wrong = if damage.starts_with('c') {
                right.replacen("c=biws", damage, 1)
            } else {
                right.replacen("r=x", "r=y", 1)
            };
            assert_eq!(exchange.finish(&security, wrong.as_bytes()).err(), Some(ScramRefused::Malformed), "{wrong}");
        }
        let (exchange, answer) = begin(&security, "n,,n=bob,r=x").expect("a message");
        let more = prove_with(("", ",m=y"), bare, &answer, "secret");
        assert_eq!(
            exchange.finish(&security, more.as_bytes()).err(),
            Some(ScramRefused::Malformed),
            "an extension that has to be understood"
        );
        let (exchange, answer) = begin(&security, "n,,n=bob,r=x").expect("a message");
        assert!(
            exchange.finish(&security, prove_with(("", ",t=y"), bare, &answer, "secret").as_bytes()).is_ok(),
            "one that may be passed over"
        );
        for text in ["", "c=biws", "c=biws,r=x,p=*"] {
            let (exchange, _) = begin(&security, "n,,n=bob,r=x").expect("a message");
            assert_eq!(exchange.finish(&security, text.as_bytes()).err(), Some(ScramRefused::Malformed), "{text:?}");
        }
    }
}
