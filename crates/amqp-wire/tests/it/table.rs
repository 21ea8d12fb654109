//! Tables against a model, and against those who make them hostile.

use amqp_wire::{
    ArrayWriter, DecodeError, Method, Problem, ReplyCode, ShortBytes, TABLE_DEPTH_MAX, Table, TableRef, TableWriter,
    Value, short,
};
use bytes::Bytes;

use crate::allocations;
use crate::golden;
use crate::random::Rng;

/// A value that owns what is in it.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// Type, and the bytes after it, lengths included.
    Plain(u8, Vec<u8>),
    Array(Vec<Node>),
    Table(Vec<(Vec<u8>, Node)>),
}

pub type Fields = Vec<(Vec<u8>, Node)>;

/// Types of a fixed length.
const FIXED: &[(u8, usize)] = &[
    (b't', 1),
    (b'b', 1),
    (b'B', 1),
    (b's', 2),
    (b'u', 2),
    (b'I', 4),
    (b'i', 4),
    (b'l', 8),
    (b'f', 4),
    (b'd', 8),
    (b'D', 5),
    (b'T', 8),
    (b'V', 0),
];

fn random_value(rng: &mut Rng, depth: usize) -> Node {
    match rng.below(if depth == 0 { 10 } else { 14 }) {
        0..8 => {
            let (tag, length) = FIXED[rng.below(FIXED.len())];
            let mut bytes = rng.bytes(length);
            if tag == b't' {
                bytes[0] &= 1;
            }
            Node::Plain(tag, bytes)
        }
        8 | 9 => {
            let count = rng.below(300);
            let bytes = [(count as u32).to_be_bytes().to_vec(), rng.bytes(count)].concat();
            Node::Plain(if rng.flip() { b'S' } else { b'x' }, bytes)
        }
        10 | 11 => Node::Array((0..rng.below(5)).map(|_| random_value(rng, depth - 1)).collect()),
        _ => Node::Table(random_table(rng, depth - 1)),
    }
}

pub fn random_table(rng: &mut Rng, depth: usize) -> Fields {
    let field = |rng: &mut Rng| {
        let count = rng.short_length();
        (rng.bytes(count), random_value(rng, depth))
    };
    (0..rng.below(6)).map(|_| field(rng)).collect()
}

fn encode_value(node: &Node, out: &mut Vec<u8>) {
    let (tag, bytes) = match node {
        Node::Plain(tag, bytes) => {
            out.push(*tag);
            out.extend(bytes);
            return;
        }
        Node::Array(values) => {
            let mut bytes = Vec::new();
            values.iter().for_each(|value| encode_value(value, &mut bytes));
            (b'A', bytes)
        }
        Node::Table(fields) => (b'F', encode(fields)),
    };
    out.push(tag);
    out.extend((bytes.len() as u32).to_be_bytes());
    out.extend(bytes);
}

/// The bytes of a table, without its length.
pub fn encode(fields: &Fields) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        out.push(name.len() as u8);
        out.extend(name);
        encode_value(value, &mut out);
    }
    out
}

/// What the codec reads, as a model.
fn node(value: Value<'_>) -> Node {
    let long = |bytes: &[u8]| [&(bytes.len() as u32).to_be_bytes(), bytes].concat();
    match value {
        Value::Bool(value) => Node::Plain(b't', vec![value.into()]),
        Value::I8(value) => Node::Plain(b'b', value.to_be_bytes().into()),
        Value::U8(value) => Node::Plain(b'B', value.to_be_bytes().into()),
        Value::I16(value) => Node::Plain(b's', value.to_be_bytes().into()),
        Value::U16(value) => Node::Plain(b'u', value.to_be_bytes().into()),
        Value::I32(value) => Node::Plain(b'I', value.to_be_bytes().into()),
        Value::U32(value) => Node::Plain(b'i', value.to_be_bytes().into()),
        Value::I64(value) => Node::Plain(b'l', value.to_be_bytes().into()),
        Value::F32(value) => Node::Plain(b'f', value.to_be_bytes().into()),
        Value::F64(value) => Node::Plain(b'd', value.to_be_bytes().into()),
        Value::Decimal { scale, unscaled } => Node::Plain(b'D', [&[scale][..], &unscaled.to_be_bytes()].concat()),
        Value::Timestamp(value) => Node::Plain(b'T', value.to_be_bytes().into()),
        Value::LongString(value) => Node::Plain(b'S', long(value)),
        Value::Bytes(value) => Node::Plain(b'x', long(value)),
        Value::Void => Node::Plain(b'V', Vec::new()),
        Value::Array(values) => Node::Array(values.iter().map(node).collect()),
        Value::Table(table) => Node::Table(fields(table)),
    }
}

fn fields(table: TableRef<'_>) -> Fields {
    table.iter().map(|(name, value)| (name.to_vec(), node(value))).collect()
}

fn write_fields(writer: &mut TableWriter<'_>, table: TableRef<'_>) {
    for (name, value) in table.iter() {
        match value {
            Value::Table(within) => writer.table(name, |writer| write_fields(writer, within)),
            Value::Array(within) => writer.array(name, |writer| write_values(writer, within.iter())),
            value => writer.put(name, value),
        }
    }
}

