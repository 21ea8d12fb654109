//! Permissions of users in virtual hosts, and with which routing keys they may use topic exchanges.

use axum::http::Method;
use broker::{Permissions, TopicPermissions};
use serde_json::{Value, json};

use super::answer::{Answer, Outcome, Refusal};
use super::call::{Call, text};
use super::listing::{list, one};
use super::route::{Access, Route, route};
use super::users::refused;

pub(crate) const ROUTES: &[Route] = &[
    route(Method::GET, "/permissions", Access::Administrator, all),
    route(Method::GET, "/permissions/{vhost}/{user}", Access::Administrator, show),
    route(Method::PUT, "/permissions/{vhost}/{user}", Access::Administrator, put),
    route(Method::DELETE, "/permissions/{vhost}/{user}", Access::Administrator, delete),
    route(Method::GET, "/users/{user}/permissions", Access::Administrator, of_user),
    route(Method::GET, "/vhosts/{vhost}/permissions", Access::Administrator, of_vhost),
    route(Method::GET, "/topic-permissions", Access::Administrator, topics),
    route(Method::GET, "/topic-permissions/{vhost}/{user}", Access::Administrator, show_topics),
    route(Method::PUT, "/topic-permissions/{vhost}/{user}", Access::Administrator, put_topic),
    route(Method::DELETE, "/topic-permissions/{vhost}/{user}", Access::Administrator, delete_topics),
    route(Method::DELETE, "/topic-permissions/{vhost}/{user}/{exchange}", Access::Administrator, delete_topics),
    route(Method::GET, "/users/{user}/topic-permissions", Access::Administrator, topics_of_user),
    route(Method::GET, "/vhosts/{vhost}/topic-permissions", Access::Administrator, topics_of_vhost),
];

pub(crate) fn described(vhost: &str, user: &str, permissions: &Permissions) -> Value {
    let Permissions { configure, write, read } = permissions;
    json!({"vhost": vhost, "user": user, "configure": configure.text(), "write": write.text(), "read": read.text()})
}

pub(crate) fn topics_described(vhost: &str, user: &str, topics: &TopicPermissions) -> Vec<Value> {
    let one = |(exchange, one): (&String, &broker::TopicPermission)| json!({"vhost": vhost, "user": user, "exchange": exchange, "write": one.write.text(), "read": one.read.text()});
    topics.iter().map(one).collect()
}

fn rows(call: &Call<'_>, keep: impl Fn(&str, &str) -> bool) -> impl Iterator<Item = Value> {
    let all = call.broker().security().all_permissions().into_iter();
    all.filter(move |(vhost, user, _)| keep(vhost, user)).map(|(vhost, user, found)| described(&vhost, &user, &found))
}

fn topic_rows(call: &Call<'_>, keep: impl Fn(&str, &str) -> bool) -> impl Iterator<Item = Value> {
    let all = call.broker().security().all_topic_permissions().into_iter();
    all.filter(move |(vhost, user, _)| keep(vhost, user))
        .flat_map(|(vhost, user, found)| topics_described(&vhost, &user, &found))
}

/// # Errors
/// 404: there is no such user.
fn known_user<'c>(call: &'c Call<'_>) -> Result<&'c str, Refusal> {
    let name = call.path("user");
    call.broker().security().user(name).map(|_| name).ok_or_else(Answer::not_found)
}

fn all(call: &Call<'_>) -> Outcome {
    list(call, rows(call, |_, _| true))
}

fn of_user(call: &Call<'_>) -> Outcome {
    let wanted = known_user(call)?;
    list(call, rows(call, |_, user| user == wanted))
}

fn of_vhost(call: &Call<'_>) -> Outcome {
    let wanted = call.vhost()?;
    list(call, rows(call, |vhost, _| vhost == wanted.name()))
}

fn show(call: &Call<'_>) -> Outcome {
    let (vhost, user) = (call.vhost()?, known_user(call)?);
    let found = rows(call, |host, name| host == vhost.name() && name == user).last();
    one(call, found.ok_or_else(Answer::not_found)?)
}

fn put(call: &Call<'_>) -> Outcome {
    let body = call.object_with(&["configure", "write", "read"])?;
    let permissions = Permissions::new(text(&body, "configure")?, text(&body, "write")?, text(&body, "read")?);
    let permissions = permissions.map_err(|error| Answer::bad_request(error.to_string()))?;
    let (vhost, user) = (call.path("vhost").to_owned(), call.path("user").to_owned());
    let is_new = call.broker().security().permissions(&vhost, &user).is_none();
    call.control(move |broker| broker.set_permissions(&vhost, &user, permissions))?.map_err(refused)?;
    Ok(Answer::put(is_new))
}

fn delete(call: &Call<'_>) -> Outcome {
    let (vhost, user) = (call.path("vhost").to_owned(), call.path("user").to_owned());
    match call.control(move |broker| broker.clear_permissions(&vhost, &user))?.map_err(refused)? {
        true => Ok(Answer::done()),
        false => Err(Answer::not_found()),
    }
}

fn topics(call: &Call<'_>) -> Outcome {
    list(call, topic_rows(call, |_, _| true))
}

fn topics_of_user(call: &Call<'_>) -> Outcome {
    let wanted = known_user(call)?;
    list(call, topic_rows(call, |_, user| user == wanted))
}

fn topics_of_vhost(call: &Call<'_>) -> Outcome {
    let wanted = call.vhost()?;
    list(call, topic_rows(call, |vhost, _| vhost == wanted.name()))
}

fn show_topics(call: &Call<'_>) -> Outcome {
    let (vhost, user) = (call.vhost()?, known_user(call)?);
    let mut found = topic_rows(call, |host, name| host == vhost.name() && name == user).peekable();
    if found.peek().is_none() { Err(Answer::not_found()) } else { list(call, found) }
}

fn put_topic(call: &Call<'_>) -> Outcome {
    let body = call.object_with(&["exchange", "write", "read"])?;
    let [exchange, write, read] =
        [text(&body, "exchange")?, text(&body, "write")?, text(&body, "read")?].map(str::to_owned);
    let (vhost, user) = (call.path("vhost").to_owned(), call.path("user").to_owned());
    let is_new = !call.broker().security().topic_permissions(&vhost, &user).contains_key(&exchange);
    call.control(move |broker| broker.set_topic_permission(&vhost, &user, &exchange, &write, &read))?
        .map_err(refused)?;
    Ok(Answer::put(is_new))
}

fn delete_topics(call: &Call<'_>) -> Outcome {
    let (vhost, user) = (call.path("vhost").to_owned(), call.path("user").to_owned());
    let exchange = call.filled.iter().find(|(name, _)| *name == "exchange").map(|(_, exchange)| (*exchange).to_owned());
    match call
        .control(move |broker| broker.clear_topic_permissions(&vhost, &user, exchange.as_deref()))?
        .map_err(refused)?
    {
        true => Ok(Answer::done()),
        false => Err(Answer::not_found()),
    }
}
