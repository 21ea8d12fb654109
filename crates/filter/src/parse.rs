//! From text to expression: a grammar over `winnow`, with errors that say where and why. How long a text, and how deep an expression may
//! be, is bounded.

use hashbrown::HashSet;
use winnow::ascii::multispace0;
use winnow::combinator::{alt, opt, separated};
use winnow::error::{ErrMode, ParserError};
use winnow::stream::Location;
use winnow::token::{any, literal, take_while};
use winnow::{LocatingSlice, ModalResult, Parser};

use crate::expression::{Expression, Literal, Relation, Test, TimeTest};
use crate::number::{Number, Numbers};
use crate::pattern::{PATTERN_CHARS_MAX, Pattern};
use crate::summary::Place;

/// Longest expression, in bytes: as much as a string of Kafka's protocol has, which sets and shows those of groups.
pub const FILTER_BYTES_MAX: usize = i16::MAX as usize;
/// How many tests an expression may have that is set anew; literals of a list count as one.
pub const FILTER_TESTS_MAX: usize = 1000;
/// How deep parentheses and NOT may be nested.
const DEPTH_MAX: usize = 32;
/// Characters of what was found that an error repeats.
const SHOWN_CHARS: usize = 20;

/// Why a text is no filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at character {position}: {reason}")]
pub struct FilterError {
    /// The character at which the text stops to make sense, the first is 1.
    pub position: usize,
    /// Why.
    pub reason: String,
}

type Input<'a> = LocatingSlice<&'a str>;
type Parsed<T> = ModalResult<T, Fault>;

/// A failure at a byte of the text.
#[derive(Debug)]
struct Fault {
    at: usize,
    reason: String,
}

impl ParserError<Input<'_>> for Fault {
    type Inner = Self;

    fn from_input(input: &Input<'_>) -> Self {
        // What fails without a reason is tried otherwise; a failure that ends the parse has one.
        Self { at: input.current_token_start(), reason: String::new() }
    }

    fn into_inner(self) -> Result<Self, Self> {
        Ok(self)
    }
}

enum Field {
    Place(Place),
    Timestamp,
}

/// A list of an expression's literals with where each begins.
type Literals = Vec<(usize, Literal)>;

pub(crate) fn check_tests(expression: &Expression) -> Result<(), FilterError> {
    match expression.tests() {
        0..=FILTER_TESTS_MAX => Ok(()),
        tests => Err(FilterError {
            position: 1,
            reason: format!("the expression has {tests} tests, at most {FILTER_TESTS_MAX} are allowed"),
        }),
    }
}

pub(crate) fn parse(text: &str) -> Result<Expression, FilterError> {
    if text.len() > FILTER_BYTES_MAX {
        let reason = format!("the expression has {} bytes, at most {FILTER_BYTES_MAX} are allowed", text.len());
        return Err(FilterError { position: 1, reason });
    }
    let mut input = LocatingSlice::new(text);
    let outcome = expression(&mut input, 0).and_then(|expression| {
        skip_space(&mut input)?;
        if input.is_empty() { Ok(expression) } else { expected(&mut input, "AND, OR or the end") }
    });
    outcome.map_err(|error| match error {
        ErrMode::Backtrack(fault) | ErrMode::Cut(fault) => {
            let before = text.get(..fault.at).unwrap_or(text);
            FilterError { position: before.chars().count() + 1, reason: fault.reason }
        }
        ErrMode::Incomplete(_) => {
            FilterError { position: text.chars().count() + 1, reason: "the expression is not complete".to_owned() }
        }
    })
}

fn skip_space(input: &mut Input<'_>) -> Parsed<()> {
    multispace0.void().parse_next(input)
}

fn refuse<T>(at: usize, reason: impl Into<String>) -> Parsed<T> {
    Err(ErrMode::Cut(Fault { at, reason: reason.into() }))
}

/// Says what should have followed, and what does.
fn expected<T>(input: &mut Input<'_>, what: &str) -> Parsed<T> {
    skip_space(input)?;
    let at = input.current_token_start();
    let word: String = input.chars().take_while(|one| is_name(*one)).take(SHOWN_CHARS).collect();
    let found = match input.chars().next() {
        None => "the end".to_owned(),
        Some(one) if word.is_empty() => format!("{one:?}"),
        Some(_) => word,
    };
    refuse(at, format!("expected {what}, found {found}"))
}

fn is_word(one: char) -> bool {
    one.is_ascii_alphanumeric() || one == '_'
}

fn is_name(one: char) -> bool {
    one.is_alphanumeric() || matches!(one, '_' | '-' | '.')
}

fn keyword<'a>(word: &'static str) -> impl Parser<Input<'a>, (), ErrMode<Fault>> {
    (multispace0, take_while(1.., is_word).verify(move |found: &str| found.eq_ignore_ascii_case(word))).void()
}

fn symbol<'a>(text: &'static str) -> impl Parser<Input<'a>, (), ErrMode<Fault>> {
    (multispace0, literal(text)).void()
}

