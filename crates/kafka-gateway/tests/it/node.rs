//! A broker on a real journal, one shard, and clients that are sessions driven by hand.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use broker::{Broker, BrokerConfig, Event, Mailbox, Settings};
use bytes::Bytes;
use journal::disk::{IoMode, RealStorage, Storage, submitter};
use journal::{Journal, JournalConfig};
use kafka_gateway::{Advertise, CloseReason, Gateway, GatewayMetrics, RequestRoom, SaslRules, Session, ShardContext};
use kafka_wire::create_topics::{CreatableTopic, CreateTopicsRequest, CreateTopicsResponse};
use kafka_wire::fetch::{FetchPartition, FetchRequest, FetchResponse, FetchTopic};
use kafka_wire::produce::{PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData};
use kafka_wire::{ApiKey, Reader, Records, RequestHeader, Str, Writer};
use record::BatchBuilder;
use types::{ConnectionId, Durability, NodeId, ShardId, SystemClock};

/// Longest wait for an answer that must come.
const PATIENCE: Duration = Duration::from_secs(120);
const SHARD: ShardId = ShardId(0);

pub const PRODUCE: (i16, i16) = (0, 9);
pub const FETCH: (i16, i16) = (1, 12);
pub const CREATE_TOPICS: (i16, i16) = (19, 7);

/// A running node with one shard.
pub struct Node {
    pub gateway: Arc<Gateway>,
    broker: Arc<Broker>,
    journals: Vec<Arc<Journal>>,
    threads: Vec<JoinHandle<()>>,
    mailbox: Arc<Mailbox>,
    bell: Receiver<()>,
    context: ShardContext,
    sessions: Vec<Session>,
    /// Answers that have left each session, in order.
    sent: Vec<VecDeque<(i32, Bytes)>>,
    /// Turns that requests have had beside their first one.
    pub turns: usize,
    /// What the sessions take for now.
    pub now: Instant,
    /// Who sends requests.
    pub client_id: &'static str,
}

impl Node {
    /// Starts on `folder`; `settings` are pairs of name and value.
    pub fn start(folder: &Path, settings: &[(&str, &str)]) -> Self {
        Self::start_on(vec![Arc::new(RealStorage::open(folder, IoMode::Buffered).expect("a folder"))], settings)
    }

    /// Starts with so many bytes for answers that clients have not read.
    pub fn start_with_answers(folder: &Path, bytes: usize) -> Self {
        let node = Self::start(folder, &[]);
        Self { gateway: Gateway::new(Arc::clone(&node.broker), GatewayMetrics::default(), bytes), ..node }
    }

    /// Starts on disks of the caller's, with a journal on each.
    pub fn start_on(disks: Vec<Arc<dyn Storage>>, settings: &[(&str, &str)]) -> Self {
        let (mut journals, mut threads) = (Vec::new(), Vec::new());
        for (number, storage) in (0..).zip(disks) {
            let config =
                JournalConfig { number, segment_bytes: 1 << 20, tail_bytes: 16 << 20, ..JournalConfig::default() };
            let archive = Arc::new(journal::MemoryArchive::default());
            let id = uuid::Uuid::from_u128(7 + u128::from(number));
            let opened = journal::open(
                config,
                storage,
                archive,
                submitter(IoMode::Buffered).expect("it blocks"),
                Arc::new(SystemClock),
                id,
            )
            .expect("it opens");
            let (writer, keeper) = (opened.writer, opened.keeper);
            threads.extend([std::thread::spawn(move || writer.run()), std::thread::spawn(move || keeper.run())]);
            journals.push(opened.journal);
        }
        let mut chosen = Settings::default();
        for (name, value) in settings {
            chosen.set(name, value).expect("a setting");
        }
        let config = BrokerConfig {
            cluster_id: "cluster".to_owned(),
            node_id: NodeId(0),
            settings: chosen,
            durability: Durability::Fsync,
            clock: Arc::new(SystemClock),
        };
        let broker = Broker::open(config, journals.clone()).expect("the catalog is readable");
        let (ring, bell) = channel();
        let mailbox = Arc::new(Mailbox::new(Box::new(move || {
            let _ = ring.send(());
        })));
        broker.add_shard(SHARD, Arc::clone(&mailbox));
        threads.extend(broker.start());
        let gateway = Gateway::new(Arc::clone(&broker), GatewayMetrics::default(), 64 << 20);
        Self {
            gateway,
            broker,
            journals,
            threads,
            mailbox,
            bell,
            context: ShardContext::default(),
            sessions: Vec::new(),
            sent: Vec::new(),
            turns: 0,
            now: Instant::now(),
            client_id: "test",
        }
    }

