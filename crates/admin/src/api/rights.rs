//! What who asks may see and do: by RabbitMQ's permissions and, where they count, by access control entries (`docs/adr/0021-acls.md`), which
//! ask for the operation that Kafka's API of the same purpose asks for. A topic that is a queue belongs to the queue's virtual host; other topics,
//! and groups, count as things of virtual host `/`; a queue and an exchange are topics for entries. The group that all queues share is the
//! administrators'. Administrators may do everything, and tag `monitoring` sees everything but records.

use broker::{AclOperation, AclResource, Denial, Permission, Rule};
use hashbrown::HashMap;

use super::answer::{Answer, Refusal};
use super::call::Call;
use super::route::Access;
use crate::management::authority::Identity;

impl Call<'_> {
    /// May who asks do this with a queue or an exchange? Entries ask for what is usual with the permission.
    ///
    /// # Errors
    /// 403.
    pub fn check_permission(&self, vhost: &str, permission: Permission, name: &[u8]) -> Result<(), Refusal> {
        let operation = match permission {
            Permission::Configure => AclOperation::Create,
            Permission::Write => AclOperation::Write,
            Permission::Read => AclOperation::Read,
        };
        self.check_as(vhost, permission, operation, name)
    }

    /// The same by permissions alone.
    ///
    /// # Errors
    /// 403.
    pub fn check_only_permission(&self, vhost: &str, permission: Permission, name: &[u8]) -> Result<(), Refusal> {
        let permitted = self.caller.who.check_only_permission(vhost, permission, name);
        permitted.map_err(|_| self.not_permitted(vhost, permission, name))
    }

    /// The same where entries ask for another operation.
    ///
    /// # Errors
    /// 403.
    pub fn check_as(
        &self,
        vhost: &str,
        permission: Permission,
        operation: AclOperation,
        name: &[u8],
    ) -> Result<(), Refusal> {
        let who = &self.caller.who;
        if who.is_administrator() {
            return Ok(());
        }
        self.check_only_permission(vhost, permission, name)?;
        who.check_acl(vhost, operation, name)
            .map_err(|_| self.not_granted(operation, AclResource::Topic, &String::from_utf8_lossy(name)))
    }

    /// May who asks do this with a topic of this name?
    ///
    /// # Errors
    /// 403.
    pub fn check_topic(&self, permission: Permission, operation: AclOperation, name: &str) -> Result<(), Refusal> {
        self.broker().check_topic(&self.principal(), permission, operation, name).map_err(|denial| denied(&denial))
    }

    /// May who asks delete records of a topic? As by Kafka's DeleteRecords entries for the cluster do not count, and of a queue it takes configure.
    ///
    /// # Errors
    /// 403.
    pub fn check_truncation(&self, name: &str) -> Result<(), Refusal> {
        let who = &self.caller.who;
        if who.is_administrator() {
            return Ok(());
        }
        let (vhost, thing) = self.broker().thing_of_topic(name);
        self.check_only_permission(&vhost, Permission::Configure, &thing)?;
        let (operation, resource) = (AclOperation::Delete, AclResource::Topic);
        who.check_resource(operation, resource, name).map_err(|_| self.not_granted(operation, resource, name))
    }

    /// May who asks do this with a group of this name?
    ///
    /// # Errors
    /// 403.
    pub fn check_group(&self, permission: Permission, operation: AclOperation, name: &str) -> Result<(), Refusal> {
        self.broker().check_group(&self.principal(), permission, operation, name).map_err(|denial| denied(&denial))
    }

    fn not_permitted(&self, vhost: &str, permission: Permission, name: &[u8]) -> Refusal {
        not_permitted(self.caller.who.name(), vhost, permission, &String::from_utf8_lossy(name))
    }

    /// 403: entries do not allow it.
    pub fn not_granted(&self, operation: AclOperation, resource: AclResource, name: &str) -> Refusal {
        not_granted(self.caller.who.name(), operation, resource, name)
    }

    /// May who asks see a topic of this name?
    pub fn sees_topic(&self, name: &str) -> bool {
        self.caller.who.sees_topic(name)
    }

    /// May who asks see a group of this name?
    pub fn sees_group(&self, name: &str) -> bool {
        self.caller.who.sees_group(name)
    }

    /// May who asks see the settings of a topic or a group that he sees?
    pub fn sees_settings(&self, resource: AclResource, name: &str) -> bool {
        let who = &self.caller.who;
        who.monitors() || who.check_resource(AclOperation::DescribeConfigs, resource, name).is_ok()
    }
}

fn not_permitted(user: &str, vhost: &str, permission: Permission, name: &str) -> Refusal {
    Answer::not_allowed(format!(
        "user {user:?} has no {permission:?} permission for {name:?} in virtual host {vhost:?}"
    ))
}

fn not_granted(user: &str, operation: AclOperation, resource: AclResource, name: &str) -> Refusal {
    let (operation, resource) = (operation.name(), resource.name());
    Answer::not_allowed(format!(
        "access control entries do not allow user {user:?} operation {operation} on {resource} {name:?}"
    ))
}

/// 403: the controller found that something is missing.
pub(crate) fn denied(denial: &Denial) -> Refusal {
    let Denial { rule, name, vhost, user, .. } = denial;
    match rule {
        Rule::Permission(permission) => not_permitted(user, vhost, *permission, name),
        Rule::Acl(operation, resource) => not_granted(user, *operation, *resource, name),
        Rule::Administrator => Answer::not_allowed(format!(
            "group {name:?} belongs to the queues of all virtual hosts: it takes tag administrator"
        )),
        Rule::Key(..) => Answer::not_allowed(denial.to_string()),
    }
}

/// Has who asks the tag that a route takes?
///
/// # Errors
/// 403.
pub(crate) fn check_access(who: &Identity, access: Access) -> Result<(), Refusal> {
    let needed = match access {
        Access::Open | Access::LoggedIn => return Ok(()),
        Access::Monitoring if who.monitors() => return Ok(()),
        Access::Monitoring => "monitoring or administrator",
        Access::Administrator if who.is_administrator() => return Ok(()),
        Access::Administrator => "administrator",
    };
    Err(Answer::not_allowed(format!("user {:?} has not tag {needed}", who.name())))
}

/// Which topics who asks may see; each is looked at once.
pub(crate) struct Sight<'c> {
    call: &'c Call<'c>,
    known: HashMap<String, bool>,
}

impl<'c> Sight<'c> {
    pub fn new(call: &'c Call<'c>) -> Self {
        Self { call, known: HashMap::new() }
    }

    /// This one?
    pub fn of(&mut self, topic: &str) -> bool {
        if self.call.caller.who.monitors() {
            return true;
        }
        if let Some(known) = self.known.get(topic) {
            return *known;
        }
        let sees = self.call.sees_topic(topic);
        self.known.insert(topic.to_owned(), sees);
        sees
    }
}
