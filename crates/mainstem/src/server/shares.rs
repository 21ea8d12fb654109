//! Parts of the memory budget: what may take how much.

use std::sync::Arc;

use broker::Broker;
use kafka_gateway::Gateway;

use crate::config::Config;
use crate::frames::FramePool;

/// Part of the memory budget that answers may hold until clients have read them.
pub(super) const HELD_SHARE: usize = 4;
/// Part of it that AMQP publishes may take while journals have no room for them.
const PUBLISHES_SHARE: usize = 16;
/// Part of it for large requests.
pub(super) const FRAMES_SHARE: usize = 8;
/// Part of it that messages may take which queues have read and cannot give out.
const WINDOWS_SHARE: usize = 8;
/// Part of it for what filters have found out about batches.
const NOTES_SHARE: usize = 32;
/// Part of it for AMQP contents and transactions that are not finished.
const UNFINISHED_SHARE: usize = 8;
/// Part of it for AMQP consumers.
const CONSUMERS_SHARE: usize = 8;
/// Part of it for AMQP messages that are delivered and not settled.
const UNSETTLED_SHARE: usize = 16;
/// Part of it for subscriptions of share groups.
const SUBSCRIPTIONS_SHARE: usize = 8;
/// Part of it for what waits for the controller.
const CONTROL_SHARE: usize = 16;
/// Part of it for groups and committed offsets, and as much for settings of groups.
const GROUPS_SHARE: usize = 16;

/// Part of it for transactional ids with what their transactions hold.
const TRANSACTIONS_SHARE: usize = 16;

/// Part of it for exchanges, bindings and arguments.
const DEFINITIONS_SHARE: usize = 8;
/// Part of it for policies, …
const POLICIES_SHARE: usize = 16;
/// … which are compiled at a start: this much takes a second.
const POLICIES_BYTES_MAX: usize = 64 << 20;
/// Part of it for what connections remember of access control entries.
const ANSWERS_SHARE: usize = 32;

/// Bounds what the broker keeps in memory beside the caches. For definitions see [`bound_definitions`].
pub(super) fn bound_memory(broker: &Broker, budget: usize) {
    broker.vhosts().set_window_bytes_max(budget / WINDOWS_SHARE);
    broker.filters().set_notes_bytes_max(budget / NOTES_SHARE);
    broker.vhosts().set_unsettled_bytes_max(budget / UNSETTLED_SHARE);
    broker.groups().set_bytes_max(budget / GROUPS_SHARE);
    broker.bound_group_configs(budget / GROUPS_SHARE);
    broker.transactions().set_bytes_max(budget / TRANSACTIONS_SHARE);
    admin::set_memory_budget(budget);
    broker.limits().bound_by_memory(budget);
    broker.bound_unpacking(budget);
    broker.set_control_bytes_max(budget / CONTROL_SHARE);
    broker.subscriptions().set_bytes_max(budget / SUBSCRIPTIONS_SHARE);
}

/// Memory of what comes and goes within moments: requests, answers, and messages on their way to consumers.
pub(super) struct Passing {
    pub(super) broker: Arc<Broker>,
    pub(super) gateway: Arc<Gateway>,
    pub(super) frames: Arc<FramePool>,
    pub(super) budget: usize,
}

impl Passing {
    /// Each has its part of the budget, and half of it while memory is short: parts together are more than the budget, since not all are used up at once.
    pub(super) fn bound(&self, short: bool) {
        let budget = if short { self.budget / 2 } else { self.budget };
        self.frames.set_max(budget / FRAMES_SHARE);
        self.gateway.set_pinned_max(budget / HELD_SHARE);
        self.broker.vhosts().set_window_bytes_max(budget / WINDOWS_SHARE);
    }
}

/// The AMQP side of a broker, within its part of the memory.
pub(super) fn open_amqp(
    broker: &Arc<Broker>,
    metrics: amqp_gateway::GatewayMetrics,
    budget: usize,
) -> Arc<amqp_gateway::Gateway> {
    let amqp = amqp_gateway::Gateway::new(Arc::clone(broker), metrics);
    amqp.set_held_max(budget / PUBLISHES_SHARE);
    amqp.set_unfinished_max(budget / UNFINISHED_SHARE);
    amqp.set_consumers_max(budget / CONSUMERS_SHARE);
    amqp
}

/// Bounds what is declared from now on.
pub(super) fn bound_definitions(config: &Config, broker: &Broker) {
    broker
        .vhosts()
        .policy_memory()
        .set_bytes_max((config.memory.bytes() as usize / POLICIES_SHARE).min(POLICIES_BYTES_MAX));
    broker.security().answer_memory().set_bytes_max(config.memory.bytes() as usize / ANSWERS_SHARE);
    let (memory, bytes_max) = (broker.vhosts().definitions(), config.memory.bytes() as usize / DEFINITIONS_SHARE);
    memory.set_bytes_max(bytes_max);
    let bytes = memory.bytes();
    if bytes > bytes_max {
        let file = config.definitions.as_ref().map(|path| path.display().to_string());
        let needed = (bytes * DEFINITIONS_SHARE).div_ceil(1 << 20);
        tracing::warn!(
            file,
            bytes,
            bytes_max,
            "definitions take more than an eighth of the memory budget: all are there, and nothing that takes memory can be added; raise --memory beyond {needed}MiB"
        );
    }
}
