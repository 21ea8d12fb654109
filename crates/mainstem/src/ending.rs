//! How a node is told to end or to read its files again, and how it ends: signals and the operator's orders come in one queue.
//!
//! ```text
//! SIGTERM, SIGINT, POST /v1/drain ── nobody is accepted any more ── long polls are answered, AMQP clients told ── commits in flight
//! acknowledged ── answers read by those who still listen ── queues, groups and journals end
//! ```
//!
//! All of it within `mainstem.shutdown.timeout.ms`: after that, and with a second signal, the process ends as it is. What was acknowledged is
//! as safe then as after a crash.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use admin::operations::Operations;
use anyhow::Context as _;
use broker::Settings;

use crate::backup::Backups;
use crate::log_queue;
use crate::output;
use crate::reload::Reload;
use crate::shard::ShardHandle;

/// Of the time for the whole, connections get all but this part: journals want to end, too.
const REST_SHARE: u32 = 5;
/// Between looks whether shards have ended.
const LOOK: Duration = Duration::from_millis(2);

/// What is asked for.
enum Order {
    End,
    Reload,
}

/// The queue of orders.
pub struct Orders {
    give: Sender<Order>,
    taken: Receiver<Order>,
}

impl Orders {
    /// From now on signals are orders. `reloads`: SIGHUP asks for files to be read again; otherwise it ends the process, as is usual.
    ///
    /// # Errors
    /// When signals cannot be caught.
    pub fn catch_signals(reloads: bool) -> anyhow::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let (give, taken) = channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (mut terminate, mut interrupt, mut hangup) = {
            let _inside = runtime.enter();
            let hangup = reloads.then(|| signal(SignalKind::hangup())).transpose()?;
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?, hangup)
        };
        let orders = give.clone();
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            runtime.block_on(async {
                let mut told = false;
                loop {
                    let again = async {
                        match &mut hangup {
                            Some(hangup) => hangup.recv().await,
                            None => std::future::pending().await,
                        }
                    };
                    let order = tokio::select! {
                        _ = terminate.recv() => Order::End,
                        _ = interrupt.recv() => Order::End,
                        _ = again => Order::Reload,
                    };
                    if matches!(order, Order::End) && std::mem::replace(&mut told, true) {
                        leave_now("a second signal");
                    }
                    let _ = orders.send(order);
                }
            });
        })?;
        Ok(Self { give, taken })
    }

    /// What the administration port may order.
    pub fn operator(&self, backups: Arc<Backups>, reload: Arc<Reload>) -> Operator {
        Operator { give: self.give.clone(), backups, reload }
    }

    /// Until the process is to end.
    ///
    /// # Errors
    /// When there is nobody left to say so.
    pub fn wait_for_end(&self, reload: &Reload) -> anyhow::Result<()> {
        loop {
            match self.taken.recv().context("signals cannot be waited for")? {
                Order::End => return Ok(()),
                // What is wrong is in the log.
                Order::Reload => drop(reload.run()),
            }
        }
    }
}

/// The node as its operator sees it.
pub struct Operator {
    give: Sender<Order>,
    backups: Arc<Backups>,
    reload: Arc<Reload>,
}

impl Operations for Operator {
    fn drain(&self) {
        let _ = self.give.send(Order::End);
    }

    fn backup(&self, to: &Path) -> Result<(), String> {
        self.backups.begin(to).map_err(|error| output::told(&error))
    }

    fn reload(&self) -> Result<serde_json::Value, String> {
        self.reload.run().map(|reloaded| reloaded.json())
    }

    fn backup_progress(&self) -> serde_json::Value {
        self.backups.progress()
    }
}

/// The end, from its beginning.
pub struct Ending {
    began: Instant,
    within: Duration,
}

impl Ending {
    /// It begins: after `mainstem.shutdown.timeout.ms` nothing is waited for any more.
    pub fn begin(settings: &Settings) -> Self {
        let within = Duration::from_millis(settings.int("mainstem.shutdown.timeout.ms") as u64);
        tracing::info!(within_ms = within.as_millis() as u64, "shutting down");
        let watch = std::thread::Builder::new().name("ending".to_owned()).spawn(move || {
            std::thread::sleep(within);
            leave_now("mainstem.shutdown.timeout.ms is over");
        });
        if let Err(error) = watch {
            tracing::warn!(%error, "nobody watches how long the end takes");
        }
        Self { began: Instant::now(), within }
    }

    /// How long it may take.
    pub fn within(&self) -> Duration {
        self.within
    }

    /// Connections end: what was asked of them is answered, and the answers are read, as far as time allows.
    pub fn drain(&self, shards: &Arc<Vec<ShardHandle>>) {
        shards.iter().for_each(|shard| shard.drain.notify_one());
        let until = self.began + self.within - self.within / REST_SHARE;
        while Instant::now() < until && shards.iter().any(|shard| !shard.thread.is_finished()) {
            std::thread::sleep(LOOK);
        }
        let left =
            shards.iter().map(|shard| shard.connections.load(std::sync::atomic::Ordering::Relaxed)).sum::<usize>();
        let took_ms = self.began.elapsed().as_millis() as u64;
        if shards.iter().any(|shard| !shard.thread.is_finished()) {
            tracing::warn!(
                connections = left,
                took_ms,
                "connections are closed before all that was asked of them is answered"
            );
        } else {
            tracing::info!(took_ms, "connections drained");
        }
    }
}

/// Ends the process as it is.
fn leave_now(reason: &str) -> ! {
    tracing::error!(reason, "the process ends before it has finished: the next start recovers");
    log_queue::flush();
    std::process::exit(1)
}
