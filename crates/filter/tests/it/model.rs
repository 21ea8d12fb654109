//! Random expressions, written and read back, against an evaluator that looks at nothing but tables of truth.

use bytes::Bytes;
use filter::Filter;
use record::{BatchBuilder, select};

/// Xorshift: the same numbers every time.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

#[derive(Clone, Debug)]
enum Model {
    Equal(usize, &'static str),
    Unequal(usize, &'static str),
    OneOf(usize, Vec<&'static str>),
    Null(usize),
    Not(Box<Model>),
    And(Box<Model>, Box<Model>),
    Or(Box<Model>, Box<Model>),
}

const FIELDS: [&str; 3] = ["key", "header.a", "header.b"];
const VALUES: [&str; 4] = ["x", "y", "z", "it's"];

type Row = [Option<&'static str>; 3];

fn random(random_of: &mut Random, depth: usize) -> Model {
    let field = random_of.below(3);
    let kind = if depth == 0 { random_of.below(4) } else { random_of.below(7) };
    let value = VALUES[random_of.below(4)];
    let mut inner = || Box::new(random(random_of, depth - 1));
    match kind {
        0 => Model::Equal(field, value),
        1 => Model::Unequal(field, value),
        2 => Model::OneOf(field, (0..=random_of.below(3)).map(|at| VALUES[at]).collect()),
        3 => Model::Null(field),
        4 => Model::Not(inner()),
        5 => Model::And(inner(), inner()),
        _ => Model::Or(inner(), inner()),
    }
}

fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', "''"))
}

fn written(model: &Model) -> String {
    match model {
        Model::Equal(field, value) => format!("{} = {}", FIELDS[*field], quoted(value)),
        Model::Unequal(field, value) => format!("{} <> {}", FIELDS[*field], quoted(value)),
        Model::OneOf(field, values) => {
            format!(
                "{} IN ({})",
                FIELDS[*field],
                values.iter().map(|value| quoted(value)).collect::<Vec<_>>().join(", ")
            )
        }
        Model::Null(field) => format!("{} IS NULL", FIELDS[*field]),
        Model::Not(inner) => format!("NOT ({})", written(inner)),
        Model::And(one, other) => format!("({} AND {})", written(one), written(other)),
        Model::Or(one, other) => format!("({} OR {})", written(one), written(other)),
    }
}

/// 0 false, 1 neither, 2 true: and is the least, or the greatest, not the mirror.
fn truth(model: &Model, row: &Row) -> i32 {
    let known =
        |field: usize, holds: &dyn Fn(&str) -> bool| row[field].map_or(1, |value| if holds(value) { 2 } else { 0 });
    match model {
        Model::Equal(field, value) => known(*field, &|found| found == *value),
        Model::Unequal(field, value) => known(*field, &|found| found != *value),
        Model::OneOf(field, values) => known(*field, &|found| values.contains(&found)),
        Model::Null(field) => {
            if row[*field].is_none() {
                2
            } else {
                0
            }
        }
        Model::Not(inner) => 2 - truth(inner, row),
        Model::And(one, other) => truth(one, row).min(truth(other, row)),
        Model::Or(one, other) => truth(one, row).max(truth(other, row)),
    }
}

pub(crate) fn rows() -> Vec<Row> {
    let choices = [None, Some("x"), Some("y"), Some("it's")];
    let mut rows = Vec::new();
    for key in choices {
        for a in choices {
            rows.extend(choices.map(|b| [key, a, b]));
        }
    }
    rows
}

pub(crate) fn batch(rows: &[Row]) -> Bytes {
    let mut builder = BatchBuilder::default();
    for row in rows {
        let headers: Vec<(&[u8], Option<&[u8]>)> = [(b"a", row[1]), (b"b", row[2])]
            .iter()
            .filter_map(|(name, value)| Some((&name[..], Some((*value)?.as_bytes()))))
            .collect();
        builder = builder.record_with_headers(0, row[0].map(str::as_bytes), Some(b"v"), &headers);
    }
    builder.build()
}

#[test]
fn expressions_say_what_their_tables_of_truth_say() {
    let mut random_of = Random(0x9e37_79b9_7f4a_7c15);
    let rows = rows();
    let batch = batch(&rows);
    for _ in 0..3000 {
        let depth = random_of.below(5);
        let model = random(&mut random_of, depth);
        let text = written(&model);
        let filter = Filter::parse(&text).unwrap_or_else(|refused| panic!("{text}: {refused}"));
        let mut at = 0;
        select(&batch, 1 << 24, |record| {
            let expected = truth(&model, &rows[at]) == 2;
            assert_eq!(filter.matches(record), expected, "{text} of {:?}", rows[at]);
            at += 1;
            Some(expected)
        })
        .expect("a batch");
    }
}

/// No summary says of a batch that nothing in it is wanted when something is.
#[test]
fn summaries_never_lose_a_record() {
    let mut random_of = Random(77);
    let all = rows();
    let (mut asked, mut skipped) = (0, 0);
    for _ in 0..3000 {
        let depth = random_of.below(4);
        let model = random(&mut random_of, depth);
        let filter = Filter::parse(&written(&model)).expect("valid");
        let Some(wanted) = filter.wanted() else { continue };
        let some: Vec<Row> = (0..1 + random_of.below(3)).map(|_| all[random_of.below(all.len())]).collect();
        let mut summary = filter::Summary::new(wanted);
        let mut any = false;
        select(&batch(&some), 1 << 24, |record| {
            summary.add(wanted, record);
            any |= filter.matches(record);
            Some(true)
        })
        .expect("a batch");
        asked += 1;
        skipped += usize::from(!summary.may_have(wanted));
        assert!(summary.may_have(wanted) || !any, "{} of {some:?}", written(&model));
    }
    assert!(asked > 500 && skipped > asked / 10, "{skipped} of {asked} were skipped");
}
