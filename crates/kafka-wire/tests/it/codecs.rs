//! The table of all messages with both codecs, ours and the crate `kafka-protocol`'s.

use std::path::Path;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages as theirs;
use kafka_protocol::protocol::{Decodable, Encodable, Message as _};
use kafka_wire::{DecodeError, Reader, Writer};
use kafka_wire_gen::Api;

/// A message that went through a codec: its bytes again, and its fields as text.
#[derive(Debug, PartialEq)]
pub struct Passed {
    pub bytes: Vec<u8>,
    pub text: String,
}

/// One message and its two codecs.
pub struct Codec {
    pub name: &'static str,
    pub response: bool,
    /// Decodes, with nothing left, and drops the result.
    pub decode: fn(Bytes, i16) -> Result<(), DecodeError>,
    /// Decodes and encodes with ours.
    pub ours: fn(Bytes, i16) -> Result<Passed, DecodeError>,
    /// Decodes and encodes with theirs.
    pub theirs: fn(Bytes, i16) -> Result<Passed, String>,
    /// First and last version of theirs.
    pub their_versions: (i16, i16),
}

/// The pieces of a finished message in one.
pub fn joined(writer: Writer) -> Vec<u8> {
    writer.finish().concat()
}

macro_rules! codec {
    ($module:ident :: $name:ident, $response:literal) => {
        Codec {
            name: stringify!($name),
            response: $response,
            decode: |bytes, version| {
                let mut reader = Reader::new(bytes);
                let message = kafka_wire::$module::$name::decode(&mut reader, version)?;
                reader.end()?;
                drop(message);
                Ok(())
            },
            ours: |bytes, version| {
                let mut reader = Reader::new(bytes);
                let message = kafka_wire::$module::$name::decode(&mut reader, version)?;
                reader.end()?;
                let mut writer = Writer::new();
                message.encode(&mut writer, version);
                let bytes = joined(writer);
                let again = kafka_wire::$module::$name::decode(&mut Reader::new(bytes.clone().into()), version)?;
                assert_eq!(again, message, "{} {version} changes on its way", stringify!($name));
                Ok(Passed { bytes, text: format!("{message:?}") })
            },
            theirs: |mut bytes, version| {
                let fail = |error| format!("{error:#}");
                let message = theirs::$name::decode(&mut bytes, version).map_err(fail)?;
                if !bytes.is_empty() {
                    return Err(format!("{} bytes left", bytes.len()));
                }
                let mut out = BytesMut::new();
                message.encode(&mut out, version).map_err(fail)?;
                Ok(Passed { bytes: out.to_vec(), text: format!("{message:?}") })
            },
            their_versions: (theirs::$name::VERSIONS.min, theirs::$name::VERSIONS.max),
        }
    };
}

macro_rules! codecs {
    ($($module:ident :: { $request:ident, $response:ident };)*) => {
        const CODECS: &[(&str, [Codec; 2])] =
            &[$((stringify!($module), [codec!($module::$request, false), codec!($module::$response, true)])),*];
    };
}

