//! What somebody may do with topics that are queues: whatever the protocol, a queue is used by permissions in its virtual host. Access control
//! entries, where they count, are asked as well, and stand elsewhere (`acls.rs`).
//!
//! | operation | permission |
//! |---|---|
//! | `Read` | read |
//! | `Write` | write |
//! | `Describe`, `DescribeConfigs` | any |
//! | all others | configure |
//!
//! Nobody is asked for permissions while no user is defined, and neither are administrators and super users. Who does not say who he is has none, unless
//! `mainstem.anonymous.clients` is set.

use std::net::IpAddr;
use std::sync::Arc;

use super::Security;
use super::acl::{ANONYMOUS, AclOperation};
use super::answers::new_stamp;
use super::permissions::{Permission, Permissions};

/// Of one connection, as of a version of the catalog.
#[derive(Debug, Default)]
pub struct QueueRights {
    /// 0: nothing was asked yet.
    version: u64,
    stamp: u64,
    /// Permissions are not asked for.
    all: bool,
    /// By virtual host.
    known: Vec<(Box<str>, Option<Arc<Permissions>>)>,
}

/// Any of these will do.
fn permissions_for(operation: AclOperation) -> &'static [Permission] {
    match operation {
        AclOperation::Read => &[Permission::Read],
        AclOperation::Write => &[Permission::Write],
        AclOperation::Describe | AclOperation::DescribeConfigs => {
            &[Permission::Read, Permission::Write, Permission::Configure]
        }
        _ => &[Permission::Configure],
    }
}

impl QueueRights {
    /// Forgets what may not be so any more. Whoever asks is the same for the life of the connection.
    pub fn refresh(&mut self, security: &Security, user: Option<&str>, address: IpAddr) {
        let version = security.version();
        if self.version != version {
            let all = match user {
                None => security.trusts_anonymous(),
                Some(_) => !security.has_users() || security.subject(user, address).is_super(),
            };
            *self = Self { version, stamp: new_stamp(), all, known: Vec::new() };
        }
    }

    /// Are permissions asked for at all? As of the last [`QueueRights::refresh`].
    pub fn are_asked(&self) -> bool {
        !self.all
    }

    /// As long as this is the same, all answers are.
    pub fn stamp(&self) -> u64 {
        self.stamp
    }

    /// May he do it with a queue of a virtual host?
    pub fn may(
        &mut self,
        security: &Security,
        user: Option<&str>,
        operation: AclOperation,
        vhost: &str,
        queue: &[u8],
    ) -> bool {
        if self.all {
            return true;
        }
        let Some(user) = user else { return false };
        let at = self.known.iter().position(|(known, _)| **known == *vhost).unwrap_or_else(|| {
            self.known.push((vhost.into(), security.permissions(vhost, user)));
            self.known.len() - 1
        });
        let permissions = self.known[at].1.as_ref();
        permissions.is_some_and(|own| permissions_for(operation).iter().any(|one| own.of(*one).matches(queue)))
    }
}

impl Security {
    /// Is a user defined? Until then `guest` is the only one.
    pub fn has_users(&self) -> bool {
        !self.inner.read().users.is_empty()
    }

    /// May clients who do not say who they are do what nobody else is to decide? Where no user is defined, and where the settings say so.
    pub fn trusts_anonymous(&self) -> bool {
        self.anonymous_allowed || self.acl_rules.super_users.contains(ANONYMOUS) || !self.has_users()
    }

