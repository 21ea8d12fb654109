//! What quotas are used for now: each account that limits somebody, for those who look on. Called by administration; clients never wait for it
//! longer than a copy of the accounts takes.

use std::time::{Duration, Instant};

use super::{Account, QuotaKey};
use crate::Broker;

/// Whose account it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuotaSubject {
    /// A user, a client id, or a user with a client id.
    Client {
        /// Who has logged in.
        user: Option<String>,
        /// What the client calls itself.
        client_id: Option<String>,
    },
    /// An address.
    Address(String),
    /// All clients of a topic.
    Topic(String),
    /// The members of a group with rules for the time that it is far behind.
    Group(String),
}

/// An account, as it is at the moment.
#[derive(Clone, Debug, PartialEq)]
pub struct QuotaUse {
    /// Whose.
    pub subject: QuotaSubject,
    /// The quota's key, or the setting of the topic or the group.
    pub key: &'static str,
    /// Units a second; `None`: no rule applies to the group now.
    pub limit: Option<f64>,
    /// Units taken since the limit came into force.
    pub taken: f64,
    /// How long to wait before anything else is taken.
    pub wait: Duration,
}

/// Nanoseconds of a thread's time in a percent of a second.
const NS_A_PERCENT: f64 = 1e7;

impl QuotaUse {
    fn of(subject: QuotaSubject, key: &'static str, account: &Account, now: Instant) -> Self {
        let unit = if key == QuotaKey::RequestPercentage.name() { NS_A_PERCENT } else { 1.0 };
        Self {
            subject,
            key,
            limit: Some(account.rate() / unit),
            taken: account.taken() as f64 / unit,
            wait: account.debt(now),
        }
    }
}

impl Broker {
    /// All accounts: those of clients and addresses that have been there since the last change of their quota, of topics that have one, and of
    /// groups that have rules.
    pub fn quota_uses(&self, now: Instant) -> Vec<QuotaUse> {
        let quotas = self.quotas();
        let mut uses: Vec<QuotaUse> = Vec::new();
        for (holder, account) in &quotas.accounts.lock().by_holder {
            let subject = QuotaSubject::Client { user: holder.user.clone(), client_id: holder.client_id.clone() };
            uses.push(QuotaUse::of(subject, holder.key.name(), account, now));
        }
        for (address, account) in &*quotas.addresses.lock() {
            uses.push(QuotaUse::of(
                QuotaSubject::Address(address.to_string()),
                QuotaKey::ConnectionCreationRate.name(),
                account,
                now,
            ));
        }
        for topic in self.topics() {
            let Some(of_topic) = topic.quotas() else { continue };
            let accounts =
                [("mainstem.producer.byte.rate", &of_topic.produce), ("mainstem.consumer.byte.rate", &of_topic.fetch)];
            let limited = accounts.into_iter().filter_map(|(key, account)| Some((key, account.as_ref()?)));
            uses.extend(
                limited.map(|(key, account)| QuotaUse::of(QuotaSubject::Topic(topic.name.clone()), key, account, now)),
            );
        }
        for laggard in quotas.laggards().all() {
            let (subject, key) = (QuotaSubject::Group(laggard.group.clone()), "mainstem.laggard.rules");
            uses.push(match laggard.account() {
                Some(account) => QuotaUse::of(subject, key, &account, now),
                None => QuotaUse { subject, key, limit: None, taken: 0.0, wait: Duration::ZERO },
            });
        }
        uses
    }
}
