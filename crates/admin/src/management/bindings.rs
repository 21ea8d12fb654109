//! Bindings: list, make, delete. A binding of an exchange and a destination is known by its *properties key*: its routing key as in a
//! form of HTML, and if it has arguments `~` and a hash of them. The hash is ours: tools take it from the list.

use std::hash::Hasher;
use std::sync::Arc;

use axum::http::Method;
use broker::{BindingWish, Vhost, Via};
use routing::{Arguments, Binding, Destination};
use serde_json::{Value, json};

use super::answer::{Answer, Outcome, Refusal};
use super::call::{Call, name, text};
use super::exchanges::{plain_name, refused};
use super::listing::{list, list_described, list_each, one};
use super::route::{Access, Route, route};
use super::values;
use crate::bindings::{Known, Walk};

pub(crate) const ROUTES: &[Route] = &[
    route(Method::GET, "/bindings", Access::Management, all),
    route(Method::GET, "/bindings/{vhost}", Access::Vhost, all),
    route(Method::GET, "/bindings/{vhost}/e/{source}/q/{queue}", Access::Vhost, between),
    route(Method::GET, "/bindings/{vhost}/e/{source}/e/{exchange}", Access::Vhost, between),
    route(Method::POST, "/bindings/{vhost}/e/{source}/q/{queue}", Access::Vhost, make),
    route(Method::POST, "/bindings/{vhost}/e/{source}/e/{exchange}", Access::Vhost, make),
    route(Method::GET, "/bindings/{vhost}/e/{source}/q/{queue}/{key}", Access::Vhost, show),
    route(Method::GET, "/bindings/{vhost}/e/{source}/e/{exchange}/{key}", Access::Vhost, show),
    route(Method::DELETE, "/bindings/{vhost}/e/{source}/q/{queue}/{key}", Access::Vhost, delete),
    route(Method::DELETE, "/bindings/{vhost}/e/{source}/e/{exchange}/{key}", Access::Vhost, delete),
    route(Method::GET, "/queues/{vhost}/{name}/bindings", Access::Vhost, of_queue),
    route(Method::GET, "/exchanges/{vhost}/{name}/bindings/source", Access::Vhost, from),
    route(Method::GET, "/exchanges/{vhost}/{name}/bindings/destination", Access::Vhost, to),
];

/// A key as in a form: `+` for a space, `%XX` for what is no letter, digit, `.`, `-` or `_`.
fn quoted(key: &[u8]) -> String {
    use std::fmt::Write;
    let mut out = String::new();
    for byte in key {
        match byte {
            b' ' => out.push('+'),
            b'.' | b'-' | b'_' => out.push(char::from(*byte)),
            _ if byte.is_ascii_alphanumeric() => out.push(char::from(*byte)),
            _ => drop(write!(out, "%{byte:02X}")),
        }
    }
    out
}

/// FNV-1a, the same in every process.
struct Fnv(u64);

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

fn hashed(arguments: &Arguments) -> String {
    use base64::Engine;
    let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
    std::hash::Hash::hash(arguments, &mut hasher);
    let folded = (hasher.finish() >> 32) as u32 ^ hasher.finish() as u32;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(folded.to_be_bytes())
}

fn properties_key(key: &[u8], arguments: &Arguments) -> String {
    match (key.is_empty(), arguments.fields().is_empty()) {
        (true, true) => "~".to_owned(),
        (_, true) => quoted(key),
        (_, false) => format!("{}~{}", quoted(key), hashed(arguments)),
    }
}

pub(crate) fn described(vhost: &Vhost, binding: &Binding<'_>) -> Value {
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    json!({
        "source": lossy(binding.source),
        "vhost": vhost.name(),
        "destination": binding.destination_name.to_string(),
        "destination_type": if matches!(binding.destination, Destination::Queue(_)) { "queue" } else { "exchange" },
        "routing_key": lossy(binding.key),
        "arguments": values::arguments(&binding.arguments),
        "properties_key": properties_key(binding.key, &binding.arguments),
    })
}

/// As RabbitMQ orders them: by source, destination, key.
fn sorted<'b>(found: impl Iterator<Item = Binding<'b>>) -> Vec<Binding<'b>> {
    let mut all: Vec<_> = found.collect();
    all.sort_by_cached_key(place);
    all
}

fn place(one: &Binding<'_>) -> (Vec<u8>, bool, Vec<u8>, Vec<u8>) {
    (
        one.source.to_vec(),
        matches!(one.destination, Destination::Queue(_)),
        one.destination_name.to_vec(),
        one.key.to_vec(),
    )
}

fn all(call: &Call<'_>) -> Outcome {
    let mut found = Vec::new();
    for vhost in call.chosen_vhosts()? {
        let of_default = vhost.queues().into_iter().map(|queue| Known::to_queue(&queue));
        let mut all: Vec<Known> = of_default.chain(Walk::new(vhost.exchanges())).collect();
        all.sort_by_cached_key(|known| place(&known.binding()));
        found.extend(all.into_iter().map(|known| (Arc::clone(&vhost), known)));
    }
    list_described(call, found, |(vhost, known)| described(vhost, &known.binding()))
}

fn of_queue(call: &Call<'_>) -> Outcome {
    let vhost = call.vhost()?;
    let table = vhost.exchanges().read();
    let id = table.queue(call.path("name").as_bytes()).ok_or_else(Answer::not_found)?;
    list(call, sorted(table.bindings_to(Destination::Queue(id))).iter().map(|one| described(&vhost, one)))
}

