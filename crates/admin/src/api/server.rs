//! Serves the API under `/v1` of the administration port. In this order: where a request comes from, who sends it, what it asks, whether
//! that may be asked by him; only then its body is read, and it is answered on a thread that may wait.

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, Response, header};
use axum::routing::any;

use super::answer::{Answer, Outcome, Refusal};
use super::call::Call;
use super::live::Live;
use super::login::log_in;
use super::rights::check_access;
use super::route::{Access, Route, rows};
use super::sessions::{CSRF_HEADER, Caller, Sessions, Via};
use crate::answers::{self, Doing, Text};
use crate::bodies::{self, Bounds, Read};
use crate::management::{self, Management};
use crate::operations::Operator;
use crate::origin::{self, Asked, Peers};
use crate::paths::{Found, find, segments};

/// Bytes of a body that is read before it is known who sends it.
const OPEN_BODY_MAX: usize = 16 << 10;

/// What requests share.
#[derive(Default)]
pub(crate) struct Api {
    pub sessions: Sessions,
    pub operator: Operator,
    pub live: Arc<Live>,
}

/// The API, before and after there is a broker.
#[derive(Clone)]
pub struct Server {
    managed: management::Server,
    api: Arc<Api>,
}

impl Server {
    /// Of what `managed` manages, on a node that `operator` operates.
    pub fn new(managed: management::Server, operator: Operator) -> Self {
        Self { managed, api: Arc::new(Api { operator, ..Api::default() }) }
    }

    /// The routes, to be merged with others.
    pub(crate) fn router(&self) -> Router {
        Router::new().route("/v1", any(answer)).route("/v1/{*rest}", any(answer)).with_state(self.clone())
    }
}

async fn answer(
    State(server): State<Server>,
    ConnectInfo(peers): ConnectInfo<Peers>,
    request: Request,
) -> Response<Body> {
    let head = *request.method() == Method::HEAD;
    let answered = respond(&server, peers, request).await.unwrap_or_else(|refusal| *refusal);
    let mut response = answered.into_response();
    if head {
        *response.body_mut() = Body::empty();
    }
    response
}

