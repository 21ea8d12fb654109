//! HTTP administration on a thread of its own: the console at `/`, `/metrics`, `/health/live`, `/health/ready`, the administration API under
//! `/v1` ([`api`]) with orders to the node ([`operations`]), and RabbitMQ's management API under `/api` ([`management`]). It never shares a thread
//! with clients, so that it answers while they keep the shards busy.

mod answers;
pub mod api;
mod bindings;
mod bodies;
mod console;
mod control;
pub mod exposition;
pub mod management;
pub mod operations;
mod origin;
mod paths;
mod serving;

pub use answers::answer_bytes;
pub use bodies::body_bytes;
pub use control::control;

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicI32, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use prometheus_client::registry::Registry;

use serving::{Bounds, Connections};

/// How far the broker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Reading its data.
    Recovering,
    /// Serving.
    Ready,
    /// Going down.
    Draining,
}

/// A journal that takes no writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoppedJournal {
    /// Its number.
    pub number: u16,
    /// What failed.
    pub reason: String,
    /// A write or flush has failed. Otherwise it tries again by itself.
    pub until_restart: bool,
    /// Do others go on?
    pub others_go_on: bool,
}

/// What the pages show; shared with the rest of the process.
pub struct AdminState {
    phase: AtomicU8,
    registry: Mutex<Registry>,
    /// Asked before each answer which journals have stopped.
    stopped: Box<dyn Fn() -> Vec<StoppedJournal> + Send + Sync>,
    /// … and, a line each, what else is wrong while they go on.
    troubles: Box<dyn Fn() -> Vec<String> + Send + Sync>,
    /// Called before measurements are shown, to fill in what is not counted as it happens.
    refresh: Box<dyn Fn() + Send + Sync>,
    /// A connection whose descriptor has this number or a higher one is refused.
    descriptors_max: AtomicI32,
}

impl AdminState {
    /// `registry` holds all measurements.
    pub fn new(
        registry: Registry,
        stopped: Box<dyn Fn() -> Vec<StoppedJournal> + Send + Sync>,
        troubles: Box<dyn Fn() -> Vec<String> + Send + Sync>,
        refresh: Box<dyn Fn() + Send + Sync>,
    ) -> Arc<Self> {
        let (phase, descriptors_max) = (AtomicU8::new(Phase::Recovering as u8), AtomicI32::new(i32::MAX));
        Arc::new(Self { phase, registry: Mutex::new(registry), stopped, troubles, refresh, descriptors_max })
    }

    /// From now on a connection whose descriptor has this number or a higher one is refused: the journals need the others.
    pub fn set_descriptors_max(&self, max: i32) {
        self.descriptors_max.store(max, Ordering::SeqCst);
    }

    /// Says how far the broker is.
    pub fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::SeqCst);
    }

    /// How far the broker is.
    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::SeqCst) {
            ready if ready == Phase::Ready as u8 => Phase::Ready,
            draining if draining == Phase::Draining as u8 => Phase::Draining,
            _ => Phase::Recovering,
        }
    }

    /// In a word, for those who look on.
    pub fn phase_name(&self) -> &'static str {
        match self.phase() {
            Phase::Recovering => "recovering",
            Phase::Draining => "draining",
            Phase::Ready => match (self.stopped)().first() {
                None => "ready",
                Some(first) if first.others_go_on => "degraded",
                Some(_) => "stopped",
            },
        }
    }

    /// What `/health/ready` answers. As long as one journal goes on the node serves, and says which does not. It serves, too, when a part of
    /// history cannot be read, or space does not come back, and says which.
    fn readiness(&self) -> (StatusCode, String) {
        match self.phase() {
            Phase::Recovering => (StatusCode::SERVICE_UNAVAILABLE, "recovering\n".to_owned()),
            Phase::Draining => (StatusCode::SERVICE_UNAVAILABLE, "shutting down\n".to_owned()),
            Phase::Ready => {
                let stopped = (self.stopped)();
                let named = |word: &str| {
                    let line = |one: &StoppedJournal| {
                        let until = if one.until_restart { "until a restart" } else { "at the moment" };
                        format!("{word}: journal {} takes no writes {until}: {}\n", one.number, one.reason)
                    };
                    stopped.iter().map(line).collect::<String>()
                };
                let troubles: String = (self.troubles)().iter().map(|line| format!("{line}\n")).collect();
                match stopped.first() {
                    None => (StatusCode::OK, format!("ready\n{troubles}")),
                    Some(first) if first.others_go_on => (StatusCode::OK, named("degraded") + &troubles),
                    Some(_) => (StatusCode::SERVICE_UNAVAILABLE, named("stopped")),
                }
            }
        }
    }

    /// All measurements of this moment, as the registry encodes them; see [`exposition::families`].
    pub fn measure(&self) -> Option<String> {
        (self.refresh)();
        let mut text = String::new();
        let registry = self.registry.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        prometheus_client::encoding::text::encode(&mut text, &registry).ok().map(|()| text)
    }

    /// More measurements.
    pub fn with_registry(&self, add: impl FnOnce(&mut Registry)) {
        add(&mut self.registry.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
    }
}

/// Bounds the memory of bodies with what is made of them, and of answers, by the memory budget of the node, in bytes. At the start.
pub fn set_memory_budget(budget: usize) {
    bodies::set_memory_budget(budget);
    answers::set_memory_budget(budget);
}

/// Requests of management that are worked on at once: four that take long (`api/places.rs`), and two others.
const MANAGEMENT_THREADS: usize = 6;