fn has<'a>(input: &mut Input<'a>, what: impl Parser<Input<'a>, (), ErrMode<Fault>>) -> Parsed<bool> {
    Ok(opt(what).parse_next(input)?.is_some())
}

fn need<'a>(input: &mut Input<'a>, what: impl Parser<Input<'a>, (), ErrMode<Fault>>, name: &str) -> Parsed<()> {
    if has(input, what)? { Ok(()) } else { expected(input, name) }
}

fn expression(input: &mut Input<'_>, depth: usize) -> Parsed<Expression> {
    let mut parts = vec![term(input, depth)?];
    while has(input, keyword("OR"))? {
        parts.push(term(input, depth)?);
    }
    Ok(one_or(parts, Expression::Any))
}

fn term(input: &mut Input<'_>, depth: usize) -> Parsed<Expression> {
    let mut parts = vec![factor(input, depth)?];
    while has(input, keyword("AND"))? {
        parts.push(factor(input, depth)?);
    }
    Ok(one_or(parts, Expression::All))
}

fn one_or(mut parts: Vec<Expression>, several: impl Fn(Vec<Expression>) -> Expression) -> Expression {
    match parts.pop() {
        Some(only) if parts.is_empty() => only,
        last => several(parts.into_iter().chain(last).collect()),
    }
}

fn factor(input: &mut Input<'_>, depth: usize) -> Parsed<Expression> {
    skip_space(input)?;
    if depth > DEPTH_MAX {
        return refuse(
            input.current_token_start(),
            format!("parentheses and NOT are nested more than {DEPTH_MAX} deep"),
        );
    }
    if has(input, keyword("NOT"))? {
        return Ok(Expression::Not(Box::new(factor(input, depth + 1)?)));
    }
    if has(input, symbol("("))? {
        let inner = expression(input, depth + 1)?;
        need(input, symbol(")"), "AND, OR or )")?;
        return Ok(inner);
    }
    for (word, value) in [("TRUE", true), ("FALSE", false)] {
        if has(input, keyword(word))? {
            return Ok(Expression::Constant(value));
        }
    }
    test(input)
}