    /// Ends everything; what was acknowledged is on the disk.
    pub fn stop(mut self) {
        self.broker.shutdown();
        // What threads of the broker wait for is the journals': those end afterwards.
        let of_broker = self.threads.split_off(2 * self.journals.len());
        of_broker.into_iter().for_each(|thread| thread.join().expect("no panic"));
        self.journals.iter().for_each(|journal| journal.shutdown());
        self.threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    }

    /// A new connection; its number.
    pub fn connect(&mut self) -> usize {
        self.connect_to(None)
    }

    /// A new connection to a listener that may ask who it is; its number.
    pub fn connect_to(&mut self, rules: Option<Arc<SaslRules>>) -> usize {
        self.connect_from("127.0.0.1:9092", rules)
    }

    /// The same, from there.
    pub fn connect_from(&mut self, peer: &str, rules: Option<Arc<SaslRules>>) -> usize {
        let (address, peer) = ("127.0.0.1:9092".parse().expect("an address"), peer.parse().expect("an address"));
        let number = self.sessions.len();
        let gateway = Arc::clone(&self.gateway);
        let id = ConnectionId(number as u64 + 1);
        self.sent.push(VecDeque::new());
        let session = Session::new(gateway, Arc::new(Advertise::default()), SHARD, id, address, peer);
        self.sessions.push(session.with_sasl(rules, self.now));
        number
    }

    /// Hands a request to a session, and reserves memory for it where it is one of many items.
    pub fn send(
        &mut self,
        client: usize,
        api: (i16, i16),
        correlation: i32,
        body: impl FnOnce(&mut Writer),
    ) -> Result<(), CloseReason> {
        self.send_alone(client, api, correlation, body)?;
        if self.sessions[client].wants_room().is_some() { self.give_room(client, Arc::new(Plenty)) } else { Ok(()) }
    }

    /// The same, but it is not said that there is memory.
    pub fn send_alone(
        &mut self,
        client: usize,
        api: (i16, i16),
        correlation: i32,
        body: impl FnOnce(&mut Writer),
    ) -> Result<(), CloseReason> {
        let frame = self.frame(api, correlation, body);
        self.hand(client, frame)
    }

    /// Serves a request that waits for memory.
    pub fn give_room(&mut self, client: usize, room: Arc<dyn RequestRoom>) -> Result<(), CloseReason> {
        self.sessions[client].give_room(room, &mut self.context, self.now)
    }

    /// A request as a session takes it.
    pub fn frame(&self, (key, version): (i16, i16), correlation: i32, body: impl FnOnce(&mut Writer)) -> Bytes {
        let mut writer = Writer::new();
        let client_id = Some(self.client_id.into());
        RequestHeader { api_key: key, api_version: version, correlation_id: correlation, client_id }
            .encode(&mut writer);
        body(&mut writer);
        Bytes::from(writer.finish_frame().concat()).slice(4..)
    }

    /// Hands a request to a session.
    pub fn hand(&mut self, client: usize, frame: Bytes) -> Result<(), CloseReason> {
        self.sessions[client].handle_frame(frame, &mut self.context, self.now)
    }

    /// Waits until so much has arrived for the sessions, which do not get it yet.
    pub fn arrived(&mut self, count: usize) -> Vec<Event> {
        let (until, mut events) = (Instant::now() + PATIENCE, Vec::new());
        while events.len() < count {
            let left = until.saturating_duration_since(Instant::now());
            self.bell.recv_timeout(left).expect("events in time");
            let mut new = Vec::new();
            self.mailbox.drain(&mut new);
            events.append(&mut new);
        }
        events
    }

    /// Gives the sessions what has arrived for them.
    fn deliver(&mut self) {
        let mut events = Vec::new();
        self.mailbox.drain(&mut events);
        self.hand_out(events);
    }

    /// Gives the sessions these events, in this order.
    pub fn hand_out(&mut self, events: Vec<Event>) {
        for event in events {
            match event {
                Event::Reply { to, reply } => {
                    self.sessions[to.connection.0 as usize - 1].handle_reply(
                        to.token,
                        reply,
                        &mut self.context,
                        self.now,
                    );
                }
                Event::Advanced(log) => {
                    for id in self.context.watches.advanced(log) {
                        self.sessions[id.0 as usize - 1].handle_wake(&mut self.context, self.now);
                    }
                }
                Event::Space => self.sessions.iter_mut().for_each(Session::handle_space),
                Event::PollSockets(_) => {}
            }
        }
    }

