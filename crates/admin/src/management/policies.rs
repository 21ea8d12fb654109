//! Policies, those of operators, and limits of virtual hosts.

use std::sync::Arc;

use axum::http::Method;
use broker::{ParameterError, Policy, PolicyScope, PolicyWish, Vhost, Via};
use serde_json::{Map, Value, json};

use super::answer::{Answer, Outcome, Refusal};
use super::call::{Call, await_policies};
use super::listing::{list, list_each, one};
use super::route::{Access, Route, route};

pub(crate) const ROUTES: &[Route] = &[
    route(Method::GET, "/policies", Access::Management, |call| all(call, PolicyScope::User)),
    route(Method::GET, "/policies/{vhost}", Access::Vhost, |call| all(call, PolicyScope::User)),
    route(Method::GET, "/policies/{vhost}/{name}", Access::Policymaker, |call| show(call, PolicyScope::User)),
    route(Method::PUT, "/policies/{vhost}/{name}", Access::Policymaker, |call| put(call, PolicyScope::User)),
    route(Method::DELETE, "/policies/{vhost}/{name}", Access::Policymaker, |call| delete(call, PolicyScope::User)),
    route(Method::GET, "/operator-policies", Access::Management, |call| all(call, PolicyScope::Operator)),
    route(Method::GET, "/operator-policies/{vhost}", Access::Vhost, |call| all(call, PolicyScope::Operator)),
    route(Method::GET, "/operator-policies/{vhost}/{name}", Access::Administrator, |call| {
        show(call, PolicyScope::Operator)
    }),
    route(Method::PUT, "/operator-policies/{vhost}/{name}", Access::Administrator, |call| {
        put(call, PolicyScope::Operator)
    }),
    route(Method::DELETE, "/operator-policies/{vhost}/{name}", Access::Administrator, |call| {
        delete(call, PolicyScope::Operator)
    }),
    route(Method::GET, "/vhost-limits", Access::Management, limits),
    route(Method::GET, "/vhost-limits/{vhost}", Access::Vhost, limits),
    route(Method::PUT, "/vhost-limits/{vhost}/{limit}", Access::Administrator, put_limit),
    route(Method::DELETE, "/vhost-limits/{vhost}/{limit}", Access::Administrator, delete_limit),
];

/// As RabbitMQ lists it.
fn described(vhost: &Vhost, policy: &Policy) -> Value {
    let mut found = policy.value();
    found["name"] = policy.name().into();
    found["vhost"] = vhost.name().into();
    found
}

/// Why a policy or a parameter is not as it was wanted.
pub(crate) fn refused(error: ParameterError) -> Refusal {
    match error {
        ParameterError::NotFound | ParameterError::VhostDeleted(_) => Answer::not_found(),
        ParameterError::Append(error) => Answer::failed(error),
        ParameterError::Denied(denial) => Answer::not_authorised(&denial.to_string()),
        other => Answer::bad_request(other.to_string()),
    }
}

fn all(call: &Call<'_>, scope: PolicyScope) -> Outcome {
    let vhosts = call.chosen_vhosts()?;
    list_each(call, |put| {
        for vhost in &vhosts {
            vhost.policies().all(scope).iter().for_each(|policy| put(&described(vhost, policy)));
        }
    })
}

fn show(call: &Call<'_>, scope: PolicyScope) -> Outcome {
    let vhost = call.vhost()?;
    let policy = vhost.policies().get(scope, call.path("name")).ok_or_else(Answer::not_found)?;
    one(call, described(&vhost, &policy))
}

fn put(call: &Call<'_>, scope: PolicyScope) -> Outcome {
    let vhost = call.vhost()?;
    let body = call.object_with(&["pattern", "definition"])?;
    let field = |name: &str| body.get(name).cloned();
    // Forms of browsers send a number as text.
    let priority = field("priority").map(|value| match value.as_str().and_then(|text| text.parse::<i64>().ok()) {
        Some(number) => Value::from(number),
        None => value,
    });
    let (pattern, definition) = (field("pattern").unwrap_or_default(), field("definition").unwrap_or_default());
    let wish = PolicyWish { pattern, definition, priority, apply_to: field("apply-to") };
    let name = call.path("name").to_owned();
    let is_new = vhost.policies().get(scope, &name).is_none();
    let who = call.who.caller(Via::Management).principal;
    let of = Arc::clone(&vhost);
    call.control(move |broker| broker.put_policy_for(&who, &of, scope, &name, &wish))?.map_err(refused)?;
    await_policies(&vhost)?;
    Ok(Answer::put(is_new))
}

fn delete(call: &Call<'_>, scope: PolicyScope) -> Outcome {
    let (vhost, name) = (call.vhost()?, call.path("name").to_owned());
    let who = call.who.caller(Via::Management).principal;
    let of = Arc::clone(&vhost);
    call.control(move |broker| broker.delete_policy_for(&who, &of, scope, &name))?.map_err(refused)?;
    await_policies(&vhost)?;
    Ok(Answer::done())
}

fn limits(call: &Call<'_>) -> Outcome {
    let limited = |limits: &Map<String, Value>| !limits.is_empty();
    let vhosts = call.chosen_vhosts()?.into_iter().map(|vhost| (vhost.name().to_owned(), vhost.parameters().limits()));
    list(
        call,
        vhosts.filter(|(_, limits)| limited(limits)).map(|(vhost, limits)| json!({"vhost": vhost, "value": limits})),
    )
}

fn change_limit(call: &Call<'_>, value: Option<Value>) -> Outcome {
    let (vhost, limit) = (call.vhost()?, call.path("limit").to_owned());
    call.control(move |broker| broker.put_vhost_limit(&vhost, &limit, value))?.map_err(refused)?;
    Ok(Answer::done())
}

fn put_limit(call: &Call<'_>) -> Outcome {
    let body = call.object_with(&["value"])?;
    change_limit(call, body.get("value").cloned())
}

fn delete_limit(call: &Call<'_>) -> Outcome {
    change_limit(call, None)
}
