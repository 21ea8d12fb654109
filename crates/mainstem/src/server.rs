//! Wiring: opens the data folder, recovers the journals, starts the threads, listens, and on a signal takes
//! everything down in the opposite order.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use admin::{AdminState, Phase};
use anyhow::{Context, bail};
use broker::{Broker, BrokerConfig, Settings};
use journal::disk::{IoMode, RealStorage, Storage, probe, submitter};
use journal::{Journal, JournalConfig, JournalStatus};
use kafka_gateway::{Advertise, Gateway, GatewayMetrics};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use types::{ByteSize, ConnectionId, NodeId, ShardId, SystemClock};

use crate::config::Config;
use crate::data_folder::DataFolder;
use crate::frames::FramePool;
use crate::shard::{self, Arrival, ShardHandle, Shared};

/// Runs a broker until a signal ends it.
pub fn run(config: Config) -> anyhow::Result<()> {
    start_log(config.json_log);
    let started = Instant::now();
    let journals = config.settings.int("mainstem.journals") as usize;
    let folder = DataFolder::open(&config.data, journals, &new_cluster_id())?;
    let (mode, refused) =
        probe(&folder.journal(0), config.io).with_context(|| format!("--data {}: no way of disk I/O works", config.data.display()))?;
    for reason in &refused {
        tracing::warn!(reason, "a faster way of disk I/O is not available");
    }
    let listeners = bind(&config)?;
    let signal = catch_signals()?;
    let opened: Arc<std::sync::OnceLock<Vec<Arc<Journal>>>> = Arc::default();
    let (state, gauges) = admin_state(&opened);
    let admin_address = admin::serve(config.admin, Arc::clone(&state)).with_context(|| format!("--admin {}", config.admin))?;
    let (journals, threads) = open_journals(&config, &folder, mode)?;
    let _ = opened.set(journals.clone());
    let broker = Broker::open(
        BrokerConfig {
            cluster_id: folder.cluster_id.clone(),
            node_id: NodeId(1),
            settings: config.settings.clone(),
            durability: config.durability,
            clock: Arc::new(SystemClock),
        },
        journals.clone(),
    )?;
    let broker_threads = broker.start();
    let metrics = GatewayMetrics::default();
    let blocked = Counter::default();
    state.with_registry(|registry| {
        metrics.register(registry);
        journals[0].metrics().register(registry);
        registry.register("mainstem_shard_blocked", "Turns that kept a network shard busy for more than 5 ms", blocked.clone());
        gauges.register(registry);
    });
    let gateway = Gateway::new(Arc::clone(&broker), metrics);
    let frames = FramePool::new((config.memory.bytes() / 8) as usize);
    let shared = Arc::new(Shared { gateway, frames, blocked });
    let mut shards = Vec::new();
    for number in 0..shard_count(&config.settings) {
        shards.push(shard::start(ShardId(number as u16), Arc::clone(&shared), &broker)?);
    }
    print_start(&config, &listeners, admin_address, mode, started);
    state.set_phase(Phase::Ready);
    let shards = Arc::new(shards);
    let stop = Arc::new(AtomicBool::new(false));
    accept_all(listeners, &shards, config.settings.int("max.connections") as usize, &stop)?;
    signal.recv().context("signals cannot be waited for")?;
    tracing::info!("shutting down");
    state.set_phase(Phase::Draining);
    stop.store(true, Ordering::SeqCst);
    shards.iter().for_each(|shard| shard.drain.notify_one());
    let deadline = Instant::now() + Duration::from_secs(6);
    while Instant::now() < deadline && shards.iter().any(|shard| !shard.thread.is_finished()) {
        std::thread::sleep(Duration::from_millis(5));
    }
    broker.shutdown();
    for thread in broker_threads {
        let _ = thread.join();
    }
    journals.iter().for_each(|journal| journal.shutdown());
    for thread in threads {
        let _ = thread.join();
    }
    tracing::info!("stopped");
    Ok(())
}

