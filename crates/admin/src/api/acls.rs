//! Access control entries: who may do what. They count where `authorizer.class.name` says so (`docs/adr/0021-acls.md`).

use std::sync::Arc;

use broker::{
    Acl, AclError, AclFilter, AclOperation, AclPattern, AclPatternFilter, AclPermission, AclResource, WILDCARD,
};
use serde_json::{Value, json};

use super::answer::{Answer, Outcome, Refusal};
use super::call::{Call, Fields};
use super::listing::list;
use super::route::{self, Access, Route, Shape, Verb, change, get};
use super::schema::{Kind, Schema};

const ACL: Schema = Schema::new(
    "Acl",
    &[
        ("principal", Kind::Text, "User:NAME, or User:* for everybody."),
        ("host", Kind::Text, "An address, or * for all."),
        (
            "operation",
            Kind::Text,
            "All, Read, Write, Create, Delete, Alter, Describe and others, as kafka-acls has them.",
        ),
        ("permission", Kind::Text, "Allow, or Deny, which goes before."),
        ("resource", Kind::Text, "Topic, Group, Cluster, TransactionalId, DelegationToken or User."),
        ("pattern", Kind::Text, "Literal, or Prefixed: names that begin so."),
        ("name", Kind::Text, "Of the resource; a literal * stands for all."),
    ],
);

const WISH: Schema = Schema::body(
    "AclWish",
    &["principal", "operation", "resource", "name"],
    &[
        ("principal", Kind::Text, "User:NAME."),
        ("host", Kind::Text, "* if absent."),
        ("operation", Kind::Text, "As in an entry."),
        ("permission", Kind::Text, "Allow if absent."),
        ("resource", Kind::Text, "As in an entry."),
        ("pattern", Kind::Text, "Literal if absent."),
        ("name", Kind::Text, "Of the resource; kafka-cluster for the cluster."),
    ],
);

const CHOICE: Schema = Schema::body(
    "AclChoice",
    &[],
    &[
        ("principal", Kind::Text, "Entries of this principal."),
        ("host", Kind::Text, "For this host."),
        ("operation", Kind::Text, "For this operation."),
        ("permission", Kind::Text, "That say this."),
        ("resource", Kind::Text, "For resources of this type."),
        ("pattern", Kind::Text, "Of this pattern."),
        ("name", Kind::Text, "With this name."),
    ],
);

const DELETED: Schema =
    Schema::new("DeletedAcls", &[("deleted", Kind::List(&Kind::One(&ACL)), "What was there, or would go.")]);

const ENFORCED: Schema =
    Schema::new("AclsInForce", &[("enforced", Kind::Bool, "They count."), ("count", Kind::Int, "Entries there are.")]);

const FIELDS: &[&str] = &["principal", "host", "operation", "permission", "resource", "pattern", "name"];

pub(crate) const ROUTES: &[Route] = &[
    route::list("/acls", Access::Administrator, "Access control entries", &ACL, all),
    get("/acls/state", Access::Administrator, "Do access control entries count?", &ENFORCED, state),
    change(Verb::Post, "/acls", Access::Administrator, "Add an access control entry", Shape::One(&ACL), create)
        .takes(&WISH)
        .makes()
        .tries(),
    change(
        Verb::Post,
        "/acls/delete",
        Access::Administrator,
        "Remove access control entries",
        Shape::One(&DELETED),
        delete,
    )
    .takes(&CHOICE)
    .tries(),
];

fn described(acl: &Acl) -> Value {
    json!({
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation.name(),
        "permission": acl.permission.name(),
        "resource": acl.resource.name(),
        "pattern": acl.pattern.name(),
        "name": acl.name,
    })
}

fn all(call: &Call<'_>) -> Outcome {
    let acls = call.broker().security().acls(&AclFilter::default());
    list(call, acls.into_iter().map(|acl| (acl.to_string(), acl)), |acl: &Arc<Acl>| Some(described(acl)))
}

fn state(call: &Call<'_>) -> Outcome {
    let security = call.broker().security();
    Ok(Answer::of(json!({"enforced": security.acls_enforced(), "count": security.acls(&AclFilter::default()).len()})))
}

