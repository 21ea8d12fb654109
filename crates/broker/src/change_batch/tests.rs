//! What is planned is written with one commit, and is as if each change had been made alone.

use serde_json::json;

use super::*;
use crate::queues::testing::{Node, arguments};
use crate::security::PasswordWish;

const MANY: usize = 300;

fn chunks(node: &Node) -> u64 {
    node.broker.journals()[0].durable_index().0
}

fn user(name: &str, tags: &[&str]) -> UserWish {
    let tags = Some(tags.iter().map(|tag| (*tag).to_owned()).collect());
    UserWish { name: name.to_owned(), password: PasswordWish::Remove, tags, limits: None }
}

fn vhost(name: &str) -> VhostWish {
    VhostWish { name: name.to_owned(), ..VhostWish::default() }
}

fn all() -> Permissions {
    Permissions::new(".*", ".*", ".*").expect("expressions")
}

fn policy(queue: &str, length: u64) -> PolicyWish {
    PolicyWish {
        pattern: json!(format!("^{queue}$")),
        definition: json!({"max-length": length}),
        priority: None,
        apply_to: None,
    }
}

fn written(batch: &mut ChangeBatch, node: &Node, count: usize) {
    let outcomes = batch.write(&node.broker);
    assert!(outcomes.len() == count && outcomes.iter().all(Result::is_ok), "{outcomes:?}");
}

#[test]
fn many_are_written_with_one_commit() {
    let node = Node::open(1);
    let (broker, mut batch) = (&node.broker, ChangeBatch::default());
    let before = chunks(&node);
    let none = Map::new();
    for number in 0..MANY {
        let name = format!("u{number}");
        assert!(matches!(batch.put_user(broker, user(&name, &["management"])), Ok(Gathering::Later)));
        assert!(matches!(batch.put_vhost(broker, vhost(&name), &none), Ok(Gathering::Later)));
    }
    assert!(matches!(batch.put_user(broker, user("u7", &[])), Ok(Gathering::AfterOthers)), "it is on its way");
    assert_eq!(chunks(&node), before, "nothing is written yet");
    assert!(!broker.security().has_users() && broker.vhosts().get("u7").is_none(), "nor counts");
    written(&mut batch, &node, 2 * MANY);
    assert!(matches!(batch.put_user(broker, user("u7", &[])), Ok(Gathering::Later)));
    written(&mut batch, &node, 1);
    assert!(broker.security().user("u7").is_some_and(|user| user.tags().is_empty()));
    for number in 0..MANY {
        let name = format!("u{number}");
        assert!(matches!(batch.set_permissions(broker, &name, &name, all()), Ok(Gathering::Later)));
        assert!(matches!(
            batch.set_topic_permission(broker, &name, &name, "amq.topic", [".*", ""]),
            Ok(Gathering::Later)
        ));
        let host = broker.vhosts().get(&name).expect("made");
        assert!(matches!(
            batch.put_policy(broker, &host, PolicyScope::User, "short", &policy("q", 1)),
            Ok(Gathering::Later)
        ));
        let limits = json!({"max-queues": 5});
        assert!(matches!(batch.put_parameter(broker, &host, "vhost-limits", "limits", &limits), Ok(Gathering::Later)));
        assert!(matches!(batch.put_global_parameter(broker, &name, json!(number)), Gathering::Later));
    }
    assert!(batch.set_permissions(broker, "/", "nobody", all()).is_err());
    written(&mut batch, &node, 5 * MANY);
    assert!(chunks(&node) - before < 12, "{} chunks", chunks(&node) - before);
    assert!(batch.write(broker).is_empty(), "nothing is left");
    let host = broker.vhosts().get("u7").expect("made");
    assert_eq!(host.parameters().limits().get("max-queues"), Some(&json!(5)));
    assert!(
        broker.security().permissions("u7", "u7").is_some()
            && !broker.security().topic_permissions("u7", "u7").is_empty()
    );
    assert_eq!(broker.vhosts().global_parameter("u7"), Some(json!(7)));
    let same = batch.put_policy(broker, &host, PolicyScope::User, "short", &policy("q", 1));
    assert!(matches!(same, Ok(Gathering::Done(()))), "it is so");
    node.close();
}

#[test]
fn queues_follow_all_policies_that_are_written_together() {
    let node = Node::open(1);
    let (broker, host, mut batch) = (&node.broker, node.vhost(), ChangeBatch::default());
    let queues = ["one", "two"].map(|name| node.queue(name, arguments(&[])));
    for (queue, length) in [("one", 1), ("two", 2)] {
        assert!(matches!(
            batch.put_policy(broker, &host, PolicyScope::User, queue, &policy(queue, length)),
            Ok(Gathering::Later)
        ));
    }
    assert_eq!(queues.each_ref().map(|queue| queue.understood().length_max), [None; 2], "not before it is durable");
    written(&mut batch, &node, 2);
    assert_eq!(queues.each_ref().map(|queue| queue.understood().length_max), [Some(1), Some(2)]);
    node.close();
}

#[test]
fn all_of_a_change_is_there_or_none_of_it() {
    let node = Node::open(1);
    let (broker, mut batch) = (&node.broker, ChangeBatch::default());
    let limits = |value: Value| json!({"max-queues": value}).as_object().cloned().unwrap_or_default();
    assert!(batch.put_vhost(broker, vhost("shop"), &limits(json!("many"))).is_err());
    assert!(broker.vhosts().get("shop").is_none(), "with limits that cannot be it is not made");
    assert!(matches!(batch.put_vhost(broker, vhost("shop"), &limits(json!(3))), Ok(Gathering::Later)));
    // More than any chunk takes.
    assert!(matches!(batch.put_global_parameter(broker, "large", json!("x".repeat(2 << 20))), Gathering::Later));
    assert!(matches!(batch.put_global_parameter(broker, "small", json!(1)), Gathering::Later));
    let outcomes: Vec<bool> = batch.write(broker).iter().map(Result::is_ok).collect();
    assert_eq!(outcomes, [true, false, true]);
    assert!(broker.vhosts().global_parameter("large").is_none() && broker.vhosts().global_parameter("small").is_some());
    assert_eq!(broker.vhosts().get("shop").expect("made").parameters().limits(), limits(json!(3)));
    node.close();
}

#[test]
fn virtual_hosts_on_their_way_count_towards_the_limit() {
    let mut settings = crate::Settings::default();
    settings.set("vhost_max", "3").expect("a setting");
    let node = Node::open_with(1, settings);
    let (broker, mut batch) = (&node.broker, ChangeBatch::default());
    let none = Map::new();
    assert!(matches!(batch.put_vhost(broker, vhost("a"), &none), Ok(Gathering::Later)));
    assert!(matches!(batch.put_vhost(broker, vhost("b"), &none), Ok(Gathering::Later)));
    assert!(matches!(
        batch.put_vhost(broker, vhost("c"), &none),
        Err(VhostError::Vhost(SecurityError::TooManyVhosts { limit: 3, .. }))
    ));
    written(&mut batch, &node, 2);
    assert!(matches!(
        batch.put_vhost(broker, vhost("c"), &none),
        Err(VhostError::Vhost(SecurityError::TooManyVhosts { .. }))
    ));
    node.close();
}
