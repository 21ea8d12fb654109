//! How settings of the broker, of topics and of groups are shown.

use broker::{Class, Kind as Written, Setting};
use serde_json::{Value, json};

use super::schema::{Kind, Schema};

/// What is said of every setting.
pub(crate) const SETTING: Schema = Schema::new(
    "Setting",
    &[
        ("name", Kind::Text, "Kafka's, or one that begins with mainstem."),
        ("value", Kind::Text, "In force."),
        ("default", Kind::Text, "In force where nobody set another."),
        (
            "source",
            Kind::Text,
            "Who set it: topic, group, broker, dynamic (while the broker ran), set (at the start), default.",
        ),
        ("class", Kind::Text, "enforced, inert (kept and shown, without effect) or default_only."),
        ("type", Kind::Text, "bool, int, ratio, one_of, list_of or text."),
        ("range", Kind::OrNull(&Kind::List(&Kind::Int)), "Of an int: least and most."),
        ("words", Kind::OrNull(&Kind::List(&Kind::Text)), "Of one_of and list_of: the words."),
        ("doc", Kind::Text, "What it does."),
    ],
);

/// A setting with its value.
pub(crate) fn described(setting: &Setting, value: &str, source: &str) -> Value {
    let (kind, range, words) = match setting.kind {
        Written::Bool => ("bool", None, None),
        Written::Int(least, most) => ("int", Some([least, most]), None),
        Written::OneOf(words) => ("one_of", None, Some(words)),
        Written::ListOf(words) => ("list_of", None, Some(words)),
        Written::Ratio => ("ratio", None, None),
        Written::Replicas | Written::Text => ("text", None, None),
    };
    let class = match setting.class {
        Class::Enforced => "enforced",
        Class::Inert => "inert",
        Class::DefaultOnly => "default_only",
    };
    json!({
        "name": setting.name,
        "value": value,
        "default": setting.default,
        "source": source,
        "class": class,
        "type": kind,
        "range": range,
        "words": words,
        "doc": setting.doc,
    })
}
