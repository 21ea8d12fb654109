//! Decisions by entries: what Kafka's rules say in words, and the tables against a list that is gone through whole.

use super::*;
use crate::security::acl::{AclPatternFilter, CLUSTER};
use crate::security::user::{GUEST, User, UserLimits};
use AclOperation::{All, Alter, AlterConfigs, Create, Delete, Describe, DescribeConfigs, Read, Write};
use AclPattern::{Literal, Prefixed};
use AclPermission::{Allow, Deny};
use AclResource::{Cluster, Group, Topic};

const HERE: &str = "127.0.0.1";

fn security(settings: &[(&str, &str)]) -> Security {
    let mut all = Settings::default();
    all.set("authorizer.class.name", STANDARD_AUTHORIZER).expect("a setting");
    settings.iter().for_each(|(name, value)| all.set(name, value).expect("a setting"));
    Security::new(&all)
}

fn acl(permission: AclPermission, principal: &str, operation: AclOperation, name: &str, pattern: AclPattern) -> Acl {
    let (principal, host) = (format!("User:{principal}"), WILDCARD.to_owned());
    Acl { resource: Topic, name: name.to_owned(), pattern, principal, host, operation, permission }
}

fn add(security: &Security, acl: Acl) {
    security.change(|inner| inner.acls.insert(acl));
}

fn subject(security: &Security, name: &str, host: &str) -> Subject {
    security.subject((name != "ANONYMOUS").then_some(name), host.parse().expect("an address"))
}

fn may(security: &Security, name: &str, operation: AclOperation, topic: &str) -> bool {
    security.allows(&subject(security, name, HERE), operation, Topic, topic)
}

#[test]
fn what_is_allowed_brings_describe_with_it_and_nothing_else() {
    let security = security(&[]);
    let implied = |given: AclOperation| -> Vec<AclOperation> {
        add(&security, acl(Allow, "bob", given, "t", Literal));
        let all =
            AclOperation::on(Topic).iter().copied().filter(|wanted| may(&security, "bob", *wanted, "t")).collect();
        security.change(|inner| inner.acls = Acls::default());
        all
    };
    assert_eq!(implied(Read), [Read, Describe]);
    assert_eq!(implied(Write), [Write, Describe]);
    assert_eq!(implied(Delete), [Describe, Delete]);
    assert_eq!(implied(Alter), [Describe, Alter]);
    assert_eq!(implied(AlterConfigs), [DescribeConfigs, AlterConfigs]);
    assert_eq!(implied(Create), [Create]);
    assert_eq!(implied(All), AclOperation::on(Topic));
}

#[test]
fn what_denies_counts_before_what_allows_and_for_its_operation_only() {
    let security = security(&[]);
    add(&security, acl(Allow, "bob", Read, "", Prefixed));
    add(&security, acl(Allow, "bob", All, "*", Literal));
    assert!(may(&security, "bob", Read, "orders"));
    add(&security, acl(Deny, "bob", Read, "ord", Prefixed));
    assert!(
        !may(&security, "bob", Read, "orders")
            && may(&security, "bob", Describe, "orders")
            && may(&security, "bob", Write, "orders")
    );
    assert!(may(&security, "bob", Read, "or"));
    add(&security, acl(Deny, "*", All, "orders", Literal));
    assert!(!may(&security, "bob", Describe, "orders") && may(&security, "bob", Describe, "orders2"));
}

