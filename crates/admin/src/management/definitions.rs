//! Definitions: everything that was declared, as one JSON document, of the broker or of one virtual host; out and in.
//!
//! A document is read as a whole before anything is changed. What is there already stays as it is, so that the same document changes
//! nothing the second time; what cannot be taken over is told, item by item.

mod declared;
mod export;
mod import;

use std::path::Path;
use std::sync::Arc;

use axum::http::{Method, header};
use broker::{Broker, JobOwner};
use serde_json::{Value, json};

use super::answer::{Answer, Outcome, Refusal};
use super::call::Call;
use super::route::{Access, Route, route};

use export::Parts;
pub(crate) use import::Document;
pub use import::{Imported, InvalidDefinitions, NotTaken};

pub(crate) const ROUTES: &[Route] = &[
    route(Method::GET, "/definitions", Access::Administrator, give),
    route(Method::POST, "/definitions", Access::Administrator, take),
    route(Method::GET, "/definitions/{vhost}", Access::Administrator, give_of_vhost),
    route(Method::POST, "/definitions/{vhost}", Access::Administrator, take_into_vhost),
];

/// The file name under which a browser keeps an answer.
fn with_file(call: &Call<'_>, parts: Parts<'_>) -> Outcome {
    let file = call.query("download").map(str::to_owned);
    let mut text = call.text.take();
    text.object(parts);
    Ok(Answer { file, ..Answer::of_text(text) })
}

fn give(call: &Call<'_>) -> Outcome {
    let vhosts = call.broker().vhosts().all();
    with_file(call, export::all(call.broker(), &export::inside(&vhosts)))
}

fn give_of_vhost(call: &Call<'_>) -> Outcome {
    let vhost = call.vhost()?;
    with_file(call, export::of_vhost(&vhost, &export::inside(std::slice::from_ref(&vhost))))
}

fn take(call: &Call<'_>) -> Outcome {
    taken(call, None)
}

fn take_into_vhost(call: &Call<'_>) -> Outcome {
    let vhost = call.vhost()?;
    taken(call, Some(vhost.name()))
}

fn taken(call: &Call<'_>, vhost: Option<&str>) -> Outcome {
    let body = uploaded(call);
    let text = std::str::from_utf8(body).map_err(|_| Answer::bad_request("failed_to_parse_json"))?;
    let imported = Document::parse(text, vhost)
        .and_then(|document| document.apply(call.broker(), call.who.job_owner()))
        .map_err(refused)?;
    if imported.not_taken.is_empty() {
        return Ok(Answer::done());
    }
    Ok(Answer::of(described(&imported)))
}

fn refused(error: InvalidDefinitions) -> Refusal {
    match error {
        InvalidDefinitions::Syntax { .. } => Answer::bad_request("failed_to_parse_json"),
        InvalidDefinitions::File(_) | InvalidDefinitions::Item { .. } => Answer::bad_request(error.to_string()),
        InvalidDefinitions::Journal { .. } => Answer::failed(error),
        InvalidDefinitions::Busy => Answer::busy(),
    }
}

fn described(imported: &Imported) -> Value {
    let one = |one: &NotTaken| json!({"kind": one.kind, "vhost": one.vhost, "name": one.name, "line": one.line, "reason": one.reason});
    json!({"changed": imported.changed, "not_supported": imported.not_taken.iter().map(one).collect::<Vec<_>>()})
}

/// The document of a request: its body, or the first file of a form, as browsers send it.
fn uploaded<'c>(call: &'c Call<'_>) -> &'c [u8] {
    let kind = call.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let boundary = kind
        .strip_prefix("multipart/form-data")
        .and_then(|rest| rest.split_once("boundary="))
        .map(|(_, boundary)| boundary);
    boundary.and_then(|boundary| first_file(call.body, boundary.trim_matches('"'))).unwrap_or(call.body)
}

fn position(of: &[u8], within: &[u8]) -> Option<usize> {
    within.windows(of.len().max(1)).position(|window| window == of)
}

/// The content of the first part of a form that comes from a file, or of the first part. Source: RFC 7578.
fn first_file<'b>(body: &'b [u8], boundary: &str) -> Option<&'b [u8]> {
    let delimiter = format!("--{boundary}").into_bytes();
    let (mut rest, mut first) = (body, None);
    while let Some(at) = position(&delimiter, rest) {
        rest = &rest[at + delimiter.len()..];
        let Some(head_end) = position(b"\r\n\r\n", rest) else { break };
        let (head, content) = (&rest[..head_end], &rest[head_end + 4..]);
        let end = position(&delimiter, content)?;
        let content = content[..end].strip_suffix(b"\r\n").unwrap_or(&content[..end]);
        if position(b"filename=", head).is_some() {
            return Some(content);
        }
        first = first.or(Some(content));
    }
    first
}

/// Takes a file over, at the start: what is there already stays.
///
/// # Errors
/// When it cannot be read, is no document, or something in it cannot be; with its line.
pub fn load(broker: &Arc<Broker>, path: &Path) -> Result<Imported, InvalidDefinitions> {
    let text = std::fs::read_to_string(path).map_err(InvalidDefinitions::File)?;
    Document::parse(&text, None)?.apply(broker, JobOwner::BROKER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_gives_its_file() {
        let body = b"--xyz\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nplain\r\n--xyz\r\nContent-Disposition: form-data; name=\"file\"; filename=\"d.json\"\r\nContent-Type: application/json\r\n\r\n{\"queues\": []}\r\n--xyz--\r\n";
        assert_eq!(first_file(body, "xyz"), Some(&b"{\"queues\": []}"[..]));
        assert_eq!(first_file(&body[..40], "xyz"), None);
        assert_eq!(first_file(b"", "xyz"), None);
    }
}
