//! DescribeClientQuotas, AlterClientQuotas: how much users, clients and addresses may do in a second. Where access control entries count they
//! say who may see and change that; otherwise, where clients have to log in, only an administrator.

use broker::{
    AclOperation, AlterQuotaError, Broker, InvalidQuota, QuotaChange, QuotaEntity, QuotaFilter, QuotaMatch, Supposed,
};
use kafka_wire::alter_client_quotas::{
    AlterClientQuotasRequest, AlterClientQuotasResponse, AlterOutcome, AlteredEntity, AlteredEntry, OutcomeEntity,
};
use kafka_wire::describe_client_quotas::{
    ComponentData, DescribeClientQuotasRequest, DescribeClientQuotasResponse, DescribedEntity, DescribedEntry,
    ValueData,
};
use kafka_wire::{DecodeError, ErrorCode, Reader, Str};

use super::{Outcome, control};
use crate::access::Asking;
use crate::session::Context;

const REFUSED: Str = Str::from_static("Only an administrator may see and change quotas");
const UNAUTHORIZED: Str = Str::from_static("Cluster authorization failed.");
const BUSY: Str = Str::from_static("The controller has too much to do");

/// Why whoever asks may not do it, if he may not, as of now.
fn refusal(asking: &Asking<'_>, operation: AclOperation) -> Option<Str> {
    if asking.is_checked() {
        return asking.check_cluster(operation).is_err().then_some(UNAUTHORIZED);
    }
    (!asking.administers()).then_some(REFUSED)
}

/// What a component asks for; the words are Kafka's.
fn component(asked: &ComponentData) -> Result<(String, QuotaMatch), (ErrorCode, String)> {
    let invalid = |text: String| Err((ErrorCode::InvalidRequest, text));
    let kind = asked.entity_type.to_string();
    if kind.is_empty() {
        return invalid("Unexpected empty filter component entity type".to_owned());
    }
    if !["user", "client-id", "ip"].contains(&kind.as_str()) {
        return Err((ErrorCode::UnsupportedVersion, format!("Custom entity type '{kind}' not supported")));
    }
    let wanted = match (asked.match_type, &asked.match_name) {
        (0, Some(name)) => QuotaMatch::Exactly(name.to_string()),
        (0, None) => return invalid("Unexpected null match name".to_owned()),
        (1, None) => QuotaMatch::Default,
        (2, None) => QuotaMatch::Any,
        (1 | 2, Some(_)) => return invalid(format!("Request specified match type {} and a name", asked.match_type)),
        (other, _) => return invalid(format!("Unknown match type {other}")),
    };
    Ok((kind, wanted))
}

fn filter(request: &DescribeClientQuotasRequest) -> Result<QuotaFilter, (ErrorCode, String)> {
    let mut components: Vec<(String, QuotaMatch)> = Vec::new();
    for asked in &request.components {
        let (kind, wanted) = component(asked)?;
        if components.iter().any(|(known, _)| *known == kind) {
            return Err((
                ErrorCode::InvalidRequest,
                format!("Entity type {kind} cannot appear more than once in the filter"),
            ));
        }
        components.push((kind, wanted));
    }
    if components.len() > 1 && components.iter().any(|(kind, _)| kind == "ip") {
        let text = "Invalid entity filter component combination, IP filter component should not be used with user or clientId filter component.";
        return Err((ErrorCode::InvalidRequest, text.to_owned()));
    }
    Ok(QuotaFilter { components, strict: request.strict })
}

fn described(entity: &QuotaEntity, values: &broker::QuotaValues) -> DescribedEntry {
    let part = |(kind, name): (&'static str, Option<&str>)| DescribedEntity {
        entity_type: Str::from_static(kind),
        entity_name: name.map(Into::into),
        ..Default::default()
    };
    let value = |(key, value): (&broker::QuotaKey, &f64)| ValueData {
        key: Str::from_static(key.name()),
        value: *value,
        ..Default::default()
    };
    DescribedEntry {
        entity: entity.parts().map(part).collect(),
        values: values.iter().map(value).collect(),
        ..Default::default()
    }
}

pub(crate) fn describe(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = DescribeClientQuotasRequest::decode(reader, context.version)?;
    let failed = |code: ErrorCode, message: Str| DescribeClientQuotasResponse {
        error_code: code.code(),
        error_message: Some(message),
        entries: None,
        ..Default::default()
    };
    if let Some(why) = refusal(&context.asking(), AclOperation::DescribeConfigs) {
        return Ok(Outcome::answer(failed(ErrorCode::ClusterAuthorizationFailed, why)));
    }
    Ok(Outcome::answer(match filter(&request) {
        Err((code, message)) => failed(code, message.into()),
        Ok(filter) => {
            let found = context.gateway.broker.quotas().describe(&filter);
            let entries = found.iter().map(|(entity, values)| described(entity, values)).collect();
            DescribeClientQuotasResponse { error_message: None, entries: Some(entries), ..Default::default() }
        }
    }))
}

