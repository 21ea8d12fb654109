//! Between JSON and the arguments, tables and properties of AMQP. Types of AMQP that JSON does not have come as the nearest: a timestamp
//! and a decimal as numbers, bytes that are not UTF-8 with `�` in place of what is none. Source: RabbitMQ 4.3, `rabbit_misc:to_amqp_table`.

use amqp_wire::{
    ArrayRef, ArrayWriter, EncodedProperties, Properties, ShortBytes, Table, TableRef, TableWriter, Value as Field,
};
use bytes::{Bytes, BytesMut};
use routing::{Argument, Arguments, OwnedValue};
use serde_json::{Map, Number, Value, json};

use super::answer::{Answer, Refusal};

fn lossy(bytes: &[u8]) -> Value {
    Value::String(String::from_utf8_lossy(bytes).into_owned())
}

fn float(value: f64) -> Value {
    Number::from_f64(value).map_or(Value::Null, Value::Number)
}

fn decimal(scale: u8, unscaled: u32) -> Value {
    float(f64::from(unscaled) / 10f64.powi(scale.into()))
}

/// A table as JSON.
pub(crate) fn table(table: TableRef<'_>) -> Value {
    Value::Object(
        table.iter().map(|(name, value)| (String::from_utf8_lossy(&name).into_owned(), field(value))).collect(),
    )
}

fn array(array: ArrayRef<'_>) -> Value {
    Value::Array(array.iter().map(field).collect())
}

fn field(value: Field<'_>) -> Value {
    match value {
        Field::Bool(value) => value.into(),
        Field::F32(value) => float(value.into()),
        Field::F64(value) => float(value),
        Field::Decimal { scale, unscaled } => decimal(scale, unscaled),
        Field::Timestamp(value) => value.into(),
        Field::LongString(bytes) | Field::Bytes(bytes) => lossy(bytes),
        Field::Void => Value::Null,
        Field::Array(value) => array(value),
        Field::Table(value) => table(value),
        other => other.as_integer().map_or(Value::Null, Value::from),
    }
}

/// Arguments as JSON.
pub(crate) fn arguments(arguments: &Arguments) -> Value {
    let mut all = Map::new();
    for Argument { name, value, .. } in arguments.fields() {
        let name = String::from_utf8_lossy(name).into_owned();
        all.entry(name).or_insert_with(|| argument(value));
    }
    Value::Object(all)
}

fn argument(value: &OwnedValue) -> Value {
    match value {
        OwnedValue::Void => Value::Null,
        OwnedValue::Bool(value) => (*value).into(),
        OwnedValue::Int(value) => (*value).into(),
        OwnedValue::Float(value) => float(*value),
        OwnedValue::Decimal { scale, unscaled } => decimal(*scale, *unscaled),
        OwnedValue::Timestamp(value) => (*value).into(),
        OwnedValue::Bytes(bytes) => lossy(bytes),
        OwnedValue::Table(bytes) => TableRef::check(bytes).map_or(Value::Null, table),
        // An array has no check of its own: it is looked at as the value of a field.
        OwnedValue::Array(bytes) => in_table(bytes).unwrap_or(Value::Null),
    }
}

fn in_table(array_bytes: &[u8]) -> Option<Value> {
    let mut whole = vec![1, b'a', b'A'];
    whole.extend_from_slice(&u32::try_from(array_bytes.len()).ok()?.to_be_bytes());
    whole.extend_from_slice(array_bytes);
    let table = TableRef::check(&whole).ok()?;
    table.get("a").map(field)
}

