//! The description of the administration API: it keeps the rules of OpenAPI 3.1, and every answer that a test gets is held against it
//! (`administration::ask`), with the body that was sent where it was taken.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::administration::get;
use crate::process::Process;

/// The description, the same of each broker.
pub fn document(process: &Process) -> &'static Value {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    DOCUMENT.get_or_init(|| {
        let mut socket = TcpStream::connect(process.admin).expect("the port is open");
        write!(socket, "GET /v1/openapi.json HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            .expect("it is read");
        let mut answer = String::new();
        socket.read_to_string(&mut answer).expect("an answer");
        serde_json::from_str(answer.split_once("\r\n\r\n").expect("a body").1).expect("JSON")
    })
}

/// Does a value fit a shape? Of an answer all fields are there.
fn check(document: &Value, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    if let Some(reference) = schema["$ref"].as_str() {
        return check(document, document.pointer(reference.trim_start_matches('#')).expect("a shape"), value, at);
    }
    if let Some(choices) = schema["anyOf"].as_array() {
        let outcomes: Vec<_> = choices.iter().map(|choice| check(document, choice, value, at)).collect();
        return if outcomes.iter().any(Result::is_ok) {
            Ok(())
        } else {
            outcomes.into_iter().next().expect("a choice")
        };
    }
    let fits = match schema["type"].as_str() {
        None => true,
        Some("null") => value.is_null(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        Some("array") => {
            let Some(items) = value.as_array() else { return Err(format!("{at} is no list: {value}")) };
            return items
                .iter()
                .enumerate()
                .try_for_each(|(place, item)| check(document, &schema["items"], item, &format!("{at}[{place}]")));
        }
        Some("object") => {
            let (Some(fields), known) = (value.as_object(), schema["properties"].as_object()) else {
                return Err(format!("{at} is no object: {value}"));
            };
            let Some(known) = known else { return Ok(()) };
            if let Some(other) = fields.keys().find(|name| !known.contains_key(*name)) {
                return Err(format!("{at}.{other} is not described"));
            }
            let required = schema["required"].as_array().expect("what has to be there");
            return known.iter().try_for_each(|(name, schema)| match fields.get(name) {
                Some(value) => check(document, schema, value, &format!("{at}.{name}")),
                None if required.contains(&json!(name)) => Err(format!("{at}.{name} is missing")),
                None => Ok(()),
            });
        }
        Some(other) => panic!("type {other}"),
    };
    if fits { Ok(()) } else { Err(format!("{at} is no {}: {value}", schema["type"])) }
}

/// The described path that a path of a request is of: a literal segment goes before one in braces.
fn described<'d>(document: &'d Value, path: &str) -> Option<&'d Value> {
    let given: Vec<&str> = path.split('/').collect();
    let is_name = |segment: &str| segment.starts_with('{');
    let fits = |pattern: &str| {
        let wanted: Vec<&str> = pattern.split('/').collect();
        wanted.len() == given.len()
            && wanted.iter().zip(&given).all(|(wanted, given)| is_name(wanted) || wanted == given)
    };
    let paths = document["paths"].as_object().expect("paths").iter().filter(|(pattern, _)| fits(pattern));
    paths
        .min_by_key(|(pattern, _)| pattern.split('/').filter(|segment| is_name(segment)).count())
        .map(|(_, found)| found)
}

