//! Users: who may log in, with what tags and limits.

use std::fmt;

use parking_lot::Mutex;

use super::password::PasswordHash;
use super::scram::ScramCredentials;

/// Bytes that names of users and virtual hosts may have: those of a short string of AMQP.
pub const NAME_BYTES_MAX: usize = 255;

/// The user of a broker for which no user is defined, with the same word as password; from this machine only.
pub const GUEST: &str = "guest";

/// What a user may have open at a time. `None`: any number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserLimits {
    /// Connections; 0: none at all.
    pub max_connections: Option<u32>,
    /// Channels of all connections together; 0: none at all.
    pub max_channels: Option<u32>,
}

/// A user, as of the last change: each change makes another.
pub struct User {
    name: String,
    password: Option<PasswordHash>,
    /// Of the same password, beside a hash of ours: for definitions.
    rabbitmq: Option<PasswordHash>,
    tags: Vec<String>,
    limits: UserLimits,
    scram: ScramCredentials,
    /// Digest of the password that was verified last.
    verified: Mutex<Option<[u8; 32]>>,
}

impl User {
    pub(super) fn new(name: String, password: Option<PasswordHash>, tags: Vec<String>, limits: UserLimits) -> Self {
        Self {
            name,
            password,
            rabbitmq: None,
            tags,
            limits,
            scram: ScramCredentials::default(),
            verified: Mutex::new(None),
        }
    }

    /// Somebody of this name who is not defined any more: he has no tags, and nothing to log in with.
    pub fn undefined(name: String) -> Self {
        Self::new(name, None, Vec::new(), UserLimits::default())
    }

    /// The same with a hash for RabbitMQ beside that of his password.
    pub(super) fn with_rabbitmq_hash(self, rabbitmq: Option<PasswordHash>) -> Self {
        Self { rabbitmq, ..self }
    }

    /// The same with other keys of SCRAM.
    pub(super) fn with_scram(self, scram: ScramCredentials) -> Self {
        Self { scram, verified: Mutex::new(None), ..self }
    }

    /// A copy of him as he is defined.
    pub(super) fn again(&self) -> Self {
        let Self { name, password, rabbitmq, tags, limits, scram, verified: _ } = self;
        Self::new(name.clone(), password.clone(), tags.clone(), *limits)
            .with_rabbitmq_hash(rabbitmq.clone())
            .with_scram(scram.clone())
    }

    /// His name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// His password's hash. `None`: he cannot log in with a password.
    pub fn password(&self) -> Option<&PasswordHash> {
        self.password.as_ref()
    }

    /// A hash for RabbitMQ beside one of ours. `None`: there is none, or RabbitMQ knows that of his password.
    pub fn rabbitmq_hash(&self) -> Option<&PasswordHash> {
        self.rabbitmq.as_ref()
    }

    /// What management and a few checks go by: `administrator`, `monitoring`, `policymaker`, `management`, `impersonator`, or others.
    pub fn tags(&self) -> &[String] {
        &self.tags
    }

    /// Has he this tag?
    pub fn has_tag(&self, tag: &str) -> bool {
        self.tags.iter().any(|one| one == tag)
    }

    /// May he send messages in this name? Who consumes relies on it.
    pub fn may_send_as(&self, name: &[u8]) -> bool {
        name == self.name.as_bytes() || self.has_tag("impersonator")
    }

    /// What he may have open.
    pub fn limits(&self) -> UserLimits {
        self.limits
    }

    /// His keys for SCRAM.
    pub fn scram(&self) -> &ScramCredentials {
        &self.scram
    }

    /// Would what has shown who `other` is show it of him? Both are of one name. One who was deleted and is defined anew has another hash of his password,
    /// even of the same.
    pub fn has_credential_of(&self, other: &Self) -> bool {
        self.password == other.password && self.scram == other.scram
    }

    /// Is this his password? Who has no hash of it may have keys of SCRAM. Takes as long as making them did.
    pub(super) fn accepts(&self, password: &[u8]) -> bool {
        match &self.password {
            Some(hash) => hash.verify(password),
            None => self.scram.iter().next().is_some_and(|keys| keys.verify_password(password)),
        }
    }

    /// Iterations of PBKDF2 that [`User::accepts`] takes.
    pub(super) fn iterations(&self) -> u32 {
        match &self.password {
            Some(hash) => hash.iterations().unwrap_or(0),
            None => self.scram.iter().next().map_or(0, |keys| keys.iterations()),
        }
    }

    pub(super) fn verified(&self) -> Option<[u8; 32]> {
        *self.verified.lock()
    }

    pub(super) fn set_verified(&self, digest: [u8; 32]) {
        *self.verified.lock() = Some(digest);
    }
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "user {:?} with tags {:?}", self.name, self.tags)
    }
}

/// What is to become of a user's password.
#[derive(Clone, PartialEq, Eq)]
pub enum PasswordWish {
    /// It stays as it is; a new user gets none.
    Keep,
    /// He cannot log in with a password.
    Remove,
    /// This one, which is hashed on the controller's thread. Not empty.
    Clear(String),
    /// This one, hashed already.
    Hash(PasswordHash),
    /// This one, hashed already, and for RabbitMQ too.
    Both(PasswordHash, PasswordHash),
}

/// A user as he is to be.
#[derive(Clone, PartialEq, Eq)]
pub struct UserWish {
    /// 1 to [`NAME_BYTES_MAX`] bytes.
    pub name: String,
    /// His password.
    pub password: PasswordWish,
    /// `None`: as they are; a new user gets none.
    pub tags: Option<Vec<String>>,
    /// `None`: as they are; a new user has none.
    pub limits: Option<UserLimits>,
}

impl fmt::Debug for UserWish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "wish for user {:?} with tags {:?}", self.name, self.tags)
    }
}