fn from(call: &Call<'_>) -> Outcome {
    let vhost = call.vhost()?;
    let table = vhost.exchanges().read();
    let exchange = table.exchange(plain_name(call.path("name")).as_bytes()).ok_or_else(Answer::not_found)?;
    list(call, sorted(table.bindings_from(exchange.name())).iter().map(|one| described(&vhost, one)))
}

fn to(call: &Call<'_>) -> Outcome {
    let vhost = call.vhost()?;
    let table = vhost.exchanges().read();
    let exchange = table.exchange(plain_name(call.path("name")).as_bytes()).ok_or_else(Answer::not_found)?;
    list(
        call,
        sorted(table.bindings_to(Destination::Exchange(exchange.name()))).iter().map(|one| described(&vhost, one)),
    )
}

/// The two ends of a path, and the bindings between them.
struct Ends {
    vhost: Arc<Vhost>,
    source: String,
    to_queue: bool,
    destination: String,
}

impl Ends {
    fn of(call: &Call<'_>) -> Result<Self, Refusal> {
        let to_queue = call.filled.iter().any(|(name, _)| *name == "queue");
        let destination = if to_queue { call.path("queue") } else { plain_name(call.path("exchange")) };
        Ok(Self {
            vhost: call.vhost()?,
            source: plain_name(call.path("source")).to_owned(),
            to_queue,
            destination: destination.to_owned(),
        })
    }

    /// Calls `each` with every binding between the ends.
    fn each(&self, mut each: impl FnMut(&Binding<'_>)) {
        let table = self.vhost.exchanges().read();
        let is_destination = |one: &Binding<'_>| {
            matches!(one.destination, Destination::Queue(_)) == self.to_queue
                && **one.destination_name == *self.destination.as_bytes()
        };
        sorted(table.bindings_from(self.source.as_bytes()).filter(is_destination)).iter().for_each(&mut each);
    }

    fn wish(&self, key: &[u8], arguments: Arguments) -> Result<BindingWish, Refusal> {
        let key = routing::Name::new(key).map_err(|error| Answer::bad_request(error.to_string()))?;
        Ok(BindingWish {
            source: name(&self.source)?,
            to_queue: self.to_queue,
            destination: name(&self.destination)?,
            key,
            arguments,
        })
    }

    /// The binding that a properties key of a path means.
    fn find(&self, key: &str) -> Result<(Value, BindingWish), Refusal> {
        // What comes from a header `Location` is quoted once more than what comes from a list.
        let again = format!("={key}");
        let unquoted =
            form_urlencoded::parse(again.as_bytes()).next().map(|(_, value)| value.into_owned()).unwrap_or_default();
        let mut found = None;
        self.each(|one| {
            let own = properties_key(one.key, &one.arguments);
            if own == key
                || (one.arguments.fields().is_empty() && !one.key.is_empty() && unquoted.as_bytes() == one.key)
            {
                found.get_or_insert_with(|| (described(&self.vhost, one), one.key.to_vec(), one.arguments.clone()));
            }
        });
        let (shown, key, arguments) = found.ok_or_else(Answer::not_found)?;
        Ok((shown, self.wish(&key, arguments)?))
    }
}

fn between(call: &Call<'_>) -> Outcome {
    let ends = Ends::of(call)?;
    list_each(call, |put| ends.each(|one| put(&described(&ends.vhost, one))))
}

fn show(call: &Call<'_>) -> Outcome {
    let (found, _) = Ends::of(call)?.find(call.path("key"))?;
    one(call, found)
}

fn make(call: &Call<'_>) -> Outcome {
    let ends = Ends::of(call)?;
    let body = call.object()?;
    let arguments = values::arguments_of(body.get("arguments"))?;
    let key = properties_key(text(&body, "routing_key")?.as_bytes(), &arguments);
    let wish = ends.wish(text(&body, "routing_key")?.as_bytes(), arguments)?;
    let (vhost, host, caller) =
        (Arc::clone(&ends.vhost), ends.vhost.name().to_owned(), call.who.caller(Via::Management));
    call.control(move |broker| broker.bind(&vhost, wish, &caller))?.map_err(|error| refused(error, &host))?;
    let location = format!("{}/{}", quoted(ends.destination.as_bytes()), key.replace('%', "%25").replace('+', "%2B"));
    Ok(Answer::created().at(location))
}

fn delete(call: &Call<'_>) -> Outcome {
    let ends = Ends::of(call)?;
    let (_, wish) = ends.find(call.path("key"))?;
    let (vhost, host, caller) =
        (Arc::clone(&ends.vhost), ends.vhost.name().to_owned(), call.who.caller(Via::Management));
    call.control(move |broker| broker.unbind(&vhost, &wish, &caller))?.map_err(|error| refused(error, &host))?;
    Ok(Answer::done())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_properties_key_is_quoted_and_hashes_arguments() {
        let Ok(some) = values::arguments_of(Some(&json!({"x-match": "all"}))) else { panic!("taken") };
        let none = Arguments::default();
        // The first four are RabbitMQ's own answers.
        assert_eq!(properties_key(b"", &none), "~");
        assert_eq!(properties_key(b"a.#", &none), "a.%23");
        assert_eq!(properties_key(b"a/b c", &none), "a%2Fb+c");
        assert!(properties_key(b"key 1", &some).starts_with("key+1~"));
        assert_eq!(properties_key(b"~", &none), "%7E");
        assert_eq!(hashed(&some), "bzuBhw");
    }
}
