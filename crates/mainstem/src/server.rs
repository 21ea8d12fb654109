//! Wiring: opens the data folder, recovers the journals, starts the threads, listens, and on a signal takes
//! everything down in the opposite order.

mod shares;

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use admin::management::{Listening, Management, NotTaken, Server};
use admin::{AdminState, PageTimes, Phase, Served, operations};
use anyhow::{Context, anyhow, bail};
use broker::{Broker, BrokerConfig, BrokerOpenError, LimitKind, ScramMechanism, Settings};
use journal::disk::{IoMode, RealStorage, Storage, probe, submitter};
use journal::{ArchiveStore, Journal, JournalConfig, JournalStatus};
use kafka_gateway::{Gateway, GatewayMetrics, SaslMechanism};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use types::{ByteSize, ConnectionId, NodeId, ShardId, SystemClock};

use shares::{FRAMES_SHARE, HELD_SHARE, Passing, bound_definitions, bound_memory, open_amqp};

use crate::admission::{Admission, Bounds, Met, Place};
use crate::archive_folder::FolderArchive;
use crate::backup::{Backups, Source};
use crate::cli::ServeArguments;
use crate::closings::Closed;
use crate::config::{Config, Listener, LogFormat, NamedListener};
use crate::data_folder::DataFolder;
use crate::descriptors::Descriptors;
use crate::ending::{Ending, Orders};
use crate::frames::FramePool;
use crate::log_file::{LogFile, RotatingLog, StderrWriter};
use crate::log_queue;
use crate::management::{self, NodeVitals};
use crate::measurements::{Measurements, Node};
use crate::memory;
use crate::otlp::{self, Exporter, Exports};
use crate::output;
use crate::placement::Placement;
use crate::protocol::Protocol;
use crate::read_room::ReadMemory;
use crate::reload::Reload;
use crate::service::ServiceManager;
use crate::shard::{self, Arrival, ShardHandle, Shared, Times};
use crate::sockets;
use crate::tls::{ClientCertificates, Tls};
use crate::token_keys;

