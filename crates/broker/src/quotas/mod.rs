//! Quotas: how much users, clients and addresses may do in a second. What is configured is in memory and durable as keyed state
//! (`record.rs`); changes run on the controller's thread (`admin.rs`). Gateways look their connections' accounts up once and again when
//! [`Quotas::generation`] has changed: a request costs one load and a comparison, and nothing else where no quota is configured.
//!
//! I1 Who shares an account is said in `entity.rs`; all connections of the node share it, whatever shard they lie on (`account.rs`).
//! I2 A change of a quota ends the accounts that it concerns: debts and credits of the old rate count no more.

mod account;
mod admin;
mod entity;
pub(crate) mod laggard;
mod record;
mod throttle;
mod usage;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use parking_lot::{Mutex, RwLock};

pub use account::Account;
pub use admin::{AlterQuotaError, QuotaChange, Supposed};
pub use entity::{InvalidQuota, QuotaEntity, QuotaFilter, QuotaKey, QuotaMatch, QuotaName, QuotaValues};
pub(crate) use laggard::Single;
pub use laggard::{Lag, Laggard, Laggards};
pub(crate) use record::QUOTAS_KEY;
pub use throttle::{Limit, Throttle};
pub use usage::{QuotaSubject, QuotaUse};

use crate::settings::Settings;

/// Who nobody has logged in as, in Kafka's words.
pub const ANONYMOUS_NAME: &str = "ANONYMOUS";
/// Accounts from which on those are looked for that nobody uses.
const ACCOUNTS_TIDY: usize = 1024;
/// Accounts of client ids from which on those that are new share one: whoever calls himself otherwise each time gets no memory for it.
const ACCOUNTS_MAX: usize = 100_000;
/// Client ids are told apart by so many bytes, which is as long as the name of a quota may be.
const CLIENT_ID_BYTES_MAX: usize = entity::NAME_BYTES_MAX;

/// Whose an account is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Holder {
    key: QuotaKey,
    user: Option<String>,
    client_id: Option<String>,
}

#[derive(Debug, Default)]
struct Accounts {
    by_holder: HashMap<Holder, Arc<Account>>,
    /// They are tidied when there are so many.
    tidy_at: usize,
}

/// What limits a connection; shared with others.
#[derive(Clone, Debug, Default)]
pub struct ClientQuotas {
    /// Bytes that it produces.
    pub produce: Option<Arc<Account>>,
    /// Bytes that it fetches.
    pub fetch: Option<Arc<Account>>,
    /// Time of network threads, in ns.
    pub request: Option<Arc<Account>>,
    /// Partitions that it creates and deletes.
    pub mutation: Option<Arc<Account>>,
}

/// How often, and for how long, somebody waited because of a quota.
#[derive(Debug, Default)]
pub struct Throttled {
    /// How often.
    pub count: AtomicU64,
    /// Nanoseconds in all.
    pub waited_ns: AtomicU64,
}

/// All quotas of the node.
#[derive(Debug)]
pub struct Quotas {
    generation: AtomicU64,
    configured: RwLock<BTreeMap<QuotaEntity, QuotaValues>>,
    accounts: Mutex<Accounts>,
    addresses: Mutex<HashMap<IpAddr, Account>>,
    credit: Duration,
    mutation_credit: Duration,
    /// A throttled request waits no longer because of its share of time.
    request_wait_max: Duration,
    throttled: [Throttled; QuotaKey::ALL.len()],
    laggards: Laggards,
    /// Some topic has had a quota.
    topics_limited: AtomicBool,
}

impl Quotas {
    pub(crate) fn new(settings: &Settings) -> Self {
        let seconds = |name| Duration::from_secs(settings.int(name).max(0) as u64);
        let times = |name| u32::try_from(settings.int(name)).unwrap_or(u32::MAX).saturating_sub(1);
        Self {
            generation: AtomicU64::new(0),
            configured: RwLock::default(),
            accounts: Mutex::default(),
            addresses: Mutex::default(),
            credit: seconds("quota.window.size.seconds").saturating_mul(times("quota.window.num")),
            mutation_credit: seconds("controller.quota.window.size.seconds")
                .saturating_mul(times("controller.quota.window.num")),
            request_wait_max: seconds("quota.window.size.seconds"),
            throttled: Default::default(),
            laggards: Laggards::default(),
            topics_limited: AtomicBool::new(false),
        }
    }

    /// Rises with each change; 0: there has never been a quota.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Groups that are slowed down when they are far behind.
    pub fn laggards(&self) -> &Laggards {
        &self.laggards
    }

