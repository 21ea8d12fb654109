//! Consumers of share groups that have gone: what they had is for others. Of a group with many subscriptions it is looked for by the threads that
//! unpack, in turns.

use std::net::IpAddr;
use std::sync::Arc;

use delivery::ConsumerId;

use super::SharedSubscription;
use crate::groups::now;
use crate::jobs::NOBODY;
use crate::{Broker, ShareRules};

/// Subscriptions times consumers that one turn goes through.
const AT_ONCE: usize = 500;

impl Broker {
    /// Gives back what consumers, who were at `address`, have in all subscriptions of their group: at once where that is little to look at, else by and by.
    pub fn release_consumers(self: &Arc<Self>, group: &str, consumers: Vec<ConsumerId>, address: IpAddr) {
        let mut left = self.subscriptions().of_group(group).into_iter();
        if left.len() * consumers.len() <= AT_ONCE {
            let rules = self.share_rules(group);
            return left.for_each(|shared| self.release_from(&shared, &consumers, &rules));
        }
        let (group, each) = (group.to_owned(), (AT_ONCE / consumers.len().max(1)).max(1));
        let work = move |broker: &Arc<Self>| {
            let rules = broker.share_rules(&group);
            left.by_ref().take(each).for_each(|shared| broker.release_from(&shared, &consumers, &rules));
            (left.len() == 0).then(|| Box::new(()) as Box<dyn std::any::Any + Send>)
        };
        // Otherwise the broker ends, and nobody has anything.
        let _ = self.unpack(address, NOBODY, Box::new(work));
    }

    fn release_from(self: &Arc<Self>, shared: &Arc<SharedSubscription>, consumers: &[ConsumerId], rules: &ShareRules) {
        let (rules, mut dead, mut state) = (self.sharing(shared, rules).rules, Vec::new(), shared.lock());
        let mut any = false;
        for consumer in consumers {
            any |= state.release_all(*consumer, now(), &rules, &mut dead);
        }
        if any {
            self.write_subscription(shared, &mut state, None);
            self.wake_subscription(shared);
            self.bury(shared, dead, &rules);
        }
    }
}
