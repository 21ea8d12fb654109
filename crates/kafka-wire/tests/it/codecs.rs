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
    /// Decodes what a reader may hold, and drops the result.
    pub within: fn(Reader, i16) -> Result<(), DecodeError>,
    /// Decodes and encodes with ours.
    pub ours: fn(Bytes, i16) -> Result<Passed, DecodeError>,
    /// Decodes and encodes with theirs.
    pub theirs: fn(Bytes, i16) -> Result<Passed, String>,
    /// First and last version of theirs; none when the last is -1.
    pub their_versions: (i16, i16),
}

/// The pieces of a finished message in one.
pub fn joined(writer: Writer) -> Vec<u8> {
    writer.finish().concat()
}

macro_rules! codec {
    ($module:ident :: $name:ident, $response:literal, $theirs:expr, $versions:expr) => {
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
            within: |mut reader, version| kafka_wire::$module::$name::decode(&mut reader, version).map(drop),
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
            theirs: $theirs,
            their_versions: $versions,
        }
    };
}

/// A message that both know.
macro_rules! shared {
    ($module:ident :: $name:ident, $response:literal) => {
        codec!(
            $module::$name,
            $response,
            |mut bytes, version| {
                let fail = |error| format!("{error:#}");
                let message = theirs::$name::decode(&mut bytes, version).map_err(fail)?;
                if !bytes.is_empty() {
                    return Err(format!("{} bytes left", bytes.len()));
                }
                let mut out = BytesMut::new();
                message.encode(&mut out, version).map_err(fail)?;
                Ok(Passed { bytes: out.to_vec(), text: format!("{message:?}") })
            },
            (theirs::$name::VERSIONS.min, theirs::$name::VERSIONS.max)
        )
    };
}

/// A message that the crate does not know.
macro_rules! alone {
    ($module:ident :: $name:ident, $response:literal) => {
        codec!($module::$name, $response, |_, _| Err("not known".to_owned()), (0, -1))
    };
}

macro_rules! codecs {
    ($($known:ident $module:ident :: { $request:ident, $response:ident };)*) => {
        const CODECS: &[(&str, [Codec; 2])] =
            &[$((stringify!($module), [$known!($module::$request, false), $known!($module::$response, true)])),*];
    };
}

codecs! {
    shared add_offsets_to_txn::{ AddOffsetsToTxnRequest, AddOffsetsToTxnResponse };
    shared add_partitions_to_txn::{ AddPartitionsToTxnRequest, AddPartitionsToTxnResponse };
    shared alter_client_quotas::{ AlterClientQuotasRequest, AlterClientQuotasResponse };
    shared alter_configs::{ AlterConfigsRequest, AlterConfigsResponse };
    shared alter_partition_reassignments::{ AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse };
    shared alter_replica_log_dirs::{ AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse };
    shared alter_share_group_offsets::{ AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse };
    shared alter_user_scram_credentials::{ AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse };
    shared api_versions::{ ApiVersionsRequest, ApiVersionsResponse };
    shared consumer_group_describe::{ ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse };
    shared consumer_group_heartbeat::{ ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse };
    shared create_acls::{ CreateAclsRequest, CreateAclsResponse };
    shared create_partitions::{ CreatePartitionsRequest, CreatePartitionsResponse };
    shared create_topics::{ CreateTopicsRequest, CreateTopicsResponse };
    shared delete_acls::{ DeleteAclsRequest, DeleteAclsResponse };
    shared delete_groups::{ DeleteGroupsRequest, DeleteGroupsResponse };
    shared delete_records::{ DeleteRecordsRequest, DeleteRecordsResponse };
    shared delete_share_group_offsets::{ DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse };
    shared delete_topics::{ DeleteTopicsRequest, DeleteTopicsResponse };
    shared describe_acls::{ DescribeAclsRequest, DescribeAclsResponse };
    shared describe_client_quotas::{ DescribeClientQuotasRequest, DescribeClientQuotasResponse };
    shared describe_cluster::{ DescribeClusterRequest, DescribeClusterResponse };
    shared describe_configs::{ DescribeConfigsRequest, DescribeConfigsResponse };
    shared describe_groups::{ DescribeGroupsRequest, DescribeGroupsResponse };
    shared describe_log_dirs::{ DescribeLogDirsRequest, DescribeLogDirsResponse };
    shared describe_producers::{ DescribeProducersRequest, DescribeProducersResponse };
    shared describe_quorum::{ DescribeQuorumRequest, DescribeQuorumResponse };
    shared describe_share_group_offsets::{ DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse };
    shared describe_topic_partitions::{ DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse };
    shared describe_transactions::{ DescribeTransactionsRequest, DescribeTransactionsResponse };
    shared describe_user_scram_credentials::{ DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse };
    shared elect_leaders::{ ElectLeadersRequest, ElectLeadersResponse };
    shared end_txn::{ EndTxnRequest, EndTxnResponse };
    shared fetch::{ FetchRequest, FetchResponse };
    shared find_coordinator::{ FindCoordinatorRequest, FindCoordinatorResponse };
    shared get_telemetry_subscriptions::{ GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse };
    shared heartbeat::{ HeartbeatRequest, HeartbeatResponse };
    shared incremental_alter_configs::{ IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse };
    shared init_producer_id::{ InitProducerIdRequest, InitProducerIdResponse };
    shared join_group::{ JoinGroupRequest, JoinGroupResponse };
    shared leave_group::{ LeaveGroupRequest, LeaveGroupResponse };
    shared list_config_resources::{ ListConfigResourcesRequest, ListConfigResourcesResponse };
    shared list_groups::{ ListGroupsRequest, ListGroupsResponse };
    shared list_offsets::{ ListOffsetsRequest, ListOffsetsResponse };
    shared list_partition_reassignments::{ ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse };
    shared list_transactions::{ ListTransactionsRequest, ListTransactionsResponse };
    shared metadata::{ MetadataRequest, MetadataResponse };
    shared offset_commit::{ OffsetCommitRequest, OffsetCommitResponse };
    shared offset_delete::{ OffsetDeleteRequest, OffsetDeleteResponse };
    shared offset_fetch::{ OffsetFetchRequest, OffsetFetchResponse };
    shared offset_for_leader_epoch::{ OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse };
    shared produce::{ ProduceRequest, ProduceResponse };
    shared push_telemetry::{ PushTelemetryRequest, PushTelemetryResponse };
    shared sasl_authenticate::{ SaslAuthenticateRequest, SaslAuthenticateResponse };
    shared sasl_handshake::{ SaslHandshakeRequest, SaslHandshakeResponse };
    shared share_acknowledge::{ ShareAcknowledgeRequest, ShareAcknowledgeResponse };
    shared share_fetch::{ ShareFetchRequest, ShareFetchResponse };
    shared share_group_describe::{ ShareGroupDescribeRequest, ShareGroupDescribeResponse };
    shared share_group_heartbeat::{ ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse };
    alone streams_group_describe::{ StreamsGroupDescribeRequest, StreamsGroupDescribeResponse };
    alone streams_group_heartbeat::{ StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse };
    shared sync_group::{ SyncGroupRequest, SyncGroupResponse };
    shared txn_offset_commit::{ TxnOffsetCommitRequest, TxnOffsetCommitResponse };
    shared update_features::{ UpdateFeaturesRequest, UpdateFeaturesResponse };
    shared write_txn_markers::{ WriteTxnMarkersRequest, WriteTxnMarkersResponse };
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
