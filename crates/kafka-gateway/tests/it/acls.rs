//! Access control entries on sessions: they count with the next request, in fetch sessions too, whoever asks and whatever was remembered.

use broker::{
    ANONYMOUS, Acl, AclError, AclFilter, AclOperation, AclPattern, AclPermission, AclResource, PasswordWish, UserWish,
    WILDCARD,
};
use kafka_wire::ErrorCode;
use kafka_wire::create_acls::{AclCreation, CreateAclsRequest, CreateAclsResponse};
use kafka_wire::fetch::FetchRequest;
use kafka_wire::incremental_alter_configs::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};

use crate::node::{Node, batch, flexible, partitions, wants, wants_news};

const AUTHORIZER: (&str, &str) = ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer");
const DENIED: i16 = ErrorCode::TopicAuthorizationFailed.code();

fn entry(permission: AclPermission, operation: AclOperation, topic: &str) -> Acl {
    Acl {
        resource: AclResource::Topic,
        name: topic.to_owned(),
        pattern: AclPattern::Literal,
        principal: ANONYMOUS.to_owned(),
        host: WILDCARD.to_owned(),
        operation,
        permission,
    }
}

fn give(node: &Node, permission: AclPermission, operation: AclOperation, topic: &str) {
    let made = node.broker().create_acls(vec![entry(permission, operation, topic)]);
    assert_eq!(made, [Ok(())]);
}

fn in_session(request: FetchRequest, id: i32, epoch: i32) -> FetchRequest {
    FetchRequest { session_id: id, session_epoch: epoch, ..request }
}

#[test]
fn an_entry_counts_with_the_next_request() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[AUTHORIZER]);
    let client = node.connect();
    give(&node, AclPermission::Allow, AclOperation::Create, "t");
    node.create_topic(client, "t", 1);
    assert_eq!(node.produce(client, "t", 0, batch(1)).0, DENIED);
    give(&node, AclPermission::Allow, AclOperation::Write, "t");
    assert_eq!(node.produce(client, "t", 0, batch(1)), (0, 0));
    give(&node, AclPermission::Deny, AclOperation::Write, "t");
    assert_eq!(node.produce(client, "t", 0, batch(1)).0, DENIED);
    let denied = AclFilter { permission: Some(AclPermission::Deny), ..AclFilter::default() };
    let removed = node
        .broker()
        .delete_acls(&[denied, AclFilter { operation: Some(AclOperation::Alter), ..AclFilter::default() }])
        .expect("durable");
    assert_eq!(removed.iter().map(Vec::len).collect::<Vec<_>>(), [1, 0]);
    assert_eq!(node.produce(client, "t", 0, batch(1)), (0, 1));
    // Of another listener's client that says who it is nothing is known; here nobody does.
    assert_eq!(node.broker().security().acls(&AclFilter::default()).len(), 2);
    node.stop();
    let node = Node::start(folder.path(), &[AUTHORIZER]);
    assert_eq!(node.broker().security().acls(&AclFilter::default()).len(), 2, "they are there after a restart");
    node.stop();
}

