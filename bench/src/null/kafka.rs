//! Kafka for producers: any topic exists, with this server as the leader of all its partitions.
//!
//! Frames (<https://kafka.apache.org/protocol>) are `i32 length`, a head that `kafka_wire::RequestHeader` describes, and a
//! body. All requests but Produce are rare, taken whole and left to `kafka-wire`. Of Produce, only the structure is read:
//!
//! ```text
//! request   i16 api key = 0, i16 version, i32 correlation id, string client id (null: -1), string transactional id (null),
//!           i16 acks, i32 timeout, i32 topics * {string name, i32 partitions * {i32 index, i32 length (null: -1), batches}}
//! response  i32 correlation id,
//!           i32 topics * {string name, i32 partitions * {i32 index, i16 error, i64 base offset, i64 append time,
//!                         [from 5 on: i64 log start offset], [from 8 on: i32 record errors = 0, string error (null)]}},
//!           i32 throttle time
//! ```
//!
//! Produce is served up to version 8, the last of this plain layout. Every batch gets offset 0; none is looked into.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use kafka_wire::api_versions::{ApiVersion, ApiVersionsResponse};
use kafka_wire::create_topics::{CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse};
use kafka_wire::delete_topics::{DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse};
use kafka_wire::init_producer_id::InitProducerIdResponse;
use kafka_wire::metadata::{
    MetadataRequest, MetadataResponse, MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_wire::{ApiKey, ErrorCode, Reader, RequestHeader, Str, Writer, encode_response_header};

use super::scan::Scan;
use super::{MESSAGE_BYTES_MAX, Options, PIECE_BYTES_MAX, Session};

const PRODUCE: i16 = 0;
const METADATA: i16 = 3;
const API_VERSIONS: i16 = 18;
const CREATE_TOPICS: i16 = 19;
const DELETE_TOPICS: i16 = 20;
const INIT_PRODUCER_ID: i16 = 22;

/// What is announced: API, first and last version. Fetch (1) and FindCoordinator (10) are not served, but librdkafka
/// derives from them which batch format and which codecs a broker takes, and would write old message sets without.
const ANNOUNCED: [(i16, i16, i16); 8] = [
    (PRODUCE, 3, 8),
    (1, 4, 11),
    (METADATA, 0, 9),
    (10, 0, 2),
    (API_VERSIONS, 0, 4),
    (CREATE_TOPICS, 2, 4),
    (DELETE_TOPICS, 1, 5),
    (INIT_PRODUCER_ID, 0, 4),
];

const NODE: i32 = 1;
/// Partitions that one Metadata response lists.
const LISTED_MAX: usize = 1_000_000;

/// One connection of a producer.
pub struct Kafka {
    options: Options,
    address: SocketAddr,
    stage: Stage,
    /// Bytes of the Produce request that are still to come.
    rest: usize,
    version: i16,
    acknowledge: bool,
    topics_left: u32,
    partitions_left: u32,
    /// The response to the Produce request so far.
    answer: Vec<u8>,
}

/// Where in a Produce request.
enum Stage {
    Between,
    Topic,
    Partition,
}

impl Session for Kafka {
    fn step(&mut self, input: &[u8], answers: &mut Vec<u8>) -> Result<Option<usize>> {
        if matches!(self.stage, Stage::Between) {
            return self.frame(input, answers);
        }
        let taken = match self.stage {
            Stage::Partition if self.partitions_left > 0 => self.partition(input)?,
            _ if self.topics_left > 0 => self.topic(input),
            _ => {
                self.finish(answers)?;
                Some(0)
            }
        };
        match taken {
            Some(taken) => self.rest -= taken,
            None => ensure!(input.len() < self.rest, "a Produce request ends too early"),
        }
        ensure!(self.answer.len() <= PIECE_BYTES_MAX, "a Produce request with too many partitions");
        Ok(taken)
    }
}

impl Kafka {
    /// For a client that reached the server at this address.
    pub fn new(options: Options, address: SocketAddr) -> Self {
        Self {
            options,
            address,
            stage: Stage::Between,
            rest: 0,
            version: 0,
            acknowledge: false,
            topics_left: 0,
            partitions_left: 0,
            answer: Vec::new(),
        }
    }

    /// Takes a request, or the head of a Produce request.
    fn frame(&mut self, input: &[u8], answers: &mut Vec<u8>) -> Result<Option<usize>> {
        let mut scan = Scan::new(input);
        let Some(length) = scan.u32() else { return Ok(None) };
        let length = length as usize;
        ensure!((8..=MESSAGE_BYTES_MAX).contains(&length), "a frame of {length} bytes");
        let frame = 4 + length;
        let Some(api) = scan.i16() else { return Ok(None) };
        if api != PRODUCE {
            ensure!(length <= PIECE_BYTES_MAX - 4, "a request of {length} bytes");
            let Some(request) = input.get(4..frame) else { return Ok(None) };
            self.control(request, answers)?;
            return Ok(Some(frame));
        }
        let present = &input[..input.len().min(frame)];
        let taken = self.head(present)?;
        match taken {
            Some(taken) => self.rest = frame - taken,
            None => ensure!(input.len() < frame, "a Produce request without a head"),
        }
        Ok(taken)
    }

    /// Begins a Produce request.
    fn head(&mut self, frame: &[u8]) -> Result<Option<usize>> {
        let mut scan = Scan::new(frame);
        // Length and API key are known.
        scan.take(6);
        let (Some(version), Some(correlation)) = (scan.i16(), scan.take(4)) else { return Ok(None) };
        ensure!((3..=8).contains(&version), "Produce in version {version}");
        let texts = skip_text(&mut scan).and_then(|()| skip_text(&mut scan));
        let (Some(()), Some(acks), Some(_timeout), Some(topics)) = (texts, scan.i16(), scan.i32(), scan.u32()) else {
            return Ok(None);
        };
        self.version = version;
        self.acknowledge = acks != 0;
        self.topics_left = topics;
        self.stage = Stage::Topic;
        self.answer.clear();
        self.answer.extend_from_slice(&[0; 4]);
        self.answer.extend_from_slice(correlation);
        self.answer.extend_from_slice(&topics.to_be_bytes());
        Ok(Some(scan.position()))
    }

    fn topic(&mut self, input: &[u8]) -> Option<usize> {
        let present = &input[..input.len().min(self.rest)];
        let mut scan = Scan::new(present);
        skip_text(&mut scan)?;
        self.partitions_left = scan.u32()?;
        self.topics_left -= 1;
        self.stage = Stage::Partition;
        // The answer says name and count the same way.
        self.answer.extend_from_slice(&present[..scan.position()]);
        Some(scan.position())
    }

    fn partition(&mut self, input: &[u8]) -> Result<Option<usize>> {
        let mut scan = Scan::new(&input[..input.len().min(self.rest)]);
        let (Some(index), Some(length)) = (scan.take(4), scan.i32()) else { return Ok(None) };
        let taken = scan.position() + usize::try_from(length.max(0))?;
        ensure!(taken <= self.rest, "batches of {length} bytes in the last {} of a request", self.rest);
        self.partitions_left -= 1;
        let answer = &mut self.answer;
        answer.extend_from_slice(index);
        answer.extend_from_slice(&0_i16.to_be_bytes());
        answer.extend_from_slice(&0_i64.to_be_bytes());
        answer.extend_from_slice(&(-1_i64).to_be_bytes());
        if self.version >= 5 {
            answer.extend_from_slice(&0_i64.to_be_bytes());
        }
        if self.version >= 8 {
            answer.extend_from_slice(&0_i32.to_be_bytes());
            answer.extend_from_slice(&(-1_i16).to_be_bytes());
        }
        Ok(Some(taken))
    }

    fn finish(&mut self, answers: &mut Vec<u8>) -> Result<()> {
        ensure!(self.rest == 0, "{} bytes follow a Produce request", self.rest);
        self.stage = Stage::Between;
        if self.acknowledge {
            self.answer.extend_from_slice(&0_i32.to_be_bytes());
            let length = (self.answer.len() - 4) as u32;
            self.answer[..4].copy_from_slice(&length.to_be_bytes());
            answers.extend_from_slice(&self.answer);
        }
        Ok(())
    }

    /// Answers a request that is not Produce.
    fn control(&self, request: &[u8], answers: &mut Vec<u8>) -> Result<()> {
        let (head, mut reader) = RequestHeader::decode(Bytes::copy_from_slice(request))?;
        let api = ApiKey::find(head.api_key).context("an unknown API")?;
        let version = head.api_version;
        let served = ANNOUNCED.iter().any(|(key, first, last)| *key == api.key && (*first..=*last).contains(&version));
        let mut writer = Writer::new();
        encode_response_header(&mut writer, api, version, head.correlation_id);
        match api.key {
            // The answer to a version from the future is in the oldest, so that it is understood.
            API_VERSIONS if !served => versions(ErrorCode::UnsupportedVersion.code()).encode(&mut writer, 0),
            API_VERSIONS => versions(0).encode(&mut writer, version),
            METADATA if served => self.metadata(&mut reader, version)?.encode(&mut writer, version),
            CREATE_TOPICS if served => create(&mut reader, version)?.encode(&mut writer, version),
            DELETE_TOPICS if served => delete(&mut reader, version)?.encode(&mut writer, version),
            INIT_PRODUCER_ID if served => {
                InitProducerIdResponse { producer_id: 1, ..Default::default() }.encode(&mut writer, version);
            }
            _ => bail!("{} in version {version} is not served", api.name),
        }
        for piece in writer.finish_frame() {
            answers.extend_from_slice(&piece);
        }
        Ok(())
    }

    fn metadata(&self, reader: &mut Reader, version: i16) -> Result<MetadataResponse> {
        let names = MetadataRequest::decode(reader, version)?.topics.unwrap_or_default();
        let partitions = self.options.partitions as usize;
        ensure!(names.len().saturating_mul(partitions) <= LISTED_MAX, "metadata of {} topics", names.len());
        let partition = |index| MetadataResponsePartition {
            partition_index: index,
            leader_id: NODE,
            leader_epoch: 0,
            replica_nodes: vec![NODE],
            isr_nodes: vec![NODE],
            ..MetadataResponsePartition::default()
        };
        let topic = |name| MetadataResponseTopic {
            name,
            partitions: (0..self.options.partitions as i32).map(partition).collect(),
            ..MetadataResponseTopic::default()
        };
        let this = MetadataResponseBroker {
            node_id: NODE,
            host: Str::from(self.address.ip().to_string()),
            port: i32::from(self.address.port()),
            ..MetadataResponseBroker::default()
        };
        Ok(MetadataResponse {
            brokers: vec![this],
            cluster_id: Some(Str::from_static("null")),
            controller_id: NODE,
            topics: names.into_iter().map(|asked| topic(asked.name)).collect(),
            ..MetadataResponse::default()
        })
    }
}

/// Steps over a string or null.
fn skip_text(scan: &mut Scan<'_>) -> Option<()> {
    let length = scan.i16()?;
    scan.take(usize::try_from(length).unwrap_or(0)).map(|_| ())
}

fn versions(error_code: i16) -> ApiVersionsResponse {
    let one = |(key, first, last): (i16, i16, i16)| ApiVersion {
        api_key: key,
        min_version: first,
        max_version: last,
        ..ApiVersion::default()
    };
    ApiVersionsResponse { error_code, api_keys: ANNOUNCED.map(one).to_vec(), ..ApiVersionsResponse::default() }
}

fn create(reader: &mut Reader, version: i16) -> Result<CreateTopicsResponse> {
    let asked = CreateTopicsRequest::decode(reader, version)?.topics;
    let topics =
        asked.into_iter().map(|topic| CreatableTopicResult { name: topic.name, ..Default::default() }).collect();
    Ok(CreateTopicsResponse { topics, ..CreateTopicsResponse::default() })
}

fn delete(reader: &mut Reader, version: i16) -> Result<DeleteTopicsResponse> {
    let asked = DeleteTopicsRequest::decode(reader, version)?.topic_names;
    let responses =
        asked.into_iter().map(|name| DeletableTopicResult { name: Some(name), ..Default::default() }).collect();
    Ok(DeleteTopicsResponse { responses, ..DeleteTopicsResponse::default() })
}
