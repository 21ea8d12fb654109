//! Serves the API: on the administration port under `/api`, and on a port of its own if that is wanted. A request's name and password
//! are looked at before its body is read; answers are made on a few threads that may wait.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, Response, StatusCode, header};
use axum::routing::any;
use serde_json::json;

use super::answer::{Answer, Refusal};
use super::call::Call;
use super::rates::EVERY;
use super::route::{Found, find, segments};
use super::Management;

/// Bytes of a body. Definitions of tens of thousands of queues fit.
const BODY_MAX: usize = 64 << 20;

/// The API before and after there is a broker to manage.
#[derive(Clone, Default)]
pub struct Server(Arc<OnceLock<Arc<Management>>>);

impl Server {
    /// There is a broker: requests are answered from now on.
    pub fn attach(&self, management: Arc<Management>) {
        let _ = self.0.set(management);
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

async fn answer(State(server): State<Server>, ConnectInfo(peer): ConnectInfo<Peers>, request: Request) -> Response<Body> {
    let head = *request.method() == Method::HEAD;
    let answered = respond(&server, peer, request).await.unwrap_or_else(|refusal| refusal);
    let mut response = answered.into_response();
    if head {
        *response.body_mut() = Body::empty();
    }
    response
}

async fn respond(server: &Server, peers: Peers, request: Request) -> Result<Answer, Refusal> {
    check_origin(&peers, request.headers())?;
    if *request.method() == Method::OPTIONS {
        return Ok(Answer::done());
    }
    let Some(management) = server.0.get().cloned() else {
        return Err(Answer::with_status(StatusCode::SERVICE_UNAVAILABLE, json!({"error": "unavailable", "reason": "recovering"})));
    };
    let (parts, body) = request.into_parts();
    let (asked, headers) = (Arc::clone(&management), parts.headers.clone());
    let who = blocking(move || asked.authenticate(&headers, peers.peer)).await??;
    let Ok(body) = axum::body::to_bytes(body, BODY_MAX).await else {
        return Err(Answer::with_status(StatusCode::PAYLOAD_TOO_LARGE, json!({"error": "bad_request", "reason": "the body is too large"})));
    };
    blocking(move || {
        let path = parts.uri.path().strip_prefix("/api").unwrap_or_default();
        let segments = segments(path).ok_or_else(Answer::not_found)?;
        let method = if parts.method == Method::HEAD { Method::GET } else { parts.method };
        let (route, filled) = match find(&method, &segments) {
            Found::Route(route, filled) => (route, filled),
            Found::OtherMethod => return Err(Answer::method_not_allowed()),
            Found::Nothing => return Err(Answer::not_found()),
        };
        let query = form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
        let call = Call { management: &management, who: &who, filled, query, headers: &parts.headers, body: &body };
        let vhost = call.filled.iter().find(|(name, _)| *name == "vhost").map(|(_, value)| *value);
        who.check(route.access, vhost)?;
        management.rates.touch();
        (route.handler)(&call)
    })
    .await?
}

/// Runs on a thread that may wait. A defect of ours costs the request.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(work).await.map_err(|_| Answer::failed("a defect of the broker"))
}

/// Both ends of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Peers {
    /// Ours.
    pub local: SocketAddr,
    /// Whose.
    pub peer: SocketAddr,
}

impl axum::extract::connect_info::Connected<axum::serve::IncomingStream<'_, tokio::net::TcpListener>> for Peers {
    fn connect_info(stream: axum::serve::IncomingStream<'_, tokio::net::TcpListener>) -> Self {
        let peer = *stream.remote_addr();
        Self { local: stream.io().local_addr().unwrap_or(peer), peer }
    }
}

/// A page of somebody else's that is open in a browser here must not reach what only this machine may: on loopback the name under which
/// the browser asks, and the page that makes it ask, have to be of this machine.
pub(crate) fn check_origin(peers: &Peers, headers: &HeaderMap) -> Result<(), Refusal> {
    if !peers.local.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    if text(header::HOST).is_some_and(|host| !is_here(host)) {
        return Err(Answer::forbidden("this port is served on loopback, under names of this machine"));
    }
    let origin = text(header::ORIGIN).filter(|origin| *origin != "null");
    match origin {
        Some(origin) if !origin.split_once("://").is_some_and(|(_, host)| is_here(host)) => {
            Err(Answer::forbidden("the page that asks is not of this machine"))
        }
        _ => Ok(()),
    }
}

fn is_here(authority: &str) -> bool {
    let Ok(authority) = authority.parse::<Authority>() else { return false };
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(local: &str, name: header::HeaderName, value: &str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(name, value.parse().expect("a header"));
        let local = local.parse().expect("an address");
        check_origin(&Peers { local, peer: local }, &headers).is_ok()
    }

    #[test]
    fn pages_of_others_do_not_reach_loopback() {
        for host in ["localhost", "localhost:15672", "127.0.0.1:8160", "[::1]:8160"] {
            assert!(check("127.0.0.1:8160", header::HOST, host), "{host}");
        }
        for host in ["evil.example", "evil.example:8160", "127.0.0.1.evil.example", "", "10.0.0.1"] {
            assert!(!check("127.0.0.1:8160", header::HOST, host), "{host}");
        }
        assert!(check("10.0.0.1:8160", header::HOST, "broker.example"));
        assert!(check("127.0.0.1:8160", header::ORIGIN, "http://localhost:3000"));
        assert!(!check("127.0.0.1:8160", header::ORIGIN, "http://evil.example"));
    }
}
