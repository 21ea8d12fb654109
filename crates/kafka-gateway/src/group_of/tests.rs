//! Client ids that name groups, and what connections say of groups.

use super::*;

fn of(group: &str, client_ids: &[&str]) -> impl Fn(&str) -> bool {
    let filters = broker::Filters::default();
    filters.set(group, "TRUE", &client_ids.join(","));
    move |client_id: &str| filters.named(client_id).is_some()
}

#[test]
fn client_ids_that_name_a_group() {
    let named = of("orders", &[]);
    for (client_id, expected) in [
        ("consumer-orders-1", true),
        ("consumer-orders-27", true),
        ("consumer-orders-", false),
        ("consumer-orders", false),
        ("consumer-orders-new-1", false),
        ("consumer-null-1", false),
        ("orders", false),
        ("rdkafka", false),
        ("", false),
    ] {
        assert_eq!(named(client_id), expected, "{client_id}");
    }
    let given = of("orders", &["kgo-orders", "b"]);
    assert!(given("kgo-orders") && given("b") && !given("kgo"));
}

#[test]
fn what_a_connection_says_of_groups() {
    let mut spoken = Spoken::default();
    spoken.ask("a");
    assert!(!spoken.member && !spoken.several);
    spoken.speak("a");
    assert!(spoken.member && !spoken.several);
    spoken.ask("b");
    assert!(spoken.several, "it named another one");
    let mut spoken = Spoken::default();
    spoken.note_api(1);
    spoken.note_api(10);
    assert!(!spoken.inspects);
    spoken.note_api(16);
    assert!(spoken.inspects);
}