/// Runs a broker until a signal ends it.
pub fn run(arguments: ServeArguments) -> anyhow::Result<()> {
    let config = Config::load(arguments.clone())?;
    let log = start_log(&config)?;
    watch_for_defects();
    let started = Instant::now();
    let journals = config.settings.int("mainstem.journals") as usize;
    let descriptors = Descriptors::raise(journals).context("the limit of open files")?;
    let mut folder = DataFolder::open(&config.data, journals, &new_cluster_id())?;
    let mode = probe_disk(&config, &folder)?;
    let tls = config.security.tls.clone().map(Tls::open).transpose()?.map(Arc::new);
    let listeners = bind(&config, tls.as_ref())?;
    let orders = Orders::catch_signals(
        tls.is_some() || config.token_keys.is_some() || arguments.config.is_some() || log.is_some(),
    )?;
    let measurements = Measurements::default();
    let state = admin_state(&measurements);
    let (managed, operated) = (Server::default(), operations::Operator::default());
    let served = serve_pages(&config, &state, (&managed, &operated), descriptors)?;
    let (journals, threads) = open_journals(&config, &folder, mode, &measurements)?;
    folder.note_journals(journals.iter().map(|journal| journal.uuid().to_string()).collect())?;
    let broker = open_broker(&config, &folder, &journals)?;
    let broker_threads = broker.start();
    prepare_logins(&config, &broker)?;
    let (metrics, amqp_metrics, blocked) =
        (GatewayMetrics::default(), amqp_gateway::GatewayMetrics::default(), Counter::default());
    let (exports, closed) = (Exports::default(), Closed::default());
    register(&state, (&metrics, &amqp_metrics), &journals, (&exports, &blocked, &closed));
    let vitals = NodeVitals::new((&state, &measurements), (&metrics, &amqp_metrics), &journals).with_tls(tls.as_ref());
    let gateway = Gateway::new(Arc::clone(&broker), metrics, config.memory.bytes() as usize / HELD_SHARE);
    gateway.bound_items(config.memory.bytes() as usize);
    let frames = FramePool::new(config.memory.bytes() as usize / FRAMES_SHARE);
    let read_memory = ReadMemory::new((config.memory.bytes() / 32) as usize);
    broker.waits().set_request_memory(frames.share());
    let amqp = open_amqp(&broker, amqp_metrics, config.memory.bytes() as usize);
    measurements.attach(Node {
        broker: Arc::clone(&broker),
        frames: frames.clone(),
        gateway: gateway.clone(),
        amqp: amqp.clone(),
        budget: config.memory,
        tls: tls.clone(),
    });
    manage(&config, &broker, &managed, listening(&listeners, served), vitals);
    let reload = Reload::new(arguments, &config, &broker, tls.as_ref(), log);
    let backups = backups(&config, &folder, &journals, mode);
    state.with_registry(|registry| backups.register(registry));
    operated.attach(Arc::new(orders.operator(backups, Arc::clone(&reload))));
    bound_memory(&broker, config.memory.bytes() as usize);
    let passing = Passing {
        broker: Arc::clone(&broker),
        gateway: gateway.clone(),
        frames: frames.clone(),
        budget: config.memory.bytes() as usize,
    };
    memory::keep_within(config.memory, move |short| passing.bound(short)).context("a thread at start")?;
    take_definitions(&config, &broker)?;
    bound_definitions(&config, &broker);
    let shared =
        Arc::new(Shared { gateway, amqp, frames, read_memory, blocked, closed, times: Times::of(&config.settings) });
    let shards = Arc::new(start_shards(&config.settings, &shared, &broker)?);
    measurements.count_connections(shards.iter().map(|shard| Arc::clone(&shard.connections)).collect());
    let stop = Arc::new(AtomicBool::new(false));
    let told: Vec<_> = listeners.iter().map(Bound::shown).collect();
    let exporter = otlp::start(&config.settings, &folder.cluster_id, &state, &exports)?;
    accept_all(listeners, &shards, &broker, (&stop, descriptors))?;
    descriptors.tell();
    tracing::info!("who may do what: {}", broker.security().in_words());
    state.set_phase(Phase::Ready);
    print_start(&config, &told, served, mode, started);
    let manager = ServiceManager::of_environment();
    manager.ready();
    orders.wait_for_end(&reload)?;
    state.set_phase(Phase::Draining);
    stop.store(true, Ordering::SeqCst);
    let ending = Ending::begin(&broker.live_settings());
    manager.stopping(ending.within());
    ending.drain(&shards);
    exporter.into_iter().for_each(Exporter::finish);
    finish((&broker, broker_threads), (&journals, threads));
    tracing::info!("stopped");
    log_queue::flush();
    Ok(())
}

fn open_broker(config: &Config, folder: &DataFolder, journals: &[Arc<Journal>]) -> anyhow::Result<Arc<Broker>> {
    let of_broker = BrokerConfig {
        cluster_id: folder.cluster_id.clone(),
        node_id: NodeId(1),
        settings: config.settings.clone(),
        durability: config.durability,
        clock: Arc::new(SystemClock),
    };
    Broker::open(of_broker, journals.to_vec()).map_err(|error| match error {
        BrokerOpenError::Journal { number, error } => {
            refusal(&error, config).context(folder.journal(number).display().to_string())
        }
        other => other.into(),
    })
}

/// Queues and groups end, and then the journals under them.
fn finish((broker, of_broker): (&Broker, Threads), (journals, of_journals): (&[Arc<Journal>], Threads)) {
    broker.shutdown();
    for thread in of_broker {
        let _ = thread.join();
    }
    journals.iter().for_each(|journal| journal.shutdown());
    for thread in of_journals {
        let _ = thread.join();
    }
}

fn probe_disk(config: &Config, folder: &DataFolder) -> anyhow::Result<IoMode> {
    let journals: Vec<_> =
        (0..config.settings.int("mainstem.journals") as usize).map(|number| folder.journal(number)).collect();
    let probed = probe(&journals, config.io);
    let (mode, refused) =
        probed.with_context(|| format!("--data {}: no way of disk I/O works", config.data.display()))?;
    for reason in &refused {
        tracing::warn!(reason, "a faster way of disk I/O is not available");
    }
    Ok(mode)
}