/// Holds an answer, and what was sent for it, against the description. `body`: what came as JSON, if anything did.
pub fn hold(document: &Value, (method, path): (&str, &str), sent: &str, status: u16, body: Option<&Value>) {
    let path = path.split('?').next().unwrap_or_default();
    let shown = format!("{method} {path}");
    // Who asks for the head is answered as who asks for all.
    let operation =
        described(document, path).map_or(&Value::Null, |found| &found[method.to_lowercase().replace("head", "get")]);
    let success = (200..300).contains(&status);
    assert!(!success || operation.is_object(), "{shown} is answered with {status} and not described");
    if success && !sent.is_empty() {
        let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
        assert!(schema.is_object(), "{shown} takes a body that is not described");
        let sent = serde_json::from_str(sent).expect("JSON was sent");
        check(document, schema, &sent, "body")
            .unwrap_or_else(|fault| panic!("{shown} has taken another body than is described: {fault}"));
    }
    let error = json!({"$ref": "#/components/schemas/Error"});
    let schema = match success {
        true => {
            let response = &operation["responses"][status.to_string()];
            assert!(response.is_object(), "{shown}: {status} is not described");
            &response["content"]["application/json"]["schema"]
        }
        false => &error,
    };
    match body {
        Some(body) => {
            assert!(schema.is_object(), "{shown}: no body is described for {status}, and it came {body}");
            check(document, schema, body, "answer").unwrap_or_else(|fault| panic!("{shown} {status}: {fault}"));
        }
        None => assert!(!schema.is_object() || method == "HEAD", "{shown} {status}: a body is described and none came"),
    }
}

/// Fields of an object of the description, and which of them have to be there.
fn keys(value: &Value, at: &str, allowed: &[&str], needed: &[&str]) {
    let fields = value.as_object().unwrap_or_else(|| panic!("{at} is an object"));
    for name in fields.keys() {
        assert!(
            allowed.contains(&name.as_str()) || needed.contains(&name.as_str()),
            "{at}.{name} is nothing that OpenAPI knows there"
        );
    }
    for name in needed {
        assert!(fields.contains_key(*name), "{at}.{name} is missing");
    }
}

/// A schema by the rules of JSON Schema, as far as it is used here.
fn schema(document: &Value, value: &Value, at: &str) {
    keys(value, at, &["$ref", "type", "properties", "required", "items", "anyOf", "description"], &[]);
    if let Some(reference) = value.get("$ref") {
        let target = reference.as_str().and_then(|text| document.pointer(text.strip_prefix('#')?));
        assert!(target.is_some_and(Value::is_object), "{at} leads nowhere: {reference}");
    }
    if let Some(kind) = value.get("type") {
        let kinds = ["null", "string", "integer", "number", "boolean", "array", "object"];
        assert!(kind.as_str().is_some_and(|kind| kinds.contains(&kind)), "{at}: type {kind}");
        assert_eq!(kind == "array", value.get("items").is_some(), "{at}: lists have items, and nothing else");
    }
    assert!(value.get("description").is_none_or(Value::is_string), "{at}");
    value.get("items").into_iter().for_each(|items| schema(document, items, &format!("{at}.items")));
    for (place, choice) in value.get("anyOf").and_then(Value::as_array).into_iter().flatten().enumerate() {
        schema(document, choice, &format!("{at}.anyOf[{place}]"));
    }
    let properties = value.get("properties").and_then(Value::as_object);
    properties.into_iter().flatten().for_each(|(name, found)| schema(document, found, &format!("{at}.{name}")));
    let mut seen = BTreeSet::new();
    for name in value.get("required").and_then(Value::as_array).into_iter().flatten() {
        let name = name.as_str().expect("a name");
        assert!(
            seen.insert(name) && properties.is_some_and(|all| all.contains_key(name)),
            "{at} needs {name}, which comes twice or is not described"
        );
    }
}

fn content(document: &Value, value: &Value, at: &str) {
    for (kind, media) in value.as_object().expect("content types") {
        assert!(kind.split('/').count() == 2, "{at}: {kind} is a content type");
        keys(media, at, &["schema"], &[]);
        media.get("schema").into_iter().for_each(|found| schema(document, found, &format!("{at}.{kind}")));
    }
}

fn parameters(document: &Value, operation: &Value, path: &str, at: &str) {
    let mut seen = BTreeSet::new();
    for found in operation["parameters"].as_array().expect("a list") {
        keys(found, at, &["description"], &["name", "in", "required", "schema"]);
        let (name, place) = (found["name"].as_str().expect("a name"), found["in"].as_str().expect("a place"));
        assert!(seen.insert((place, name)), "{at}: {name} comes twice");
        assert!(
            matches!((place, &found["required"]), ("path", Value::Bool(true)) | ("query", Value::Bool(false))),
            "{at}: {found}"
        );
        schema(document, &found["schema"], at);
    }
    let in_path: BTreeSet<&str> =
        path.split('/').filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}')).collect();
    let named: BTreeSet<&str> = seen.iter().filter(|(place, _)| *place == "path").map(|(_, name)| *name).collect();
    assert_eq!(in_path, named, "{at}: names of the path");
}

