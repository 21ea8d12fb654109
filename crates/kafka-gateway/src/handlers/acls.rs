//! ACL administration: there is no authorizer, and clients are told so.

use kafka_wire::create_acls::{AclCreationResult, CreateAclsRequest, CreateAclsResponse};
use kafka_wire::delete_acls::{DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse};
use kafka_wire::describe_acls::{DescribeAclsRequest, DescribeAclsResponse};
use kafka_wire::{DecodeError, ErrorCode, Reader, Str};

use super::Outcome;
use crate::session::Context;

const MESSAGE: Str = Str::from_static("No Authorizer is configured.");
const CODE: i16 = ErrorCode::SecurityDisabled.code();

pub(crate) fn describe(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    DescribeAclsRequest::decode(reader, context.version)?;
    Ok(Outcome::answer(DescribeAclsResponse { error_code: CODE, error_message: Some(MESSAGE), ..Default::default() }))
}

pub(crate) fn create(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = CreateAclsRequest::decode(reader, context.version)?;
    let refused = AclCreationResult { error_code: CODE, error_message: Some(MESSAGE), ..Default::default() };
    Ok(Outcome::answer(CreateAclsResponse { results: vec![refused; request.creations.len()], ..Default::default() }))
}

pub(crate) fn delete(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = DeleteAclsRequest::decode(reader, context.version)?;
    let refused = DeleteAclsFilterResult { error_code: CODE, error_message: Some(MESSAGE), ..Default::default() };
    Ok(Outcome::answer(DeleteAclsResponse { filter_results: vec![refused; request.filters.len()], ..Default::default() }))
}
