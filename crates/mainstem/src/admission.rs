//! Who may connect: so many at once of one address, and so many of whom it is not known yet who they are, because those cost memory and
//! time before they have shown that they may. Counted by the acceptors, given back when a connection ends.

use std::cell::Cell;
use std::net::IpAddr;
use std::sync::Arc;

use broker::{LimitKind, Settings, place_of};
use hashbrown::HashMap;
use parking_lot::Mutex;

/// The bounds.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Of one address.
    pub per_address: u32,
    /// Of whom it is not known who they are.
    pub strangers: u32,
    /// Those of one address.
    pub strangers_per_address: u32,
}

impl Bounds {
    /// Those of the settings.
    pub fn of(settings: &Settings) -> Self {
        let int = |kind: LimitKind| u32::try_from(settings.int(kind.name())).unwrap_or(u32::MAX);
        Self {
            per_address: int(LimitKind::ConnectionsOfAddress),
            strangers: int(LimitKind::Strangers),
            strangers_per_address: int(LimitKind::StrangersOfAddress),
        }
    }
}

/// Which bound somebody met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Met {
    Limit(LimitKind),
    /// A quota.
    Rate,
}

impl Met {
    /// The setting, or the quota, that it is.
    pub fn setting(self) -> &'static str {
        match self {
            Self::Limit(kind) => kind.name(),
            Self::Rate => "connection_creation_rate",
        }
    }
}

#[derive(Default)]
struct Tally {
    open: u32,
    strangers: u32,
}

#[derive(Default)]
struct Inner {
    /// None has no connection.
    by_address: HashMap<IpAddr, Tally>,
    strangers: u32,
}

/// All that are connected.
#[derive(Default)]
pub struct Admission {
    inner: Mutex<Inner>,
}

/// The place of one connection; given back with it.
pub struct Place {
    of: Arc<Admission>,
    address: IpAddr,
    stranger: Cell<bool>,
}

impl Admission {
    /// Lets one in who comes from `address`, within bounds as they are now. `stranger`: who it is will be known only later.
    ///
    /// # Errors
    /// The bound that is reached.
    pub fn enter(self: &Arc<Self>, address: IpAddr, stranger: bool, bounds: Bounds) -> Result<Place, Met> {
        let address = place_of(address);
        let mut inner = self.inner.lock();
        let (open, strangers) = inner.by_address.get(&address).map_or((0, 0), |tally| (tally.open, tally.strangers));
        if open >= bounds.per_address {
            return Err(Met::Limit(LimitKind::ConnectionsOfAddress));
        }
        if stranger && strangers >= bounds.strangers_per_address {
            return Err(Met::Limit(LimitKind::StrangersOfAddress));
        }
        if stranger && inner.strangers >= bounds.strangers {
            return Err(Met::Limit(LimitKind::Strangers));
        }
        let more = u32::from(stranger);
        inner.strangers += more;
        let tally = inner.by_address.entry(address).or_default();
        (tally.open, tally.strangers) = (open + 1, strangers + more);
        Ok(Place { of: Arc::clone(self), address, stranger: Cell::new(stranger) })
    }
}

impl Place {
    /// Is it not known yet who it is?
    pub fn is_stranger(&self) -> bool {
        self.stranger.get()
    }

    /// Now it is known.
    pub fn known(&self) {
        if self.stranger.take() {
            let mut inner = self.of.inner.lock();
            inner.strangers -= 1;
            if let Some(tally) = inner.by_address.get_mut(&self.address) {
                tally.strangers -= 1;
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.known();
        let mut inner = self.of.inner.lock();
        if let Some(tally) = inner.by_address.get_mut(&self.address) {
            tally.open -= 1;
            if tally.open == 0 {
                inner.by_address.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_hold_and_places_come_back() {
        let admission = Arc::new(Admission::default());
        let bounds = Bounds { per_address: 3, strangers: 3, strangers_per_address: 2 };
        let enter = |address: &str, stranger| admission.enter(address.parse().expect("an address"), stranger, bounds);
        let (one, other) = (enter("192.0.2.1", true).expect("room"), enter("192.0.2.1", true).expect("room"));
        assert_eq!(enter("192.0.2.1", true).err(), Some(Met::Limit(LimitKind::StrangersOfAddress)));
        let third = enter("2001:db8::1", true).expect("room");
        assert_eq!(enter("192.0.2.9", true).err(), Some(Met::Limit(LimitKind::Strangers)));
        assert!(enter("192.0.2.9", false).is_ok());
        one.known();
        one.known();
        let fourth = enter("192.0.2.1", true).expect("the first is known");
        assert_eq!(enter("192.0.2.1", false).err(), Some(Met::Limit(LimitKind::ConnectionsOfAddress)));
        let wider = Bounds { per_address: 4, ..bounds };
        assert!(admission.enter("192.0.2.1".parse().expect("an address"), false, wider).is_ok());
        drop((one, other, fourth));
        assert_eq!(admission.inner.lock().strangers, 1);
        drop(third);
        let inner = admission.inner.lock();
        assert!(inner.strangers == 0 && inner.by_address.is_empty());
    }
}