    /// Who may do what by the settings and by what is defined now, in a line for those who look after the node.
    pub fn in_words(&self) -> String {
        let users = self.inner.read().users.len();
        let entries = if self.acls_enforced() {
            "access control entries count (authorizer on)"
        } else {
            "access control entries do not count (authorizer off)"
        };
        let users = match users {
            0 => "no user is defined: guest, from this machine only, may do everything".to_owned(),
            1 => "1 user is defined".to_owned(),
            more => format!("{more} users are defined"),
        };
        let anonymous = match (self.acls_enforced(), self.trusts_anonymous()) {
            (true, _) => "Kafka clients without a login may do what entries allow User:ANONYMOUS",
            (false, true) => "Kafka clients without a login may do everything",
            (false, false) => "Kafka clients without a login use topics, and neither administer nor use queues",
        };
        let supers: Vec<&str> = self.acl_rules.super_users.iter().map(String::as_str).collect();
        let supers = if supers.is_empty() {
            "users with tag administrator".to_owned()
        } else {
            format!("users with tag administrator, {}", supers.join(", "))
        };
        format!("{entries}; {users}; {anonymous}; super users: {supers}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::security::{User, UserLimits};
    use crate::settings::Settings;

    fn security(settings: &[(&str, &str)]) -> Security {
        let mut all = Settings::default();
        settings.iter().for_each(|(name, value)| all.set(name, value).expect("a setting"));
        Security::new(&all)
    }

    fn add(security: &Security, name: &str, tags: &[&str], permissions: Option<(&str, [&str; 3])>) {
        let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
        security.change(|inner| {
            inner
                .users
                .insert(name.to_owned(), Arc::new(User::new(name.to_owned(), None, tags, UserLimits::default())));
            if let Some((vhost, [configure, write, read])) = permissions {
                inner.grant(vhost, name).permissions =
                    Some(Arc::new(Permissions::new(configure, write, read).expect("expressions")));
            }
        });
    }

    fn may(security: &Security, user: Option<&str>, operation: AclOperation, vhost: &str, queue: &str) -> bool {
        let mut rights = QueueRights::default();
        rights.refresh(security, user, "127.0.0.1".parse().expect("an address"));
        rights.may(security, user, operation, vhost, queue.as_bytes())
    }

    #[test]
    fn a_queue_is_used_by_permissions_in_its_virtual_host() {
        let security = security(&[]);
        add(&security, "bob", &[], Some(("shop", ["^c", "^w", "^r"])));
        add(&security, "root", &["administrator"], None);
        use AclOperation::{Alter, AlterConfigs, Delete, Describe, DescribeConfigs, Read, Write};
        let bob = |operation, queue| may(&security, Some("bob"), operation, "shop", queue);
        for (queue, allowed) in [
            ("c", &[Alter, AlterConfigs, Delete, Describe, DescribeConfigs][..]),
            ("w", &[Write, Describe, DescribeConfigs]),
            ("r", &[Read, Describe, DescribeConfigs]),
            ("x", &[]),
        ] {
            for operation in [Alter, AlterConfigs, Delete, Describe, DescribeConfigs, Read, Write] {
                assert_eq!(bob(operation, queue), allowed.contains(&operation), "{operation:?} {queue}");
            }
        }
        assert!(!may(&security, Some("bob"), Read, "/", "r") && !may(&security, Some("nobody"), Read, "shop", "r"));
        assert!(may(&security, Some("root"), Read, "shop", "x"));
    }

    #[test]
    fn with_users_who_says_no_name_has_no_permissions_unless_the_settings_say_so() {
        let here = |security: &Security| may(security, None, AclOperation::Read, "/", "q");
        for (settings, trusted) in [
            (&[][..], false),
            (&[("mainstem.anonymous.clients", "loopback")], true),
            (&[("mainstem.anonymous.clients", "anywhere")], true),
            (&[("super.users", "User:ANONYMOUS")], true),
        ] {
            let security = security(settings);
            assert!(
                here(&security)
                    && security.trusts_anonymous()
                    && may(&security, Some("of a certificate"), AclOperation::Read, "/", "q"),
                "no user is defined"
            );
            add(&security, "bob", &[], None);
            assert_eq!((here(&security), security.trusts_anonymous()), (trusted, trusted), "{settings:?}");
        }
    }

    #[test]
    fn answers_are_those_of_now() {
        let security = security(&[]);
        let (mut rights, here) = (QueueRights::default(), "127.0.0.1".parse().expect("an address"));
        rights.refresh(&security, None, here);
        let before = rights.stamp();
        assert!(!rights.are_asked());
        add(&security, "bob", &[], None);
        rights.refresh(&security, None, here);
        assert!(
            rights.are_asked()
                && rights.stamp() != before
                && !rights.may(&security, None, AclOperation::Read, "/", b"q")
        );
    }

    /// Kafka asks for each request what AMQP and HTTP ask where a thing is done.
    #[test]
    fn all_protocols_decide_alike() {
        use crate::security::{Principal, Resource, Via};
        let mut state = 7_u64;
        let mut next = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        const EXPRESSIONS: [&str; 6] = ["", ".*", "^a", "b$", "^(a|ab)$", "^.b"];
        const NAMES: [&str; 5] = ["a", "ab", "b", "abb", "c"];
        const VHOSTS: [&str; 2] = ["/", "shop"];
        const USERS: [&str; 3] = ["bob", "eve", "root"];
        let here = "127.0.0.1".parse().expect("an address");
        let mut allowed = 0;
        for round in 0..1_000 {
            let security = security(&[]);
            for user in USERS {
                let tags = if user == "root" { &["administrator"][..] } else { &[] };
                let own = [(); 3].map(|()| EXPRESSIONS[next(EXPRESSIONS.len())]);
                add(&security, user, tags, (next(4) > 0).then_some((VHOSTS[next(2)], own)));
            }
            for _ in 0..100 {
                let (user, vhost, name) = (USERS[next(3)], VHOSTS[next(2)], NAMES[next(NAMES.len())]);
                let (operation, permission) = [
                    (AclOperation::Read, Permission::Read),
                    (AclOperation::Write, Permission::Write),
                    (AclOperation::Delete, Permission::Configure),
                ][next(3)];
                let by_kafka = may(&security, Some(user), operation, vhost, name);
                let [by_amqp, by_management, by_administration] = [Via::Amqp, Via::Management, Via::Administration]
                    .map(|via| {
                        let who = Principal::new(security.user(user).expect("he is there"), here, via);
                        security.check_permission(&who, vhost, permission, Resource::Queue(name.as_bytes())).is_ok()
                    });
                let what = format!("round {round}: {user} {operation:?} {name} in {vhost}");
                assert_eq!((by_amqp, by_kafka), (by_management, by_administration), "{what}");
                assert_eq!(by_kafka, by_amqp || user == "root", "{what}");
                allowed += usize::from(by_amqp);
            }
        }
        assert!((10_000..90_000).contains(&allowed), "both come: {allowed}");
    }

    #[test]
    fn a_line_says_who_may_do_what() {
        let security = security(&[("super.users", "User:alice")]);
        let words = security.in_words();
        assert!(
            words.contains("authorizer off")
                && words.contains("no user is defined")
                && words.contains("without a login may do everything")
                && words.ends_with("User:alice"),
            "{words}"
        );
        add(&security, "bob", &[], None);
        let words = security.in_words();
        assert!(words.contains("1 user is defined") && words.contains("neither administer nor use queues"), "{words}");
    }
}
