//! From a method and a path to a handler: a table of routes in each file of a resource.

use axum::http::Method;

use super::answer::Outcome;
use super::call::Call;
use super::{
    bindings, channels, connections, consumers, definitions, exchanges, health, messages, nodes, overview, parameters,
    permissions, policies, queues, users, vhosts,
};
use crate::answers::Doing;
use crate::bodies::Bounds;
use crate::paths;

/// Who may ask for something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Whoever may log in to management: any of the tags.
    Management,
    /// Whoever may log in to management and has access to the virtual host that is named in the path.
    Vhost,
    /// Tag `monitoring` or `administrator`.
    Monitoring,
    /// Tag `policymaker` or `administrator`.
    Policymaker,
    /// Tag `administrator`.
    Administrator,
}

/// One row of the table.
pub(crate) struct Route {
    pub method: Method,
    /// Segments, those in braces stand for any; `{vhost}` is known by its name.
    pub path: &'static str,
    pub access: Access,
    pub handler: fn(&Call<'_>) -> Outcome,
}

impl Route {
    /// What a body may be like.
    pub fn body_bounds(&self) -> Bounds {
        match self.path {
            "/definitions" | "/definitions/{vhost}" => Bounds::DEFINITIONS,
            "/exchanges/{vhost}/{name}/publish" => Bounds::MESSAGE,
            _ => Bounds::USUAL,
        }
    }
}

/// What the row for a method and a path does, as far as answers go.
pub(crate) fn doing(method: &Method, segments: &[String]) -> Doing {
    match find(method, segments) {
        Found::Route(route, _) if route.method == Method::GET => Doing::Looks,
        Found::Route(route, _) if route.path == "/queues/{vhost}/{name}/get" => Doing::Takes,
        _ => Doing::Changes,
    }
}

/// Shorthand for a row.
pub(crate) const fn route(
    method: Method,
    path: &'static str,
    access: Access,
    handler: fn(&Call<'_>) -> Outcome,
) -> Route {
    Route { method, path, access, handler }
}

/// All tables.
pub(crate) fn tables() -> impl Iterator<Item = &'static Route> {
    [
        overview::ROUTES,
        nodes::ROUTES,
        vhosts::ROUTES,
        users::ROUTES,
        permissions::ROUTES,
        policies::ROUTES,
        parameters::ROUTES,
        exchanges::ROUTES,
        messages::ROUTES,
        queues::ROUTES,
        bindings::ROUTES,
        consumers::ROUTES,
        connections::ROUTES,
        channels::ROUTES,
        health::ROUTES,
        definitions::ROUTES,
    ]
    .into_iter()
    .flatten()
}

impl paths::Row for Route {
    fn method(&self) -> &str {
        self.method.as_str()
    }

    fn path(&self) -> &'static str {
        self.path
    }
}

/// What a path leads to.
pub(crate) type Found<'s> = paths::Found<'s, Route>;

/// Looks a path up; `segments` are decoded, without `api`.
pub(crate) fn find<'s>(method: &Method, segments: &'s [String]) -> Found<'s> {
    paths::find(tables(), method, segments)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths::segments;

    #[test]
    fn a_literal_segment_goes_first() {
        let of = |path: &str| segments(path).expect("UTF-8");
        let all = of("/queues/%2F/a%2Fb/");
        assert_eq!(all, ["queues", "/", "a/b"]);
        let Found::Route(route, filled) = find(&Method::GET, &all) else { panic!("it is there") };
        assert_eq!((route.path, &filled[..]), ("/queues/{vhost}/{name}", &[("vhost", "/"), ("name", "a/b")][..]));
        assert!(
            matches!(find(&Method::POST, &all), Found::OtherMethod(allowed) if allowed == "DELETE, GET, HEAD, PUT")
        );
        assert!(matches!(find(&Method::GET, &of("/nowhere")), Found::Nothing));
        let by_user = of("/connections/username/guest");
        assert!(
            matches!(find(&Method::GET, &by_user), Found::Route(route, _) if route.path == "/connections/username/{name}")
        );
    }

    #[test]
    fn what_is_documented_is_served_and_nothing_else() {
        let text = include_str!("../../../../docs/management.md");
        let mut documented = std::collections::BTreeSet::new();
        for row in text.lines().filter(|line| line.starts_with("| ") && line.contains("| /")) {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            for path in cells[2].split(", ") {
                documented.extend(cells[1].split(", ").map(|method| (method.to_owned(), path.to_owned())));
            }
        }
        let served = tables().map(|route| (route.method.to_string(), route.path.to_owned())).collect();
        assert_eq!(documented, served);
    }

    #[test]
    fn no_row_comes_twice() {
        let mut seen = std::collections::BTreeSet::new();
        for route in tables() {
            assert!(seen.insert((route.method.to_string(), route.path)), "{} {}", route.method, route.path);
        }
    }
}
