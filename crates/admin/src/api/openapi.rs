//! The API described by OpenAPI 3.1, made from the tables of routes: what is not in them is not served, and what is in them is described.

use std::sync::OnceLock;

use axum::body::Body;
use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::answer::Answer;
use super::route::{Access, Route, Shape, get, rows};
use super::schema::{Field, Kind, Schema};

const DOCUMENT: Schema = Schema::new(
    "OpenApi",
    &[
        ("openapi", Kind::Text, "3.1.0"),
        ("info", Kind::Object, "Title and version."),
        ("servers", Kind::List(&Kind::Object), "Where it is."),
        ("security", Kind::List(&Kind::Object), "Ways to log in."),
        ("paths", Kind::Object, "What is served."),
        ("components", Kind::Object, "Shapes of bodies, and ways to log in."),
    ],
);

const ERROR: Schema = Schema::new(
    "Error",
    &[
        ("error", Kind::Text, "A code: invalid, not_found, conflict …"),
        ("reason", Kind::Text, "A sentence for people."),
        ("field", Kind::OrNull(&Kind::Text), "The path in the body, or the parameter of the query, that is at fault."),
    ],
);

pub(crate) const ROUTES: &[Route] =
    &[get("/openapi.json", Access::Open, "This description", &DOCUMENT, |_| Ok(answer()))];

fn parameter(place: &str, (name, kind, text): &Field, into: &mut Map<String, Value>) -> Value {
    json!({"name": name, "in": place, "required": place == "path", "description": text, "schema": kind.describe(into)})
}

fn parameters(route: &Route, into: &mut Map<String, Value>) -> Vec<Value> {
    let in_path = route.path.split('/').filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'));
    let mut all: Vec<Value> =
        in_path.map(|name| parameter("path", &(name, Kind::Text, "A name, percent-encoded."), into)).collect();
    all.extend(route.parameters().map(|field| parameter("query", field, into)));
    all
}

fn reference(schema: &Schema, into: &mut Map<String, Value>) -> Value {
    schema.describe(into);
    json!({"$ref": format!("#/components/schemas/{}", schema.name)})
}

fn responses(route: &Route, into: &mut Map<String, Value>) -> Value {
    let json = |schema: Value| json!({"application/json": {"schema": schema}});
    let content = match route.answer {
        Shape::Nothing => None,
        Shape::One(schema) => Some(json(reference(schema, into))),
        Shape::Other(kind) => Some(json!({kind: {}})),
        Shape::List(schema) => {
            let items = json!({"type": "array", "items": reference(schema, into)});
            let fields = json!({"items": items, "total": {"type": "integer"}, "offset": {"type": "integer"}});
            Some(json(json!({"type": "object", "properties": fields, "required": ["items", "total", "offset"]})))
        }
    };
    let refused = json!({"description": "Not done.", "content": json(reference(&ERROR, into))});
    let mut all = json!({"default": refused});
    for status in route.statuses {
        all[*status] = json!({"description": if *status == "201" { "Made." } else { "Done." }});
        if let Some(content) = &content {
            all[*status]["content"] = content.clone();
        }
    }
    all
}

fn operation(route: &Route, into: &mut Map<String, Value>) -> Value {
    let words =
        route.path.split('/').filter(|segment| !segment.is_empty()).map(|segment| segment.trim_matches(['{', '}']));
    let id =
        std::iter::once(route.verb.name().to_lowercase()).chain(words.map(str::to_owned)).collect::<Vec<_>>().join("_");
    let tag = route.path.split('/').nth(1).unwrap_or_default();
    let needs = match route.access {
        Access::Open => "Open to everybody.",
        Access::LoggedIn => "For all who may log in; what a user may see and change is by his permissions.",
        Access::Monitoring => "Needs tag monitoring or administrator.",
        Access::Administrator => "Needs tag administrator.",
    };
    let mut found = json!({
        "operationId": id.replace(['.', '-'], "_"),
        "summary": route.summary,
        "description": needs,
        "tags": [tag],
        "parameters": parameters(route, into),
        "responses": responses(route, into),
    });
    if route.access == Access::Open {
        found["security"] = json!([]);
    }
    if let Some(body) = route.body {
        found["requestBody"] =
            json!({"required": true, "content": {"application/json": {"schema": reference(body, into)}}});
    }
    found
}

/// The whole description. Its text is made once: everybody may ask for it, and making it takes milliseconds.
pub(crate) fn answer() -> Answer {
    static TEXT: OnceLock<Bytes> = OnceLock::new();
    let text = TEXT.get_or_init(|| document().to_string().into());
    Answer::other("application/json", Body::from(text.clone()))
}

fn document() -> Value {
    let (mut paths, mut schemas) = (Map::new(), Map::new());
    for route in rows() {
        let described = operation(route, &mut schemas);
        let path = paths.entry(format!("/v1{}", route.path)).or_insert_with(|| json!({}));
        path[route.verb.name().to_lowercase()] = described;
    }
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Mainstem administration", "version": env!("CARGO_PKG_VERSION")},
        "servers": [{"url": "/"}],
        "security": [{"basic": []}, {"bearer": []}, {"session": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
                "session": {"type": "apiKey", "in": "cookie", "name": super::sessions::COOKIE},
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
                fields.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }

    #[test]
    fn every_route_is_described_and_every_reference_leads_somewhere() {
        let document = document();
        for route in rows() {
            let described = &document["paths"][format!("/v1{}", route.path)][route.verb.name().to_lowercase()];
            assert!(described.is_object(), "{} {}", route.verb.name(), route.path);
        }
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(!found.is_empty());
        for reference in found {
            let target = document.pointer(reference.trim_start_matches('#')).unwrap_or(&Value::Null);
            assert!(target.is_object(), "{reference}");
        }
    }

    #[test]
    fn operations_have_names_of_their_own() {
        let document = document();
        let mut seen = std::collections::BTreeSet::new();
        for path in document["paths"].as_object().expect("paths").values() {
            for operation in path.as_object().expect("operations").values() {
                let id = operation["operationId"].as_str().expect("a name").to_owned();
                assert!(seen.insert(id.clone()), "{id} twice");
            }
        }
    }

    #[test]
    fn shapes_of_one_name_are_one_shape() {
        fn walk(schema: &'static Schema, seen: &mut std::collections::HashMap<&'static str, Vec<&'static str>>) {
            let names: Vec<&str> = schema.all().iter().map(|(name, _, _)| *name).collect();
            if let Some(before) = seen.insert(schema.name, names.clone()) {
                assert_eq!(before, names, "{}", schema.name);
                return;
            }
            for (_, kind, _) in schema.all() {
                let mut kind = kind;
                while let Kind::List(inner) | Kind::OrNull(inner) = kind {
                    kind = *inner;
                }
                if let Kind::One(inner) = kind {
                    walk(inner, seen);
                }
            }
        }
        let mut seen = std::collections::HashMap::new();
        for route in rows() {
            let answer = match route.answer {
                Shape::One(schema) | Shape::List(schema) => Some(schema),
                _ => None,
            };
            answer.into_iter().chain(route.body).for_each(|schema| walk(schema, &mut seen));
        }
    }
}
