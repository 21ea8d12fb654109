//! How many patterns a change asks, and that queues and exchanges have the policies that they should, however changes and pieces of walks come between each
//! other.

use std::collections::BTreeMap;

use routing::Declaration;
use serde_json::json;
use types::{ConnectionId, ShardId};

use super::*;
use crate::change_batch::ChangeBatch;
use crate::mailbox::{Event, Mailbox};
use crate::queues::policies::tests::{costs, questions, wish};
use crate::queues::testing::{Node, arguments, name};
use crate::queues::{Caller, Gathering, QueueDeclaration};
use crate::security::Principal;

const USER: PolicyScope = PolicyScope::User;

fn made(policy: &str, scope: PolicyScope, pattern: &str, length: u64, priority: i64) -> Arc<Policy> {
    Arc::new(
        Policy::new(policy, &wish(pattern, json!({"max-length": length}), priority, "queues"), scope)
            .expect("a policy"),
    )
}

/// Declares a queue that nothing is written of.
fn declare(node: &Node, queue: &str) -> Arc<Queue> {
    let wish = QueueDeclaration {
        name: name(queue),
        durable: false,
        owner: None,
        auto_delete: false,
        arguments: arguments(&[]),
    };
    node.broker.declare_queue(&node.vhost(), wish, &Caller::broker(ConnectionId(1))).expect("declared")
}

fn settle(node: &Node) {
    assert!(node.broker.walk_on(&node.vhost(), || true));
}

/// Goes on for so many.
fn steps(mut count: u64) -> impl FnMut() -> bool {
    move || {
        let goes_on = count > 0;
        count = count.saturating_sub(1);
        goes_on
    }
}

/// How many patterns are asked to apply a change.
fn asked(node: &Node, change: impl FnOnce(&Policies)) -> usize {
    questions();
    change(node.vhost().policies());
    settle(node);
    questions()
}

#[test]
fn a_change_asks_only_for_queues_that_it_may_affect() {
    let node = Node::open(1);
    const QUEUES: usize = 100;
    let queues: Vec<_> = (0..QUEUES).map(|number| declare(&node, &format!("q{number}"))).collect();
    let policies = |wanted: &str| queues.iter().filter(|queue| queue.policy().as_deref() == Some(wanted)).count();
    for number in 0..20 {
        let other = made(&format!("other-{number}"), USER, &format!("^other-{number}"), 1, 9);
        assert_eq!(asked(&node, |all| all.set(USER, other)), QUEUES, "each queue may have it");
    }
    assert_eq!(asked(&node, |all| all.set(USER, made("all", USER, ".*", 1, 0))), QUEUES);
    assert_eq!(
        asked(&node, |all| all.set(USER, made("low", USER, ".*", 1, -1))),
        0,
        "all have one that goes before it"
    );
    assert_eq!(asked(&node, |all| all.unset(USER, "low")), 0, "nobody has it");
    assert_eq!(asked(&node, |all| all.set(USER, made("one", USER, "^q1$", 1, 5))), QUEUES);
    assert_eq!((policies("one"), policies("all")), (1, QUEUES - 1));
    assert_eq!(asked(&node, |all| all.unset(USER, "one")), 1, "one queue has it, and one policy is behind it");
    assert_eq!(asked(&node, |all| all.set(USER, made("all", USER, "[02468]$", 1, 0))), QUEUES, "all had it");
    assert_eq!(policies("all"), QUEUES / 2);
    assert_eq!(asked(&node, |all| all.set(USER, made("all", USER, "[02468]$", 2, 10))), QUEUES);
    assert_eq!(policies("all"), QUEUES / 2);
    assert_eq!(
        asked(&node, |all| all.unset(USER, "all")),
        QUEUES / 2 * 20,
        "the policies behind it, for those that had it"
    );
    assert_eq!((policies("all"), policies("one")), (0, 0));
    node.close();
}