fn serve_pages(
    config: &Config,
    state: &Arc<AdminState>,
    (managed, operated): (&Server, &operations::Operator),
    descriptors: Descriptors,
) -> anyhow::Result<Served> {
    let listen = |flag: &str, address| {
        sockets::bind(address)
            .and_then(|one| sockets::listen(&one).map(|()| one))
            .with_context(|| format!("{flag} {address}"))
    };
    let (pages, management) = (
        listen("--admin", config.admin)?,
        config.management.map(|address| listen("--management", address)).transpose()?,
    );
    state.set_descriptors_max(descriptors.page_limit());
    let millis = |name| Duration::from_millis(config.settings.int(name).unsigned_abs());
    let times =
        PageTimes { head: millis("mainstem.http.head.timeout.ms"), body: millis("mainstem.http.body.timeout.ms") };
    admin::serve((pages, management), Arc::clone(state), (managed.clone(), operated.clone()), times)
        .context("administration pages")
}

/// Has management answer.
fn manage(config: &Config, broker: &Arc<Broker>, managed: &Server, listening: Vec<Listening>, vitals: NodeVitals) {
    let messages = Arc::new(management::Messages(vitals.amqp.clone()));
    managed.attach(Management::new(
        Arc::clone(broker),
        messages,
        Arc::new(vitals),
        management::facts(config, listening),
    ));
}

/// Takes over the definitions of the configuration, whatever memory they take, as a start takes what was declared before: a part of them would be of no use.
fn take_definitions(config: &Config, broker: &Arc<Broker>) -> anyhow::Result<()> {
    let Some(path) = &config.definitions else { return Ok(()) };
    let imported = admin::management::load_definitions(broker, path)
        .with_context(|| format!("--definitions {}", path.display()))?;
    for NotTaken { kind, vhost, name, line, reason } in &imported.not_taken {
        tracing::warn!(kind, vhost, name, line, reason, "not taken over from the definitions");
    }
    tracing::info!(changed = imported.changed, not_taken = imported.not_taken.len(), "definitions taken over");
    Ok(())
}

fn start_shards(settings: &Settings, shared: &Arc<Shared>, broker: &Arc<Broker>) -> anyhow::Result<Vec<ShardHandle>> {
    let mut shards = Vec::new();
    for number in 0..shard_count(settings) {
        shards.push(shard::start(ShardId(number as u16), Arc::clone(shared), broker)?);
    }
    // From now on somebody hears of their logs.
    broker.wake_queues();
    Ok(shards)
}

/// Times are RFC 3339, UTC; a line says which part of the broker it comes from, or `audit`.
fn start_log(config: &Config) -> anyhow::Result<Option<RotatingLog>> {
    use std::io::Write;

    use tracing_subscriber::EnvFilter;
    use tracing_subscriber::fmt::MakeWriter;
    use tracing_subscriber::fmt::writer::BoxMakeWriter;
    let filter = EnvFilter::try_from_env("MAINSTEM_LOG_LEVEL").unwrap_or_else(|_| EnvFilter::new("info"));
    let open = |rules: &LogFile| {
        RotatingLog::open(rules.clone()).with_context(|| format!("--log-file {}", rules.path.display()))
    };
    let file = config.log_file.as_ref().map(open).transpose()?;
    // A line that cannot be written is counted where that is found out.
    let writer = match file.clone() {
        Some(file) => BoxMakeWriter::new(log_queue::start(move |line| _ = file.make_writer().write_all(line))?),
        None => BoxMakeWriter::new(log_queue::start(|line| _ = StderrWriter.write_all(line))?),
    };
    // What the library says of a line that it cannot write goes to stderr, and panics when that is full.
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_target(true)
        .log_internal_errors(false)
        .with_writer(writer);
    if config.log == LogFormat::Json {
        log.json().init();
    } else {
        log.with_ansi(false).init();
    }
    Ok(file)
}

