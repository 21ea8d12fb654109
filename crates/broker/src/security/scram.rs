//! Salted keys of SCRAM (RFC 5802, RFC 7677): what is kept of a password so that somebody can prove that he knows it without saying it.
//! What is kept does not suffice to log in by SCRAM, only to try passwords.
//!
//! ```text
//! SaltedPassword = PBKDF2-HMAC(password, salt, iterations)
//! StoredKey      = H(HMAC(SaltedPassword, "Client Key"))       ServerKey = HMAC(SaltedPassword, "Server Key")
//! ```
//! Passwords are taken as the bytes they are, as Kafka does: there is no SASLprep.

use std::fmt;
use std::num::NonZeroU32;

use ring::rand::{SecureRandom, SystemRandom};
use ring::{digest, hmac, pbkdf2};
use subtle::ConstantTimeEq;

/// Least iterations, as in Kafka.
pub const SCRAM_ITERATIONS_MIN: u32 = 4096;
/// Most iterations, as in Kafka.
pub const SCRAM_ITERATIONS_MAX: u32 = 16_384;
/// Iterations of keys that are made here: each login costs the client as many.
pub(super) const ITERATIONS: NonZeroU32 = NonZeroU32::new(8192).expect("not 0");
/// Bytes of a salt of ours.
pub(super) const SALT_BYTES: usize = 16;
/// Bytes of somebody else's.
const SALT_BYTES_MAX: usize = 255;

/// Which hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ScramMechanism {
    /// SCRAM-SHA-256.
    Sha256,
    /// SCRAM-SHA-512.
    Sha512,
}

impl ScramMechanism {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Sha256, Self::Sha512];

    /// Its name in SASL.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "SCRAM-SHA-256",
            Self::Sha512 => "SCRAM-SHA-512",
        }
    }

    /// Its number in records and in Kafka's protocol.
    pub fn number(self) -> u8 {
        match self {
            Self::Sha256 => 1,
            Self::Sha512 => 2,
        }
    }

    /// By that number.
    pub fn of_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.number() == number)
    }

    /// Bytes of its keys.
    pub(super) fn key_bytes(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }

    fn at(self) -> usize {
        usize::from(self.number()) - 1
    }

    fn mac(self, key: &[u8], text: &[u8]) -> Vec<u8> {
        let algorithm = match self {
            Self::Sha256 => hmac::HMAC_SHA256,
            Self::Sha512 => hmac::HMAC_SHA512,
        };
        hmac::sign(&hmac::Key::new(algorithm, key), text).as_ref().to_vec()
    }

    fn hash(self, bytes: &[u8]) -> Vec<u8> {
        let algorithm = match self {
            Self::Sha256 => &digest::SHA256,
            Self::Sha512 => &digest::SHA512,
        };
        digest::digest(algorithm, bytes).as_ref().to_vec()
    }

    fn salted(self, password: &[u8], salt: &[u8], iterations: NonZeroU32) -> Vec<u8> {
        let algorithm = match self {
            Self::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            Self::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        };
        let mut out = vec![0; self.key_bytes()];
        pbkdf2::derive(algorithm, iterations, salt, password, &mut out);
        out
    }
}

impl fmt::Display for ScramMechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Keys that cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidScram {
    /// Fewer than Kafka takes.
    #[error("Too few iterations")]
    TooFewIterations,
    /// More.
    #[error("Too many iterations")]
    TooManyIterations,
    /// None, or a long one.
    #[error("The salt has 1 to {SALT_BYTES_MAX} bytes")]
    Salt,
    /// Not what PBKDF2 gives.
    #[error("The salted password has {0} bytes")]
    Keys(usize),
}

/// What is kept of one user for one mechanism. Its debug output does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct ScramCredential {
    mechanism: ScramMechanism,
    iterations: NonZeroU32,
    salt: Box<[u8]>,
    stored_key: Box<[u8]>,
    server_key: Box<[u8]>,
}

