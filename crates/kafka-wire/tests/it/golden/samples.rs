//! Samples of what moves records: every field that a version has is set, mostly to what is not its default.

use bytes::Bytes;
use kafka_protocol::messages as theirs;
use kafka_protocol::messages::{BrokerId, TopicName, TransactionalId};
use kafka_protocol::protocol::StrBytes;
use theirs::api_versions_response::{ApiVersion, FinalizedFeatureKey, SupportedFeatureKey};
use theirs::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use theirs::fetch_response as fetched;
use theirs::metadata_request::MetadataRequestTopic;
use theirs::metadata_response::{MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic};
use theirs::produce_request::{PartitionProduceData, TopicProduceData};
use theirs::produce_response as produced;
use uuid::Uuid;

const TOPIC_ID: Uuid = Uuid::from_u128(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f);

pub fn text(text: &'static str) -> StrBytes {
    StrBytes::from_static_str(text)
}

pub fn orders() -> TopicName {
    TopicName(text("orders"))
}

pub fn topic_id() -> Uuid {
    TOPIC_ID
}

pub fn produce_request(version: i16) -> theirs::ProduceRequest {
    let full = PartitionProduceData::default().with_index(3).with_records(Some(Bytes::from_static(b"batch")));
    let empty = PartitionProduceData::default().with_index(4).with_records(None);
    let topic = TopicProduceData::default().with_partition_data(vec![full, empty]);
    let topic = if version <= 12 { topic.with_name(orders()) } else { topic.with_topic_id(TOPIC_ID) };
    theirs::ProduceRequest::default()
        .with_transactional_id(Some(TransactionalId(text("payer"))))
        .with_acks(-1)
        .with_timeout_ms(30_000)
        .with_topic_data(vec![topic])
}

pub fn produce_response(version: i16) -> theirs::ProduceResponse {
    let mut partition = produced::PartitionProduceResponse::default()
        .with_index(3)
        .with_error_code(87)
        .with_base_offset(0x0102_0304_0506)
        .with_log_append_time_ms(1_700_000_000_000)
        .with_log_start_offset(12);
    if version >= 8 {
        let error = produced::BatchIndexAndErrorMessage::default().with_batch_index(2);
        partition.record_errors = vec![error.with_batch_index_error_message(Some(text("no key")))];
        partition.error_message = Some(text("bad records"));
    }
    if version >= 10 {
        let leader = produced::LeaderIdAndEpoch::default().with_leader_id(BrokerId(2)).with_leader_epoch(9);
        partition.current_leader = leader;
    }
    let topic = produced::TopicProduceResponse::default().with_partition_responses(vec![partition]);
    let topic = if version <= 12 { topic.with_name(orders()) } else { topic.with_topic_id(TOPIC_ID) };
    let mut response = theirs::ProduceResponse::default().with_responses(vec![topic]).with_throttle_time_ms(5);
    if version >= 10 {
        let node = produced::NodeEndpoint::default().with_node_id(BrokerId(2)).with_host(text("node-2"));
        response.node_endpoints = vec![node.with_port(9092).with_rack(Some(text("r1")))];
    }
    response
}

fn fetch_partition(version: i16) -> FetchPartition {
    let mut partition = FetchPartition::default()
        .with_partition(3)
        .with_current_leader_epoch(6)
        .with_fetch_offset(1000)
        .with_log_start_offset(12)
        .with_partition_max_bytes(1 << 20);
    if version >= 12 {
        partition.last_fetched_epoch = 5;
    }
    if version >= 17 {
        partition.replica_directory_id = TOPIC_ID;
    }
    if version >= 18 {
        partition.high_watermark = 990;
    }
    partition
}

pub fn fetch_request(version: i16) -> theirs::FetchRequest {
    let by_name = version <= 12;
    let topic = FetchTopic::default().with_partitions(vec![fetch_partition(version)]);
    let topic = if by_name { topic.with_topic(orders()) } else { topic.with_topic_id(TOPIC_ID) };
    let mut request = theirs::FetchRequest::default()
        .with_max_wait_ms(500)
        .with_min_bytes(1)
        .with_max_bytes(50 << 20)
        .with_isolation_level(1)
        .with_topics(vec![topic]);
    if version >= 7 {
        let gone = ForgottenTopic::default().with_partitions(vec![1, 2]);
        let gone = if by_name { gone.with_topic(orders()) } else { gone.with_topic_id(TOPIC_ID) };
        request.forgotten_topics_data = vec![gone];
        request.session_id = 77;
        request.session_epoch = 2;
    }
    if version >= 11 {
        request.rack_id = text("r1");
    }
    if version >= 12 {
        request.cluster_id = Some(text("cluster"));
    }
    if version >= 15 {
        request.replica_state.replica_id = BrokerId(4);
        request.replica_state.replica_epoch = 8;
    } else {
        request.replica_id = BrokerId(4);
    }
    request
}

