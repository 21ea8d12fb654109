//! Values as RabbitMQ's answers show them: Erlang's text of a term that was decoded from JSON.

use std::fmt;

use serde_json::{Map, Value};

/// A value as Erlang prints it.
pub(super) struct Term<'a>(pub &'a Value);

/// The fields of a table, each a pair.
pub(super) struct Pairs<'a>(pub &'a Map<String, Value>);

fn binary(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_str("<<\"")?;
    for letter in text.chars() {
        match letter {
            '"' => f.write_str("\\\""),
            '\\' => f.write_str("\\\\"),
            '\n' => f.write_str("\\n"),
            '\r' => f.write_str("\\r"),
            '\t' => f.write_str("\\t"),
            other => write!(f, "{other}"),
        }?;
    }
    f.write_str(if text.is_ascii() { "\">>" } else { "\"/utf8>>" })
}

fn joined<T>(
    f: &mut fmt::Formatter<'_>,
    all: impl IntoIterator<Item = T>,
    mut one: impl FnMut(&mut fmt::Formatter<'_>, T) -> fmt::Result,
) -> fmt::Result {
    for (number, item) in all.into_iter().enumerate() {
        if number > 0 {
            f.write_str(",")?;
        }
        one(f, item)?;
    }
    Ok(())
}

impl fmt::Display for Term<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("null"),
            Value::Bool(value) => value.fmt(f),
            Value::Number(value) => value.fmt(f),
            Value::String(text) => binary(f, text),
            Value::Array(values) => {
                f.write_str("[")?;
                joined(f, values, |f, value| Term(value).fmt(f))?;
                f.write_str("]")
            }
            Value::Object(fields) => {
                f.write_str("#{")?;
                joined(f, fields, |f, (name, value)| {
                    binary(f, name)?;
                    write!(f, " => {}", Term(value))
                })?;
                f.write_str("}")
            }
        }
    }
}

impl fmt::Display for Pairs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        joined(f, self.0, |f, (name, value)| {
            f.write_str("{")?;
            binary(f, name)?;
            write!(f, ",{}}}", Term(value))
        })?;
        f.write_str("]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn terms_are_written_as_erlang_writes_them() {
        let cases = [
            (json!(5), "5"),
            (json!("a\"b\\"), r#"<<"a\"b\\">>"#),
            (json!("größe"), "<<\"größe\"/utf8>>"),
            (json!([1, true, null]), "[1,true,null]"),
            (json!({"b": 1.5, "a": []}), r#"#{<<"a">> => [],<<"b">> => 1.5}"#),
        ];
        for (value, text) in cases {
            assert_eq!(Term(&value).to_string(), text);
        }
        let fields = json!({"ha-params": 2, "ha-mode": "exactly"});
        assert_eq!(
            Pairs(fields.as_object().expect("a table")).to_string(),
            r#"[{<<"ha-mode">>,<<"exactly">>},{<<"ha-params">>,2}]"#
        );
    }
}
