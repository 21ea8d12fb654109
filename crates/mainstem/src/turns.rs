//! Who has the thread of a shard next: connections that have something to be read or handled stand in line, each for one turn, and after so much work
//! sockets are looked at before the next one begins.
//!
//! A turn takes a millisecond at most ([`Turns::length`]) but for the request that it ends with. A connection with more requests in its buffer goes to the end of
//! the line, so that a newcomer waits for one turn of each of those before it, however much they have sent.
//!
//! Who has taken less than his share of the thread lately does not stand in line ([`Standing`]): what many ask of much is not waited for by who asks for little. Half of
//! the thread is shared evenly by users (before a login by addresses), the other half by connections.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use tokio::sync::{Semaphore, SemaphorePermit};

/// After so much work sockets are looked at before more is begun: by itself the thread does that after 61 tasks, each of which may take a turn's time.
const ROUND_TIME: Duration = Duration::from_millis(1);

/// The line of a shard.
pub struct Turns {
    line: Semaphore,
    waiting: Cell<usize>,
    /// What the thread has done since sockets were looked at, and how often they were.
    spent: Cell<Duration>,
    round: Cell<u64>,
    /// Windows of time are counted from here.
    began: Instant,
    users: Sharers,
    connections: Sharers,
    accounts: RefCell<HashMap<Account, Rc<Share>>>,
}

/// Requests that came together are handled for so long in one turn, since a few bytes may ask for much …
pub const TURN_TIME: Duration = Duration::from_millis(1);
/// … and for less where many wait, so that each is served after so long, or …
const LINE_TIME: Duration = Duration::from_millis(10);
/// … at least for so long.
const TURN_LEAST: Duration = Duration::from_micros(100);

/// What is taken of the thread is counted by windows of time: a share is judged by the last one and the one that runs.
const WINDOWS_A_SECOND: u64 = 10;
/// Users share so much of a window, and connections as much: a half each.
const SHARED: Duration = Duration::from_millis(50);

/// A connection's time is counted in pieces of at least so much: a small request takes less.
const CHARGED_FROM: Duration = Duration::from_micros(20);

/// Whose work it is: a user from an address; without a name, all from an address that have not logged in.
type Account = (Option<Box<str>>, IpAddr);

/// What one of those that share has taken of the thread lately.
#[derive(Default)]
struct Share {
    window: Cell<u64>,
    taken: Cell<Duration>,
    /// In the window before.
    before: Cell<Duration>,
}

impl Share {
    /// What it has taken in this window and the last one.
    fn recent(&self, window: u64) -> Duration {
        match window - self.window.get().min(window) {
            0 => self.taken.get() + self.before.get(),
            1 => self.taken.get(),
            _ => Duration::ZERO,
        }
    }

    /// True: the first time in this window.
    fn take(&self, time: Duration, window: u64) -> bool {
        let first = self.window.get() != window;
        if first {
            self.before.set(if self.window.get() + 1 == window { self.taken.get() } else { Duration::ZERO });
            self.taken.set(Duration::ZERO);
            self.window.set(window);
        }
        self.taken.set(self.taken.get() + time);
        first
    }
}

/// How many have taken something in the window that runs, and in the one before.
#[derive(Default)]
struct Sharers {
    window: Cell<u64>,
    count: Cell<u32>,
    before: Cell<u32>,
}

impl Sharers {
    fn roll(&self, window: u64) {
        if self.window.get() != window {
            self.before.set(if self.window.get() + 1 == window { self.count.get() } else { 0 });
            self.count.set(0);
            self.window.set(window);
        }
    }

    fn add(&self, window: u64) {
        self.roll(window);
        self.count.set(self.count.get() + 1);
    }

    /// What each of them may take.
    fn even(&self, window: u64) -> Duration {
        self.roll(window);
        SHARED / self.count.get().max(self.before.get()).max(1)
    }
}

/// A connection as one of those that share the thread.
pub struct Standing {
    /// What it has taken, too little to be counted by itself.
    uncharged: Cell<Duration>,
    own: Share,
    user: RefCell<Rc<Share>>,
}

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

/// A turn, until it is dropped; nothing for who need not stand in line.
pub type Turn<'a> = Option<SemaphorePermit<'a>>;

impl Default for Turns {
    fn default() -> Self {
        Self {
            line: Semaphore::new(1),
            waiting: Cell::default(),
            spent: Cell::default(),
            round: Cell::default(),
            began: Instant::now(),
            users: Sharers::default(),
            connections: Sharers::default(),
            accounts: RefCell::default(),
        }
    }
}

impl Turns {
    /// A connection from `address`, before a login.
    pub fn stand(&self, address: IpAddr) -> Standing {
        Standing {
            uncharged: Cell::default(),
            own: Share::default(),
            user: RefCell::new(self.account((None, address))),
        }
    }

    /// It is this user's.
    pub fn known(&self, standing: &Standing, user: &str, address: IpAddr) {
        standing.user.replace(self.account((Some(user.into()), address)));
    }

    fn account(&self, of: Account) -> Rc<Share> {
        let mut accounts = self.accounts.borrow_mut();
        // Those that nobody has any more are dropped before the table would grow.
        if accounts.len() == accounts.capacity() {
            accounts.retain(|_, share| Rc::strong_count(share) > 1);
        }
        Rc::clone(accounts.entry(of).or_default())
    }

    fn window(&self, now: Instant) -> u64 {
        // Windows begin with 1: nobody has taken anything in the one before.
        let since = now.saturating_duration_since(self.began);
        since.as_secs() * WINDOWS_A_SECOND + u64::from(since.subsec_millis()) / (1000 / WINDOWS_A_SECOND) + 1
    }