    /// Whoever is paused looks again.
    pub(crate) fn changed(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Has a topic had a quota since the start?
    pub fn limits_topics(&self) -> bool {
        self.topics_limited.load(Ordering::Relaxed)
    }

    /// A topic has a quota, or another one than before.
    pub(crate) fn topic_changed(&self) {
        self.topics_limited.store(true, Ordering::Relaxed);
        self.changed();
    }

    /// Somebody waits because of a quota.
    pub fn note_throttled(&self, key: QuotaKey, time: Duration) {
        let of_key = &self.throttled[key as usize];
        of_key.count.fetch_add(1, Ordering::Relaxed);
        of_key.waited_ns.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    /// How often and how long somebody waited because of a quota with this key, when it was imposed.
    pub fn throttled(&self, key: QuotaKey) -> &Throttled {
        &self.throttled[key as usize]
    }

    /// Longest time that a request waits because of its share of time.
    pub fn request_wait_max(&self) -> Duration {
        self.request_wait_max
    }

    /// What is asked for of what is configured, in order.
    pub fn describe(&self, filter: &QuotaFilter) -> Vec<(QuotaEntity, QuotaValues)> {
        let configured = self.configured.read();
        configured
            .iter()
            .filter(|(entity, _)| filter.takes(entity))
            .map(|(entity, values)| (entity.clone(), values.clone()))
            .collect()
    }

    fn value(&self, key: QuotaKey, entity: &QuotaEntity) -> Option<f64> {
        self.configured.read().get(entity)?.get(&key).copied()
    }

    /// The quota of a connection, and who shares its account.
    fn resolve(&self, key: QuotaKey, user: &str, client_id: &str) -> Option<(f64, Holder)> {
        let named = |name: &str| Some(QuotaName::Named(name.to_owned()));
        let users = [named(user), Some(QuotaName::Default), None];
        let client_ids = [named(client_id), Some(QuotaName::Default), None];
        let pairs = users.iter().flat_map(|user| client_ids.iter().map(move |client_id| (user, client_id)));
        pairs.filter(|(user, client_id)| user.is_some() || client_id.is_some()).find_map(|(of_user, of_client)| {
            let rate = self.value(key, &QuotaEntity::Client { user: of_user.clone(), client_id: of_client.clone() })?;
            let holder = Holder {
                key,
                user: of_user.is_some().then(|| user.to_owned()),
                client_id: of_client.is_some().then(|| client_id.to_owned()),
            };
            Some((rate, holder))
        })
    }

    fn account(&self, key: QuotaKey, user: &str, client_id: &str, now: Instant) -> Option<Arc<Account>> {
        // Before the value is looked up: who changes it ends the accounts afterwards, this one too.
        let mut accounts = self.accounts.lock();
        let client_id = &client_id[..client_id.floor_char_boundary(CLIENT_ID_BYTES_MAX)];
        let (value, mut holder) = self.resolve(key, user, client_id)?;
        if accounts.by_holder.len() >= accounts.tidy_at.max(ACCOUNTS_TIDY) {
            accounts.by_holder.retain(|_, account| Arc::strong_count(account) > 1 || !account.is_full(now));
            accounts.tidy_at = accounts.by_holder.len() * 2;
        }
        if accounts.by_holder.len() >= ACCOUNTS_MAX
            && holder.client_id.is_some()
            && !accounts.by_holder.contains_key(&holder)
        {
            holder.client_id = Some(String::new());
        }
        let made = || {
            Arc::new(match key {
                // Percent of a thread's nanoseconds.
                QuotaKey::RequestPercentage => Account::new(value / 100.0 * 1e9, self.credit, false, now),
                QuotaKey::ControllerMutationRate => Account::new(value, self.mutation_credit, true, now),
                _ => Account::new(value, self.credit, false, now),
            })
        };
        Some(Arc::clone(accounts.by_holder.entry(holder).or_insert_with(made)))
    }

    /// What limits a connection of a user whose client calls itself so. `None`: nothing.
    pub fn of(&self, user: &str, client_id: &str, now: Instant) -> Option<Box<ClientQuotas>> {
        let account = |key| self.account(key, user, client_id, now);
        let found = ClientQuotas {
            produce: account(QuotaKey::ProducerByteRate),
            fetch: account(QuotaKey::ConsumerByteRate),
            request: account(QuotaKey::RequestPercentage),
            mutation: account(QuotaKey::ControllerMutationRate),
        };
        let any =
            found.produce.is_some() || found.fetch.is_some() || found.request.is_some() || found.mutation.is_some();
        any.then(|| Box::new(found))
    }

    /// Counts a connection from an address; false: there are more of them in a second than there may be, and it is to be closed.
    pub fn admit_connection(&self, address: IpAddr, now: Instant) -> bool {
        if self.generation() == 0 {
            return true;
        }
        let address = address.to_canonical();
        let key = QuotaKey::ConnectionCreationRate;
        let mut addresses = self.addresses.lock();
        let named = QuotaEntity::Ip(QuotaName::Named(address.to_string()));
        let rate = self.value(key, &named).or_else(|| self.value(key, &QuotaEntity::Ip(QuotaName::Default)));
        let Some(rate) = rate else { return true };
        if addresses.len() >= ACCOUNTS_TIDY && addresses.len().is_power_of_two() {
            addresses.retain(|_, account| !account.is_full(now));
        }
        let account = addresses.entry(address).or_insert_with(|| Account::new(rate, self.credit, true, now));
        let debt = account.debt(now);
        if debt.is_zero() {
            account.take(1, now);
        } else {
            self.note_throttled(key, debt);
        }
        debt.is_zero()
    }

    /// Puts values in force; none: the entity has no quota any more.
    fn put(&self, entity: &QuotaEntity, values: QuotaValues) {
        {
            let mut configured = self.configured.write();
            if values.is_empty() {
                configured.remove(entity);
            } else {
                configured.insert(entity.clone(), values);
            }
        }
        match entity {
            QuotaEntity::Ip(_) => self.addresses.lock().clear(),
            QuotaEntity::Client { user, client_id } => {
                let concerns = |changed: &Option<QuotaName>, of: &Option<String>| match (changed, of) {
                    (Some(QuotaName::Named(name)), Some(of)) => name == of,
                    _ => true,
                };
                let stays = |holder: &Holder| !(concerns(user, &holder.user) && concerns(client_id, &holder.client_id));
                self.accounts.lock().by_holder.retain(|holder, _| stays(holder));
            }
        }
        self.changed();
    }
}

#[cfg(test)]
mod tests;
