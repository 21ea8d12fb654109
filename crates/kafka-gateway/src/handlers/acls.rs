//! DescribeAcls, CreateAcls, DeleteAcls: access control entries. While the settings do not say that entries count, none are seen or
//! changed here, and clients are told so.

use std::sync::Arc;

use broker::{Acl, AclError, AclFilter, AclOperation, AclPattern, AclPatternFilter, AclPermission, AclResource};
use kafka_wire::create_acls::{AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse};
use kafka_wire::delete_acls::{
    DeleteAclsFilter, DeleteAclsFilterResult, DeleteAclsMatchingAcl, DeleteAclsRequest, DeleteAclsResponse,
};
use kafka_wire::describe_acls::{AclDescription, DescribeAclsRequest, DescribeAclsResource, DescribeAclsResponse};
use kafka_wire::{DecodeError, ErrorCode, Reader, Str};

use super::{Outcome, control};
use crate::access::Asking;
use crate::error_code::of_acl;
use crate::session::Context;

/// Of a type, an operation or a permission: all of them.
const ANY: i8 = 1;
const PATTERN_ANY: i8 = 1;
const PATTERN_MATCH: i8 = 2;

type Refusal = (ErrorCode, String);

/// May it be done at all?
fn check(asking: &Asking<'_>, operation: AclOperation) -> Result<(), Refusal> {
    if let Err(code) = asking.check_cluster(operation) {
        return Err((code, "Cluster authorization failed.".to_owned()));
    }
    if !asking.security.acls_enforced() {
        return Err((ErrorCode::SecurityDisabled, "No Authorizer is configured.".to_owned()));
    }
    Ok(())
}

fn invalid<T>(text: String) -> Result<T, Refusal> {
    Err((ErrorCode::InvalidRequest, text))
}

/// The one of this number.
fn one<T>(what: &str, number: i8, find: fn(u8) -> Option<T>) -> Result<T, Refusal> {
    let found = u8::try_from(number).ok().and_then(find);
    found.map_or_else(|| invalid(format!("Invalid {what} {number}")), Ok)
}

/// Any, or the one of this number.
fn any_or<T>(what: &str, number: i8, find: fn(u8) -> Option<T>) -> Result<Option<T>, Refusal> {
    if number == ANY { Ok(None) } else { one(what, number, find).map(Some) }
}

/// What filters have in all three APIs: type, name, pattern, principal, host, operation, permission.
type Asked<'a> = (i8, &'a Option<Str>, i8, &'a Option<Str>, &'a Option<Str>, i8, i8);

fn filter((resource, name, pattern, principal, host, operation, permission): Asked<'_>) -> Result<AclFilter, Refusal> {
    let text = |text: &Option<Str>| text.as_ref().map(ToString::to_string);
    Ok(AclFilter {
        resource: any_or("resourceType", resource, AclResource::of_number)?,
        name: text(name),
        pattern: match pattern {
            PATTERN_ANY => AclPatternFilter::Any,
            PATTERN_MATCH => AclPatternFilter::Match,
            other => AclPatternFilter::Is(one("patternType", other, AclPattern::of_number)?),
        },
        principal: text(principal),
        host: text(host),
        operation: any_or("operation", operation, AclOperation::of_number)?,
        permission: any_or("permissionType", permission, AclPermission::of_number)?,
    })
}

pub(crate) fn describe(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = DescribeAclsRequest::decode(reader, context.version)?;
    let asked = (
        request.resource_type_filter,
        &request.resource_name_filter,
        request.pattern_type_filter,
        &request.principal_filter,
        &request.host_filter,
        request.operation,
        request.permission_type,
    );
    let filter = match check(&context.asking(), AclOperation::Describe).and_then(|()| filter(asked)) {
        Ok(filter) => filter,
        Err((code, message)) => {
            let error_message = Some(message.into());
            return Ok(Outcome::answer(DescribeAclsResponse {
                error_code: code.code(),
                error_message,
                ..Default::default()
            }));
        }
    };
    let security = context.gateway.broker.security();
    if context.is_long(security.acl_count()) {
        return Ok(Outcome::Long);
    }
    let found = security.acls(&filter);
    let same = |one: &Arc<Acl>, other: &Arc<Acl>| {
        (one.resource, &one.name, one.pattern) == (other.resource, &other.name, other.pattern)
    };
    let resources = found.chunk_by(same).map(|entries| DescribeAclsResource {
        resource_type: entries[0].resource.number() as i8,
        resource_name: entries[0].name.as_str().into(),
        pattern_type: entries[0].pattern.number() as i8,
        acls: entries.iter().map(|acl| described(acl)).collect(),
        ..DescribeAclsResource::default()
    });
    Ok(Outcome::answer(DescribeAclsResponse {
        resources: resources.collect(),
        error_message: None,
        ..DescribeAclsResponse::default()
    }))
}

fn described(acl: &Acl) -> AclDescription {
    AclDescription {
        principal: acl.principal.as_str().into(),
        host: acl.host.as_str().into(),
        operation: acl.operation.number() as i8,
        permission_type: acl.permission.number() as i8,
        ..AclDescription::default()
    }
}

