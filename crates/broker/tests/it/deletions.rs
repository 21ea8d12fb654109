//! Exchanges, bindings and virtual hosts that are deleted stay so, however much it is, also when clients ask for something meanwhile.

use std::path::Path;
use std::sync::{Arc, mpsc};

use broker::append::{Append, AppendError, AppendItem};
use broker::{
    BindingWish, Caller, CreateTopic, GoOn, JobOwner, NOBODY, NewRecord, Principal, PublishError, QueueDeclaration,
    Vhost, VhostDeletion, VhostWish,
};
use bytes::Bytes;
use delivery::{Commit, CommittedOffset, offset_record};
use routing::{Argument, Arguments, Declaration, Name, OwnedValue};
use types::LogId;

use crate::node::{Node, wait_for};

/// Together with its arguments more than a segment.
const BINDINGS: usize = 300;
const ARGUMENT_BYTES: usize = 5_000;

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a short name")
}

fn exchange(node: &Node, vhost: &Vhost, exchange: &str) {
    let arguments = Arguments::default();
    let declaration = Declaration {
        name: name(exchange),
        kind: b"direct",
        durable: true,
        auto_delete: false,
        internal: false,
        arguments,
    };
    node.broker.declare_exchange(vhost, declaration, &Principal::broker()).expect("declared");
}

/// Bindings, each with a large argument.
fn bind(node: &Node, vhost: &Vhost, source: &str, to: (bool, &str)) {
    for number in 0..BINDINGS {
        let value = OwnedValue::Bytes(vec![b'x'; ARGUMENT_BYTES].into());
        let arguments = Arguments::new(vec![Argument { name: b"about"[..].into(), tag: b'S', value }]);
        let wish = BindingWish {
            source: name(source),
            to_queue: to.0,
            destination: name(to.1),
            key: name(&format!("key-{number}")),
            arguments,
        };
        node.broker.bind(vhost, wish, &Caller::broker(Caller::NO_CONNECTION)).expect("bound");
    }
}

fn bindings(vhost: &Vhost) -> usize {
    vhost.exchanges().read().binding_count()
}

fn put_vhost(node: &Node) -> Arc<Vhost> {
    put_vhost_named(node, "v")
}

fn put_vhost_named(node: &Node, name: &str) -> Arc<Vhost> {
    node.broker.put_vhost(VhostWish { name: name.to_owned(), ..VhostWish::default() }).expect("put");
    node.broker.vhosts().get(name).expect("it is there")
}

fn open(folder: &Path) -> Node {
    Node::open(folder, 1)
}

fn vhosts(node: &Node) -> Vec<String> {
    node.broker.vhosts().all().iter().map(|vhost| vhost.name().to_owned()).collect()
}

/// Who has looked a topic up writes to it after it has gone, and another one has come.
#[test]
fn a_record_for_a_topic_that_was_deleted_is_refused_as_that() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = open(folder.path());
    let wish = || CreateTopic { name: "t".to_owned(), partitions: 1, replication: 1, overrides: Default::default() };
    let record =
        NewRecord { partition: None, timestamp: None, key: None, value: Some(b"v".to_vec()), headers: Vec::new() };
    let topic = node.broker.create_topics(vec![wish()]).remove(0).expect("created");
    let queue = node.queue("q", true);
    let of_queue = Arc::clone(queue.topic());
    node.broker.delete_topic(&topic).expect("deleted");
    node.broker.delete_queue(&queue, false, false).expect("deleted");
    let again = node.broker.create_topics(vec![wish()]).remove(0).expect("created");
    for gone in [&topic, &of_queue] {
        let refused = node.broker.publish_record(gone, &record).expect_err("it has gone");
        assert!(matches!(refused, PublishError::Append(AppendError::LogDeleted)), "{refused}");
    }
    assert_eq!(again.logs()[0].end().0, 0, "the other one has nothing of it");
    node.close();
}

#[test]
fn an_exchange_goes_with_more_bindings_than_a_segment_takes() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = open(folder.path());
    let vhost = node.vhost();
    node.queue("q", true);
    exchange(&node, &vhost, "e");
    exchange(&node, &vhost, "kept");
    bind(&node, &vhost, "e", (true, "q"));
    bind(&node, &vhost, "kept", (false, "e"));
    node.broker.delete_exchange(&vhost, b"e", false, &Principal::broker()).expect("deleted");
    assert_eq!(bindings(&vhost), 0);
    assert!(vhost.exchanges().read().exchange(b"e").is_none());
    exchange(&node, &vhost, "e");
    node.close();
    let node = open(folder.path());
    assert_eq!(bindings(&node.vhost()), 0, "the exchange that was declared after it has none of them");
    assert!(node.vhost().exchanges().read().exchange(b"kept").is_some());
    node.close();
}

