//! What a policy may say: each key, the values it takes, how an operator's value and another's come to one, and which types of queues
//! it is not for. The rules and the words of refusals are those of RabbitMQ 4.3 without plugins.

use serde_json::{Map, Value};

use super::erlang::{Pairs, Term};

/// What values a key takes.
#[derive(Clone, Copy)]
enum Takes {
    Text,
    /// An integer in these bounds, both included.
    Integer(i64, i64),
    One(&'static [&'static str]),
    Versions,
    /// A number and a letter for its unit.
    Age,
}

/// What an operator's value and another policy's come to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Merged {
    Least,
    Greatest,
    /// The lesser one, where a negative one is without a limit: it gives way.
    LeastLimit,
    Operators,
}

struct Key {
    name: &'static str,
    takes: Takes,
    /// What a value is not, in a refusal.
    is_no: &'static str,
    /// Operators may set it, with this outcome. `None`: they may not.
    operators: Option<Merged>,
}

const ANY: i64 = i64::MAX;
const SEGMENT_BYTES_MAX: i64 = 3_000_000_000;

const fn key(name: &'static str, takes: Takes, is_no: &'static str) -> Key {
    Key { name, takes, is_no, operators: None }
}

impl Key {
    const fn operators(mut self, merged: Merged) -> Self {
        self.operators = Some(merged);
        self
    }
}

const KEYS: [Key; 26] = [
    key("alternate-exchange", Takes::Text, "alternate exchange name"),
    key("consumer-disconnected-timeout", Takes::Integer(0, ANY), "consumer disconnected timeout"),
    key("consumer-timeout", Takes::Integer(0, ANY), "consumer timeout"),
    key("dead-letter-exchange", Takes::Text, "dead letter exchange name"),
    key("dead-letter-routing-key", Takes::Text, "dead letter routing key"),
    key("dead-letter-strategy", Takes::One(&["at-most-once", "at-least-once"]), "dead letter strategy"),
    key("delayed-retry-max", Takes::Integer(1, ANY), "delayed retry maximum delay. Must be a positive integer")
        .operators(Merged::Least),
    key("delayed-retry-min", Takes::Integer(1, ANY), "delayed retry minimum delay. Must be a positive integer")
        .operators(Merged::Greatest),
    key(
        "delayed-retry-type",
        Takes::One(&["all", "failed", "returned", "disabled"]),
        "delayed retry type. Must be one of: all, failed, returned, disabled",
    )
    .operators(Merged::Operators),
    key("delivery-limit", Takes::Integer(i64::MIN, ANY), "delivery limit").operators(Merged::LeastLimit),
    key("expires", Takes::Integer(1, ANY), "queue expiry").operators(Merged::Least),
    key("initial-cluster-size", Takes::Integer(0, ANY), "cluster size"),
    key("max-age", Takes::Age, "max age"),
    key("max-in-memory-bytes", Takes::Integer(0, ANY), "maximum memory in bytes").operators(Merged::Least),
    key("max-in-memory-length", Takes::Integer(0, ANY), "maximum memory in bytes").operators(Merged::Least),
    key("max-length", Takes::Integer(0, ANY), "maximum length").operators(Merged::Least),
    key("max-length-bytes", Takes::Integer(0, ANY), "maximum length in bytes").operators(Merged::Least),
    key("message-ttl", Takes::Integer(0, ANY), "message TTL").operators(Merged::Least),
    key("overflow", Takes::One(&["drop-head", "reject-publish", "reject-publish-dlx"]), "overflow value")
        .operators(Merged::Operators),
    key(
        "queue-leader-locator",
        Takes::One(&["client-local", "balanced", "random", "least-leaders"]),
        "queue leader locator value",
    ),
    key("queue-mode", Takes::One(&["default", "lazy"]), "queue-mode value"),
    key("queue-version", Takes::Versions, "queue-version value").operators(Merged::Operators),
    key("stream-filter-size-bytes", Takes::Integer(16, 255), "filter size. Valid range is 16-255"),
    key("stream-max-segment-size-bytes", Takes::Integer(0, SEGMENT_BYTES_MAX), "segment size"),
    key("target-group-size", Takes::Integer(1, ANY), "qq target count value").operators(Merged::Greatest),
    // Known to be refused: RabbitMQ does not permit it any more.
    key("queue-master-locator", Takes::One(&[]), ""),
];

/// Keys that RabbitMQ serves and this broker does not: they are refused, not passed over.
const NOT_SERVED: [&str; 3] = ["max-age", "stream-max-segment-size-bytes", "stream-filter-size-bytes"];

