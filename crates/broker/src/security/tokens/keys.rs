//! The keys by which it is seen that a token is genuine: a JSON Web Key Set (RFC 7517), as whoever makes tokens publishes it. Only keys of
//! asymmetric algorithms are taken, for those that `ring` verifies: RSA of 2048 to 8192 bits, the curves P-256 and P-384, Ed25519. Keys for
//! other purposes may stand beside them, and keys of kinds that are not known; they are passed over.

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind};
use serde_json::Value;

/// Keys that a set may have.
pub const TOKEN_KEYS_MAX: usize = 1000;
/// Bytes of the modulus of an RSA key.
const MODULUS_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;

/// A set that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKeys {
    /// Another document.
    #[error("it is no JSON Web Key Set: {0}")]
    Malformed(String),
    /// Nothing could be verified.
    #[error("none of its {0} keys verifies signatures by an algorithm that is taken (RS, PS, ES256, ES384, EdDSA)")]
    Nothing(usize),
    /// More than are taken.
    #[error("it has {0} keys, at most {most} are taken", most = TOKEN_KEYS_MAX)]
    TooMany(usize),
}

/// A key, and what it is for.
struct Key {
    id: Option<String>,
    /// `None`: all of its kind.
    algorithm: Option<Algorithm>,
    key: DecodingKey,
}

/// Keys that tokens are verified by.
pub struct TokenKeys {
    keys: Vec<Key>,
}

fn key(value: &Value) -> Option<Key> {
    let jwk: Jwk = serde_json::from_value(value.clone()).ok()?;
    let common = &jwk.common;
    let signs = common.public_key_use.as_ref().is_none_or(|of| *of == PublicKeyUse::Signature);
    let verifies = common.key_operations.as_ref().is_none_or(|all| all.contains(&KeyOperations::Verify));
    let known = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => true,
        AlgorithmParameters::EllipticCurve(of) => matches!(of.curve, EllipticCurve::P256 | EllipticCurve::P384),
        AlgorithmParameters::OctetKeyPair(of) => of.curve == EllipticCurve::Ed25519,
        _ => false,
    };
    let key = of_right_length(DecodingKey::from_jwk(&jwk).ok().filter(|_| signs && verifies && known)?)?;
    let algorithm = match common.key_algorithm {
        None => None,
        Some(named) => Some(Algorithm::try_from(named).ok().filter(|one| key.family().algorithms().contains(one))?),
    };
    Some(Key { id: common.key_id.clone(), algorithm, key })
}

/// A key as `ring` takes it: numbers of RSA begin with no zero.
fn of_right_length(key: DecodingKey) -> Option<DecodingKey> {
    let DecodingKeyKind::RsaModulusExponent { n, e } = key.kind() else { return Some(key) };
    let short = |number: &[u8]| number.iter().position(|byte| *byte != 0).map(|first| number[first..].to_vec());
    let (n, e) = (short(n)?, short(e)?);
    MODULUS_BYTES.contains(&n.len()).then(|| DecodingKey::from_rsa_raw_components(&n, &e))
}

impl TokenKeys {
    /// Reads a set.
    ///
    /// # Errors
    /// See [`InvalidKeys`].
    pub fn parse(text: &[u8]) -> Result<Self, InvalidKeys> {
        let set: Value = serde_json::from_slice(text).map_err(|error| InvalidKeys::Malformed(error.to_string()))?;
        let all = set
            .get("keys")
            .and_then(Value::as_array)
            .ok_or_else(|| InvalidKeys::Malformed("it has no list \"keys\"".to_owned()))?;
        if all.len() > TOKEN_KEYS_MAX {
            return Err(InvalidKeys::TooMany(all.len()));
        }
        let keys: Vec<Key> = all.iter().filter_map(key).collect();
        if keys.is_empty() { Err(InvalidKeys::Nothing(all.len())) } else { Ok(Self { keys }) }
    }

    /// How many of its keys can verify something.
    pub fn count(&self) -> usize {
        self.keys.len()
    }

    /// Those that may have signed a token by `algorithm`: with the id that the token names, if it names one.
    pub(super) fn of<'a>(&'a self, id: Option<&'a str>, algorithm: Algorithm) -> impl Iterator<Item = &'a DecodingKey> {
        let named = self.keys.iter().filter(move |key| id.is_none() || key.id.as_deref() == id);
        let fitting = named.filter(move |key| {
            key.algorithm.map_or_else(|| key.key.family().algorithms().contains(&algorithm), |one| one == algorithm)
        });
        fitting.map(|key| &key.key)
    }

    /// Is there a key with this id?
    pub(super) fn has(&self, id: &str) -> bool {
        self.keys.iter().any(|key| key.id.as_deref() == Some(id))
    }
}

/// Is it one by which anybody can verify and only one can sign?
pub(super) fn is_asymmetric(algorithm: Algorithm) -> bool {
    !AlgorithmFamily::Hmac.algorithms().contains(&algorithm)
}