async fn respond(server: &Server, peers: Peers, request: Request) -> Outcome {
    let (parts, body) = request.into_parts();
    let method = if parts.method == Method::HEAD { Method::GET } else { parts.method.clone() };
    let changes = method != Method::GET;
    origin::check_own(&peers, &parts.headers, if changes { Asked::Change } else { Asked::Data })
        .map_err(Answer::wrong_origin)?;
    let recovering = || Answer::unavailable("recovering", "the broker is reading its data");
    let management = server.managed.get().ok_or_else(recovering)?;
    let path = parts.uri.path().strip_prefix("/v1").unwrap_or_default();
    let mut segments = segments(path).ok_or_else(|| Answer::not_found("the path is no UTF-8"))?;
    segments.iter_mut().for_each(unescape_dots);
    let (route, filled) = match find(rows(), &method, &segments) {
        Found::Route(route, filled) => (route, filled),
        Found::OtherMethod(allowed) => return Err(Answer::method_not_allowed(allowed)),
        Found::Nothing => return Err(Answer::not_found("there is no such path: /v1/openapi.json names them all")),
    };
    let filled: Vec<(&'static str, String)> =
        filled.into_iter().map(|(name, value)| (name, value.to_owned())).collect();
    let api = Arc::clone(&server.api);
    if route.access == Access::Open {
        let body = if changes {
            read(&parts, body, Bounds { bytes: OPEN_BODY_MAX, ..Bounds::USUAL }, "").await?
        } else {
            Read::none()
        };
        return answer_open(&api, &management, route, body.bytes(), (&parts.headers, peers.peer)).await;
    }
    let caller = api.sessions.caller(&management.broker, &parts.headers, peers.peer).await?;
    let judged = check_csrf(&caller, &parts.headers, changes).and_then(|()| check_access(&caller.who, route.access));
    judged.inspect_err(|refusal| {
        caller.who.audit(parts.method.as_str(), parts.uri.path(), peers.peer.ip(), refusal.status())
    })?;
    let body = read(&parts, body, Bounds::USUAL, caller.who.name()).await?;
    let doing = if changes { Doing::Changes } else { Doing::Looks };
    let asked = Asks { api, management, caller, route, filled, parts, body, from: peers.peer.ip() };
    let work = move |text| match asked.answer(text) {
        Ok(answer) => answer,
        Err(refusal) => *refusal,
    };
    answers::make(doing, work, Answer::text).await.map_err(Answer::unmade)
}

/// A request that has come, with its body.
struct Asks {
    api: Arc<Api>,
    management: Arc<Management>,
    caller: Caller,
    route: &'static Route,
    filled: Vec<(&'static str, String)>,
    parts: Parts,
    body: Read,
    from: IpAddr,
}

impl Asks {
    /// Does what is asked for, and writes what is answered.
    fn answer(&self, text: Text) -> Outcome {
        let Self { api, management, caller, route, filled, parts, body, from } = self;
        // The body may have taken its time, and room for the answer too: what was allowed before may not be any more.
        let who =
            caller.who.renewed().ok_or_else(|| Answer::not_authenticated("who asks has to log in anew", false))?;
        check_access(&who, route.access)?;
        let caller = &Caller { who, via: caller.via.clone() };
        let query = form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
        let filled = filled.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let call = Call {
            api,
            management,
            caller,
            filled,
            query,
            headers: &parts.headers,
            body: body.bytes(),
            tries: route.tries,
            access: route.access,
            text: Cell::new(text),
        };
        check_query(&call, route)?;
        management.rates.touch();
        let outcome = (route.handler)(&call);
        // A status that the description does not name would be taken for a refusal.
        debug_assert!(
            outcome.as_ref().map_or(true, |answer| route.statuses.contains(&answer.status().as_str())),
            "{} {}",
            parts.method,
            route.path
        );
        let (Ok(answer) | Err(answer)) = outcome.map_err(|refusal| *refusal);
        let answer = answer.written(call.text.take());
        if !call.dry_run() && !answer.text().is_some_and(Text::is_short) {
            caller.who.audit(parts.method.as_str(), parts.uri.path(), *from, answer.status());
        }
        Ok(answer)
    }
}

/// Browsers, and proxies like them, take a segment `.` or `..` for a step in the path, percent-encoded or not. So a name of these has a
/// backslash before it, and a name that is one of these behind backslashes has one more.
fn unescape_dots(segment: &mut String) {
    if segment.starts_with('\\') && matches!(segment.trim_start_matches('\\'), "." | "..") {
        segment.remove(0);
    }
}

/// What is answered to everybody.
async fn answer_open(
    api: &Api,
    management: &Arc<Management>,
    route: &Route,
    body: &[u8],
    from: (&HeaderMap, SocketAddr),
) -> Outcome {
    match (route.verb, route.path) {
        (super::route::Verb::Post, "/session") => log_in(api, management, body, from).await,
        _ => Ok(super::openapi::answer()),
    }
}

/// # Errors
/// 408, 413, 415, 400.
async fn read(parts: &Parts, body: Body, bounds: Bounds, user: &str) -> Result<Read, Refusal> {
    let read =
        bodies::read(parts, body, bounds, user).await.map_err(|unread| Answer::unread(unread, bounds.longest()))?;
    let kind = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !read.bytes().is_empty()
        && !kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
    {
        return Err(Answer::not_json());
    }
    Ok(read)
}

/// # Errors
/// 403.
fn check_csrf(caller: &Caller, headers: &HeaderMap, changes: bool) -> Result<(), Refusal> {
    let Via::Cookie { csrf, .. } = &caller.via else { return Ok(()) };
    let given = headers.get(CSRF_HEADER).map(axum::http::HeaderValue::as_bytes);
    if !changes || given == Some(csrf.as_bytes()) { Ok(()) } else { Err(Answer::csrf()) }
}

/// A parameter that would be passed over is refused: `dry-run=true` must not do what it was to try.
///
/// # Errors
/// 400.
fn check_query(call: &Call<'_>, route: &Route) -> Result<(), Refusal> {
    for (name, value) in &call.query {
        let known = route.parameters().find(|(known, _, _)| known == name);
        let (_, kind, _) = known.ok_or_else(|| Answer::invalid(name, "there is no such parameter here"))?;
        if let Some(reason) = kind.refuses(value) {
            return Err(Answer::invalid(name, reason));
        }
    }
    Ok(())
}
