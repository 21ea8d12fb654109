//! What creates and deletes partitions under `controller_mutation_rate`. Newer versions are refused what is not paid for, older ones are
//! taken and pause the connection, as in Kafka.

use broker::QuotaKey;

use kafka_wire::Str;

use crate::session::Context;

/// What somebody is told who is refused.
pub(super) const EXCEEDED: Str = Str::from_static("The throttling quota has been exceeded.");

/// No version is refused anything.
pub(super) const NEVER_STRICT: i16 = i16::MAX;

/// Takes partitions from the account of the connection, one topic after the other.
pub(super) struct Mutations<'a, 'b> {
    context: &'a mut Context<'b>,
    /// What is not paid for is refused.
    strict: bool,
}

impl<'a, 'b> Mutations<'a, 'b> {
    /// `strict_since`: the first version that is refused something.
    pub fn new(context: &'a mut Context<'b>, strict_since: i16) -> Self {
        let strict = context.version >= strict_since;
        Self { context, strict }
    }

    /// May partitions of a topic be created or deleted? If so they are taken: `partitions` says how many there are, 0 of what is refused for
    /// another reason.
    pub fn admit(&mut self, partitions: impl FnOnce() -> usize) -> bool {
        let context = &mut *self.context;
        let quotas = context.gateway.broker.quotas();
        let Some(account) = context.throttle.account(QuotaKey::ControllerMutationRate) else { return true };
        let partitions = partitions();
        if partitions == 0 {
            return true;
        }
        let debt = account.debt(context.now);
        if self.strict && !debt.is_zero() {
            context.throttle.pause(quotas, broker::Limit::Client(QuotaKey::ControllerMutationRate), debt, context.now);
            return false;
        }
        context.throttle.take(quotas, QuotaKey::ControllerMutationRate, partitions as u64, context.now);
        true
    }
}
