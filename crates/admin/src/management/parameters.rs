//! Parameters of virtual hosts and of the broker. Of components there are `operator_policy` and `vhost-limits`; of shovels and federation, which
//! programs ask for as a matter of course, there are none.

use std::sync::Arc;

use axum::http::Method;
use broker::{PolicyScope, Vhost};
use serde_json::{Value, json};

use super::answer::{Answer, Outcome};
use super::call::{Call, await_policies};
use super::listing::{list, one};
use super::policies::refused;
use super::route::{Access, Route, route};

pub(crate) const ROUTES: &[Route] = &[
    route(Method::GET, "/parameters", Access::Policymaker, all),
    route(Method::GET, "/parameters/{component}", Access::Policymaker, all),
    route(Method::GET, "/parameters/{component}/{vhost}", Access::Policymaker, all),
    route(Method::GET, "/parameters/{component}/{vhost}/{name}", Access::Policymaker, show),
    route(Method::PUT, "/parameters/{component}/{vhost}/{name}", Access::Administrator, put),
    route(Method::DELETE, "/parameters/{component}/{vhost}/{name}", Access::Administrator, delete),
    route(Method::GET, "/global-parameters", Access::Policymaker, globals),
    route(Method::GET, "/global-parameters/{name}", Access::Policymaker, show_global),
    route(Method::PUT, "/global-parameters/{name}", Access::Administrator, put_global),
    route(Method::DELETE, "/global-parameters/{name}", Access::Administrator, delete_global),
    route(Method::GET, "/federation-links", Access::Monitoring, none),
    route(Method::GET, "/federation-links/{vhost}", Access::Monitoring, none),
    route(Method::GET, "/shovels", Access::Monitoring, none),
    route(Method::GET, "/shovels/{vhost}", Access::Monitoring, none),
];

/// Those of a virtual host, policies of operators among them, as RabbitMQ shows them.
fn of_vhost(vhost: &Vhost) -> Vec<Value> {
    let one = |component: &str, name: &str, value: Value| json!({"vhost": vhost.name(), "component": component, "name": name, "value": value});
    let operators = vhost.policies().all(PolicyScope::Operator);
    let mut found: Vec<Value> =
        operators.iter().map(|policy| one(PolicyScope::Operator.component(), policy.name(), policy.value())).collect();
    found.extend(vhost.parameters().all().into_iter().map(|(component, name, value)| one(&component, &name, value)));
    found
}

fn all(call: &Call<'_>) -> Outcome {
    let component = call.path("component");
    let found = call.chosen_vhosts()?.into_iter().flat_map(|vhost| of_vhost(&vhost));
    list(call, found.filter(|one| component.is_empty() || one["component"] == component))
}

fn show(call: &Call<'_>) -> Outcome {
    let mut found = of_vhost(&*call.vhost()?).into_iter();
    let found = found.find(|one| one["component"] == call.path("component") && one["name"] == call.path("name"));
    one(call, found.ok_or_else(Answer::not_found)?)
}

fn put(call: &Call<'_>) -> Outcome {
    let (vhost, [component, name]) = (call.vhost()?, ["component", "name"].map(|name| call.path(name).to_owned()));
    let value = call.object_with(&["value"])?.remove("value").unwrap_or_default();
    let is_new = !of_vhost(&vhost).iter().any(|one| one["component"] == component && one["name"] == name);
    let of = Arc::clone(&vhost);
    call.control(move |broker| broker.put_parameter(&of, &component, &name, &value))?.map_err(refused)?;
    await_policies(&vhost)?;
    Ok(Answer::put(is_new))
}

fn delete(call: &Call<'_>) -> Outcome {
    let (vhost, [component, name]) = (call.vhost()?, ["component", "name"].map(|name| call.path(name).to_owned()));
    let of = Arc::clone(&vhost);
    call.control(move |broker| broker.delete_parameter(&of, &component, &name))?.map_err(refused)?;
    await_policies(&vhost)?;
    Ok(Answer::done())
}

/// What is not there, of an existing virtual host where one is named.
fn none(call: &Call<'_>) -> Outcome {
    call.chosen_vhosts()?;
    list(call, Vec::new())
}

fn globals(call: &Call<'_>) -> Outcome {
    let all = call.broker().vhosts().global_parameters();
    list(call, all.into_iter().map(|(name, value)| json!({"name": name, "value": value})))
}

fn show_global(call: &Call<'_>) -> Outcome {
    let name = call.path("name");
    let value = call.broker().vhosts().global_parameter(name).ok_or_else(Answer::not_found)?;
    one(call, json!({"name": name, "value": value}))
}

fn put_global(call: &Call<'_>) -> Outcome {
    let name = call.path("name").to_owned();
    let value = call.object_with(&["value"])?.remove("value").unwrap_or_default();
    let is_new = call.broker().vhosts().global_parameter(&name).is_none();
    call.control(move |broker| broker.put_global_parameter(&name, value))?.map_err(refused)?;
    Ok(Answer::put(is_new))
}

fn delete_global(call: &Call<'_>) -> Outcome {
    let name = call.path("name").to_owned();
    call.control(move |broker| broker.delete_global_parameter(&name))?.map_err(refused)?;
    Ok(Answer::done())
}
