//! Who is who: passwords are verified on threads of their own, because a strong hash takes a tenth of a second; what was verified lately
//! is known without hashing.
//!
//! * Of the password that was right last a keyed digest is kept with the user (the key is the process's own), so that the thousand
//!   connections which come back after a failure of the network cost one hash.
//! * Of wrong ones the last few digests are kept for some seconds: a client that tries the same again and again costs one hash as well.
//! * A name that nobody has costs as much time as a wrong password.
//! * An address from which too many wrong ones came has to wait (`guesses.rs`).
//! * Those that wait have a bound, and addresses take turns (`waiting.rs`); a login whose connection has given up is not verified.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use journal::ReplyTo;
use parking_lot::Mutex;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use subtle::ConstantTimeEq;

use super::Security;
use super::error::Refused;
use super::password::PasswordHash;
use super::user::{GUEST, User};
use super::waiting::Login;
use crate::Broker;
use crate::mailbox::Reply;

/// Wrong credentials that are remembered, and for how long.
const WRONG_MAX: usize = 256;
const WRONG_FOR: Duration = Duration::from_secs(5);

/// What a login that has its outcome is told as, by [`crate::Reply::Done`].
pub type LoginOutcome = Result<Arc<User>, Refused>;

/// Somebody who says who he is.
#[derive(Clone, Copy)]
pub struct Credentials<'a> {
    /// Which user.
    pub name: &'a [u8],
    /// His word for it.
    pub password: &'a [u8],
    /// Where he comes from.
    pub peer: SocketAddr,
}

/// What is known of passwords without hashing.
pub(super) struct Verified {
    key: hmac::Key,
    /// With the version of the catalog that they were wrong in.
    wrong: Mutex<VecDeque<([u8; 32], u64, Instant)>>,
    /// What a wrong password costs, whoever's it is.
    iterations: NonZeroU32,
}

impl Verified {
    pub fn new(iterations: NonZeroU32) -> Self {
        let mut secret = [0; 32];
        SystemRandom::new().fill(&mut secret).expect("the system has random numbers");
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, &secret), wrong: Mutex::default(), iterations }
    }

    fn digest(&self, credentials: Credentials<'_>) -> [u8; 32] {
        self.keyed(&[&(credentials.name.len() as u64).to_be_bytes(), credentials.name, credentials.password])
    }

    /// Of these parts, one after the other, with the process's own key.
    fn keyed(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut context = hmac::Context::with_key(&self.key);
        parts.iter().for_each(|part| context.update(part));
        context.sign().as_ref().try_into().expect("SHA-256 has 32 bytes")
    }

    /// Iterations that are left for one whose password has been found to be wrong; `None`: he has had all.
    fn rest(&self, user: Option<&User>) -> Option<NonZeroU32> {
        NonZeroU32::new(self.iterations.get().saturating_sub(user.map_or(0, User::iterations)))
    }

    fn is_wrong(&self, digest: &[u8; 32], version: u64, now: Instant) -> bool {
        let mut wrong = self.wrong.lock();
        while wrong.front().is_some_and(|(_, _, at)| now.saturating_duration_since(*at) >= WRONG_FOR) {
            wrong.pop_front();
        }
        wrong.iter().any(|(one, then, _)| one == digest && *then == version)
    }

    fn note_wrong(&self, digest: [u8; 32], version: u64, now: Instant) {
        let mut wrong = self.wrong.lock();
        if wrong.len() == WRONG_MAX {
            wrong.pop_front();
        }
        wrong.push_back((digest, version, now));
    }
}

impl Security {
    /// A digest of these parts, one after the other, that nobody else can make.
    pub(super) fn keyed(&self, parts: &[&[u8]]) -> [u8; 32] {
        self.verified.keyed(parts)
    }

    /// Is it known without hashing who this is? `None`: the password has to be verified. Immediate.
    pub fn known(&self, credentials: Credentials<'_>) -> Option<LoginOutcome> {
        let name = std::str::from_utf8(credentials.name).ok().filter(|_| !credentials.password.is_empty());
        let Some(name) = name else { return Some(Err(Refused::Credentials)) };
        if let Some(guest) = self.lone_guest() {
            let same = credentials.name.ct_eq(GUEST.as_bytes()) & credentials.password.ct_eq(GUEST.as_bytes());
            if bool::from(same) {
                return Some(check_place(guest, credentials.peer));
            }
            self.guesses.note_wrong(credentials.peer.ip(), credentials.name, Instant::now());
            return Some(Err(Refused::Credentials));
        }
        let digest = self.verified.digest(credentials);
        let user = self.user(name);
        if let Some(user) = user.filter(|user| user.verified().is_some_and(|last| bool::from(last.ct_eq(&digest)))) {
            return Some(check_place(user, credentials.peer));
        }
        let version = self.version.load(Ordering::Acquire);
        let now = Instant::now();
        if self.verified.is_wrong(&digest, version, now) {
            return Some(Err(Refused::Credentials));
        }
        self.guesses.are_spent(credentials.peer.ip(), credentials.name, now).then_some(Err(Refused::Throttled))
    }

    /// Has this address to wait until somebody of this name may log in from there by other means than telling a password?
    pub fn is_throttled(&self, peer: SocketAddr, name: &str) -> bool {
        self.guesses.are_spent(peer.ip(), name.as_bytes(), Instant::now())
    }

    /// Somebody did not know the password of whom he claimed to be, by other means than telling it.
    pub fn note_wrong_guess(&self, peer: SocketAddr, name: &str) {
        self.guesses.note_wrong(peer.ip(), name.as_bytes(), Instant::now());
    }

