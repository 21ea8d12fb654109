//! Quotas of users, client ids and addresses (`docs/quotas.md`).

use broker::{AlterQuotaError, QuotaChange, QuotaEntity, QuotaFilter, QuotaValues};
use serde_json::{Map, Value, json};

use super::answer::{Answer, Outcome, Refusal};
use super::call::Call;
use super::listing::list;
use super::route::{self, Access, Route, Shape, Verb, change};
use super::schema::{Kind, Schema};

const QUOTA: Schema = Schema::new("Quota", &[
    ("name", Kind::Text, "The entity in words, like user bob, client-id default."),
    ("entity", Kind::Object, "user, client-id or ip, or user and client-id; null is the default."),
    ("values", Kind::Object, "Keys and numbers, like producer_byte_rate."),
]);

const WISH: Schema = Schema::body("QuotaWish", &["entity", "values"], &[
    ("entity", Kind::Object, "As in a quota."),
    ("values", Kind::Object, "Keys and numbers; null takes a quota away."),
]);

pub(crate) const ROUTES: &[Route] = &[
    route::list("/quotas", Access::Monitoring, "Quotas of users, client ids and addresses", &QUOTA, all),
    change(Verb::Put, "/quotas", Access::Administrator, "Set and take away quotas of an entity", Shape::One(&QUOTA), put).takes(&WISH).tries(),
];

fn name_of(entity: &QuotaEntity) -> String {
    entity.parts().map(|(kind, name)| format!("{kind} {}", name.unwrap_or("default"))).collect::<Vec<_>>().join(", ")
}

fn described(entity: &QuotaEntity, values: &QuotaValues) -> Value {
    let parts: Map<String, Value> = entity.parts().map(|(kind, name)| (kind.to_owned(), name.into())).collect();
    let values: Map<String, Value> = values.iter().map(|(key, value)| (key.name().to_owned(), (*value).into())).collect();
    json!({"name": name_of(entity), "entity": parts, "values": values})
}

fn found(call: &Call<'_>) -> Vec<(QuotaEntity, QuotaValues)> {
    call.broker().quotas().describe(&QuotaFilter { components: Vec::new(), strict: false })
}

fn all(call: &Call<'_>) -> Outcome {
    let items = found(call).into_iter().map(|(entity, values)| (name_of(&entity), (entity, values)));
    list(call, items, |(entity, values)| Some(described(entity, values)))
}

/// An object of the body.
fn object<'a>(body: &'a super::call::Fields, name: &str) -> Result<&'a Map<String, Value>, Refusal> {
    body.get(name).and_then(Value::as_object).ok_or_else(|| Answer::invalid(name, "it is needed, as an object"))
}

fn put(call: &Call<'_>) -> Outcome {
    let body = call.object()?;
    body.only(&["entity", "values"])?;
    let mut parts = Vec::new();
    for (kind, name) in object(&body, "entity")? {
        let name = match name {
            Value::Null => None,
            Value::String(name) => Some(name.as_str()),
            _ => return Err(Answer::invalid(&format!("entity.{kind}"), "it is a name, or null for the default")),
        };
        parts.push((kind.as_str(), name));
    }
    let entity = QuotaEntity::of(parts).map_err(|error| Answer::invalid("entity", error.to_string()))?;
    let mut values = Vec::new();
    for (key, value) in object(&body, "values")? {
        match value {
            Value::Null => values.push((key.as_str(), None)),
            value => {
                let refuse = || Answer::invalid(&format!("values.{key}"), "it is a number, or null");
                values.push((key.as_str(), Some(value.as_f64().ok_or_else(refuse)?)));
            }
        }
    }
    let change = QuotaChange::of(entity.clone(), values).map_err(|error| Answer::invalid("values", error.to_string()))?;
    if !call.dry_run() {
        call.control(move |broker| broker.alter_quotas(&[change]))?.map_err(|error| match error {
            AlterQuotaError::Append(error) => Answer::failed(error),
            error => Answer::bad_request(error.to_string()),
        })?;
    }
    let now = found(call).into_iter().find(|(known, _)| *known == entity).map(|(_, values)| values).unwrap_or_default();
    Ok(Answer::of(described(&entity, &now)))
}
