//! Who may connect: so many at once of one address, and so many of whom it is not known yet who they are, because those cost memory and
//! time before they have shown that they may. Counted by the acceptors, given back when a connection ends.
//!
//! Where no place is left for strangers, one of an address that has many gives way to who comes from another (`Crowd`).

use std::cell::Cell;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use broker::{Crowd, LimitKind, Settings, place_of};
use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::frames::AddressUse;

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

/// One of whom it is not known who he is, as the others see him.
#[derive(Default)]
struct Stranger {
    /// His place is another's.
    displaced: AtomicBool,
    goes: Notify,
}

/// What one address has.
#[derive(Default)]
struct Open {
    connections: u32,
    requests: Arc<AddressUse>,
}

#[derive(Default)]
struct Inner {
    /// No address has no connections.
    open: HashMap<IpAddr, Open>,
    strangers: Crowd<Stranger>,
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
    requests: Arc<AddressUse>,
    stranger: Cell<Option<Arc<Stranger>>>,
    is_stranger: Cell<bool>,
}

impl Admission {
    /// Lets one in who comes from `address`, within bounds as they are now. `stranger`: who it is will be known only later. With him comes
    /// the address of the stranger whose place he has taken.
    ///
    /// # Errors
    /// The bound that is reached.
    pub fn enter(
        self: &Arc<Self>,
        address: IpAddr,
        stranger: bool,
        bounds: Bounds,
    ) -> Result<(Place, Option<IpAddr>), Met> {
        let address = place_of(address);
        let mut inner = self.inner.lock();
        if inner.open.get(&address).is_some_and(|open| open.connections >= bounds.per_address) {
            return Err(Met::Limit(LimitKind::ConnectionsOfAddress));
        }
        if stranger && inner.strangers.of(address) >= bounds.strangers_per_address as usize {
            return Err(Met::Limit(LimitKind::StrangersOfAddress));
        }
        let mut displaced = None;
        if stranger && inner.strangers.len() >= bounds.strangers as usize {
            let (from, one) = inner.strangers.displace_for(address).ok_or(Met::Limit(LimitKind::Strangers))?;
            one.displaced.store(true, Ordering::Relaxed);
            one.goes.notify_one();
            displaced = Some(from);
        }
        let known_later = stranger.then(Arc::<Stranger>::default);
        if let Some(one) = &known_later {
            inner.strangers.push(address, Arc::clone(one));
        }
        let open = inner.open.entry(address).or_default();
        open.connections += 1;
        let requests = Arc::clone(&open.requests);
        Ok((
            Place {
                of: Arc::clone(self),
                address,
                requests,
                stranger: Cell::new(known_later),
                is_stranger: Cell::new(stranger),
            },
            displaced,
        ))
    }
}

impl Place {
    /// Where its client is, as bounds take it.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// What large requests of its address take.
    pub fn requests(&self) -> &Arc<AddressUse> {
        &self.requests
    }

    /// Is it not known yet who it is?
    pub fn is_stranger(&self) -> bool {
        self.is_stranger.get()
    }

    /// Now it is known.
    pub fn known(&self) {
        self.is_stranger.set(false);
        if let Some(stranger) = self.stranger.take() {
            self.of.inner.lock().strangers.remove(self.address, &stranger);
        }
    }

    /// Waits until another takes the place of this stranger. Without an end for who is known.
    pub async fn displaced(&self) {
        let stranger = self.stranger.take();
        self.stranger.set(stranger.clone());
        match stranger {
            Some(stranger) if !stranger.displaced.load(Ordering::Relaxed) => stranger.goes.notified().await,
            Some(_) => {}
            None => std::future::pending().await,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.known();
        let mut inner = self.of.inner.lock();
        if let Some(open) = inner.open.get_mut(&self.address) {
            open.connections -= 1;
            if open.connections == 0 {
                inner.open.remove(&self.address);
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
        let enter = |address: &str, stranger| {
            admission.enter(address.parse().expect("an address"), stranger, bounds).map(|(place, _)| place)
        };
        let (one, other) = (enter("192.0.2.1", true).expect("room"), enter("192.0.2.1", true).expect("room"));
        assert_eq!(enter("192.0.2.1", true).err(), Some(Met::Limit(LimitKind::StrangersOfAddress)));
        let third = enter("2001:db8::1", true).expect("room");
        assert_eq!(
            enter("2001:db8::1", true).err(),
            Some(Met::Limit(LimitKind::Strangers)),
            "it would have as many as the other"
        );
        assert!(enter("192.0.2.9", false).is_ok());
        one.known();
        one.known();
        let fourth = enter("192.0.2.1", true).expect("the first is known");
        assert_eq!(enter("192.0.2.1", false).err(), Some(Met::Limit(LimitKind::ConnectionsOfAddress)));
        let wider = Bounds { per_address: 4, ..bounds };
        assert!(admission.enter("192.0.2.1".parse().expect("an address"), false, wider).is_ok());
        drop((one, other, fourth));
        assert_eq!(admission.inner.lock().strangers.len(), 1);
        drop(third);
        let inner = admission.inner.lock();
        assert!(inner.strangers.is_empty() && inner.open.is_empty());
    }

    #[tokio::test]
    async fn who_fills_all_places_does_not_keep_others_out() {
        let admission = Arc::new(Admission::default());
        let bounds = Bounds { per_address: 100, strangers: 4, strangers_per_address: 100 };
        let enter = |address: &str| admission.enter(address.parse().expect("an address"), true, bounds);
        let many: Vec<Place> = (0..4).map(|_| enter("192.0.2.1").expect("room").0).collect();
        assert_eq!(enter("192.0.2.1").err(), Some(Met::Limit(LimitKind::Strangers)));
        let (guest, displaced) = enter("192.0.2.2").expect("another's place");
        assert_eq!(displaced, Some("192.0.2.1".parse().expect("an address")));
        many[0].displaced().await;
        assert!(tokio::time::timeout(std::time::Duration::from_millis(1), many[1].displaced()).await.is_err());
        // Three are left there, one is here: another is let in, and a third of this address is not, as both have two then.
        let (second, displaced) = enter("192.0.2.2").expect("another's place");
        assert!(displaced.is_some());
        many[1].displaced().await;
        assert_eq!(enter("192.0.2.2").err(), Some(Met::Limit(LimitKind::Strangers)));
        assert_eq!(enter("192.0.2.1").err(), Some(Met::Limit(LimitKind::Strangers)));
        // Each address has as many as the others: who came first goes.
        let (third, displaced) = enter("192.0.2.3").expect("another's place");
        assert_eq!(displaced, Some("192.0.2.1".parse().expect("an address")));
        many[2].displaced().await;
        guest.known();
        assert!(!guest.is_stranger());
        drop((many, guest, second, third));
        let inner = admission.inner.lock();
        assert!(inner.strangers.is_empty() && inner.open.is_empty());
    }
}
