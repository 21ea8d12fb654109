//! What users may do in virtual hosts.

use broker::{InvalidPattern, Pattern, Permissions, TopicPermissions};
use serde_json::{Value, json};

use super::answer::{Answer, Outcome, Refusal};
use super::call::{Call, Fields};
use super::listing::list;
use super::route::{self, Access, Route, Shape, Verb, change};
use super::schema::{Kind, Schema};
use super::users::user_of;
use super::vhosts::refused;

pub(crate) const PERMISSION: Schema = Schema::new(
    "Permission",
    &[
        ("user", Kind::Text, "Whose."),
        ("vhost", Kind::Text, "Where."),
        ("configure", Kind::Text, "A regular expression: what may be made, changed and deleted."),
        ("write", Kind::Text, "What may be written to."),
        ("read", Kind::Text, "What may be read from."),
    ],
);

pub(crate) const TOPIC_PERMISSION: Schema = Schema::new(
    "TopicPermission",
    &[
        ("vhost", Kind::Text, "Where."),
        ("exchange", Kind::Text, "A topic exchange."),
        ("write", Kind::Text, "Routing keys that may be published with."),
        ("read", Kind::Text, "Routing keys that may be bound with."),
    ],
);

const WISH: Schema = Schema::body(
    "PermissionWish",
    &["configure", "write", "read"],
    &[
        ("configure", Kind::Text, "A regular expression, which has to fit all of a name; empty: nothing."),
        ("write", Kind::Text, "As configure."),
        ("read", Kind::Text, "As configure."),
    ],
);

pub(crate) const ROUTES: &[Route] = &[
    route::list("/permissions", Access::Administrator, "Permissions of all users", &PERMISSION, all),
    change(
        Verb::Put,
        "/users/{user}/permissions/{vhost}",
        Access::Administrator,
        "Give a user permissions in a virtual host",
        Shape::One(&PERMISSION),
        put,
    )
    .takes(&WISH)
    .makes()
    .tries(),
    change(
        Verb::Delete,
        "/users/{user}/permissions/{vhost}",
        Access::Administrator,
        "Take a user's permissions in a virtual host away",
        Shape::Nothing,
        delete,
    )
    .tries(),
];

fn described(vhost: &str, user: &str, permissions: &Permissions) -> Value {
    let Permissions { configure, write, read } = permissions;
    json!({"user": user, "vhost": vhost, "configure": configure.text(), "write": write.text(), "read": read.text()})
}

/// Those of a user.
pub(crate) fn of_user(call: &Call<'_>, user: &str) -> Vec<Value> {
    let all = call.broker().security().all_permissions();
    all.iter().filter(|(_, whose, _)| whose == user).map(|(vhost, user, found)| described(vhost, user, found)).collect()
}

/// With which routing keys a user may use topic exchanges.
pub(crate) fn topics_of_user(call: &Call<'_>, user: &str) -> Vec<Value> {
    let one = |vhost: &str, topics: &TopicPermissions| -> Vec<Value> {
        let row = |(exchange, one): (&String, &broker::TopicPermission)| json!({"vhost": vhost, "exchange": exchange, "write": one.write.text(), "read": one.read.text()});
        topics.iter().map(row).collect()
    };
    let all = call.broker().security().all_topic_permissions();
    all.iter().filter(|(_, whose, _)| whose == user).flat_map(|(vhost, _, topics)| one(vhost, topics)).collect()
}

fn all(call: &Call<'_>) -> Outcome {
    let all = call.broker().security().all_permissions();
    list(call, all.into_iter().map(|one| (format!("{} {}", one.1, one.0), one)), |(vhost, user, found)| {
        Some(described(vhost, user, found))
    })
}

fn wished(body: &Fields) -> Result<Permissions, Refusal> {
    body.only(&["configure", "write", "read"])?;
    let one = |field: &'static str| -> Result<&str, Refusal> {
        let text = body.needed(field)?;
        let refuse = |error: InvalidPattern| Answer::invalid(field, error.to_string());
        Pattern::new(text).map_err(refuse)?;
        Ok(text)
    };
    let (configure, write, read) = (one("configure")?, one("write")?, one("read")?);
    Permissions::new(configure, write, read).map_err(|error| Answer::bad_request(error.to_string()))
}

fn put(call: &Call<'_>) -> Outcome {
    let (user, vhost) = (user_of(call)?.name().to_owned(), call.vhost()?.name().to_owned());
    let permissions = wished(&call.object()?)?;
    let found = described(&vhost, &user, &permissions);
    let is_new = call.broker().security().permissions(&vhost, &user).is_none();
    if !call.dry_run() {
        call.control(move |broker| broker.set_permissions(&vhost, &user, permissions))?
            .map_err(|error| refused("configure", error))?;
    }
    Ok(Answer::made(is_new && !call.dry_run(), found))
}

fn delete(call: &Call<'_>) -> Outcome {
    let (user, vhost) = (user_of(call)?.name().to_owned(), call.vhost()?.name().to_owned());
    if call.broker().security().permissions(&vhost, &user).is_none() {
        return Err(Answer::not_found(format!("user {user:?} has no permissions in virtual host {vhost:?}")));
    }
    if !call.dry_run() {
        call.control(move |broker| broker.clear_permissions(&vhost, &user))?
            .map_err(|error| refused("vhost", error))?;
    }
    Ok(Answer::done())
}