    /// Who is this? Takes a tenth of a second where it is not known: not on a network thread.
    ///
    /// # Errors
    /// `Credentials`, `NotLocal`, `Throttled`.
    pub fn authenticate(&self, credentials: Credentials<'_>) -> LoginOutcome {
        if let Some(outcome) = self.known(credentials) {
            return outcome;
        }
        let version = self.version.load(Ordering::Acquire);
        let digest = self.verified.digest(credentials);
        let user = std::str::from_utf8(credentials.name).ok().and_then(|name| self.user(name));
        let right = user.as_ref().is_some_and(|user| user.accepts(credentials.password));
        if let Some(user) = user.as_ref().filter(|_| right) {
            // It has taken its time: what was right then need not be any more.
            let now = self.still_is(user).ok_or(Refused::Credentials)?;
            now.set_verified(digest);
            return check_place(now, credentials.peer);
        }
        // It takes the time that a wrong password of any other user takes.
        if let Some(rest) = self.verified.rest(user.as_deref()) {
            let _ = PasswordHash::of_nobody(rest).verify(credentials.password);
        }
        let now = Instant::now();
        self.verified.note_wrong(digest, version, now);
        self.guesses.note_wrong(credentials.peer.ip(), credentials.name, now);
        Err(Refused::Credentials)
    }

    /// The user as he is now, if what somebody has shown at the beginning of a login still shows who he is. `None`: the user was deleted meanwhile, maybe
    /// defined anew, or has another password.
    pub fn still_is(&self, begun: &User) -> Option<Arc<User>> {
        self.user(begun.name()).filter(|now| now.has_credential_of(begun))
    }

    /// May somebody of this name, who need not be a user, come from there?
    ///
    /// # Errors
    /// `NotLocal`.
    pub fn check_name(&self, name: &str, peer: SocketAddr) -> Result<(), Refused> {
        if is_welcome(name, peer) { Ok(()) } else { Err(Refused::NotLocal) }
    }

    /// Who is known by other means than a password, as by a certificate that was verified.
    ///
    /// # Errors
    /// `Credentials`: there is no such user; `NotLocal`.
    pub fn authenticate_by_name(&self, name: &str, peer: SocketAddr) -> LoginOutcome {
        self.user(name).ok_or(Refused::Credentials).and_then(|user| check_place(user, peer))
    }
}

/// # Errors
/// `NotLocal`.
pub(super) fn check_place(user: Arc<User>, peer: SocketAddr) -> LoginOutcome {
    if is_welcome(user.name(), peer) { Ok(user) } else { Err(Refused::NotLocal) }
}

/// `guest` comes from this machine only, by whatever means he is known.
fn is_welcome(name: &str, peer: SocketAddr) -> bool {
    name != GUEST || peer.ip().to_canonical().is_loopback()
}

impl Broker {
    /// Verifies a password on another thread; the [`LoginOutcome`] comes as [`crate::Reply::Done`]. After `until` nobody waits for it.
    /// False: too many wait.
    pub fn login(&self, to: ReplyTo, credentials: Credentials<'_>, until: Instant) -> bool {
        let Credentials { name, password, peer } = credentials;
        let (name, password) = (name.to_vec(), password.to_vec());
        let work = move |broker: &Arc<Self>| {
            let outcome: LoginOutcome = if Instant::now() >= until {
                Err(Refused::Busy)
            } else {
                broker.security.authenticate(Credentials { name: &name, password: &password, peer })
            };
            Box::new(outcome) as Box<dyn std::any::Any + Send>
        };
        match self.logins.push(peer.ip(), Login { to, work: Box::new(work) }) {
            Ok(None) => true,
            Ok(Some(other)) => {
                self.reply(other.to, Reply::Done(Box::new(LoginOutcome::Err(Refused::Busy))));
                true
            }
            Err(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::password::HashAlgorithm;
    use super::super::scram::{ScramCredentials, ScramMechanism};
    use super::super::user::UserLimits;
    use super::*;

    #[test]
    fn a_wrong_password_costs_the_same_whoever_is_there() {
        let count = |count| NonZeroU32::new(count).expect("not 0");
        let verified = Verified::new(count(20_000));
        let user = |hash, scram: &[ScramMechanism]| {
            let user = User::new("bob".to_owned(), hash, Vec::new(), UserLimits::default());
            user.with_scram(ScramCredentials::of(scram, b"secret"))
        };
        let of_rabbit = PasswordHash::from_bytes(HashAlgorithm::RabbitSha256, &[0; 36]).expect("a hash");
        let all = [
            (user(Some(PasswordHash::of(b"secret", count(20_000))), &ScramMechanism::ALL), 20_000),
            (user(Some(PasswordHash::of(b"secret", count(5_000))), &[]), 5_000),
            (user(Some(of_rabbit), &[]), 0),
            (user(None, &[ScramMechanism::Sha256]), 8_192),
            (user(None, &[]), 0),
        ];
        assert_eq!(verified.rest(None).map(NonZeroU32::get), Some(20_000));
        for (user, spent) in &all {
            assert_eq!(
                (user.iterations(), verified.rest(Some(user)).map_or(0, NonZeroU32::get)),
                (*spent, 20_000 - spent)
            );
        }
        let costly = user(Some(PasswordHash::of(b"secret", count(30_000))), &[]);
        assert_eq!(verified.rest(Some(&costly)), None);
    }
}
