//! Who may do what: users, their permissions in virtual hosts, access control entries, and the connections they have. One catalog for
//! all protocols.
//!
//! Look-ups are immediate ([`Security`]); what changes the catalog runs on the controller's thread (`admin.rs`) and is durable before it
//! is answered; passwords are verified on threads of their own (`login.rs`), tokens where they are met (`tokens/mod.rs`). While no user is defined there is `guest`, with the same
//! word as password and all permissions, for connections from this machine only.
//!
//! Each change raises [`Security::version`]: who keeps what he looked up looks again when it is not the same.

mod acl;
mod acl_admin;
mod acl_search;
mod acls;
mod admin;
mod allowance;
mod answers;
mod audit;
mod crowd;
mod error;
mod guesses;
mod login;
mod password;
mod permissions;
mod principal;
mod queue_rights;
mod record;
mod scram;
mod scram_admin;
mod scram_exchange;
mod scram_nobody;
mod seats;
mod setter;
#[cfg(test)]
mod tests;
mod tokens;
mod user;
mod vhost_deletion;
mod waiting;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use routing::DefinitionMemory;

pub use acl::{
    ANONYMOUS, Acl, AclFilter, AclOperation, AclPattern, AclPatternFilter, AclPermission, AclResource, CLUSTER,
    EVERYBODY, WILDCARD,
};
pub use acl_admin::ACLS_MAX;
pub use acls::Subject;
pub(crate) use admin::PlannedVhost;
pub use admin::VhostWish;
pub use answers::AclAnswers;
pub use audit::AuditLine;
pub use crowd::Crowd;
pub use error::{AclError, Full, Refused, SecurityError};
pub use login::{Credentials, LoginOutcome};
pub use password::{HashAlgorithm, InvalidHash, PasswordHash};
pub use permissions::{InvalidPattern, Pattern, Permission, Permissions, TopicPermission, TopicPermissions};
pub(crate) use principal::AclQuestion;
pub use principal::{Denial, Principal, Resource, Rule, Via};
pub use queue_rights::QueueRights;
pub(crate) use record::SECURITY_KEY;
pub use scram::{
    InvalidScram, SCRAM_ITERATIONS_MAX, SCRAM_ITERATIONS_MIN, ScramCredential, ScramCredentials, ScramMechanism,
};
pub use scram_admin::{ScramChange, ScramError, ScramWish};
pub use scram_exchange::{ScramExchange, ScramRefused};
pub use seats::{Dismissed, NoChannel, Seat, Seats};
pub use setter::Setter;
pub use tokens::{InvalidKeys, TOKEN_KEYS_MAX, TokenKeys, TokenLogin, TokenRefusal, TokenRefused, Tokens};
pub use user::{GUEST, PasswordWish, User, UserLimits, UserWish};
pub use vhost_deletion::VhostDeletion;
pub(crate) use waiting::Logins;
pub use waiting::place_of;

use crate::settings::Settings;

/// What one user has in one virtual host.
#[derive(Clone, Debug, Default)]
struct Grant {
    permissions: Option<Arc<Permissions>>,
    topics: Arc<TopicPermissions>,
}

#[derive(Default)]
struct Inner {
    users: BTreeMap<String, Arc<User>>,
    /// While records are read: keys of users whose own record has not come yet.
    scram_first: BTreeMap<String, ScramCredentials>,
    /// By virtual host, then by user.
    grants: BTreeMap<String, BTreeMap<String, Grant>>,
    acls: acls::Acls,
}

/// Users and permissions.
pub struct Security {
    inner: RwLock<Inner>,
    version: AtomicU64,
    verified: login::Verified,
    iterations: NonZeroU32,
    /// New passwords get a hash that RabbitMQ knows as well.
    hashes_for_rabbitmq: bool,
    guest: Arc<User>,
    all: Arc<Permissions>,
    seats: Seats,
    /// Mechanisms for which new passwords get keys.
    scram: RwLock<Vec<ScramMechanism>>,
    scram_looks: scram_nobody::Looks,
    acl_rules: acls::Rules,
    /// `mainstem.anonymous.clients` is set, to whatever.
    anonymous_allowed: bool,
    audit: audit::Audit,
    guesses: guesses::Guesses,
    tokens: Tokens,
    answers: Arc<DefinitionMemory>,
}

impl Security {
    pub(crate) fn new(settings: &Settings) -> Self {
        let iterations = u32::try_from(settings.int("mainstem.password.iterations")).ok().and_then(NonZeroU32::new);
        let iterations = iterations.unwrap_or(NonZeroU32::MIN);
        Self {
            inner: RwLock::default(),
            version: AtomicU64::new(1),
            verified: login::Verified::new(iterations),
            iterations,
            hashes_for_rabbitmq: settings.bool("mainstem.password.rabbitmq.hash"),
            guest: Arc::new(User::new(GUEST.to_owned(), None, vec!["administrator".to_owned()], UserLimits::default())),
            all: Arc::new(Permissions::all()),
            seats: Seats::default(),
            scram: RwLock::default(),
            scram_looks: scram_nobody::Looks::default(),
            acl_rules: acls::Rules::new(settings),
            anonymous_allowed: settings.text("mainstem.anonymous.clients").1,
            audit: audit::Audit::default(),
            guesses: guesses::Guesses::new(settings),
            tokens: Tokens::new(settings),
            answers: Arc::default(),
        }
    }

