//! Topic patterns beside a matcher that is right by looking at it.

use std::time::{Duration, Instant};

use routing::{Arguments, KEY_BYTES_MAX, NoHeaders, STEPS_MAX, Scratch, Table, TooFar};

use crate::random::Random;
use crate::{add_queues, bind, declare, queue, route, string};

fn words(key: &str) -> Vec<&str> {
    if key.is_empty() { Vec::new() } else { key.split('.').collect() }
}

/// Tries everything that `#` can stand for.
fn matches(pattern: &[&str], key: &[&str]) -> bool {
    match (pattern, key) {
        ([], []) => true,
        (["#", rest @ ..], _) => (0..=key.len()).any(|taken| matches(rest, &key[taken..])),
        ([word, rest @ ..], [first, others @ ..]) => (*word == "*" || word == first) && matches(rest, others),
        _ => false,
    }
}

pub fn naive(pattern: &str, key: &str) -> bool {
    matches(&words(pattern), &words(key))
}

fn check(pattern: &str, yes: &[&str], no: &[&str]) {
    let mut table = Table::new();
    add_queues(&mut table, 1);
    bind(&mut table, "amq.topic", queue(0), pattern);
    for key in yes {
        assert_eq!(route(&table, "amq.topic", &[key]), [0], "{pattern:?} matches {key:?}");
    }
    for key in no {
        assert_eq!(route(&table, "amq.topic", &[key]), [] as [u64; 0], "{pattern:?} does not match {key:?}");
    }
}

#[test]
fn words_and_empty_words() {
    check("", &[""], &[".", "a"]);
    check("#", &["", ".", "a", "a.b..c"], &[]);
    check("*", &["a", "*", "#", "ab"], &["", ".", "a.b"]);
    check("a..b", &["a..b"], &["a.b", "a...b"]);
    check("a.*.b", &["a..b", "a.x.b"], &["a.b", "a.x.y.b"]);
    check(".", &["."], &["", "..", "a"]);
    check("*.*", &[".", "a.b"], &["", "a", "a.b.c"]);
    check("#.#", &["", "a", "a.b.c", "."], &[]);
    check("#.*.#", &["a", ".", "a.b.c"], &[""]);
    check("#.a", &["a", "b.a", ".a", "a.a"], &["", "a.b"]);
    check("a.#.#.b", &["a.b", "a.x.b", "a.b.b"], &["a", "b", "a.b.c"]);
    check("a*.#b", &["a*.#b"], &["ax.b", "a*.b"]);
    check(&".".repeat(255), &[&".".repeat(255)], &[&".".repeat(254)]);
}

#[test]
fn many_patterns_match_what_each_of_them_matches() {
    let mut random = Random(7);
    let alphabet = ["a", "b", "c", "", "*", "#", "#", "long word that is no word of the others"];
    for round in 0..1_500 {
        let mut table = Table::new();
        declare(&mut table, "x", "topic").unwrap();
        let key = |random: &mut Random, wild: bool| {
            let count = random.below(6);
            let words: Vec<_> =
                (0..count).map(|_| *random.pick(if wild { &alphabet } else { &alphabet[..5] })).collect();
            words.join(".")
        };
        let mut patterns: Vec<Option<String>> = (0..40).map(|_| Some(key(&mut random, true))).collect();
        add_queues(&mut table, 40);
        for (id, pattern) in (0..).zip(&patterns) {
            bind(&mut table, "x", queue(id), pattern.as_ref().unwrap());
        }
        for _ in 0..20 {
            let gone = random.below(40);
            if let Some(pattern) = patterns[gone].take() {
                table.unbind(b"x", queue(gone as u64), pattern.as_bytes(), &Default::default()).unwrap();
            }
            let key = key(&mut random, false);
            let expected: Vec<u64> = (0..)
                .zip(&patterns)
                .filter(|(_, pattern)| pattern.as_ref().is_some_and(|pattern| naive(pattern, &key)))
                .map(|(id, _)| id)
                .collect();
            assert_eq!(route(&table, "x", &[&key]), expected, "round {round}, key {key:?}, patterns {patterns:?}");
        }
    }
}

#[test]
fn keys_of_many_words_match_what_they_match() {
    let mut random = Random(11);
    for round in 0..300 {
        let mut table = Table::new();
        add_queues(&mut table, 20);
        // Around the borders of the sets of places.
        let count = *random.pick(&[61, 62, 63, 64, 65, 100, 126, 127, 128]);
        let key: Vec<&str> = (0..count).map(|_| *random.pick(&["a", "b", ""])).collect();
        let key = key.join(".");
        let key = &key[..key.len().min(KEY_BYTES_MAX)];
        let mut patterns = Vec::new();
        for id in 0..20 {
            // The key itself with some words for others.
            let mut pattern: Vec<&str> = words(key);
            for _ in 0..random.below(3) {
                let at = random.below(pattern.len());
                let others = random.below(pattern.len() - at);
                pattern.splice(at..at + others, ["#"]);
            }
            for _ in 0..random.below(4) {
                let at = random.below(pattern.len());
                if pattern[at] != "#" {
                    pattern[at] = *random.pick(&["*", "a", "b"]);
                }
            }
            let pattern = pattern.join(".");
            bind(&mut table, "amq.topic", queue(id), &pattern);
            patterns.push(pattern);
        }
        let expected: Vec<u64> =
            (0..).zip(&patterns).filter(|(_, pattern)| naive(pattern, key)).map(|(id, _)| id).collect();
        assert_eq!(route(&table, "amq.topic", &[key]), expected, "round {round}, key {key:?}, patterns {patterns:?}");
    }
    check("#", &[&"a".repeat(255), &".".repeat(255)], &[&"a".repeat(256), &".".repeat(300)]);
}