fn field(input: &mut Input<'_>) -> Parsed<Field> {
    if has(input, keyword("key"))? {
        return Ok(Field::Place(Place::Key));
    }
    if has(input, keyword("timestamp"))? {
        return Ok(Field::Timestamp);
    }
    if !has(input, (keyword("header"), literal(".")).void())? {
        return expected(input, "a field: key, timestamp or header.NAME");
    }
    let bare = |input: &mut Input<'_>| take_while(1.., is_name).map(str::to_owned).parse_next(input);
    match opt(alt((bare, |input: &mut Input<'_>| quoted(input, '"')))).parse_next(input)? {
        Some(name) => Ok(Field::Place(Place::Header(name.into_bytes().into()))),
        None => expected(input, "the name of a header"),
    }
}

/// What is between two quotes; a quote in it is written twice.
fn quoted(input: &mut Input<'_>, quote: char) -> Parsed<String> {
    let at = input.current_token_start();
    any.verify(|one| *one == quote).void().parse_next(input)?;
    let mut text = String::new();
    loop {
        match opt(any).parse_next(input)? {
            Some(one) if one == quote => match input.chars().next() {
                Some(next) if next == quote => {
                    any.void().parse_next(input)?;
                    text.push(quote);
                }
                _ => return Ok(text),
            },
            Some(one) => text.push(one),
            None => return refuse(at, format!("the closing {quote} is missing")),
        }
    }
}

fn value(input: &mut Input<'_>) -> Parsed<(usize, Literal)> {
    skip_space(input)?;
    let at = input.current_token_start();
    if let Some(text) = opt(|input: &mut Input<'_>| quoted(input, '\'')).parse_next(input)? {
        return Ok((at, Literal::Bytes(text.into_bytes().into())));
    }
    let prefixed = (alt((literal("X'"), literal("x'"))), take_while(0.., |one: char| one != '\''));
    if let Some((_, digits)) = opt(prefixed).parse_next(input)? {
        need(input, literal("'").void(), "the closing '")?;
        return hexadecimal(digits, at);
    }
    let number = opt(take_while(1.., |one: char| one.is_ascii_digit() || "+-.".contains(one))).parse_next(input)?;
    match number.map(|text: &str| Number::spelt(text.as_bytes())) {
        Some(Some(number)) => Ok((at, Literal::Number(number))),
        Some(None) => refuse(at, "this is no number"),
        None => expected(input, "a literal: 'text', X'00ff' or a number"),
    }
}

fn literals(input: &mut Input<'_>) -> Parsed<Literals> {
    need(input, symbol("("), "(")?;
    let list: Literals = separated(1.., value, symbol(",")).parse_next(input)?;
    need(input, symbol(")"), ", or )")?;
    Ok(list)
}

fn relation(input: &mut Input<'_>) -> Parsed<Option<Relation>> {
    let one = |text: &'static str, relation: Relation| literal(text).value(relation);
    let relations = alt((
        one("<>", Relation::Unequal),
        one("!=", Relation::Unequal),
        one("<=", Relation::LessOrEqual),
        one(">=", Relation::GreaterOrEqual),
        one("<", Relation::Less),
        one(">", Relation::Greater),
        one("=", Relation::Equal),
    ));
    skip_space(input)?;
    opt(relations).parse_next(input)
}

fn test(input: &mut Input<'_>) -> Parsed<Expression> {
    let field = field(input)?;
    if let Some(relation) = relation(input)? {
        let (at, literal) = value(input)?;
        return Ok(match field {
            Field::Place(place) => Expression::Test(place, Test::Compare(relation, literal)),
            Field::Timestamp => Expression::Time(TimeTest::Compare(relation, number(at, literal)?)),
        });
    }
    if has(input, keyword("IS"))? {
        let negated = has(input, keyword("NOT"))?;
        need(input, keyword("NULL"), "NULL")?;
        let inner = match field {
            Field::Place(place) => Expression::Test(place, Test::IsNull),
            Field::Timestamp => Expression::Time(TimeTest::IsNull),
        };
        return Ok(negate(inner, negated));
    }
    let negated = has(input, keyword("NOT"))?;
    let inner = if has(input, keyword("IN"))? {
        within(field, literals(input)?)?
    } else if has(input, keyword("BETWEEN"))? {
        between(input, field)?
    } else if has(input, keyword("LIKE"))? {
        like(input, field)?
    } else {
        return expected(
            input,
            if negated { "IN, BETWEEN or LIKE" } else { "=, <>, <, <=, >, >=, IN, BETWEEN, LIKE or IS" },
        );
    };
    Ok(negate(inner, negated))
}

fn negate(inner: Expression, negated: bool) -> Expression {
    if negated { Expression::Not(Box::new(inner)) } else { inner }
}

fn number(at: usize, literal: Literal) -> Parsed<Number> {
    match literal {
        Literal::Number(number) => Ok(number),
        Literal::Bytes(_) => refuse(at, "timestamp is compared with a number, of milliseconds since 1970"),
    }
}

fn within(field: Field, literals: Literals) -> Parsed<Expression> {
    let Field::Place(place) = field else {
        let numbers = literals.into_iter().map(|(at, literal)| number(at, literal)).collect::<Parsed<Numbers>>()?;
        return Ok(Expression::Time(TimeTest::In(numbers)));
    };
    let (mut texts, mut numbers) = (HashSet::new(), Vec::new());
    for (_, literal) in literals {
        match literal {
            Literal::Bytes(bytes) => drop(texts.insert(bytes)),
            Literal::Number(number) => numbers.push(number),
        }
    }
    Ok(Expression::Test(place, Test::In(texts, numbers.into_iter().collect())))
}

fn between(input: &mut Input<'_>, field: Field) -> Parsed<Expression> {
    let (low_at, low) = value(input)?;
    need(input, keyword("AND"), "AND")?;
    let (high_at, high) = value(input)?;
    Ok(match field {
        Field::Place(place) => Expression::Test(place, Test::Between(low, high)),
        Field::Timestamp => Expression::Time(TimeTest::Between(number(low_at, low)?, number(high_at, high)?)),
    })
}

fn like(input: &mut Input<'_>, field: Field) -> Parsed<Expression> {
    skip_space(input)?;
    let at = input.current_token_start();
    let Field::Place(place) = field else { return refuse(at, "timestamp is a number, and LIKE compares text") };
    let Some(text) = opt(|input: &mut Input<'_>| quoted(input, '\'')).parse_next(input)? else {
        return expected(input, "a pattern: 'text'");
    };
    if text.chars().count() > PATTERN_CHARS_MAX {
        return refuse(at, format!("a pattern has at most {PATTERN_CHARS_MAX} characters"));
    }
    let mut escape = None;
    if has(input, keyword("ESCAPE"))? {
        skip_space(input)?;
        let at = input.current_token_start();
        let text = opt(|input: &mut Input<'_>| quoted(input, '\'')).parse_next(input)?.unwrap_or_default();
        let mut chars = text.chars();
        escape = match (chars.next(), chars.next()) {
            (Some(one), None) if !matches!(one, '%' | '_') => Some(one),
            _ => return refuse(at, "ESCAPE is followed by one character in quotes, neither % nor _"),
        };
    }
    match Pattern::new(&text, escape) {
        Some(pattern) => Ok(Expression::Test(place, Test::Like(pattern))),
        None => refuse(at, "in a pattern %, _ or the escape character follows the escape character"),
    }
}

fn hexadecimal(digits: &str, at: usize) -> Parsed<(usize, Literal)> {
    let digit = |one: u8| char::from(one).to_digit(16).map(|digit| digit as u8);
    let pairs = digits.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    });
    match pairs.collect::<Option<Box<[u8]>>>() {
        Some(bytes) => Ok((at, Literal::Bytes(bytes))),
        None => refuse(at, "between X' and ' are hexadecimal digits, two a byte"),
    }
}
