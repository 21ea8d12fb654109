//! Passwords as they are kept: hashes with a salt, never the password.
//!
//! | algorithm | bytes | made by |
//! |---|---|---|
//! | `mainstem_pbkdf2_sha256` | u32 iterations, \[16\] salt, \[32\] PBKDF2-HMAC-SHA-256 (RFC 8018) | this broker |
//! | `rabbit_password_hashing_sha256` | \[4\] salt, \[32\] SHA-256 of salt and password | RabbitMQ since 3.6 |
//! | `rabbit_password_hashing_sha512` | \[4\] salt, \[64\] SHA-512 of salt and password | RabbitMQ, where it is chosen |
//! | `rabbit_password_hashing_md5` | \[4\] salt, \[16\] MD5 of salt and password | RabbitMQ before 3.6 |
//!
//! RabbitMQ knows the last three. So that definitions which are exported here let the same users in there, one of the second kind is kept beside a hash of ours
//! (setting `mainstem.password.rabbitmq.hash`); here it lets nobody in.
//!
//! Definitions carry the bytes in base64, with the algorithm's name beside them. Comparisons take the same time wherever they differ.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use md5::Md5;
use md5::digest::Digest;
use ring::rand::{SecureRandom, SystemRandom};
use ring::{digest, pbkdf2};
use subtle::ConstantTimeEq;

/// Bytes of a salt of ours.
const SALT_BYTES: usize = 16;
/// Bytes of a salt of RabbitMQ's.
const RABBIT_SALT_BYTES: usize = 4;
/// Bytes of what PBKDF2 gives.
const KEY_BYTES: usize = 32;
/// More iterations than anybody asks for: a record that wants more is not taken, because each login would pay for it.
const ITERATIONS_MAX: u32 = 10_000_000;

/// How a password was hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashAlgorithm {
    /// Ours.
    Pbkdf2Sha256,
    /// RabbitMQ's default.
    RabbitSha256,
    /// RabbitMQ's, longer.
    RabbitSha512,
    /// RabbitMQ's of long ago.
    RabbitMd5,
}

impl HashAlgorithm {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Pbkdf2Sha256, Self::RabbitSha256, Self::RabbitSha512, Self::RabbitMd5];

    /// Its name in definitions.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pbkdf2Sha256 => "mainstem_pbkdf2_sha256",
            Self::RabbitSha256 => "rabbit_password_hashing_sha256",
            Self::RabbitSha512 => "rabbit_password_hashing_sha512",
            Self::RabbitMd5 => "rabbit_password_hashing_md5",
        }
    }

    /// Its number in records.
    pub(super) fn number(self) -> u8 {
        match self {
            Self::Pbkdf2Sha256 => 1,
            Self::RabbitSha256 => 2,
            Self::RabbitSha512 => 3,
            Self::RabbitMd5 => 4,
        }
    }

    pub(super) fn of_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.number() == number)
    }

    /// Bytes of a hash, with what stands before it.
    fn bytes(self) -> usize {
        match self {
            Self::Pbkdf2Sha256 => 4 + SALT_BYTES + KEY_BYTES,
            Self::RabbitSha256 => RABBIT_SALT_BYTES + 32,
            Self::RabbitSha512 => RABBIT_SALT_BYTES + 64,
            Self::RabbitMd5 => RABBIT_SALT_BYTES + 16,
        }
    }
}

impl fmt::Display for HashAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for HashAlgorithm {
    type Err = InvalidHash;

    fn from_str(name: &str) -> Result<Self, InvalidHash> {
        Self::ALL.into_iter().find(|one| one.name() == name).ok_or_else(|| InvalidHash::Algorithm(name.to_owned()))
    }
}

/// A hash that cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHash {
    /// No such algorithm.
    #[error("hashing algorithm {0:?} is not known")]
    Algorithm(String),
    /// No base64.
    #[error("the hash is not base64")]
    Encoding,
    /// Too short or too long.
    #[error("a hash of {algorithm} has {wanted} bytes, this one {found}")]
    Length {
        /// Of which.
        algorithm: HashAlgorithm,
        /// Bytes it has.
        wanted: usize,
        /// Bytes that were given.
        found: usize,
    },
    /// None, or so many that nobody could log in.
    #[error("a hash has 1 to 10000000 iterations, this one {0}")]
    Iterations(u32),
}

