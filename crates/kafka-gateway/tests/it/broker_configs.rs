//! The broker's settings as Kafka clients see and change them: for the node, for all nodes, what goes before what, and a restart.

use broker::{PasswordWish, UserWish};
use kafka_wire::ErrorCode;
use kafka_wire::alter_configs::{self, AlterConfigsRequest, AlterConfigsResponse};
use kafka_wire::describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResourceResult, DescribeConfigsResponse,
};
use kafka_wire::incremental_alter_configs::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};

use crate::node::{Node, flexible};

const DESCRIBE: (i16, i16) = (32, 4);
const ALTER: (i16, i16) = (33, 2);
const INCREMENTAL: (i16, i16) = (44, 1);
/// The id of the node of these tests.
const NODE: &str = "0";
const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const GROUP: i8 = 32;
const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;
const INVALID_CONFIG: i16 = 40;
const INVALID_REQUEST: i16 = 42;

fn describe(node: &mut Node, client: usize, kind: i8, name: &str, key: &str) -> Vec<DescribeConfigsResourceResult> {
    let keys = (!key.is_empty()).then(|| vec![key.into()]);
    let resource_name = name.into();
    let resource =
        DescribeConfigsResource { resource_type: kind, resource_name, configuration_keys: keys, ..Default::default() };
    let request = DescribeConfigsRequest { resources: vec![resource], include_synonyms: true, ..Default::default() };
    node.send(client, DESCRIBE, 1, |writer| request.encode(writer, DESCRIBE.1)).expect("taken");
    let (_, body) = node.answer(client);
    let mut response = DescribeConfigsResponse::decode(&mut flexible(DESCRIBE, body), DESCRIBE.1).expect("an answer");
    let result = response.results.remove(0);
    assert_eq!(result.error_code, 0, "{:?}", result.error_message);
    result.configs
}

/// Value, source, and all synonyms with their sources.
fn seen(node: &mut Node, client: usize, kind: i8, name: &str, key: &str) -> (String, i8, Vec<(String, String, i8)>) {
    let found = describe(node, client, kind, name, key).pop().expect("a setting");
    let text = |value: &Option<kafka_wire::Str>| value.as_ref().map(ToString::to_string).unwrap_or_default();
    let synonyms = found.synonyms.iter().map(|one| (one.name.to_string(), text(&one.value), one.source));
    (text(&found.value), found.config_source, synonyms.collect())
}

fn alter(node: &mut Node, client: usize, name: &str, changes: &[(&str, i8, &str)]) -> (i16, String) {
    alter_of(node, client, BROKER, name, changes)
}

fn alter_of(
    node: &mut Node,
    client: usize,
    resource_type: i8,
    name: &str,
    changes: &[(&str, i8, &str)],
) -> (i16, String) {
    let one = |(name, config_operation, value): &(&str, i8, &str)| {
        let value = (*config_operation != DELETE).then(|| (*value).into());
        AlterableConfig { name: (*name).into(), config_operation: *config_operation, value, ..Default::default() }
    };
    let configs = changes.iter().map(one).collect();
    let resource = AlterConfigsResource { resource_type, resource_name: name.into(), configs, ..Default::default() };
    let request = IncrementalAlterConfigsRequest { resources: vec![resource], ..Default::default() };
    node.send(client, INCREMENTAL, 1, |writer| request.encode(writer, INCREMENTAL.1)).expect("taken");
    let (_, body) = node.answer(client);
    let response =
        IncrementalAlterConfigsResponse::decode(&mut flexible(INCREMENTAL, body), INCREMENTAL.1).expect("an answer");
    let answer = &response.responses[0];
    (answer.error_code, answer.error_message.as_ref().map(ToString::to_string).unwrap_or_default())
}

fn replace(node: &mut Node, client: usize, name: &str, settings: &[(&str, &str)], validate_only: bool) -> i16 {
    let one = |(name, value): &(&str, &str)| {
        let (name, value) = ((*name).into(), Some((*value).into()));
        alter_configs::AlterableConfig { name, value, ..Default::default() }
    };
    let configs = settings.iter().map(one).collect();
    let resource = alter_configs::AlterConfigsResource {
        resource_type: BROKER,
        resource_name: name.into(),
        configs,
        ..Default::default()
    };
    let request = AlterConfigsRequest { resources: vec![resource], validate_only, ..Default::default() };
    node.send(client, ALTER, 1, |writer| request.encode(writer, ALTER.1)).expect("taken");
    let (_, body) = node.answer(client);
    AlterConfigsResponse::decode(&mut flexible(ALTER, body), ALTER.1).expect("an answer").responses[0].error_code
}

fn synonym(name: &str, value: &str, source: i8) -> (String, String, i8) {
    (name.to_owned(), value.to_owned(), source)
}

