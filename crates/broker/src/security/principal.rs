//! Who has the controller do something. He comes along with the command and is judged where it is carried out, at that moment: what a command
//! takes depends on what is there then, and on what he has then.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use super::Security;
use super::acl::{AclOperation, AclResource};
use super::audit::AuditLine;
use super::permissions::{Pattern, Permission, TopicPermissions};
use super::user::User;

/// What the default exchange is called in permissions.
const DEFAULT_EXCHANGE: &[u8] = b"amq.default";

/// A queue or an exchange of a virtual host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource<'a> {
    /// By its name; empty: the default exchange.
    Exchange(&'a [u8]),
    /// By its name.
    Queue(&'a [u8]),
}

impl<'a> Resource<'a> {
    /// As permissions and entries name it.
    pub fn name(self) -> &'a [u8] {
        match self {
            Self::Exchange(b"") => DEFAULT_EXCHANGE,
            Self::Exchange(name) | Self::Queue(name) => name,
        }
    }

    /// What it is.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Exchange(_) => "exchange",
            Self::Queue(_) => "queue",
        }
    }
}

impl fmt::Display for Resource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} '{}'", self.kind(), String::from_utf8_lossy(self.name()))
    }
}

/// By which protocol a principal asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// AMQP 0-9-1.
    Amqp,
    /// RabbitMQ's management API. Refusals are written into the audit log with the request.
    Management,
    /// The administration API: the same, and an administrator needs no permissions.
    Administration,
}

/// Somebody for whom something is done.
#[derive(Clone, Debug)]
pub struct Principal(Option<Asker>);

#[derive(Clone, Debug)]
struct Asker {
    user: Arc<User>,
    address: IpAddr,
    via: Via,
}

impl Principal {
    /// A user who has logged in, from this address.
    pub fn new(user: Arc<User>, address: IpAddr, via: Via) -> Self {
        Self(Some(Asker { user, address, via }))
    }

    /// The broker itself; and definitions, which an administrator or the configuration hands over as a whole.
    pub fn broker() -> Self {
        Self(None)
    }

    /// `None`: the broker itself.
    pub(super) fn name_and_address(&self) -> Option<(&str, IpAddr)> {
        self.0.as_ref().map(|asker| (asker.user.name(), asker.address))
    }
}

/// What is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A permission for the name.
    Permission(Permission),
    /// A permission for this routing key of a topic exchange.
    Key(Permission, String),
    /// Access control entries that allow it.
    Acl(AclOperation, AclResource),
    /// Tag `administrator`.
    Administrator,
}

/// Somebody may not do something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// What is missing.
    pub rule: Rule,
    /// What it is about: `queue`, `exchange`, `topic`, `group`.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// Where it is.
    pub vhost: String,
    /// Who asks.
    pub user: String,
}

/// In RabbitMQ's words, where it has some.
impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, kind, name, vhost, user } = self;
        match rule {
            Rule::Permission(permission) => write!(f, "{permission} access to {kind} '{name}'")?,
            Rule::Key(permission, key) => write!(f, "{permission} access to topic '{key}' in {kind} '{name}'")?,
            Rule::Acl(operation, AclResource::Group) => {
                return write!(f, "{} access to {kind} '{name}' refused for user '{user}'", operation.name());
            }
            Rule::Administrator => {
                return write!(f, "{kind} '{name}' takes tag administrator, which user '{user}' does not have");
            }
            Rule::Acl(operation, _) => write!(f, "{} access to {kind} '{name}'", operation.name())?,
        }
        write!(f, " in vhost '{vhost}' refused for user '{user}'")
    }
}

impl std::error::Error for Denial {}

/// Something that access control entries can be about, and what it is in a refusal.
pub(crate) struct AclQuestion<'a> {
    pub operation: AclOperation,
    pub resource: AclResource,
    /// As entries name it.
    pub entry: &'a str,
    pub kind: &'static str,
    pub name: &'a [u8],
}

