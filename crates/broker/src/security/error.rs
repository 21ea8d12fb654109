//! Why users, virtual hosts and permissions are not changed, and why somebody does not come in.

use journal::AppendError;

use super::password::InvalidHash;
use super::permissions::InvalidPattern;
use crate::jobs::CHANGES_MAX;

/// Why a change is not made.
#[derive(Debug, thiserror::Error)]
pub enum SecurityError {
    /// No such user.
    #[error("user '{0}' does not exist")]
    NoUser(String),
    /// No such virtual host.
    #[error("vhost '{0}' does not exist")]
    NoVhost(String),
    /// Empty or longer than 255 bytes.
    #[error("{what} {name:?} is not possible: it has 1 to 255 bytes")]
    Name {
        /// Of what.
        what: &'static str,
        /// As given.
        name: String,
    },
    /// A text or a list that a record cannot hold.
    #[error("{what} is too long: at most 65535 bytes or tags")]
    TooLong {
        /// Which.
        what: &'static str,
    },
    /// Nobody could log in with it.
    #[error("a password is not empty")]
    EmptyPassword,
    /// A hash that is none.
    #[error(transparent)]
    Hash(#[from] InvalidHash),
    /// An expression that is none.
    #[error(transparent)]
    Pattern(#[from] InvalidPattern),
    /// A type of queue that there is not.
    #[error("default queue type {0:?} is not known")]
    QueueType(String),
    /// The node has as many as it may.
    #[error("cannot create vhost '{name}': vhost limit of {limit} is reached")]
    TooManyVhosts {
        /// As asked for.
        name: String,
        /// As many.
        limit: u64,
    },
    /// It is where Kafka's topics are.
    #[error("vhost '/' cannot be deleted: it has the topics of Kafka clients")]
    DefaultVhost,
    /// The journal did not take it.
    #[error(transparent)]
    Append(#[from] AppendError),
}

/// Why an access control entry is not added or removed. The words are Kafka's where it has them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AclError {
    /// There is one cluster.
    #[error("The only valid name for the CLUSTER resource is kafka-cluster")]
    ClusterName,
    /// Nothing is called that.
    #[error("Invalid empty resource name")]
    EmptyName,
    /// It is `User:NAME`.
    #[error("{0:?} is no principal, which is written as TYPE:NAME")]
    Principal(String),
    /// More than is kept.
    #[error("a name, a principal and a host have at most {0} bytes")]
    TooLong(usize),
    /// There are as many as there may be.
    #[error("there are {0} access control entries, and may be no more")]
    TooMany(usize),
    /// More than are made by one request, which is one commit: as Kafka's.
    #[error("a request creates at most {CHANGES_MAX} access control entries")]
    TooManyCreated,
    /// Likewise.
    #[error("a request removes at most {CHANGES_MAX} access control entries")]
    TooManyRemoved,
    /// Filters that pick the same entries again and again.
    #[error("the filters pick more than {0} access control entries, each counted as often as it is picked")]
    TooManyPicked(usize),
    /// The journal did not take it.
    #[error(transparent)]
    Append(#[from] AppendError),
}

/// Why somebody is not logged in. Clients are told no more than that they are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// No such user, no password of his, or another.
    #[error("invalid credentials")]
    Credentials,
    /// `guest` from another machine.
    #[error("this user can only connect from the broker's machine")]
    NotLocal,
    /// Too many wrong passwords have come from this address.
    #[error("too many wrong passwords from this address")]
    Throttled,
    /// A token that is not good; [`super::TokenRefused`] says why.
    #[error("the token is not valid")]
    Token,
    /// More passwords wait to be verified than are taken, or this one waited too long.
    #[error("too many logins at a time")]
    Busy,
}

/// A user has as many connections as he may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("user connection limit ({0}) is reached")]
pub struct Full(pub u32);