/// A panic is a defect of ours. Where it is met on behalf of one connection or request, that connection is closed, or the request
/// fails; anywhere else (a journal, its keeper, the groups) the process ends at once: a restart recovers, half a broker would not.
fn watch_for_defects() {
    const OF_REQUESTS: [&str; 8] =
        ["shard-", "cold-read-", "letters-", "login-", "unpack-", "controller", "management", "admin"];
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("unnamed");
        if OF_REQUESTS.iter().any(|prefix| name.starts_with(prefix)) {
            // Looking up what was called takes a fifth of a second, and memory that no account has: a client who has found such a request may send more of them.
            tracing::error!(thread = name, "defect: {panic}");
            return;
        }
        let trace = std::backtrace::Backtrace::force_capture();
        tracing::error!(thread = name, "defect: {panic}\n{trace}");
        log_queue::flush();
        std::process::abort();
    }));
}

/// 128 random bits as Kafka writes them: URL-safe base64 without padding, six bits a letter.
pub fn new_cluster_id() -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let random = uuid::Uuid::new_v4().as_u128();
    let letter = |number: u32| {
        let bits =
            122_u32.checked_sub(6 * number).map_or_else(|| random << (6 * number - 122), |right| random >> right);
        LETTERS[(bits & 63) as usize] as char
    };
    (0..22).map(letter).collect()
}

fn shard_count(settings: &Settings) -> usize {
    match settings.int("mainstem.shards") {
        0 => std::thread::available_parallelism().map_or(1, usize::from).min(broker::SHARDS_MAX),
        count => count as usize,
    }
}

/// The mechanisms of SCRAM that some listener offers.
fn scram_offered(config: &Config) -> Vec<ScramMechanism> {
    let offered = |wanted| {
        config
            .named
            .iter()
            .filter_map(|one| one.sasl.as_ref())
            .any(|sasl| sasl.mechanisms.contains(&SaslMechanism::Scram(wanted)))
    };
    ScramMechanism::ALL.into_iter().filter(|one| offered(*one)).collect()
}

/// The mechanisms that passwords are to have keys for, the keys of tokens, and the user that the node is configured with, if nobody is there.
fn prepare_logins(config: &Config, broker: &Arc<Broker>) -> anyhow::Result<()> {
    broker.security().offer_scram(scram_offered(config));
    if let Some(source) = &config.token_keys {
        token_keys::start(source.clone(), broker)?;
    }
    let Some(user) = &config.security.first_user else { return Ok(()) };
    if broker.ensure_first_user(&user.name, &user.password).context("--default-user")? {
        tracing::info!(user = user.name, "first user made");
    }
    Ok(())
}

/// Has what is counted as it happens shown at `/metrics`.
fn register(
    state: &AdminState,
    (kafka, amqp): (&GatewayMetrics, &amqp_gateway::GatewayMetrics),
    journals: &[Arc<Journal>],
    (exports, blocked, closed): (&Exports, &Counter, &Closed),
) {
    state.with_registry(|registry| {
        kafka.register(registry);
        amqp.register(registry);
        for journal in journals {
            let number = journal.number().to_string();
            journal.metrics().register(registry.sub_registry_with_label(("journal".into(), number.into())));
        }
        exports.register(registry);
        closed.register(registry);
        registry.register(
            "mainstem_shard_blocked",
            "Turns that kept a network shard busy for more than 5 ms",
            blocked.clone(),
        );
    });
}

fn admin_state(measurements: &Measurements) -> Arc<AdminState> {
    let (for_status, for_troubles, for_pages) = (measurements.clone(), measurements.clone(), measurements.clone());
    let mut registry = Registry::default();
    measurements.register(&mut registry);
    let stopped = Box::new(move || for_status.stopped_journals());
    AdminState::new(registry, stopped, Box::new(move || for_troubles.troubles()), Box::new(move || for_pages.refresh()))
}

type Threads = Vec<std::thread::JoinHandle<()>>;

fn archive_path(config: &Config, folder: &DataFolder) -> std::path::PathBuf {
    match config.settings.text("mainstem.archive.folder").0 {
        "" => folder.archive(),
        other => other.into(),
    }
}