#[test]
fn definitions_in_pieces_ask_each_policy_once_for_a_queue() {
    const QUEUES: usize = 50;
    const PIECES: usize = 10;
    let node = Node::open(1);
    let (broker, vhost) = (&node.broker, node.vhost());
    let queues: Vec<_> = (0..QUEUES).map(|number| declare(&node, &format!("q{number}"))).collect();
    questions();
    for piece in 0..PIECES {
        let mut batch = ChangeBatch::default();
        for number in 0..10 {
            let pattern = format!("^q{piece}{number}$");
            let planned = batch.put_policy(
                broker,
                &vhost,
                USER,
                &pattern,
                &wish(&pattern, json!({"max-length": piece}), 0, "all"),
            );
            assert!(matches!(planned, Ok(Gathering::Later)));
        }
        assert!(batch.write(broker).iter().all(Result::is_ok));
    }
    settle(&node);
    let asked = questions();
    assert!(asked <= QUEUES * PIECES * 10, "{asked} patterns");
    assert!(queues.iter().all(|queue| queue.policy().is_none_or(|policy| policy == format!("^{}$", queue.name()))));
    assert_eq!(queues.iter().filter(|queue| queue.policy().is_some()).count(), QUEUES - 10, "q0 to q9 have none");
    node.close();
}

#[test]
fn what_no_name_begins_with_runs_no_expression() {
    for (pattern, prefix) in [("^shop\\.", "shop."), ("^shop$", "shop"), ("shop", ""), ("(?i)^shop", ""), ("^a|^b", "")]
    {
        assert_eq!(&*super::super::policy_rights::prefix_of(pattern), prefix, "{pattern}");
    }
}

/// Numbers that look random and come again with the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