fn start_log(json: bool) {
    use tracing_subscriber::EnvFilter;
    let filter = EnvFilter::try_from_env("MAINSTEM_LOG_LEVEL").unwrap_or_else(|_| EnvFilter::new("info"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_target(false).with_writer(std::io::stderr);
    if json {
        log.json().init();
    } else {
        log.with_ansi(false).init();
    }
}

/// 128 random bits as Kafka writes them: URL-safe base64 without padding.
fn new_cluster_id() -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let random = uuid::Uuid::new_v4().as_u128();
    (0..22).map(|number| LETTERS[(random.checked_shr(128 - 6 * (number + 1).min(21)).unwrap_or(0) & 63) as usize] as char).collect()
}

fn shard_count(settings: &Settings) -> usize {
    match settings.int("mainstem.shards") {
        0 => std::thread::available_parallelism().map_or(1, usize::from).min(60),
        count => count as usize,
    }
}

fn catch_signals() -> anyhow::Result<std::sync::mpsc::Receiver<()>> {
    let (send, receive) = std::sync::mpsc::channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut terminate, mut interrupt) = {
        use tokio::signal::unix::{SignalKind, signal};
        let _inside = runtime.enter();
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        });
        let _ = send.send(());
    })?;
    Ok(receive)
}

/// Values that are read when somebody looks.
#[derive(Clone, Default)]
struct Gauges {
    tail_allocated: Gauge,
    tail_used: Gauge,
    queued: Gauge,
    segments: Gauge,
    live: Gauge,
}

impl Gauges {
    fn register(&self, registry: &mut Registry) {
        registry.register("mainstem_tail_allocated_bytes", "Memory of the tail cache", self.tail_allocated.clone());
        registry.register("mainstem_tail_used_bytes", "Memory of the tail cache that is held", self.tail_used.clone());
        registry.register("mainstem_queued_bytes", "Appends waiting for a journal", self.queued.clone());
        registry.register("mainstem_segments", "Segment files", self.segments.clone());
        registry.register("mainstem_live_bytes", "Live bytes in sealed segments", self.live.clone());
    }

    fn refresh(&self, journals: &[Arc<Journal>]) {
        let sum = |of: &dyn Fn(&Journal) -> usize| journals.iter().map(|journal| of(journal)).sum::<usize>() as i64;
        self.tail_allocated.set(sum(&|journal| journal.tail_memory().0));
        self.tail_used.set(sum(&|journal| journal.tail_memory().1));
        self.queued.set(sum(&|journal| journal.queued_bytes()));
        self.segments.set(sum(&|journal| journal.segment_usage().0));
        self.live.set(sum(&|journal| journal.segment_usage().1));
    }
}

fn admin_state(opened: &Arc<std::sync::OnceLock<Vec<Arc<Journal>>>>) -> (Arc<AdminState>, Gauges) {
    let gauges = Gauges::default();
    let (for_status, for_gauges, shown) = (Arc::clone(opened), Arc::clone(opened), gauges.clone());
    let stopped = move || {
        let journals = for_status.get().map_or(&[][..], |journals| journals);
        journals.iter().any(|journal| matches!(journal.status(), JournalStatus::Stopped { .. }))
    };
    let refresh = move || shown.refresh(for_gauges.get().map_or(&[][..], |journals| journals));
    (AdminState::new(Registry::default(), Box::new(stopped), Box::new(refresh)), gauges)
}

type Threads = Vec<std::thread::JoinHandle<()>>;

