//! Who is connected: connections and channels by user, for the limits of users, and to end the connections of users and virtual hosts
//! that are deleted. A connection takes a [`Seat`] when it opens a virtual host and gives it back when it ends; channels are counted without a
//! lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use hashbrown::HashMap;
use journal::ReplyTo;
use parking_lot::Mutex;

use super::error::Full;
use super::user::UserLimits;

/// Told to a connection that is to end, as [`crate::Reply::Done`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dismissed {
    /// Why, for people.
    pub reason: String,
}

#[derive(Debug, Default)]
struct Usage {
    connections: AtomicU32,
    channels: AtomicU32,
}

#[derive(Debug)]
struct Entry {
    to: ReplyTo,
    user: String,
    vhost: String,
}

#[derive(Debug, Default)]
struct Inner {
    next: u64,
    entries: HashMap<u64, Entry>,
    users: HashMap<String, Arc<Usage>>,
}

/// All connections that have opened a virtual host.
#[derive(Debug, Default)]
pub struct Seats(Arc<All>);

#[derive(Debug, Default)]
struct All {
    inner: Mutex<Inner>,
    /// Of all users.
    channels: AtomicU32,
}

/// The place of one connection; gone with its last use.
#[derive(Debug)]
pub struct Seat {
    seats: Arc<All>,
    number: u64,
    user: Arc<Usage>,
    channels: u32,
}

/// Why a channel is not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoChannel {
    /// The user has as many as he may have.
    OfUser(u32),
    /// So has the node.
    OfNode(u32),
}

fn below(count: u32, limit: Option<u32>) -> Result<(), u32> {
    match limit {
        Some(limit) if count >= limit => Err(limit),
        _ => Ok(()),
    }
}

/// One more, unless that is too many.
fn take_one(count: &AtomicU32, limit: Option<u32>) -> Result<(), u32> {
    let one_more = |count| below(count, limit).is_ok().then_some(count + 1);
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).map(drop).map_err(|_| limit.unwrap_or(u32::MAX))
}

impl Seats {
    /// A connection of a user opens a virtual host; what is said to it goes to `to`.
    ///
    /// # Errors
    /// The user has as many as he may have.
    pub fn take(&self, to: ReplyTo, user: &str, limits: UserLimits, vhost: &str) -> Result<Seat, Full> {
        let mut inner = self.0.inner.lock();
        let count = inner.users.get(user).map_or(0, |usage| usage.connections.load(Ordering::Relaxed));
        below(count, limits.max_connections).map_err(Full)?;
        let number = inner.next;
        inner.next += 1;
        inner.entries.insert(number, Entry { to, user: user.to_owned(), vhost: vhost.to_owned() });
        let user = Arc::clone(inner.users.entry_ref(user).or_default());
        user.connections.fetch_add(1, Ordering::Relaxed);
        Ok(Seat { seats: Arc::clone(&self.0), number, user, channels: 0 })
    }

    /// Connections of a user.
    pub fn of_user(&self, name: &str) -> u32 {
        self.used_by(name).0
    }

    /// Connections and channels of a user.
    pub fn used_by(&self, name: &str) -> (u32, u32) {
        let inner = self.0.inner.lock();
        let used =
            |usage: &Arc<Usage>| (usage.connections.load(Ordering::Relaxed), usage.channels.load(Ordering::Relaxed));
        inner.users.get(name).map_or((0, 0), used)
    }

    /// Channels of all users.
    pub fn channels(&self) -> u32 {
        self.0.channels.load(Ordering::Relaxed)
    }

    /// The connections of those users and virtual hosts that `wanted` picks.
    pub(super) fn addresses(&self, wanted: impl Fn(&str, &str) -> bool) -> Vec<ReplyTo> {
        self.0
            .inner
            .lock()
            .entries
            .values()
            .filter(|entry| wanted(&entry.user, &entry.vhost))
            .map(|entry| entry.to)
            .collect()
    }
}

impl Seat {
    /// A channel is opened, of as many as the user and all users together may have.
    ///
    /// # Errors
    /// The limit that is reached.
    pub fn open_channel(&mut self, of_user: Option<u32>, of_node: u32) -> Result<(), NoChannel> {
        take_one(&self.user.channels, of_user).map_err(NoChannel::OfUser)?;
        if let Err(limit) = take_one(&self.seats.channels, Some(of_node)) {
            self.user.channels.fetch_sub(1, Ordering::Relaxed);
            return Err(NoChannel::OfNode(limit));
        }
        self.channels += 1;
        Ok(())
    }

    /// A channel is closed.
    pub fn close_channel(&mut self) {
        if self.channels > 0 {
            self.channels -= 1;
            self.user.channels.fetch_sub(1, Ordering::Relaxed);
            self.seats.channels.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.user.channels.fetch_sub(self.channels, Ordering::Relaxed);
        self.seats.channels.fetch_sub(self.channels, Ordering::Relaxed);
        let mut inner = self.seats.inner.lock();
        let left = self.user.connections.fetch_sub(1, Ordering::Relaxed) - 1;
        if let Some(entry) = inner.entries.remove(&self.number).filter(|_| left == 0) {
            inner.users.remove(&entry.user);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{ConnectionId, ShardId};

    fn to(connection: u64) -> ReplyTo {
        ReplyTo { shard: ShardId(0), connection: ConnectionId(connection), token: 0 }
    }

    #[test]
    fn limits_hold_and_places_come_back() {
        let seats = Seats::default();
        let take = |connection, max_connections, vhost| {
            seats.take(to(connection), "bob", UserLimits { max_connections, max_channels: None }, vhost)
        };
        let first = take(1, Some(1), "/").expect("room");
        assert_eq!(take(2, Some(1), "/").expect_err("full"), Full(1));
        assert_eq!(take(2, Some(0), "/").expect_err("none at all"), Full(0));
        let second = take(2, None, "other").expect("room");
        assert_eq!((seats.of_user("bob"), seats.of_user("alice")), (2, 0));
        assert_eq!(seats.addresses(|_, vhost| vhost == "other"), [to(2)]);
        drop(first);
        assert_eq!(seats.of_user("bob"), 1);
        drop(second);
        let inner = seats.0.inner.lock();
        assert!(inner.entries.is_empty() && inner.users.is_empty());
    }

    #[test]
    fn channels_are_those_of_all_connections_of_a_user() {
        let seats = Seats::default();
        let take = |connection| seats.take(to(connection), "bob", UserLimits::default(), "/").expect("room");
        let (mut one, mut other) = (take(1), take(2));
        assert_eq!(one.open_channel(Some(2), 9), Ok(()));
        assert_eq!(other.open_channel(Some(2), 9), Ok(()));
        assert_eq!(one.open_channel(Some(2), 9), Err(NoChannel::OfUser(2)));
        other.close_channel();
        other.close_channel();
        assert_eq!(one.open_channel(Some(2), 9), Ok(()));
        assert_eq!(one.open_channel(None, 9), Ok(()));
        assert_eq!((seats.used_by("bob"), seats.channels()), ((2, 3), 3));
        drop(one);
        assert_eq!(other.open_channel(Some(1), 9), Ok(()), "they went with their connection");
        let mut alice = seats.take(to(3), "alice", UserLimits::default(), "/").expect("room");
        assert_eq!(alice.open_channel(None, 1), Err(NoChannel::OfNode(1)));
        assert_eq!((seats.used_by("alice"), seats.channels()), ((1, 0), 1));
        drop(other);
        assert_eq!(alice.open_channel(None, 1), Ok(()));
    }
}
