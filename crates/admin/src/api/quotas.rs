//! Quotas of users, client ids and addresses (`docs/quotas.md`).

use std::time::Instant;

use broker::{
    AlterQuotaError, InvalidQuota, QuotaChange, QuotaEntity, QuotaFilter, QuotaKey, QuotaSubject, QuotaUse, QuotaValues,
};
use serde_json::{Map, Value, json};

use super::answer::{Answer, Outcome, Refusal};
use super::call::Call;
use super::listing::list;
use super::route::{self, Access, Route, Shape, Verb, change};
use super::schema::{Kind, Schema};

const QUOTA: Schema = Schema::new(
    "Quota",
    &[
        ("name", Kind::Text, "The entity in words, like user bob, client-id default."),
        ("entity", Kind::Object, "user, client-id or ip, or user and client-id; null is the default."),
        ("values", Kind::Object, "Keys and numbers, like producer_byte_rate."),
    ],
);

const WISH: Schema = Schema::body(
    "QuotaWish",
    &["entity", "values"],
    &[
        ("entity", Kind::Object, "As in a quota."),
        ("values", Kind::Object, "Keys and numbers; null takes a quota away."),
    ],
);

const USE: Schema = Schema::new(
    "QuotaUse",
    &[
        ("name", Kind::Text, "Whose it is, in words, like user bob, client-id etl, or topic orders."),
        ("entity", Kind::Object, "user and client-id, or one of ip, topic and group, with its name."),
        ("key", Kind::Text, "The quota's key, or the setting of the topic or the group."),
        (
            "limit",
            Kind::OrNull(&Kind::Number),
            "Units a second, or percent of a thread; null: no rule applies to the group now.",
        ),
        (
            "taken",
            Kind::Number,
            "Units taken since the limit came into force; of a share of time, percent of a thread times seconds.",
        ),
        ("wait_ms", Kind::Number, "How long to wait before anything else may be taken."),
        ("rules", Kind::OrNull(&Kind::Text), "Of a group: its rules."),
    ],
);

pub(crate) const ROUTES: &[Route] = &[
    route::list("/quotas", Access::Monitoring, "Quotas of users, client ids and addresses", &QUOTA, all),
    route::list(
        "/quotas/use",
        Access::Monitoring,
        "What is taken of quotas, those of topics and groups too",
        &USE,
        uses,
    ),
    change(
        Verb::Put,
        "/quotas",
        Access::Administrator,
        "Set and take away quotas of an entity",
        Shape::One(&QUOTA),
        put,
    )
    .takes(&WISH)
    .tries(),
];

fn name_of(entity: &QuotaEntity) -> String {
    entity.parts().map(|(kind, name)| format!("{kind} {}", name.unwrap_or("default"))).collect::<Vec<_>>().join(", ")
}

fn described(entity: &QuotaEntity, values: &QuotaValues) -> Value {
    let parts: Map<String, Value> = entity.parts().map(|(kind, name)| (kind.to_owned(), name.into())).collect();
    let values: Map<String, Value> =
        values.iter().map(|(key, value)| (key.name().to_owned(), (*value).into())).collect();
    json!({"name": name_of(entity), "entity": parts, "values": values})
}

fn found(call: &Call<'_>) -> Vec<(QuotaEntity, QuotaValues)> {
    call.broker().quotas().describe(&QuotaFilter { components: Vec::new(), strict: false })
}

fn all(call: &Call<'_>) -> Outcome {
    let items = found(call).into_iter().map(|(entity, values)| (name_of(&entity), (entity, values)));
    list(call, items, |(entity, values)| Some(described(entity, values)))
}

fn uses(call: &Call<'_>) -> Outcome {
    let all = call.broker().quota_uses(Instant::now()).into_iter();
    let named = all.map(|found| {
        let parts = parts_of(&found.subject);
        let name = parts.iter().map(|(kind, name)| format!("{kind} {name}")).collect::<Vec<_>>().join(", ");
        (format!("{name} {}", found.key), (name, found))
    });
    list(call, named, |(name, found)| Some(used(call, name, found)))
}

fn parts_of(subject: &QuotaSubject) -> Vec<(&'static str, &str)> {
    match subject {
        QuotaSubject::Client { user, client_id } => {
            let kinds = [("user", user), ("client-id", client_id)];
            kinds.into_iter().filter_map(|(kind, name)| Some((kind, name.as_deref()?))).collect()
        }
        QuotaSubject::Address(address) => vec![("ip", address)],
        QuotaSubject::Topic(topic) => vec![("topic", topic)],
        QuotaSubject::Group(group) => vec![("group", group)],
    }
}

fn used(call: &Call<'_>, name: &str, found: &QuotaUse) -> Value {
    let QuotaUse { subject, key, limit, taken, wait } = found;
    let entity: Map<String, Value> =
        parts_of(subject).into_iter().map(|(kind, name)| (kind.to_owned(), name.into())).collect();
    let rules = match subject {
        QuotaSubject::Group(group) => call.broker().group_config(group).overrides.get(*key).cloned(),
        _ => None,
    };
    let wait_ms = (wait.as_secs_f64() * 1e4).round() / 10.0;
    json!({"name": name, "entity": entity, "key": key, "limit": limit, "taken": taken, "wait_ms": wait_ms, "rules": rules})
}

/// What is wrong with a quota, and where in the body.
fn refused(error: &InvalidQuota) -> Refusal {
    let reason = error.to_string();
    match error {
        InvalidQuota::Key(key) => {
            let known = QuotaKey::ALL.map(QuotaKey::name).join(", ");
            Answer::invalid(
                &format!("values.{key}"),
                format!("{reason}: there are {known}, the last for addresses, the others for users and client ids"),
            )
        }
        InvalidQuota::NotPositive(key) | InvalidQuota::NotFinite(key) | InvalidQuota::NotWhole(key, _) => {
            Answer::invalid(&format!("values.{key}"), reason)
        }
        InvalidQuota::EmptyName(kind) => Answer::invalid(&format!("entity.{kind}"), reason),
        InvalidQuota::Address(_) => Answer::invalid("entity.ip", reason),
        _ => Answer::invalid("entity", reason),
    }
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
    let entity = QuotaEntity::of(parts).map_err(|error| refused(&error))?;
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
    let change = QuotaChange::of(entity.clone(), values).map_err(|error| refused(&error))?;
    if call.dry_run() {
        let mut then = values_of(call, &entity);
        for (key, value) in change.values {
            match value {
                Some(value) => then.insert(key, value),
                None => then.remove(&key),
            };
        }
        return Ok(Answer::of(described(&entity, &then)));
    }
    call.control(move |broker| broker.alter_quotas(&[change]))?.map_err(|error| match error {
        AlterQuotaError::Append(error) => Answer::failed(error),
        error => Answer::bad_request(error.to_string()),
    })?;
    Ok(Answer::of(described(&entity, &values_of(call, &entity))))
}

/// What is configured of an entity.
fn values_of(call: &Call<'_>, entity: &QuotaEntity) -> QuotaValues {
    found(call).into_iter().find(|(known, _)| known == entity).map(|(_, values)| values).unwrap_or_default()
}
