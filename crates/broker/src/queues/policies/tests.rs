//! Which policy counts, what it comes to with the arguments of a queue, and what is refused.

use super::*;
use routing::Argument;

std::thread_local! {
    static QUESTIONS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    static COSTS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// A pattern is asked for a name.
pub(in crate::queues) fn note_question(cost: usize) {
    QUESTIONS.set(QUESTIONS.get() + 1);
    COSTS.set(COSTS.get() + cost);
}

/// What patterns cost that were asked on this thread since this was called last.
pub(in crate::queues) fn costs() -> usize {
    COSTS.replace(0)
}

/// How many patterns were asked on this thread since this was called last.
pub(in crate::queues) fn questions() -> usize {
    QUESTIONS.replace(0)
}

pub(in crate::queues) fn wish(pattern: &str, definition: Value, priority: i64, apply_to: &str) -> PolicyWish {
    PolicyWish { pattern: json!(pattern), definition, priority: Some(json!(priority)), apply_to: Some(json!(apply_to)) }
}

fn put(policies: &Policies, scope: PolicyScope, name: &str, wish: &PolicyWish) {
    policies.insert(scope, Arc::new(Policy::new(name, wish, scope).expect("a policy")));
}

fn arguments(fields: &[(&str, OwnedValue)]) -> Arguments {
    let field =
        |(name, value): &(&str, OwnedValue)| Argument { name: name.as_bytes().into(), tag: b'I', value: value.clone() };
    Arguments::new(fields.iter().map(field).collect())
}

fn text(text: &str) -> OwnedValue {
    OwnedValue::Bytes(text.as_bytes().into())
}

fn joined(fields: &[(&str, OwnedValue)], policy: Value, operator: Option<Value>) -> QueueArguments {
    let policies = Policies::default();
    put(&policies, PolicyScope::User, "p", &wish("", policy, 0, "all"));
    if let Some(operator) = operator {
        put(&policies, PolicyScope::Operator, "o", &wish("", operator, 0, "all"));
    }
    let declared = arguments(fields);
    let own = QueueArguments::new(&declared).expect("taken");
    policies.in_force(b"q", &declared, own).understood.clone()
}

const QUORUM: &str = "quorum";

#[test]
fn the_highest_priority_that_matches_counts_alone() {
    let policies = Policies::default();
    let names = |queue: &str, kind| {
        let matched = policies.matched(Subject::Queue(queue.as_bytes(), kind));
        (matched.policy.map(|one| one.name.clone()), matched.operator.map(|one| one.name.clone()))
    };
    assert_eq!(names("a", "classic"), (None, None));
    put(&policies, PolicyScope::User, "all", &wish(".*", json!({"max-length": 1}), 0, "all"));
    put(&policies, PolicyScope::User, "jobs", &wish("^jobs", json!({"max-length": 2}), 5, "queues"));
    put(&policies, PolicyScope::User, "quorum", &wish("^jobs", json!({"max-length": 2}), 7, "quorum_queues"));
    put(&policies, PolicyScope::User, "limits", &wish("^jobs", json!({"delivery-limit": 2}), 9, "queues"));
    put(
        &policies,
        PolicyScope::User,
        "others",
        &wish("^(?!amq\\.|jobs)", json!({"alternate-exchange": "x"}), 9, "exchanges"),
    );
    put(&policies, PolicyScope::Operator, "top", &wish("s$", json!({"max-length": 3}), 0, "queues"));
    let some = |name: &str| Some(name.to_owned());
    assert_eq!(names("a", "classic"), (some("all"), None));
    assert_eq!(names("jobs", "classic"), (some("jobs"), some("top")));
    assert_eq!(names("jobs.1", QUORUM), (some("limits"), None));
    let exchange = |name: &str| policies.of_exchange(name.as_bytes()).policy.map(|one| one.name.clone());
    assert_eq!(
        (exchange("jobs"), exchange("logs"), exchange("amq.direct")),
        (some("all"), some("others"), some("all"))
    );
    assert_eq!(policies.alternate(b"logs"), Some(Name::new(b"x").expect("short")));
    policies.remove(PolicyScope::User, "limits");
    assert_eq!(names("jobs.1", QUORUM), (some("quorum"), None));
    put(&policies, PolicyScope::User, "quorum", &wish("^jobs", json!({"max-length": 2}), -1, "quorum_queues"));
    assert_eq!(names("jobs.1", QUORUM), (some("jobs"), None), "set again with another priority");
}

#[test]
fn numbers_are_the_lesser_and_names_those_of_the_arguments() {
    let declared = [
        ("x-message-ttl", OwnedValue::Int(50)),
        ("x-max-length", OwnedValue::Int(5)),
        ("x-dead-letter-exchange", text("mine")),
        ("x-overflow", text("reject-publish")),
    ];
    let policy = json!({
        "message-ttl": 20, "max-length": 9, "expires": 100, "dead-letter-exchange": "theirs", "dead-letter-routing-key": "key", "overflow": "drop-head"
    });
    let name = |text: &str| Name::new(text.as_bytes()).ok();
    let classic = joined(&declared, policy.clone(), None);
    assert_eq!((classic.ttl, classic.length_max, classic.expires), (Some(20), Some(5), Some(100)));
    assert_eq!((classic.dead_letter_exchange.clone(), classic.dead_letter_key.clone()), (name("mine"), name("key")));
    assert_eq!(classic.overflow, Overflow::RejectPublish, "of the arguments in a classic queue");
    let kind = [("x-queue-type", text(QUORUM))];
    let quorum = joined(&[&declared[..], &kind].concat(), policy, Some(json!({"message-ttl": 10, "max-length": 2})));
    assert_eq!((quorum.ttl, quorum.length_max), (Some(10), Some(2)));
    assert_eq!(quorum.overflow, Overflow::DropHead, "of the policy in a quorum queue");
}

#[test]
fn limits_of_deliveries_and_letters_that_wait() {
    let quorum = |limit: Option<i64>, policy: Value| {
        let mut fields = vec![("x-queue-type", text(QUORUM))];
        fields.extend(limit.map(|limit| ("x-delivery-limit", OwnedValue::Int(limit))));
        joined(&fields, policy, None)
    };
    let limit = |own, policy: i64| quorum(own, json!({"delivery-limit": policy})).delivery_limit;
    assert_eq!([limit(None, 5), limit(Some(3), 5), limit(Some(9), 5)], [Some(5), Some(3), Some(5)]);
    assert_eq!([limit(None, -1), limit(Some(-1), 5), limit(Some(3), -1)], [None, Some(5), Some(3)]);
    assert_eq!(quorum(None, json!({"max-length": 5})).delivery_limit, Some(20));
    let waits =
        json!({"dead-letter-strategy": "at-least-once", "dead-letter-exchange": "x", "overflow": "reject-publish"});
    assert!(quorum(None, waits).letters_wait);
    let drops =
        json!({"dead-letter-strategy": "at-least-once", "dead-letter-exchange": "x", "overflow": "reject-publish-dlx"});
    let drops = quorum(None, drops);
    assert_eq!((drops.letters_wait, drops.overflow), (false, Overflow::DropHead));
    assert_eq!(joined(&[], json!({"max-length": 5}), None).delivery_limit, None, "a classic queue has none");
}

#[test]
fn all_that_is_wrong_is_told_the_definition_first() {
    let wish = PolicyWish {
        pattern: json!("(a"),
        definition: json!({"max-length": -5}),
        priority: Some(json!("high")),
        apply_to: Some(json!("topics")),
    };
    let error = Policy::new("p", &wish, PolicyScope::User).expect_err("refused").to_string();
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(lines[..3], ["Validation failed", "", "-5 is not a valid maximum length"]);
    assert_eq!(
        lines[3],
        "apply-to 'topics' unrecognised; should be one of: 'queues', 'classic_queues',  'quorum_queues', 'streams', 'exchanges', or 'all'"
    );
    assert!(lines[4].starts_with("pattern should be regular expression but is invalid: "), "{error}");
    assert_eq!(lines[5], r#"priority should be a number, actually was <<"high">>"#);
    assert!(error.ends_with('\n'));
    for pattern in ["a".repeat(1025), "(a{1000}){1000}{1000}".to_owned()] {
        let wish = PolicyWish {
            pattern: json!(pattern),
            definition: json!({"max-length": 5}),
            priority: None,
            apply_to: None,
        };
        assert!(Policy::new("p", &wish, PolicyScope::User).is_err());
    }
}

#[test]
fn a_pattern_that_goes_astray_ends() {
    let policies = Policies::default();
    put(&policies, PolicyScope::User, "slow", &wish("(?=(a+)+$)(a|aa)+b\\1", json!({"max-length": 5}), 0, "all"));
    let start = std::time::Instant::now();
    assert!(policies.matched(Subject::Queue(&[b'a'; 250], "classic")).policy.is_none());
    assert!(start.elapsed().as_secs() < 60);
}

#[test]
fn what_is_stored_is_read_again() {
    let policy =
        Policy::new("p", &wish("^a", json!({"max-length": 5}), 3, "streams"), PolicyScope::User).expect("a policy");
    let again = Policy::restored("p", &policy.value()).expect("readable");
    assert_eq!(again.value(), policy.value());
    assert!(Policy::restored("p", &json!({"pattern": "^a"})).is_none());
}

#[test]
fn queues_that_have_the_same_in_force_share_it() {
    let policies = Policies::default();
    let one = |name: &str| {
        policies.in_force(
            name.as_bytes(),
            &Arguments::default(),
            QueueArguments::new(&Arguments::default()).expect("none"),
        )
    };
    assert!(Arc::ptr_eq(&one("a"), &one("b")));
    put(&policies, PolicyScope::User, "p", &wish("^a", json!({"max-length": 5}), 0, "all"));
    assert!(!Arc::ptr_eq(&one("a"), &one("b")) && Arc::ptr_eq(&one("a"), &one("a1")));
}
