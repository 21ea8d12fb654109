//! Rights of declarations and bindings are those of the moment at which they are carried out.

use std::any::Any;
use std::sync::Arc;

use routing::{Argument, Arguments, Declaration, OwnedValue};

use super::*;
use crate::jobs::{Pending, Stage};
use crate::queues::testing::{Node, arguments, name};
use crate::queues::{Queue, QueueDeclaration};
use crate::security::{Acl, AclPattern, AclPermission, PasswordWish, Permissions, Rule, UserWish, Via, WILDCARD};
use crate::settings::Settings;
use crate::{Broker, CreateTopic};

const AUTHORIZER: &str = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";

/// A user who may do everything with names that begin with `own`, and `orders`.
fn bob(node: &Node) -> Caller {
    let wish = UserWish { name: "bob".to_owned(), password: PasswordWish::Remove, tags: None, limits: None };
    node.broker.put_user(wish).expect("added");
    let own = "^(own|orders$)";
    node.broker.set_permissions("/", "bob", Permissions::new(own, own, own).expect("expressions")).expect("set");
    let user = node.broker.security().user("bob").expect("he is there");
    Caller {
        principal: Principal::new(user, "127.0.0.1".parse().expect("an address"), Via::Amqp),
        connection: ConnectionId(7),
    }
}

fn with_entries() -> Node {
    let mut settings = Settings::default();
    settings.set("authorizer.class.name", AUTHORIZER).expect("a setting");
    Node::open_with(1, settings)
}

fn allow(node: &Node, operation: AclOperation, resource: AclResource, name: &str) {
    let (principal, host) = ("User:bob".to_owned(), WILDCARD.to_owned());
    let acl = Acl {
        resource,
        name: name.to_owned(),
        pattern: AclPattern::Literal,
        principal,
        host,
        operation,
        permission: AclPermission::Allow,
    };
    node.broker.create_acls(vec![acl]).remove(0).expect("added");
}

fn wish(queue: &str, arguments: Arguments) -> QueueDeclaration {
    QueueDeclaration { name: name(queue), durable: true, owner: None, auto_delete: false, arguments }
}

fn rule<T: std::fmt::Debug>(denied: Result<T, QueueError>) -> Rule {
    match denied {
        Err(QueueError::Denied(denial)) => denial.rule,
        other => panic!("it is refused, not {other:?}"),
    }
}