fn fetched_partition(version: i16) -> fetched::PartitionData {
    let aborted = fetched::AbortedTransaction::default().with_producer_id(4000.into()).with_first_offset(1001);
    let mut partition = fetched::PartitionData::default()
        .with_partition_index(3)
        .with_error_code(74)
        .with_high_watermark(1010)
        .with_last_stable_offset(1005)
        .with_log_start_offset(12)
        .with_aborted_transactions(Some(vec![aborted]))
        .with_records(Some(Bytes::from_static(b"batch")));
    if version >= 11 {
        partition.preferred_read_replica = BrokerId(5);
    }
    if version >= 12 {
        partition.diverging_epoch = fetched::EpochEndOffset::default().with_epoch(4).with_end_offset(900);
        let leader = fetched::LeaderIdAndEpoch::default().with_leader_id(BrokerId(2)).with_leader_epoch(9);
        partition.current_leader = leader;
        partition.snapshot_id = fetched::SnapshotId::default().with_end_offset(800).with_epoch(3);
    }
    partition
}

pub fn fetch_response(version: i16) -> theirs::FetchResponse {
    let empty = fetched::PartitionData::default().with_partition_index(4).with_aborted_transactions(None);
    let partitions = vec![fetched_partition(version), empty.with_records(None)];
    let topic = fetched::FetchableTopicResponse::default().with_partitions(partitions);
    let topic = if version <= 12 { topic.with_topic(orders()) } else { topic.with_topic_id(TOPIC_ID) };
    let mut response = theirs::FetchResponse::default().with_throttle_time_ms(5).with_responses(vec![topic]);
    if version >= 7 {
        response.session_id = 77;
        response.error_code = 70;
    }
    if version >= 16 {
        let node = fetched::NodeEndpoint::default().with_node_id(BrokerId(2)).with_host(text("node-2"));
        response.node_endpoints = vec![node.with_port(9092).with_rack(None)];
    }
    response
}

/// From version 10 one topic by name and one by id.
pub fn metadata_request(version: i16) -> theirs::MetadataRequest {
    let mut topics = vec![MetadataRequestTopic::default().with_name(Some(orders()))];
    if version >= 10 {
        topics.push(MetadataRequestTopic::default().with_name(None).with_topic_id(TOPIC_ID));
    }
    theirs::MetadataRequest::default()
        .with_topics(Some(topics))
        .with_allow_auto_topic_creation(version < 4)
        .with_include_cluster_authorized_operations((8..=10).contains(&version))
        .with_include_topic_authorized_operations(version >= 8)
}

pub fn metadata_response(version: i16) -> theirs::MetadataResponse {
    let mut broker = MetadataResponseBroker::default().with_node_id(BrokerId(1)).with_host(text("node-1"));
    broker = broker.with_port(9092).with_rack(Some(text("r1")));
    let mut partition = MetadataResponsePartition::default().with_error_code(5).with_partition_index(3);
    partition = partition.with_leader_id(BrokerId(1)).with_leader_epoch(6);
    partition = partition.with_replica_nodes(vec![BrokerId(1), BrokerId(2)]).with_isr_nodes(vec![BrokerId(1)]);
    partition = partition.with_offline_replicas(vec![BrokerId(2)]);
    let mut topic = MetadataResponseTopic::default().with_error_code(3).with_name(Some(orders()));
    topic = topic.with_is_internal(true).with_partitions(vec![partition]);
    if version >= 8 {
        topic.topic_authorized_operations = 0x0df8;
    }
    if version >= 10 {
        topic.topic_id = TOPIC_ID;
    }
    let mut response = theirs::MetadataResponse::default().with_throttle_time_ms(5).with_brokers(vec![broker]);
    response = response.with_cluster_id(Some(text("cluster"))).with_controller_id(BrokerId(1)).with_topics(vec![topic]);
    if (8..=10).contains(&version) {
        response.cluster_authorized_operations = 0x0700;
    }
    if version >= 13 {
        response.error_code = 129;
    }
    response
}

pub fn api_versions_request(version: i16) -> theirs::ApiVersionsRequest {
    if version < 3 {
        return theirs::ApiVersionsRequest::default();
    }
    theirs::ApiVersionsRequest::default()
        .with_client_software_name(text("client"))
        .with_client_software_version(text("1.2.3"))
}

pub fn api_versions_response(version: i16) -> theirs::ApiVersionsResponse {
    let api = |key, min, max| ApiVersion::default().with_api_key(key).with_min_version(min).with_max_version(max);
    let mut response = theirs::ApiVersionsResponse::default().with_error_code(35);
    response = response.with_api_keys(vec![api(0, 3, 13), api(18, 0, 4)]).with_throttle_time_ms(5);
    if version >= 3 {
        let supported = SupportedFeatureKey::default().with_name(text("group.version")).with_min_version(1);
        response.supported_features = vec![supported.with_max_version(2)];
        response.finalized_features_epoch = 44;
        let finalized = FinalizedFeatureKey::default().with_name(text("group.version")).with_max_version_level(2);
        response.finalized_features = vec![finalized.with_min_version_level(1)];
        response.zk_migration_ready = true;
    }
    response
}
