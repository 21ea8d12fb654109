//! Metrics for a collector of OpenTelemetry: what `/metrics` shows, under the same names, sent by OTLP/HTTP from time to time. Off unless
//! `otel.exporter.otlp.endpoint` names somebody; then one thread, which sleeps, writes one request, sends it and forgets it.
//!
//! I1 Values are cumulative, so that a request that is lost costs nothing but its moment: nothing is kept for a collector that is away, and
//! nothing is sent twice.
//! I2 A collector that takes nothing is told of once, and once more when it does again, or when its trouble is of another kind.
//! I3 Headers are secrets: they come from a file or the environment, and are in no setting, log or metric.
//!
//! Sources: OpenTelemetry "Protocol Exporter", "SDK environment variables", "OTLP 1.x". Tested with OpenTelemetry's own messages in
//! `conformance/operations/otlp.py`.

mod message;
mod post;
mod protobuf;

use std::mem::discriminant;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use admin::AdminState;
use anyhow::{Context, bail};
use broker::Settings;
use percent_encoding::percent_decode_str;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

use message::Frame;
use post::{Endpoint, Trouble};

const ENDPOINT: &str = "otel.exporter.otlp.endpoint";
const HEADERS_FILE: &str = "otel.exporter.otlp.headers.file";
const CERTIFICATE: &str = "otel.exporter.otlp.certificate";
const ATTRIBUTES: &str = "otel.resource.attributes";
/// The environment variable of the headers.
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
/// What is appended to the endpoint for metrics.
const PATH: &str = "v1/metrics";
/// A node that ends sends its last values, if that takes no longer.
const LAST_MAX: Duration = Duration::from_secs(1);

/// Counts of exports; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Exports {
    /// Taken by the collector.
    pub taken: Counter,
    /// Not taken.
    pub failed: Counter,
}

impl Exports {
    /// Has them shown at `/metrics`.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "mainstem_otlp_exports",
            "Exports that a collector of OpenTelemetry took",
            self.taken.clone(),
        );
        registry.register(
            "mainstem_otlp_export_failures",
            "Exports that did not reach it, or that it did not take as a whole",
            self.failed.clone(),
        );
    }
}

/// The thread that exports.
pub struct Exporter {
    end: Sender<()>,
    thread: JoinHandle<()>,
}

/// Pairs of `NAME=VALUE` with commas or lines between; values are percent-encoded where they have to be.
fn pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    let parts = text.split([',', '\n']).map(str::trim).filter(|part| !part.is_empty()).enumerate();
    let one = |(place, part): (usize, &str)| {
        let (name, value) = part
            .split_once('=')
            .filter(|(name, _)| !name.trim().is_empty())
            .ok_or_else(|| format!("number {} is not written as NAME=VALUE", place + 1))?;
        let value = percent_decode_str(value.trim())
            .decode_utf8()
            .map_err(|_| format!("the value of {} is no UTF-8", name.trim()))?;
        Ok((name.trim().to_owned(), value.into_owned()))
    };
    parts.map(one).collect()
}

/// Headers of each request, from the file, otherwise from the environment. What is wrong is said without its value.
fn headers(file: &str) -> anyhow::Result<Vec<(String, String)>> {
    let (text, from) = match file {
        "" => (std::env::var(HEADERS).unwrap_or_default(), HEADERS.to_owned()),
        path => (
            std::fs::read_to_string(path).with_context(|| format!("{HEADERS_FILE} {path}"))?,
            format!("{HEADERS_FILE} {path}"),
        ),
    };
    let headers = match pairs(&text) {
        Ok(headers) => headers,
        Err(reason) => bail!("{from}: {reason}"),
    };
    let is_token =
        |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte));
    let is_value = |value: &str| value.bytes().all(|byte| byte == b'\t' || (0x20..0x7f).contains(&byte));
    match headers.iter().position(|(name, value)| !is_token(name) || !is_value(value)) {
        Some(place) => bail!("{from}: number {} is no header", place + 1),
        None => Ok(headers),
    }
}

/// Who sends: what is said of it is `service.name`, `service.instance.id`, `service.version` unless somebody said otherwise.
fn resource(settings: &Settings, cluster_id: &str) -> anyhow::Result<Vec<(String, String)>> {
    let given = pairs(settings.text(ATTRIBUTES).0);
    let mut attributes = match given {
        Ok(given) => given,
        Err(reason) => bail!("{ATTRIBUTES}: {reason}"),
    };
    let own = [
        ("service.name", settings.text("otel.service.name").0),
        ("service.instance.id", cluster_id),
        ("service.version", env!("CARGO_PKG_VERSION")),
    ];
    for (name, value) in own {
        if !attributes.iter().any(|(known, _)| known == name) {
            attributes.push((name.to_owned(), value.to_owned()));
        }
    }
    Ok(attributes)
}

