//! Answers before they are bytes.

use bytes::Bytes;
use kafka_wire::{ApiKey, DecodeError, ErrorCode, Writer, encode_response_header};

/// Something that can be the body of a response.
pub trait Body: Send {
    /// Writes it for a version.
    fn encode(&self, writer: &mut Writer, version: i16);
    /// Tells the client that it is not heard for so many milliseconds; a few answers cannot say that.
    fn set_throttle(&mut self, _milliseconds: i32) {}
    /// It is not sent.
    fn silence(&self) -> Option<Silence> {
        None
    }
    /// It is none, since the request makes no sense: the connection ends.
    fn malformed(&self) -> Option<DecodeError> {
        None
    }
}

/// The client wants no answer. If its request was refused the connection ends.
#[derive(Clone, Copy)]
pub struct Silence {
    /// Of the refusal.
    pub refused: Option<ErrorCode>,
}

impl Body for Silence {
    fn encode(&self, _writer: &mut Writer, _version: i16) {}

    fn silence(&self) -> Option<Silence> {
        Some(*self)
    }
}

macro_rules! bodies {
    ($($module:ident::$name:ident),* $(,)?; $($silent:ident::$silent_name:ident),* $(,)?) => {
        $(impl Body for kafka_wire::$module::$name {
            fn encode(&self, writer: &mut Writer, version: i16) {
                kafka_wire::$module::$name::encode(self, writer, version);
            }

            fn set_throttle(&mut self, milliseconds: i32) {
                self.throttle_time_ms = milliseconds;
            }
        })*
        $(impl Body for kafka_wire::$silent::$silent_name {
            fn encode(&self, writer: &mut Writer, version: i16) {
                kafka_wire::$silent::$silent_name::encode(self, writer, version);
            }
        })*
    };
}

bodies!(
    api_versions::ApiVersionsResponse, metadata::MetadataResponse, produce::ProduceResponse, fetch::FetchResponse,
    list_offsets::ListOffsetsResponse, init_producer_id::InitProducerIdResponse, create_topics::CreateTopicsResponse,
    delete_topics::DeleteTopicsResponse, create_partitions::CreatePartitionsResponse, delete_records::DeleteRecordsResponse,
    describe_configs::DescribeConfigsResponse, alter_configs::AlterConfigsResponse,
    incremental_alter_configs::IncrementalAlterConfigsResponse, find_coordinator::FindCoordinatorResponse,
    join_group::JoinGroupResponse, sync_group::SyncGroupResponse, heartbeat::HeartbeatResponse,
    leave_group::LeaveGroupResponse, offset_commit::OffsetCommitResponse, offset_fetch::OffsetFetchResponse,
    offset_delete::OffsetDeleteResponse, list_groups::ListGroupsResponse, describe_groups::DescribeGroupsResponse,
    delete_groups::DeleteGroupsResponse, offset_for_leader_epoch::OffsetForLeaderEpochResponse,
    describe_cluster::DescribeClusterResponse, describe_topic_partitions::DescribeTopicPartitionsResponse,
    get_telemetry_subscriptions::GetTelemetrySubscriptionsResponse, push_telemetry::PushTelemetryResponse,
    describe_log_dirs::DescribeLogDirsResponse, describe_acls::DescribeAclsResponse, create_acls::CreateAclsResponse,
    delete_acls::DeleteAclsResponse, elect_leaders::ElectLeadersResponse,
    alter_replica_log_dirs::AlterReplicaLogDirsResponse,
    alter_partition_reassignments::AlterPartitionReassignmentsResponse,
    list_partition_reassignments::ListPartitionReassignmentsResponse, list_config_resources::ListConfigResourcesResponse,
    add_partitions_to_txn::AddPartitionsToTxnResponse, add_offsets_to_txn::AddOffsetsToTxnResponse, end_txn::EndTxnResponse,
    txn_offset_commit::TxnOffsetCommitResponse,
    describe_transactions::DescribeTransactionsResponse, list_transactions::ListTransactionsResponse,
    describe_producers::DescribeProducersResponse, share_fetch::ShareFetchResponse,
    share_acknowledge::ShareAcknowledgeResponse, describe_share_group_offsets::DescribeShareGroupOffsetsResponse,
    alter_share_group_offsets::AlterShareGroupOffsetsResponse, delete_share_group_offsets::DeleteShareGroupOffsetsResponse,
    update_features::UpdateFeaturesResponse,
    describe_user_scram_credentials::DescribeUserScramCredentialsResponse,
    alter_user_scram_credentials::AlterUserScramCredentialsResponse,
    consumer_group_heartbeat::ConsumerGroupHeartbeatResponse,
    consumer_group_describe::ConsumerGroupDescribeResponse,
    share_group_heartbeat::ShareGroupHeartbeatResponse, share_group_describe::ShareGroupDescribeResponse,
    streams_group_heartbeat::StreamsGroupHeartbeatResponse, streams_group_describe::StreamsGroupDescribeResponse,
    describe_client_quotas::DescribeClientQuotasResponse, alter_client_quotas::AlterClientQuotasResponse;
    describe_quorum::DescribeQuorumResponse, write_txn_markers::WriteTxnMarkersResponse, sasl_handshake::SaslHandshakeResponse,
    sasl_authenticate::SaslAuthenticateResponse,
);

/// A whole response frame. `None`: it is longer than the length in front of it can say.
pub(crate) fn frame(api: &ApiKey, version: i16, correlation_id: i32, body: &dyn Body) -> Option<Vec<Bytes>> {
    let mut writer = Writer::with_capacity(256);
    encode_response_header(&mut writer, api, version, correlation_id);
    body.encode(&mut writer, version);
    (writer.len() <= i32::MAX as usize).then(|| writer.finish_frame())
}