/// A hashed password. Its debug output does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash {
    algorithm: HashAlgorithm,
    bytes: Box<[u8]>,
}

impl PasswordHash {
    /// Hashes a password with a fresh salt. Takes as long as `iterations` say, about 0.2 µs each: not on a network thread.
    ///
    /// # Panics
    /// When the system has no random numbers.
    pub fn of(password: &[u8], iterations: NonZeroU32) -> Self {
        let mut salt = [0; SALT_BYTES];
        SystemRandom::new().fill(&mut salt).expect("the system has random numbers");
        let mut key = [0; KEY_BYTES];
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, iterations, &salt, password, &mut key);
        let bytes = [&iterations.get().to_be_bytes()[..], &salt, &key].concat().into();
        Self { algorithm: HashAlgorithm::Pbkdf2Sha256, bytes }
    }

    /// The same as RabbitMQ has it by default, with a fresh salt: next to nothing to compute, and to try passwords on.
    ///
    /// # Panics
    /// When the system has no random numbers.
    pub fn for_rabbitmq(password: &[u8]) -> Self {
        let mut salt = [0; RABBIT_SALT_BYTES];
        SystemRandom::new().fill(&mut salt).expect("the system has random numbers");
        let digest = digest::digest(&digest::SHA256, &[&salt, password].concat());
        Self { algorithm: HashAlgorithm::RabbitSha256, bytes: [&salt, digest.as_ref()].concat().into() }
    }

    /// A hash that no password has, and that takes as long to verify as one of ours.
    pub(super) fn of_nobody(iterations: NonZeroU32) -> Self {
        let mut bytes = [0; 4 + SALT_BYTES + KEY_BYTES];
        SystemRandom::new().fill(&mut bytes[4..]).expect("the system has random numbers");
        bytes[..4].copy_from_slice(&iterations.get().to_be_bytes());
        Self { algorithm: HashAlgorithm::Pbkdf2Sha256, bytes: bytes.into() }
    }

    /// From its bytes.
    ///
    /// # Errors
    /// `Length`, `Iterations`.
    pub fn from_bytes(algorithm: HashAlgorithm, bytes: &[u8]) -> Result<Self, InvalidHash> {
        if bytes.len() != algorithm.bytes() {
            return Err(InvalidHash::Length { algorithm, wanted: algorithm.bytes(), found: bytes.len() });
        }
        let hash = Self { algorithm, bytes: bytes.into() };
        match hash.iterations() {
            Some(count) if count == 0 || count > ITERATIONS_MAX => Err(InvalidHash::Iterations(count)),
            _ => Ok(hash),
        }
    }

    /// From the base64 of definitions.
    ///
    /// # Errors
    /// [`InvalidHash`], all but `Algorithm`.
    pub fn from_base64(algorithm: HashAlgorithm, text: &str) -> Result<Self, InvalidHash> {
        Self::from_bytes(algorithm, &STANDARD.decode(text).map_err(|_| InvalidHash::Encoding)?)
    }

    /// The same of a hash of RabbitMQ, where nobody says how it was made: its length does.
    ///
    /// # Errors
    /// `Encoding`, `Length`.
    pub fn of_rabbitmq(text: &str) -> Result<Self, InvalidHash> {
        let bytes = STANDARD.decode(text).map_err(|_| InvalidHash::Encoding)?;
        let known = [HashAlgorithm::RabbitSha256, HashAlgorithm::RabbitSha512, HashAlgorithm::RabbitMd5];
        let algorithm = known.into_iter().find(|one| one.bytes() == bytes.len()).unwrap_or(HashAlgorithm::RabbitSha256);
        Self::from_bytes(algorithm, &bytes)
    }

    /// As definitions carry it.
    pub fn to_base64(&self) -> String {
        STANDARD.encode(&self.bytes)
    }

    /// How it was made.
    pub fn algorithm(&self) -> HashAlgorithm {
        self.algorithm
    }

    /// As records carry it.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Those of PBKDF2, which are what verifying costs. `None`: next to nothing.
    pub(super) fn iterations(&self) -> Option<u32> {
        let first = *self.bytes.first_chunk::<4>()?;
        (self.algorithm == HashAlgorithm::Pbkdf2Sha256).then_some(u32::from_be_bytes(first))
    }

    /// Is it the hash of this password? Takes as long as making it did.
    pub fn verify(&self, password: &[u8]) -> bool {
        let Some(iterations) = self.iterations() else {
            let (salt, hash) = self.bytes.split_at(RABBIT_SALT_BYTES);
            let salted = [salt, password].concat();
            return match self.algorithm {
                HashAlgorithm::RabbitSha512 => {
                    bool::from(digest::digest(&digest::SHA512, &salted).as_ref().ct_eq(hash))
                }
                HashAlgorithm::RabbitMd5 => bool::from(Md5::digest(&salted).as_slice().ct_eq(hash)),
                HashAlgorithm::Pbkdf2Sha256 | HashAlgorithm::RabbitSha256 => {
                    bool::from(digest::digest(&digest::SHA256, &salted).as_ref().ct_eq(hash))
                }
            };
        };
        let (salt, key) = self.bytes[4..].split_at(SALT_BYTES);
        NonZeroU32::new(iterations)
            .is_some_and(|count| pbkdf2::verify(pbkdf2::PBKDF2_HMAC_SHA256, count, salt, password, key).is_ok())
    }
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PasswordHash({})", self.algorithm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_that_of_its_password_only() {
        let few = NonZeroU32::new(10).expect("not 0");
        let (one, other) = (PasswordHash::of(b"secret", few), PasswordHash::of(b"secret", few));
        assert_ne!(one, other, "each has a salt of its own");
        for hash in [&one, &other] {
            assert!(hash.verify(b"secret"));
            assert!(!hash.verify(b"Secret") && !hash.verify(b"") && !hash.verify(b"secret1"));
        }
        let again = PasswordHash::from_base64(one.algorithm(), &one.to_base64());
        assert_eq!(again, Ok(one));
    }

    /// The first as RabbitMQ's documentation computes it for password `test12`, salt 908DC60A; the others by Python's hashlib.
    #[test]
    fn hashes_of_rabbitmq_are_understood() {
        let sha256 = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR";
        let md5 = "kI3GChNpte2FApYFXScl+0dIluk=";
        let sha512 = "kI3GChuNuIYf8lRbCCxZjgjKwsY19ns6+uFO0zcXRBGA/XGJPYD8OWMy7EB8TaOmAzjP2azv84GbINYwX2cDWb4DHnc=";
        for (algorithm, text) in [
            (HashAlgorithm::RabbitSha256, sha256),
            (HashAlgorithm::RabbitSha512, sha512),
            (HashAlgorithm::RabbitMd5, md5),
        ] {
            let hash = PasswordHash::from_base64(algorithm, text).expect("a hash");
            assert!(hash.verify(b"test12"), "{algorithm}");
            assert!(!hash.verify(b"test13"), "{algorithm}");
            assert_eq!(algorithm.name().parse(), Ok(algorithm));
            assert_eq!(PasswordHash::of_rabbitmq(text), Ok(hash), "its length tells the algorithm");
        }
        assert_eq!(PasswordHash::of_rabbitmq("no base64!"), Err(InvalidHash::Encoding));
        assert!(matches!(PasswordHash::of_rabbitmq("AAAA"), Err(InvalidHash::Length { wanted: 36, found: 3, .. })));
    }

    #[test]
    fn what_is_no_hash_is_refused() {
        let refused = |algorithm, bytes: &[u8]| PasswordHash::from_bytes(algorithm, bytes).expect_err("no hash");
        assert!(matches!(
            refused(HashAlgorithm::RabbitSha256, &[0; 35]),
            InvalidHash::Length { wanted: 36, found: 35, .. }
        ));
        assert_eq!(refused(HashAlgorithm::Pbkdf2Sha256, &[0; 52]), InvalidHash::Iterations(0));
        assert_eq!(refused(HashAlgorithm::Pbkdf2Sha256, &[255; 52]), InvalidHash::Iterations(u32::MAX));
        assert_eq!(PasswordHash::from_base64(HashAlgorithm::RabbitMd5, "*"), Err(InvalidHash::Encoding));
        assert!("rot13".parse::<HashAlgorithm>().is_err());
        assert!(!format!("{:?}", PasswordHash::from_bytes(HashAlgorithm::RabbitMd5, &[7; 20])).contains('7'));
    }
}
