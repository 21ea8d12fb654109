//! Changes of quotas: on the controller's thread, durable before they count.

use std::collections::BTreeMap;

use journal::{AppendError, AppendItem};

use super::Quotas;
use super::entity::{InvalidQuota, QuotaEntity, QuotaKey, QuotaValues};
use super::record;
use crate::Broker;
use crate::jobs::CHANGES_MAX;

/// Entities that can have quotas.
const ENTITIES_MAX: usize = 100_000;

/// What is to become of an entity's quotas.
#[derive(Clone, Debug)]
pub struct QuotaChange {
    /// Whose.
    pub entity: QuotaEntity,
    /// By key: the value, `None`: the entity has none any more.
    pub values: Vec<(QuotaKey, Option<f64>)>,
}

/// Why quotas stay as they are.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum AlterQuotaError {
    /// There cannot be such a quota.
    #[error(transparent)]
    Invalid(#[from] InvalidQuota),
    /// There is no room for more entities.
    #[error("at most {ENTITIES_MAX} entities have quotas")]
    Full,
    /// More than are changed by one request, which is one commit: as Kafka's.
    #[error("a request changes at most {CHANGES_MAX} quotas")]
    TooMany,
    /// The journal did not take it.
    #[error("{0}")]
    Append(#[from] AppendError),
}

/// How many quotas have another value, or are in one of them alone.
fn differ(before: &QuotaValues, after: &QuotaValues) -> usize {
    let gone = before.keys().filter(|key| !after.contains_key(*key)).count();
    gone + after.iter().filter(|(key, value)| before.get(*key) != Some(value)).count()
}

impl QuotaChange {
    /// A change from names and values; a value of `None` takes the quota away.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn of<'a>(
        entity: QuotaEntity,
        values: impl IntoIterator<Item = (&'a str, Option<f64>)>,
    ) -> Result<Self, InvalidQuota> {
        let checked = |(key, value): (&str, Option<f64>)| Ok((entity.check(key, value)?, value));
        let values = values.into_iter().map(checked).collect::<Result<_, _>>()?;
        Ok(Self { entity, values })
    }
}

type Configured = BTreeMap<QuotaEntity, QuotaValues>;

/// Changes of quotas that are only looked at, and count for those that are looked at behind them.
#[derive(Default)]
pub struct Supposed {
    /// What entities have after them.
    after: Configured,
    /// Entities that have quotas only then …
    added: usize,
    /// … or have none any more.
    removed: usize,
}

impl Supposed {
    /// What an entity has; `None`: no quotas.
    fn values_of<'a>(&'a self, entity: &QuotaEntity, configured: &'a Configured) -> Option<&'a QuotaValues> {
        self.after.get(entity).or_else(|| configured.get(entity)).filter(|values| !values.is_empty())
    }

    fn put(&mut self, entity: &QuotaEntity, values: QuotaValues, configured: &Configured) {
        let (had, has) = (self.values_of(entity, configured).is_some(), !values.is_empty());
        let is_configured = configured.contains_key(entity);
        match (had, has) {
            (false, true) if is_configured => self.removed -= 1,
            (false, true) => self.added += 1,
            (true, false) if is_configured => self.removed += 1,
            (true, false) => self.added -= 1,
            _ => {}
        }
        self.after.insert(entity.clone(), values);
    }
}

impl Broker {
    /// How much users, clients and addresses may do.
    pub fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    /// The quotas that entities would have after these changes, those that would have others than `before` them: all of the changes are made or none.
    fn quotas_after<'a>(
        &self,
        changes: &'a [QuotaChange],
        before: &Supposed,
    ) -> Result<BTreeMap<&'a QuotaEntity, QuotaValues>, AlterQuotaError> {
        let mut after: BTreeMap<&QuotaEntity, QuotaValues> = BTreeMap::new();
        let mut changed = 0;
        let count = {
            let configured = self.quotas.configured.read();
            let known = |entity: &QuotaEntity| before.values_of(entity, &configured);
            for QuotaChange { entity, values } in changes {
                let now = after.entry(entity).or_insert_with(|| known(entity).cloned().unwrap_or_default());
                for (key, value) in values {
                    now.remove(key);
                    now.extend(value.map(|value| (*key, value)));
                }
            }
            after.retain(|entity, values| {
                let differ = differ(known(entity).unwrap_or(&QuotaValues::new()), values);
                changed += differ;
                differ > 0
            });
            let new = after.keys().filter(|entity| known(entity).is_none()).count();
            configured.len() + before.added - before.removed + new
        };
        if changed > CHANGES_MAX {
            return Err(AlterQuotaError::TooMany);
        }
        if count > ENTITIES_MAX {
            return Err(AlterQuotaError::Full);
        }
        Ok(after)
    }

    /// Whether these changes could be made after those that are supposed to have been, if there is room for their records: then they are supposed, too.
    ///
    /// # Errors
    /// `TooMany`, `Full`.
    pub fn suppose_quotas(&self, changes: &[QuotaChange], supposed: &mut Supposed) -> Result<(), AlterQuotaError> {
        let after = self.quotas_after(changes, supposed)?;
        let configured = self.quotas.configured.read();
        after.into_iter().for_each(|(entity, values)| supposed.put(entity, values, &configured));
        Ok(())
    }

    /// Changes quotas, all of them or none. On the controller's thread.
    ///
    /// # Errors
    /// `TooMany`, `Full`, `Append`.
    pub fn alter_quotas(&self, changes: &[QuotaChange]) -> Result<(), AlterQuotaError> {
        let after = self.quotas_after(changes, &Supposed::default())?;
        let item = |(entity, values): (&&QuotaEntity, &QuotaValues)| {
            let value = (!values.is_empty()).then(|| record::encode(values));
            AppendItem::State { key: record::key(entity), value }
        };
        let items: Vec<AppendItem> = after.iter().map(item).collect();
        if items.is_empty() {
            return Ok(());
        }
        self.commit(0, items)?;
        after.into_iter().for_each(|(entity, values)| self.quotas.put(entity, values));
        Ok(())
    }

    /// Puts a record back at start; false: it is not readable.
    pub(crate) fn restore_quota(&self, key: &[u8], value: &[u8]) -> bool {
        let found = record::decode(key, value);
        let readable = found.is_some();
        if let Some((entity, values)) = found {
            self.quotas.put(&entity, values);
        }
        readable
    }
}
