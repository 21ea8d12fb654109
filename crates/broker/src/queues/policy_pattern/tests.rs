//! What patterns of policies may be, and what asking them takes.

use serde_json::json;

use super::*;

fn made(text: &str) -> Pattern {
    Pattern::new(&json!(text)).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn what_people_write_is_taken() {
    for (text, matched, other) in [
        (r"^(?!amq\.).*", "orders", "amq.orders"),
        (r"^(?!.*test)(?=.*eu)\w+$", "orders_eu", "orders_eu_test"),
        (r"(?<!dead\.)letters$", "letters", "dead.letters"),
        (r"^(\w+)\.\1$", "orders.orders", "orders.bills"),
        (r"^(?:(?!tmp)[a-z]+\.)+q$", "orders.eu.q", "orders.tmp.q"),
        (r"^(?>a+)b", "aab", "aac"),
        (r"^[a-z]+\d*$", "orders12", "12"),
        (r"^(?!amq\.)\w+\.\w+\.\w+$", "orders.eu.north", "amq.gen.north"),
        (r"^(?!amq\.)\w+$", "b\u{f6}rse", "amq.kurse"),
        ("^[\u{e4}\u{f6}]", "\u{f6}l", "ol"),
        ("", "anything", ""),
    ] {
        let pattern = made(text);
        assert!(pattern.is_match(matched.as_bytes()), "{text} and {matched}");
        assert!(other.is_empty() || !pattern.is_match(other.as_bytes()), "{text} and {other}");
    }
}

#[test]
fn what_steps_back_costs_most() {
    for text in [r"^(?!amq\.)", r"(a)\1", "(?>a)", "a*+", r"(?<=a)b", "(a)?(?(1)b|c)"] {
        assert_eq!(made(text).cost(), COST_STEPPING_BACK, "{text}");
    }
}

#[test]
fn conditions_that_are_repeated_inside_each_other_are_refused() {
    for text in [
        r"^()(?:(?=(?:(?=(?:a\1)*)a)*)a)*$",
        r"^()(?:(?=(?:(?=(?:(?=(?:a\1)*)a)*)a)*)a)*$",
        // Without a single step back it took two minutes for a name of 255 bytes.
        r"^()(?:(?=(?:(?=(?:(?=(?:(?=(?:(?=(?:a\1){40})a){40})a){40})a){40})a){40})a){40}",
        r"()(?:(?:\1{1000}){1000}){1000}a",
        r"()(?:(?=(?:a\1){200})(?=(?:a\1){200})(?=(?:a\1){200})a){54}[0-9]",
        r"(a\g<1>?b)",
        r"(?:a(?R)?b)",
        r"(?~abc)",
    ] {
        let error = Pattern::new(&json!(text)).expect_err(text);
        assert!(error.starts_with("pattern should be regular expression but is invalid: "), "{error}");
        let kept = Pattern::kept(&json!(text)).expect("it stays");
        assert!((kept.text(), kept.is_match(b"aaaa"), kept.cost()) == (text, false, 0));
    }
    // Some are taken.
    for text in [
        r"^(?:(?=[a-z]+\.)\w+\.)+q$",
        r"^()(?:(?=(?:a\1)*)a)*",
        r"^(?:(?=(\w+)\.\1)\w+\.)+q$",
        "(?:(?>(?:(?>a*)b?)*)c?)*",
        r"(\w+)\1{2,5}",
        "^(?:(?!tmp|(?:old)+)[a-z]{2,20}\\.){1,10}q",
    ] {
        made(text);
    }
}

/// The worst that are known, over the longest names: without bounds some of them would not end.
#[test]
fn the_worst_patterns_end() {
    let many = |part: &str, count: usize| part.repeat(count);
    let patterns = [
        r"(?=(a+)+$)(a|aa)+b\1".to_owned(),
        r"^(?=(a|aa|ab?)+$)(?:(a|aa|ab?)*)+c$".to_owned(),
        // A part that is gone through again with each step back.
        r"()(?:(?=[a-z]{0,254}0)a|a(?![a-z]{0,250}1)|a)*[yz]\1{2}[0-9]".to_owned(),
        r"()(?:a(?!(?:a|b)*a(?:a|b){13}c)|a(?!(?:a|b)*a(?:a|b){12}c))*[yz]\1[0-9]".to_owned(),
        format!(r"()(?:{}a|a)*[yz]\1[0-9]", many(r"(?![a-z]{0,200}1)", 50)),
        format!(r"()(?:{}a|a)*[yz]\1[0-9]", many(r"(?![a-z]{0,9}1)", 60)),
        format!(r"()(?:{}a|{}a)*[yz]\1[0-9]", many(r"(?!(?:a|b)*a[ab]{12}c)", 18), many(r"(?!(?:a|b)*a[ab]{11}c)", 18)),
        // Conditions that are gone over again.
        r"()(?:(?=(?:a\1)*)a)*[yz]\1[0-9]".to_owned(),
        r"()(?:(?=(?:a|b\1)*)a|(?=(?:a|b\1)*)a)*[yz]\1[0-9]".to_owned(),
        r"()(?:(?=(?:a\1){200})a){54}[0-9]".to_owned(),
        r"()(?:(?=(?:a\1){150})a|(?=(?:a\1){200})a){0,99}[0-9]".to_owned(),
        format!(r"(){}[0-9]", many(r"(?=(?:a\1){200})", 60)),
        format!(r"(){}[0-9]", many(r"(?=(?:a\1|a\1)*)", 50)),
        r"()(?:(?:\1{10}){10}){10}a[0-9]".to_owned(),
        format!(r"({})\1[0-9]", many("a?", 400)),
        format!(r"()(?:{}\1)*[0-9]", many("a?", 400)),
        r"(?:(?>(?:(?>a*)b?)*)c?)*[0-9]".to_owned(),
        r"(?:(?:(?:a*+b?)*+c?)*+d?)*+[0-9]".to_owned(),
    ];
    for text in &patterns {
        let pattern = made(text);
        for name in
            [vec![b'a'; 255], [vec![b'a'; 253], b"zy".to_vec()].concat(), b"ab".repeat(127), b"abbabaab".repeat(31)]
        {
            assert!(!pattern.is_match(&name), "{text}");
        }
    }
}