fn of_binding(outcome: Result<(), ExchangeError>) -> Result<(), Rule> {
    match outcome {
        Ok(()) => Ok(()),
        Err(ExchangeError::Denied(denial)) => Err(denial.rule),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_declaration_of_what_is_there_is_judged_again_when_it_has_gone() {
    let node = Node::open(1);
    let (caller, vhost) = (bob(&node), node.vhost());
    let to_fanout = || arguments(&[("x-dead-letter-exchange", "amq.fanout")]);
    let there = node
        .broker
        .declare_queue(&vhost, wish("own", to_fanout()), &Caller::broker(ConnectionId(1)))
        .expect("declared");
    let again = node.broker.declare_queue(&vhost, wish("own", to_fanout()), &caller).expect("as it is");
    assert!(Arc::ptr_eq(&there, &again), "of what is there it takes no more than to configure it");
    let staged = Broker::staged_declaration(Arc::clone(&vhost), wish("own", to_fanout()), caller.clone(), None);
    node.broker.delete_queue(&there, false, false).expect("deleted");
    let outcome: Box<dyn Any> = match staged(&node.broker, &Pending::default()) {
        Stage::Done(outcome) => outcome,
        Stage::Write { .. } | Stage::Wait(_) => panic!("nothing is to be written"),
    };
    let outcome = *outcome.downcast::<Result<Arc<Queue>, QueueError>>().expect("of a declaration");
    assert_eq!(rule(outcome), Rule::Permission(Permission::Write));
    assert!(vhost.queue(b"own").is_none());
    let to_own = node.broker.declare_queue(
        &vhost,
        wish("own", arguments(&[("x-dead-letter-exchange", "own-letters")])),
        &caller,
    );
    assert!(to_own.is_ok());
    node.close();
}

#[test]
fn permissions_are_those_of_the_moment() {
    let node = Node::open(1);
    let (caller, vhost) = (bob(&node), node.vhost());
    let staged =
        Broker::staged_declaration(Arc::clone(&vhost), wish("own", Arguments::default()), caller.clone(), None);
    node.broker.clear_permissions("/", "bob").expect("cleared");
    assert!(matches!(staged(&node.broker, &Pending::default()), Stage::Done(_)), "nothing is to be written");
    assert!(vhost.queue(b"own").is_none());
    let denied = node.broker.declare_queue(&vhost, wish("own", Arguments::default()), &caller);
    assert_eq!(
        denied.expect_err("refused").to_string(),
        "configure access to queue 'own' in vhost '/' refused for user 'bob'"
    );
    let made_up = node.broker.declare_queue(&vhost, wish("", Arguments::default()), &caller);
    assert_eq!(rule(made_up), Rule::Permission(Permission::Configure));
    node.close();
}

#[test]
fn a_deletion_is_judged_when_it_is_carried_out() {
    let node = Node::open(1);
    let (caller, vhost) = (bob(&node), node.vhost());
    let queue = node.queue("own", Arguments::default());
    exchange(&node, &Principal::broker(), "own-events", b"direct", Arguments::default()).expect("declared");
    let staged = |queue: &str| Broker::staged_deletion(Arc::clone(&vhost), name(queue), false, false, caller.clone());
    let outcome = |stage: Stage| match stage {
        Stage::Done(outcome) => {
            *(outcome as Box<dyn Any>).downcast::<Result<u64, QueueError>>().expect("of a deletion")
        }
        Stage::Write { .. } | Stage::Wait(_) => panic!("nothing is to be written"),
    };
    assert_eq!(
        rule(outcome(staged("other")(&node.broker, &Pending::default()))),
        Rule::Permission(Permission::Configure),
        "whether it is there or not"
    );
    assert!(outcome(staged("own-missing")(&node.broker, &Pending::default())).is_ok_and(|ready| ready == 0));
    let waiting = staged("own");
    node.broker.clear_permissions("/", "bob").expect("cleared");
    assert_eq!(rule(outcome(waiting(&node.broker, &Pending::default()))), Rule::Permission(Permission::Configure));
    assert_eq!(
        rule(node.broker.delete_queue_for(&caller.principal, &queue, false, false)),
        Rule::Permission(Permission::Configure)
    );
    assert!(
        node.broker
            .check_purge(&caller.principal, &queue)
            .is_err_and(|denial| denial.rule == Rule::Permission(Permission::Read))
    );
    assert_eq!(
        of_binding(node.broker.delete_exchange(&vhost, b"own-events", false, &caller.principal)),
        Err(Rule::Permission(Permission::Configure))
    );
    assert!(vhost.queue(b"own").is_some() && vhost.exchanges().read().exchange(b"own-events").is_some());
    bob(&node);
    assert_eq!(of_binding(node.broker.delete_exchange(&vhost, b"own-events", false, &caller.principal)), Ok(()));
    assert!(matches!(staged("own")(&node.broker, &Pending::default()), Stage::Write { comes: false, .. }));
    assert!(
        node.broker.delete_queue_for(&caller.principal, &queue, false, false).is_ok() && vhost.queue(b"own").is_none()
    );
    node.close();
}

/// What has the name of a topic may be another thing when its deletion is carried out.
#[test]
fn a_topic_that_has_become_a_queue_belongs_to_its_virtual_host() {
    let node = with_entries();
    let caller = bob(&node);
    let check = |operation| {
        node.broker
            .check_topic(&caller.principal, Permission::Configure, operation, "orders")
            .map_err(|denial| denial.rule)
    };
    assert_eq!(check(AclOperation::Delete), Err(Rule::Acl(AclOperation::Delete, AclResource::Topic)));
    allow(&node, AclOperation::Delete, AclResource::Cluster, crate::security::CLUSTER);
    assert_eq!(
        (check(AclOperation::Delete), check(AclOperation::Alter)),
        (Ok(()), Err(Rule::Acl(AclOperation::Alter, AclResource::Topic)))
    );
    let of_shop = |operation| {
        node.broker
            .check_topic(&caller.principal, Permission::Configure, operation, "shop~orders")
            .map_err(|denial| denial.rule)
    };
    assert_eq!(
        of_shop(AclOperation::Delete),
        Err(Rule::Permission(Permission::Configure)),
        "he has no permissions there"
    );
    let group = |name: &str| {
        node.broker
            .check_group(&caller.principal, Permission::Configure, AclOperation::Delete, name)
            .map_err(|denial| denial.rule)
    };
    assert_eq!(group("other"), Err(Rule::Permission(Permission::Configure)));
    assert_eq!(group("own"), Err(Rule::Acl(AclOperation::Delete, AclResource::Group)));
    allow(&node, AclOperation::Delete, AclResource::Group, "own");
    assert_eq!((group("own"), group(crate::queues::QUEUE_GROUP)), (Ok(()), Err(Rule::Administrator)));
    node.close();
}

/// A topic that is gone is not deleted again, whatever has its name.
#[test]
fn the_topic_that_was_meant_is_deleted_and_no_other() {
    let node = Node::open(1);
    let create = || {
        let topic =
            CreateTopic { name: "orders".to_owned(), partitions: 1, replication: 1, overrides: Default::default() };
        node.broker.create_topics(vec![topic]).remove(0).expect("created")
    };
    let first = create();
    node.broker.delete_topic(&first).expect("deleted");
    let second = create();
    node.broker.delete_topic(&first).expect("nothing to do");
    assert!(node.broker.topic("orders").is_some_and(|topic| topic.id == second.id));
    node.close();
}

/// The last of two arguments of one name counts for the queue.
#[test]
fn the_exchange_that_is_asked_for_is_the_one_that_counts() {
    let node = Node::open(1);
    let (caller, vhost) = (bob(&node), node.vhost());
    for names in [["own-letters", "amq.fanout"], ["amq.fanout", "own-letters"]] {
        let field = |exchange: &str| Argument {
            name: b"x-dead-letter-exchange"[..].into(),
            tag: b'S',
            value: OwnedValue::Bytes(exchange.as_bytes().into()),
        };
        match node.broker.declare_queue(&vhost, wish("own", Arguments::new(names.map(field).into())), &caller) {
            Ok(queue) => assert_eq!(queue.understood().dead_letter_exchange.as_deref(), Some(&b"own-letters"[..])),
            denied => assert_eq!(rule(denied), Rule::Permission(Permission::Write)),
        }
    }
    node.close();
}

#[test]
fn to_create_is_not_enough_for_a_topic_that_is_there() {
    let node = with_entries();
    let (caller, vhost) = (bob(&node), node.vhost());
    let topic = CreateTopic { name: "orders".to_owned(), partitions: 1, replication: 1, overrides: Default::default() };
    node.broker.create_topics(vec![topic]).remove(0).expect("created");
    let declare = |queue: &str, arguments| node.broker.declare_queue(&vhost, wish(queue, arguments), &caller);
    for queue in ["own", "orders"] {
        assert_eq!(rule(declare(queue, Arguments::default())), Rule::Acl(AclOperation::Create, AclResource::Topic));
        allow(&node, AclOperation::Create, AclResource::Topic, queue);
    }
    assert!(declare("own", Arguments::default()).is_ok());
    // As a producer and a consumer of the topic.
    for operation in [AclOperation::Read, AclOperation::Write] {
        assert_eq!(rule(declare("orders", Arguments::default())), Rule::Acl(operation, AclResource::Topic));
        allow(&node, operation, AclResource::Topic, "orders");
    }
    let denied = declare("orders", Arguments::default());
    assert_eq!(
        denied.expect_err("refused").to_string(),
        "Alter access to topic 'orders' in vhost '/' refused for user 'bob'"
    );
    allow(&node, AclOperation::Alter, AclResource::Topic, "orders");
    assert_eq!(
        rule(declare("orders", arguments(&[("x-share-group", "payments")]))),
        Rule::Acl(AclOperation::Read, AclResource::Group)
    );
    allow(&node, AclOperation::Read, AclResource::Group, "payments");
    assert!(declare("orders", arguments(&[("x-share-group", "payments")])).is_ok_and(|queue| queue.is_attached()));
    node.close();
}

#[test]
fn without_entries_permissions_alone_count_for_a_topic_that_is_there() {
    let node = Node::open(1);
    let (caller, vhost) = (bob(&node), node.vhost());
    let topic = CreateTopic { name: "orders".to_owned(), partitions: 1, replication: 1, overrides: Default::default() };
    node.broker.create_topics(vec![topic]).remove(0).expect("created");
    let permit = |configure: &str, write: &str, read: &str| {
        let permissions = Permissions::new(configure, write, read).expect("expressions");
        node.broker.set_permissions("/", "bob", permissions).expect("set");
    };
    for (write, read, missing) in [(".*", "", Permission::Read), ("", ".*", Permission::Write)] {
        permit(".*", write, read);
        let declared = node.broker.declare_queue(&vhost, wish("orders", Arguments::default()), &caller);
        assert_eq!(rule(declared), Rule::Permission(missing), "its messages are the topic's records");
        assert!(
            node.broker.declare_queue(&vhost, wish(&format!("new-{missing}"), Arguments::default()), &caller).is_ok(),
            "without a topic it takes configure only"
        );
    }
    permit("^orders$", "^orders$", "^orders$");
    let declared =
        node.broker.declare_queue(&vhost, wish("orders", arguments(&[("x-share-group", "payments")])), &caller);
    assert!(declared.is_ok_and(|queue| queue.is_attached()));
    node.close();
}

fn exchange(
    node: &Node,
    who: &Principal,
    exchange: &str,
    kind: &[u8],
    arguments: Arguments,
) -> Result<(), ExchangeError> {
    let declaration =
        Declaration { name: name(exchange), kind, durable: true, auto_delete: false, internal: false, arguments };
    node.broker.declare_exchange(&node.vhost(), declaration, who).map(drop)
}

#[test]
fn an_alternate_exchange_is_asked_for_where_the_exchange_is_made() {
    let node = Node::open(1);
    let (caller, vhost) = (bob(&node), node.vhost());
    let to_fanout = || arguments(&[("alternate-exchange", "amq.fanout")]);
    exchange(&node, &Principal::broker(), "own", b"direct", to_fanout()).expect("declared");
    exchange(&node, &caller.principal, "own", b"direct", to_fanout()).expect("as it is");
    node.broker.delete_exchange(&vhost, b"own", false, &Principal::broker()).expect("deleted");
    assert_eq!(
        of_binding(exchange(&node, &caller.principal, "own", b"direct", to_fanout())),
        Err(Rule::Permission(Permission::Write))
    );
    assert!(vhost.exchanges().read().exchange(b"own").is_none());
    assert_eq!(
        of_binding(exchange(
            &node,
            &caller.principal,
            "own",
            b"direct",
            arguments(&[("alternate-exchange", "own-rest")])
        )),
        Ok(())
    );
    assert_eq!(
        of_binding(exchange(&node, &caller.principal, "other", b"direct", Arguments::default())),
        Err(Rule::Permission(Permission::Configure))
    );
    node.close();
}

#[test]
fn keys_are_asked_for_by_what_the_exchange_is_when_it_is_bound() {
    let node = Node::open(1);
    let (caller, vhost) = (bob(&node), node.vhost());
    node.broker.set_topic_permission("/", "bob", "own-events", "^a", "^a").expect("set");
    node.queue("own", Arguments::default());
    let bind = |key: &str| {
        let wish = BindingWish {
            source: name("own-events"),
            to_queue: true,
            destination: name("own"),
            key: name(key),
            arguments: Arguments::default(),
        };
        of_binding(node.broker.bind(&vhost, wish.clone(), &caller))
            .and_then(|()| of_binding(node.broker.unbind(&vhost, &wish, &caller)))
    };
    let by_http = |key: &str| {
        node.broker
            .check_publish(&caller.principal, &vhost, b"own-events", &[key.to_owned()])
            .map_err(|denial| denial.rule)
    };
    exchange(&node, &Principal::broker(), "own-events", b"direct", Arguments::default()).expect("declared");
    assert_eq!((bind("b"), by_http("b")), (Ok(()), Ok(())), "a direct exchange takes all keys");
    node.broker.delete_exchange(&vhost, b"own-events", false, &Principal::broker()).expect("deleted");
    exchange(&node, &Principal::broker(), "own-events", b"topic", Arguments::default()).expect("declared");
    assert_eq!((bind("a"), by_http("a")), (Ok(()), Ok(())));
    assert_eq!(bind("b"), Err(Rule::Key(Permission::Read, "b".to_owned())));
    assert_eq!(by_http("b"), Err(Rule::Key(Permission::Write, "b".to_owned())));
    let from_fanout = BindingWish {
        source: name("amq.fanout"),
        to_queue: true,
        destination: name("own"),
        key: name(""),
        arguments: Arguments::default(),
    };
    assert_eq!(of_binding(node.broker.bind(&vhost, from_fanout, &caller)), Err(Rule::Permission(Permission::Read)));
    node.close();
}

#[test]
fn what_one_connection_alone_may_use_no_other_binds() {
    let node = Node::open(1);
    let (caller, vhost) = (bob(&node), node.vhost());
    let own = QueueDeclaration { owner: Some(ConnectionId(1)), durable: false, ..wish("own", Arguments::default()) };
    node.broker.declare_queue(&vhost, own, &Caller::broker(ConnectionId(1))).expect("declared");
    exchange(&node, &caller.principal, "own-events", b"direct", Arguments::default()).expect("declared");
    let wish = BindingWish {
        source: name("own-events"),
        to_queue: true,
        destination: name("own"),
        key: name(""),
        arguments: Arguments::default(),
    };
    let locked = |outcome| matches!(outcome, Err(ExchangeError::Queue(QueueError::Locked { .. })));
    assert!(
        locked(node.broker.bind(&vhost, wish.clone(), &caller)) && locked(node.broker.unbind(&vhost, &wish, &caller))
    );
    node.close();
}