/// A word of a field, as one of `all`.
fn word<T: Copy>(
    body: &Fields,
    field: &str,
    all: &[T],
    name: fn(T) -> &'static str,
    of_name: fn(&str) -> Option<T>,
) -> Result<Option<T>, Refusal> {
    let refuse = || {
        Answer::invalid(
            field,
            format!("it is one of {}", all.iter().map(|one| name(*one)).collect::<Vec<_>>().join(", ")),
        )
    };
    body.text(field)?.map(|text| of_name(text).ok_or_else(refuse)).transpose()
}

fn operation(body: &Fields) -> Result<Option<AclOperation>, Refusal> {
    word(body, "operation", AclOperation::ALL, AclOperation::name, AclOperation::of_name)
}

fn permission(body: &Fields) -> Result<Option<AclPermission>, Refusal> {
    word(body, "permission", AclPermission::ALL, AclPermission::name, AclPermission::of_name)
}

fn resource(body: &Fields) -> Result<Option<AclResource>, Refusal> {
    word(body, "resource", AclResource::ALL, AclResource::name, AclResource::of_name)
}

fn pattern(body: &Fields) -> Result<Option<AclPattern>, Refusal> {
    word(body, "pattern", AclPattern::ALL, AclPattern::name, AclPattern::of_name)
}

fn create(call: &Call<'_>) -> Outcome {
    let body = call.object()?;
    body.only(FIELDS)?;
    let missing = |field: &'static str| move || Answer::invalid(field, "it is needed");
    let acl = Acl {
        principal: body.needed("principal")?.to_owned(),
        host: body.text("host")?.unwrap_or(WILDCARD).to_owned(),
        operation: operation(&body)?.ok_or_else(missing("operation"))?,
        permission: permission(&body)?.unwrap_or(AclPermission::Allow),
        resource: resource(&body)?.ok_or_else(missing("resource"))?,
        pattern: pattern(&body)?.unwrap_or(AclPattern::Literal),
        name: body.needed("name")?.to_owned(),
    };
    let there = call.broker().check_acl(&acl).map_err(|error| refused(&acl, error))?;
    let shown = described(&acl);
    if call.dry_run() {
        return Ok(Answer::of(shown));
    }
    let wish = acl.clone();
    let outcomes = call.control(move |broker| broker.create_acls(vec![wish]))?;
    match outcomes.into_iter().next() {
        Some(Err(error)) => Err(refused(&acl, error)),
        _ => Ok(Answer::made(!there, shown)),
    }
}

/// What is wrong with an entry, and in which field.
fn refused(acl: &Acl, error: AclError) -> Refusal {
    let reason = error.to_string();
    match error {
        AclError::ClusterName | AclError::EmptyName => Answer::invalid("name", reason),
        AclError::Principal(_) => Answer::invalid("principal", reason),
        AclError::TooLong(most) => {
            let texts = [("principal", &acl.principal), ("host", &acl.host)];
            Answer::invalid(
                texts.into_iter().find(|(_, text)| text.len() > most).map_or("name", |(field, _)| field),
                reason,
            )
        }
        AclError::TooMany(_) | AclError::TooManyCreated | AclError::TooManyRemoved | AclError::TooManyPicked(_) => {
            Answer::bad_request(reason)
        }
        AclError::Append(error) => Answer::failed(error),
    }
}

fn delete(call: &Call<'_>) -> Outcome {
    let body = call.object()?;
    body.only(FIELDS)?;
    let text = |name: &str| body.text(name).map(|text| text.map(str::to_owned));
    let filter = AclFilter {
        resource: resource(&body)?,
        name: text("name")?,
        pattern: pattern(&body)?.map_or(AclPatternFilter::Any, AclPatternFilter::Is),
        principal: text("principal")?,
        host: text("host")?,
        operation: operation(&body)?,
        permission: permission(&body)?,
    };
    if filter == AclFilter::default() {
        return Err(Answer::bad_request("an empty choice would remove all entries: name at least one field"));
    }
    let gone = match call.dry_run() {
        true => call.broker().security().acls(&filter),
        false => call
            .control(move |broker| broker.delete_acls(&[filter]))?
            .map_err(Answer::failed)?
            .into_iter()
            .flatten()
            .collect(),
    };
    Ok(Answer::of(json!({"deleted": gone.iter().map(|acl| described(acl)).collect::<Vec<_>>()})))
}