/// What policies should come to: each policy with its priority, its pattern, and the limit or the exchange that it names.
#[derive(Default)]
struct Model([BTreeMap<String, (i64, &'static str, u64)>; 2]);

const PATTERNS: [&str; 8] = ["", "^a", "^b", "1$", "^a1$", "2", "^(a|c)", "^z"];

impl Model {
    /// All that match, judged one by one.
    fn best(&self, scope: usize, name: &str) -> Option<(String, u64)> {
        let matches =
            |pattern: &str| fancy_regex::Regex::new(pattern).is_ok_and(|regex| regex.is_match(name).unwrap_or(false));
        let mut all: Vec<_> = self.0[scope].iter().filter(|(_, (_, pattern, _))| matches(pattern)).collect();
        all.sort_by(|(one, (first, ..)), (other, (second, ..))| second.cmp(first).then(one.cmp(other)));
        all.first().map(|(policy, (.., length))| ((*policy).clone(), *length))
    }

    fn check(&self, vhost: &Vhost, seed: u64) {
        for queue in vhost.queues() {
            let (queue_name, found) = (queue.name().to_string(), queue.policies());
            let wanted = [0, 1].map(|scope| self.best(scope, &queue_name));
            let names = [found.policy, found.operator].map(|policy| policy.map(|policy| policy.name().to_owned()));
            assert_eq!(names, wanted.clone().map(|one| one.map(|(policy, _)| policy)), "{queue_name}, seed {seed}");
            let least = wanted.iter().flatten().map(|(_, length)| *length).min();
            assert_eq!(queue.understood().length_max, least, "{queue_name}, seed {seed}");
        }
        let table = vhost.exchanges().read();
        for exchange in table.exchanges().filter(|exchange| exchange.name().starts_with(b"x-")) {
            let wanted = self.best(0, &exchange.name().to_string()).map(|(_, length)| format!("to-{length}"));
            assert_eq!(exchange.alternate().map(ToString::to_string), wanted, "{}, seed {seed}", exchange.name());
        }
    }
}

/// One step of a history, chosen at random.
fn step(node: &Node, random: &mut Random, model: &mut Model) {
    let (vhost, queue) = (node.vhost(), format!("{}{}", random.one(&["a", "b", "c", "z"]), random.below(4)));
    let (scope, policy) = (random.below(2) as usize, format!("p{}", random.below(6)));
    match random.below(12) {
        0..=2 => {
            let (priority, pattern, length) = (random.below(4) as i64, random.one(&PATTERNS), random.below(9));
            let definition = match scope {
                0 => json!({"max-length": length, "alternate-exchange": format!("to-{length}")}),
                _ => json!({"max-length": length}),
            };
            let made = Policy::new(&policy, &wish(pattern, definition, priority, "all"), PolicyScope::BOTH[scope])
                .expect("a policy");
            vhost.policies().set(PolicyScope::BOTH[scope], Arc::new(made));
            model.0[scope].insert(policy, (priority, pattern, length));
        }
        3 => {
            vhost.policies().unset(PolicyScope::BOTH[scope], &policy);
            model.0[scope].remove(&policy);
        }
        4 | 5 => drop(declare(node, &queue)),
        6 => {
            if let Some(queue) = vhost.queue(queue.as_bytes()) {
                node.broker.delete_queue(&queue, false, false).expect("deleted");
            }
        }
        7 => {
            let declaration = Declaration {
                name: name(&format!("x-{queue}")),
                kind: b"fanout",
                durable: false,
                auto_delete: false,
                internal: false,
                arguments: arguments(&[]),
            };
            node.broker.declare_exchange(&vhost, declaration, &Principal::broker()).expect("declared");
        }
        8 => drop(node.broker.delete_exchange(&vhost, format!("x-{queue}").as_bytes(), false, &Principal::broker())),
        _ => drop(node.broker.walk_on(&vhost, steps(random.below(12)))),
    }
}

#[test]
fn changes_between_the_pieces_of_walks_come_to_what_they_should() {
    for seed in 1..=60 {
        let (node, mut random, mut model) =
            (Node::open(1), Random(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed)), Model::default());
        for _ in 0..12 {
            for _ in 0..random.below(40) {
                step(&node, &mut random, &mut model);
            }
            // What is declared now has at once what counts, whatever is still to be applied.
            let new = declare(&node, "a-new");
            assert_eq!(new.policy(), model.best(0, "a-new").map(|(policy, _)| policy), "seed {seed}");
            if random.below(2) == 0 {
                settle(&node);
                model.check(&node.vhost(), seed);
            }
            node.broker.delete_queue(&new, false, false).expect("deleted");
        }
        node.close();
    }
}

#[test]
fn a_start_applies_what_the_end_before_it_left() {
    let node = Node::open(1);
    let before = ["a", "b"].map(|queue| node.queue(queue, arguments(&[])));
    node.vhost().policies().set(USER, made("first", USER, "^a", 3, 0));
    // A walk is under way: what follows waits for it.
    assert!(!node.broker.walk_on(&node.vhost(), steps(1)));
    let second = wish("^b", json!({"max-length": 5}), 0, "all");
    node.broker.put_policy(&node.vhost(), USER, "second", &second).expect("put");
    assert_eq!(before[1].understood().length_max, None, "not applied");
    assert!(!node.vhost().policies().wait_until_applied(Duration::ZERO));
    let node = node.restart();
    let length = |queue: &[u8]| node.vhost().queue(queue).expect("it is there").understood().length_max;
    assert_eq!((length(b"a"), length(b"b")), (None, Some(5)), "the first was not on the disk");
    assert!(node.vhost().policies().wait_until_applied(Duration::ZERO));
    node.close();
}

#[test]
fn who_waits_hears_when_all_is_applied_and_when_the_broker_ends() {
    let node = Node::open(1);
    let vhost = node.vhost();
    let queues = ["a", "b", "c"].map(|queue| declare(&node, queue));
    vhost.policies().set(USER, made("first", USER, "", 3, 0));
    assert!(!node.broker.walk_on(&vhost, steps(2)));
    assert!(!vhost.policies().wait_until_applied(Duration::ZERO));
    settle(&node);
    assert!(vhost.policies().wait_until_applied(Duration::ZERO));
    assert!(queues.iter().all(|queue| queue.understood().length_max == Some(3)));
    vhost.policies().set(USER, made("second", USER, "", 4, 1));
    assert!(!node.broker.walk_on(&vhost, steps(1)));
    node.broker.shutdown();
    node.broker.apply_policies(&vhost);
    assert!(!vhost.policies().wait_until_applied(Duration::from_secs(3600)), "nobody applies it any more");
    node.close();
}

#[test]
fn a_walk_through_a_virtual_host_that_is_deleted_is_over() {
    let node = Node::open(1);
    let vhost = node.broker.vhosts().or_new("gone");
    vhost.policies().set(USER, made("first", USER, "", 3, 0));
    vhost.set_deleted(true);
    assert!(node.broker.walk_on(&vhost, || true));
    assert!(vhost.policies().wait_until_applied(Duration::ZERO));
    node.close();
}

/// Steps back, and so costs as much as a pattern can; matches names that begin with `x`.
const SLOW: &str = r"^(?!y)x(.)\1?";

#[test]
fn patterns_that_take_long_are_asked_in_pieces() {
    const PIECE: usize = 400;
    let node = Node::open(1);
    let vhost = node.vhost();
    let with = |name: &str, definition: serde_json::Value, priority| {
        Arc::new(Policy::new(name, &wish(SLOW, definition, priority, "all"), USER).expect("a policy"))
    };
    let before: Vec<_> = (0..20).map(|number| declare(&node, &format!("x{number}"))).collect();
    for number in 0..50 {
        // None of them is for `q` or `x`.
        vhost.policies.set(
            USER,
            Arc::new(
                Policy::new(&format!("p{number}"), &wish(r"^(?!y)z(.)\1?", json!({"max-length": 1}), 9, "all"), USER)
                    .expect("a policy"),
            ),
        );
    }
    vhost.policies.set(USER, with("last", json!({"max-length": 7, "alternate-exchange": "amq.fanout"}), 1));
    assert!(vhost.policies.all(USER).iter().all(|policy| policy.cost() == PIECE / 2));

    // A walk that applies them to what is there.
    costs();
    let mut pieces = 0;
    while !node.broker.walk_on(&vhost, steps(1)) {
        let cost = costs();
        assert!(cost <= PIECE, "{cost} in one piece");
        pieces += 1;
    }
    assert!(pieces > 20 * 5, "{pieces} pieces for 20 queues");
    assert!(before.iter().all(|queue| queue.policy().as_deref() == Some("last")));

    // A declaration asks no more than one piece, and the others by and by.
    let new = declare(&node, "x-new");
    let cost = costs();
    assert!(cost <= PIECE, "{cost} for a declaration");
    assert_eq!(new.policy(), None);
    let exchange = |name: &'static str| Declaration {
        name: self::name(name),
        kind: b"fanout",
        durable: false,
        auto_delete: false,
        internal: false,
        arguments: arguments(&[]),
    };
    node.broker.declare_exchange(&vhost, exchange("x-exchange"), &Principal::broker()).expect("declared");
    let cost = costs();
    assert!(cost <= PIECE, "{cost} for a declaration");
    settle(&node);
    assert_eq!(new.policy().as_deref(), Some("last"));
    let alternate =
        |name: &str| vhost.exchanges.read().exchange(name.as_bytes()).expect("it is there").alternate().cloned();
    assert_eq!(alternate("x-exchange"), Some(name("amq.fanout")));

    // A change meanwhile begins the search anew.
    let other = declare(&node, "x-other");
    assert!(!node.broker.walk_on(&vhost, steps(2)));
    vhost.policies.set(USER, with("first", json!({"max-length": 3}), 99));
    vhost.policies.unset(USER, "last");
    settle(&node);
    assert!(before.iter().chain([&new, &other]).all(|queue| queue.policy().as_deref() == Some("first")));
    assert_eq!(alternate("x-exchange"), None);

    // Beside many that take no time.
    (0..300).for_each(|number| {
        vhost.policies.set(USER, made(&format!("quick{number}"), USER, &format!("^{number}$|^o$"), 5, -number))
    });
    let found = declare(&node, "o");
    settle(&node);
    assert_eq!(found.policy().as_deref(), Some("quick0"));
    node.close();
}

#[test]
fn a_declaration_is_answered_when_all_policies_are_in_force() {
    let node = Node::open(1);
    let (broker, vhost) = (&node.broker, node.vhost());
    let mailbox = Arc::new(Mailbox::new(Box::new(|| {})));
    broker.add_shard(ShardId(0), Arc::clone(&mailbox));
    let to = |token| ReplyTo { shard: ShardId(0), connection: ConnectionId(1), token };
    let answered = || {
        let mut events = Vec::new();
        mailbox.drain(&mut events);
        let token = |event| if let Event::Reply { to, reply: Reply::Done(_) } = event { Some(to.token) } else { None };
        events.into_iter().filter_map(token).collect::<Vec<_>>()
    };
    let slow = |name: &str, definition, priority| {
        vhost
            .policies
            .set(USER, Arc::new(Policy::new(name, &wish(SLOW, definition, priority, "all"), USER).expect("a policy")))
    };
    let none = || Vec::<u64>::new();

    // Few are asked at once.
    slow("last", json!({"max-length": 7, "alternate-exchange": "amq.fanout"}), 1);
    settle(&node);
    declare(&node, "x-first");
    broker.reply_of_controller(to(1), Reply::Done(Box::new(())));
    assert_eq!(answered(), [1]);

    for number in 0..50 {
        vhost.policies.set(
            USER,
            Arc::new(
                Policy::new(&format!("p{number}"), &wish(r"^(?!y)z(.)\1?", json!({"max-length": 1}), 9, "all"), USER)
                    .expect("a policy"),
            ),
        );
    }
    settle(&node);
    let queue = declare(&node, "x-queue");
    broker.reply_of_controller(to(2), Reply::Done(Box::new(())));
    let exchange = || Declaration {
        name: name("x-exchange"),
        kind: b"fanout",
        durable: false,
        auto_delete: false,
        internal: false,
        arguments: arguments(&[]),
    };
    let declare_exchange = || broker.declare_exchange(&vhost, exchange(), &Principal::broker()).expect("declared");
    declare_exchange();
    broker.reply_of_controller(to(3), Reply::Done(Box::new(())));
    // Other jobs are answered, and who declares the same hears no earlier.
    broker.reply_of_controller(to(4), Reply::Done(Box::new(())));
    assert_eq!(answered(), [4]);
    declare(&node, "x-queue");
    broker.reply_of_controller(to(5), Reply::Done(Box::new(())));
    declare_exchange();
    broker.reply_of_controller(to(6), Reply::Done(Box::new(())));
    declare(&node, "x-first");
    broker.reply_of_controller(to(7), Reply::Done(Box::new(())));
    assert_eq!((answered(), queue.policy()), (vec![7], None));
    assert!(!vhost.policies().wait_until_applied(Duration::ZERO));
    while queue.policy().is_none() {
        assert_eq!(answered(), none());
        broker.walk_on(&vhost, steps(1));
    }
    assert_eq!((answered(), queue.policy().as_deref()), (vec![2, 5], Some("last")));
    settle(&node);
    assert_eq!(answered(), [3, 6]);
    assert_eq!(
        vhost.exchanges.read().exchange(b"x-exchange").expect("it is there").alternate(),
        Some(&name("amq.fanout"))
    );
    assert!(vhost.policies().wait_until_applied(Duration::ZERO));

    // A queue that is gone, and a broker that ends.
    let gone = declare(&node, "x-gone");
    broker.reply_of_controller(to(8), Reply::Done(Box::new(())));
    broker.delete_queue(&gone, false, false).expect("deleted");
    assert_eq!(answered(), none());
    settle(&node);
    assert_eq!(answered(), [8]);
    declare(&node, "x-left");
    broker.reply_of_controller(to(9), Reply::Done(Box::new(())));
    assert_eq!(answered(), none());
    broker.shutdown();
    broker.walk_piece();
    declare(&node, "x-late");
    broker.reply_of_controller(to(10), Reply::Done(Box::new(())));
    assert_eq!(answered(), [9, 10]);
    node.close();
}
