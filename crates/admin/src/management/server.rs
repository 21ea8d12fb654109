//! Serves the API: on the administration port under `/api`, and on a port of its own if that is wanted. Who asks, for what, and whether he may,
//! is looked at before a request's body is read; answers are made on a few threads that may wait.

use std::cell::Cell;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::request::Parts;
use axum::http::{Method, Response, StatusCode};
use axum::routing::any;
use serde_json::json;

use super::Management;
use super::answer::{Answer, Outcome, Refusal};
use super::authority::Identity;
use super::call::Call;
use super::rates::EVERY;
use super::route::{Found, Route, doing, find};
use crate::answers::{self, Text};
use crate::bodies::{self, Bounds};
use crate::origin::{self, Asked, Peers};
use crate::paths::{Filled, segments};

/// The API before and after there is a broker to manage.
#[derive(Clone, Default)]
pub struct Server(Arc<OnceLock<Arc<Management>>>);

impl Server {
    /// There is a broker: requests are answered from now on.
    pub fn attach(&self, management: Arc<Management>) {
        let _ = self.0.set(management);
    }

    /// What is managed, once it is there.
    pub(crate) fn get(&self) -> Option<Arc<Management>> {
        self.0.get().cloned()
    }

    /// The routes, to be merged with others.
    pub fn router(&self) -> Router {
        Router::new().route("/api", any(answer)).route("/api/{*rest}", any(answer)).with_state(self.clone())
    }

    /// Looks at counts from time to time, for rates. Ends with the runtime.
    pub(crate) async fn look_on(self) {
        let mut ticks = tokio::time::interval(EVERY);
        loop {
            ticks.tick().await;
            if let Some(management) = self.0.get().cloned() {
                let _ = tokio::task::spawn_blocking(move || management.look()).await;
            }
        }
    }
}

async fn answer(
    State(server): State<Server>,
    ConnectInfo(peer): ConnectInfo<Peers>,
    request: Request,
) -> Response<Body> {
    let head = *request.method() == Method::HEAD;
    let answered = respond(&server, peer, request).await.unwrap_or_else(|refusal| refusal);
    let mut response = answered.into_response();
    if head {
        *response.body_mut() = Body::empty();
    }
    response
}

async fn respond(server: &Server, peers: Peers, request: Request) -> Result<Answer, Refusal> {
    let looks = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    // A browser adds the password that it knows to whatever a page of another site has it send.
    let asked = if looks {
        origin::check_loopback(&peers, request.headers())
    } else {
        origin::check_own(&peers, request.headers(), Asked::Change)
    };
    asked.map_err(Answer::forbidden)?;
    if *request.method() == Method::OPTIONS {
        return Ok(Answer::done());
    }
    let Some(management) = server.0.get().cloned() else {
        return Err(Answer::with_status(
            StatusCode::SERVICE_UNAVAILABLE,
            json!({"error": "unavailable", "reason": "recovering"}),
        ));
    };
    let (parts, body) = request.into_parts();
    let who = management.authenticate(&parts.headers, peers.peer).await?;
    let method = if parts.method == Method::HEAD { Method::GET } else { parts.method.clone() };
    let note = |status| who.audit(method.as_str(), parts.uri.path(), peers.peer.ip(), status);
    let judged = segments(parts.uri.path().strip_prefix("/api").unwrap_or_default()).ok_or_else(Answer::not_found);
    let (segments, bounds) = judged
        .and_then(|segments| permit(&who, &method, &segments).map(|bounds| (segments, bounds)))
        .inspect_err(|refusal| note(refusal.status))?;
    let doing = doing(&method, &segments);
    let body = bodies::read(&parts, body, bounds, who.name())
        .await
        .map_err(|unread| Answer::unread(unread, bounds.longest()))
        .inspect_err(|refusal| note(refusal.status))?;
    let work = move |text| {
        // The body may have taken its time, and room for the answer too: what was allowed before may not be any more.
        let Some(who) = who.renewed() else { return Answer::wrong_credentials().written(text) };
        let (Ok(answer) | Err(answer)) = call(&management, &who, (&method, &segments), &parts, body.bytes(), text);
        if !answer.text().is_some_and(Text::is_short) {
            who.audit(method.as_str(), parts.uri.path(), peers.peer.ip(), answer.status);
        }
        answer
    };
    answers::make(doing, work, Answer::text).await.map_err(Answer::unmade)
}

/// The row of the table that is asked for.
///
/// # Errors
/// 404, 405.
fn route_of<'s>(method: &Method, segments: &'s [String]) -> Result<(&'static Route, Filled<'s>), Refusal> {
    match find(method, segments) {
        Found::Route(route, filled) => Ok((route, filled)),
        Found::OtherMethod(allowed) => Err(Answer::method_not_allowed(allowed)),
        Found::Nothing => Err(Answer::not_found()),
    }
}

/// May he who asks do that? What may the body be like?
fn permit(who: &Identity, method: &Method, segments: &[String]) -> Result<Bounds, Refusal> {
    let (route, filled) = route_of(method, segments)?;
    let vhost = filled.iter().find(|(name, _)| *name == "vhost").map(|(_, value)| *value);
    who.check(route.access, vhost)?;
    Ok(route.body_bounds())
}

/// Does what a request asks for, and writes what is answered.
fn call(
    management: &Arc<Management>,
    who: &Identity,
    (method, segments): (&Method, &[String]),
    parts: &Parts,
    body: &[u8],
    text: Text,
) -> Outcome {
    permit(who, method, segments)?;
    let (route, filled) = route_of(method, segments)?;
    let query = form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
    let call = Call {
        management,
        who,
        filled,
        query,
        headers: &parts.headers,
        body,
        access: route.access,
        text: Cell::new(text),
    };
    management.rates.touch();
    let (Ok(answer) | Err(answer)) = (route.handler)(&call);
    Ok(answer.written(call.text.take()))
}
