//! From a method and a path to a handler: a table of routes in each file of a resource, and one table of those.

use super::answer::Outcome;
use super::call::Call;
use super::schema::{Field, Kind, Schema};
use super::{
    acls, bindings, config, connections, exchanges, filters, groups, journals, listing, live, login, messages, openapi,
    operations, overview, permissions, queues, quotas, records, reset, topics, users, vhosts, why,
};
use crate::paths;

const DRY_RUN: [Field; 1] = [(
    "dry_run",
    Kind::Bool,
    "true: everything is checked and nothing done; the answer is what doing it would have, with 200 in place of 201.",
)];

/// All resources.
pub(crate) const TABLES: &[&[Route]] = &[
    openapi::ROUTES,
    login::ROUTES,
    overview::ROUTES,
    journals::ROUTES,
    config::ROUTES,
    connections::ROUTES,
    topics::ROUTES,
    records::ROUTES,
    live::ROUTES,
    groups::ROUTES,
    reset::ROUTES,
    filters::ROUTES,
    vhosts::ROUTES,
    queues::ROUTES,
    exchanges::ROUTES,
    messages::ROUTES,
    bindings::ROUTES,
    users::ROUTES,
    permissions::ROUTES,
    acls::ROUTES,
    quotas::ROUTES,
    why::ROUTES,
    operations::ROUTES,
];

/// Who may ask for something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Everybody.
    Open,
    /// Whoever has one of the tags; the handler looks at what he may see and change.
    LoggedIn,
    /// Tag `monitoring` or `administrator`.
    Monitoring,
    /// Tag `administrator`.
    Administrator,
}

/// Methods of HTTP that rows are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

impl Verb {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

/// What is answered when all is well.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    /// 204.
    Nothing,
    /// One of these.
    One(&'static Schema),
    /// A list of these, as `listing.rs` makes it.
    List(&'static Schema),
    /// A body of this content type, whose shape is not described.
    Other(&'static str),
}

/// One row of a table.
#[derive(Clone, Copy)]
pub(crate) struct Route {
    pub verb: Verb,
    /// Without `/v1`; segments in braces stand for any.
    pub path: &'static str,
    pub access: Access,
    /// One sentence.
    pub summary: &'static str,
    /// Parameters of the query beside those of all lists, and what they mean.
    pub query: &'static [Field],
    pub body: Option<&'static Schema>,
    pub answer: Shape,
    /// Statuses of what is done, as the description has them.
    pub statuses: &'static [&'static str],
    /// It can be asked what would be done (`dry_run`).
    pub tries: bool,
    pub handler: fn(&Call<'_>) -> Outcome,
}

const fn route(
    verb: Verb,
    path: &'static str,
    access: Access,
    summary: &'static str,
    answer: Shape,
    handler: fn(&Call<'_>) -> Outcome,
) -> Route {
    let statuses: &[&str] = if matches!(answer, Shape::Nothing) { &["204"] } else { &["200"] };
    Route { verb, path, access, summary, query: &[], body: None, answer, statuses, tries: false, handler }
}

/// A row that shows one thing.
pub(crate) const fn get(
    path: &'static str,
    access: Access,
    summary: &'static str,
    answer: &'static Schema,
    handler: fn(&Call<'_>) -> Outcome,
) -> Route {
    route(Verb::Get, path, access, summary, Shape::One(answer), handler)
}

/// A row that lists things.
pub(crate) const fn list(
    path: &'static str,
    access: Access,
    summary: &'static str,
    answer: &'static Schema,
    handler: fn(&Call<'_>) -> Outcome,
) -> Route {
    route(Verb::Get, path, access, summary, Shape::List(answer), handler)
}

/// A row that changes something.
pub(crate) const fn change(
    verb: Verb,
    path: &'static str,
    access: Access,
    summary: &'static str,
    answer: Shape,
    handler: fn(&Call<'_>) -> Outcome,
) -> Route {
    route(verb, path, access, summary, answer, handler)
}

impl Route {
    /// With a body.
    pub const fn takes(self, body: &'static Schema) -> Self {
        Self { body: Some(body), ..self }
    }

    /// With parameters of the query.
    pub const fn asks(self, query: &'static [Field]) -> Self {
        Self { query, ..self }
    }

    /// All parameters of the query.
    pub fn parameters(&self) -> impl Iterator<Item = &'static Field> {
        let of_list = if matches!(self.answer, Shape::List(_)) { listing::QUERY } else { &[] };
        let of_tries: &[Field] = if self.tries { &DRY_RUN } else { &[] };
        of_list.iter().chain(self.query).chain(of_tries)
    }

    /// What is new is answered with 201, what was there, or only tried, with 200.
    pub const fn makes(self) -> Self {
        Self { statuses: &["200", "201"], ..self }
    }

    /// Each time something new is made.
    pub const fn always_makes(self) -> Self {
        Self { statuses: &["201"], ..self }
    }

    /// It can be asked what would be done.
    pub const fn tries(self) -> Self {
        Self { tries: true, ..self }
    }
}

impl paths::Row for Route {
    fn method(&self) -> &str {
        self.verb.name()
    }

    fn path(&self) -> &'static str {
        self.path
    }
}

/// All rows.
pub(crate) fn rows() -> impl Iterator<Item = &'static Route> {
    TABLES.iter().copied().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_row_comes_twice() {
        let mut seen = std::collections::BTreeSet::new();
        for route in rows() {
            assert!(seen.insert((route.verb.name(), route.path)), "{} {}", route.verb.name(), route.path);
            assert!(route.path.starts_with('/') && !route.summary.is_empty(), "{}", route.path);
        }
    }

    #[test]
    fn what_is_documented_is_served_and_nothing_else() {
        let text = include_str!("../../../../docs/api.md");
        let mut documented = std::collections::BTreeSet::new();
        for row in text.lines().filter(|line| line.starts_with("| ") && line.contains("| /v1/")) {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            documented.insert((cells[1].to_owned(), cells[2].trim_start_matches("/v1").to_owned()));
        }
        let served = rows().map(|route| (route.verb.name().to_owned(), route.path.to_owned())).collect();
        assert_eq!(documented, served);
    }
}