impl ScramCredential {
    /// Of a password, with a fresh salt. Takes some milliseconds: not on a network thread.
    ///
    /// # Panics
    /// When the system has no random numbers.
    pub fn of(mechanism: ScramMechanism, password: &[u8]) -> Self {
        let mut salt = [0; SALT_BYTES];
        SystemRandom::new().fill(&mut salt).expect("the system has random numbers");
        let salted = mechanism.salted(password, &salt, ITERATIONS);
        Self::from_checked(mechanism, &salt, ITERATIONS, &salted)
    }

    /// Of a password that was salted elsewhere.
    ///
    /// # Errors
    /// [`InvalidScram`].
    pub fn from_salted(
        mechanism: ScramMechanism,
        salt: &[u8],
        iterations: u32,
        salted: &[u8],
    ) -> Result<Self, InvalidScram> {
        let iterations = check_iterations(iterations)?;
        if salt.is_empty() || salt.len() > SALT_BYTES_MAX {
            return Err(InvalidScram::Salt);
        }
        if salted.len() != mechanism.key_bytes() {
            return Err(InvalidScram::Keys(mechanism.key_bytes()));
        }
        Ok(Self::from_checked(mechanism, salt, iterations, salted))
    }

    fn from_checked(mechanism: ScramMechanism, salt: &[u8], iterations: NonZeroU32, salted: &[u8]) -> Self {
        let stored_key = mechanism.hash(&mechanism.mac(salted, b"Client Key")).into();
        let server_key = mechanism.mac(salted, b"Server Key").into();
        Self { mechanism, iterations, salt: salt.into(), stored_key, server_key }
    }

    /// As a record has it; `None`: it is none.
    pub(super) fn from_parts(
        mechanism: ScramMechanism,
        iterations: u32,
        salt: &[u8],
        stored: &[u8],
        server: &[u8],
    ) -> Option<Self> {
        let fits = !salt.is_empty()
            && salt.len() <= SALT_BYTES_MAX
            && [stored, server].iter().all(|key| key.len() == mechanism.key_bytes());
        let iterations = check_iterations(iterations).ok().filter(|_| fits)?;
        Some(Self { mechanism, iterations, salt: salt.into(), stored_key: stored.into(), server_key: server.into() })
    }

    /// Which mechanism it is for.
    pub fn mechanism(&self) -> ScramMechanism {
        self.mechanism
    }

    /// Iterations of PBKDF2.
    pub fn iterations(&self) -> u32 {
        self.iterations.get()
    }

    /// Told to who logs in.
    pub(super) fn salt(&self) -> &[u8] {
        &self.salt
    }

    pub(super) fn keys(&self) -> (&[u8], &[u8]) {
        (&self.stored_key, &self.server_key)
    }

    /// Is it that of this password? Takes some milliseconds.
    pub(super) fn verify_password(&self, password: &[u8]) -> bool {
        let salted = self.mechanism.salted(password, &self.salt, self.iterations);
        let stored = self.mechanism.hash(&self.mechanism.mac(&salted, b"Client Key"));
        bool::from(stored.ct_eq(&self.stored_key))
    }

    /// Does the proof show that somebody knows the password? Then what shows him that the broker has its keys. Immediate.
    pub(super) fn verify_proof(&self, said: &[u8], proof: &[u8]) -> Option<Vec<u8>> {
        let signature = self.mechanism.mac(&self.stored_key, said);
        let fits = proof.len() == signature.len();
        let client_key: Vec<u8> = signature.iter().zip(proof).map(|(one, other)| one ^ other).collect();
        let right = fits && bool::from(self.mechanism.hash(&client_key).ct_eq(&self.stored_key));
        right.then(|| self.mechanism.mac(&self.server_key, said))
    }
}

fn check_iterations(iterations: u32) -> Result<NonZeroU32, InvalidScram> {
    if iterations > SCRAM_ITERATIONS_MAX {
        return Err(InvalidScram::TooManyIterations);
    }
    NonZeroU32::new(iterations)
        .filter(|count| count.get() >= SCRAM_ITERATIONS_MIN)
        .ok_or(InvalidScram::TooFewIterations)
}