/// The steps that a key takes.
fn steps(table: &Table, keys: &[&str]) -> Result<usize, TooFar> {
    let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
    let (mut scratch, mut queues) = (Scratch::default(), Vec::new());
    let outcome = table.exchange(b"amq.topic").unwrap().route(&keys, &NoHeaders, &mut scratch, &mut queues);
    assert!(outcome.is_ok() || queues.is_empty());
    outcome.map(|()| scratch.steps())
}

#[test]
fn a_walk_takes_steps_for_nodes_and_not_for_each_place_in_the_key() {
    let mut table = Table::new();
    add_queues(&mut table, 1);
    let many = |word: &str, count: usize| vec![word; count].join(".");
    // 50 patterns of 100 words, of which each one but the first six is a node of its own, and reached.
    for number in 0..50 {
        let first: Vec<&str> = (0..6).map(|bit| if number >> bit & 1 == 0 { "#" } else { "a" }).collect();
        bind(&mut table, "amq.topic", queue(0), &format!("{}.{}", first.join("."), many("#.a", 47)));
    }
    let key = many("a", 127);
    let one = steps(&table, &[&key]).unwrap();
    assert!((4_000..12_000).contains(&one), "{one}");
    // Several keys add up, and have one bound.
    assert!((2 * one..2 * one + 10).contains(&(steps(&table, &[&key, &key]).unwrap() + 5)));
    let keys = vec![&key[..]; STEPS_MAX / one + 2];
    assert_eq!(steps(&table, &keys), Err(TooFar));
    assert!(steps(&table, &keys[..keys.len() - 4]).is_ok());
}

#[test]
fn patterns_as_people_write_them_take_few_steps() {
    let mut table = Table::new();
    add_queues(&mut table, 1);
    for number in 0..5_000 {
        for pattern in ["region.R.device.D.#", "*.R.*.D.state", "#.D", "region.#.D.*", "*.*.*.D.*"] {
            let pattern = pattern.replace('R', &(number % 50).to_string()).replace('D', &number.to_string());
            bind(&mut table, "amq.topic", queue(0), &pattern);
        }
    }
    let most = (0..5_000)
        .map(|number| steps(&table, &[&format!("region.{}.device.{number}.state", number % 50)]).unwrap())
        .max();
    assert!(most.unwrap() < 100, "{most:?}");
}

#[test]
fn patterns_made_to_explode_do_not() {
    let mut table = Table::new();
    add_queues(&mut table, 200);
    let many = |word: &str, count: usize| vec![word; count].join(".");
    bind(&mut table, "amq.topic", queue(0), &(many("#.a", 60) + ".b"));
    bind(&mut table, "amq.topic", queue(1), &(many("#.*", 60) + ".b"));
    bind(&mut table, "amq.topic", queue(2), &(many("#", 120) + ".b"));
    bind(&mut table, "amq.topic", queue(3), &many("#.a", 60));
    for id in 4..200 {
        let hashes = usize::try_from(id).unwrap() % 40 + 2;
        bind(&mut table, "amq.topic", queue(id), &format!("{}.#.x{id}", many("#.a.*", hashes)));
    }
    let key = many("a", 128);
    let begun = Instant::now();
    assert_eq!(route(&table, "amq.topic", &[&key]), [3]);
    assert_eq!(route(&table, "amq.topic", &[&(many("a", 127) + ".b")]), [0, 1, 2]);
    // Trying out each way to divide 128 words among 60 `#` would not end.
    assert!(begun.elapsed() < Duration::from_secs(120), "took {:?}", begun.elapsed());
}

/// A queue that is bound so many times by a key.
fn bound_often(table: &mut Table, exchange: &str, key: &str, times: usize) {
    for number in 0..times {
        table
            .bind(
                exchange.as_bytes(),
                queue(0),
                key.as_bytes(),
                &Arguments::new(vec![string("number", &number.to_string())]),
            )
            .expect("valid");
    }
}

#[test]
fn what_many_keys_lead_to_again_and_again_is_not_told_each_time() {
    let keys: Vec<String> = (0..999).map(|number| format!("key.{number}")).collect();
    let mut table = Table::new();
    add_queues(&mut table, 1);
    bound_often(&mut table, "amq.topic", "#", 3_000);
    bound_often(&mut table, "amq.direct", "k", 3_000);
    for (exchange, keys) in
        [("amq.topic", keys.iter().map(|key| key.as_bytes()).collect()), ("amq.direct", vec![b"k".as_slice(); 999])]
    {
        let (mut scratch, mut queues) = (Scratch::default(), Vec::new());
        table
            .exchange(exchange.as_bytes())
            .unwrap()
            .route(&keys, &NoHeaders, &mut scratch, &mut queues)
            .expect("few steps");
        assert_eq!(queues.iter().map(|queue| queue.0).collect::<Vec<_>>(), [0]);
        assert!(queues.capacity() < 10_000, "{exchange}: room for {} queues was made", queues.capacity());
        assert!((300..5_000).contains(&scratch.steps()), "{exchange}: {}", scratch.steps());
    }
    // The same in small groups, of which there are many.
    let mut table = Table::new();
    add_queues(&mut table, 1);
    for hashes in 1..=120 {
        bound_often(&mut table, "amq.topic", &vec!["#"; hashes].join("."), 60);
    }
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    assert!(steps(&table, &keys[..20]).is_ok());
    assert_eq!(steps(&table, &keys), Err(TooFar));
}
