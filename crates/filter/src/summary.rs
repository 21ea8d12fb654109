//! What a batch has of one field, in a few bytes: enough to know of most batches that nothing in them is wanted, without looking inside.
//!
//! Values are kept as hashes of 64 bits. Two values with one hash cost a look inside; nothing wanted is ever left out.

use std::hash::{DefaultHasher, Hash, Hasher};

use hashbrown::HashSet;
use record::Fields;

/// Different values of a batch that are kept; a batch with more of them may have any.
const VALUES_MAX: usize = 64;

/// A key, or a header by its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    Key,
    Header(Box<[u8]>),
}

/// Bytes of headers that are gone through in one step.
const HEADER_BYTES: usize = 4;

impl Place {
    /// What it takes to find it in a record.
    pub fn steps(&self, record: &impl Fields) -> usize {
        match self {
            Self::Key => 1,
            Self::Header(_) => 1 + record.headers_bytes() / HEADER_BYTES,
        }
    }

    pub fn of<'a>(&self, record: &'a impl Fields) -> Option<&'a [u8]> {
        match self {
            Self::Key => record.key(),
            Self::Header(name) => record.header(name),
        }
    }
}

fn hash(what: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

/// A field, and the values of which every record that matches has one.
#[derive(Clone, Debug)]
pub struct Wanted {
    place: Place,
    place_hash: u64,
    values: HashSet<u64>,
}

impl Wanted {
    pub(crate) fn new<'a>(place: &Place, values: impl IntoIterator<Item = &'a [u8]>) -> Self {
        Self { place: place.clone(), place_hash: hash(place), values: values.into_iter().map(hash).collect() }
    }

    /// What matches either has one of the values of both, if it is about the same field.
    pub(crate) fn or(mut self, other: Self) -> Option<Self> {
        self.values.extend(other.values);
        (self.place == other.place).then_some(self)
    }

    /// How many values there are.
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }
}

/// What the records of a batch have of one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    place_hash: u64,
    /// Hashes of the values, each once.
    values: Vec<u64>,
    /// There are more.
    many: bool,
}

impl Summary {
    /// Of no record yet.
    pub fn new(wanted: &Wanted) -> Self {
        Self { place_hash: wanted.place_hash, values: Vec::new(), many: false }
    }

    /// Is it about the field that is wanted?
    pub fn is_about(&self, wanted: &Wanted) -> bool {
        self.place_hash == wanted.place_hash
    }

    /// Enters a record.
    pub fn add(&mut self, wanted: &Wanted, record: &impl Fields) {
        if self.many {
            return;
        }
        let Some(value) = wanted.place.of(record).map(hash) else { return };
        // Records with one key often follow each other.
        if self.values.last() == Some(&value) || self.values.contains(&value) {
            return;
        }
        if self.values.len() == VALUES_MAX {
            (self.values, self.many) = (Vec::new(), true);
            return;
        }
        self.values.push(value);
    }

    /// May a record of the batch have one of the values?
    pub fn may_have(&self, wanted: &Wanted) -> bool {
        self.many || self.values.iter().any(|value| wanted.values.contains(value))
    }

    /// Bytes of memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.values.capacity() * size_of::<u64>()
    }
}
