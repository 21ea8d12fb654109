//! Bindings that are listed together, in no order: the many that a queue has under one condition go one by one, and none of them is looked for among
//! the others.

use hashbrown::HashMap;

use crate::binding::BindingId;

/// A binding is looked for among so many.
const FEW: usize = 32;

/// Each once.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    ids: Vec<BindingId>,
    /// Where each is, if they are more than few.
    places: HashMap<BindingId, u32>,
}

impl Listed {
    pub fn as_slice(&self) -> &[BindingId] {
        &self.ids
    }

    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    fn place(&self, id: BindingId) -> Option<usize> {
        if self.places.is_empty() {
            return self.ids.iter().position(|found| *found == id);
        }
        self.places.get(&id).map(|place| *place as usize)
    }

    /// Once is enough.
    pub fn insert(&mut self, id: BindingId) {
        if self.place(id).is_some() {
            return;
        }
        self.ids.push(id);
        if !self.places.is_empty() {
            self.places.insert(id, self.ids.len() as u32 - 1);
        } else if self.ids.len() > FEW {
            self.places.extend(self.ids.iter().zip(0..).map(|(id, place)| (*id, place)));
        }
    }

    /// If it is there.
    pub fn remove(&mut self, id: BindingId) {
        let Some(place) = self.place(id) else { return };
        self.ids.swap_remove(place);
        self.places.remove(&id);
        if self.ids.len() <= FEW / 2 {
            self.places = HashMap::new();
        } else if let Some(moved) = self.ids.get(place).filter(|_| !self.places.is_empty()) {
            self.places.insert(*moved, place as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_is_there_once_until_it_is_removed() {
        let (mut listed, mut there) = (Listed::default(), BTreeSet::new());
        for step in 0..20_000_u32 {
            let id = step.wrapping_mul(2_654_435_761) >> 20 & 127;
            // More and more of them, then fewer and fewer, through both forms.
            if step / 1000 % 2 == u32::from(step % 4 == 0) {
                listed.insert(id);
                there.insert(id);
            } else {
                listed.remove(id);
                there.remove(&id);
            }
            let mut ids = listed.as_slice().to_vec();
            ids.sort_unstable();
            assert!(ids.iter().eq(&there), "step {step}");
            assert_eq!(listed.is_empty(), there.is_empty());
        }
    }
}
