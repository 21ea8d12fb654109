//! Exchanges that send each message along one of their bindings: any of them (`x-random`, `x-local-random`), or the one that the hash of
//! its routing keys chooses (`x-modulus-hash`). A destination that is bound twice has two chances.

use crate::binding::{BindingId, Bindings, Target};
use crate::value::{mix, stable_hash};

/// The bindings of an `x-modulus-hash` exchange by destination and key, so that the same keys lead to the same one after a restart.
#[derive(Debug, Default)]
pub(crate) struct Modulus(Vec<BindingId>);

fn place(id: BindingId, bindings: &Bindings) -> (Target, &[u8], BindingId) {
    let entry = bindings.get(id);
    (entry.target, &entry.key, id)
}

impl Modulus {
    pub fn insert(&mut self, id: BindingId, bindings: &Bindings) {
        let wanted = place(id, bindings);
        let at = self.0.partition_point(|other| place(*other, bindings) < wanted);
        self.0.insert(at, id);
    }

    pub fn remove(&mut self, id: BindingId, bindings: &Bindings) {
        let wanted = place(id, bindings);
        let at = self.0.partition_point(|other| place(*other, bindings) < wanted);
        assert_eq!(self.0.remove(at), id, "each binding is known by its place");
    }

    pub fn select(&self, keys: &[&[u8]]) -> Option<BindingId> {
        pick(&self.0, keys.iter().fold(0, |hash, key| mix(hash ^ stable_hash(key))))
    }
}

/// The binding that a number chooses.
pub(crate) fn pick(all: &[BindingId], number: u64) -> Option<BindingId> {
    let count = all.len() as u64;
    (count > 0).then(|| all[(number % count) as usize])
}