fn change(entry: &AlteredEntry) -> Result<QuotaChange, InvalidQuota> {
    let part =
        |part: &'_ AlteredEntity| (part.entity_type.to_string(), part.entity_name.as_ref().map(ToString::to_string));
    let parts: Vec<(String, Option<String>)> = entry.entity.iter().map(part).collect();
    let entity = QuotaEntity::of(parts.iter().map(|(kind, name)| (kind.as_str(), name.as_deref())))?;
    QuotaChange::of(entity, entry.ops.iter().map(|op| (&*op.key, (!op.remove).then_some(op.value))))
}

fn outcome(entry: &AlteredEntry, error: Option<(ErrorCode, String)>) -> AlterOutcome {
    let (code, message) = error.map_or((0, None), |(code, message)| (code.code(), Some(message.into())));
    let part = |part: &AlteredEntity| OutcomeEntity {
        entity_type: part.entity_type.clone(),
        entity_name: part.entity_name.clone(),
        ..Default::default()
    };
    AlterOutcome {
        error_code: code,
        error_message: message,
        entity: entry.entity.iter().map(part).collect(),
        ..Default::default()
    }
}

fn all(entries: &[AlteredEntry], code: ErrorCode, message: &Str) -> AlterClientQuotasResponse {
    let entries = entries.iter().map(|entry| outcome(entry, Some((code, message.to_string())))).collect();
    AlterClientQuotasResponse { entries, ..Default::default() }
}

/// Changes that can be made, in their order; an outcome for each. They are made, or looked at, together; where there is no room for all of them, in halves.
fn make(
    changes: &[QuotaChange],
    how: &mut dyn FnMut(&[QuotaChange]) -> Result<(), AlterQuotaError>,
) -> Vec<Result<(), AlterQuotaError>> {
    match how(changes) {
        Err(AlterQuotaError::Full) if changes.len() > 1 => {
            let (first, rest) = changes.split_at(changes.len() / 2);
            let mut outcomes = make(first, how);
            outcomes.extend(make(rest, how));
            outcomes
        }
        outcome => vec![outcome; changes.len()],
    }
}

fn alter_all(broker: &Broker, entries: &[AlteredEntry], validate_only: bool) -> Vec<AlterOutcome> {
    let changes: Vec<Result<QuotaChange, InvalidQuota>> = entries.iter().map(change).collect();
    let good: Vec<QuotaChange> = changes.iter().flatten().cloned().collect();
    // Together with those before them that could be made.
    let mut supposed = Supposed::default();
    let mut made = match validate_only {
        true => make(&good, &mut |changes| broker.suppose_quotas(changes, &mut supposed)),
        false => make(&good, &mut |changes| broker.alter_quotas(changes)),
    }
    .into_iter();
    let of = |(entry, change): (&AlteredEntry, Result<QuotaChange, InvalidQuota>)| {
        let done = change.map_err(AlterQuotaError::Invalid).and_then(|_| made.next().expect("an outcome for each"));
        outcome(
            entry,
            done.err().map(|error| {
                let code = match &error {
                    AlterQuotaError::Invalid(_) => ErrorCode::InvalidRequest,
                    AlterQuotaError::Full | AlterQuotaError::TooMany => ErrorCode::PolicyViolation,
                    AlterQuotaError::Append(_) => ErrorCode::KafkaStorageError,
                };
                (code, error.to_string())
            }),
        )
    };
    entries.iter().zip(changes).map(of).collect()
}

pub(crate) fn alter(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = AlterClientQuotasRequest::decode(reader, context.version)?;
    if let Some(why) = refusal(&context.asking(), AclOperation::AlterConfigs) {
        return Ok(Outcome::answer(all(&request.entries, ErrorCode::ClusterAuthorizationFailed, &why)));
    }
    let (busy, acting) =
        (all(&request.entries, ErrorCode::RequestTimedOut, &BUSY), context.acting("AlterClientQuotas"));
    Ok(control(
        context,
        || busy,
        move |broker, asking| {
            if let Some(why) = refusal(asking, AclOperation::AlterConfigs) {
                return all(&request.entries, ErrorCode::ClusterAuthorizationFailed, &why);
            }
            let entries = alter_all(broker, &request.entries, request.validate_only);
            if !request.validate_only {
                entries.iter().for_each(|one| acting.note(&shown(&one.entity), one.error_code));
            }
            AlterClientQuotasResponse { entries, ..Default::default() }
        },
    ))
}

/// For the audit log.
fn shown(entity: &[OutcomeEntity]) -> String {
    let part =
        |part: &OutcomeEntity| format!("{} {}", part.entity_type, part.entity_name.as_deref().unwrap_or("<default>"));
    entity.iter().map(part).collect::<Vec<_>>().join(", ")
}
