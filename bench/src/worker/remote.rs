//! A worker on another machine, as its coordinator sees it.
//!
//! Its clock is compared once at the begin: of many readings the one with the shortest way there and back counts, and
//! half of that way is the uncertainty, which the result states.

use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::serve::{Begin, WireSample};
use super::{Sample, Share, Speed, Worker};
use crate::clock::{Clock, Nanos};
use crate::drivers::Job;

const CLOCK_READINGS: u32 = 32;
/// Connecting a thousand consumers takes a while.
const TIME_MAX: Duration = Duration::from_secs(120);

/// A worker at `host:port`.
pub struct Remote {
    address: String,
    agent: ureq::Agent,
    clock_offset: i64,
    uncertainty_ns: u64,
}

impl Remote {
    /// Reaches it and compares clocks.
    ///
    /// # Errors
    /// It does not answer.
    pub fn connect(address: &str) -> Result<Self> {
        let config = ureq::Agent::config_builder().timeout_global(Some(TIME_MAX)).http_status_as_error(false).build();
        let mut remote =
            Self { address: address.to_owned(), agent: config.into(), clock_offset: 0, uncertainty_ns: u64::MAX };
        for _ in 0..CLOCK_READINGS {
            remote.read_clock().with_context(|| format!("worker {address}"))?;
        }
        Ok(remote)
    }

    fn read_clock(&mut self) -> Result<()> {
        let clock = Clock::local();
        let sent = clock.now();
        let mut answer = self.agent.get(format!("http://{}/clock", self.address)).call()?;
        let theirs: i64 = answer.body_mut().read_to_string()?.trim().parse().context("not a clock")?;
        let received = clock.now();
        let uncertainty = (received - sent) / 2;
        if uncertainty < self.uncertainty_ns {
            self.uncertainty_ns = uncertainty;
            self.clock_offset = ((sent + uncertainty) as i64).checked_sub(theirs).context("not a clock")?;
        }
        Ok(())
    }

    fn ask(&self, what: &str, body: &[u8]) -> Result<Vec<u8>> {
        let mut answer = self
            .agent
            .post(format!("http://{}/{what}", self.address))
            .send(body)
            .with_context(|| format!("worker {}", self.address))?;
        let bytes = answer.body_mut().with_config().limit(64 << 20).read_to_vec()?;
        if !answer.status().is_success() {
            bail!("worker {}: {}", self.address, String::from_utf8_lossy(&bytes));
        }
        Ok(bytes)
    }
}

impl Worker for Remote {
    fn begin(&mut self, job: &Job, share: Share) -> Result<()> {
        let begin = Begin { job: job.clone(), share, clock_offset: self.clock_offset };
        self.ask("begin", &serde_json::to_vec(&begin)?).map(|_| ())
    }

    fn subscribe(&mut self) -> Result<()> {
        self.ask("subscribe", &[]).map(|_| ())
    }

    fn set_speed(&mut self, speed: Speed) -> Result<()> {
        self.ask("speed", &serde_json::to_vec(&speed)?).map(|_| ())
    }

    fn set_window(&mut self, from: Nanos, to: Nanos) -> Result<()> {
        self.ask("window", &serde_json::to_vec(&(from, to))?).map(|_| ())
    }

    fn sample(&mut self) -> Result<Sample> {
        let bytes = self.ask("sample", &[])?;
        serde_json::from_slice::<WireSample>(&bytes).context("not a sample")?.unpack()
    }

    fn end(&mut self) {
        let _ = self.ask("end", &[]);
    }

    fn clock_uncertainty_ms(&self) -> f64 {
        self.uncertainty_ns as f64 / 1e6
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.end();
    }
}
