//! InitProducerId: producer ids for idempotent producers; those with a transactional id get theirs from the coordinator.

use broker::{AclOperation, AclResource};
use kafka_wire::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use kafka_wire::{DecodeError, ErrorCode, Reader};

use super::{Outcome, control};
use crate::error_code::of_append;
use crate::session::Context;

pub(super) fn refused(code: ErrorCode) -> InitProducerIdResponse {
    InitProducerIdResponse { error_code: code.code(), producer_id: -1, producer_epoch: -1, ..Default::default() }
}

fn granted(id: i64) -> InitProducerIdResponse {
    InitProducerIdResponse { producer_id: id, producer_epoch: 0, ..Default::default() }
}

pub(crate) fn handle(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = InitProducerIdRequest::decode(reader, context.version)?;
    if request.transactional_id.as_deref() == Some("") {
        return Ok(Outcome::answer(refused(ErrorCode::InvalidRequest)));
    }
    if (request.producer_id == -1) != (request.producer_epoch == -1) {
        return Ok(Outcome::answer(refused(ErrorCode::InvalidRequest)));
    }
    let asking = context.asking();
    if let Some(id) = request.transactional_id.clone() {
        if let Err(code) = asking.check_transaction(AclOperation::Write, &id) {
            return Ok(Outcome::answer(refused(code)));
        }
        return Ok(super::transactions::init(request, id, context));
    }
    if !asking.may_some(AclOperation::Write, AclResource::Topic)
        && let Err(code) = asking.check_cluster(AclOperation::IdempotentWrite)
    {
        return Ok(Outcome::answer(refused(code)));
    }
    Ok(match context.gateway.broker.take_producer_id() {
        Some(id) => Outcome::answer(granted(id)),
        None => control(
            context,
            || refused(ErrorCode::CoordinatorLoadInProgress),
            |broker, _| broker.reserve_producer_ids().map_or_else(|error| refused(of_append(error)), granted),
        ),
    })
}