#[test]
fn a_virtual_host_goes_with_more_bindings_than_a_segment_takes() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = open(folder.path());
    let vhost = put_vhost(&node);
    exchange(&node, &vhost, "e");
    bind(&node, &vhost, "e", (false, "amq.fanout"));
    let before = node.journal(0).metrics().commits_so_far().0;
    assert!(node.broker.delete_vhost("v").expect("deleted"));
    let writes = node.journal(0).metrics().commits_so_far().0 - before;
    assert!(writes < 100, "{BINDINGS} bindings go together, not with {writes} writes");
    let vhost = put_vhost(&node);
    exchange(&node, &vhost, "e");
    node.close();
    let node = open(folder.path());
    assert_eq!(bindings(&put_vhost(&node)), 0);
    node.close();
}

#[test]
fn a_node_that_ends_does_not_wait_for_the_deletion_of_a_virtual_host_which_goes_on_with_the_next_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = open(folder.path());
    let vhost = put_vhost(&node);
    // Between exchanges that are always there.
    bind(&node, &vhost, "amq.direct", (false, "amq.fanout"));
    node.broker.shutdown();
    assert!(node.broker.delete_vhost("v").expect("begun"));
    assert_eq!(bindings(&vhost), BINDINGS);
    node.close();
    let node = open(folder.path());
    wait_for("it goes", || vhosts(&node) == ["/"]);
    node.close();
    let node = open(folder.path());
    assert_eq!(vhosts(&node), ["/"]);
    node.close();
}

#[test]
fn others_have_their_turns_while_a_virtual_host_with_many_queues_is_deleted() {
    const QUEUES: usize = 2_100;
    let folder = tempfile::tempdir().expect("a folder");
    let node = open(folder.path());
    let vhost = put_vhost(&node);
    let caller = Caller::broker(Caller::NO_CONNECTION);
    for number in 0..QUEUES {
        let name = name(&format!("q-{number}"));
        let wish =
            QueueDeclaration { name, durable: false, owner: None, auto_delete: false, arguments: Arguments::default() };
        node.broker.declare_queue(&vhost, wish, &caller).expect("declared");
    }
    let (goes_on, waits) = mpsc::channel::<()>();
    let (tell, told) = mpsc::channel();
    let done = || Box::new(()) as Box<dyn std::any::Any + Send>;
    let first = move |_: &Arc<broker::Broker>| {
        let _ = waits.recv();
        done()
    };
    assert!(node.broker.control(NOBODY, JobOwner::of("first", None), Box::new(first)));
    let (mut deletion, tell_end) = (VhostDeletion::of("v"), tell.clone());
    let deletes = move |broker: &Arc<broker::Broker>| {
        let outcome = deletion.go_on(broker)?;
        tell_end.send(("deleted", usize::from(outcome.expect("deleted")))).expect("it is waited for");
        Some(done())
    };
    assert!(node.broker.control_in_turns(NOBODY, JobOwner::of("user", None).apart(), Box::new(deletes)));
    let other = move |_: &Arc<broker::Broker>| {
        tell.send(("other", vhost.queues().len())).expect("it is waited for");
        done()
    };
    assert!(node.broker.control(NOBODY, JobOwner::of("user", None), Box::new(other)));
    drop(goes_on);
    let (who, queues) = told.recv().expect("one of them");
    assert!(who == "other" && (1..QUEUES).contains(&queues), "{who}: {queues}");
    assert_eq!(told.recv().expect("the other one"), ("deleted", 1));
    assert_eq!(vhosts(&node), ["/"]);
    node.close();
}

fn wish() -> broker::PolicyWish {
    let (pattern, definition) = (".*".into(), serde_json::json!({"max-length": 1}));
    broker::PolicyWish { pattern, definition, priority: None, apply_to: None }
}

#[test]
fn nothing_is_said_of_a_virtual_host_that_is_deleted() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = open(folder.path());
    let vhost = put_vhost(&node);
    let scope = broker::PolicyScope::User;
    node.broker.put_policy(&vhost, scope, "old", &wish()).expect("put");
    let binding = BindingWish {
        source: name("amq.direct"),
        to_queue: false,
        destination: name("amq.fanout"),
        key: name("k"),
        arguments: Arguments::default(),
    };
    node.broker.delete_vhost("v").expect("deleted");
    // Who asked has found it before.
    let gone = |error: String| assert_eq!(error, "vhost 'v' is deleted");
    gone(node.broker.put_policy(&vhost, scope, "new", &wish()).expect_err("gone").to_string());
    gone(node.broker.delete_policy(&vhost, scope, "old").expect_err("gone").to_string());
    let limits = serde_json::json!({"max-queues": 1});
    gone(node.broker.put_parameter(&vhost, "vhost-limits", "limits", &limits).expect_err("gone").to_string());
    gone(node.broker.delete_parameter(&vhost, "vhost-limits", "limits").expect_err("gone").to_string());
    gone(node.broker.put_vhost_limit(&vhost, "max-queues", Some(0.into())).expect_err("gone").to_string());
    gone(
        node.broker
            .bind(&vhost, binding.clone(), &Caller::broker(Caller::NO_CONNECTION))
            .expect_err("gone")
            .to_string(),
    );
    gone(node.broker.unbind(&vhost, &binding, &Caller::broker(Caller::NO_CONNECTION)).expect_err("gone").to_string());
    gone(node.broker.delete_exchange(&vhost, b"e", false, &Principal::broker()).expect_err("gone").to_string());
    node.close();
    let node = open(folder.path());
    assert_eq!(vhosts(&node), ["/"]);
    node.close();
}