fn write_values<'v>(writer: &mut ArrayWriter<'_>, values: impl Iterator<Item = Value<'v>>) {
    for value in values {
        match value {
            Value::Table(within) => writer.table(|writer| write_fields(writer, within)),
            Value::Array(within) if within.is_empty() => writer.put(value),
            Value::Array(within) => writer.array(|writer| writer.copy(within)),
            value => writer.put(value),
        }
    }
}

#[test]
fn random_tables_are_read_and_written() {
    let mut rng = Rng(11);
    for _ in 0..3000 {
        let model = random_table(&mut rng, 4);
        let bytes = encode(&model);
        let (table, allocated) = allocations::count(|| TableRef::check(&bytes).expect("well-formed"));
        assert_eq!(allocated, 0);
        assert_eq!(fields(table), model);
        let written = Table::build(|writer| write_fields(writer, table));
        assert_eq!(written.as_bytes(), &bytes);
        let put = Table::build(|writer| table.iter().for_each(|(name, value)| writer.put(name, value)));
        assert_eq!((put.as_bytes().as_ref(), put.view()), (&bytes[..], table));
        assert_eq!(Table::check(Bytes::from(bytes.clone())), Ok(Table::from(table)));
        for (name, value) in &model {
            let first = model.iter().find(|(found, _)| found == name).expect("it is there");
            if let Ok(name) = std::str::from_utf8(name) {
                assert_eq!(table.get(name).map(node).as_ref(), Some(&first.1), "{value:?}");
            }
        }
    }
}

#[test]
fn fields_go_and_come_without_the_others_being_touched() {
    let mut rng = Rng(12);
    for _ in 0..500 {
        let mut model = random_table(&mut rng, 3);
        model.insert(rng.below(model.len() + 1), (b"CC".to_vec(), Node::Array(vec![random_value(&mut rng, 1)])));
        model.insert(rng.below(model.len() + 1), (b"x-death".to_vec(), random_value(&mut rng, 2)));
        let bytes = encode(&model);
        let changed = Table::build(|writer| {
            writer.copy_without(TableRef::trusted(&bytes), |name| name == "CC" || name == "x-death");
            writer.put(short("x-death"), 7i64);
        });
        model.retain(|(name, _)| name != b"CC" && name != b"x-death");
        model.push((b"x-death".to_vec(), Node::Plain(b'l', 7i64.to_be_bytes().into())));
        assert_eq!(changed.as_bytes(), &encode(&model));
        let twice = Table::build(|writer| {
            writer.copy(changed.view());
            writer.copy(changed.view());
        });
        assert_eq!(twice.as_bytes().len(), changed.as_bytes().len() * 2);
    }
}

#[test]
fn every_type_is_rabbitmqs() {
    let bytes = golden::bytes("table every type");
    let table = TableRef::check(&bytes).expect("well-formed");
    let shown = format!("{table:?}");
    let expected = concat!(
        r#"{"bool": Bool(true), "b": I8(-1), "B": U8(255), "s": I16(-2), "u": U16(65535), "I": I32(-3), "i": U32(4294967295), "#,
        r#""l": I64(-4), "f": F32(1.5), "d": F64(-2.25), "D": Decimal { scale: 2, unscaled: 314 }, "T": Timestamp(1700000000), "#,
        r#""S": LongString([116, 101, 120, 116]), "x": Bytes([0, 255]), "V": Void, "#,
        r#""A": Array([I32(1), LongString([116, 119, 111]), Table({})]), "F": Table({"k": Bool(false)})}"#,
    );
    assert_eq!(shown, expected);
    assert_eq!(table.get("S").and_then(Value::as_str), Some("text"));
    assert_eq!(table.get("i").and_then(Value::as_integer), Some(4_294_967_295));
    assert_eq!(table.get("A").and_then(Value::as_array).map(|array| array.iter().count()), Some(3));
    assert_eq!(table.get("F").and_then(Value::as_table).and_then(|table| table.get("k")), Some(Value::Bool(false)));
    assert!(table.get("missing").is_none());
}

#[test]
fn both_long_types_are_signed() {
    let bytes = [&b"\x01a"[..], b"L", &(-5i64).to_be_bytes()].concat();
    assert_eq!(TableRef::check(&bytes).expect("well-formed").get("a"), Some(Value::I64(-5)));
}

#[test]
fn a_cut_table_is_an_error_or_shorter() {
    let mut rng = Rng(13);
    for _ in 0..300 {
        let model = random_table(&mut rng, 3);
        let bytes = encode(&model);
        for length in 0..bytes.len() {
            let whole = fields(TableRef::trusted(&bytes[..length]));
            assert!(model.starts_with(&whole), "an unchecked table ends where it makes no sense");
            match TableRef::check(&bytes[..length]) {
                Ok(table) => assert_eq!(encode(&fields(table)), bytes[..length]),
                Err(error) => assert!(matches!(error.problem, Problem::ValueShort { .. }) && error.offset <= length),
            }
        }
    }
}

