//! What changes access control entries. Runs on the controller's thread; what is said here is durable before it is answered.

use std::collections::BTreeSet;
use std::sync::Arc;

use journal::AppendItem;

use super::acl::{Acl, AclFilter};
use super::error::AclError;
use super::{acl_search, record};
use crate::Broker;
use crate::jobs::CHANGES_MAX;

/// Entries that there may be.
pub const ACLS_MAX: usize = 100_000;

impl Broker {
    /// Adds entries, at most [`CHANGES_MAX`]; one that is there stays. An outcome for each, in order.
    pub fn create_acls(&self, wishes: Vec<Acl>) -> Vec<Result<(), AclError>> {
        let mut new: BTreeSet<Acl> = BTreeSet::new();
        let mut outcomes: Vec<Result<(), AclError>> = Vec::with_capacity(wishes.len());
        {
            let inner = self.security.inner.read();
            for acl in wishes {
                let outcome = acl.check().and_then(|()| {
                    let known = inner.acls.contains(&acl) || new.contains(&acl);
                    if !known && inner.acls.len() + new.len() >= ACLS_MAX {
                        Err(AclError::TooMany(ACLS_MAX))
                    } else {
                        Ok(known)
                    }
                });
                outcomes.push(outcome.map(|known| {
                    if !known {
                        new.insert(acl);
                    }
                }));
            }
        }
        if new.is_empty() {
            return outcomes;
        }
        if new.len() > CHANGES_MAX {
            return vec![Err(AclError::TooManyCreated); outcomes.len()];
        }
        let put = |acl: &Acl| AppendItem::State { key: record::acl_key(acl), value: Some(record::encode_acl()) };
        if let Err(error) = self.commit(0, new.iter().map(put).collect()) {
            return outcomes.into_iter().map(|outcome| outcome.and(Err(AclError::Append(error)))).collect();
        }
        self.security.change(|inner| new.into_iter().for_each(|acl| inner.acls.insert(acl)));
        outcomes
    }

    /// Could it be added? True: it is there already.
    ///
    /// # Errors
    /// Why it could not.
    pub fn check_acl(&self, acl: &Acl) -> Result<bool, AclError> {
        acl.check()?;
        let inner = self.security.inner.read();
        let known = inner.acls.contains(acl);
        if !known && inner.acls.len() >= ACLS_MAX { Err(AclError::TooMany(ACLS_MAX)) } else { Ok(known) }
    }

    /// Removes what any of the filters picks; by filter, what it picked.
    ///
    /// # Errors
    /// `TooManyPicked`, `TooManyRemoved`, `Append`: nothing is removed.
    pub fn delete_acls(&self, filters: &[AclFilter]) -> Result<Vec<Vec<Arc<Acl>>>, AclError> {
        let entries: Vec<Arc<Acl>> = self.security.inner.read().acls.iter().cloned().collect();
        let picked = acl_search::pick(&entries, filters, ACLS_MAX).ok_or(AclError::TooManyPicked(ACLS_MAX))?;
        let all: BTreeSet<&Arc<Acl>> = picked.iter().flatten().collect();
        if all.len() > CHANGES_MAX {
            return Err(AclError::TooManyRemoved);
        }
        if !all.is_empty() {
            let items = all.iter().map(|acl| AppendItem::State { key: record::acl_key(acl), value: None }).collect();
            self.commit(0, items)?;
            self.security.change(|inner| inner.acls.remove_all(&all));
        }
        Ok(picked)
    }
}
