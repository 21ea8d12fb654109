//! Those who have a place, by the address that they come from, in the order in which they came. Where no place is left, one who comes
//! from an address that has fewer of them than another takes the place of the one who came first from there: whoever fills all places
//! does not keep others out.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use hashbrown::HashMap;

/// Addresses are those that [`place_of`](super::place_of) makes of them. A member is known by its `Arc`.
#[derive(Debug)]
pub struct Crowd<T> {
    /// With the number of each, in the order in which they came; none is empty.
    by_address: HashMap<IpAddr, VecDeque<(u64, Arc<T>)>>,
    count: usize,
    next: u64,
}

impl<T> Default for Crowd<T> {
    fn default() -> Self {
        Self { by_address: HashMap::new(), count: 0, next: 0 }
    }
}

impl<T> Crowd<T> {
    /// All of them.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Nobody is there.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Those of an address.
    pub fn of(&self, address: IpAddr) -> usize {
        self.by_address.get(&address).map_or(0, VecDeque::len)
    }

    /// Another comes.
    pub fn push(&mut self, address: IpAddr, one: Arc<T>) {
        self.by_address.entry(address).or_default().push_back((self.next, one));
        (self.next, self.count) = (self.next + 1, self.count + 1);
    }

    /// Somebody goes; nothing happens when he is gone already.
    pub fn remove(&mut self, address: IpAddr, one: &Arc<T>) {
        let Some(all) = self.by_address.get_mut(&address) else { return };
        let Some(at) = all.iter().position(|(_, other)| Arc::ptr_eq(other, one)) else { return };
        all.remove(at);
        self.count -= 1;
        if all.is_empty() {
            self.by_address.remove(&address);
        }
    }

    /// Takes out the one who came first, of those who `may_go`, from `address`, or from any: then from one that has most, and somebody who may.
    pub fn displace_first(&mut self, address: Option<IpAddr>, may_go: impl Fn(&T) -> bool) -> Option<Arc<T>> {
        let first = |all: &VecDeque<(u64, Arc<T>)>| {
            all.iter().find(|(_, one)| may_go(one)).map(|(number, one)| (*number, Arc::clone(one)))
        };
        let (from, one) = match address {
            Some(address) => (address, first(self.by_address.get(&address)?)?.1),
            None => {
                let able =
                    self.by_address.iter().filter_map(|(from, all)| Some((all.len(), Reverse(first(all)?.0), *from)));
                let (_, _, from) = able.max()?;
                (from, first(self.by_address.get(&from)?)?.1)
            }
        };
        self.remove(from, &one);
        Some(one)
    }

    /// Takes out who came first from the address that has most, for one who comes from `address`. `None`: no other has enough more.
    pub fn displace_for(&mut self, address: IpAddr) -> Option<(IpAddr, Arc<T>)> {
        // Who has none gets one, others as many as the rest at most.
        let least = match self.of(address) {
            0 => 1,
            have => have + 2,
        };
        let rank = |all: &VecDeque<(u64, Arc<T>)>| (all.len(), Reverse(all.front().map(|(number, _)| *number)));
        let (fullest, all) =
            self.by_address.iter().max_by_key(|(_, all)| rank(all)).filter(|(_, all)| all.len() >= least)?;
        let (fullest, first) = (*fullest, Arc::clone(&all.front()?.1));
        self.remove(fullest, &first);
        Some((fullest, first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn the_first_of_the_fullest_goes_for_who_has_fewer() {
        let mut crowd = Crowd::default();
        for (from, name) in [(1, "a"), (2, "b"), (2, "c"), (1, "d"), (2, "e")] {
            crowd.push(address(from), Arc::new(name));
        }
        assert!(
            crowd.displace_for(address(2)).is_none() && crowd.displace_for(address(1)).is_none(),
            "it would have as many as the other"
        );
        assert_eq!(crowd.displace_for(address(3)), Some((address(2), Arc::new("b"))));
        // Both have two: the first of all goes.
        assert_eq!(crowd.displace_for(address(3)), Some((address(1), Arc::new("a"))));
        assert_eq!((crowd.of(address(1)), crowd.of(address(2)), crowd.of(address(3)), crowd.len()), (1, 2, 0, 3));
    }

    #[test]
    fn the_first_who_may_goes() {
        let mut crowd = Crowd::default();
        for (from, name) in
            [(1, "a"), (2, "busy"), (2, "b"), (2, "c"), (3, "busy"), (3, "busy"), (3, "busy"), (3, "busy")]
        {
            crowd.push(address(from), Arc::new(name));
        }
        let may_go = |name: &&str| *name != "busy";
        assert_eq!(crowd.displace_first(Some(address(1)), may_go), Some(Arc::new("a")));
        assert_eq!(crowd.displace_first(Some(address(3)), may_go), None);
        assert_eq!(crowd.displace_first(None, may_go), Some(Arc::new("b")), "of those who have most, and may");
        assert_eq!(crowd.displace_first(None, may_go), Some(Arc::new("c")));
        assert_eq!((crowd.displace_first(None, may_go), crowd.len()), (None, 5));
    }

    #[test]
    fn who_goes_is_counted_once() {
        let mut crowd = Crowd::default();
        let (one, other) = (Arc::new(()), Arc::new(()));
        crowd.push(address(1), Arc::clone(&one));
        crowd.remove(address(1), &other);
        crowd.remove(address(2), &one);
        assert_eq!(crowd.len(), 1);
        crowd.remove(address(1), &one);
        crowd.remove(address(1), &one);
        assert!(crowd.is_empty() && crowd.by_address.is_empty());
    }
}
