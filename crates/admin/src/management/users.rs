//! Users: list, look at, make, change, delete; their limits.

use axum::http::Method;
use broker::{HashAlgorithm, InvalidHash, PasswordHash, PasswordWish, SecurityError, User, UserLimits, UserWish};
use serde_json::{Map, Value, json};

use super::answer::{Answer, Outcome, Refusal};
use super::call::{Call, text};
use super::listing::{list, one};
use super::route::{Access, Route, route};

pub(crate) const ROUTES: &[Route] = &[
    route(Method::GET, "/users", Access::Administrator, all),
    route(Method::GET, "/users/without-permissions", Access::Administrator, without_permissions),
    route(Method::POST, "/users/bulk-delete", Access::Administrator, delete_many),
    route(Method::GET, "/users/{name}", Access::Administrator, show),
    route(Method::PUT, "/users/{name}", Access::Administrator, put),
    route(Method::DELETE, "/users/{name}", Access::Administrator, delete),
    route(Method::GET, "/user-limits", Access::Administrator, limits),
    route(Method::GET, "/user-limits/{name}", Access::Administrator, limits_of_one),
    route(Method::PUT, "/user-limits/{name}/{limit}", Access::Administrator, put_limit),
    route(Method::DELETE, "/user-limits/{name}/{limit}", Access::Administrator, delete_limit),
];

/// Names of limits.
const CONNECTIONS: &str = "max-connections";
const CHANNELS: &str = "max-channels";

/// Limits as JSON.
fn limits_json(limits: UserLimits) -> Value {
    let all = [(CONNECTIONS, limits.max_connections), (CHANNELS, limits.max_channels)];
    Value::Object(all.into_iter().filter_map(|(name, limit)| Some((name.to_owned(), limit?.into()))).collect())
}

/// Limits of JSON; a negative one is none.
///
/// # Errors
/// 400: others than there are, or no numbers.
pub(crate) fn limits_of(value: &Value) -> Result<UserLimits, Refusal> {
    let mut limits = UserLimits::default();
    let fields = match value {
        Value::Object(fields) => fields.clone(),
        Value::Array(list) if list.is_empty() => Map::new(),
        _ => return Err(Answer::bad_request("limits are no object")),
    };
    for (name, value) in &fields {
        let place = match name.as_str() {
            CONNECTIONS => &mut limits.max_connections,
            CHANNELS => &mut limits.max_channels,
            _ => {
                return Err(Answer::bad_request(format!(
                    "Unrecognised terms [{{<<\"{name}\">>,{value}}}] in user-limits"
                )));
            }
        };
        let number = value
            .as_i64()
            .ok_or_else(|| Answer::bad_request(format!("{name} should be a number, actually was {value}")))?;
        *place = u32::try_from(number).ok();
    }
    Ok(limits)
}

/// Beside a hash that RabbitMQ knows: the one that counts here.
const OWN_HASH: &str = "mainstem_password_hash";

/// As RabbitMQ lists it, with a hash that it knows if there is one. It passes over fields that it does not know.
pub(crate) fn described(user: &User) -> Value {
    let shown = user.rabbitmq_hash().or_else(|| user.password());
    let mut found = json!({
        "name": user.name(),
        "password_hash": shown.map(PasswordHash::to_base64).unwrap_or_default(),
        "hashing_algorithm": shown.map_or(HashAlgorithm::RabbitSha256, PasswordHash::algorithm).name(),
        "tags": user.tags(),
        "limits": limits_json(user.limits()),
    });
    if let (Some(_), Some(own)) = (user.rabbitmq_hash(), user.password()) {
        found[OWN_HASH] = own.to_base64().into();
    }
    found
}

fn all(call: &Call<'_>) -> Outcome {
    list(call, call.broker().security().users().iter().map(|user| described(user)))
}

fn without_permissions(call: &Call<'_>) -> Outcome {
    let security = call.broker().security();
    let with: Vec<String> = security.all_permissions().into_iter().map(|(_, user, _)| user).collect();
    let without = security.users().into_iter().filter(|user| !with.iter().any(|name| name == user.name()));
    list(call, without.map(|user| described(&user)))
}

fn show(call: &Call<'_>) -> Outcome {
    let found = call.broker().security().users().into_iter().find(|user| user.name() == call.path("name"));
    one(call, described(&*found.ok_or_else(Answer::not_found)?))
}

/// Why a user, a permission or a virtual host is not as it was wanted.
pub(crate) fn refused(error: SecurityError) -> Refusal {
    match error {
        SecurityError::NoUser(_) | SecurityError::NoVhost(_) => Answer::bad_request("vhost_or_user_not_found"),
        SecurityError::Append(error) => Answer::failed(error),
        other => Answer::bad_request(other.to_string()),
    }
}

/// Tags as a list or, as in RabbitMQ before 3.9, as words with commas between.
pub(crate) fn tags_of(value: &Value) -> Result<Vec<String>, Refusal> {
    let words =
        |text: &str| text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect();
    match value {
        Value::String(text) => Ok(words(text)),
        Value::Array(all) => all
            .iter()
            .map(|tag| tag.as_str().map(str::to_owned).ok_or_else(|| Answer::bad_request("tags are no words")))
            .collect(),
        _ => Err(Answer::bad_request("tags are no words")),
    }
}