/// How long requests may take to come.
#[derive(Clone, Copy, Debug)]
pub struct PageTimes {
    /// From the connection's beginning, or the last answer, to the end of the head.
    pub head: Duration,
    /// From there to the end of the body.
    pub body: Duration,
}

/// Serves sockets that listen on a thread of its own, which ends with the process: the pages of administration and, if that is
/// wanted, management alone. Returns their addresses.
///
/// # Errors
/// Those of the system.
pub fn serve(
    (listener, extra): (TcpListener, Option<TcpListener>),
    state: Arc<AdminState>,
    (management, operator): (management::Server, operations::Operator),
    times: PageTimes,
) -> std::io::Result<Served> {
    for one in [Some(&listener), extra.as_ref()].into_iter().flatten() {
        one.set_nonblocking(true)?;
    }
    let served =
        Served { admin: listener.local_addr()?, management: extra.as_ref().map(TcpListener::local_addr).transpose()? };
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().max_blocking_threads(MANAGEMENT_THREADS).thread_name("management").build()?;
    std::thread::Builder::new().name("admin".to_owned()).spawn(move || {
        runtime.block_on(async move {
            tokio::spawn(management.clone().look_on());
            let descriptors = state.descriptors_max.load(Ordering::SeqCst);
            let connections = Connections::new(Bounds { descriptors, head_time: times.head, ..Bounds::USUAL });
            let within = Extension(bodies::Within(times.body));
            if let Some(listener) = extra {
                tokio::spawn(serve_one(listener, management.router().layer(within), Arc::clone(&connections)));
            }
            let own = api::Server::new(management.clone(), operator);
            let pages = router(state).merge(console::router()).merge(own.router()).merge(management.router());
            serve_one(listener, pages.layer(within), connections).await;
        });
    })?;
    Ok(served)
}

/// What was bound.
#[derive(Clone, Copy, Debug)]
pub struct Served {
    /// The pages of administration.
    pub admin: SocketAddr,
    /// Management alone.
    pub management: Option<SocketAddr>,
}

async fn serve_one(listener: TcpListener, router: Router, connections: Arc<Connections>) {
    match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => serving::serve(listener, router, connections).await,
        Err(error) => tracing::error!(%error, "administration pages are gone"),
    }
}

fn router(state: Arc<AdminState>) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/health/live", get(|| async { "live\n" }))
        .route("/health/ready", get(ready))
        .fallback(|| async {
            (StatusCode::NOT_FOUND, "no such page; there are /, /metrics, /health/live, /health/ready, /v1 and /api\n")
        })
        .with_state(state)
}

async fn ready(State(state): State<Arc<AdminState>>) -> Response {
    let (status, text) = state.readiness();
    (status, text).into_response()
}

async fn metrics(
    State(state): State<Arc<AdminState>>,
    ConnectInfo(peers): ConnectInfo<origin::Peers>,
    headers: HeaderMap,
) -> Response {
    if let Err(reason) = origin::check_loopback(&peers, &headers) {
        return (StatusCode::FORBIDDEN, format!("{reason}\n")).into_response();
    }
    match state.measure() {
        Some(text) => {
            let (kind, text) = exposition::of(&headers, &text);
            match answers::page(text) {
                Some(body) => ([(header::CONTENT_TYPE, kind)], body).into_response(),
                None => (StatusCode::SERVICE_UNAVAILABLE, "others have not taken their measurements yet: try again\n")
                    .into_response(),
            }
        }
        None => (StatusCode::INTERNAL_SERVER_ERROR, "measurements cannot be written\n").into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readiness(phase: Phase, stopped: &[StoppedJournal]) -> (u16, String) {
        readiness_with(phase, stopped, &[])
    }

    fn readiness_with(phase: Phase, stopped: &[StoppedJournal], troubles: &[&str]) -> (u16, String) {
        let (stopped, troubles) =
            (stopped.to_vec(), troubles.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>());
        let state = AdminState::new(
            Registry::default(),
            Box::new(move || stopped.clone()),
            Box::new(move || troubles.clone()),
            Box::new(|| {}),
        );
        state.set_phase(phase);
        let (status, text) = state.readiness();
        (status.as_u16(), text)
    }

    #[test]
    fn a_journal_that_has_stopped_is_named_and_the_others_keep_the_node_ready() {
        let reason = "write: Input/output error".to_owned();
        let journal =
            |others_go_on| StoppedJournal { number: 1, reason: reason.clone(), until_restart: true, others_go_on };
        assert_eq!(readiness(Phase::Ready, &[]), (200, "ready\n".to_owned()));
        let text = "journal 1 takes no writes until a restart: write: Input/output error\n";
        assert_eq!(readiness(Phase::Ready, &[journal(true)]), (200, format!("degraded: {text}")));
        assert_eq!(readiness(Phase::Ready, &[journal(false)]), (503, format!("stopped: {text}")));
        let hindered = StoppedJournal { until_restart: false, ..journal(false) };
        let text = "journal 1 takes no writes at the moment: write: Input/output error\n";
        assert_eq!(readiness(Phase::Ready, &[hindered]), (503, format!("stopped: {text}")));
        assert_eq!(readiness(Phase::Draining, &[journal(true)]).0, 503);
        assert_eq!(readiness(Phase::Recovering, &[]).0, 503);
    }

    #[test]
    fn a_node_that_cannot_read_a_part_of_history_serves_and_says_it() {
        let line = "history cannot be read: log-7 from offset 40: J/7/O: No such file or directory";
        assert_eq!(readiness_with(Phase::Ready, &[], &[line]), (200, format!("ready\n{line}\n")));
        assert_eq!(readiness_with(Phase::Recovering, &[], &[line]).0, 503);
    }
}