#[test]
fn what_is_set_for_the_node_goes_before_what_is_set_for_all_and_that_before_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[("message.max.bytes", "4000")]);
    let client = node.connect();
    node.create_topic(client, "t", 1);
    let key = "message.max.bytes";
    assert_eq!(
        seen(&mut node, client, BROKER, NODE, key),
        ("4000".to_owned(), 4, vec![synonym(key, "4000", 4), synonym(key, "1048588", 5)])
    );
    assert_eq!(alter(&mut node, client, "", &[(key, SET, "3000")]).0, 0);
    assert_eq!(seen(&mut node, client, BROKER, NODE, key).1, 3);
    assert_eq!(alter(&mut node, client, NODE, &[(key, SET, "2000")]).0, 0);
    let all =
        vec![synonym(key, "2000", 2), synonym(key, "3000", 3), synonym(key, "4000", 4), synonym(key, "1048588", 5)];
    assert_eq!(seen(&mut node, client, BROKER, NODE, key), ("2000".to_owned(), 2, all.clone()));
    assert_eq!(seen(&mut node, client, BROKER, "", key), ("3000".to_owned(), 3, vec![synonym(key, "3000", 3)]));
    assert_eq!(seen(&mut node, client, TOPIC, "t", "max.message.bytes"), ("2000".to_owned(), 2, all.clone()));
    assert_eq!(node.broker().topic("t").expect("it is there").config().max_message_bytes, 2000);
    node.stop();
    let mut node = Node::start(folder.path(), &[("message.max.bytes", "4000")]);
    let client = node.connect();
    assert_eq!(seen(&mut node, client, BROKER, NODE, key), ("2000".to_owned(), 2, all));
    assert_eq!(alter(&mut node, client, NODE, &[(key, DELETE, "")]).0, 0);
    assert_eq!(seen(&mut node, client, BROKER, NODE, key).0, "3000");
    assert_eq!(replace(&mut node, client, "", &[("num.partitions", "3")], true), 0);
    assert_eq!(seen(&mut node, client, BROKER, NODE, key).0, "3000");
    // What is not named is not set any more.
    assert_eq!(replace(&mut node, client, "", &[("num.partitions", "3")], false), 0);
    assert_eq!(
        (seen(&mut node, client, BROKER, NODE, key).1, seen(&mut node, client, BROKER, NODE, "num.partitions").1),
        (4, 3)
    );
    assert_eq!(node.broker().topic("t").expect("it is there").config().max_message_bytes, 4000);
    node.stop();
}

#[test]
fn a_refusal_names_the_setting_and_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    for (name, value) in
        [("mainstem.shards", "2"), ("no.such.setting", "1"), ("log.retention.ms", "soon"), ("num.partitions", "0")]
    {
        for of in ["", NODE] {
            let (code, text) = alter(&mut node, client, of, &[("message.max.bytes", SET, "1000"), (name, SET, value)]);
            assert!(code == INVALID_REQUEST && text.contains(name), "{name}: {code} {text}");
        }
        assert_eq!(replace(&mut node, client, NODE, &[(name, value)], false), INVALID_REQUEST, "{name}");
    }
    // As long as a name can be: what is said of it would be longer than a text can be.
    let long = "x".repeat(32_767);
    for (kind, of) in [(BROKER, NODE), (TOPIC, "t")] {
        let (code, text) = alter_of(&mut node, client, kind, of, &[(&long, SET, "1")]);
        assert!(code != 0 && text.len() == 32_767, "{kind}: {code}, {} bytes", text.len());
    }
    let (code, text) = alter(&mut node, client, NODE, &[("message.max.bytes", APPEND, "1")]);
    assert!(code == INVALID_CONFIG && text.contains("message.max.bytes"), "{code} {text}");
    assert_eq!(alter(&mut node, client, "7", &[("message.max.bytes", SET, "1000")]).0, INVALID_REQUEST);
    assert_eq!(alter(&mut node, client, "one", &[("message.max.bytes", SET, "1000")]).0, INVALID_REQUEST);
    // What is not set can be taken away, whatever it is.
    assert_eq!(
        alter(&mut node, client, NODE, &[("mainstem.shards", DELETE, ""), ("no.such.setting", DELETE, "")]).0,
        0
    );
    assert_eq!(seen(&mut node, client, BROKER, NODE, "message.max.bytes").1, 5);
    assert!(describe(&mut node, client, BROKER, "", "").is_empty());
    node.stop();
}

#[test]
fn words_are_added_to_a_list_and_taken_out_of_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    let key = "log.cleanup.policy";
    assert_eq!(alter(&mut node, client, "", &[(key, APPEND, "compact")]).0, 0);
    assert_eq!(seen(&mut node, client, BROKER, NODE, key).0, "delete,compact");
    // Of those of the node itself, which has none of its own: of the default.
    assert_eq!(alter(&mut node, client, NODE, &[(key, SUBTRACT, "compact"), ("num.partitions", SET, "2")]).0, 0);
    assert_eq!(seen(&mut node, client, BROKER, NODE, key).0, "delete");
    node.stop();
}

