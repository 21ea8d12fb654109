//! Sessions: log in, see who one is, log out.

use std::net::SocketAddr;
use std::time::Instant;

use axum::http::{HeaderMap, header};
use broker::Credentials;
use serde_json::{Value, json};

use super::answer::{Answer, Outcome};
use super::call::Call;
use super::route::{Access, Route, Shape, Verb, change, get};
use super::schema::{Kind, Schema};
use super::server::Api;
use super::sessions::{COOKIE, Caller, LASTS, Sessions, Via, cookie};
use crate::management::Management;
use crate::management::authority::Identity;

const SESSION: Schema = Schema::new(
    "Session",
    &[
        ("user", Kind::Text, "Who is logged in."),
        ("tags", Kind::List(&Kind::Text), "The user's tags."),
        ("administrator", Kind::Bool, "May do everything."),
        ("monitoring", Kind::Bool, "May look at all of the node."),
        ("csrf", Kind::OrNull(&Kind::Text), "What changes by cookie send in X-Mainstem-CSRF."),
        ("expires_at", Kind::OrNull(&Kind::Int), "When the session ends at the latest, ms since 1970."),
        ("anonymous", Kind::Bool, "No user is defined: nobody has to log in on this machine."),
        ("via", Kind::Text, "How it is known who asks: cookie, basic, bearer or none."),
    ],
);

const LOGIN: Schema = Schema::body(
    "Login",
    &["user", "password"],
    &[("user", Kind::Text, "Name."), ("password", Kind::Text, "Password.")],
);

pub(crate) const ROUTES: &[Route] = &[
    get("/session", Access::LoggedIn, "Who asks", &SESSION, |call| {
        Ok(Answer::of(described(call.broker().now_ms(), call.caller)))
    }),
    // Answered before it is known who asks: see `log_in`.
    change(
        Verb::Post,
        "/session",
        Access::Open,
        "Log in: opens a session, whose cookie is set",
        Shape::One(&SESSION),
        |_| Err(Answer::failed("logins are answered elsewhere")),
    )
    .takes(&LOGIN),
    change(Verb::Delete, "/session", Access::LoggedIn, "Log out", Shape::Nothing, log_out),
];

fn described(now_ms: i64, caller: &Caller) -> Value {
    let (via, csrf, left) = match &caller.via {
        Via::Cookie { csrf, left } => ("cookie", Some(csrf), Some(*left)),
        Via::Basic => ("basic", None, None),
        Via::Bearer => ("bearer", None, None),
        Via::Nothing => ("none", None, None),
    };
    json!({
        "user": caller.who.name(),
        "tags": caller.who.tags(),
        "administrator": caller.who.is_administrator(),
        "monitoring": caller.who.monitors(),
        "csrf": csrf,
        "expires_at": left.map(|left| now_ms + left.as_millis() as i64),
        "anonymous": caller.via == Via::Nothing,
        "via": via,
    })
}

fn set_cookie(token: &str, seconds: u64) -> String {
    format!("{COOKIE}={token}; HttpOnly; SameSite=Strict; Path=/v1; Max-Age={seconds}")
}

/// Opens a session with the name and password of a body.
///
/// # Errors
/// 400, 401, 403, 429, 503.
pub(crate) async fn log_in(
    api: &Api,
    management: &Management,
    body: &[u8],
    (headers, peer): (&HeaderMap, SocketAddr),
) -> Outcome {
    let body: Value =
        serde_json::from_slice(body).map_err(|error| Answer::bad_request(format!("the body is no JSON: {error}")))?;
    let text = |name: &str| body[name].as_str().ok_or_else(|| Answer::invalid(name, "it is needed, as a text"));
    let broker = &management.broker;
    let credentials = Credentials { name: text("user")?.as_bytes(), password: text("password")?.as_bytes(), peer };
    let user = Sessions::login(broker, credentials, headers, false).await?;
    let who = Identity::new(std::sync::Arc::clone(&user), broker, peer.ip());
    if !who.has(&["administrator", "monitoring", "policymaker", "management"]) {
        return Err(Answer::not_allowed(format!(
            "user {:?} has no tag with which one may look at the broker",
            who.name()
        )));
    }
    let (token, via) = api.sessions.open(&user, Instant::now());
    let answer = Answer::of(described(broker.now_ms(), &Caller { who, via }));
    Ok(answer.header(header::SET_COOKIE, set_cookie(&token, LASTS.as_secs())))
}

fn log_out(call: &Call<'_>) -> Outcome {
    if let Some(token) = cookie(call.headers) {
        call.api.sessions.close(token);
    }
    Ok(Answer::done().header(header::SET_COOKIE, set_cookie("", 0)))
}
