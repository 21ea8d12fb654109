//! One at a time of each user.

use hashbrown::HashSet;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Users who have their turn.
pub(super) struct Turns {
    users: Mutex<Option<HashSet<Box<str>>>>,
    ended: Notify,
}

impl Turns {
    pub const fn new() -> Self {
        Self { users: Mutex::new(None), ended: Notify::const_new() }
    }

    /// The turn of a user, once his one before has ended.
    pub async fn begin(&self, user: &str) -> Turn<'_> {
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            ended.as_mut().enable();
            if self.users.lock().get_or_insert_default().insert(user.into()) {
                return Turn { turns: self, user: user.into() };
            }
            ended.await;
        }
    }
}

/// Ends when it is dropped.
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    user: Box<str>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(users) = self.turns.users.lock().as_mut() {
            users.remove(&self.user);
        }
        self.turns.ended.notify_waiters();
    }
}