#[test]
fn all_settings_are_shown_and_those_that_count_from_the_start_are_read_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    let all = describe(&mut node, client, BROKER, NODE, "");
    let of =
        |name: &str| all.iter().filter(|one| one.name.as_str() == name).map(|one| one.read_only).collect::<Vec<_>>();
    assert_eq!(
        (of("message.max.bytes"), of("mainstem.shards"), of("advertised.listeners")),
        (vec![false], vec![true], vec![true])
    );
    assert_eq!(all.len(), broker::BROKER.len());
    node.stop();
}

#[test]
fn of_those_who_are_known_administrators_change_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[("mainstem.password.iterations", "1000")]);
    let tags = Some(vec!["administrator".to_owned()]);
    node.broker()
        .put_user(UserWish { name: "CN=ann".to_owned(), password: PasswordWish::Remove, tags, limits: None })
        .expect("taken");
    let (ann, bob, anybody) = (node.connect(), node.connect(), node.connect());
    node.set_certified(ann, "CN=ann");
    node.set_certified(bob, "CN=bob");
    let login = [("mainstem.login.failures", SET, "0")];
    let (code, told) = alter(&mut node, bob, "", &login);
    assert_eq!(
        (code, told.as_str()),
        (ErrorCode::ClusterAuthorizationFailed.code(), "Only an administrator may change settings of brokers")
    );
    assert_eq!(
        replace(&mut node, bob, NODE, &[("num.partitions", "3")], true),
        ErrorCode::ClusterAuthorizationFailed.code()
    );
    assert_eq!(alter(&mut node, ann, "", &[("num.partitions", SET, "3")]).0, 0);
    // Groups are everybody's here, but not the one of all queues of all virtual hosts.
    let rules = [("mainstem.laggard.rules", SET, "lag>100 records 60KB/min")];
    assert_eq!(alter_of(&mut node, bob, GROUP, "readers", &rules).0, 0);
    assert_eq!(alter_of(&mut node, bob, GROUP, "amqp.queue", &rules).0, ErrorCode::GroupAuthorizationFailed.code());
    assert_eq!(alter_of(&mut node, ann, GROUP, "amqp.queue", &rules).0, 0);
    let by_anybody = |node: &mut Node, client| alter(node, client, "", &[("num.partitions", SET, "4")]).0;
    assert_eq!(
        by_anybody(&mut node, anybody),
        ErrorCode::ClusterAuthorizationFailed.code(),
        "there are users, and he is none"
    );
    node.broker().delete_user("CN=ann").expect("deleted");
    assert_eq!(by_anybody(&mut node, anybody), 0, "no user is defined");
    node.stop();
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[("mainstem.anonymous.clients", "loopback")]);
    node.broker()
        .put_user(UserWish { name: "CN=ann".to_owned(), password: PasswordWish::Remove, tags: None, limits: None })
        .expect("taken");
    let anybody = node.connect();
    assert_eq!(by_anybody(&mut node, anybody), 0, "the settings say so");
    node.stop();
}

/// Groups that are nowhere have settings as well: these take memory, however many are set.
#[test]
fn settings_of_groups_have_their_part_of_the_memory() {
    const SETTING: &str = "consumer.session.timeout.ms";
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    node.broker().bound_group_configs(50_000);
    let set = |node: &mut Node, number: usize| {
        alter_of(node, client, GROUP, &format!("g{number}"), &[(SETTING, SET, "50000")]).0
    };
    let taken = (0..100).take_while(|number| set(&mut node, *number) == 0).count();
    assert!((20..50).contains(&taken), "{taken}");
    let code = set(&mut node, taken);
    assert_eq!(code, kafka_wire::ErrorCode::PolicyViolation.code());
    assert_eq!(set(&mut node, 0), 0, "what there is stays as it is");
    assert!(node.broker().group_config_bytes() <= 50_000);
    // A long text is as much as many.
    let clients = "c".repeat(10_000);
    assert_eq!(alter_of(&mut node, client, GROUP, "g0", &[("mainstem.filter.client.ids", SET, &clients)]).0, code);
    assert_eq!(alter_of(&mut node, client, GROUP, "g0", &[(SETTING, DELETE, "")]).0, 0);
    assert_eq!(set(&mut node, taken), 0, "there is room again");
    for number in 1..=taken {
        assert_eq!(alter_of(&mut node, client, GROUP, &format!("g{number}"), &[(SETTING, DELETE, "")]).0, 0);
    }
    assert_eq!(node.broker().group_config_bytes(), 0);
    // So do groups that are made by giving them offsets.
    node.broker().groups().set_bytes_max(20_000);
    let made =
        (0..1000).take_while(|number| node.broker().make_share_group(&format!("share-{number}")).is_ok()).count();
    assert!((1..500).contains(&made), "{made}");
    node.stop();
}