impl Security {
    /// Whom to ask about; `None`: he may do everything.
    fn asker<'p>(&self, who: &'p Principal) -> Option<&'p Asker> {
        let asker = who.0.as_ref()?;
        let is_administrator = || self.user(asker.user.name()).is_some_and(|user| user.has_tag("administrator"));
        (asker.via != Via::Administration || !is_administrator()).then_some(asker)
    }

    /// By permissions, as of now.
    ///
    /// # Errors
    /// He has none for it.
    pub(crate) fn check_permission(
        &self,
        who: &Principal,
        vhost: &str,
        permission: Permission,
        resource: Resource<'_>,
    ) -> Result<(), Denial> {
        let Some(asker) = self.asker(who) else { return Ok(()) };
        let permissions = self.permissions(vhost, asker.user.name());
        if permissions.is_some_and(|permissions| permissions.of(permission).matches(resource.name())) {
            return Ok(());
        }
        Err(asker.denial(Rule::Permission(permission), resource.kind(), resource.name(), vhost))
    }

    /// By permissions for routing keys of a topic exchange, as of now.
    ///
    /// # Errors
    /// He has some for the exchange, and none for the key.
    pub(crate) fn check_key(
        &self,
        who: &Principal,
        vhost: &str,
        permission: Permission,
        exchange: &[u8],
        key: &[u8],
    ) -> Result<(), Denial> {
        let Some(asker) = self.asker(who) else { return Ok(()) };
        let rules = self.topic_permissions(vhost, asker.user.name());
        if key_pattern(&rules, permission, exchange).is_none_or(|pattern| pattern.matches(key)) {
            return Ok(());
        }
        let rule = Rule::Key(permission, String::from_utf8_lossy(key).into_owned());
        Err(asker.denial(rule, "exchange", exchange, vhost))
    }

    /// By access control entries, as of now, where they count.
    ///
    /// # Errors
    /// None allows it, or one denies it.
    pub(crate) fn check_acl(&self, who: &Principal, vhost: &str, question: AclQuestion<'_>) -> Result<(), Denial> {
        let Some(asker) = self.asker(who).filter(|_| self.acls_enforced()) else { return Ok(()) };
        let AclQuestion { operation, resource, entry, kind, name } = question;
        let subject = self.subject(Some(asker.user.name()), asker.address);
        if self.allows(&subject, operation, resource, entry) {
            return Ok(());
        }
        if asker.via == Via::Amqp {
            let what = format!("{}:{entry}", resource.name());
            let (from, who, act) = (asker.address, subject.principal(), operation.name());
            self.audit_refusal(AuditLine { who, from, through: "amqp", act, what: &what, outcome: "denied" });
        }
        Err(asker.denial(Rule::Acl(operation, resource), kind, name, vhost))
    }

    /// The same of all names that begin as the question's entry does, whether there is something of that name or not.
    ///
    /// # Errors
    /// None allows it for all of them, or one denies it for some.
    pub(crate) fn check_acl_of_prefix(
        &self,
        who: &Principal,
        vhost: &str,
        question: AclQuestion<'_>,
    ) -> Result<(), Denial> {
        let Some(asker) = self.asker(who).filter(|_| self.acls_enforced()) else { return Ok(()) };
        let AclQuestion { operation, resource, entry, kind, name } = question;
        if self.allows_prefix(&self.subject(Some(asker.user.name()), asker.address), operation, resource, entry) {
            return Ok(());
        }
        Err(asker.denial(Rule::Acl(operation, resource), kind, name, vhost))
    }

    /// Do access control entries allow it, where they count? A refusal is no event: something else may do.
    pub(crate) fn allows_quietly(
        &self,
        who: &Principal,
        operation: AclOperation,
        resource: AclResource,
        name: &str,
    ) -> bool {
        let Some(asker) = self.asker(who) else { return true };
        self.allows(&self.subject(Some(asker.user.name()), asker.address), operation, resource, name)
    }

    /// Does he have tag `administrator` now?
    ///
    /// # Errors
    /// He has not.
    pub(crate) fn check_administrator(&self, who: &Principal, kind: &'static str, name: &str) -> Result<(), Denial> {
        match self.asker(who) {
            Some(asker) if !self.user(asker.user.name()).is_some_and(|user| user.has_tag("administrator")) => {
                Err(asker.denial(Rule::Administrator, kind, name.as_bytes(), ""))
            }
            _ => Ok(()),
        }
    }
}

/// The expression that routing keys of an exchange have to match; `None`: all will do.
fn key_pattern<'r>(rules: &'r TopicPermissions, permission: Permission, exchange: &[u8]) -> Option<&'r Pattern> {
    std::str::from_utf8(exchange).ok().and_then(|name| rules.get(name))?.of(permission)
}

impl Asker {
    fn denial(&self, rule: Rule, kind: &'static str, name: &[u8], vhost: &str) -> Denial {
        let name = String::from_utf8_lossy(name).into_owned();
        Denial { rule, kind, name, vhost: vhost.to_owned(), user: self.user.name().to_owned() }
    }
}