/// Makes backups of what was opened.
fn backups(config: &Config, folder: &DataFolder, journals: &[Arc<Journal>], mode: IoMode) -> Arc<Backups> {
    Backups::new(Source {
        journals: journals.to_vec(),
        folder: folder.path().to_owned(),
        journal_folders: (0..folder.journals).map(|number| folder.journal(number)).collect(),
        cluster_id: folder.cluster_id.clone(),
        archive: archive_path(config, folder),
        mode,
        settings: config.settings.clone(),
    })
}

/// Where archive objects are kept.
fn open_archive(config: &Config, folder: &DataFolder, mode: IoMode) -> anyhow::Result<Arc<FolderArchive>> {
    let path = archive_path(config, folder);
    Ok(Arc::new(
        FolderArchive::open(&path, mode).with_context(|| format!("mainstem.archive.folder {}", path.display()))?,
    ))
}

/// Bytes that the segment files of each journal may take.
fn window(settings: &Settings) -> anyhow::Result<Option<u64>> {
    const SEGMENTS_MIN: i64 = 8;
    let (window, segment) = (settings.int("mainstem.journal.window.bytes"), settings.int("mainstem.segment.bytes"));
    if window >= 0 && window < SEGMENTS_MIN * segment {
        bail!(
            "mainstem.journal.window.bytes = {window} is not possible: it is -1, or at least {SEGMENTS_MIN} times mainstem.segment.bytes ({segment})"
        );
    }
    Ok(u64::try_from(window).ok())
}

/// A journal's configuration as far as it is about time.
fn timed(settings: &Settings) -> JournalConfig {
    JournalConfig {
        producer_expiry_ms: settings.int("producer.id.expiration.ms") as u64,
        retention_check_ms: settings.int("log.retention.check.interval.ms") as u64,
        archive_check_ms: settings.int("log.cleaner.backoff.ms") as u64,
        ..JournalConfig::default()
    }
}

