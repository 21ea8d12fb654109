//! What the configuration of a group says of sharing records.

use std::sync::Arc;

use delivery::Rules;

use crate::{Broker, GroupConfig, ShareStart};

/// How a share group works.
#[derive(Clone, Debug)]
pub struct ShareRules {
    /// For its subscriptions.
    pub rules: Rules,
    /// The rest of it.
    pub config: Arc<GroupConfig>,
}

impl ShareRules {
    /// Records of transactions only when they are committed.
    pub fn committed_only(&self) -> bool {
        self.config.share_read_committed
    }

    /// Where it begins with a partition that is new to it.
    pub fn start(&self) -> ShareStart {
        self.config.share_start
    }
}

impl Broker {
    /// How a group works now.
    pub fn share_rules(&self, group: &str) -> ShareRules {
        let config = self.group_config(group);
        let rules = Rules {
            deliveries_max: Some(u16::try_from(config.share_delivery_limit).unwrap_or(u16::MAX)),
            unfinished_max: u64::from(config.share_locks_max),
            lock: config.share_lock_ms,
            dead_letters: config.share_dead_letter_topic.is_some(),
            retry: None,
        };
        ShareRules { rules, config }
    }
}
