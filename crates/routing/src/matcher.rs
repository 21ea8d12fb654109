//! The index of an exchange, by its type.

use crate::binding::{BindingId, Bindings};
use crate::error::InvalidBinding;
use crate::header_index::{self, HeaderIndex};
use crate::key_index::KeyIndex;
use crate::one_of::{Modulus, pick};
use crate::ring::{self, Ring};
use crate::route::{Scratch, TooFar};
use crate::trie::{self, Trie};
use crate::value::{Arguments, Headers};

/// Finds, of the bindings of an exchange, those that match.
#[derive(Debug)]
pub(crate) enum Matcher {
    Direct(KeyIndex),
    /// All of the exchange's bindings.
    Fanout,
    Topic(Trie),
    Headers(HeaderIndex),
    ConsistentHash(Ring),
    Modulus(Modulus),
    /// Any one of the exchange's bindings; `local`: those have no key.
    Random {
        local: bool,
    },
}

impl Matcher {
    pub fn check(&self, key: &[u8], arguments: &Arguments) -> Result<(), InvalidBinding> {
        match self {
            Self::Random { local: true } if !key.is_empty() => {
                Err(InvalidBinding::KeyGiven(String::from_utf8_lossy(key).into_owned()))
            }
            Self::Direct(_) | Self::Fanout | Self::Topic(_) | Self::Modulus(_) | Self::Random { .. } => Ok(()),
            Self::Headers(_) => header_index::check(arguments),
            Self::ConsistentHash(ring) => ring.check(key),
        }
    }

    /// Bytes of memory that a binding takes in the index, about.
    pub fn weight(&self, key: &[u8], arguments: &Arguments) -> usize {
        const GROUP: usize = 64;
        match self {
            Self::Fanout | Self::Random { .. } => 0,
            Self::Direct(_) | Self::Modulus(_) => GROUP,
            Self::Topic(_) => trie::weight(key),
            Self::Headers(_) => header_index::weight(arguments),
            Self::ConsistentHash(_) => {
                GROUP + ring::weight(key).map_or(0, |points| points as usize * ring::POINT_BYTES)
            }
        }
    }

    pub fn insert(&mut self, id: BindingId, bindings: &mut Bindings) {
        match self {
            Self::Direct(index) => index.insert(id, bindings),
            Self::Fanout | Self::Random { .. } => {}
            Self::Topic(trie) => trie.insert(id, bindings),
            Self::Headers(index) => index.insert(id, bindings),
            Self::ConsistentHash(ring) => ring.insert(id, bindings),
            Self::Modulus(modulus) => modulus.insert(id, bindings),
        }
    }

    pub fn remove(&mut self, id: BindingId, bindings: &mut Bindings) {
        match self {
            Self::Direct(index) => index.remove(id, bindings),
            Self::Fanout | Self::Random { .. } => {}
            Self::Topic(trie) => trie.remove(id, bindings),
            Self::Headers(index) => index.remove(id, bindings),
            Self::ConsistentHash(ring) => ring.remove(id, bindings),
            Self::Modulus(modulus) => modulus.remove(id, bindings),
        }
    }

    /// Tells the bindings that match any of the keys, some perhaps more than once. A hash takes the first key.
    pub fn select(
        &self,
        all: &[BindingId],
        (keys, headers): (&[&[u8]], &dyn Headers),
        bindings: &Bindings,
        scratch: &mut Scratch,
        mut found: impl FnMut(BindingId),
    ) -> Result<(), TooFar> {
        scratch.steps.take(1 + keys.len())?;
        scratch.told.begin(keys.len());
        match self {
            Self::Direct(index) => {
                for group in keys.iter().map(|key| index.get(key, bindings)).filter(|group| !group.is_empty()) {
                    if scratch.told.is_due(group, &mut scratch.steps)? {
                        group.iter().copied().for_each(&mut found);
                    }
                }
            }
            Self::Fanout => all.iter().copied().for_each(found),
            Self::Topic(trie) => {
                for key in keys {
                    trie.select(key, scratch, |group| group.iter().copied().for_each(&mut found))?;
                }
            }
            Self::Headers(index) => index.select(headers, bindings, &mut scratch.steps, found)?,
            Self::Modulus(modulus) => modulus.select(keys).into_iter().for_each(found),
            Self::Random { .. } => pick(all, scratch.random()).into_iter().for_each(found),
            Self::ConsistentHash(ring) => {
                let key = keys.first().copied().unwrap_or_default();
                ring.select(key, headers, &mut scratch.steps)?.into_iter().for_each(found);
            }
        }
        Ok(())
    }
}
