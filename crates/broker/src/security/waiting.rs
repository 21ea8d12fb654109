//! Passwords that wait to be verified, by the address they come from. Addresses take turns, so that one from which many wrong ones come
//! holds up nobody but itself. When as many wait as may, the address with the most gives up its newest, unless that is the one from which
//! another comes: then it is refused.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use hashbrown::HashMap;
use journal::ReplyTo;
use parking_lot::{Condvar, Mutex};

use crate::Broker;
use crate::jobs::{Work, guarded};
use crate::mailbox::Reply;

/// Passwords that may wait to be verified.
const WAITING_MAX: usize = 1000;

/// Whose outcome it is, and how it is found.
pub(crate) struct Login {
    pub to: ReplyTo,
    pub work: Work,
}

/// See the head of the file.
#[derive(Default)]
pub(crate) struct Logins {
    inner: Mutex<Inner>,
    arrives: Condvar,
}

#[derive(Default)]
struct Inner {
    /// None is empty.
    by_address: HashMap<IpAddr, VecDeque<Login>>,
    /// Each of them once; the first is next.
    turns: VecDeque<IpAddr>,
    waiting: usize,
    closed: bool,
}

/// What counts as one address: an IPv6 client has a whole network of them, and an IPv4 address is the same in either form.
pub fn place_of(address: IpAddr) -> IpAddr {
    const NETWORK: u128 = !(u64::MAX as u128);
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & NETWORK)),
        short => short,
    }
}

impl Inner {
    fn push(&mut self, place: IpAddr, login: Login) {
        let waiting = self.by_address.entry(place).or_default();
        if waiting.is_empty() {
            self.turns.push_back(place);
        }
        waiting.push_back(login);
        self.waiting += 1;
    }

    /// Makes room for one from `place`, at the cost of another that has more; who is refused. `None`: there is none.
    fn make_room(&mut self, place: IpAddr) -> Option<Login> {
        let own = self.by_address.get(&place).map_or(0, VecDeque::len);
        let (_, most) = self.by_address.iter_mut().max_by_key(|(_, waiting)| waiting.len())?;
        if most.len() <= own + 1 {
            return None;
        }
        self.waiting -= 1;
        most.pop_back()
    }

    fn next(&mut self) -> Option<Login> {
        let place = self.turns.pop_front()?;
        let waiting = self.by_address.get_mut(&place)?;
        let login = waiting.pop_front();
        if waiting.is_empty() {
            self.by_address.remove(&place);
        } else {
            self.turns.push_back(place);
        }
        self.waiting -= usize::from(login.is_some());
        login
    }
}

impl Logins {
    /// Whoever is refused for it: the new one itself, or one that waited.
    pub fn push(&self, address: IpAddr, login: Login) -> Result<Option<Login>, Login> {
        let (mut inner, place) = (self.inner.lock(), place_of(address));
        if inner.closed {
            return Err(login);
        }
        let mut refused = None;
        if inner.waiting >= WAITING_MAX {
            match inner.make_room(place) {
                Some(other) => refused = Some(other),
                None => return Err(login),
            }
        }
        inner.push(place, login);
        self.arrives.notify_one();
        Ok(refused)
    }

    /// Ends the threads once what waits is done.
    pub fn close(&self) {
        self.inner.lock().closed = true;
        self.arrives.notify_all();
    }

    /// The body of a thread that verifies.
    pub fn run(&self, broker: &Arc<Broker>) {
        while let Some(Login { to, work }) = self.wait() {
            let outcome = guarded(|| work(broker));
            broker.reply(to, outcome.map_or(Reply::Failed, Reply::Done));
        }
    }

    fn wait(&self) -> Option<Login> {
        let mut inner = self.inner.lock();
        loop {
            if let Some(login) = inner.next() {
                return Some(login);
            }
            if inner.closed {
                return None;
            }
            self.arrives.wait(&mut inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use types::{ConnectionId, ShardId};

    use super::*;

    fn login(token: u64) -> Login {
        Login {
            to: ReplyTo { shard: ShardId(0), connection: ConnectionId(0), token },
            work: Box::new(|_| Box::new(())),
        }
    }

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn an_address_that_sends_many_holds_up_only_itself() {
        let logins = Logins::default();
        let (bad, good, other) = (address("192.0.2.1"), address("192.0.2.2"), address("::ffff:192.0.2.3"));
        for token in 0..WAITING_MAX as u64 {
            assert!(matches!(logins.push(bad, login(token)), Ok(None)));
        }
        assert!(logins.push(bad, login(5000)).is_err(), "it has all the room there is");
        let refused = logins.push(good, login(6000)).ok().flatten().expect("one that waited");
        assert_eq!(refused.to.token, WAITING_MAX as u64 - 1, "the newest of the one with the most");
        assert!(matches!(logins.push(other, login(7000)), Ok(Some(_))));
        let order: Vec<u64> = (0..4).filter_map(|_| logins.wait()).map(|login| login.to.token).collect();
        assert_eq!(order, [0, 6000, 7000, 1]);
        logins.close();
        assert_eq!(std::iter::from_fn(|| logins.wait()).count(), WAITING_MAX - 4);
        assert!(logins.inner.lock().by_address.is_empty() && logins.inner.lock().waiting == 0);
        assert!(logins.push(good, login(1)).is_err(), "nobody verifies any more");
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        assert_eq!(place_of(address("2001:db8:0:1::5")), place_of(address("2001:db8:0:1:ffff::9")));
        assert_ne!(place_of(address("2001:db8:0:1::5")), place_of(address("2001:db8:0:2::5")));
        assert_eq!(place_of(address("::ffff:192.0.2.3")), address("192.0.2.3"));
    }
}
