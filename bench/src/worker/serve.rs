//! The worker as a server: does what a coordinator on another machine asks for, over HTTP.
//!
//! | request | body | answer |
//! |---|---|---|
//! | `GET /clock` | – | its clock, nanoseconds since 1970 |
//! | `POST /begin` | [`Begin`] | – |
//! | `POST /subscribe` | – | – |
//! | `POST /speed` | [`Speed`] | – |
//! | `POST /window` | two moments, nanoseconds since 1970 | – |
//! | `POST /sample` | – | [`WireSample`] |
//! | `POST /end` | – | – |
//!
//! Bodies are JSON; a refusal has status 400 and its reason as text. One job at a time. A job whose coordinator has not
//! asked for a sample in [`SILENCE_MAX`] is ended, so that no load outlives who ordered it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use serde::{Deserialize, Serialize};

use super::{Handed, Local, Sample, Share, Speed, Worker};
use crate::clock::{Clock, Nanos};
use crate::drivers::Job;
use crate::latency::Latency;
use crate::outcome::{Measured, Published};
use crate::receipt::Received;
use crate::stamp::Fingerprint;

/// The longest time between two signs of life of a coordinator.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// A century, nanoseconds: a clock that is further off is none.
const CLOCK_OFFSET_MAX: u64 = 100 * 365 * 24 * 3600 * 1_000_000_000;

/// A job, this worker's share of it, and what to add to its clock (nanoseconds) to have the coordinator's.
#[derive(Serialize, Deserialize)]
pub struct Begin {
    pub job: Job,
    pub share: Share,
    pub clock_offset: i64,
}

/// A [`Sample`] as JSON; histograms are in HDR's own serialisation.
#[derive(Serialize, Deserialize)]
pub struct WireSample {
    messages: Fingerprint,
    wanted: Fingerprint,
    held_back: u64,
    lag: Vec<u8>,
    acknowledged: u64,
    failed: u64,
    since_due: Vec<u8>,
    measured: [u64; 2],
    measured_since_due: Vec<u8>,
    measured_since_sent: Vec<u8>,
    measured_arrival: Vec<u8>,
    received: Fingerprint,
    received_bytes: u64,
    strange: u64,
    disordered: u64,
    changed: u64,
    wire_bytes: u64,
    arrival: Vec<u8>,
    in_flight: u64,
    cpu_s: f64,
    busiest_thread: f64,
}

impl WireSample {
    /// For the way.
    pub fn pack(sample: &Sample) -> Self {
        Self {
            messages: sample.handed.messages,
            wanted: sample.handed.wanted,
            held_back: sample.handed.held_back,
            lag: sample.handed.lag.to_bytes(),
            acknowledged: sample.published.acknowledged,
            failed: sample.published.failed,
            since_due: sample.published.since_due.to_bytes(),
            measured: [sample.handed.measured, sample.handed.measured_wanted],
            measured_since_due: sample.published.measured.since_due.to_bytes(),
            measured_since_sent: sample.published.measured.since_sent.to_bytes(),
            measured_arrival: sample.received.measured.to_bytes(),
            received: sample.received.prints,
            received_bytes: sample.received.bytes,
            strange: sample.received.strange,
            disordered: sample.received.disordered,
            changed: sample.received.changed,
            wire_bytes: sample.received.wire_bytes,
            arrival: sample.received.since_due.to_bytes(),
            in_flight: sample.in_flight,
            cpu_s: sample.cpu_s,
            busiest_thread: sample.busiest_thread,
        }
    }

    /// As it was.
    ///
    /// # Errors
    /// A histogram is none.
    pub fn unpack(self) -> Result<Sample> {
        Ok(Sample {
            handed: Handed {
                messages: self.messages,
                wanted: self.wanted,
                lag: Latency::from_bytes(&self.lag)?,
                held_back: self.held_back,
                measured: self.measured[0],
                measured_wanted: self.measured[1],
            },
            published: Published {
                acknowledged: self.acknowledged,
                failed: self.failed,
                since_due: Latency::from_bytes(&self.since_due)?,
                measured: Measured {
                    since_due: Latency::from_bytes(&self.measured_since_due)?,
                    since_sent: Latency::from_bytes(&self.measured_since_sent)?,
                },
            },
            received: Received {
                bytes: self.received_bytes,
                prints: self.received,
                strange: self.strange,
                disordered: self.disordered,
                changed: self.changed,
                wire_bytes: self.wire_bytes,
                since_due: Latency::from_bytes(&self.arrival)?,
                measured: Latency::from_bytes(&self.measured_arrival)?,
            },
            in_flight: self.in_flight,
            cpu_s: self.cpu_s,
            busiest_thread: self.busiest_thread,
        })
    }
}

