//! Which names patterns reach, and what policies take where entries count.

use routing::Arguments;
use serde_json::json;

use super::*;
use crate::CreateTopic;
use crate::queues::testing::{Node, name};
use crate::queues::{Caller, ParameterError, PolicyScope, PolicyWish, QueueDeclaration};
use crate::security::{Acl, AclPattern, AclPermission, PasswordWish, UserWish, Via, WILDCARD};
use crate::settings::Settings;

#[test]
fn the_beginning_of_a_pattern_says_what_it_reaches() {
    let prefix = |text: &str| Reach::Prefix(text.to_owned());
    for (pattern, expected) in [
        ("^orders$", Reach::Name("orders".to_owned())),
        (r"^a\.b$", Reach::Name("a.b".to_owned())),
        ("^orders", prefix("orders")),
        (r"^a\.", prefix("a.")),
        ("^a.", prefix("a")),
        ("^orders.*$", prefix("orders")),
        ("^ab*", prefix("a")),
        ("^ab?$", prefix("a")),
        ("^ab{0,2}", prefix("a")),
        ("^ab+", prefix("ab")),
        ("^a[bc]", prefix("a")),
        ("^a(?=b)", prefix("a")),
        (r"^a\d", prefix("a")),
        ("^a|b", prefix("")),
        ("^(a|b)", prefix("")),
        ("(?i)^a", prefix("")),
        ("orders", prefix("")),
        ("", prefix("")),
        ("^", prefix("")),
    ] {
        assert_eq!(Reach::of(pattern), expected, "{pattern}");
    }
}

#[test]
fn what_is_escaped_is_read_as_the_matcher_does() {
    for letter in (0..0x80).map(char::from).filter(char::is_ascii_punctuation) {
        let pattern = format!(r"^\{letter}secret$");
        let matches =
            |name: &str| fancy_regex::Regex::new(&pattern).is_ok_and(|regex| regex.is_match(name).unwrap_or(true));
        match Reach::of(&pattern) {
            Reach::Name(name) => assert!(matches(&name) && !matches("secret"), "{pattern} is not {name}"),
            Reach::Prefix(prefix) => assert_eq!(prefix, "", "{pattern}"),
        }
    }
    assert_eq!(Reach::of(r"^\<secret$"), Reach::Prefix(String::new()));
}

fn with_entries() -> Node {
    let mut settings = Settings::default();
    settings
        .set("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer")
        .expect("a setting");
    Node::open_with(1, settings)
}

fn bob(node: &Node) -> Principal {
    let wish = UserWish { name: "bob".to_owned(), password: PasswordWish::Remove, tags: None, limits: None };
    node.broker.put_user(wish).expect("added");
    Principal::new(
        node.broker.security().user("bob").expect("he is there"),
        "127.0.0.1".parse().expect("an address"),
        Via::Management,
    )
}

fn entry(node: &Node, permission: AclPermission, operation: AclOperation, name: &str, pattern: AclPattern) {
    let (principal, host) = ("User:bob".to_owned(), WILDCARD.to_owned());
    let acl =
        Acl { resource: AclResource::Topic, name: name.to_owned(), pattern, principal, host, operation, permission };
    node.broker.create_acls(vec![acl]).remove(0).expect("added");
}

/// What is missing for a policy.
fn put(node: &Node, who: &Principal, pattern: &str, definition: &Value) -> Option<(AclOperation, String)> {
    let wish = PolicyWish { pattern: pattern.into(), definition: definition.clone(), priority: None, apply_to: None };
    match node.broker.put_policy_for(who, &node.vhost(), PolicyScope::User, "p", &wish) {
        Ok(()) => None,
        Err(ParameterError::Denied(denial)) => match denial.rule {
            crate::security::Rule::Acl(operation, _) => Some((operation, denial.name)),
            other => panic!("{other:?}"),
        },
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_policy_takes_what_declaring_what_it_matches_takes() {
    use AclOperation::{Alter, Create, Read, Write};
    let node = with_entries();
    let who = bob(&node);
    let (short, passing) = (json!({"max-length": 1}), json!({"message-ttl": 0, "dead-letter-exchange": "own-x"}));
    let missing = |operation, name: &str| Some((operation, name.to_owned()));
    assert_eq!(put(&node, &who, "^secret$", &short), missing(Create, "p"));
    for operation in [Create, Read] {
        entry(&node, AclPermission::Allow, operation, "own", AclPattern::Prefixed);
    }
    assert_eq!(put(&node, &who, "^own", &short), None);
    assert_eq!(
        (put(&node, &who, "own", &short), put(&node, &who, "^ow", &short)),
        (missing(Create, "p"), missing(Create, "p")),
        "others begin so, too"
    );
    assert_eq!(put(&node, &who, "^own-q$", &passing), missing(Write, "own-x"));
    entry(&node, AclPermission::Allow, Write, "own-x", AclPattern::Literal);
    assert_eq!(put(&node, &who, "^own", &passing), None);
    // Of all names but one, by an entry that denies.
    entry(&node, AclPermission::Allow, Create, "*", AclPattern::Literal);
    assert_eq!(put(&node, &who, "", &short), None);
    assert_eq!(put(&node, &who, "", &passing), missing(Read, "p"));
    entry(&node, AclPermission::Deny, Create, "secret", AclPattern::Literal);
    assert_eq!(put(&node, &who, "", &short), missing(Create, "p"));
    assert!(node.broker.delete_policy_for(&who, &node.vhost(), PolicyScope::User, "p").is_err(), "it is for all");
    // A topic to which a queue is attached has its writers.
    let topic =
        CreateTopic { name: "own-topic".to_owned(), partitions: 1, replication: 1, overrides: Default::default() };
    assert!(node.broker.create_topics(vec![topic]).remove(0).is_ok());
    let wish = QueueDeclaration {
        name: name("own-topic"),
        durable: true,
        owner: None,
        auto_delete: false,
        arguments: Arguments::default(),
    };
    node.broker.declare_queue(&node.vhost(), wish, &Caller::broker(Caller::NO_CONNECTION)).expect("declared");
    node.broker.delete_policy(&node.vhost(), PolicyScope::User, "p").expect("deleted");
    assert_eq!(put(&node, &who, "^own", &short), missing(Alter, "own-topic"));
    entry(&node, AclPermission::Allow, Alter, "own-topic", AclPattern::Literal);
    assert_eq!(put(&node, &who, "^own", &short), None);
    node.close();
}
