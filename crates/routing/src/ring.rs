//! Consistent hash exchanges: each message goes to one destination, chosen by the hash of its routing key, of a header or of a
//! property.
//!
//! A binding's key is its weight: that many points. Points are numbered; the hash chooses one by jump consistent hashing (Lamping
//! and Veach, 2014), so that a destination that joins takes its share from all others evenly and nothing moves between those.
//! When one leaves, the last points get its numbers: its keys, and at most as many of the last points', move.
//! A destination has the points of its oldest binding from the exchange; later ones with other weights wait for that one to go.
//! The numbers depend on the order of bindings: bound again in the same order, keys stay where they were.

use hashbrown::HashMap;
use smallvec::SmallVec;

use crate::binding::{BindingId, Bindings, Target};
use crate::error::InvalidBinding;
use crate::route::{Steps, TooFar};
use crate::value::{Headers, Property, Value, stable_hash};

/// The largest weight of a binding.
pub const WEIGHT_MAX: u32 = 10_000;
/// Points of an exchange.
pub const POINTS_MAX: usize = 4_000_000;
/// Memory of one.
pub(crate) const POINT_BYTES: usize = size_of::<Point>() + size_of::<u32>();

/// What of a message is hashed. What is not there hashes like one value, so that all such messages go to one place.
#[derive(Clone, Debug)]
pub(crate) enum HashOn {
    RoutingKey,
    Header(Box<[u8]>),
    Property(Property),
}

#[derive(Clone, Copy, Debug)]
struct Point {
    of: BindingId,
    /// Where its number is among those of the binding.
    nth: u32,
}

/// Points and who has them.
#[derive(Debug)]
pub(crate) struct Ring {
    hash_on: HashOn,
    points: Vec<Point>,
    /// The numbers of a binding's points, in no order.
    numbers: HashMap<BindingId, Vec<u32>>,
    /// Bindings of a destination, the oldest first: that one has the points.
    bound: HashMap<Target, SmallVec<[BindingId; 1]>>,
}

impl Ring {
    pub fn new(hash_on: HashOn) -> Self {
        Self { hash_on, points: Vec::new(), numbers: HashMap::new(), bound: HashMap::new() }
    }

    pub fn check(&self, key: &[u8]) -> Result<(), InvalidBinding> {
        let points = self.points.len() + weight(key)? as usize;
        if points > POINTS_MAX { Err(InvalidBinding::TooManyPoints) } else { Ok(()) }
    }

    pub fn insert(&mut self, id: BindingId, bindings: &Bindings) {
        let bound = self.bound.entry(bindings.get(id).target).or_default();
        bound.push(id);
        if bound.len() == 1 {
            self.give(id, weight_of(id, bindings));
        }
    }

    fn give(&mut self, id: BindingId, weight: u32) {
        let first = self.points.len() as u32;
        self.points.extend((0..weight).map(|nth| Point { of: id, nth }));
        self.numbers.insert(id, (first..first + weight).collect());
    }

    /// The last points get the numbers of the binding's, the largest number first.
    fn take(&mut self, id: BindingId) {
        let mut numbers = self.numbers.remove(&id).expect("it has points");
        numbers.sort_unstable();
        for number in numbers.into_iter().rev() {
            self.points.swap_remove(number as usize);
            if let Some(moved) = self.points.get(number as usize) {
                self.numbers.get_mut(&moved.of).expect("it has points")[moved.nth as usize] = number;
            }
        }
    }

    pub fn remove(&mut self, id: BindingId, bindings: &Bindings) {
        let target = bindings.get(id).target;
        let bound = self.bound.get_mut(&target).expect("each binding is known by its destination");
        let place = bound.iter().position(|found| *found == id).expect("each binding is known by its destination");
        bound.remove(place);
        let heir = bound.first().copied();
        if heir.is_none() {
            self.bound.remove(&target);
        }
        if place > 0 {
            return;
        }
        self.take(id);
        if let Some(heir) = heir {
            self.give(heir, weight_of(heir, bindings));
        }
    }

    pub fn select(&self, key: &[u8], headers: &dyn Headers, steps: &mut Steps) -> Result<Option<BindingId>, TooFar> {
        if self.points.is_empty() {
            return Ok(None);
        }
        let hash = match &self.hash_on {
            HashOn::RoutingKey => stable_hash(key),
            HashOn::Header(name) => {
                steps.take_headers(|| headers.count())?;
                headers.get(name).unwrap_or(Value::Void).stable_hash()
            }
            HashOn::Property(property) => headers.property(*property).unwrap_or(Value::Void).stable_hash(),
        };
        Ok(Some(self.points[jump(hash, self.points.len())].of))
    }
}

fn weight_of(id: BindingId, bindings: &Bindings) -> u32 {
    weight(&bindings.get(id).key).expect("checked before it was bound")
}

/// A whole number from 1 to [`WEIGHT_MAX`], in digits with or without a sign.
pub(crate) fn weight(key: &[u8]) -> Result<u32, InvalidBinding> {
    let (negative, digits) = match key {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(InvalidBinding::WeightNoInteger(String::from_utf8_lossy(key).into_owned()));
    }
    // Above the bound it does not matter how far.
    let weight = digits.iter().fold(0, |weight, digit| (weight * 10 + u32::from(digit - b'0')).min(WEIGHT_MAX + 1));
    match weight {
        0 => Err(InvalidBinding::WeightTooSmall),
        _ if negative => Err(InvalidBinding::WeightTooSmall),
        _ if weight > WEIGHT_MAX => Err(InvalidBinding::WeightTooLarge),
        _ => Ok(weight),
    }
}

/// A number below `count`; when `count` grows by one, one in `count + 1` keys changes, to the new number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "below 2^53, as published"
)]
fn jump(mut key: u64, count: usize) -> usize {
    let (mut chosen, mut next) = (0, 0);
    while next < count as u64 {
        chosen = next;
        key = key.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        next = ((chosen + 1) as f64 * ((1u64 << 31) as f64 / ((key >> 33) + 1) as f64)) as u64;
    }
    chosen as usize
}

#[cfg(test)]
mod tests;