/// The job that runs, and when its coordinator was last heard of.
#[derive(Default)]
struct Desk {
    worker: Option<Local>,
    heard: Option<Instant>,
}

type Shared = Arc<Mutex<Desk>>;
type Answer = (StatusCode, Vec<u8>);

/// Serves on this socket until the process ends.
///
/// # Errors
/// The socket cannot be used.
pub fn serve(listener: std::net::TcpListener) -> Result<()> {
    listener.set_nonblocking(true)?;
    let desk = Shared::default();
    let watched = desk.clone();
    std::thread::Builder::new().name("watch".to_owned()).spawn(move || watch(&watched))?;
    let routes = Router::new()
        .route("/clock", get(|| async { Clock::local().now().to_string() }))
        .route("/begin", post(|State(desk): State<Shared>, body: Bytes| ask(desk, move |desk| begin(desk, &body))))
        .route("/subscribe", post(|State(desk): State<Shared>| ask(desk, |desk| nothing(worker(desk)?.subscribe()))))
        .route("/speed", post(|State(desk): State<Shared>, body: Bytes| ask(desk, move |desk| set_speed(desk, &body))))
        .route(
            "/window",
            post(|State(desk): State<Shared>, body: Bytes| ask(desk, move |desk| set_window(desk, &body))),
        )
        .route("/sample", post(|State(desk): State<Shared>| ask(desk, sample)))
        .route("/end", post(|State(desk): State<Shared>| ask(desk, end)))
        .with_state(desk);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { axum::serve(tokio::net::TcpListener::from_std(listener)?, routes).await })?;
    Ok(())
}

/// Ends a job that nobody asks about any more.
fn watch(desk: &Shared) {
    loop {
        std::thread::sleep(Duration::from_secs(1));
        let mut desk = desk.lock().unwrap_or_else(PoisonError::into_inner);
        if desk.heard.is_some_and(|heard| heard.elapsed() > SILENCE_MAX) {
            *desk = Desk::default();
        }
    }
}

/// Does it where it may block.
async fn ask(desk: Shared, work: impl FnOnce(&mut Desk) -> Result<Vec<u8>> + Send + 'static) -> Answer {
    let done = tokio::task::spawn_blocking(move || {
        let mut desk = desk.lock().unwrap_or_else(PoisonError::into_inner);
        desk.heard = Some(Instant::now());
        work(&mut desk)
    });
    match done.await {
        Ok(Ok(answer)) => (StatusCode::OK, answer),
        Ok(Err(error)) => (StatusCode::BAD_REQUEST, format!("{error:#}").into_bytes()),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string().into_bytes()),
    }
}

fn worker(desk: &mut Desk) -> Result<&mut Local> {
    desk.worker.as_mut().context("no job has begun")
}

fn begin(desk: &mut Desk, body: &[u8]) -> Result<Vec<u8>> {
    let begin: Begin = serde_json::from_slice(body).context("not a job")?;
    begin.job.workload.check()?;
    let Share { worker, workers } = begin.share;
    ensure!(worker < workers, "worker {worker} of {workers}");
    ensure!(begin.clock_offset.unsigned_abs() < CLOCK_OFFSET_MAX, "a clock offset of {} ns", begin.clock_offset);
    // A job left behind makes room.
    desk.worker = None;
    let mut worker = Local::new(Clock::with_offset(begin.clock_offset));
    worker.begin(&begin.job, begin.share)?;
    desk.worker = Some(worker);
    Ok(Vec::new())
}

fn nothing(done: Result<()>) -> Result<Vec<u8>> {
    done.map(|()| Vec::new())
}

fn set_speed(desk: &mut Desk, body: &[u8]) -> Result<Vec<u8>> {
    let speed: Speed = serde_json::from_slice(body).context("not a speed")?;
    if let Speed::Rate(rate) = speed {
        ensure!(rate.is_finite() && rate > 0.0, "a rate of {rate} messages a second");
    }
    nothing(worker(desk)?.set_speed(speed))
}

fn set_window(desk: &mut Desk, body: &[u8]) -> Result<Vec<u8>> {
    let (from, to): (Nanos, Nanos) = serde_json::from_slice(body).context("not a window of time")?;
    nothing(worker(desk)?.set_window(from, to))
}

fn sample(desk: &mut Desk) -> Result<Vec<u8>> {
    Ok(serde_json::to_vec(&WireSample::pack(&worker(desk)?.sample()?))?)
}

fn end(desk: &mut Desk) -> Result<Vec<u8>> {
    *desk = Desk::default();
    Ok(Vec::new())
}
