//! Who may do what by access control entries, as Kafka's StandardAuthorizer decides it.
//!
//! * A super user may do everything: one of `super.users`, or a user with tag `administrator`, who could give it to himself.
//! * An entry that denies counts before all that allow; it denies its own operation only, while one that allows `Read`, `Write`, `Delete`
//!   or `Alter` allows `Describe` with it, and `AlterConfigs` allows `DescribeConfigs`.
//! * Where no entry of anybody is about a resource, `allow.everyone.if.no.acl.found` decides; where there are some, who has none may not.
//!
//! Entries are found by name: literal ones in a table, prefixed ones in one table for each length that there is. The caller often
//! remembers the answer until [`Security::version`] changes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use hashbrown::HashMap;

use super::Security;
use super::acl::{
    ANONYMOUS, Acl, AclFilter, AclOperation, AclPattern, AclPermission, AclResource, EVERYBODY, WILDCARD,
};
use crate::settings::Settings;

/// What `authorizer.class.name` has to say for entries to count.
const STANDARD_AUTHORIZER: &str = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";

/// What the settings say of entries.
pub(super) struct Rules {
    pub enforced: bool,
    /// Principals who may do everything.
    pub super_users: BTreeSet<String>,
    /// Without any entry for a resource everybody may use it.
    open: bool,
}

impl Rules {
    pub fn new(settings: &Settings) -> Self {
        let named = settings.text("super.users").0.split(';').map(str::trim).filter(|one| !one.is_empty());
        Self {
            enforced: settings.text("authorizer.class.name").0 == STANDARD_AUTHORIZER,
            super_users: named.map(str::to_owned).collect(),
            open: settings.bool("allow.everyone.if.no.acl.found"),
        }
    }
}

/// Somebody who asks, from somewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    principal: String,
    host: String,
    address: IpAddr,
    /// He may do everything.
    all: bool,
}

impl Subject {
    /// As entries name him.
    pub fn principal(&self) -> &str {
        &self.principal
    }

    /// His address, as entries have it.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Does no entry count for him?
    pub fn is_super(&self) -> bool {
        self.all
    }
}

/// Entries of one type of resource.
#[derive(Debug, Default)]
struct OfType {
    literal: HashMap<String, Vec<Arc<Acl>>>,
    /// By the length of the prefix.
    prefixed: BTreeMap<usize, HashMap<String, Vec<Arc<Acl>>>>,
}

impl OfType {
    /// Those that are about a resource.
    fn about<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Acl> {
        let literal = [name, WILDCARD]
            .into_iter()
            .take(if name == WILDCARD { 1 } else { 2 })
            .filter_map(|name| self.literal.get(name));
        let prefixed = self.prefixed.range(..=name.len()).filter_map(|(length, names)| names.get(name.get(..*length)?));
        literal.chain(prefixed).flatten().map(|acl| &**acl)
    }

    fn all(&self) -> impl Iterator<Item = &Acl> {
        self.literal.values().chain(self.prefixed.values().flat_map(HashMap::values)).flatten().map(|acl| &**acl)
    }
}

/// All entries.
#[derive(Debug, Default)]
pub(super) struct Acls {
    sorted: BTreeSet<Arc<Acl>>,
    by_type: BTreeMap<AclResource, OfType>,
}