fn open_journals(
    config: &Config,
    folder: &DataFolder,
    mode: IoMode,
    measurements: &Measurements,
) -> anyhow::Result<(Vec<Arc<Journal>>, Threads)> {
    crate::damage::check(&config.accept_loss, folder.journals)?;
    let share = config.memory.bytes() as usize / folder.journals;
    let archive = open_archive(config, folder, mode)?;
    let (mut journals, mut runners) = (Vec::new(), Vec::new());
    for number in 0..folder.journals {
        let path = folder.journal(number);
        let storage: Arc<dyn Storage> =
            Arc::new(RealStorage::open(&path, mode).with_context(|| path.display().to_string())?);
        let sized = JournalConfig {
            number: number as u16,
            segment_bytes: config.settings.int("mainstem.segment.bytes") as u64 / 4096 * 4096,
            // Memory that is touched for the first time costs a virtual machine seconds per GiB, so the caches are
            // no larger than readers need: the tail holds half a second of a fast network, history some fetches.
            tail_bytes: (share / 3).min(384 << 20),
            cold_bytes: (share / 8).min(64 << 20),
            held_bytes: share / HELD_SHARE,
            index_bytes: share / 32,
            state_bytes: share / 16,
            producer_bytes: share / 8,
            gather_bytes: (share / 16).min(128 << 20) as u64,
            key_bytes: config.settings.int("log.cleaner.dedupe.buffer.size") as usize / folder.journals,
            window_bytes: window(&config.settings)?,
            ..timed(&config.settings)
        };
        folder.check_there(number)?;
        crate::damage::accept(&path, number, &*archive, &config.accept_loss)?;
        let started = Instant::now();
        let opened = journal::open(
            sized,
            storage,
            Arc::clone(&archive) as Arc<dyn ArchiveStore>,
            submitter(mode)?,
            Arc::new(SystemClock),
            uuid::Uuid::new_v4(),
        )
        .map_err(|error| refusal(&error, config))
        .with_context(|| path.display().to_string())?;
        folder.check_owner(number, &opened.journal.uuid().to_string())?;
        measurements.add_recovery(started.elapsed(), opened.replayed_bytes);
        let (replayed, millis) = (ByteSize(opened.replayed_bytes).to_string(), started.elapsed().as_millis() as u64);
        tracing::info!(journal = number, replayed, millis, "journal recovered");
        journals.push(Arc::clone(&opened.journal));
        runners.push((opened.writer, opened.keeper, opened.archiver));
    }
    crate::damage::check_archive(&archive_path(config, folder), &journals, &config.accept_loss)?;
    // Before anything is put there or deleted.
    journals.iter().try_for_each(|journal| archive.own(&journal.uuid().to_string(), folder.path()))?;
    let mut threads = Vec::new();
    for (number, (writer, keeper, archiver)) in runners.into_iter().enumerate() {
        threads.push(std::thread::Builder::new().name(format!("journal-{number}")).spawn(move || writer.run())?);
        threads.push(std::thread::Builder::new().name(format!("keeper-{number}")).spawn(move || keeper.run())?);
        threads.push(std::thread::Builder::new().name(format!("archiver-{number}")).spawn(move || archiver.run())?);
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

/// Why a journal does not open, and what to do if it is damaged.
fn refusal(error: &journal::OpenError, config: &Config) -> anyhow::Error {
    if error.is_damage() {
        let data = config.data.display();
        return anyhow!(
            "{error}; `mainstem journal verify --data {data}` says what is lost, docs/operations/damage.md what to do"
        );
    }
    anyhow!("{error}")
}

/// Where AMQP clients look for a broker.
const AMQP_DEFAULT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 5672);

/// A socket that is bound.
struct Bound {
    listener: TcpListener,
    address: SocketAddr,
    protocol: Protocol,
    tls: Option<Arc<Tls>>,
    /// It is one of setting `listeners`.
    named: bool,
}

/// A listener as the start shows it: its address, its protocol, whether with TLS.
type Shown = (SocketAddr, Protocol, bool);

impl Bound {
    fn take(address: SocketAddr, protocol: Protocol) -> std::io::Result<Self> {
        let listener = sockets::bind(address)?;
        Ok(Self { address: listener.local_addr()?, listener, protocol, tls: None, named: false })
    }

    fn with(self, tls: &Arc<Tls>) -> Self {
        Self { tls: Some(Arc::clone(tls)), ..self }
    }

    /// Is it known only after a while who connects?
    fn asks(&self) -> bool {
        self.tls.is_some() || self.protocol.asks()
    }

    fn shown(&self) -> Shown {
        (self.address, self.protocol.clone(), self.tls.is_some())
    }

    fn flag(&self) -> &'static str {
        match (&self.protocol, self.tls.is_some()) {
            (Protocol::Kafka(..), _) if self.named => "listeners",
            (Protocol::Kafka(..), false) => "--kafka",
            (Protocol::Kafka(..), true) => "--kafka-tls",
            (Protocol::Amqp, false) => "--amqp",
            (Protocol::Amqp, true) => "--amqps",
        }
    }
}

/// Who is served where, in RabbitMQ's words.
fn listening(bound: &[Bound], served: Served) -> Vec<Listening> {
    let protocol = |protocol: &Protocol| match protocol {
        Protocol::Kafka(..) => "kafka",
        Protocol::Amqp => "amqp",
    };
    let clients = bound.iter().map(|one| Listening {
        protocol: protocol(&one.protocol),
        address: one.address,
        tls: one.tls.is_some(),
    });
    let pages = [Some(served.admin), served.management].into_iter().flatten();
    clients.chain(pages.map(|address| Listening { protocol: "http", address, tls: false })).collect()
}