    /// Has it taken less than its share, as a user's or by itself?
    pub fn is_light(&self, standing: &Standing, now: Instant) -> bool {
        let window = self.window(now);
        standing.user.borrow().recent(window) < self.users.even(window)
            || standing.own.recent(window) < self.connections.even(window)
    }

    /// Waits in line for a turn, but for those that need not; before there has been much work there is no line. Nothing that may take long is to be waited for while it is held.
    pub async fn next(&self, standing: &Standing, now: Instant) -> Turn<'_> {
        let nobody_waits = self.waiting.get() == 0 && self.spent.get() < ROUND_TIME;
        if nobody_waits || self.is_light(standing, now) {
            return None;
        }
        let waits = Waiting::new(&self.waiting);
        // The line is never closed.
        let turn = self.line.acquire().await.ok();
        drop(waits);
        // Once: others may work for as long in each round, and who is first in line has waited for all before him.
        self.pause_if_due().await;
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

    /// As [`Turns::pause`], when there has been so much work that sockets are to be looked at.
    pub async fn pause_if_due(&self) {
        if self.spent.get() >= ROUND_TIME {
            self.pause().await;
        }
    }

    /// The thread has worked for so long.
    pub fn spend(&self, time: Duration) {
        self.spent.set(self.spent.get() + time);
    }

    /// The thread has worked for so long for a connection; at `now` it began or ended.
    pub fn charge(&self, standing: &Standing, time: Duration, now: Instant) {
        let time = standing.uncharged.get() + time;
        if time < CHARGED_FROM {
            standing.uncharged.set(time);
            return;
        }
        standing.uncharged.set(Duration::ZERO);
        let window = self.window(now);
        if standing.own.take(time, window) {
            self.connections.add(window);
        }
        if standing.user.borrow().take(time, window) {
            self.users.add(window);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    /// A connection that has taken all that it may.
    fn heavy(turns: &Turns) -> Standing {
        let standing = turns.stand(ADDRESS);
        turns.charge(&standing, SHARED, Instant::now());
        standing
    }

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
                        let standing = heavy(&turns);
                        let turn = turns.next(&standing, Instant::now()).await;
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
                    let standing = heavy(&turns);
                    let _turn = turns.next(&standing, Instant::now()).await;
                    seen.borrow_mut().push(turns.length().as_micros());
                    turns.spend(ROUND_TIME);
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
                    let standing = heavy(&turns);
                    let _turn = turns.next(&standing, Instant::now()).await;
                    turns.spend(Duration::from_millis(1));
                });
            }
        });
        assert_eq!(turns.round.get(), 99);
    }

    #[test]
    fn who_always_has_work_beside_the_line_does_not_hold_it_up() {
        const ROUNDS: u64 = 1000;
        let (turns, served) = (Rc::new(Turns::default()), Rc::new(RefCell::new(Vec::new())));
        run(|local| {
            // As mail is delivered, and users are served who have taken little: so much of it in each round.
            let beside = |turns: &Rc<Turns>| {
                let turns = Rc::clone(turns);
                local.spawn_local(async move {
                    for _ in 0..ROUNDS {
                        turns.spend(ROUND_TIME);
                        turns.pause().await;
                    }
                });
            };
            beside(&turns);
            for _ in 0..10 {
                let (turns, served) = (Rc::clone(&turns), Rc::clone(&served));
                local.spawn_local(async move {
                    let standing = heavy(&turns);
                    let _turn = turns.next(&standing, Instant::now()).await;
                    turns.spend(ROUND_TIME);
                    served.borrow_mut().push(turns.round.get());
                });
            }
            // Who pauses last is woken first.
            beside(&turns);
        });
        let served = served.borrow();
        assert!(served.len() == 10 && served[9] <= 20, "in these rounds of {ROUNDS}: {served:?}");
    }

    #[test]
    fn who_has_taken_little_does_not_stand_in_line() {
        let turns = Turns::default();
        let now = Instant::now();
        let (many, few) = (turns.stand(ADDRESS), turns.stand(ADDRESS));
        turns.known(&many, "many", ADDRESS);
        turns.known(&few, "few", ADDRESS);
        turns.charge(&few, Duration::from_millis(1), now);
        // A user with a thousand connections is one user, and each of them has but a small share.
        let others: Vec<_> = (0..1000).map(|_| turns.stand(ADDRESS)).collect();
        for other in &others {
            turns.known(other, "many", ADDRESS);
            turns.charge(other, Duration::from_millis(1), now);
        }
        assert!(turns.is_light(&few, now), "has taken 1 ms of 100");
        assert!(
            others.iter().all(|other| !turns.is_light(other, now)),
            "all of a user that takes too much stand in line"
        );
        assert!(turns.is_light(&many, now), "one of its connections that has taken nothing does not");
        turns.charge(&few, SHARED, now);
        assert!(!turns.is_light(&few, now));
        // It is forgotten in time.
        assert!(!turns.is_light(&few, now + Duration::from_millis(100)));
        assert!(turns.is_light(&few, now + Duration::from_millis(200)));
    }

    #[test]
    fn accounts_that_nobody_has_go() {
        let turns = Turns::default();
        for number in 0..100_000u32 {
            turns.stand(IpAddr::V4(number.into()));
        }
        assert!(turns.accounts.borrow().len() < 10, "{} accounts", turns.accounts.borrow().len());
    }
}