    /// What connections remember of access control entries. Who adds to it beyond the bound forgets what he has, beyond 16 KiB.
    pub fn answer_memory(&self) -> &Arc<DefinitionMemory> {
        &self.answers
    }

    /// Rises with each change of users, permissions and access control entries.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The connections that have opened a virtual host.
    pub fn seats(&self) -> &Seats {
        &self.seats
    }

    /// New passwords get keys for these mechanisms beside their hash: those that a listener offers.
    pub fn offer_scram(&self, mechanisms: Vec<ScramMechanism>) {
        *self.scram.write() = mechanisms;
    }

    /// Iterations of hashes of new passwords.
    pub fn iterations(&self) -> NonZeroU32 {
        self.iterations
    }

    /// `guest`, while no user is defined.
    fn lone_guest(&self) -> Option<Arc<User>> {
        self.inner.read().users.is_empty().then(|| Arc::clone(&self.guest))
    }

    /// A user by name; `guest` too while no user is defined.
    pub fn user(&self, name: &str) -> Option<Arc<User>> {
        let inner = self.inner.read();
        let guest = || (inner.users.is_empty() && name == GUEST).then(|| Arc::clone(&self.guest));
        inner.users.get(name).cloned().or_else(guest)
    }

    /// One that is defined.
    pub fn defined_user(&self, name: &str) -> Option<Arc<User>> {
        self.inner.read().users.get(name).cloned()
    }

    /// All that are defined, by name.
    pub fn users(&self) -> Vec<Arc<User>> {
        self.inner.read().users.values().cloned().collect()
    }

    /// What a user may do in a virtual host. `None`: not even open it.
    pub fn permissions(&self, vhost: &str, user: &str) -> Option<Arc<Permissions>> {
        let inner = self.inner.read();
        if inner.users.is_empty() && user == GUEST {
            return Some(Arc::clone(&self.all));
        }
        inner.grants.get(vhost)?.get(user)?.permissions.clone()
    }

    /// With which routing keys a user may use topic exchanges of a virtual host; exchanges that are not named take all.
    pub fn topic_permissions(&self, vhost: &str, user: &str) -> Arc<TopicPermissions> {
        let inner = self.inner.read();
        inner
            .grants
            .get(vhost)
            .and_then(|users| users.get(user))
            .map(|grant| Arc::clone(&grant.topics))
            .unwrap_or_default()
    }

    /// All permissions that are defined: virtual host, user, what.
    pub fn all_permissions(&self) -> Vec<(String, String, Arc<Permissions>)> {
        let inner = self.inner.read();
        let of_vhost = |(vhost, users): (&String, &BTreeMap<String, Grant>)| {
            let row =
                |(user, grant): (&String, &Grant)| Some((vhost.clone(), user.clone(), grant.permissions.clone()?));
            users.iter().filter_map(row).collect::<Vec<_>>()
        };
        inner.grants.iter().flat_map(of_vhost).collect()
    }

    /// All topic permissions that are defined: virtual host, user, what by exchange.
    pub fn all_topic_permissions(&self) -> Vec<(String, String, Arc<TopicPermissions>)> {
        let inner = self.inner.read();
        let of_vhost = |(vhost, users): (&String, &BTreeMap<String, Grant>)| {
            let some = users.iter().filter(|(_, grant)| !grant.topics.is_empty());
            some.map(|(user, grant)| (vhost.clone(), user.clone(), Arc::clone(&grant.topics))).collect::<Vec<_>>()
        };
        inner.grants.iter().flat_map(of_vhost).collect()
    }

    /// Makes a change, and lets everybody look again.
    fn change(&self, change: impl FnOnce(&mut Inner)) {
        change(&mut self.inner.write());
        self.look_again();
    }

    /// Lets everybody look again: what entries mean has changed.
    pub(crate) fn look_again(&self) {
        self.version.fetch_add(1, Ordering::AcqRel);
    }
}

impl Inner {
    fn grant(&mut self, vhost: &str, user: &str) -> &mut Grant {
        self.grants.entry(vhost.to_owned()).or_default().entry(user.to_owned()).or_default()
    }

    /// Forgets grants that say nothing.
    fn tidy(&mut self) {
        for users in self.grants.values_mut() {
            users.retain(|_, grant| grant.permissions.is_some() || !grant.topics.is_empty());
        }
        self.grants.retain(|_, users| !users.is_empty());
    }
}