impl fmt::Debug for ScramCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScramCredential({}, {} iterations)", self.mechanism, self.iterations)
    }
}

/// What a user has for each mechanism.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScramCredentials([Option<ScramCredential>; 2]);

impl ScramCredentials {
    /// Of one password, for these mechanisms. Takes some milliseconds each.
    pub(super) fn of(mechanisms: &[ScramMechanism], password: &[u8]) -> Self {
        let mut all = Self::default();
        mechanisms.iter().for_each(|mechanism| all.put(ScramCredential::of(*mechanism, password)));
        all
    }

    /// The one for a mechanism.
    pub fn get(&self, mechanism: ScramMechanism) -> Option<&ScramCredential> {
        self.0[mechanism.at()].as_ref()
    }

    /// All there are.
    pub fn iter(&self) -> impl Iterator<Item = &ScramCredential> {
        self.0.iter().flatten()
    }

    pub(super) fn put(&mut self, credential: ScramCredential) {
        let at = credential.mechanism.at();
        self.0[at] = Some(credential);
    }

    pub(super) fn remove(&mut self, mechanism: ScramMechanism) {
        self.0[mechanism.at()] = None;
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    /// RFC 7677 §3, with the proof and the signature it gives.
    #[test]
    fn the_example_of_the_standard_is_understood() {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").expect("base64");
        let mechanism = ScramMechanism::Sha256;
        let salted = mechanism.salted(b"pencil", &salt, NonZeroU32::new(4096).expect("not 0"));
        let credential = ScramCredential::from_salted(mechanism, &salt, 4096, &salted).expect("keys");
        let nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let said =
            format!("n=user,r=rOprNGfwEbeRWgbNEkqO,r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r={nonce}");
        let proof = STANDARD.decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=").expect("base64");
        let signature = credential.verify_proof(said.as_bytes(), &proof).expect("right");
        assert_eq!(STANDARD.encode(signature), "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
        for at in 0..proof.len() {
            let mut wrong = proof.clone();
            wrong[at] ^= 1;
            assert_eq!(credential.verify_proof(said.as_bytes(), &wrong), None);
        }
        assert_eq!(credential.verify_proof(said.as_bytes(), &proof[..31]), None);
        assert_eq!(credential.verify_proof(said.as_bytes(), &[&proof[..], b"x"].concat()), None);
        assert!(credential.verify_password(b"pencil") && !credential.verify_password(b"Pencil"));
    }

    #[test]
    fn keys_have_bounds() {
        let salted = |bytes, iterations| {
            ScramCredential::from_salted(ScramMechanism::Sha512, b"salt", iterations, &vec![1; bytes]).map(drop)
        };
        assert_eq!(salted(64, 4096), Ok(()));
        assert_eq!(salted(64, 16_384), Ok(()));
        assert_eq!(salted(64, 4095), Err(InvalidScram::TooFewIterations));
        assert_eq!(salted(64, 16_385), Err(InvalidScram::TooManyIterations));
        assert_eq!(salted(32, 4096), Err(InvalidScram::Keys(64)));
        let none = ScramCredential::from_salted(ScramMechanism::Sha256, b"", 4096, &[0; 32]);
        assert_eq!(none, Err(InvalidScram::Salt));
        let long = ScramCredential::from_salted(ScramMechanism::Sha256, &[0; 256], 4096, &[0; 32]);
        assert_eq!(long, Err(InvalidScram::Salt));
    }

    #[test]
    fn each_mechanism_has_its_own() {
        let mut all = ScramCredentials::of(&ScramMechanism::ALL, b"secret");
        assert_eq!(all.iter().count(), 2);
        assert!(all.iter().all(|one| one.verify_password(b"secret")));
        assert!(!format!("{all:?}").contains("salt"));
        all.remove(ScramMechanism::Sha256);
        assert!(all.get(ScramMechanism::Sha256).is_none() && all.get(ScramMechanism::Sha512).is_some());
    }
}
