//! Users: list, look at, make, change, delete.

use std::sync::Arc;

use broker::{Broker, PasswordHash, PasswordWish, User, UserLimits, UserWish, distance};
use hashbrown::HashMap;
use serde_json::{Value, json};

use super::answer::{Answer, Outcome, Refusal};
use super::call::{Call, Fields};
use super::listing::list;
use super::permissions::{self, PERMISSION, TOPIC_PERMISSION};
use super::route::{self, Access, Route, Shape, Verb, change, get};
use super::schema::{Kind, Schema};
use super::vhosts::refused;

const SCRAM: Schema = Schema::new(
    "ScramKeys",
    &[
        ("mechanism", Kind::Text, "SCRAM-SHA-256 or SCRAM-SHA-512."),
        ("iterations", Kind::Int, "What each guess costs who has stolen the keys."),
    ],
);

const LIMITS: Schema = Schema::new(
    "UserLimits",
    &[
        ("max_connections", Kind::OrNull(&Kind::Int), "Connections at once; 0: none at all."),
        ("max_channels", Kind::OrNull(&Kind::Int), "Channels of all connections together; 0: none at all."),
    ],
);

const USER: Schema = Schema::new(
    "User",
    &[
        ("name", Kind::Text, "1 to 255 bytes."),
        ("tags", Kind::List(&Kind::Text), "administrator, monitoring, policymaker, management, or others."),
        ("has_password", Kind::Bool, "May log in with a password."),
        ("hash", Kind::OrNull(&Kind::Text), "How the password is kept."),
        ("scram", Kind::List(&Kind::One(&SCRAM)), "Keys for SCRAM."),
        ("limits", Kind::One(&LIMITS), "What the user may have open."),
        ("connections", Kind::Int, "Open connections of all protocols."),
    ],
);

const USER_FULL: Schema = Schema::more(
    "UserFull",
    &USER,
    &[
        ("permissions", Kind::List(&Kind::One(&PERMISSION)), "By virtual host."),
        ("topic_permissions", Kind::List(&Kind::One(&TOPIC_PERMISSION)), "By topic exchange."),
    ],
);

const WISH: Schema = Schema::body(
    "UserWish",
    &[],
    &[
        ("password", Kind::OrNull(&Kind::Text), "null: takes it away. What is absent stays as it is."),
        ("tags", Kind::List(&Kind::Text), "All of them."),
        ("limits", Kind::Object, "max_connections and max_channels, null for none."),
    ],
);

const ADMINISTRATOR: &str = "administrator";
/// Edits from a tag to another that somebody may have meant.
const TYPING_ERRORS: usize = 3;

pub(crate) const ROUTES: &[Route] = &[
    route::list("/users", Access::Administrator, "Users", &USER, all),
    get("/users/{user}", Access::Administrator, "A user and his permissions", &USER_FULL, show),
    change(Verb::Put, "/users/{user}", Access::Administrator, "Make or change a user", Shape::One(&USER), put)
        .takes(&WISH)
        .makes()
        .tries(),
    change(
        Verb::Delete,
        "/users/{user}",
        Access::Administrator,
        "Delete a user; his connections end",
        Shape::Nothing,
        delete,
    )
    .tries(),
];

/// The user of the path.
///
/// # Errors
/// 404: none of that name is defined.
pub(crate) fn user_of(call: &Call<'_>) -> Result<Arc<User>, Refusal> {
    let name = call.path("user");
    find(call.broker(), name).ok_or_else(|| Answer::not_found(format!("there is no user {name:?}")))
}

/// Open connections of all protocols, by user.
fn connections(call: &Call<'_>) -> HashMap<String, usize> {
    let broker = call.broker();
    let mut found = HashMap::new();
    let kafka = broker.kafka_connections().all();
    kafka
        .iter()
        .filter_map(|(_, client)| client.said().user)
        .for_each(|(user, _)| *found.entry(user).or_default() += 1);
    broker
        .connections()
        .all()
        .iter()
        .for_each(|connected| *found.entry_ref(connected.details.user.as_str()).or_default() += 1);
    found
}

fn limits_json(limits: UserLimits) -> Value {
    json!({"max_connections": limits.max_connections, "max_channels": limits.max_channels})
}

fn described(user: &User, connections: &HashMap<String, usize>) -> Value {
    let keys =
        user.scram().iter().map(|keys| json!({"mechanism": keys.mechanism().name(), "iterations": keys.iterations()}));
    json!({
        "name": user.name(),
        "tags": user.tags(),
        "has_password": user.password().is_some(),
        "hash": user.password().map(|hash: &PasswordHash| hash.algorithm().name()),
        "scram": keys.collect::<Vec<_>>(),
        "limits": limits_json(user.limits()),
        "connections": connections.get(user.name()).copied().unwrap_or(0),
    })
}

fn all(call: &Call<'_>) -> Outcome {
    let users = call.broker().security().users().into_iter().map(|user| (user.name().to_owned(), user));
    let connections = connections(call);
    list(call, users, |user| Some(described(user, &connections)))
}

fn show(call: &Call<'_>) -> Outcome {
    let user = user_of(call)?;
    let mut found = described(&user, &connections(call));
    found["permissions"] = permissions::of_user(call, user.name()).into();
    found["topic_permissions"] = permissions::topics_of_user(call, user.name()).into();
    Ok(Answer::of(found))
}