    /// The next answer of a client if it is there: correlation id, and the rest of the frame.
    pub fn poll(&mut self, client: usize) -> Option<(i32, Bytes)> {
        self.deliver();
        while self.sessions[client].goes_on() {
            self.sessions[client].go_on(&mut self.context, self.now);
            self.turns += 1;
        }
        let mut out = VecDeque::new();
        self.sessions[client].poll_transmit(&mut out);
        let mut bytes = Bytes::from(out.into_iter().collect::<Vec<_>>().concat());
        while !bytes.is_empty() {
            let length = u32::from_be_bytes(bytes[..4].try_into().expect("four bytes")) as usize;
            let frame = bytes.split_to(4 + length);
            let correlation = i32::from_be_bytes(frame[4..8].try_into().expect("four bytes"));
            self.sent[client].push_back((correlation, frame.slice(8..)));
        }
        self.sent[client].pop_front()
    }

    /// The next answer of a client, waiting for it.
    pub fn answer(&mut self, client: usize) -> (i32, Bytes) {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(answer) = self.poll(client) {
                return answer;
            }
            let left = until.saturating_duration_since(Instant::now());
            self.bell.recv_timeout(left).expect("an answer in time");
        }
    }

    /// The connection of a client ends, and is forgotten.
    pub fn end(&mut self, client: usize) {
        self.close(client);
        let (address, peer) =
            ("127.0.0.1:9092".parse().expect("an address"), "127.0.0.1:9092".parse().expect("an address"));
        let id = ConnectionId(client as u64 + 1);
        self.sessions[client] =
            Session::new(Arc::clone(&self.gateway), Arc::new(Advertise::default()), SHARD, id, address, peer);
    }

    /// The connection of a client ends.
    pub fn close(&mut self, client: usize) {
        self.sessions[client].close(&mut self.context);
    }

    pub fn make_share_group(&self, group: &str, settings: &[(&str, &str)]) {
        self.broker.make_share_group(group).expect("a name that is free");
        self.configure_group(group, settings);
    }

    pub fn configure_group(&self, group: &str, settings: &[(&str, &str)]) {
        let overrides = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let change = broker::GroupChange { group: group.to_owned(), overrides, set: Vec::new() };
        self.broker.set_group_configs(vec![change], None).pop().expect("an outcome").expect("settings of a group");
    }

    pub fn topic_id(&self, name: &str) -> uuid::Uuid {
        self.broker.topic(name).expect("it is there").id.0
    }

    /// Changes the class of a topic.
    pub fn set_durability(&self, topic: &str, durability: Durability) {
        self.broker.topic(topic).expect("it is there").logs().iter().for_each(|log| log.set_durability(durability));
    }

    /// Who may be in the catalog of users.
    pub fn broker(&self) -> &Arc<Broker> {
        &self.broker
    }

    /// Why a connection is to end.
    pub fn refusal(&mut self, client: usize) -> Option<CloseReason> {
        self.sessions[client].take_refusal(self.now)
    }

    /// A client shows a certificate with this distinguished name.
    pub fn set_certified(&mut self, client: usize, distinguished: &str) {
        self.sessions[client].set_certified(Some(distinguished.to_owned()), self.now);
    }

    pub fn session(&self, client: usize) -> &Session {
        &self.sessions[client]
    }

    /// How far the journal is flushed.
    pub fn durable(&self) -> u64 {
        self.journals[0].durable_index().0
    }

    /// Lets time pass for the sessions.
    pub fn advance(&mut self, by: Duration) {
        self.now += by;
        for session in &mut self.sessions {
            session.handle_wake(&mut self.context, self.now);
        }
    }

    /// The node is to end, as far as a session is concerned.
    pub fn drain(&mut self, client: usize) {
        self.sessions[client].drain(&mut self.context, self.now);
    }

    /// When a session wants to be woken without an event, from its now on.
    pub fn timeout(&self, client: usize) -> Option<Duration> {
        self.sessions[client].next_timeout().map(|at| at.saturating_duration_since(self.now))
    }

    pub fn create_topic(&mut self, client: usize, name: &str, partitions: i32) {
        let topic = CreatableTopic {
            name: name.into(),
            num_partitions: partitions,
            replication_factor: 1,
            ..CreatableTopic::default()
        };
        let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 30_000, ..CreateTopicsRequest::default() };
        self.send(client, CREATE_TOPICS, 0, |writer| request.encode(writer, CREATE_TOPICS.1)).expect("taken");
        let (_, body) = self.answer(client);
        let response =
            CreateTopicsResponse::decode(&mut flexible(CREATE_TOPICS, body), CREATE_TOPICS.1).expect("an answer");
        assert_eq!(response.topics[0].error_code, 0, "created");
    }

    /// Produces one batch; error code and base offset.
    pub fn produce(&mut self, client: usize, topic: &str, partition: i32, batch: Bytes) -> (i16, i64) {
        self.send_produce(client, 0, topic, partition, batch);
        let (_, body) = self.answer(client);
        produced(body)
    }

    pub fn send_produce(&mut self, client: usize, correlation: i32, topic: &str, partition: i32, batch: Bytes) {
        let data = PartitionProduceData {
            index: partition,
            records: Some(Records(vec![batch])),
            ..PartitionProduceData::default()
        };
        let topic = TopicProduceData { name: topic.into(), partition_data: vec![data], ..TopicProduceData::default() };
        let request =
            ProduceRequest { acks: -1, timeout_ms: 30_000, topic_data: vec![topic], ..ProduceRequest::default() };
        self.send(client, PRODUCE, correlation, |writer| request.encode(writer, PRODUCE.1)).expect("taken");
    }

    pub fn send_fetch(&mut self, client: usize, correlation: i32, request: &FetchRequest) {
        self.send(client, FETCH, correlation, |writer| request.encode(writer, FETCH.1)).expect("taken");
    }

    pub fn fetch(&mut self, client: usize, request: &FetchRequest) -> FetchResponse {
        self.send_fetch(client, 0, request);
        let (_, body) = self.answer(client);
        fetched(body)
    }
}