fn check_damaged(bytes: &[u8]) -> Result<(), DecodeError> {
    let (result, allocated) = allocations::count(|| TableRef::check(bytes));
    assert_eq!(allocated, 0, "{bytes:02x?}");
    // What was not checked is read without harm too.
    let read = fields(TableRef::trusted(bytes));
    if let Ok(table) = result {
        assert_eq!(read, fields(table));
    }
    result.map(|_| ())
}

#[test]
fn damaged_tables_do_not_panic() {
    let mut rng = Rng(14);
    let mut bad = 0;
    for _ in 0..5000 {
        let bytes = encode(&random_table(&mut rng, 3));
        let damaged = rng.damaged(&bytes);
        bad += usize::from(check_damaged(&damaged).is_err());
        let count = rng.below(60);
        let _ = check_damaged(&rng.bytes(count));
    }
    assert!(bad > 1000, "{bad}");
}

/// Tables within tables, so many.
fn nested(depth: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(depth * 6);
    for left in (0..depth - 1).rev() {
        bytes.extend(b"\0F");
        bytes.extend((left as u32 * 6).to_be_bytes());
    }
    bytes
}

#[test]
fn depth_is_bounded() {
    assert!(TableRef::check(&nested(TABLE_DEPTH_MAX)).is_ok());
    for depth in [TABLE_DEPTH_MAX + 1, 1_000_000] {
        let bytes = nested(depth);
        let error = TableRef::check(&bytes).expect_err("too deep");
        assert_eq!((error.problem, error.reply_code()), (Problem::Depth, ReplyCode::SyntaxError));
        assert_eq!(error.offset, TABLE_DEPTH_MAX * 6);
    }
    let arrays = [&b"\x01a"[..], &[b'A', 0, 0, 0, 5].repeat(100_000)].concat();
    assert!(TableRef::check(&arrays).is_err());
}

#[test]
fn announced_lengths_cost_nothing() {
    for tag in *b"SxFA" {
        let bytes = [b"\x01a", &[tag][..], &[0xff; 4], b"few"].concat();
        let error = TableRef::check(&bytes).expect_err("not there");
        let Problem::ValueShort { need, have } = error.problem else { panic!("{error}") };
        assert_eq!((need, have, error.offset), (u32::MAX as usize, 3, 2));
        let _ = check_damaged(&bytes);
    }
    let start = [&[0, 10, 0, 10, 0, 9][..], &[0xff; 4]].concat();
    let (result, allocated) = allocations::count(|| Method::decode(&start).map(|_| ()));
    assert!(result.is_err() && allocated == 0);
}

/// Each row is what RabbitMQ 4.3.6 answers to a declaration with the other value.
#[test]
fn arguments_agree_as_in_rabbitmq() {
    use Value::{Bytes, Decimal, F32, F64, I8, I32, I64, LongString, Timestamp, U8, U16, U32, Void};
    let table = |names: [&'static str; 2]| {
        Table::build(|writer| {
            writer.put(short(names[0]), 1i64);
            writer.put(short(names[1]), 1i64);
        })
    };
    let (forth, back) = (table(["a", "b"]), table(["b", "a"]));
    let wide = Table::build(|writer| writer.array(short("k"), |array| array.put(1i64)));
    let narrow = Table::build(|writer| writer.array(short("k"), |array| array.put(1i32)));
    let rows = [
        (I64(1), I32(1), true),
        (U32(1), I8(1), true),
        (U16(1), U8(1), true),
        (Timestamp(1), I64(1), true),
        (I64(1), I64(2), false),
        (I64(1), F64(1.0), false),
        (F64(1.0), F32(1.0), true),
        (LongString(b"a"), Bytes(b"a"), true),
        (LongString(b"a"), LongString(b"b"), false),
        (I64(1), LongString(b"1"), false),
        (Value::Bool(true), I64(1), false),
        (Void, Void, true),
        (Decimal { scale: 1, unscaled: 2 }, Decimal { scale: 1, unscaled: 2 }, true),
        (Value::Table(forth.view()), Value::Table(forth.view()), true),
        (Value::Table(forth.view()), Value::Table(back.view()), false),
        (wide.view().get("k").unwrap(), narrow.view().get("k").unwrap(), false),
        (wide.view().get("k").unwrap(), wide.view().get("k").unwrap(), true),
    ];
    for (one, two, agree) in rows {
        assert_eq!((one.is_equivalent(two), two.is_equivalent(one)), (agree, agree), "{one:?} and {two:?}");
    }
    assert!(forth.view().is_equivalent_in(back.view(), "a"));
    assert!(forth.view().is_equivalent_in(back.view(), "missing"));
    assert!(!forth.view().is_equivalent_in(TableRef::default(), "a"));
}

#[test]
fn short_strings_hold_their_bound() {
    let long = "é".repeat(200);
    assert!(amqp_wire::ShortStr::new(&long).is_none() && ShortBytes::new(long.as_bytes()).is_none());
    assert_eq!(amqp_wire::ShortStr::cut(&long).len(), 254, "whole characters");
    assert_eq!(ShortBytes::new(&long.as_bytes()[..255]).and_then(ShortBytes::as_str), None, "half a character");
}