fn limits_of(body: &Fields) -> Result<Option<UserLimits>, Refusal> {
    let Some(value) = body.get("limits") else { return Ok(None) };
    let fields = value.as_object().ok_or_else(|| Answer::invalid("limits", "it is an object"))?;
    let mut limits = UserLimits::default();
    for (name, value) in fields {
        let field = format!("limits.{name}");
        let place = match name.as_str() {
            "max_connections" => &mut limits.max_connections,
            "max_channels" => &mut limits.max_channels,
            _ => return Err(Answer::invalid(&field, "there are max_connections and max_channels")),
        };
        let number = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
        *place = match value {
            Value::Null => None,
            value => Some(
                number(value)
                    .ok_or_else(|| Answer::invalid(&field, "it is null or a whole number that is not negative"))?,
            ),
        };
    }
    Ok(Some(limits))
}

fn wish_of(name: &str, body: &Fields) -> Result<UserWish, Refusal> {
    body.only(&["password", "tags", "limits"])?;
    let password = match (body.has("password"), body.text("password")?) {
        (false, _) => PasswordWish::Keep,
        (true, None) => PasswordWish::Remove,
        (true, Some("")) => return Err(Answer::invalid("password", "a password is not empty")),
        (true, Some(password)) => PasswordWish::Clear(password.to_owned()),
    };
    Ok(UserWish { name: name.to_owned(), password, tags: body.words("tags")?, limits: limits_of(body)? })
}

/// The user of a name.
fn find(broker: &Broker, name: &str) -> Option<Arc<User>> {
    broker.security().users().into_iter().find(|user| user.name() == name)
}

/// May he log in, with a password or with keys?
fn logs_in(user: &User) -> bool {
    user.password().is_some() || user.scram().iter().next().is_some()
}

/// Somebody has to be able to administer the broker, once users are defined: this one (`he`), or another. `tags`: that he is to have.
///
/// # Errors
/// 409.
fn check_administrators(broker: &Broker, name: &str, he: bool, tags: &[String]) -> Result<(), Refusal> {
    let users = broker.security().users();
    let may = |user: &Arc<User>| user.name() != name && user.has_tag(ADMINISTRATOR) && logs_in(user);
    if he || users.iter().any(may) {
        return Ok(());
    }
    let meant = tags
        .iter()
        .find(|tag| *tag != ADMINISTRATOR && tag.len() < 20 && distance(ADMINISTRATOR, tag) <= TYPING_ERRORS);
    let meant = meant.map_or_else(String::new, |tag| format!(" (tag {tag:?}: did you mean {ADMINISTRATOR}?)"));
    Err(Answer::conflict(match users.is_empty() {
        true => format!(
            "the first user takes the place of guest and has to be able to administer the broker: give {name:?} tag {ADMINISTRATOR} and a password{meant}"
        ),
        false => format!(
            "nobody could administer the broker any more: some user needs tag {ADMINISTRATOR} and a password{meant}"
        ),
    }))
}

/// Might he administer the broker after that?
fn would_administer(before: Option<&User>, wish: &UserWish) -> bool {
    let tagged = match &wish.tags {
        Some(tags) => tags.iter().any(|tag| tag == ADMINISTRATOR),
        None => before.is_some_and(|user| user.has_tag(ADMINISTRATOR)),
    };
    let logs_in = match &wish.password {
        PasswordWish::Keep => before.is_some_and(logs_in),
        PasswordWish::Remove => false,
        PasswordWish::Clear(_) | PasswordWish::Hash(_) | PasswordWish::Both(..) => true,
    };
    tagged && logs_in
}

fn put(call: &Call<'_>) -> Outcome {
    let name = call.path("user").to_owned();
    if name.is_empty() || name.len() > 255 {
        return Err(Answer::invalid("user", "a name has 1 to 255 bytes"));
    }
    let wish = wish_of(&name, &call.object()?)?;
    if call.dry_run() {
        let before = find(call.broker(), &name);
        check_administrators(
            call.broker(),
            &name,
            would_administer(before.as_deref(), &wish),
            wish.tags.as_deref().unwrap_or_default(),
        )?;
        return Ok(Answer::of(tried(call, before.as_deref(), &wish)));
    }
    let done = call.control(move |broker| {
        // Looked at where changes come one after the other: of two administrators who go at once one stays.
        let before = find(broker, &name);
        check_administrators(
            broker,
            &name,
            would_administer(before.as_deref(), &wish),
            wish.tags.as_deref().unwrap_or_default(),
        )?;
        broker.put_user(wish).map(|user| (before.is_none(), user)).map_err(|error| refused("user", error))
    })?;
    let (is_new, user) = done?;
    Ok(Answer::made(is_new, described(&user, &connections(call))))
}

/// A user as he would be.
fn tried(call: &Call<'_>, before: Option<&User>, wish: &UserWish) -> Value {
    let mut found = before.map_or_else(
        || json!({"name": wish.name, "tags": [], "hash": null, "scram": [], "limits": limits_json(UserLimits::default()), "connections": 0}),
        |user| described(user, &connections(call)),
    );
    if let Some(tags) = &wish.tags {
        found["tags"] = tags.clone().into();
    }
    if let Some(limits) = wish.limits {
        found["limits"] = limits_json(limits);
    }
    found["has_password"] = match wish.password {
        PasswordWish::Keep => before.is_some_and(|user| user.password().is_some()),
        PasswordWish::Remove => false,
        PasswordWish::Clear(_) | PasswordWish::Hash(_) | PasswordWish::Both(..) => true,
    }
    .into();
    found
}

fn delete(call: &Call<'_>) -> Outcome {
    let name = user_of(call)?.name().to_owned();
    call.control_or_try(move |broker, really| {
        // Without any user there is guest again.
        if broker.security().users().iter().any(|user| user.name() != name) {
            check_administrators(broker, &name, false, &[])?;
        }
        if really { broker.delete_user(&name).map(drop).map_err(|error| refused("user", error)) } else { Ok(()) }
    })??;
    Ok(Answer::done())
}