/// One commit of a request's entries is what all others wait for, so that Kafka takes 10,000 of them at most, and all or none.
#[test]
fn a_request_creates_and_removes_ten_thousand_entries_and_no_more() {
    const MOST: usize = 10_000;
    const CREATE_ACLS: (i16, i16) = (30, 3);
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[AUTHORIZER, ("super.users", ANONYMOUS)]);
    let client = node.connect();
    let mut create = |names: std::ops::Range<usize>| {
        let creation = |at: usize| AclCreation {
            resource_type: AclResource::Topic.number() as i8,
            resource_name: format!("t{at}").into(),
            resource_pattern_type: AclPattern::Literal.number() as i8,
            principal: "User:a".into(),
            host: "*".into(),
            operation: AclOperation::Read.number() as i8,
            permission_type: AclPermission::Allow.number() as i8,
            ..Default::default()
        };
        let count = names.len();
        let request = CreateAclsRequest { creations: names.map(creation).collect(), ..Default::default() };
        node.send(client, CREATE_ACLS, 1, |writer| request.encode(writer, CREATE_ACLS.1)).expect("taken");
        let (_, body) = node.answer(client);
        let mut reader = flexible(CREATE_ACLS, body);
        let mut codes: Vec<i16> = CreateAclsResponse::decode(&mut reader, CREATE_ACLS.1)
            .expect("an answer")
            .results
            .iter()
            .map(|result| result.error_code)
            .collect();
        assert_eq!(codes.len(), count);
        codes.dedup();
        (codes, node.broker().security().acls(&AclFilter::default()).len())
    };
    assert_eq!(create(0..MOST + 1), (vec![ErrorCode::PolicyViolation.code()], 0), "none of them is made");
    assert_eq!(create(0..MOST), (vec![0], MOST));
    assert_eq!(create(0..MOST + 5), (vec![0], MOST + 5), "those that are there do not count");
    let all = node.broker().delete_acls(&[AclFilter::default()]);
    assert_eq!(all, Err(AclError::TooManyRemoved));
    let (even, odd): (Vec<usize>, Vec<usize>) = (0..MOST + 5).partition(|at| at % 2 == 0);
    for names in [even, odd] {
        let named = |at| AclFilter { name: Some(format!("t{at}")), ..AclFilter::default() };
        let filters: Vec<AclFilter> = names.into_iter().map(named).collect();
        node.broker().delete_acls(&filters).expect("so many may be removed");
    }
    assert_eq!(node.broker().security().acls(&AclFilter::default()), []);
    node.stop();
}

#[test]
fn a_fetch_session_gives_what_may_be_read_now() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[AUTHORIZER, ("allow.everyone.if.no.acl.found", "true")]);
    let client = node.connect();
    node.create_topic(client, "t", 2);
    node.produce(client, "t", 0, batch(1));
    let first = node.fetch(client, &in_session(wants("t", &[(0, 0), (1, 0)]), 0, 0));
    assert_eq!(partitions(&first).iter().map(|(_, code, _)| *code).collect::<Vec<_>>(), [0, 0]);
    give(&node, AclPermission::Deny, AclOperation::Read, "t");
    let denied = node.fetch(client, &in_session(wants_news(), first.session_id, 1));
    let mut told = partitions(&denied);
    told.sort_unstable();
    assert_eq!(told, [(0, DENIED, 0), (1, DENIED, 0)]);
    // Somebody else goes on with the session: what he may counts.
    let removed = node.broker().delete_acls(&[AclFilter::default()]).expect("durable");
    assert_eq!(removed[0].len(), 1);
    let other = node.connect();
    let again = node.fetch(other, &in_session(wants_news(), first.session_id, 2));
    assert!(
        partitions(&again).iter().any(|(partition, code, bytes)| (*partition, *code) == (0, 0) && *bytes > 0),
        "{:?}",
        partitions(&again)
    );
    node.stop();
}

const ALTER_CONFIGS: (i16, i16) = (44, 1);
const GROUP: i8 = 32;

/// What comes of naming a topic for a group's dead letters.
fn name_letters(node: &mut Node, client: usize, topic: &str) -> i16 {
    let config = AlterableConfig {
        name: "mainstem.share.dead.letter.topic".into(),
        value: Some(topic.into()),
        ..Default::default()
    };
    let group = AlterConfigsResource {
        resource_type: GROUP,
        resource_name: "g".into(),
        configs: vec![config],
        ..Default::default()
    };
    let request = IncrementalAlterConfigsRequest { resources: vec![group], ..Default::default() };
    node.send(client, ALTER_CONFIGS, 1, |writer| request.encode(writer, ALTER_CONFIGS.1)).expect("taken");
    let (_, body) = node.answer(client);
    let response = IncrementalAlterConfigsResponse::decode(&mut flexible(ALTER_CONFIGS, body), ALTER_CONFIGS.1)
        .expect("an answer");
    response.responses[0].error_code
}