/// Keys that keep a policy from being applied at all to queues of a type, by `x-queue-type`.
const NOT_FOR: [(&str, &[&str]); 3] = [
    (
        "classic",
        &[
            "max-age",
            "stream-max-segment-size-bytes",
            "initial-cluster-size",
            "delivery-limit",
            "dead-letter-strategy",
            "max-in-memory-length",
            "max-in-memory-bytes",
            "target-group-size",
        ],
    ),
    ("quorum", &["queue-mode", "max-age", "stream-max-segment-size-bytes", "initial-cluster-size"]),
    (
        "stream",
        &[
            "expires",
            "message-ttl",
            // A stream's own arguments are its topic's retention; of a policy it would not be.
            "max-length-bytes",
            "dead-letter-exchange",
            "dead-letter-routing-key",
            "max-length",
            "max-in-memory-length",
            "max-in-memory-bytes",
            "overflow",
            "queue-mode",
            "delivery-limit",
            "dead-letter-strategy",
            "target-group-size",
        ],
    ),
];

impl Takes {
    fn takes(self, value: &Value) -> bool {
        match self {
            Self::Text => value.is_string(),
            Self::Integer(least, most) => integer(value).is_some_and(|number| (least..=most).contains(&number)),
            Self::One(words) => value.as_str().is_some_and(|word| words.contains(&word)),
            Self::Versions => matches!(value.as_i64(), Some(1 | 2)),
            Self::Age => value.as_str().is_some_and(is_age),
        }
    }
}

/// An integer; one that no counter here reaches is the largest there is.
fn integer(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_u64().map(|_| i64::MAX))
}

fn is_age(text: &str) -> bool {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    number.bytes().any(|digit| digit != b'0') && matches!(unit, "Y" | "M" | "D" | "h" | "m" | "s")
}

fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// Is a definition one that may be set, by an operator or anybody else?
///
/// # Errors
/// RabbitMQ's words for the first thing that is wrong.
pub(super) fn check(definition: &Map<String, Value>, by_operator: bool) -> Result<(), String> {
    if definition.is_empty() {
        return Err("no policy provided".to_owned());
    }
    let mut unknown = Map::new();
    for (name, value) in definition {
        match find(name).filter(|key| !by_operator || key.operators.is_some() || key.is_no.is_empty()) {
            None if NOT_SERVED.contains(&name.as_str()) && !by_operator => return Err(not_served(name)),
            None => drop(unknown.insert(name.clone(), value.clone())),
            Some(key) if key.is_no.is_empty() => {
                return Err(format!("use of deprecated {name} argument is not permitted"));
            }
            Some(key) if !key.takes.takes(value) => {
                return Err(format!("{} is not a valid {}", Term(value), key.is_no));
            }
            Some(_) if NOT_SERVED.contains(&name.as_str()) => return Err(not_served(name)),
            Some(_) => {}
        }
    }
    if unknown.is_empty() {
        check_retry(definition)
    } else {
        Err(format!("{} are not recognised policy settings", Pairs(&unknown)))
    }
}

/// What the keys of retries have to do with each other.
fn check_retry(definition: &Map<String, Value>) -> Result<(), String> {
    let number = |name: &str| definition.get(name).and_then(integer);
    match (
        definition.get("delayed-retry-type").and_then(Value::as_str),
        number("delayed-retry-min"),
        number("delayed-retry-max"),
    ) {
        (Some(of), None, _) if of != "disabled" => {
            Err(format!("delayed-retry-min is required when delayed-retry-type is {of}"))
        }
        (_, Some(min), Some(max)) if max < min => {
            Err(format!("delayed-retry-max ({max}) must not be smaller than delayed-retry-min ({min})"))
        }
        _ => Ok(()),
    }
}

fn not_served(name: &str) -> String {
    format!("{name} is not served by this broker")
}

/// Is a policy for queues of a type? One that has anything which they do not take is passed over as a whole.
pub(super) fn is_for(definition: &Map<String, Value>, kind: &str) -> bool {
    let not_for = NOT_FOR.iter().find(|(name, _)| *name == kind).map_or(&[][..], |(_, keys)| keys);
    !definition.keys().any(|key| not_for.contains(&key.as_str()))
}

fn chosen<'a>(name: &str, own: &'a Value, operators: &'a Value) -> &'a Value {
    let (one, other) = (integer(own), integer(operators));
    let own_first = match find(name).and_then(|key| key.operators) {
        None | Some(Merged::Operators) => false,
        Some(Merged::Least) => one < other,
        Some(Merged::Greatest) => one > other,
        Some(Merged::LeastLimit) if one.min(other) < Some(0) => one > other,
        Some(Merged::LeastLimit) => one < other,
    };
    if own_first { own } else { operators }
}

