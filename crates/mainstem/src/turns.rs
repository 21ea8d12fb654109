//! Who has the thread of a shard next: connections that have something to be read or handled stand in line, each for one turn, and after so much work
//! sockets are looked at before the next one begins.
//!
//! A turn takes a millisecond at most ([`Turns::length`]) but for the request that it ends with. A connection with more requests in its buffer goes to the end of
//! the line, so that a newcomer waits for one turn of each of those before it, however much they have sent.

use std::cell::Cell;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

/// After so much work sockets are looked at before more is begun: by itself the thread does that after 61 tasks, each of which may take a turn's time.
const ROUND_TIME: Duration = Duration::from_millis(5);

/// The line of a shard.
pub struct Turns {
    line: Semaphore,
    waiting: Cell<usize>,
    /// What the thread has done since sockets were looked at, and how often they were.
    spent: Cell<Duration>,
    round: Cell<u64>,
}

/// Requests that came together are handled for so long in one turn, since a few bytes may ask for much …
pub const TURN_TIME: Duration = Duration::from_millis(1);
/// … and for less where many wait, so that each is served after so long, or …
const LINE_TIME: Duration = Duration::from_millis(10);
/// … at least for so long.
const TURN_LEAST: Duration = Duration::from_micros(100);

/// Counts one who waits, until it is dropped.
struct Waiting<'a>(&'a Cell<usize>);

impl<'a> Waiting<'a> {
    fn new(count: &'a Cell<usize>) -> Self {
        count.set(count.get() + 1);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// A turn, until it is dropped.
pub type Turn<'a> = Option<SemaphorePermit<'a>>;

impl Default for Turns {
    fn default() -> Self {
        Self { line: Semaphore::new(1), waiting: Cell::default(), spent: Cell::default(), round: Cell::default() }
    }
}

impl Turns {
    /// Waits in line for a turn. Nothing that may take long is to be waited for while it is held.
    pub async fn next(&self) -> Turn<'_> {
        let waits = Waiting::new(&self.waiting);
        // The line is never closed.
        let turn = self.line.acquire().await.ok();
        drop(waits);
        while self.spent.get() >= ROUND_TIME {
            self.pause().await;
        }
        turn
    }

    /// For how long requests that came together are handled in a turn; the one under way is finished.
    pub fn length(&self) -> Duration {
        (LINE_TIME / u32::try_from(self.waiting.get()).unwrap_or(u32::MAX).max(1)).clamp(TURN_LEAST, TURN_TIME)
    }

    /// Lets others have their turn, and has sockets looked at: what has come meanwhile is served before what goes on.
    pub async fn pause(&self) {
        let round = self.round.get();
        tokio::task::yield_now().await;
        if self.round.get() == round {
            self.round.set(round + 1);
            self.spent.set(Duration::ZERO);
        }
    }

    /// The thread has worked for so long.
    pub fn spend(&self, time: Duration) {
        self.spent.set(self.spent.get() + time);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    fn run(tasks: impl FnOnce(&tokio::task::LocalSet)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let local = tokio::task::LocalSet::new();
        tasks(&local);
        runtime.block_on(local);
    }

    #[test]
    fn nobody_is_two_turns_ahead_of_others() {
        const CONNECTIONS: usize = 300;
        const EACH: usize = 4;
        let (turns, order) = (Rc::new(Turns::default()), Rc::new(RefCell::new(Vec::new())));
        run(|local| {
            for number in 0..CONNECTIONS {
                let (turns, order) = (Rc::clone(&turns), Rc::clone(&order));
                local.spawn_local(async move {
                    for _ in 0..EACH {
                        let turn = turns.next().await;
                        order.borrow_mut().push(number);
                        turns.spend(Duration::from_millis(1));
                        drop(turn);
                        turns.pause().await;
                    }
                });
            }
        });
        let order = order.borrow();
        assert_eq!(order.len(), CONNECTIONS * EACH);
        let mut served = [0; CONNECTIONS];
        for number in order.iter() {
            served[*number] += 1;
            // Those that have just come are behind the first ones, which may have had a turn by then.
            let least = served.iter().min().copied().unwrap_or(0);
            assert!(served[*number] <= least + 2, "{number} has had {} turns, another one {least}", served[*number]);
        }
    }

    #[test]
    fn turns_are_shorter_where_many_wait() {
        let turns = Rc::new(Turns::default());
        let seen = Rc::new(RefCell::new(Vec::new()));
        run(|local| {
            for _ in 0..200 {
                let (turns, seen) = (Rc::clone(&turns), Rc::clone(&seen));
                local.spawn_local(async move {
                    let _turn = turns.next().await;
                    seen.borrow_mut().push(turns.length().as_micros());
                    turns.pause().await;
                });
            }
        });
        let seen = seen.borrow();
        assert!(seen[1] == 100 && seen[199] == 1000 && seen[160..].is_sorted(), "{seen:?}");
    }

    #[test]
    fn sockets_are_looked_at_after_so_much_work() {
        let turns = Rc::new(Turns::default());
        run(|local| {
            for _ in 0..100 {
                let turns = Rc::clone(&turns);
                local.spawn_local(async move {
                    let _turn = turns.next().await;
                    turns.spend(Duration::from_millis(1));
                });
            }
        });
        assert_eq!(turns.round.get(), 19);
    }
}
