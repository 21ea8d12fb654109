//! Paths of HTTP as tables of routes know them: literal segments, and names in braces that stand for any segment.

use std::collections::BTreeSet;

use axum::http::Method;

/// Segments of a path that stand in place of names in braces.
pub(crate) type Filled<'s> = Vec<(&'static str, &'s str)>;

/// A row of a table of routes.
pub(crate) trait Row {
    /// What it takes.
    fn method(&self) -> &str;
    /// Of what: begins with `/`, segments in braces stand for any.
    fn path(&self) -> &'static str;
}

/// What a path leads to.
pub(crate) enum Found<'s, R: 'static> {
    /// A row, and what stands in place of the braces.
    Route(&'static R, Filled<'s>),
    /// The path is known, the method is not: those that it takes, as `Allow` names them.
    OtherMethod(String),
    Nothing,
}

/// Looks a path up in a table; `segments` are decoded. A literal segment goes before one in braces.
pub(crate) fn find<'s, R: Row>(
    table: impl Iterator<Item = &'static R>,
    method: &Method,
    segments: &'s [String],
) -> Found<'s, R> {
    let mut best: Option<(usize, &'static R, Filled<'s>)> = None;
    let mut allowed = BTreeSet::new();
    for row in table {
        let Some((literal, filled)) = fit(row.path(), segments) else { continue };
        allowed.insert(row.method());
        if row.method() == method.as_str() && best.as_ref().is_none_or(|(most, _, _)| literal > *most) {
            best = Some((literal, row, filled));
        }
    }
    match best {
        Some((_, row, filled)) => Found::Route(row, filled),
        None if allowed.is_empty() => Found::Nothing,
        None => {
            if allowed.contains("GET") {
                allowed.insert("HEAD");
            }
            Found::OtherMethod(Vec::from_iter(allowed).join(", "))
        }
    }
}

/// How many segments are literally those of the pattern, and what the others are.
fn fit<'s>(pattern: &'static str, segments: &'s [String]) -> Option<(usize, Filled<'s>)> {
    let (mut literal, mut filled) = (0, Vec::new());
    let mut given = segments.iter();
    for wanted in pattern.split('/').skip(1) {
        let segment = given.next()?;
        match wanted.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
            Some(name) => filled.push((name, segment.as_str())),
            None if wanted == segment => literal += 1,
            None => return None,
        }
    }
    given.next().is_none().then_some((literal, filled))
}

/// Takes a path apart: segments are decoded, empty ones at the end left out. `None`: not UTF-8.
pub(crate) fn segments(path: &str) -> Option<Vec<String>> {
    let decode =
        |part: &str| percent_encoding::percent_decode_str(part).decode_utf8().ok().map(|text| text.into_owned());
    let mut all: Vec<String> = path.split('/').skip(1).map(decode).collect::<Option<_>>()?;
    while all.last().is_some_and(String::is_empty) {
        all.pop();
    }
    Some(all)
}