fn wish(creation: &AclCreation) -> Result<Acl, Refusal> {
    Ok(Acl {
        resource: one("resourceType", creation.resource_type, AclResource::of_number)?,
        name: creation.resource_name.to_string(),
        pattern: one("patternType", creation.resource_pattern_type, AclPattern::of_number)?,
        principal: creation.principal.to_string(),
        host: creation.host.to_string(),
        operation: one("operation", creation.operation, AclOperation::of_number)?,
        permission: one("permissionType", creation.permission_type, AclPermission::of_number)?,
    })
}

fn created(outcome: Result<(), Refusal>) -> AclCreationResult {
    let (error_code, error_message) =
        outcome.err().map_or((0, None), |(code, message)| (code.code(), Some(message.into())));
    AclCreationResult { error_code, error_message, ..AclCreationResult::default() }
}

fn busy() -> Refusal {
    (ErrorCode::RequestTimedOut, "The controller is busy.".to_owned())
}

fn refusal(error: &AclError) -> Refusal {
    (of_acl(error), error.to_string())
}

pub(crate) fn create(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = CreateAclsRequest::decode(reader, context.version)?;
    let count = request.creations.len();
    let all = move |refusal: Refusal| CreateAclsResponse {
        results: vec![created(Err(refusal)); count],
        ..Default::default()
    };
    if let Err(refusal) = check(&context.asking(), AclOperation::Alter) {
        return Ok(Outcome::answer(all(refusal)));
    }
    let acting = context.acting("CreateAcls");
    let wishes: Vec<Result<Acl, Refusal>> = request.creations.iter().map(wish).collect();
    Ok(control(
        context,
        move || all(busy()),
        move |broker, asking| {
            if let Err(refusal) = check(asking, AclOperation::Alter) {
                return all(refusal);
            }
            let mut made = broker.create_acls(wishes.iter().flatten().cloned().collect()).into_iter();
            let outcome = |wish: Result<Acl, Refusal>| match wish {
                Ok(wish) => {
                    let outcome = made.next().unwrap_or(Ok(())).map_err(|error| refusal(&error));
                    acting.note(&wish.to_string(), outcome.as_ref().err().map_or(0, |(code, _)| code.code()));
                    outcome
                }
                Err(refusal) => Err(refusal),
            };
            CreateAclsResponse { results: wishes.into_iter().map(outcome).map(created).collect(), ..Default::default() }
        },
    ))
}

fn picked(filter: &DeleteAclsFilter) -> Result<AclFilter, Refusal> {
    let DeleteAclsFilter {
        resource_type_filter,
        resource_name_filter,
        pattern_type_filter,
        principal_filter,
        host_filter,
        operation,
        permission_type,
        ..
    } = filter;
    self::filter((
        *resource_type_filter,
        resource_name_filter,
        *pattern_type_filter,
        principal_filter,
        host_filter,
        *operation,
        *permission_type,
    ))
}

fn removed(outcome: Result<Vec<Arc<Acl>>, Refusal>) -> DeleteAclsFilterResult {
    let matching = |acl: &Arc<Acl>| DeleteAclsMatchingAcl {
        error_message: None,
        resource_type: acl.resource.number() as i8,
        resource_name: acl.name.as_str().into(),
        pattern_type: acl.pattern.number() as i8,
        principal: acl.principal.as_str().into(),
        host: acl.host.as_str().into(),
        operation: acl.operation.number() as i8,
        permission_type: acl.permission.number() as i8,
        ..DeleteAclsMatchingAcl::default()
    };
    match outcome {
        Ok(acls) => DeleteAclsFilterResult {
            error_message: None,
            matching_acls: acls.iter().map(matching).collect(),
            ..Default::default()
        },
        Err((code, message)) => DeleteAclsFilterResult {
            error_code: code.code(),
            error_message: Some(message.into()),
            ..Default::default()
        },
    }
}

pub(crate) fn delete(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = DeleteAclsRequest::decode(reader, context.version)?;
    let count = request.filters.len();
    let all = move |refusal: Refusal| DeleteAclsResponse {
        filter_results: vec![removed(Err(refusal)); count],
        ..Default::default()
    };
    if let Err(refusal) = check(&context.asking(), AclOperation::Alter) {
        return Ok(Outcome::answer(all(refusal)));
    }
    let acting = context.acting("DeleteAcls");
    let filters: Vec<Result<AclFilter, Refusal>> = request.filters.iter().map(picked).collect();
    Ok(control(
        context,
        move || all(busy()),
        move |broker, asking| {
            if let Err(refusal) = check(asking, AclOperation::Alter) {
                return all(refusal);
            }
            let good: Vec<AclFilter> = filters.iter().flatten().cloned().collect();
            let mut found = match broker.delete_acls(&good) {
                Ok(found) => found.into_iter(),
                Err(error) => return all(refusal(&error)),
            };
            found.as_slice().iter().flatten().for_each(|acl| acting.note(&acl.to_string(), 0));
            let outcome = |filter: Result<AclFilter, Refusal>| filter.map(|_| found.next().unwrap_or_default());
            DeleteAclsResponse {
                filter_results: filters.into_iter().map(outcome).map(removed).collect(),
                ..Default::default()
            }
        },
    ))
}
