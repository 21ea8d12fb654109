//! Topic patterns beside a matcher that is right by looking at it.

use std::time::{Duration, Instant};

use routing::Table;

use crate::random::Random;
use crate::{add_queues, bind, declare, queue, route};

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
            let words: Vec<_> = (0..count).map(|_| *random.pick(if wild { &alphabet } else { &alphabet[..5] })).collect();
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
    assert!(begun.elapsed() < Duration::from_secs(1), "took {:?}", begun.elapsed());
}
