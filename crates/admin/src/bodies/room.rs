//! Room for bodies that come. A body takes room for all that it may have at once, before more of it is read than every body may have in any case:
//! so what has room can be finished, and nobody who has some waits for more. Those without room wait in order.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// So many bytes of each body have room in any case: the least that memory is taken for.
const FREE: usize = 16 << 10;
/// Of those that wait, the longest body comes after all others that come this much later.
const LONGEST_AFTER: Duration = Duration::from_secs(10);

/// How much a user may have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// As much as he leaves free.
    Half,
    /// One body at a time that comes, and all for that.
    OneEach,
}

/// Room for the bodies that are read at once, in bytes.
pub(super) struct Room {
    total: AtomicUsize,
    /// No body is longer.
    longest: usize,
    rule: Rule,
    state: Mutex<Option<State>>,
}

#[derive(Default)]
struct State {
    held: usize,
    /// Of this, what counts for a user. Nobody has 0.
    of: HashMap<Box<str>, usize>,
    waiting: BTreeMap<Place, Wish>,
    asked: u64,
}

/// In the order of those who wait: short bodies have not so long to wait, and nobody is passed for ever.
type Place = (Instant, u64);

struct Wish {
    user: Box<str>,
    bytes: usize,
    given: oneshot::Sender<()>,
}

impl State {
    fn of(&self, user: &str) -> usize {
        self.of.get(user).copied().unwrap_or(0)
    }
}

impl Room {
    pub const fn new(total: usize, longest: usize, rule: Rule) -> Self {
        Self { total: AtomicUsize::new(total), longest, rule, state: Mutex::new(None) }
    }

    /// All of it, in bytes.
    pub fn total(&self) -> usize {
        self.total.load(Ordering::Relaxed)
    }

    /// There are so many bytes from now on.
    pub fn resize(&self, total: usize) {
        self.total.store(total, Ordering::Relaxed);
    }

    /// Nothing yet, for a body that `user` sends.
    pub fn begin(&self, user: &str) -> Share<'_> {
        Share { room: self, user: user.into(), bytes: 0, counted: 0, asked: None }
    }

    /// Does a body of a user who has `own` find room where so much is held?
    fn fits(&self, held: usize, own: usize, bytes: usize) -> bool {
        let free = self.total().saturating_sub(held);
        match self.rule {
            Rule::Half => own + bytes <= free.saturating_sub(bytes),
            Rule::OneEach => own == 0 && bytes <= free,
        }
    }

    /// Takes room; what there is not yet is waited for.
    fn ask(&self, user: &str, bytes: usize) -> Option<(Place, oneshot::Receiver<()>)> {
        let mut state = self.state.lock();
        let state = state.get_or_insert_default();
        let later = LONGEST_AFTER.mul_f64((bytes as f64 / self.longest as f64).min(1.0));
        let place = (Instant::now() + later, state.asked);
        state.asked += 1;
        let (given, gives) = oneshot::channel();
        state.waiting.insert(place, Wish { user: user.into(), bytes, given });
        self.serve(state);
        state.waiting.contains_key(&place).then_some((place, gives))
    }

    /// Gives room to those who wait for it. Whose user has some already keeps only that user's own waiting.
    fn serve(&self, state: &mut State) {
        let State { held, of, waiting, .. } = state;
        let (mut served, mut passed) = (Vec::new(), HashSet::new());
        for (place, wish) in waiting.iter() {
            if *held >= self.total() {
                break;
            }
            if passed.contains(&wish.user) {
                continue;
            }
            let own = of.get(&wish.user).copied().unwrap_or(0);
            if self.fits(*held, own, wish.bytes) {
                *held += wish.bytes;
                of.insert(wish.user.clone(), own + wish.bytes);
                served.push(*place);
            } else if own == 0 {
                // What becomes free is for this one.
                break;
            } else {
                passed.insert(&wish.user);
            }
        }
        drop(passed);
        for place in served {
            if let Some(wish) = waiting.remove(&place) {
                // Whoever is gone by now gives it back himself.
                let _ = wish.given.send(());
            }
        }
    }

    /// So many bytes are free again; so many less count for a user.
    fn give_back(&self, user: &str, bytes: usize, counted: usize) {
        let mut state = self.state.lock();
        let state = state.get_or_insert_default();
        state.held -= bytes;
        let own = state.of(user) - counted;
        if own == 0 {
            state.of.remove(user);
        } else if let Some(left) = state.of.get_mut(user) {
            *left = own;
        }
        self.serve(state);
    }

    /// Nobody waits any longer in this place. False: room was given to it before.
    fn withdraw(&self, place: Place) -> bool {
        let mut state = self.state.lock();
        let state = state.get_or_insert_default();
        let waited = state.waiting.remove(&place).is_some();
        // Others may have waited behind it.
        self.serve(state);
        waited
    }

    /// How much is held, by all.
    pub fn held(&self) -> usize {
        self.state.lock().as_ref().map_or(0, |state| state.held)
    }
}

/// What a body has of a room, until this is dropped.
pub(super) struct Share<'a> {
    room: &'a Room,
    user: Box<str>,
    bytes: usize,
    /// Of these, what counts for the user.
    counted: usize,
    /// Where it waits, for how much.
    asked: Option<(Place, usize)>,
}

impl Share<'_> {
    /// Has room for a body of which so many bytes have come, and which may have so many in all, once others have left it.
    pub async fn take(&mut self, come: usize, all: usize) {
        if come <= FREE || self.bytes > 0 {
            return;
        }
        let bytes = all - FREE;
        if let Some((place, given)) = self.room.ask(&self.user, bytes) {
            self.asked = Some((place, bytes));
            // Nobody else takes it from its place.
            let _ = given.await;
            self.asked = None;
        }
        (self.bytes, self.counted) = (bytes, bytes);
    }

    /// Has it room for all of the body?
    pub fn has_room(&self) -> bool {
        self.bytes > 0
    }

    /// The body has come, and is so long.
    pub fn come(&mut self, bytes: usize) {
        let over = self.bytes.saturating_sub(bytes.saturating_sub(FREE));
        let uncounted = match self.room.rule {
            Rule::Half => over,
            Rule::OneEach => self.counted,
        };
        if over > 0 || uncounted > 0 {
            self.room.give_back(&self.user, over, uncounted);
            self.bytes -= over;
            self.counted -= uncounted;
        }
    }

    /// Do others wait who would have what this body has? Not those who wait for more than its user has, nor large ones for others of the same user.
    pub fn is_in_the_way(&self) -> bool {
        if self.bytes == 0 {
            return false;
        }
        let state = self.room.state.lock();
        let Some(state) = state.as_ref() else { return false };
        let own = state.of(&self.user);
        state.waiting.values().any(|wish| match self.room.rule {
            Rule::Half => wish.user == self.user || state.of(&wish.user) < own,
            Rule::OneEach => state.of(&wish.user) == 0,
        })
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        let unused = self.asked.filter(|(place, _)| !self.room.withdraw(*place)).map_or(0, |(_, bytes)| bytes);
        let (bytes, counted) = (self.bytes + unused, self.counted + unused);
        if bytes > 0 {
            self.room.give_back(&self.user, bytes, counted);
        }
    }
}
