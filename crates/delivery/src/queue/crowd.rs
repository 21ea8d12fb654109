//! The consumers of a queue that may have none, as most have when there are many queues: then only how it would serve them is kept.

use super::QueueKind;
use super::consumers::Consumers;

/// See the head of the file.
#[derive(Clone, Debug)]
pub(super) struct Crowd {
    kind: QueueKind,
    single: bool,
    /// From the first consumer or holder to the last.
    all: Option<Box<Consumers>>,
}

impl Crowd {
    /// Nobody.
    pub fn new(kind: QueueKind, single: bool) -> Self {
        Self { kind, single, all: None }
    }

    /// What is known of all; `None`: there is nobody.
    pub fn get(&self) -> Option<&Consumers> {
        self.all.as_deref()
    }

    /// For a change by which nobody comes or goes.
    pub fn get_mut(&mut self) -> Option<&mut Consumers> {
        self.all.as_deref_mut()
    }

    /// Changes something by which somebody may go; of nobody nothing is to be changed.
    pub fn change<T: Default>(&mut self, change: impl FnOnce(&mut Consumers) -> T) -> T {
        let outcome = self.all.as_deref_mut().map(change).unwrap_or_default();
        self.let_go();
        outcome
    }

    /// Somebody comes.
    pub fn admit<T>(&mut self, enter: impl FnOnce(&mut Consumers) -> T) -> T {
        let outcome = enter(self.all.get_or_insert_with(|| Box::new(Consumers::new(self.kind, self.single))));
        self.let_go();
        outcome
    }

    /// How many consumers there are.
    pub fn count(&self) -> usize {
        self.all.as_ref().map_or(0, |all| all.count())
    }

    fn let_go(&mut self) {
        if self.all.as_ref().is_some_and(|all| all.is_empty()) {
            self.all = None;
        }
    }
}
