//! Expressions: what they match, how often names are matched, and that nobody waits for it.

use std::sync::mpsc::channel;

use delivery::{ConsumerHeartbeat, GroupError, Sight};
use types::{ConnectionId, Durability};
use uuid::Uuid;

use super::*;
use crate::groups::GroupTold;
use crate::jobs::NOBODY;
use crate::queues::testing::Node;
use crate::topic::{Topic, TopicConfig};
use crate::{Heard, Settings};

fn insert(catalog: &Catalog, name: &str) {
    let config = Arc::new(TopicConfig::new(Default::default(), &Settings::default(), Durability::Fsync));
    catalog.insert(Arc::new(Topic::new(TopicId(Uuid::new_v4()), name.to_owned(), Vec::new(), config)));
}

fn remove(catalog: &Catalog, name: &str) {
    catalog.remove(&catalog.by_name(name).expect("it is there"));
}

fn with_topics(names: impl Iterator<Item = String>) -> (Arc<Catalog>, Arc<Expressions>) {
    let catalog = Arc::new(Catalog::default());
    names.for_each(|name| insert(&catalog, &name));
    (Arc::clone(&catalog), Expressions::new(catalog))
}

/// Goes on until it is through; how many turns it took and how many names were matched.
fn match_now(expression: &TopicExpression, expressions: &Expressions, patience: Duration) -> (usize, usize) {
    let before = MATCHED.get();
    let naming = expressions.catalog.naming();
    let mut turns = 1;
    while expression.go_on(expressions, naming, Instant::now() + patience) == Turn::GoesOn {
        turns += 1;
    }
    (turns, MATCHED.get() - before)
}

const LONG: Duration = Duration::from_secs(3600);

#[test]
fn an_expression_matches_whole_names_and_is_bounded() {
    let matches = |text: &str, name: &str| Expression::compile(text).map(|expression| expression.is_match(name));
    assert_eq!(
        [matches("orders-[0-9]+", "orders-17"), matches("orders", "orders-17"), matches("a|b", "ab")],
        [Some(true), Some(false), Some(false)]
    );
    assert_eq!(matches(r"\w+-\d{1,20}", "orders-17"), Some(true));
    assert_eq!(
        [matches("a.b", "aéb"), matches(r"a\w", "aé")],
        [Some(true); 2],
        "a character is one, however many bytes it has"
    );
    assert_eq!([matches("(", ""), matches("a)(b", ""), matches("(?=a)b", "")], [None; 3]);
    // What people write: dozens of names.
    let names: Vec<String> = (0..70).map(|number| format!("a-topic-of-a-usual-length-{number}")).collect();
    assert_eq!(matches(&names.join("|"), &names[69]), Some(true));
    assert_eq!(matches(&"a|".repeat(EXPRESSION_TEXT_MAX), ""), None, "too long");
    assert_eq!(matches("(((a{900}){900}){900})", ""), None, "too large");
}

#[test]
fn names_are_matched_once_and_new_ones_alone_afterwards() {
    let (catalog, expressions) = with_topics((0..1000).map(|number| format!("topic-{number:04}")));
    let expression = expressions.expression("topic-.*|new");
    assert!(!expression.is_current());
    assert_eq!(match_now(&expression, &expressions, LONG), (1, 1000));
    let known = expression.known();
    assert_eq!((known.state, known.topics.len(), expression.is_current()), (MatchState::Known, 1000, true));
    assert_eq!(match_now(&expression, &expressions, LONG), (1, 0));
    insert(&catalog, "new");
    insert(&catalog, "other");
    remove(&catalog, "topic-0000");
    assert!(!expression.is_current());
    assert_eq!(match_now(&expression, &expressions, LONG), (1, 2));
    let topics = expression.known().topics;
    assert!(
        topics.len() == 1000 && topics.contains("new") && !topics.contains("topic-0000") && !topics.contains("other")
    );
    // What does not match changes nothing that groups would look at.
    let version = expression.version();
    insert(&catalog, "another");
    assert_eq!((match_now(&expression, &expressions, LONG), expression.version()), ((1, 1), version));
    // Nobody knows any more which have changed: those that are known to match are not matched again.
    (0..5000).for_each(|number| insert(&catalog, &format!("more-{number}")));
    assert_eq!(match_now(&expression, &expressions, LONG), (1, 5000 + 2));
    assert!(expression.is_current() && expression.version() == version);
}