struct Work {
    state: Arc<AdminState>,
    endpoint: Endpoint,
    headers: Vec<(String, String)>,
    frame: Frame,
    timeout: Duration,
    exports: Exports,
    /// What the last export failed of.
    failing: Option<Trouble>,
}

fn nanoseconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

impl Work {
    fn export(&mut self, timeout: Duration) {
        let Some(text) = self.state.measure() else { return };
        let body = message::request(&text, &self.frame, nanoseconds());
        drop(text);
        let outcome = self.endpoint.post(&self.headers, "application/x-protobuf", &body, timeout);
        let outcome = outcome.and_then(|answer| match message::rejected(&answer) {
            Some((0, _)) | None => Ok(()),
            Some((count, reason)) => Err(Trouble::Rejected(count, reason)),
        });
        match outcome {
            Ok(()) => {
                self.exports.taken.inc();
                if self.failing.take().is_some() {
                    tracing::info!(endpoint = self.endpoint.shown(), "metrics are exported again");
                }
            }
            Err(trouble) => {
                self.exports.failed.inc();
                if self.failing.as_ref().map(discriminant) != Some(discriminant(&trouble)) {
                    tracing::warn!(endpoint = self.endpoint.shown(), reason = %trouble, "metrics are not exported");
                }
                self.failing = Some(trouble);
            }
        }
    }
}

/// Begins to export, if that is wanted.
///
/// # Errors
/// Settings that make no sense, a file that cannot be read.
pub fn start(
    settings: &Settings,
    cluster_id: &str,
    state: &Arc<AdminState>,
    exports: &Exports,
) -> anyhow::Result<Option<Exporter>> {
    let base = settings.text(ENDPOINT).0;
    if base.is_empty() {
        return Ok(None);
    }
    let endpoint = match Endpoint::of(base, PATH, settings.text(CERTIFICATE).0) {
        Ok(endpoint) => endpoint,
        Err(reason) => bail!("{ENDPOINT}: {reason}"),
    };
    let milliseconds = |name| Duration::from_millis(settings.int(name) as u64);
    let interval = milliseconds("otel.metric.export.interval");
    let mut work = Work {
        state: Arc::clone(state),
        endpoint,
        headers: headers(settings.text(HEADERS_FILE).0)?,
        frame: Frame { attributes: resource(settings, cluster_id)?, started_ns: nanoseconds() },
        timeout: milliseconds("otel.exporter.otlp.timeout"),
        exports: exports.clone(),
        failing: None,
    };
    let (end, ended) = channel::<()>();
    let thread = std::thread::Builder::new().name("otlp".to_owned()).spawn(move || {
        let mut next = Instant::now() + interval;
        while ended.recv_timeout(next.saturating_duration_since(Instant::now())) == Err(RecvTimeoutError::Timeout) {
            work.export(work.timeout);
            // A collector that is slower than the interval misses some.
            next = (next + interval).max(Instant::now());
        }
        work.export(work.timeout.min(LAST_MAX));
    })?;
    Ok(Some(Exporter { end, thread }))
}

impl Exporter {
    /// Sends the last values and ends.
    pub fn finish(self) {
        drop(self.end);
        let _ = self.thread.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_read_or_refused_without_their_values() {
        let of = |text: &str| {
            pairs(text).map(|pairs| {
                pairs.into_iter().map(|(name, value)| format!("{name}:{value}")).collect::<Vec<_>>().join(" ")
            })
        };
        assert_eq!(
            of("api-key=s%2Cx, Authorization=Basic%20a=="),
            Ok("api-key:s,x Authorization:Basic a==".to_owned())
        );
        assert_eq!(of("a=1\nb=\n"), Ok("a:1 b:".to_owned()));
        assert_eq!(of("a=1,secret"), Err("number 2 is not written as NAME=VALUE".to_owned()));
    }

    #[test]
    fn who_sends_can_be_said() {
        let mut settings = Settings::default();
        settings
            .set("otel.resource.attributes", "service.instance.id=one,deployment.environment=test")
            .expect("a setting");
        let found = resource(&settings, "cluster").expect("attributes");
        let of = |wanted: &str| {
            found.iter().filter(|(name, _)| name == wanted).map(|(_, value)| value.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(
            (of("service.name"), of("service.instance.id"), of("deployment.environment")),
            (vec!["mainstem"], vec!["one"], vec!["test"])
        );
    }
}