#[test]
fn who_names_a_topic_for_dead_letters_may_write_it_or_create_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[AUTHORIZER]);
    let client = node.connect();
    let group = Acl { resource: AclResource::Group, ..entry(AclPermission::Allow, AclOperation::AlterConfigs, "g") };
    assert_eq!(node.broker().create_acls(vec![group]), [Ok(())]);
    give(&node, AclPermission::Allow, AclOperation::Create, "there");
    node.create_topic(client, "there", 1);
    assert_eq!(name_letters(&mut node, client, "there"), DENIED);
    give(&node, AclPermission::Allow, AclOperation::Write, "there");
    assert_eq!(name_letters(&mut node, client, "there"), 0);
    give(&node, AclPermission::Allow, AclOperation::Write, "missing");
    assert_eq!(name_letters(&mut node, client, "missing"), DENIED);
    give(&node, AclPermission::Allow, AclOperation::Create, "missing");
    assert_eq!(name_letters(&mut node, client, "missing"), 0);
    assert_eq!(name_letters(&mut node, client, ""), 0, "nowhere");
    node.stop();
}

#[test]
fn without_an_authorizer_entries_are_kept_and_do_not_count() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Node::start(folder.path(), &[]);
    let client = node.connect();
    node.create_topic(client, "t", 1);
    give(&node, AclPermission::Deny, AclOperation::All, "t");
    assert_eq!(node.produce(client, "t", 0, batch(1)), (0, 0));
    node.stop();
}

#[test]
fn a_certificate_names_who_asks() {
    let folder = tempfile::tempdir().expect("a folder");
    let rules = ("ssl.principal.mapping.rules", "RULE:^CN=([a-z]+),O=us$/$1/");
    let mut node = Node::start(folder.path(), &[AUTHORIZER, rules, ("mainstem.password.iterations", "1000")]);
    let tags = Some(vec!["administrator".to_owned()]);
    node.broker()
        .put_user(UserWish { name: "ann".to_owned(), password: PasswordWish::Remove, tags, limits: None })
        .expect("taken");
    let administrator = node.connect();
    node.set_certified(administrator, "CN=ann,O=us");
    node.create_topic(administrator, "t", 1);
    let client = node.connect();
    node.set_certified(client, "CN=bob,O=us");
    assert_eq!(node.produce(client, "t", 0, batch(1)).0, DENIED);
    let made = node.broker().create_acls(vec![Acl {
        principal: "User:bob".to_owned(),
        ..entry(AclPermission::Allow, AclOperation::Write, "t")
    }]);
    assert_eq!(made, [Ok(())]);
    assert_eq!(node.produce(client, "t", 0, batch(1)), (0, 0));
    let stranger = node.connect();
    node.set_certified(stranger, "CN=bob,O=them");
    assert!(!node.session(stranger).wants_read());
    let reason = node.refusal(stranger).expect("it ends");
    assert!(reason.to_string().contains("ssl.principal.mapping.rules"), "{reason}");
    let (here, elsewhere) = (node.connect(), node.connect_from("192.0.2.1:7", None));
    for client in [here, elsewhere] {
        node.set_certified(client, "CN=guest,O=us");
    }
    assert!(node.session(here).wants_read() && !node.session(elsewhere).wants_read());
    let reason = node.refusal(elsewhere).expect("it ends");
    assert!(reason.to_string().contains("only connect from the broker's machine"), "{reason}");
    node.stop();
}

#[test]
fn the_table_says_of_each_api_what_it_needs() {
    let decisions = include_str!("../../../../docs/adr/0021-acls.md");
    let rows: Vec<&str> =
        decisions.lines().filter(|line| line.starts_with("| ")).filter_map(|line| line.split('|').nth(1)).collect();
    let words =
        |row: &&str| row.split(|letter: char| !letter.is_ascii_alphanumeric()).map(str::to_owned).collect::<Vec<_>>();
    let named: Vec<String> = rows.iter().flat_map(words).collect();
    let without: Vec<&str> = kafka_gateway::apis()
        .iter()
        .map(|api| api.key().name)
        .filter(|name| !named.iter().any(|word| word == name))
        .collect();
    assert!(without.is_empty(), "{without:?}");
}