/// Records of a virtual host that is not there, as a release wrote them that took policies while it was deleted.
#[test]
fn records_do_not_make_a_virtual_host() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = open(folder.path());
    let put = |key: &[u8], value: &[u8]| {
        node.append(
            LogId(0),
            AppendItem::State { key: Bytes::copy_from_slice(key), value: Some(Bytes::copy_from_slice(value)) },
        );
    };
    put(
        b"qp\x01vold",
        b"\x01{\"pattern\":\".*\",\"definition\":{\"max-length\":1},\"priority\":0,\"apply-to\":\"all\"}",
    );
    put(b"qe\x01ve", b"\x01\x06direct\0\0\0\0\0");
    // Behind them.
    put_vhost_named(&node, "w");
    node.close();
    let node = open(folder.path());
    assert_eq!(vhosts(&node), ["/", "w"]);
    assert_eq!(put_vhost(&node).exchanges().read().exchange_count(), 7);
    node.close();
    let node = open(folder.path());
    let vhost = put_vhost(&node);
    assert_eq!(
        (vhost.policies().all(broker::PolicyScope::User).len(), vhost.exchanges().read().exchange_count()),
        (0, 7)
    );
    node.close();
}

/// Topics, queues, and queues on topics that are deleted as topics, as by DeleteTopics.
#[test]
fn queues_that_are_deleted_as_topics_go_together() {
    const EACH: usize = 100;
    let folder = tempfile::tempdir().expect("a folder");
    let node = open(folder.path());
    let wish = |name: String| CreateTopic { name, partitions: 1, replication: 1, overrides: Default::default() };
    let plain: Vec<String> = (0..EACH).map(|number| format!("plain-{number}")).collect();
    let attached: Vec<String> = (0..EACH).map(|number| format!("attached-{number}")).collect();
    let queues: Vec<String> = (0..EACH).map(|number| format!("queue-{number}")).collect();
    let created = node.broker.create_topics(plain.iter().chain(&attached).cloned().map(wish).collect());
    assert!(created.iter().all(Result::is_ok));
    attached.iter().chain(&queues).for_each(|name| drop(node.queue(name, true)));
    let all: Vec<_> = plain
        .iter()
        .chain(&attached)
        .chain(&queues)
        .map(|name| node.broker.topic(name).expect("it is there"))
        .collect();
    let before = node.journal(0).metrics().commits_so_far().0;
    assert!(node.broker.delete_topics(&all).iter().all(Result::is_ok));
    let writes = node.journal(0).metrics().commits_so_far().0 - before;
    assert!(writes < EACH as u64 / 2, "{writes} writes");
    let check = |node: &Node| {
        assert!(all.iter().all(|topic| node.broker.topic(&topic.name).is_none()));
        assert!(node.vhost().queues().is_empty());
    };
    check(&node);
    node.close();
    let node = open(folder.path());
    check(&node);
    node.close();
}

/// What a group has committed of a topic goes behind the topic, and a crash may come in between: another topic of this name has nothing of it.
#[test]
fn what_is_committed_of_a_topic_that_is_gone_goes_at_the_next_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = open(folder.path());
    let (gone, stays) = (node.topic("gone", 1), node.topic("stays", 1));
    let at = |topic: &str| GoOn { topic: topic.to_owned(), partition: 0, offset: 7 };
    node.broker.set_group_offsets("g", &[at(&gone.name), at(&stays.name)]).expect("set");
    node.broker.delete_topic(&gone).expect("deleted");
    // As a crash leaves it: the record that would have been deleted last is there.
    let offset = CommittedOffset { offset: 7, leader_epoch: -1, metadata: String::new(), committed_at: 1 };
    let (key, value) = offset_record("g", &Commit { topic: "gone".to_owned(), partition: 0, offset });
    let append = Append { to: NOBODY, items: vec![AppendItem::State { key, value: Some(value) }], acknowledge: false };
    assert!(node.broker.journals()[0].append(append).is_ok());
    node.close();
    let offset = |node: &Node, topic: &str| node.broker.groups().offset("g", topic, 0).map(|offset| offset.offset);
    let node = open(folder.path());
    assert_eq!((offset(&node, "gone"), offset(&node, "stays")), (None, Some(7)));
    node.topic("gone", 1);
    assert_eq!(offset(&node, "gone"), None);
    node.close();
    let node = open(folder.path());
    assert_eq!(offset(&node, "gone"), None, "it is gone from the journal as well");
    node.close();
}