/// Takes the addresses without letting anybody connect: that comes after recovery, in [`accept_all`].
fn bind(config: &Config, tls: Option<&Arc<Tls>>) -> anyhow::Result<Vec<Bound>> {
    let mut bound = Vec::new();
    for Listener { address, advertise } in &config.listeners {
        bound.push(
            Bound::take(*address, Protocol::Kafka(Arc::new(advertise.clone()), None))
                .with_context(|| format!("--kafka {address}"))?,
        );
    }
    for NamedListener { name, address, advertise, tls: encrypted, sasl } in &config.named {
        let protocol = Protocol::Kafka(Arc::new(advertise.clone()), sasl.clone().map(Arc::new));
        let one = Bound::take(*address, protocol).with_context(|| format!("listeners {name}://{address}"))?;
        let one = if let Some(tls) = tls.filter(|_| *encrypted) { one.with(tls) } else { one };
        bound.push(Bound { named: true, ..one });
    }
    match &config.amqp {
        Some(addresses) => {
            for address in addresses {
                bound.push(Bound::take(*address, Protocol::Amqp).with_context(|| format!("--amqp {address}"))?);
            }
        }
        None => match Bound::take(AMQP_DEFAULT, Protocol::Amqp) {
            Ok(taken) => bound.push(taken),
            Err(error) => {
                tracing::warn!(%error, address = %AMQP_DEFAULT, "AMQP clients are not served: --amqp names another address, or none")
            }
        },
    }
    let Some(tls) = tls else { return Ok(bound) };
    for Listener { address, advertise } in &config.security.kafka_tls {
        let protocol = Protocol::Kafka(Arc::new(advertise.clone()), None);
        bound.push(Bound::take(*address, protocol).with_context(|| format!("--kafka-tls {address}"))?.with(tls));
    }
    for address in &config.security.amqps {
        bound.push(Bound::take(*address, Protocol::Amqp).with_context(|| format!("--amqps {address}"))?.with(tls));
    }
    Ok(bound)
}

fn accept_all(
    bound: Vec<Bound>,
    shards: &Arc<Vec<ShardHandle>>,
    broker: &Arc<Broker>,
    (stop, descriptors): (&Arc<AtomicBool>, Descriptors),
) -> anyhow::Result<()> {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    let placement = Arc::new(Mutex::new(Placement::new(shards.len())));
    let admission = Arc::new(Admission::default());
    for one in bound {
        sockets::listen(&one.listener).with_context(|| format!("{} {}", one.flag(), one.address))?;
        let (shards, stop, placement, admission) =
            (Arc::clone(shards), Arc::clone(stop), Arc::clone(&placement), Arc::clone(&admission));
        let broker = Arc::clone(broker);
        std::thread::Builder::new().name("acceptor".to_owned()).spawn(move || {
            let mut turned_away = TurnedAway::default();
            loop {
                let (stream, peer) = match one.listener.accept() {
                    Ok(accepted) => accepted,
                    Err(error) => {
                        tracing::warn!(%error, address = %one.address, "connection not accepted");
                        std::thread::sleep(Duration::from_millis(100));
                        continue;
                    }
                };
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                if !descriptors.admits(&stream) {
                    turned_away.note("open files (ulimit -n)", peer.ip());
                    continue;
                }
                let open: usize = shards.iter().map(|shard| shard.connections.load(Ordering::Relaxed)).sum();
                let entered = admit(&broker, &admission, (peer.ip(), one.asks()), open);
                let place = match entered {
                    Ok((place, displaced)) => {
                        if let Some(address) = displaced {
                            broker.limits().note_refusal(LimitKind::Strangers);
                            turned_away.note(LimitKind::Strangers.name(), address);
                        }
                        place
                    }
                    Err(met) => {
                        if let Met::Limit(kind) = met {
                            broker.limits().note_refusal(kind);
                        }
                        turned_away.note(met.setting(), peer.ip());
                        continue;
                    }
                };
                let chosen = placement.lock().expect("choosing does not panic").choose(&shards, Instant::now());
                let shard = &shards[chosen];
                shard.connections.fetch_add(1, Ordering::Relaxed);
                let id = ConnectionId(NEXT.fetch_add(1, Ordering::Relaxed) as u64);
                let _ = shard.arrivals.send(Arrival {
                    stream,
                    protocol: one.protocol.clone(),
                    id,
                    tls: one.tls.clone(),
                    place,
                });
            }
        })?;
    }
    Ok(())
}

