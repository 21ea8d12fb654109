//! For asynchronous libraries: a driver's runtime, and tasks that end with their owner.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use anyhow::{Result, bail};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

const WORKERS: usize = 2;
/// The longest that a library may take to connect, create or delete something.
const REPLY_TIME: Duration = Duration::from_secs(60);
/// The longest that an ending subscriber waits for its tasks.
const END_TIME: Duration = Duration::from_secs(10);

/// The runtime of a driver. Nothing here may be called from another runtime's threads.
pub struct Threads(Option<Runtime>);

impl Threads {
    /// Starts the threads, named after the driver.
    pub fn start(name: &str) -> Result<Arc<Self>> {
        let runtime = Builder::new_multi_thread().worker_threads(WORKERS).thread_name(name).enable_all().build()?;
        Ok(Arc::new(Self(Some(runtime))))
    }

    /// Waits for something that the library does for a result.
    ///
    /// # Errors
    /// Its own, or it takes too long.
    pub fn wait<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        self.runtime()
            .block_on(async { tokio::time::timeout(REPLY_TIME, work).await })
            .unwrap_or_else(|_| bail!("no reply within {REPLY_TIME:?}"))
    }

    /// As [`Threads::wait`], for what takes the longer the more topics there are.
    pub fn wait_long<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        self.runtime().block_on(work)
    }

    /// Lets a task run by itself.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime().spawn(task);
    }

    fn runtime(&self) -> &Runtime {
        self.0.as_ref().expect("taken by drop alone")
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// The tasks of one subscriber. Dropping it tells them to end and waits for that.
pub struct Crew {
    threads: Arc<Threads>,
    stop: watch::Sender<()>,
    working: Option<mpsc::Sender<()>>,
    ended: mpsc::Receiver<()>,
}

/// Tells a task of a [`Crew`] that it shall end.
#[derive(Clone)]
pub struct Stop(watch::Receiver<()>);

impl Stop {
    /// Ready when the task shall end.
    pub async fn wait(&mut self) {
        let _ = self.0.changed().await;
    }
}

impl Crew {
    /// Nobody works yet.
    pub fn new(threads: &Arc<Threads>) -> Self {
        let (working, ended) = mpsc::channel();
        Self { threads: threads.clone(), stop: watch::Sender::new(()), working: Some(working), ended }
    }

    /// Starts a task, which ends soon after [`Stop::wait`] does.
    pub fn add<F: Future<Output = ()> + Send + 'static>(&self, task: impl FnOnce(Stop) -> F) {
        let working = self.working.clone();
        let task = task(Stop(self.stop.subscribe()));
        self.threads.spawn(async move {
            task.await;
            drop(working);
        });
    }
}

impl super::Subscriber for Crew {}

impl Drop for Crew {
    fn drop(&mut self) {
        self.stop.send_replace(());
        self.working = None;
        // Fails with `Disconnected` once every task has ended.
        let _ = self.ended.recv_timeout(END_TIME);
    }
}

#[cfg(test)]
mod tests;
