//! What an operator may order over the administration port, under `/v1`: the node itself, not what it serves. Administrators only; answers
//! and refusals are JSON, `{"error", "reason"}` when nothing was done.
//!
//! | method | path | |
//! |---|---|---|
//! | POST | /v1/drain | the node ends as on SIGTERM; 202 |
//! | POST | /v1/reload | configuration file and certificates are read again; what has changed, and what waits for a restart |
//! | POST | /v1/backup | `{"to": DIR}`: a backup is begun; 202 |
//! | GET | /v1/backup | `{"state": "none", "running", "done" or "failed", "to", "bytes", "bytes_total", "seconds", "reason"}` |

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::request::Parts;
use axum::http::{Method, Response, StatusCode};
use axum::routing::any;
use serde_json::{Value, json};

use crate::management::{Access, Answer, Identity, Management, Refusal, blocking};
use crate::origin::{self, Peers};

/// Between the answer to an order to end, and the end.
const ANSWER_FIRST: Duration = Duration::from_millis(50);
/// Bytes of a body.
const BODY_MAX: usize = 64 << 10;

/// What the process does when it is told to.
pub trait Operations: Send + Sync {
    /// Begins to end.
    fn drain(&self);
    /// Begins a backup to a folder of this machine.
    ///
    /// # Errors
    /// Why not, in words.
    fn backup(&self, to: &Path) -> Result<(), String>;
    /// Reads configuration and certificates again; what came of it, as JSON.
    ///
    /// # Errors
    /// What is wrong, with file and line; nothing has changed then.
    fn reload(&self) -> Result<Value, String>;
    /// How far the last backup is, as JSON.
    fn backup_progress(&self) -> Value;
}

type Attached = (Arc<Management>, Arc<dyn Operations>);

/// The paths, before and after there is something to operate.
#[derive(Clone, Default)]
pub struct Server(Arc<OnceLock<Attached>>);

impl Server {
    /// There is a node, and management that knows its users: requests are answered from now on.
    pub fn attach(&self, management: Arc<Management>, operations: Arc<dyn Operations>) {
        let _ = self.0.set((management, operations));
    }

    pub(crate) fn router(&self) -> Router {
        let paths = ["/v1/drain", "/v1/reload", "/v1/backup"];
        paths.into_iter().fold(Router::new(), |router, path| router.route(path, any(answer))).with_state(self.clone())
    }
}

async fn answer(State(server): State<Server>, ConnectInfo(peers): ConnectInfo<Peers>, request: Request) -> Response<Body> {
    respond(&server, peers, request).await.unwrap_or_else(|refusal| refusal).into_response()
}

async fn respond(server: &Server, peers: Peers, request: Request) -> Result<Answer, Refusal> {
    origin::check_loopback(&peers, request.headers()).map_err(Answer::forbidden)?;
    let Some((management, operations)) = server.0.get().cloned() else {
        return Err(Answer::with_status(StatusCode::SERVICE_UNAVAILABLE, json!({"error": "unavailable", "reason": "recovering"})));
    };
    let (parts, body) = request.into_parts();
    let Ok(body) = axum::body::to_bytes(body, BODY_MAX).await else {
        return Err(Answer::with_status(StatusCode::PAYLOAD_TOO_LARGE, json!({"error": "bad_request", "reason": "the body is too large"})));
    };
    blocking(move || {
        let who = management.authenticate(&parts.headers, peers.peer)?;
        let outcome = obey(&who, &operations, &parts, &body);
        let (Ok(answer) | Err(answer)) = &outcome;
        who.audit(parts.method.as_str(), parts.uri.path(), peers.peer.ip(), answer.status);
        outcome
    })
    .await?
}

fn obey(who: &Identity, operations: &Arc<dyn Operations>, parts: &Parts, body: &[u8]) -> Result<Answer, Refusal> {
    who.check(Access::Administrator, None)?;
    match (&parts.method, parts.uri.path()) {
        (&Method::POST, "/v1/drain") => {
            let operations = Arc::clone(operations);
            // Who asks is to be answered before there is nobody left to do so.
            tokio::runtime::Handle::current().spawn(async move {
                tokio::time::sleep(ANSWER_FIRST).await;
                operations.drain();
            });
            Ok(Answer::with_status(StatusCode::ACCEPTED, json!({"draining": true})))
        }
        (&Method::POST, "/v1/reload") => operations.reload().map(Answer::of).map_err(Answer::bad_request),
        (&Method::POST, "/v1/backup") => {
            let asked: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
            let Some(to) = asked["to"].as_str() else {
                return Err(Answer::bad_request("the body is {\"to\": DIR}, a new or empty folder of the broker's machine"));
            };
            operations.backup(Path::new(to)).map_err(Answer::bad_request)?;
            Ok(Answer::with_status(StatusCode::ACCEPTED, operations.backup_progress()))
        }
        (&Method::GET, "/v1/backup") => Ok(Answer::of(operations.backup_progress())),
        _ => Err(Answer::method_not_allowed()),
    }
}