#[test]
fn principals_hosts_and_types_have_to_fit() {
    let security = security(&[("super.users", "User:root; User:ANONYMOUS")]);
    add(&security, Acl { host: "10.0.0.1".to_owned(), ..acl(Allow, "bob", Read, "t", Literal) });
    assert!(!may(&security, "bob", Read, "t"));
    let elsewhere = subject(&security, "bob", "::ffff:10.0.0.1");
    assert!(security.allows(&elsewhere, Read, Topic, "t") && !security.allows(&elsewhere, Read, Group, "t"));
    assert!(!security.allows(&subject(&security, "eve", "10.0.0.1"), Read, Topic, "t"));
    // As Java writes addresses, and so tools of Kafka.
    for (host, topic) in [("2001:db8:0:0:0:0:0:7", "u"), ("2001:DB8::7", "v"), ("2001:db8::7", "w")] {
        add(&security, Acl { host: host.to_owned(), ..acl(Allow, "bob", Read, topic, Literal) });
        add(&security, Acl { host: host.to_owned(), ..acl(Deny, "eve", Read, topic, Literal) });
        add(&security, acl(Allow, "eve", Read, topic, Literal));
        let allows = |name, from| security.allows(&subject(&security, name, from), Read, Topic, topic);
        assert!(allows("bob", "2001:db8::7") && !allows("bob", "2001:db8::8"), "{host}");
        assert!(!allows("eve", "2001:db8::7") && allows("eve", "2001:db8::8"), "{host}");
    }
    assert!(may(&security, "root", AlterConfigs, "t") && may(&security, "ANONYMOUS", Read, "u"));
    add(&security, Acl { resource: Cluster, name: CLUSTER.to_owned(), ..acl(Allow, "*", Alter, "", Literal) });
    assert!(security.allows(&subject(&security, "eve", HERE), Describe, Cluster, CLUSTER));
    let administrator = User::new("ann".to_owned(), None, vec!["administrator".to_owned()], UserLimits::default());
    security.change(|inner| drop(inner.users.insert("ann".to_owned(), Arc::new(administrator))));
    assert!(may(&security, "ann", Write, "u") && subject(&security, "ann", HERE).is_super());
    assert!(!subject(&security, GUEST, HERE).is_super(), "he is there no more");
}

#[test]
fn nothing_said_is_what_the_setting_says_and_something_said_of_others_is_a_no() {
    for (open, expected) in [("true", true), ("false", false)] {
        let security = security(&[("allow.everyone.if.no.acl.found", open)]);
        add(&security, acl(Allow, "ann", Read, "t", Literal));
        assert_eq!(may(&security, "bob", Read, "u"), expected);
        assert!(!may(&security, "bob", Read, "t"));
        let bob = subject(&security, "bob", HERE);
        assert_eq!(security.allows_some(&bob, Write, Topic), expected);
    }
    let mut settings = Settings::default();
    settings.set("super.users", "User:root").expect("a setting");
    let off = Security::new(&settings);
    add(&off, acl(Deny, "*", All, "*", Literal));
    assert!(!off.acls_enforced() && may(&off, "bob", Delete, "t"));
}

#[test]
fn something_of_a_type_may_be_written_when_not_all_of_it_is_denied() {
    let some = |entries: &[Acl]| {
        let security = security(&[]);
        entries.iter().for_each(|one| add(&security, one.clone()));
        security.allows_some(&subject(&security, "bob", HERE), Write, Topic)
    };
    assert!(!some(&[]) && !some(&[acl(Allow, "bob", Read, "t", Literal)]));
    let (one, many) = (acl(Allow, "bob", Write, "ab", Literal), acl(Allow, "bob", All, "ab", Prefixed));
    assert!(
        some(std::slice::from_ref(&one))
            && some(std::slice::from_ref(&many))
            && some(&[acl(Allow, "*", Write, "*", Literal)])
    );
    let deny = |name: &str, pattern| acl(Deny, "bob", Write, name, pattern);
    assert!(!some(&[one.clone(), deny("ab", Literal)]) && !some(&[one.clone(), deny("a", Prefixed)]));
    assert!(some(&[one, deny("b", Prefixed)]) && some(&[many.clone(), deny("ab", Literal)]));
    assert!(!some(&[many.clone(), deny("ab", Prefixed)]) && !some(&[many, deny("*", Literal)]));
}