fn open_journals(config: &Config, folder: &DataFolder, mode: IoMode) -> anyhow::Result<(Vec<Arc<Journal>>, Threads)> {
    let share = config.memory.bytes() as usize / folder.journals;
    let (mut journals, mut threads) = (Vec::new(), Vec::new());
    for number in 0..folder.journals {
        let path = folder.journal(number);
        let storage: Arc<dyn Storage> = Arc::new(RealStorage::open(&path, mode).with_context(|| path.display().to_string())?);
        let sized = JournalConfig {
            number: number as u16,
            segment_bytes: config.settings.int("mainstem.segment.bytes") as u64 / 4096 * 4096,
            tail_bytes: share / 3,
            cold_bytes: share / 8,
            index_bytes: share / 32,
            producer_expiry_ms: config.settings.int("producer.id.expiration.ms") as u64,
            retention_check_ms: config.settings.int("log.retention.check.interval.ms") as u64,
        };
        let started = Instant::now();
        let opened = journal::open(sized, storage, submitter(mode)?, Arc::new(SystemClock), uuid::Uuid::new_v4())
            .with_context(|| path.display().to_string())?;
        let (replayed, millis) = (ByteSize(opened.replayed_bytes).to_string(), started.elapsed().as_millis() as u64);
        tracing::info!(journal = number, replayed, millis, "journal recovered");
        journals.push(Arc::clone(&opened.journal));
        let (writer, keeper) = (opened.writer, opened.keeper);
        threads.push(std::thread::Builder::new().name(format!("journal-{number}")).spawn(move || writer.run())?);
        threads.push(std::thread::Builder::new().name(format!("keeper-{number}")).spawn(move || keeper.run())?);
    }
    // Nothing that was recovered is shown before the new term is on the disk.
    for journal in &journals {
        let until = Instant::now() + Duration::from_secs(60);
        while journal.durable_index().0 == 0 {
            if let JournalStatus::Stopped { reason } = journal.status() {
                bail!("journal {} cannot be written: {reason}", journal.number());
            }
            if Instant::now() > until {
                bail!("journal {} does not become writable", journal.number());
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    Ok((journals, threads))
}

type Bound = Vec<(TcpListener, SocketAddr, Arc<Advertise>)>;

fn bind(config: &Config) -> anyhow::Result<Bound> {
    let mut bound = Vec::new();
    for (address, advertise) in &config.listeners {
        let listener = TcpListener::bind(address).with_context(|| format!("--kafka {address}"))?;
        let local = listener.local_addr()?;
        bound.push((listener, local, Arc::new(advertise.clone())));
    }
    Ok(bound)
}

fn accept_all(bound: Bound, shards: &Arc<Vec<ShardHandle>>, most: usize, stop: &Arc<AtomicBool>) -> anyhow::Result<()> {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    for (listener, address, advertise) in bound {
        let (shards, stop) = (Arc::clone(shards), Arc::clone(stop));
        std::thread::Builder::new().name("acceptor".to_owned()).spawn(move || {
            loop {
                let stream = match listener.accept() {
                    Ok((stream, _)) => stream,
                    Err(error) => {
                        tracing::warn!(%error, %address, "connection not accepted");
                        std::thread::sleep(Duration::from_millis(100));
                        continue;
                    }
                };
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                let open: usize = shards.iter().map(|shard| shard.connections.load(Ordering::Relaxed)).sum();
                let Some(shard) = shards.iter().min_by_key(|shard| shard.connections.load(Ordering::Relaxed)) else { return };
                if open >= most {
                    tracing::warn!(max_connections = most, "connection refused: there are too many");
                    continue;
                }
                shard.connections.fetch_add(1, Ordering::Relaxed);
                let id = ConnectionId(NEXT.fetch_add(1, Ordering::Relaxed) as u64);
                let _ = shard.arrivals.send(Arrival { stream, advertise: Arc::clone(&advertise), id });
            }
        })?;
    }
    Ok(())
}

fn print_start(config: &Config, bound: &Bound, admin: SocketAddr, mode: IoMode, started: Instant) {
    println!("Mainstem {}", env!("CARGO_PKG_VERSION"));
    for (_, address, advertise) in bound {
        let told = match (&advertise.host, advertise.port) {
            (Some(host), Some(port)) => format!("  (advertised as {host}:{port})"),
            (Some(host), None) => format!("  (advertised as {host})"),
            _ => String::new(),
        };
        println!("  kafka       {address}{told}");
    }
    println!("  admin       http://{admin}");
    println!("  data        {}", config.data.display());
    println!("  durability  {}", config.durability);
    println!("  I/O         {mode}");
    println!("  memory      {}", config.memory);
    println!("  ready after {} ms", started.elapsed().as_millis());
    for (_, address, _) in bound.iter().filter(|(_, address, _)| !address.ip().is_loopback()) {
        println!("  WARNING     {address} is reachable by others, and TLS and SASL are not there yet");
    }
}