/// A user as JSON describes one, in a request or in definitions.
///
/// # Errors
/// 400, in RabbitMQ's words.
pub(crate) fn wish(name: &str, body: &Map<String, Value>) -> Result<UserWish, Refusal> {
    let tags = match (body.get("tags"), body.get("administrator")) {
        (Some(tags), _) => tags_of(tags)?,
        (None, Some(Value::Bool(true))) => vec!["administrator".to_owned()],
        (None, Some(_)) => Vec::new(),
        (None, None) => return Err(Answer::bad_request("tags_not_present")),
    };
    let password = match (body.get("password"), body.get("password_hash")) {
        (Some(_), Some(_)) => return Err(Answer::bad_request("both_password_and_password_hash_are_provided")),
        (Some(_), None) => match text(body, "password")? {
            "" => PasswordWish::Remove,
            password => PasswordWish::Clear(password.to_owned()),
        },
        (None, Some(_)) => {
            match (hashed(text(body, "password_hash")?, text(body, "hashing_algorithm")?)?, text(body, OWN_HASH)?) {
                (PasswordWish::Hash(rabbitmq), own) if !own.is_empty() => {
                    let own = PasswordHash::from_base64(HashAlgorithm::Pbkdf2Sha256, own)
                        .map_err(|error| hash_refused(&error, own))?;
                    PasswordWish::Both(own, rabbitmq)
                }
                (wish, _) => wish,
            }
        }
        (None, None) => PasswordWish::Remove,
    };
    let limits = body.get("limits").map(limits_of).transpose()?;
    Ok(UserWish { name: name.to_owned(), password, tags: Some(tags), limits })
}

fn hashed(hash: &str, algorithm: &str) -> Result<PasswordWish, Refusal> {
    if hash.is_empty() {
        return Ok(PasswordWish::Remove);
    }
    let found = match algorithm {
        "" => PasswordHash::of_rabbitmq(hash),
        given => given.parse().and_then(|algorithm| PasswordHash::from_base64(algorithm, hash)),
    };
    Ok(PasswordWish::Hash(found.map_err(|error| hash_refused(&error, hash))?))
}

fn hash_refused(error: &InvalidHash, hash: &str) -> Refusal {
    match error {
        InvalidHash::Encoding => Answer::bad_request(json!(["not_base64", hash])),
        InvalidHash::Algorithm(given) => Answer::bad_request(format!("hashing algorithm {given} is not known")),
        other => Answer::bad_request(other.to_string()),
    }
}

/// A password that is the same as before stays as it is hashed.
pub(crate) fn unless_same(password: PasswordWish, there: &User) -> PasswordWish {
    let same = match (&password, there.password()) {
        (PasswordWish::Clear(text), Some(hash)) => hash.verify(text.as_bytes()),
        // What was exported here may come back from RabbitMQ.
        (PasswordWish::Hash(wanted), Some(hash)) => wanted == hash || there.rabbitmq_hash() == Some(wanted),
        (PasswordWish::Both(wanted, _), Some(hash)) => wanted == hash,
        (PasswordWish::Remove, None) => true,
        _ => false,
    };
    if same { PasswordWish::Keep } else { password }
}

/// Would nothing change?
pub(crate) fn is_as_wanted(wish: &UserWish, there: &User) -> bool {
    let UserWish { password, tags, limits, .. } = wish;
    *password == PasswordWish::Keep
        && tags.as_ref().is_none_or(|tags| *tags == there.tags())
        && limits.is_none_or(|limits| limits == there.limits())
}

fn put(call: &Call<'_>) -> Outcome {
    let wish = wish(call.path("name"), &call.object()?)?;
    let is_new = !call.broker().security().users().iter().any(|user| user.name() == wish.name);
    call.control(move |broker| broker.put_user(wish).map(drop))?.map_err(refused)?;
    Ok(Answer::put(is_new))
}

fn delete(call: &Call<'_>) -> Outcome {
    let name = call.path("name").to_owned();
    match call.control(move |broker| broker.delete_user(&name))?.map_err(refused)? {
        true => Ok(Answer::done()),
        false => Err(Answer::not_found()),
    }
}

fn delete_many(call: &Call<'_>) -> Outcome {
    let body = call.object_with(&["users"])?;
    let names: Option<Vec<String>> =
        body["users"].as_array().and_then(|all| all.iter().map(|name| Some(name.as_str()?.to_owned())).collect());
    let names = names.ok_or_else(|| Answer::bad_request("users are no names"))?;
    call.control(move |broker| names.iter().try_for_each(|name| broker.delete_user(name).map(drop)))?
        .map_err(refused)?;
    Ok(Answer::done())
}

fn limited(user: &User) -> Option<Value> {
    let limits = limits_json(user.limits());
    limits.as_object().is_some_and(|all| !all.is_empty()).then(|| json!({"user": user.name(), "value": limits}))
}

fn limits(call: &Call<'_>) -> Outcome {
    list(call, call.broker().security().users().iter().filter_map(|user| limited(user)))
}

fn limits_of_one(call: &Call<'_>) -> Outcome {
    let user = call.broker().security().user(call.path("name")).ok_or_else(Answer::not_found)?;
    list(call, limited(&user))
}

fn change_limit(call: &Call<'_>, value: Option<&Value>) -> Outcome {
    let user = call.broker().security().user(call.path("name")).ok_or_else(Answer::not_found)?;
    let mut all = match limits_json(user.limits()) {
        Value::Object(all) => all,
        _ => Map::new(),
    };
    match value {
        Some(value) => drop(all.insert(call.path("limit").to_owned(), value.clone())),
        None => drop(all.remove(call.path("limit"))),
    }
    let limits = Some(limits_of(&Value::Object(all))?);
    let wish = UserWish { name: user.name().to_owned(), password: PasswordWish::Keep, tags: None, limits };
    call.control(move |broker| broker.put_user(wish).map(drop))?.map_err(refused)?;
    Ok(Answer::done())
}

fn put_limit(call: &Call<'_>) -> Outcome {
    let body = call.object_with(&["value"])?;
    change_limit(call, body.get("value"))
}

fn delete_limit(call: &Call<'_>) -> Outcome {
    change_limit(call, None)
}