#[test]
fn a_turn_ends_and_names_that_change_meanwhile_are_not_missed() {
    let (catalog, expressions) = with_topics((0..20).map(|number| format!("m-{number:02}")));
    let expression = expressions.expression("[a-z]-[0-9]+");
    let naming = catalog.naming();
    for turn in 0..10 {
        assert_eq!(expression.go_on(&expressions, naming, Instant::now()), Turn::GoesOn, "{turn}");
        assert_eq!(expression.known().state, MatchState::Unknown);
    }
    // Two before and behind where it is, and one of each goes.
    ["a-1", "z-1"].iter().for_each(|name| insert(&catalog, name));
    ["m-03", "m-15"].iter().for_each(|name| remove(&catalog, name));
    match_now(&expression, &expressions, Duration::ZERO);
    assert!(expression.is_current());
    let topics = expression.known().topics;
    let there: BTreeSet<String> = catalog.names_after(None, usize::MAX).into_iter().collect();
    assert!(*topics == there && there.len() == 20, "{topics:?}");
}

#[test]
fn what_matches_takes_memory_until_nobody_holds_it() {
    let (catalog, expressions) = with_topics((0..100).map(|number| format!("topic-{number:04}")));
    let names = 100 * (NAME + 10);
    expressions.set_bytes_max(names + names / 2);
    let all = expressions.expression(".*");
    match_now(&all, &expressions, LONG);
    assert_eq!((all.known().topics.len(), expressions.bytes.load(Ordering::Relaxed)), (100, names));
    let (half, more) = (expressions.expression("topic-00[0-4].*"), expressions.expression("topic-.*"));
    match_now(&half, &expressions, LONG);
    match_now(&more, &expressions, LONG);
    assert_eq!((half.known().state, more.known().state), (MatchState::Known, MatchState::NoMemory));
    // One that is known stays as it was, and is tried again.
    insert(&catalog, "topic-0100");
    match_now(&all, &expressions, LONG);
    assert!(all.known().topics.len() == 100 && !all.is_current());
    drop(half);
    match_now(&all, &expressions, LONG);
    assert!(all.known().topics.len() == 101 && all.is_current());
    assert!(Arc::ptr_eq(&all, &expressions.expression(".*")));
    drop((all, more));
    assert_eq!((expressions.bytes.load(Ordering::Relaxed), expressions.by_text.lock().len()), (0, 0));
}

#[test]
fn expressions_are_matched_while_the_groups_are_locked() {
    let node = Node::open(1);
    let threads = node.broker.start();
    (0..100).for_each(|number| insert(&node.broker.catalog, &format!("orders-{number}")));
    let joins = |regex: &str| ConsumerHeartbeat {
        member_id: "m".to_owned(),
        rebalance_timeout: Some(1000),
        regex: Some(regex.to_owned()),
        owned: Some(Vec::new()),
        ..ConsumerHeartbeat::default()
    };
    let to = journal::ReplyTo { connection: ConnectionId(1), ..NOBODY };
    for (regex, outcome) in [("orders-.*", Ok(100)), ("(", Err(GroupError::InvalidRegex))] {
        let beat = joins(regex);
        let matching = node.broker.unmatched("g", &beat).expect("it was never matched");
        {
            let _locked = node.broker.groups().state.lock();
            let (done, is_done) = channel();
            let mut work = matching.work(Arc::default());
            assert!(node.broker.unpack(
                "127.0.0.1".parse().expect("an address"),
                NOBODY,
                Box::new(move |broker| {
                    let outcome = work(broker);
                    outcome.is_some().then(|| done.send(()).expect("somebody waits"));
                    outcome
                })
            ));
            is_done.recv_timeout(Duration::from_secs(30)).expect("it is done while the groups are locked");
        }
        assert!(node.broker.unmatched("g", &beat).is_none(), "all is known");
        assert_eq!(matching.expressions[0].known().topics.len(), outcome.unwrap_or(0));
        let before = MATCHED.get();
        match (node.broker.consumer_heartbeat("g", &beat, Sight::ALL, to), outcome) {
            (GroupTold::Now(Heard::Heartbeat(told)), Err(error)) => assert_eq!(told, Err(error)),
            (GroupTold::Later, Ok(_)) => {}
            (GroupTold::Now(heard), _) => panic!("{heard:?}"),
            (GroupTold::Later, Err(_)) => panic!("it was taken"),
        }
        assert_eq!(MATCHED.get(), before, "a group matches nothing itself");
    }
    node.broker.shutdown();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    node.close();
}

#[test]
fn nothing_is_matched_for_who_is_gone() {
    let (_catalog, expressions) = with_topics((0..100).map(|number| format!("orders-{number}")));
    let matching = expressions.matching(&[expressions.matches(".*")]).expect("the table is there");
    let node = Node::open(1);
    let before = MATCHED.get();
    assert!(matching.work(Arc::new(AtomicBool::new(true)))(&node.broker).is_some());
    assert_eq!((MATCHED.get(), matching.expressions[0].known().state), (before, MatchState::Unknown));
    node.close();
}
