//! When members are out if nothing comes of them: by member, with the next deadline of all.

use std::collections::BTreeMap;

/// Deadlines of one member, in ms.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timers {
    pub session: Option<u64>,
    /// And the epoch that the member has to leave until then.
    pub rebalance: Option<(u64, i32)>,
    pub join: Option<u64>,
    pub sync: Option<u64>,
}

impl Timers {
    fn next(&self) -> Option<u64> {
        let all = [self.session, self.rebalance.map(|(at, _)| at), self.join, self.sync];
        all.into_iter().flatten().min()
    }
}

/// Deadlines of all members of a group.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemberTimers {
    of: BTreeMap<String, Timers>,
    /// No deadline is before this.
    wakes_at: Option<u64>,
}

impl MemberTimers {
    pub fn next_deadline(&self) -> Option<u64> {
        self.wakes_at
    }

    pub fn set(&mut self, id: &str, set: impl FnOnce(&mut Timers)) {
        let timers = self.of.entry(id.to_owned()).or_default();
        set(timers);
        self.wakes_at = self.wakes_at.into_iter().chain(timers.next()).min();
    }

    pub fn remove(&mut self, id: &str) {
        self.of.remove(id);
    }

    /// Members whose time is over at `now`; `epoch_of` is the epoch that a member has.
    pub fn expired(&mut self, now: u64, epoch_of: impl Fn(&str) -> Option<i32>) -> Vec<String> {
        let mut expired = Vec::new();
        for (id, timers) in &mut self.of {
            let over = |at: Option<u64>| at.is_some_and(|at| at <= now);
            let mut out = over(timers.session) || over(timers.join) || over(timers.sync);
            if let Some((at, epoch)) = timers.rebalance
                && at <= now
            {
                timers.rebalance = None;
                // It has left that epoch: what it was asked for is done.
                out |= epoch_of(id) == Some(epoch);
            }
            if out {
                expired.push(id.clone());
            }
        }
        self.wakes_at =
            self.of.iter().filter(|(id, _)| !expired.contains(id)).filter_map(|(_, timers)| timers.next()).min();
        expired
    }
}
