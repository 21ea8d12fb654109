//! Filters of groups: which group gets which records only.

use std::collections::BTreeMap;

use broker::{AclOperation, AclResource, Filter, Permission};
use serde_json::{Value, json};

use super::answer::{Answer, Outcome, Refusal};
use super::call::Call;
use super::groups::{change_settings, describe_filter};
use super::listing::list;
use super::route::{self, Access, Route, Shape, Verb, change, get};
use super::schema::{Kind, Schema};

const FILTER: Schema = Schema::new(
    "Filter",
    &[
        ("name", Kind::Text, "The group."),
        ("expression", Kind::Text, "Members get records only for which it is true."),
        ("client_ids", Kind::List(&Kind::Text), "Client ids under which members of the group alone fetch."),
    ],
);

const WISH: Schema = Schema::body(
    "FilterWish",
    &["expression"],
    &[
        ("expression", Kind::Text, "As in docs/filters.md."),
        ("client_ids", Kind::List(&Kind::Text), "Client ids of members whose connections do not tell."),
    ],
);

const EXPRESSION: Schema =
    Schema::body("Expression", &["expression"], &[("expression", Kind::Text, "To be looked at.")]);

const CHECKED: Schema = Schema::new(
    "CheckedExpression",
    &[
        ("valid", Kind::Bool, "It is an expression."),
        ("position", Kind::OrNull(&Kind::Int), "The letter at which it stops to make sense; the first is 1."),
        ("reason", Kind::OrNull(&Kind::Text), "What is wrong."),
    ],
);

const COUNTS: Schema = Schema::new(
    "FilterCounts",
    &[
        ("decoded", Kind::Int, "Batches that were looked into."),
        ("remembered", Kind::Int, "Batches of which the outcome was known."),
        ("skipped", Kind::Int, "Batches that a summary told to have nothing wanted."),
        ("unreadable", Kind::Int, "Batches that were sent as they are."),
        ("bytes_in", Kind::Int, "Bytes of batches that filters have gone through."),
        ("bytes_out", Kind::Int, "Of those, let through."),
        (
            "unproven",
            Kind::Int,
            "Connections that may be of such a group and are not proven to be: they get everything.",
        ),
    ],
);

const EXPRESSION_SETTING: &str = "mainstem.filter";
const CLIENTS_SETTING: &str = "mainstem.filter.client.ids";

pub(crate) const ROUTES: &[Route] = &[
    route::list("/filters", Access::LoggedIn, "Groups that have a filter", &FILTER, all),
    get("/filters/counts", Access::Monitoring, "What filters have done since the start", &COUNTS, counts),
    change(Verb::Post, "/filters/check", Access::LoggedIn, "Is this an expression?", Shape::One(&CHECKED), check)
        .takes(&EXPRESSION),
    change(Verb::Put, "/filters/{group}", Access::LoggedIn, "Give a group a filter", Shape::One(&FILTER), put)
        .takes(&WISH)
        .tries(),
    change(Verb::Delete, "/filters/{group}", Access::LoggedIn, "Take a group's filter away", Shape::Nothing, delete)
        .tries(),
];

fn all(call: &Call<'_>) -> Outcome {
    let is_shown = |group: &String| call.sees_group(group) && call.sees_settings(AclResource::Group, group);
    let groups = call.broker().configured_groups().into_iter().filter(is_shown);
    let with = groups.filter(|group| describe_filter(call.broker(), group).is_some());
    list(call, with.map(|group| (group.clone(), group)), |group| shown(call, group))
}

fn shown(call: &Call<'_>, group: &str) -> Option<Value> {
    let expression = describe_filter(call.broker(), group)?;
    let config = call.broker().group_config(group);
    let ids = config.overrides.get(CLIENTS_SETTING).map_or("", String::as_str);
    let ids: Vec<&str> = ids.split(',').map(str::trim).filter(|id| !id.is_empty()).collect();
    Some(json!({"name": group, "expression": expression, "client_ids": ids}))
}

fn counts(call: &Call<'_>) -> Outcome {
    use std::sync::atomic::Ordering::Relaxed;
    let counts = call.broker().filters().counts();
    Ok(Answer::of(json!({
        "decoded": counts.decoded.load(Relaxed),
        "remembered": counts.remembered.load(Relaxed),
        "skipped": counts.skipped.load(Relaxed),
        "unreadable": counts.unreadable.load(Relaxed),
        "bytes_in": counts.bytes_in.load(Relaxed),
        "bytes_out": counts.bytes_out.load(Relaxed),
        "unproven": counts.unproven.load(Relaxed),
    })))
}

/// Where an expression is wrong, and what is.
fn fault(text: &str) -> Option<(usize, String)> {
    Filter::parse(text).err().map(|error| (error.position, error.to_string()))
}

fn check(call: &Call<'_>) -> Outcome {
    let body = call.object()?;
    body.only(&["expression"])?;
    let (position, reason) = fault(body.needed("expression")?).unzip();
    Ok(Answer::of(json!({"valid": reason.is_none(), "position": position, "reason": reason})))
}

/// Sets what a group has in place of its filter.
fn set(call: &Call<'_>, wish: [(&'static str, Option<String>); 2]) -> Result<(), Refusal> {
    let group = call.path("group").to_owned();
    call.check_group(Permission::Configure, AclOperation::AlterConfigs, &group)?;
    let put = |overrides: &mut BTreeMap<String, String>| {
        for (name, value) in wish {
            match value.filter(|value| !value.is_empty()) {
                Some(value) => drop(overrides.insert(name.to_owned(), value)),
                None => drop(overrides.remove(name)),
            }
        }
    };
    change_settings(call, group, (None, Vec::new()), put).map(drop)
}

fn put(call: &Call<'_>) -> Outcome {
    let body = call.object()?;
    body.only(&["expression", "client_ids"])?;
    let expression = body.needed("expression")?.trim().to_owned();
    if let Some((_, reason)) = fault(&expression) {
        return Err(Answer::invalid("expression", reason));
    }
    let ids = body.words("client_ids")?.unwrap_or_default();
    if ids.iter().any(|id| id.contains(',') || id.is_empty()) {
        return Err(Answer::invalid("client_ids", "an id is not empty and has no comma"));
    }
    let found = json!({"name": call.path("group"), "expression": expression, "client_ids": ids});
    set(call, [(EXPRESSION_SETTING, Some(expression)), (CLIENTS_SETTING, Some(ids.join(",")))])?;
    Ok(Answer::of(found))
}

fn delete(call: &Call<'_>) -> Outcome {
    let group = call.path("group");
    call.check_group(Permission::Configure, AclOperation::AlterConfigs, group)?;
    if describe_filter(call.broker(), group).is_none() {
        return Err(Answer::not_found(format!("group {group:?} has no filter")));
    }
    set(call, [(EXPRESSION_SETTING, None), (CLIENTS_SETTING, None)])?;
    Ok(Answer::done())
}
