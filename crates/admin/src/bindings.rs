//! All bindings of a virtual host, taken out of its table piece by piece: whoever routes or binds waits for a piece at most, however many
//! there are. What is bound or unbound meanwhile may be there or not; what is there all the time comes once.

use std::vec::IntoIter;

use broker::Queue;
use routing::{Arguments, Binding, Destination, Exchanges, Name, QueueId};

/// Bindings that are taken out at once, in about a tenth of a millisecond.
const PIECE: u32 = 256;

/// A binding as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    source: Box<[u8]>,
    /// The destination, if it is a queue.
    queue: Option<QueueId>,
    destination: Name,
    key: Box<[u8]>,
    arguments: Arguments,
    durable: bool,
}

impl Known {
    fn of(binding: &Binding<'_>) -> Self {
        let queue = match binding.destination {
            Destination::Queue(id) => Some(id),
            Destination::Exchange(_) => None,
        };
        let (destination, arguments) = (binding.destination_name.clone(), binding.arguments.clone());
        Self {
            source: binding.source.into(),
            queue,
            destination,
            key: binding.key.into(),
            arguments,
            durable: binding.durable,
        }
    }

    /// The default exchange's to a queue.
    pub fn to_queue(queue: &Queue) -> Self {
        let (source, destination) = (Box::default(), queue.name().clone());
        Self {
            source,
            queue: Some(queue.id()),
            key: destination.as_bytes().into(),
            destination,
            arguments: Arguments::default(),
            durable: queue.is_durable(),
        }
    }

    /// As the table lists it.
    pub fn binding(&self) -> Binding<'_> {
        let destination = self.queue.map_or(Destination::Exchange(&self.destination), Destination::Queue);
        Binding {
            source: &self.source,
            destination,
            destination_name: &self.destination,
            key: &self.key,
            arguments: self.arguments.clone(),
            durable: self.durable,
        }
    }
}

/// Goes through a table.
pub(crate) struct Walk<'t> {
    exchanges: &'t Exchanges,
    next: u32,
    piece: IntoIter<Known>,
}

impl<'t> Walk<'t> {
    /// Without those of the default exchange.
    pub fn new(exchanges: &'t Exchanges) -> Self {
        Self { exchanges, next: 0, piece: Vec::new().into_iter() }
    }
}

impl Iterator for Walk<'_> {
    type Item = Known;

    fn next(&mut self) -> Option<Known> {
        loop {
            if let Some(known) = self.piece.next() {
                return Some(known);
            }
            let table = self.exchanges.read();
            if self.next >= table.binding_places() {
                return None;
            }
            let end = self.next.saturating_add(PIECE);
            self.piece = table.bindings_at(self.next..end).map(|one| Known::of(&one)).collect::<Vec<_>>().into_iter();
            self.next = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_walk_meets_all_and_keeps_nobody_waiting() {
        let exchanges = Exchanges::new();
        let bind = |key: u32| {
            exchanges
                .write()
                .bind(b"amq.direct", Destination::Queue(QueueId(1)), &key.to_be_bytes(), &Arguments::default())
                .map(drop)
        };
        exchanges.write().add_queue(Name::new(b"q").expect("short"), QueueId(1), true).expect("new");
        (0..1000).for_each(|key| bind(key).expect("bound"));
        let mut walk = Walk::new(&exchanges);
        let mut found: Vec<Known> = walk.by_ref().take(300).collect();
        let (tell, told) = channel();
        std::thread::scope(|scope| {
            scope.spawn(|| tell.send(bind(1000)));
            told.recv_timeout(Duration::from_secs(10)).expect("it does not wait for the walk").expect("bound");
        });
        found.extend(walk);
        let keys: BTreeSet<&[u8]> = found.iter().map(|known| &*known.key).collect();
        assert!((0..1000_u32).all(|key| keys.contains(&key.to_be_bytes()[..])));
        assert_eq!(keys.len(), found.len(), "none comes twice");
        let table = exchanges.read();
        assert!(table.all_bindings().take(300).zip(&found).all(|(there, known)| there == known.binding()));
    }
}
