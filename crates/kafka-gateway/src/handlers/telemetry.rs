//! Client telemetry (KIP-714): clients are told that nothing is wanted.

use kafka_wire::get_telemetry_subscriptions::{GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse};
use kafka_wire::push_telemetry::{PushTelemetryRequest, PushTelemetryResponse};
use kafka_wire::{DecodeError, ErrorCode, Reader};
use uuid::Uuid;

use super::Outcome;
use crate::session::Context;

/// The one subscription, to nothing.
const NO_SUBSCRIPTION: i32 = 0;
/// How often a client asks again, in ms.
const ASK_INTERVAL_MS: i32 = 300_000;

pub(crate) fn subscriptions(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = GetTelemetrySubscriptionsRequest::decode(reader, context.version)?;
    let client_instance_id =
        if request.client_instance_id.is_nil() { Uuid::new_v4() } else { request.client_instance_id };
    Ok(Outcome::answer(GetTelemetrySubscriptionsResponse {
        client_instance_id,
        accepted_compression_types: vec![4, 3, 2, 1],
        push_interval_ms: ASK_INTERVAL_MS,
        telemetry_max_bytes: 1 << 20,
        delta_temporality: true,
        ..GetTelemetrySubscriptionsResponse::default()
    }))
}

pub(crate) fn push(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = PushTelemetryRequest::decode(reader, context.version)?;
    let known = request.subscription_id == NO_SUBSCRIPTION;
    let error_code = if known { 0 } else { ErrorCode::UnknownSubscriptionId.code() };
    Ok(Outcome::answer(PushTelemetryResponse { error_code, ..PushTelemetryResponse::default() }))
}
