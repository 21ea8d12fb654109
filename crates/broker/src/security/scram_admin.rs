//! Changes of keys of SCRAM, as Kafka's administrators make them. Runs on the controller's thread.

use std::collections::BTreeMap;
use std::sync::Arc;

use journal::{AppendError, AppendItem, AppendResults};

use super::admin::{put_user_item, scram_items};
use super::scram::{InvalidScram, ScramCredential, ScramMechanism};
use super::user::{GUEST, NAME_BYTES_MAX, User, UserLimits};
use crate::Broker;
use crate::jobs::{TOGETHER_MAX, durable};
use crate::log_ends::in_one;

/// What is to become of one user's keys for one mechanism.
#[derive(Clone, Debug)]
pub struct ScramChange {
    /// Whose; a user who is not there is made, without a password and without permissions.
    pub name: String,
    /// `None`: there is none of that number.
    pub mechanism: Option<ScramMechanism>,
    /// What.
    pub wish: ScramWish,
}

/// See [`ScramChange`].
#[derive(Clone)]
pub enum ScramWish {
    /// He has none any more; the user stays.
    Delete,
    /// He has these.
    Put {
        /// Random bytes.
        salt: Vec<u8>,
        /// Of PBKDF2.
        iterations: u32,
        /// What PBKDF2 gave.
        salted_password: Vec<u8>,
    },
}

/// Without what it salts.
impl std::fmt::Debug for ScramWish {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Delete => "Delete",
            Self::Put { .. } => "Put",
        })
    }
}

/// Why a user's keys stay as they are. The words are Kafka's where it has them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScramError {
    /// Nobody is called that.
    #[error("Username must not be empty")]
    EmptyName,
    /// Nobody can be.
    #[error("A user's name has at most {NAME_BYTES_MAX} bytes")]
    LongName,
    /// Only SCRAM-SHA-256 and SCRAM-SHA-512 are known.
    #[error("Unknown SCRAM mechanism")]
    Mechanism,
    /// Keys that are none.
    #[error(transparent)]
    Keys(#[from] InvalidScram),
    /// What is to be deleted is not there.
    #[error("Attempt to delete a user credential that does not exist")]
    Missing,
    /// Two wishes for one user.
    #[error("A user credential cannot be altered twice in the same request")]
    Twice,
    /// The journal did not take it.
    #[error("{0}")]
    Append(#[from] AppendError),
}

impl ScramChange {
    fn check(&self, user: Option<&User>) -> Result<(ScramMechanism, Option<ScramCredential>), ScramError> {
        if self.name.is_empty() {
            return Err(ScramError::EmptyName);
        }
        if self.name.len() > NAME_BYTES_MAX {
            return Err(ScramError::LongName);
        }
        let mechanism = self.mechanism.ok_or(ScramError::Mechanism)?;
        match &self.wish {
            ScramWish::Delete if user.is_none_or(|user| user.scram().get(mechanism).is_none()) => {
                Err(ScramError::Missing)
            }
            ScramWish::Delete => Ok((mechanism, None)),
            ScramWish::Put { salt, iterations, salted_password } => {
                Ok((mechanism, Some(ScramCredential::from_salted(mechanism, salt, *iterations, salted_password)?)))
            }
        }
    }
}

/// A user as he is to be, when what says so is durable; `None`: nothing is to be written.
type Planned = (Arc<User>, Option<AppendItem>);

impl Broker {
    /// Changes keys of users, each named once at most, many of them with one commit. One outcome a user, by name.
    pub fn alter_scram(&self, changes: &[ScramChange]) -> Vec<(String, Result<(), ScramError>)> {
        let mut by_user: BTreeMap<&str, Vec<&ScramChange>> = BTreeMap::new();
        for change in changes {
            by_user.entry(&change.name).or_default().push(change);
        }
        let by_user: Vec<(&str, Vec<&ScramChange>)> = by_user.into_iter().collect();
        let mut outcomes = Vec::with_capacity(by_user.len());
        for piece in by_user.chunks(TOGETHER_MAX) {
            let planned = piece.iter().map(|(_, changes)| {
                if let [change] = changes[..] { self.plan_scram(change) } else { Err(ScramError::Twice) }
            });
            let (mut items, mut users) = (Vec::new(), Vec::new());
            for planned in planned {
                users.push(planned.map(|(user, item)| {
                    let is_written = item.is_some();
                    items.extend(item);
                    (user, is_written)
                }));
            }
            let results = if items.is_empty() { AppendResults::new() } else { self.commit_all(0, items) };
            let mut results = results.iter();
            let mut outcome = |(user, is_written): (Arc<User>, bool)| {
                if is_written { durable(results.next()).map(|()| user) } else { Ok(user) }
            };
            let users: Vec<Result<Arc<User>, ScramError>> = users
                .into_iter()
                .map(|planned| planned.and_then(|planned| outcome(planned).map_err(ScramError::from)))
                .collect();
            self.put_written(users.iter().flatten());
            outcomes
                .extend(piece.iter().zip(users).map(|((name, _), outcome)| ((*name).to_owned(), outcome.map(drop))));
        }
        outcomes
    }

    fn plan_scram(&self, change: &ScramChange) -> Result<Planned, ScramError> {
        let name = change.name.as_str();
        let old = self.security.inner.read().users.get(name).cloned();
        let mut scram = old.as_ref().map(|user| user.scram().clone()).unwrap_or_default();
        match change.check(old.as_deref())? {
            (_, Some(credential)) => scram.put(credential),
            (mechanism, None) => scram.remove(mechanism),
        }
        let items = scram_items(name, old.as_ref().map(|old| old.scram()), &scram);
        let user = match &old {
            Some(old) => old.again(),
            None => User::new(name.to_owned(), None, Vec::new(), UserLimits::default()),
        };
        let user = Arc::new(user.with_scram(scram));
        // Who has a hash of a password is verified by it whatever keys he has.
        if let Some(verified) = old.as_ref().filter(|old| old.password().is_some()).and_then(|old| old.verified()) {
            user.set_verified(verified);
        }
        let new = old.is_none().then(|| put_user_item(&user));
        // All of a user or nothing.
        let item = in_one(new.into_iter().chain(items).collect(), Vec::new()).pop();
        Ok((user, item))
    }

    /// Users whose records are durable count from now on; the first one that is defined takes the place of `guest`.
    fn put_written<'u>(&self, users: impl Iterator<Item = &'u Arc<User>>) {
        let mut users = users.peekable();
        let Some(guest_is_first) = users.peek().map(|user| user.name() == GUEST) else { return };
        let mut first = false;
        self.security.change(|inner| {
            first = inner.users.is_empty();
            inner.users.extend(users.map(|user| (user.name().to_owned(), Arc::clone(user))));
        });
        if first && !guest_is_first {
            self.dismiss_user(GUEST);
        }
    }
}