/// Memory of which there is enough.
struct Plenty;

impl RequestRoom for Plenty {
    fn is_wanted(&self) -> bool {
        false
    }
}

pub fn flexible((key, version): (i16, i16), body: Bytes) -> Reader {
    assert!(ApiKey::find(key).is_some_and(|api| api.flexible(version)), "tests use flexible versions");
    let mut reader = Reader::new(body);
    assert_eq!(reader.tag_count().expect("tags"), 0);
    reader
}

pub fn produced(body: Bytes) -> (i16, i64) {
    let response = ProduceResponse::decode(&mut flexible(PRODUCE, body), PRODUCE.1).expect("an answer");
    let partition = &response.responses[0].partition_responses[0];
    (partition.error_code, partition.base_offset)
}

pub fn fetched(body: Bytes) -> FetchResponse {
    FetchResponse::decode(&mut flexible(FETCH, body), FETCH.1).expect("an answer")
}

/// A fetch of partitions of one topic, each with its offset; no session unless the caller sets one.
pub fn wants(topic: &str, partitions: &[(i32, i64)]) -> FetchRequest {
    let partitions = partitions.iter().map(|(partition, offset)| FetchPartition {
        partition: *partition,
        fetch_offset: *offset,
        partition_max_bytes: 1 << 20,
        ..FetchPartition::default()
    });
    let topic = FetchTopic { topic: Str::from(topic), partitions: partitions.collect(), ..FetchTopic::default() };
    FetchRequest { min_bytes: 1, max_bytes: 1 << 20, topics: vec![topic], ..FetchRequest::default() }
}

/// A fetch that names nothing new.
pub fn wants_news() -> FetchRequest {
    FetchRequest { min_bytes: 1, max_bytes: 1 << 20, ..FetchRequest::default() }
}

/// The partitions of an answer: number, error, bytes of records.
pub fn partitions(response: &FetchResponse) -> Vec<(i32, i16, usize)> {
    let all = response.responses.iter().flat_map(|topic| &topic.partitions);
    let bytes =
        |records: &Option<Records>| records.as_ref().map_or(0, |records| records.0.iter().map(Bytes::len).sum());
    all.map(|partition| (partition.partition_index, partition.error_code, bytes(&partition.records))).collect()
}

/// A batch of `count` records without a producer.
pub fn batch(count: usize) -> Bytes {
    records(BatchBuilder::default(), count)
}

/// A batch of an idempotent producer.
pub fn batch_of(producer: i64, epoch: i16, sequence: i32, count: usize) -> Bytes {
    records(BatchBuilder::default().producer(producer, epoch, sequence), count)
}

fn records(mut builder: BatchBuilder, count: usize) -> Bytes {
    for number in 0..count {
        builder = builder.record(1_000 + number as i64, None, Some(b"a value"));
    }
    builder.build()
}