/// As the rules say it, without a table.
fn plain(all: &[Acl], who: &Subject, operation: AclOperation, resource: AclResource, name: &str) -> bool {
    let about: Vec<&Acl> = all.iter().filter(|acl| acl.resource == resource && acl.covers(name)).collect();
    let own = || about.iter().filter(|acl| is_of(acl, who));
    let denied = own().any(|acl| acl.permission == Deny && denies(acl, operation));
    !denied && own().any(|acl| acl.permission == Allow && acl.operation.implies(operation))
}

#[test]
fn the_tables_decide_as_a_list_does() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = |most: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % most as u64) as usize
    };
    let (names, users) = (["a", "ab", "abc", "b", "*", "größe", "gr"], ["bob", "ann", "*"]);
    for _ in 0..200 {
        let security = security(&[]);
        let mut list: Vec<Acl> = Vec::new();
        for _ in 0..below(30) {
            let permission = if below(3) == 0 { Deny } else { Allow };
            let pattern = if below(2) == 0 { Literal } else { Prefixed };
            let made = acl(permission, users[below(3)], AclOperation::ALL[below(14)], names[below(7)], pattern);
            let made = Acl {
                resource: [Topic, Group][below(2)],
                host: [HERE, WILDCARD, "10.0.0.1"][below(3)].to_owned(),
                ..made
            };
            if below(4) == 0 {
                list.retain(|one| *one != made);
                security.change(|inner| inner.acls.remove_all(&BTreeSet::from([&Arc::new(made)])));
            } else if !list.contains(&made) {
                list.push(made.clone());
                add(&security, made);
            }
        }
        if let Some(gone) = (!list.is_empty()).then(|| list.remove(below(list.len()))) {
            security.change(|inner| inner.acls.remove_all(&BTreeSet::from([&Arc::new(gone)])));
        }
        assert_eq!(security.acls(&AclFilter::default()).len(), list.len());
        for name in ["a", "abcd", "b", "größer", "gr", "g", "*", ""] {
            for operation in AclOperation::ALL.iter().copied() {
                for (who, resource) in [("bob", Topic), ("eve", Topic), ("ann", Group)] {
                    let who = subject(&security, who, HERE);
                    let expected = plain(&list, &who, operation, resource, name);
                    let found = security.allows(&who, operation, resource, name);
                    assert_eq!(found, expected, "{operation:?} {resource:?} {name:?}: {list:#?}");
                }
            }
        }
    }
}

#[test]
fn filters_pick_by_all_that_they_name() {
    let security = security(&[]);
    add(&security, acl(Allow, "bob", Read, "ab", Prefixed));
    add(&security, acl(Allow, "bob", Write, "abc", Literal));
    add(&security, acl(Deny, "*", Read, "*", Literal));
    let count = |filter: AclFilter| security.acls(&filter).len();
    let named = |name: &str, pattern| AclFilter { name: Some(name.to_owned()), pattern, ..AclFilter::default() };
    assert_eq!(count(AclFilter::default()), 3);
    assert_eq!(count(named("abc", AclPatternFilter::Match)), 3);
    assert_eq!(count(named("ab", AclPatternFilter::Match)), 2);
    assert_eq!(count(named("abc", AclPatternFilter::Any)), 1);
    assert_eq!(count(named("abc", AclPatternFilter::Is(Prefixed))), 0);
    assert_eq!(count(AclFilter { pattern: AclPatternFilter::Is(Literal), ..AclFilter::default() }), 2);
    assert_eq!(
        count(AclFilter { principal: Some("User:bob".to_owned()), operation: Some(Read), ..AclFilter::default() }),
        1
    );
    let everywhere = Some(WILDCARD.to_owned());
    assert_eq!(
        count(AclFilter { permission: Some(Deny), host: everywhere, resource: Some(Topic), ..AclFilter::default() }),
        1
    );
    assert_eq!(count(AclFilter { resource: Some(Group), ..AclFilter::default() }), 0);
}
