//! The notation as data.

use std::fmt;

/// A range of versions, both ends inclusive; `last` is large when the range is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// First version.
    pub first: i16,
    /// Last version.
    pub last: i16,
}

/// A field's type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// One of the built-in types.
    Plain(String),
    /// A struct by name.
    Struct(String),
    /// An array of something.
    Array(Box<Type>),
}

/// A field of a struct.
#[derive(Clone, Debug)]
pub struct Field {
    /// Snake case.
    pub name: String,
    /// What it holds.
    pub kind: Type,
    /// When it is on the wire.
    pub versions: Versions,
    /// When it may be null.
    pub nullable: Option<Versions>,
    /// Its number as a tagged field.
    pub tag: Option<u32>,
    /// In the notation's words.
    pub default: Option<String>,
}

/// A named group of fields.
#[derive(Clone, Debug, Default)]
pub struct Struct {
    /// Camel case.
    pub name: String,
    /// In wire order.
    pub fields: Vec<Field>,
}

/// One API.
#[derive(Clone, Debug)]
pub struct Api {
    /// Its key.
    pub key: i16,
    /// Camel case.
    pub name: String,
    /// Versions spoken.
    pub versions: Versions,
    /// Versions with compact lengths and tags; `None`: none.
    pub flexible: Option<Versions>,
    /// The request and its structs, the request itself first.
    pub request: Vec<Struct>,
    /// The response and its structs.
    pub response: Vec<Struct>,
}

/// A line that the notation does not allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// From 1.
    pub line: usize,
    /// What is wrong.
    pub what: &'static str,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

const PLAIN: [&str; 12] =
    ["bool", "int8", "int16", "uint16", "int32", "uint32", "int64", "float64", "uuid", "string", "bytes", "records"];

fn versions(text: &str) -> Option<Versions> {
    if let Some(first) = text.strip_suffix('+') {
        return Some(Versions { first: first.parse().ok()?, last: i16::MAX });
    }
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some(Versions { first: first.parse().ok()?, last: last.parse().ok()? })
}

fn kind(text: &str) -> Type {
    match text.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')) {
        Some(inner) => Type::Array(Box::new(kind(inner))),
        None if PLAIN.contains(&text) => Type::Plain(text.to_owned()),
        None => Type::Struct(text.to_owned()),
    }
}

fn struct_of(kind: &Type) -> Option<&str> {
    match kind {
        Type::Plain(_) => None,
        Type::Struct(name) => Some(name),
        Type::Array(inner) => struct_of(inner),
    }
}

fn field(line: &str) -> Option<Field> {
    let (declared, default) = match line.split_once(" = ") {
        Some((declared, default)) => (declared, Some(default.trim().to_owned())),
        None => (line, None),
    };
    let (name, rest) = declared.split_once(": ")?;
    let mut words = rest.split_whitespace();
    let mut parsed = Field {
        name: name.trim().to_owned(),
        kind: kind(words.next()?),
        versions: versions(words.next()?)?,
        nullable: None,
        tag: None,
        default,
    };
    while let Some(word) = words.next() {
        match word {
            "nullable" => parsed.nullable = Some(versions(words.next()?)?),
            "tag" => parsed.tag = Some(words.next()?.parse().ok()?),
            _ => return None,
        }
    }
    Some(parsed)
}

/// Reads one file of the notation.
///
/// # Errors
/// The first line that does not fit.
pub fn parse(text: &str) -> Result<Api, ParseError> {
    let mut api = Api {
        key: -1,
        name: String::new(),
        versions: Versions { first: 0, last: 0 },
        flexible: None,
        request: Vec::new(),
        response: Vec::new(),
    };
    let mut in_response = false;
    // Structs that are open, by indentation: (depth, index in the message).
    let mut open: Vec<(usize, usize)> = Vec::new();
    for (number, line) in text.lines().enumerate().map(|(number, line)| (number + 1, line)) {
        let fail = |what| ParseError { line: number, what };
        let depth = (line.len() - line.trim_start().len()) / 2;
        let trimmed = line.trim();
        let words: Vec<&str> = trimmed.split_whitespace().collect();
        match (depth, words.as_slice()) {
            (_, []) => {}
            (0, ["api", key, name]) => {
                api.key = key.parse().map_err(|_| fail("api key is not a number"))?;
                api.name = (*name).to_owned();
            }
            (0, ["versions", range]) => api.versions = versions(range).ok_or(fail("not a version range"))?,
            (0, ["flexible", "none"]) => {}
            (0, ["flexible", range]) => api.flexible = Some(versions(range).ok_or(fail("not a version range"))?),
            (0, [which @ ("request" | "response")]) => {
                in_response = *which == "response";
                let message = if in_response { &mut api.response } else { &mut api.request };
                let suffix = if in_response { "Response" } else { "Request" };
                message.push(Struct { name: format!("{}{suffix}", api.name), fields: Vec::new() });
                open = vec![(1, 0)];
            }
            (1, ["struct", name, _]) => {
                let message = if in_response { &mut api.response } else { &mut api.request };
                message.push(Struct { name: (*name).to_owned(), fields: Vec::new() });
                open = vec![(2, message.len() - 1)];
            }
            (1.., _) => {
                let parsed = field(trimmed).ok_or(fail("not a field"))?;
                open.retain(|(at, _)| *at <= depth);
                let owner = open.last().filter(|(at, _)| *at == depth).ok_or(fail("indented under nothing"))?.1;
                let message = if in_response { &mut api.response } else { &mut api.request };
                if let Some(name) = struct_of(&parsed.kind) {
                    message.push(Struct { name: name.to_owned(), fields: Vec::new() });
                    open.push((depth + 1, message.len() - 1));
                }
                message[owner].fields.push(parsed);
            }
            _ => return Err(fail("neither a heading nor a field")),
        }
    }
    for message in [&mut api.request, &mut api.response] {
        // A field that uses a shared struct opened an empty one of the same name.
        let full: Vec<String> =
            message.iter().filter(|one| !one.fields.is_empty()).map(|one| one.name.clone()).collect();
        let mut first = true;
        message.retain(|one| std::mem::take(&mut first) || !one.fields.is_empty() || !full.contains(&one.name));
    }
    Ok(api)
}