impl Acls {
    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    pub fn contains(&self, acl: &Acl) -> bool {
        self.sorted.contains(acl)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Acl>> {
        self.sorted.iter()
    }

    pub fn insert(&mut self, acl: Acl) {
        let acl = Arc::new(acl);
        if !self.sorted.insert(Arc::clone(&acl)) {
            return;
        }
        let of_type = self.by_type.entry(acl.resource).or_default();
        let names = match acl.pattern {
            AclPattern::Literal => &mut of_type.literal,
            AclPattern::Prefixed => of_type.prefixed.entry(acl.name.len()).or_default(),
        };
        names.entry_ref(acl.name.as_str()).or_default().push(acl);
    }

    /// Removes entries; those of one name are gone through once, however many of them go.
    pub fn remove_all(&mut self, gone: &BTreeSet<&Arc<Acl>>) {
        let mut names: BTreeSet<(AclResource, AclPattern, &str)> = BTreeSet::new();
        for acl in gone {
            if self.sorted.remove(*acl) {
                names.insert((acl.resource, acl.pattern, acl.name.as_str()));
            }
        }
        for (resource, pattern, name) in names {
            let Some(of_type) = self.by_type.get_mut(&resource) else { continue };
            let table = match pattern {
                AclPattern::Literal => Some(&mut of_type.literal),
                AclPattern::Prefixed => of_type.prefixed.get_mut(&name.len()),
            };
            let Some(table) = table else { continue };
            let empty = table.get_mut(name).is_some_and(|entries| {
                entries.retain(|one| !gone.contains(&one));
                entries.is_empty()
            });
            if empty {
                table.remove(name);
            }
            if pattern == AclPattern::Prefixed && table.is_empty() {
                of_type.prefixed.remove(&name.len());
            }
        }
    }

    /// `None`: nothing is said about the resource.
    fn decide(&self, subject: &Subject, operation: AclOperation, resource: AclResource, name: &str) -> Option<bool> {
        let (mut any, mut allowed) = (false, false);
        for acl in self.by_type.get(&resource)?.about(name) {
            any = true;
            if !is_of(acl, subject) {
                continue;
            }
            match acl.permission {
                AclPermission::Deny if denies(acl, operation) => return Some(false),
                AclPermission::Allow => allowed |= acl.operation.implies(operation),
                AclPermission::Deny => {}
            }
        }
        any.then_some(allowed)
    }

    /// May he do it with each resource whose name begins so? `open`: who may if nothing is said. An entry that allows has to be for all of them, and none
    /// may deny one of them.
    fn decide_prefix(
        &self,
        subject: &Subject,
        operation: AclOperation,
        resource: AclResource,
        prefix: &str,
        open: bool,
    ) -> bool {
        let Some(of_type) = self.by_type.get(&resource) else { return open };
        let is_for_all = |acl: &Acl| match acl.pattern {
            AclPattern::Literal => acl.name == WILDCARD,
            AclPattern::Prefixed => prefix.starts_with(&acl.name),
        };
        let is_about_some = |acl: &Acl| is_for_all(acl) || acl.name.starts_with(prefix);
        let (mut any, mut allowed) = (false, false);
        for acl in of_type.all().filter(|acl| is_about_some(acl)) {
            any = true;
            if !is_of(acl, subject) {
                continue;
            }
            match acl.permission {
                AclPermission::Deny if denies(acl, operation) => return false,
                AclPermission::Allow => allowed |= is_for_all(acl) && acl.operation.implies(operation),
                AclPermission::Deny => {}
            }
        }
        allowed || open && !any
    }

    /// May he do it with any resource of the type at all? An entry that allows counts unless entries that deny go for all that it is about.
    fn decide_any(&self, subject: &Subject, operation: AclOperation, resource: AclResource) -> bool {
        let Some(of_type) = self.by_type.get(&resource) else { return false };
        let own = || of_type.all().filter(|acl| is_of(acl, subject));
        let denied: Vec<&Acl> =
            own().filter(|acl| acl.permission == AclPermission::Deny && denies(acl, operation)).collect();
        if denied.iter().any(|acl| acl.pattern == AclPattern::Literal && acl.name == WILDCARD) {
            return false;
        }
        let covered = |allow: &Acl| {
            denied.iter().any(|deny| match (deny.pattern, allow.pattern) {
                (AclPattern::Prefixed, _) => allow.name != WILDCARD && allow.name.starts_with(&deny.name),
                (AclPattern::Literal, AclPattern::Literal) => deny.name == allow.name,
                (AclPattern::Literal, AclPattern::Prefixed) => false,
            })
        };
        own().any(|acl| {
            acl.permission == AclPermission::Allow
                && [operation, AclOperation::All].contains(&acl.operation)
                && !covered(acl)
        })
    }
}

fn is_of(acl: &Acl, subject: &Subject) -> bool {
    (acl.principal == subject.principal || acl.principal == EVERYBODY)
        && (acl.host == WILDCARD || is_from(&acl.host, subject))
}

/// Is it his address? One of IPv6 can be written in several ways: Java, and so Kafka, leaves no zeros out.
fn is_from(host: &str, subject: &Subject) -> bool {
    let same = || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical() == subject.address);
    host == subject.host || (host.contains(':') && same())
}

fn denies(acl: &Acl, operation: AclOperation) -> bool {
    acl.operation == operation || acl.operation == AclOperation::All
}

impl Security {
    /// Do access control entries count?
    pub fn acls_enforced(&self) -> bool {
        self.acl_rules.enforced
    }

    /// How many entries there are.
    pub fn acl_count(&self) -> usize {
        self.inner.read().acls.len()
    }

    /// The entries that a filter picks, sorted.
    pub fn acls(&self, filter: &AclFilter) -> Vec<Arc<Acl>> {
        self.inner.read().acls.iter().filter(|acl| filter.matches(acl)).cloned().collect()
    }

    /// Who asks, as of now; he may be no user of the catalog. `None`: nobody said who he is.
    pub fn subject(&self, name: Option<&str>, address: IpAddr) -> Subject {
        let administrator = name.and_then(|name| self.user(name)).is_some_and(|user| user.has_tag("administrator"));
        let principal = name.map_or_else(|| ANONYMOUS.to_owned(), |name| format!("User:{name}"));
        let all = administrator || self.acl_rules.super_users.contains(&principal);
        let address = address.to_canonical();
        Subject { principal, host: address.to_string(), address, all }
    }

    /// May he? Everybody may everything while entries do not count.
    pub fn allows(&self, subject: &Subject, operation: AclOperation, resource: AclResource, name: &str) -> bool {
        if !self.acl_rules.enforced || subject.all {
            return true;
        }
        let decided = self.inner.read().acls.decide(subject, operation, resource, name);
        decided.unwrap_or(self.acl_rules.open)
    }

    /// May he do it with all resources of the type whose names begin so, those too that are not there yet?
    pub(super) fn allows_prefix(
        &self,
        subject: &Subject,
        operation: AclOperation,
        resource: AclResource,
        prefix: &str,
    ) -> bool {
        let open = self.acl_rules.open;
        !self.acl_rules.enforced
            || subject.all
            || self.inner.read().acls.decide_prefix(subject, operation, resource, prefix, open)
    }

    /// May he do it with some resource of the type, whichever?
    pub fn allows_some(&self, subject: &Subject, operation: AclOperation, resource: AclResource) -> bool {
        if !self.acl_rules.enforced || subject.all {
            return true;
        }
        let inner = self.inner.read();
        // A resource that nobody names stands for those about which no entry of its own is.
        let unnamed = inner.acls.decide(subject, operation, resource, "\0").unwrap_or(self.acl_rules.open);
        unnamed || inner.acls.decide_any(subject, operation, resource)
    }
}

#[cfg(test)]
mod tests;
