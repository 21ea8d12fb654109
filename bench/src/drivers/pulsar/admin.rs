//! Topics and subscriptions, made and deleted through Pulsar's HTTP interface.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ureq::Agent;
use ureq::http::Response;

use crate::drivers::Job;

const REPLY_TIME: Duration = Duration::from_secs(60);
/// Topics that are made or deleted at a time.
const TOPICS_AT_ONCE: usize = 8;
const NOT_FOUND: u16 = 404;
/// Where a new subscription begins.
const EARLIEST: &str = r#"{"ledgerId":-1,"entryId":-1,"partitionIndex":-1}"#;

/// The HTTP interface of a broker.
pub struct Admin {
    /// Of all topics of the run.
    url: String,
    agent: Agent,
    job: Job,
}

impl Admin {
    /// At this address.
    pub fn new(address: &str, job: &Job) -> Self {
        let config = Agent::config_builder().http_status_as_error(false).timeout_global(Some(REPLY_TIME)).build();
        let address = address.trim_start_matches("http://").trim_end_matches('/');
        let url = format!("http://{address}/admin/v2/persistent/public/default");
        Self { url, agent: config.into(), job: job.clone() }
    }

    /// Creates all topics anew, with all subscriptions at their beginning.
    ///
    /// # Errors
    /// The broker refuses.
    pub fn create_all(&self) -> Result<()> {
        self.each_topic(|topic| {
            self.delete(topic)?;
            self.create(topic)
        })
    }

    /// Deletes all topics.
    ///
    /// # Errors
    /// The broker refuses.
    pub fn delete_all(&self) -> Result<()> {
        self.each_topic(|topic| self.delete(topic))
    }

    fn partitions(&self) -> u32 {
        self.job.workload.partitions_per_topic
    }

    fn each_topic(&self, work: impl Fn(&str) -> Result<()> + Sync) -> Result<()> {
        let topics = self.job.workload.topics as usize;
        let work = |first: usize| (first..topics).step_by(TOPICS_AT_ONCE).try_for_each(|n| work(&self.job.topic(n)));
        std::thread::scope(|scope| {
            let work = &work;
            let workers: Vec<_> = (0..TOPICS_AT_ONCE).map(|first| scope.spawn(move || work(first))).collect();
            workers.into_iter().try_for_each(|worker| worker.join().expect("does not panic"))
        })
    }

    fn create(&self, topic: &str) -> Result<()> {
        let (path, body) = match self.partitions() {
            1 => (topic.to_owned(), String::new()),
            partitions => (format!("{topic}/partitions"), partitions.to_string()),
        };
        self.put(&path, &body)?;
        for subscription in 0..self.job.workload.subscriptions_per_topic as usize {
            self.put(&format!("{topic}/subscription/{}", self.job.subscription(subscription)), EARLIEST)?;
        }
        Ok(())
    }

    fn delete(&self, topic: &str) -> Result<()> {
        let path = if self.partitions() == 1 { topic.to_owned() } else { format!("{topic}/partitions") };
        let reply = self.agent.delete(format!("{}/{path}?force=true", self.url)).call();
        let reply = reply.with_context(|| format!("no HTTP at {}", self.url))?;
        if reply.status() == NOT_FOUND { Ok(()) } else { accepted("DELETE", &path, reply) }
    }

    fn put(&self, path: &str, body: &str) -> Result<()> {
        let request = self.agent.put(format!("{}/{path}", self.url)).header("content-type", "application/json");
        let reply = if body.is_empty() { request.send_empty() } else { request.send(body) };
        accepted("PUT", path, reply.with_context(|| format!("no HTTP at {}", self.url))?)
    }
}

fn accepted(method: &str, path: &str, mut reply: Response<ureq::Body>) -> Result<()> {
    let status = reply.status();
    let reason =
        if status.is_success() { String::new() } else { reply.body_mut().read_to_string().unwrap_or_default() };
    ensure!(status.is_success(), "{method} {path}: {status} {reason}");
    Ok(())
}