fn operation(document: &Value, value: &Value, path: &str, at: &str) {
    keys(
        value,
        at,
        &["description", "requestBody", "security"],
        &["operationId", "summary", "tags", "parameters", "responses"],
    );
    parameters(document, value, path, at);
    if let Some(body) = value.get("requestBody") {
        keys(body, at, &["required", "description"], &["content"]);
        content(document, &body["content"], at);
    }
    assert!(!(at.starts_with("get ") && value.get("requestBody").is_some()), "{at} has a body");
    let responses = value["responses"].as_object().expect("answers");
    assert!(responses.keys().any(|status| status.starts_with('2')), "{at}: nothing is answered when all is well");
    for (status, response) in responses {
        assert!(
            status == "default"
                || status.len() == 3 && status.parse::<u16>().is_ok_and(|status| (100..600).contains(&status)),
            "{at}: {status}"
        );
        keys(response, at, &["content", "headers"], &["description"]);
        response.get("content").into_iter().for_each(|found| content(document, found, at));
    }
}

fn security(document: &Value, value: &Value, at: &str) {
    for one in value.as_array().expect("ways to log in") {
        let name = one.as_object().and_then(|one| one.keys().next()).expect("a way");
        assert!(document["components"]["securitySchemes"][name].is_object(), "{at}: {name}");
    }
}

#[test]
fn the_description_keeps_the_rules_of_openapi() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &[]);
    let document = get(&process, "/v1/openapi.json");
    keys(&document, "the document", &["servers", "security", "components"], &["openapi", "info", "paths"]);
    assert!(document["openapi"].as_str().is_some_and(|version| version.starts_with("3.1.")));
    keys(&document["info"], "info", &["description"], &["title", "version"]);
    document["servers"]
        .as_array()
        .expect("a list")
        .iter()
        .for_each(|server| keys(server, "servers", &["description"], &["url"]));
    security(&document, &document["security"], "the document");
    keys(&document["components"], "components", &["schemas", "securitySchemes"], &[]);
    for (name, found) in document["components"]["schemas"].as_object().expect("shapes") {
        assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)), "{name}");
        schema(&document, found, name);
    }
    let (mut ids, mut shapes) = (BTreeSet::new(), BTreeSet::new());
    for (path, found) in document["paths"].as_object().expect("paths") {
        assert!(path.starts_with('/'), "{path}");
        let shape: Vec<&str> =
            path.split('/').map(|segment| if segment.starts_with('{') { "{}" } else { segment }).collect();
        assert!(shapes.insert(shape.join("/")), "{path} differs from another only by names");
        keys(found, path, &["get", "put", "post", "delete", "patch"], &[]);
        for (method, one) in found.as_object().expect("operations") {
            let at = format!("{method} {path}");
            operation(&document, one, path, &at);
            one.get("security").into_iter().for_each(|ways| security(&document, ways, &at));
            assert!(
                ids.insert(one["operationId"].as_str().expect("a name").to_owned()),
                "{at}: its name is another's, too"
            );
        }
    }
    assert!(ids.len() > 60, "{}", ids.len());
}

#[test]
fn what_is_new_is_described_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let process = Process::start(folder.path(), &[]);
    let statuses = |method: &str, path: &str| {
        let all = document(&process)["paths"][path][method]["responses"].as_object().expect("answers").keys();
        all.filter(|status| *status != "default").cloned().collect::<Vec<_>>()
    };
    assert_eq!(statuses("post", "/v1/topics"), ["200", "201"]);
    assert_eq!(statuses("post", "/v1/topics/{topic}/records"), ["201"]);
    assert_eq!(statuses("delete", "/v1/topics/{topic}"), ["204"]);
    assert_eq!(statuses("get", "/v1/topics"), ["200"]);
}
