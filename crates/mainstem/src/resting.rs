//! Which connections of a shard have rested: what they keep for their next request or answer (buffers, queues) is freed then.
//!
//! A connection notes each read and each write, which sets a flag. One that was at rest before stands in a line as well, whose first entries are looked at
//! after a while: a connection that has been used meanwhile goes to the end, one that has not been used in two such spans has rested, and is woken once.
//! One at rest costs nothing.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use types::ConnectionId;

/// A connection that was not used for two of these has rested.
const SPAN: Duration = Duration::from_secs(1);
/// Those that are due are looked at together, after this long.
const LOOK_AFTER: Duration = Duration::from_millis(250);
/// So many are looked at before others have their turn.
const AT_ONCE: usize = 200;

/// What a connection does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Use {
    /// It holds nothing, or gives back what it holds now. It does not stand in line.
    #[default]
    Rested,
    /// It has rested, and is to give back what it holds. It does not stand in line.
    Due,
    /// It was used since it was looked at.
    Used,
    /// It was not.
    Quiet,
}

/// What a connection notes.
#[derive(Default)]
pub struct Activity(Cell<Use>);

impl Activity {
    /// Has it rested? It is told once.
    pub fn take_rest(&self) -> bool {
        let due = self.0.get() == Use::Due;
        if due {
            self.0.set(Use::Rested);
        }
        due
    }
}

/// The connections of a shard that were used lately.
#[derive(Default)]
pub struct Resting {
    /// When each was looked at, or came.
    line: RefCell<VecDeque<(ConnectionId, Instant)>>,
    begins: Notify,
}

impl Resting {
    /// A connection was used.
    pub fn note_use(&self, id: ConnectionId, activity: &Activity, now: Instant) {
        if matches!(activity.0.replace(Use::Used), Use::Rested | Use::Due) {
            let mut line = self.line.borrow_mut();
            if line.is_empty() {
                self.begins.notify_one();
            }
            line.push_back((id, now));
        }
    }

    /// Waits until it is time to look.
    pub async fn next(&self) {
        if self.line.borrow().is_empty() {
            self.begins.notified().await;
        }
        tokio::time::sleep(LOOK_AFTER).await;
    }

    /// Looks at some of those that are due: `find` a connection that is still there, and `wake` it if it has rested. False: no more is due.
    pub fn look<C>(
        &self,
        now: Instant,
        find: impl Fn(ConnectionId) -> Option<C>,
        activity: impl Fn(&C) -> &Activity,
        wake: impl Fn(&C),
    ) -> bool {
        for _ in 0..AT_ONCE {
            let mut line = self.line.borrow_mut();
            let Some((id, since)) = line.front().copied() else { break };
            if now.saturating_duration_since(since) < SPAN {
                return false;
            }
            line.pop_front();
            let Some(connection) = find(id) else { continue };
            let Activity(state) = activity(&connection);
            match state.get() {
                Use::Used => {
                    state.set(Use::Quiet);
                    line.push_back((id, now));
                }
                Use::Quiet => {
                    state.set(Use::Due);
                    wake(&connection);
                }
                Use::Rested | Use::Due => {}
            }
        }
        !self.line.borrow().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    #[test]
    fn who_is_not_used_for_two_spans_has_rested() {
        let (resting, begin) = (Resting::default(), Instant::now());
        let connections: Vec<Rc<Activity>> = (0..3).map(|_| Rc::default()).collect();
        let id = |number: usize| ConnectionId(number as u64);
        let after = |spans: u32| begin + SPAN * spans;
        // The last one has ended.
        let look = |spans| {
            while resting.look(
                after(spans),
                |id| connections.get(id.0 as usize).filter(|_| id.0 < 2),
                |one| one,
                |_| {},
            ) {}
        };
        connections.iter().enumerate().for_each(|(number, one)| resting.note_use(id(number), one, begin));
        assert!(!connections[0].take_rest(), "it was used");
        look(1);
        resting.note_use(id(1), &connections[1], after(1));
        assert_eq!(resting.line.borrow().len(), 2, "each is there once");
        look(2);
        assert!(connections[0].take_rest() && !connections[0].take_rest() && !connections[1].take_rest());
        look(3);
        look(4);
        assert!(connections[1].take_rest() && resting.line.borrow().is_empty());
        resting.note_use(id(0), &connections[0], after(4));
        look(4);
        assert_eq!(resting.line.borrow().len(), 1, "it is not looked at before its time");
    }

    #[test]
    fn many_are_looked_at_in_pieces() {
        let (resting, begin, one) = (Resting::default(), Instant::now(), Activity::default());
        for number in 0..2 * AT_ONCE {
            resting.note_use(ConnectionId(number as u64), &Activity::default(), begin);
        }
        let look = || resting.look(begin + SPAN, |_| Some(&one), |one| one, |_| {});
        assert!(look());
        assert_eq!(resting.line.borrow().len(), AT_ONCE);
        assert!(!look());
    }
}