/// Arguments of a request.
///
/// # Errors
/// 400: no object, a name that is too long, null.
pub(crate) fn arguments_of(value: Option<&Value>) -> Result<Arguments, Refusal> {
    let fields = match value {
        None => return Ok(Arguments::default()),
        Some(Value::Object(fields)) => fields,
        // An empty table is an empty list to some.
        Some(Value::Array(list)) if list.is_empty() => return Ok(Arguments::default()),
        Some(_) => return Err(Answer::bad_request("arguments are no object")),
    };
    check(fields.values(), fields.keys(), 0)?;
    let one = |(name, value): (&String, &Value)| {
        let (tag, value) = match value {
            Value::Null => (b'V', OwnedValue::Void),
            Value::Bool(value) => (b't', OwnedValue::Bool(*value)),
            Value::Number(number) => match number.as_i64() {
                Some(value) => (b'l', OwnedValue::Int(value)),
                None => (b'd', OwnedValue::Float(number.as_f64().unwrap_or_default())),
            },
            Value::String(text) => (b'S', OwnedValue::Bytes(text.as_bytes().into())),
            Value::Array(values) => {
                let whole = Table::build(|fields| fields.array(amqp_wire::short("a"), |out| put_all(out, values)));
                let found = whole.view().get("a").and_then(Field::as_array).map(|array| array.as_bytes().into());
                (b'A', OwnedValue::Array(found.unwrap_or_default()))
            }
            Value::Object(fields) => {
                (b'F', OwnedValue::Table(Table::build(|out| put_fields(out, fields)).view().as_bytes().into()))
            }
        };
        Argument { name: name.as_bytes().into(), tag, value }
    };
    Ok(Arguments::new(fields.iter().map(one).collect()))
}

/// Tables within each other, at most.
const DEPTH_MAX: usize = 32;

