//! On which shard a new connection is served, for life: the one that has been least busy lately, of equally busy ones that with
//! the fewest connections.
//!
//! Clients often open one connection to learn where to go and another for the data. Were equal shards taken in turn, two shards
//! would get all of one kind each; so the turn itself rotates.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::shard::ShardHandle;

/// Busy times are compared over at least this long.
const SPAN: Duration = Duration::from_millis(200);
/// Differences below this share of a span do not count.
const STEP_PERCENT: u64 = 10;
/// What a connection counts for until the next look.
const PROVISIONAL_STEPS: u64 = 2;

/// What is known of the shards' recent load.
pub struct Placement {
    looked: Instant,
    /// Total when last looked, in ns, by shard.
    busy: Vec<u64>,
    /// Share of the last span, in steps, by shard.
    load: Vec<u64>,
}

impl Placement {
    /// For so many shards, idle until now.
    pub fn new(shards: usize) -> Self {
        Self { looked: Instant::now(), busy: vec![0; shards], load: vec![0; shards] }
    }

    /// The shard for the next connection.
    pub fn choose(&mut self, shards: &[ShardHandle], now: Instant) -> usize {
        let busy: Vec<u64> = shards.iter().map(|shard| shard.busy.load(Ordering::Relaxed)).collect();
        let connections: Vec<usize> = shards.iter().map(|shard| shard.connections.load(Ordering::Relaxed)).collect();
        self.look(&busy, now);
        self.take(&connections)
    }

    /// The least busy one, which counts as busier until its load is seen: those that come together do not all go to one.
    fn take(&mut self, connections: &[usize]) -> usize {
        let chosen = least(&self.load, connections);
        self.load[chosen] += PROVISIONAL_STEPS;
        chosen
    }

    fn look(&mut self, busy: &[u64], now: Instant) {
        let span = now.saturating_duration_since(self.looked);
        if span < SPAN {
            return;
        }
        let step = (span.as_nanos() as u64 * STEP_PERCENT / 100).max(1);
        for (at, total) in busy.iter().enumerate() {
            self.load[at] = total.saturating_sub(self.busy[at]) / step;
            self.busy[at] = *total;
        }
        self.looked = now;
    }
}

fn least(load: &[u64], connections: &[usize]) -> usize {
    let count = connections.len();
    let rounds = connections.iter().sum::<usize>() / count;
    let turn = |at: usize| (at + count - rounds % count) % count;
    (0..count).min_by_key(|at| (load[*at], connections[*at], turn(*at))).expect("there is a shard")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_second_connection_does_not_go_to_the_same_shard() {
        let mut connections = [0; 2];
        let mut second = [0; 2];
        for _ in 0..6 {
            connections[least(&[0, 0], &connections)] += 1;
            let data = least(&[0, 0], &connections);
            connections[data] += 1;
            second[data] += 1;
        }
        assert_eq!((connections, second), ([6, 6], [3, 3]));
    }

    #[test]
    fn connections_that_come_together_are_spread() {
        let mut placement = Placement::new(2);
        placement.look(&[30_000_000, 0], placement.looked + Duration::from_millis(200));
        let mut connections = [0; 2];
        for _ in 0..8 {
            connections[placement.take(&connections)] += 1;
        }
        assert_eq!(connections, [4, 4]);
    }

    #[test]
    fn the_idle_shard_is_taken_even_if_it_has_more_connections() {
        let mut placement = Placement::new(2);
        let begin = placement.looked;
        placement.look(&[150_000_000, 1_000_000], begin + Duration::from_millis(200));
        assert_eq!(least(&placement.load, &[1, 5]), 1);
        placement.look(&[150_000_000, 1_000_000], begin + Duration::from_millis(400));
        assert_eq!(least(&placement.load, &[1, 5]), 0, "it has been idle since");
        placement.look(&[160_000_000, 1_000_000], begin + Duration::from_millis(600));
        assert_eq!(least(&placement.load, &[1, 5]), 0, "a twentieth makes no difference");
    }
}