codecs! {
    add_offsets_to_txn::{ AddOffsetsToTxnRequest, AddOffsetsToTxnResponse };
    add_partitions_to_txn::{ AddPartitionsToTxnRequest, AddPartitionsToTxnResponse };
    alter_configs::{ AlterConfigsRequest, AlterConfigsResponse };
    alter_partition_reassignments::{ AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse };
    alter_replica_log_dirs::{ AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse };
    alter_share_group_offsets::{ AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse };
    api_versions::{ ApiVersionsRequest, ApiVersionsResponse };
    consumer_group_describe::{ ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse };
    consumer_group_heartbeat::{ ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse };
    create_acls::{ CreateAclsRequest, CreateAclsResponse };
    create_partitions::{ CreatePartitionsRequest, CreatePartitionsResponse };
    create_topics::{ CreateTopicsRequest, CreateTopicsResponse };
    delete_acls::{ DeleteAclsRequest, DeleteAclsResponse };
    delete_groups::{ DeleteGroupsRequest, DeleteGroupsResponse };
    delete_records::{ DeleteRecordsRequest, DeleteRecordsResponse };
    delete_share_group_offsets::{ DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse };
    delete_topics::{ DeleteTopicsRequest, DeleteTopicsResponse };
    describe_acls::{ DescribeAclsRequest, DescribeAclsResponse };
    describe_cluster::{ DescribeClusterRequest, DescribeClusterResponse };
    describe_configs::{ DescribeConfigsRequest, DescribeConfigsResponse };
    describe_groups::{ DescribeGroupsRequest, DescribeGroupsResponse };
    describe_log_dirs::{ DescribeLogDirsRequest, DescribeLogDirsResponse };
    describe_producers::{ DescribeProducersRequest, DescribeProducersResponse };
    describe_quorum::{ DescribeQuorumRequest, DescribeQuorumResponse };
    describe_share_group_offsets::{ DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse };
    describe_topic_partitions::{ DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse };
    describe_transactions::{ DescribeTransactionsRequest, DescribeTransactionsResponse };
    elect_leaders::{ ElectLeadersRequest, ElectLeadersResponse };
    end_txn::{ EndTxnRequest, EndTxnResponse };
    fetch::{ FetchRequest, FetchResponse };
    find_coordinator::{ FindCoordinatorRequest, FindCoordinatorResponse };
    get_telemetry_subscriptions::{ GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse };
    heartbeat::{ HeartbeatRequest, HeartbeatResponse };
    incremental_alter_configs::{ IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse };
    init_producer_id::{ InitProducerIdRequest, InitProducerIdResponse };
    join_group::{ JoinGroupRequest, JoinGroupResponse };
    leave_group::{ LeaveGroupRequest, LeaveGroupResponse };
    list_config_resources::{ ListConfigResourcesRequest, ListConfigResourcesResponse };
    list_groups::{ ListGroupsRequest, ListGroupsResponse };
    list_offsets::{ ListOffsetsRequest, ListOffsetsResponse };
    list_partition_reassignments::{ ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse };
    list_transactions::{ ListTransactionsRequest, ListTransactionsResponse };
    metadata::{ MetadataRequest, MetadataResponse };
    offset_commit::{ OffsetCommitRequest, OffsetCommitResponse };
    offset_delete::{ OffsetDeleteRequest, OffsetDeleteResponse };
    offset_fetch::{ OffsetFetchRequest, OffsetFetchResponse };
    offset_for_leader_epoch::{ OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse };
    produce::{ ProduceRequest, ProduceResponse };
    push_telemetry::{ PushTelemetryRequest, PushTelemetryResponse };
    share_acknowledge::{ ShareAcknowledgeRequest, ShareAcknowledgeResponse };
    share_fetch::{ ShareFetchRequest, ShareFetchResponse };
    share_group_describe::{ ShareGroupDescribeRequest, ShareGroupDescribeResponse };
    share_group_heartbeat::{ ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse };
    sync_group::{ SyncGroupRequest, SyncGroupResponse };
    txn_offset_commit::{ TxnOffsetCommitRequest, TxnOffsetCommitResponse };
    update_features::{ UpdateFeaturesRequest, UpdateFeaturesResponse };
    write_txn_markers::{ WriteTxnMarkersRequest, WriteTxnMarkersResponse };
}

/// A message with what the schema says of it.
pub struct Subject {
    pub module: &'static str,
    pub api: Api,
    pub codec: &'static Codec,
}

impl Subject {
    /// The versions that we speak.
    pub fn versions(&self) -> std::ops::RangeInclusive<i16> {
        self.api.versions.first..=self.api.versions.last
    }

    /// For the messages of failed assertions.
    pub fn label(&self, version: i16) -> String {
        format!("{} {version}", self.codec.name)
    }
}

/// Every request and every response of the schema.
pub fn subjects() -> Vec<Subject> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema");
    let mut subjects = Vec::new();
    for (module, api) in kafka_wire_gen::read_schema(&folder).expect("a schema") {
        let found = CODECS.iter().find(|(name, _)| *name == module);
        let (module, codecs) = found.unwrap_or_else(|| panic!("{module} is missing in the table of codecs"));
        subjects.extend(codecs.iter().map(|codec| Subject { module, api: api.clone(), codec }));
    }
    subjects
}