/// What a policy and an operator's policy come to.
pub(super) fn merged(own: Option<&Map<String, Value>>, operators: Option<&Map<String, Value>>) -> Map<String, Value> {
    let mut all = own.cloned().unwrap_or_default();
    for (name, value) in operators.into_iter().flatten() {
        let value = all.get(name).map_or(value, |own| chosen(name, own, value)).clone();
        all.insert(name.clone(), value);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(value: Value) -> Map<String, Value> {
        value.as_object().expect("a table").clone()
    }

    #[test]
    fn what_is_wrong_is_said_in_rabbitmqs_words() {
        let cases = [
            (json!({}), false, "no policy provided"),
            (json!({"ha-mode": "all"}), false, r#"[{<<"ha-mode">>,<<"all">>}] are not recognised policy settings"#),
            (json!({"max-length": -1}), false, "-1 is not a valid maximum length"),
            (json!({"max-length": "5"}), false, r#"<<"5">> is not a valid maximum length"#),
            (json!({"expires": 0}), false, "0 is not a valid queue expiry"),
            (json!({"message-ttl": 1.5}), false, "1.5 is not a valid message TTL"),
            (json!({"overflow": "drop"}), false, r#"<<"drop">> is not a valid overflow value"#),
            (json!({"stream-filter-size-bytes": 15}), false, "15 is not a valid filter size. Valid range is 16-255"),
            (json!({"max-age": "5w"}), false, r#"<<"5w">> is not a valid max age"#),
            (
                json!({"queue-master-locator": "min-masters"}),
                false,
                "use of deprecated queue-master-locator argument is not permitted",
            ),
            (
                json!({"dead-letter-exchange": "x"}),
                true,
                r#"[{<<"dead-letter-exchange">>,<<"x">>}] are not recognised policy settings"#,
            ),
            (
                json!({"delayed-retry-min": 0}),
                false,
                "0 is not a valid delayed retry minimum delay. Must be a positive integer",
            ),
            (
                json!({"delayed-retry-type": "all"}),
                true,
                "delayed-retry-min is required when delayed-retry-type is all",
            ),
            (
                json!({"delayed-retry-min": 9, "delayed-retry-max": 5}),
                false,
                "delayed-retry-max (5) must not be smaller than delayed-retry-min (9)",
            ),
            (json!({"consumer-timeout": -1}), false, "-1 is not a valid consumer timeout"),
            (
                json!({"consumer-timeout": 5}),
                true,
                r#"[{<<"consumer-timeout">>,5}] are not recognised policy settings"#,
            ),
            (json!({"max-age": "10D"}), false, "max-age is not served by this broker"),
        ];
        for (definition, by_operator, text) in cases {
            assert_eq!(check(&of(definition), by_operator), Err(text.to_owned()));
        }
        let all = json!({"max-length": 0, "delivery-limit": -1, "overflow": "reject-publish-dlx", "queue-version": 2});
        assert_eq!(check(&of(all), false), Ok(()));
        assert_eq!(check(&of(json!({"message-ttl": 5, "overflow": "drop-head"})), true), Ok(()));
    }

    #[test]
    fn an_operator_may_only_tighten() {
        let cases = [
            (json!({"max-length": 5}), json!({"max-length": 9}), json!({"max-length": 5})),
            (json!({"max-length": 9}), json!({"max-length": 5}), json!({"max-length": 5})),
            (json!({"delivery-limit": -1}), json!({"delivery-limit": 9}), json!({"delivery-limit": 9})),
            (json!({"delivery-limit": 3}), json!({"delivery-limit": -1}), json!({"delivery-limit": 3})),
            (json!({"target-group-size": 3}), json!({"target-group-size": 5}), json!({"target-group-size": 5})),
            (
                json!({"overflow": "drop-head"}),
                json!({"overflow": "reject-publish"}),
                json!({"overflow": "reject-publish"}),
            ),
            (json!({"message-ttl": 3}), json!({"expires": 4}), json!({"message-ttl": 3, "expires": 4})),
        ];
        for (own, operators, both) in cases {
            assert_eq!(merged(Some(&of(own)), Some(&of(operators))), of(both));
        }
        assert_eq!(merged(None, None), Map::new());
    }

    #[test]
    fn a_policy_is_passed_over_where_a_key_is_for_others() {
        let limit = of(json!({"max-length": 5, "delivery-limit": 2}));
        assert!(is_for(&limit, "quorum") && !is_for(&limit, "classic") && !is_for(&limit, "stream"));
        assert!(!is_for(&of(json!({"queue-mode": "lazy"})), "quorum"));
    }
}
