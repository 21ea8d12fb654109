//! Changes of lists.

use super::*;

const LIST: &str = "leader.replication.throttled.replicas";

fn words(range: std::ops::Range<usize>) -> String {
    range.map(|number| format!("{number}:0")).collect::<Vec<String>>().join(",")
}

/// Compared each with each it would not end.
#[test]
fn words_of_long_lists_are_added_and_taken_away() {
    const MANY: usize = 200_000;
    let mut overrides = Overrides::from([(LIST.to_owned(), words(0..MANY))]);
    let mut change = |change| {
        let current = |overrides: &Overrides| overrides[LIST].clone();
        changed(&mut overrides, TOPIC, current, LIST, change).expect("a list");
        overrides[LIST].split(',').filter(|word| !word.is_empty()).count()
    };
    assert_eq!(change(Change::Append(words(MANY / 2..2 * MANY))), 2 * MANY, "what is there is not added again");
    assert_eq!(change(Change::Subtract(words(0..MANY))), MANY);
    assert_eq!(change(Change::Append("7:0".to_owned())), MANY + 1);
    assert_eq!(change(Change::Subtract(words(0..2 * MANY))), 0);
}