/// May one more connection come in, beside `open` others? `stranger`: who it is will be known only later.
fn admit(
    broker: &Broker,
    admission: &Arc<Admission>,
    (address, stranger): (IpAddr, bool),
    open: usize,
) -> Result<(Place, Option<IpAddr>), Met> {
    let settings = broker.live_settings();
    if open as i64 >= settings.int(LimitKind::Connections.name()) {
        return Err(Met::Limit(LimitKind::Connections));
    }
    if !broker.quotas().admit_connection(address, Instant::now()) {
        return Err(Met::Rate);
    }
    admission.enter(address, stranger, Bounds::of(&settings))
}

/// Connections that found no place, or lost it to others, for the log: a line a second at most, however many come.
#[derive(Default)]
struct TurnedAway {
    told: Option<Instant>,
    untold: u64,
}

impl TurnedAway {
    const PAUSE: Duration = Duration::from_secs(1);

    fn note(&mut self, setting: &str, address: IpAddr) {
        self.untold += 1;
        if self.told.is_none_or(|last| last.elapsed() >= Self::PAUSE) {
            tracing::warn!(%address, setting, count = self.untold, "connections refused: there are too many");
            *self = Self { told: Some(Instant::now()), untold: 0 };
        }
    }
}

fn print_start(config: &Config, listeners: &[Shown], served: Served, mode: IoMode, started: Instant) {
    let mut lines = vec![format!("Mainstem {}", env!("CARGO_PKG_VERSION"))];
    for (address, protocol, encrypted) in listeners {
        let with = if *encrypted { "  (TLS)" } else { "" };
        match protocol {
            Protocol::Kafka(advertise, sasl) => {
                let asks = if sasl.is_some() { "  (SASL)" } else { "" };
                let told = match (&advertise.host, advertise.port) {
                    (Some(host), Some(port)) => format!("  (advertised as {host}:{port})"),
                    (Some(host), None) => format!("  (advertised as {host})"),
                    _ => String::new(),
                };
                lines.push(format!("  kafka       {address}{told}{with}{asks}"));
            }
            Protocol::Amqp => lines.push(format!("  amqp        {address}{with}")),
        }
    }
    lines.push(format!("  admin       http://{}", served.admin));
    lines.extend(served.management.map(|address| format!("  management  http://{address}/api")));
    lines.push(format!("  data        {}", config.data.display()));
    lines.push(format!("  durability  {}", config.durability));
    lines.push(format!("  I/O         {mode}"));
    lines.push(format!("  memory      {}", config.memory));
    lines.push(format!("  ready after {} ms", started.elapsed().as_millis()));
    lines.extend(warnings_of_strangers(config, listeners, served));
    // A broker serves its clients, whether or not somebody reads this.
    let _ = output::print(&format!("{}\n", lines.join("\n")));
}

/// What whoever reaches an address can do or see there without having logged in.
fn warnings_of_strangers(config: &Config, listeners: &[Shown], served: Served) -> Vec<String> {
    let mut lines = Vec::new();
    let pages = [(Some(served.admin), "metrics are shown to everybody, and "), (served.management, "")];
    for (address, shown) in pages
        .into_iter()
        .filter_map(|(address, shown)| Some((address?, shown)))
        .filter(|(address, _)| !address.ip().is_loopback())
    {
        lines.push(format!("  WARNING     {address} is reachable by others: {shown}passwords pass it as clear text"));
    }
    let certified = config.security.tls.as_ref().is_some_and(|tls| tls.clients == ClientCertificates::Required);
    for (address, protocol, encrypted) in listeners.iter().filter(|(address, ..)| !address.ip().is_loopback()) {
        let what = match protocol {
            Protocol::Kafka(_, None) if !encrypted || !certified => "nobody has to log in",
            Protocol::Kafka(_, Some(sasl)) if !encrypted && sasl.mechanisms.contains(&SaslMechanism::Plain) => {
                "passwords pass it as clear text"
            }
            Protocol::Kafka(_, Some(sasl)) if !encrypted && sasl.takes_tokens() => "tokens pass it as clear text",
            Protocol::Amqp if !encrypted => "passwords pass it as clear text",
            Protocol::Kafka(..) | Protocol::Amqp => continue,
        };
        lines.push(format!("  WARNING     {address} is reachable by others, and {what}"));
    }
    lines
}
