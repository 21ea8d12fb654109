//! Between AMQP's tables and the routing table's values.

use amqp_wire::{EncodedProperties, TableRef, Value};
use routing::{Argument, Arguments, Headers, Property};

/// The octet of a value's type.
const fn tag(value: Value<'_>) -> u8 {
    match value {
        Value::Bool(_) => b't',
        Value::I8(_) => b'b',
        Value::U8(_) => b'B',
        Value::I16(_) => b's',
        Value::U16(_) => b'u',
        Value::I32(_) => b'I',
        Value::U32(_) => b'i',
        Value::I64(_) => b'l',
        Value::F32(_) => b'f',
        Value::F64(_) => b'd',
        Value::Decimal { .. } => b'D',
        Value::Timestamp(_) => b'T',
        Value::LongString(_) => b'S',
        Value::Bytes(_) => b'x',
        Value::Void => b'V',
        Value::Array(_) => b'A',
        Value::Table(_) => b'F',
    }
}

/// A value as the routing table compares it: integers of all widths are one class, as are both floats, strings and bytes.
pub(crate) const fn routed(value: Value<'_>) -> routing::Value<'_> {
    match value {
        Value::Bool(value) => routing::Value::Bool(value),
        Value::I8(value) => routing::Value::Int(value as i64),
        Value::U8(value) => routing::Value::Int(value as i64),
        Value::I16(value) => routing::Value::Int(value as i64),
        Value::U16(value) => routing::Value::Int(value as i64),
        Value::I32(value) => routing::Value::Int(value as i64),
        Value::U32(value) => routing::Value::Int(value as i64),
        Value::I64(value) => routing::Value::Int(value),
        Value::F32(value) => routing::Value::Float(value as f64),
        Value::F64(value) => routing::Value::Float(value),
        Value::Decimal { scale, unscaled } => routing::Value::Decimal { scale, unscaled },
        Value::Timestamp(value) => routing::Value::Timestamp(value),
        Value::LongString(value) | Value::Bytes(value) => routing::Value::Bytes(value),
        Value::Void => routing::Value::Void,
        Value::Array(value) => routing::Value::Array(value.as_bytes()),
        Value::Table(value) => routing::Value::Table(value.as_bytes()),
    }
}

/// The arguments of a method, to be kept.
pub(crate) fn arguments(table: TableRef<'_>) -> Arguments {
    let field = |(name, value): (amqp_wire::ShortBytes<'_>, Value<'_>)| Argument {
        name: name.as_bytes().into(),
        tag: tag(value),
        value: routed(value).into(),
    };
    Arguments::new(table.iter().map(field).collect())
}

/// A message's headers and properties, for routing.
pub(crate) struct MessageHeaders<'a>(pub EncodedProperties<'a>);

impl Headers for MessageHeaders<'_> {
    fn get(&self, name: &[u8]) -> Option<routing::Value<'_>> {
        let fields = self.0.headers()?;
        fields.iter().find(|(found, _)| found.as_bytes() == name).map(|(_, value)| routed(value))
    }

    fn visit<'a>(&'a self, visitor: &mut dyn FnMut(&'a [u8], routing::Value<'a>)) {
        visit_headers(self.0, visitor);
    }

    fn property(&self, property: Property) -> Option<routing::Value<'_>> {
        property_of(self.0, property)
    }
}

/// Visits headers as the routing table compares them, as they stand.
pub(crate) fn visit_headers<'a>(
    properties: EncodedProperties<'a>,
    visitor: &mut dyn FnMut(&'a [u8], routing::Value<'a>),
) {
    for (name, value) in properties.headers().into_iter().flat_map(TableRef::iter) {
        visitor(name.as_bytes(), routed(value));
    }
}

/// A property as the routing table compares it.
pub(crate) fn property_of(properties: EncodedProperties<'_>, property: Property) -> Option<routing::Value<'_>> {
    match property {
        Property::MessageId => properties.message_id().map(|id| routing::Value::Bytes(id.as_bytes())),
        Property::CorrelationId => properties.correlation_id().map(|id| routing::Value::Bytes(id.as_bytes())),
        Property::Timestamp => properties.timestamp().map(routing::Value::Timestamp),
    }
}