/// # Errors
/// 400: what a table cannot have.
fn check<'v>(
    values: impl Iterator<Item = &'v Value>,
    names: impl Iterator<Item = &'v String>,
    depth: usize,
) -> Result<(), Refusal> {
    if depth > DEPTH_MAX {
        return Err(Answer::bad_request("tables are nested too deep"));
    }
    for name in names {
        if name.len() > usize::from(u8::MAX) {
            return Err(Answer::bad_request(json!(["name_too_long", name])));
        }
    }
    for value in values {
        match value {
            Value::Null => return Err(Answer::bad_request("null_not_allowed")),
            Value::Array(values) => check(values.iter(), std::iter::empty(), depth + 1)?,
            Value::Object(fields) => check(fields.values(), fields.keys(), depth + 1)?,
            Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    Ok(())
}

fn put_fields(out: &mut TableWriter<'_>, fields: &Map<String, Value>) {
    for (name, value) in fields {
        let name = ShortBytes::new(name.as_bytes()).unwrap_or_default();
        match value {
            Value::Array(values) => out.array(name, |out| put_all(out, values)),
            Value::Object(fields) => out.table(name, |out| put_fields(out, fields)),
            other => out.put(name, simple(other)),
        }
    }
}

fn put_all(out: &mut ArrayWriter<'_>, values: &[Value]) {
    for value in values {
        match value {
            Value::Array(values) => out.array(|out| put_all(out, values)),
            Value::Object(fields) => out.table(|out| put_fields(out, fields)),
            other => out.put(simple(other)),
        }
    }
}

fn simple(value: &Value) -> Field<'_> {
    match value {
        Value::Bool(value) => Field::Bool(*value),
        Value::Number(number) => match number.as_i64() {
            Some(value) => Field::I64(value),
            None => Field::F64(number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => Field::LongString(text.as_bytes()),
        Value::Null | Value::Array(_) | Value::Object(_) => Field::Void,
    }
}

/// Properties as JSON: an empty list if there are none, as in RabbitMQ.
pub(crate) fn properties(encoded: &[u8]) -> Value {
    let Ok(encoded) = EncodedProperties::check(encoded) else { return Value::Array(Vec::new()) };
    let found = encoded.decode();
    let mut all = Map::new();
    let mut text = |name: &str, value: Option<ShortBytes<'_>>| {
        if let Some(value) = value {
            all.insert(name.to_owned(), lossy(&value));
        }
    };
    text("app_id", found.app_id);
    text("cluster_id", found.cluster_id);
    text("content_encoding", found.content_encoding);
    text("content_type", found.content_type);
    text("correlation_id", found.correlation_id);
    text("expiration", found.expiration);
    text("message_id", found.message_id);
    text("reply_to", found.reply_to);
    text("type", found.kind);
    text("user_id", found.user_id);
    let numbers = [
        ("delivery_mode", found.delivery_mode.map(u64::from)),
        ("priority", found.priority.map(u64::from)),
        ("timestamp", found.timestamp),
    ];
    for (name, value) in numbers {
        if let Some(value) = value {
            all.insert(name.to_owned(), value.into());
        }
    }
    if let Some(headers) = found.headers {
        all.insert("headers".to_owned(), table(headers));
    }
    if all.is_empty() { Value::Array(Vec::new()) } else { Value::Object(all) }
}

/// Properties of a request, encoded.
///
/// # Errors
/// 400: a property of another type than it has.
pub(crate) fn properties_of(value: &Value) -> Result<Bytes, Refusal> {
    let empty = Map::new();
    let fields = match value {
        Value::Object(fields) => fields,
        Value::Array(list) if list.is_empty() => &empty,
        _ => return Err(Answer::bad_request("properties are no object")),
    };
    let wrong = |kind: &str, name: &str| Answer::bad_request(json!([kind, name]));
    let text = |name: &'static str| match fields.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => ShortBytes::new(text.as_bytes()).map(Some).ok_or_else(|| wrong("too_long", name)),
        Some(_) => Err(wrong("not_string", name)),
    };
    let number = |name: &'static str, most: u64| match fields.get(name) {
        None => Ok(None),
        Some(value) => value.as_u64().filter(|number| *number <= most).map(Some).ok_or_else(|| wrong("not_int", name)),
    };
    let headers = match fields.get("headers") {
        None => None,
        Some(Value::Object(headers)) => {
            check(headers.values(), headers.keys(), 0)?;
            Some(Table::build(|out| put_fields(out, headers)))
        }
        Some(_) => return Err(wrong("not_a_proplist", "headers")),
    };
    let properties = Properties {
        content_type: text("content_type")?,
        content_encoding: text("content_encoding")?,
        headers: headers.as_ref().map(Table::view),
        delivery_mode: number("delivery_mode", 255)?.map(|value| value as u8),
        priority: number("priority", 255)?.map(|value| value as u8),
        correlation_id: text("correlation_id")?,
        reply_to: text("reply_to")?,
        expiration: text("expiration")?,
        message_id: text("message_id")?,
        timestamp: number("timestamp", u64::MAX)?,
        kind: text("type")?,
        user_id: text("user_id")?,
        app_id: text("app_id")?,
        cluster_id: text("cluster_id")?,
    };
    let mut out = BytesMut::new();
    properties.encode(&mut out);
    Ok(out.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_json_says_comes_back() {
        let given =
            json!({"n": 1, "f": 1.5, "s": "text", "b": true, "l": [1, "a", {"x": [2]}], "t": {"y": {"z": "deep"}}});
        let Ok(kept) = arguments_of(Some(&given)) else { panic!("taken") };
        assert_eq!(arguments(&kept), given);
        let given = json!({"headers": given, "delivery_mode": 2, "type": "t", "timestamp": 7});
        let Ok(kept) = properties_of(&given) else { panic!("taken") };
        assert_eq!(properties(&kept), given);
        assert_eq!(properties(&[0, 0]), json!([]));
    }

    #[test]
    fn what_a_table_cannot_have_is_refused() {
        let refused =
            [json!({"a": null}), json!({"a": [{"b": null}]}), json!({"n".repeat(256): 1}), json!("text"), json!([1])];
        for value in refused {
            assert!(arguments_of(Some(&value)).is_err(), "{value}");
        }
        let mut deep = json!(1);
        for _ in 0..100 {
            deep = json!([deep]);
        }
        assert!(arguments_of(Some(&json!({"a": deep}))).is_err());
        for value in
            [json!({"delivery_mode": "two"}), json!({"priority": 256}), json!({"type": 1}), json!({"headers": 1})]
        {
            assert!(properties_of(&value).is_err(), "{value}");
        }
    }
}
