//! AMQP channels whose consumers have as many messages unacknowledged as they may: nothing more goes to them.

use hashbrown::HashMap;
use types::ConnectionId;

use super::{SHARE_MIN, Totals, WhyReason, percent};
use crate::Broker;

/// How often each was found full. A channel is full for a moment whenever a message is on its way, so one look says nothing.
#[derive(Default)]
pub(super) struct FullChannels {
    looks: u32,
    found: HashMap<(ConnectionId, u16), Found>,
}

struct Found {
    /// Of its connection.
    name: String,
    count: u32,
    unacknowledged: u64,
}

impl FullChannels {
    /// Looks once more.
    pub fn look(&mut self, broker: &Broker, connections: &[Totals]) {
        self.looks += 1;
        for connected in connections.iter().filter_map(|(waits, _)| broker.connections().get(waits.id)) {
            for (number, flow) in connected.channels() {
                let (tally, prefetch) = (flow.tally(), flow.notes().prefetch.get());
                let limit = if tally.limit > 0 { tally.limit } else { prefetch };
                if limit > 0 && tally.unacknowledged >= limit {
                    let new = || Found { name: connected.name(), count: 0, unacknowledged: 0 };
                    let found = self.found.entry((connected.id(), number)).or_insert_with(new);
                    found.count += 1;
                    found.unacknowledged = tally.unacknowledged;
                }
            }
        }
    }

    /// For what part of the time some channel of a connection was full, of those that had one.
    pub fn parts(&self) -> HashMap<ConnectionId, f64> {
        let mut parts = HashMap::new();
        for ((connection, _), found) in &self.found {
            let part = parts.entry(*connection).or_insert(0.0_f64);
            *part = part.max(self.part(found));
        }
        parts
    }

    fn part(&self, found: &Found) -> f64 {
        f64::from(found.count) / f64::from(self.looks.max(1))
    }

    /// What that comes to.
    pub fn reason(&self) -> Option<WhyReason> {
        let ((_, number), worst) = self.found.iter().max_by_key(|(_, found)| found.count)?;
        let share = self.found.values().map(|found| self.part(found)).sum::<f64>() / self.found.len() as f64;
        if self.part(worst) < SHARE_MIN {
            return None;
        }
        let (count, name, unacknowledged) = (self.found.len(), &worst.name, worst.unacknowledged);
        let channels = if count == 1 { "1 channel has".to_owned() } else { format!("{count} channels have") };
        let text = format!(
            "{channels} as many messages unacknowledged as they may for {} of the time: channel {number} of {name} has {unacknowledged}",
            percent(share),
        );
        let mut connections: Vec<ConnectionId> = self.found.keys().map(|(connection, _)| *connection).collect();
        connections.sort_unstable();
        connections.dedup();
        Some(WhyReason {
            cause: "unacknowledged",
            share,
            worst: self.part(worst),
            connections: connections.len(),
            text,
        })
    }
}
