//! Columns, and texts of lists against the whole list as values.

use serde_json::json;

use super::*;

#[test]
fn columns_are_taken_by_paths() {
    let item = json!({"name": "a", "messages": 3, "arguments": {"x": 1, "y": {"z": 2}}, "a.b": 5, "tags": [1]});
    let take = |text: &str| Value::Object(Columns::of(text).take(&item));
    assert_eq!(take("name,messages,nothing,name"), json!({"name": "a", "messages": 3}));
    assert_eq!(
        take("arguments.x,arguments.y.z,arguments.q,a.b"),
        json!({"arguments": {"x": 1, "y": {"z": 2}}, "a.b": 5})
    );
    assert_eq!(take("arguments.x,arguments"), json!({"arguments": {"x": 1, "y": {"z": 2}}}));
    assert_eq!(take("tags.x,arguments.y.z.q,arguments.nothing"), json!({}));
}

/// Each looked for in each item they would be a billion look-ups.
#[test]
fn very_many_columns_cost_what_the_items_have() {
    let text = (0..50_000).map(|number| format!("c{number},arguments.c{number}")).collect::<Vec<String>>().join(",");
    let wanted = Columns::of(&text);
    let item = json!({"name": "a", "c7": 1, "arguments": {"c49999": 2, "other": 3}});
    for _ in 0..20_000 {
        assert_eq!(wanted.take(&item).len(), 2);
    }
    let deep = format!("a{}", ".a".repeat(100_000));
    assert_eq!(Columns::of(&deep).take(&item).len(), 0);
}

/// What is written of a list as it is described: filtered, sorted, cut.
fn whole(wish: &Wish<'_>, mut items: Vec<Value>) -> Value {
    let total = items.len();
    items.retain(|item| wish.names.has(item));
    if let Some(sort) = wish.sort {
        let key = |item: &Value| field(item, sort).cloned().unwrap_or_default();
        items.sort_by(|one, other| compare(&key(one), &key(other)));
        if wish.reversed {
            items.reverse();
        }
    }
    let filtered = items.len();
    let cut = |items: &[Value]| items.iter().map(|item| wish.cut(item).into_owned()).collect::<Vec<_>>();
    let Some(Page { number, size }) = wish.page else { return cut(&items).into() };
    let shown = cut(&items[(number - 1) * size..(number * size).min(filtered)]);
    json!({
        "total_count": total, "filtered_count": filtered, "item_count": shown.len(), "page": number, "page_size": size,
        "page_count": filtered.div_ceil(size).max(1), "items": shown,
    })
}

fn items(count: usize) -> Vec<Value> {
    let kinds =
        [json!(1), json!("b"), json!(null), json!([1, 2]), json!(true), json!(2.5), json!({"a": 1}), json!("a")];
    let one = |number: usize| json!({"name": format!("Queue-{}", number * 7919 % count), "messages": number % 13, "any": kinds[number % 8], "arguments": {"x": number % 5, "y": "\u{e4}\""}});
    (0..count).map(one).collect()
}

#[test]
fn lists_are_written_as_they_would_be_as_a_whole() {
    let pages = [None, Some((1, 100)), Some((3, 7)), Some((2, 500))];
    let (names, sorts) = (
        [Names::All, Names::With("e-1".to_owned())],
        [None, Some("messages"), Some("any"), Some("arguments.x"), Some("name"), Some("nothing")],
    );
    let mut seen = 0;
    for page in pages {
        for names in &names {
            for sort in sorts {
                for (reversed, columns) in [(false, None), (true, Some("name,arguments.x"))] {
                    let names = match names {
                        Names::With(part) if page.is_some() => Names::With(part.clone()),
                        _ => Names::All,
                    };
                    let page = page.map(|(number, size)| Page { number, size });
                    let wish = Wish { page, names, sort, reversed, columns: columns.map(Columns::of) };
                    let (mut text, all) = (Text::anyway(), items(5003));
                    let written = wish.write(&mut text, |put| all.iter().for_each(put));
                    assert!(written.is_ok());
                    assert_eq!(String::from_utf8(text.to_vec()), Ok(whole(&wish, all).to_string()));
                    seen += 1;
                }
            }
        }
    }
    assert_eq!(seen, 96);
}

#[test]
fn a_page_that_is_not_there_is_refused() {
    for sort in [None, Some("name")] {
        let wish =
            Wish { page: Some(Page { number: 3, size: 10 }), names: Names::All, sort, reversed: false, columns: None };
        let (mut text, all) = (Text::anyway(), items(20));
        let refusal = wish.write(&mut text, |put| all.iter().for_each(put)).expect_err("there are two");
        assert_eq!(refusal.reason(), "Page out of range, page: 3 page size: 10, len: 20");
    }
}
