//! DescribeUserScramCredentials, AlterUserScramCredentials: keys of users for SCRAM. Where access control entries count they say who may
//! see and change them; otherwise it takes an administrator who has logged in. The first one is made with `--default-user`.

use std::collections::BTreeMap;
use std::sync::Arc;

use broker::{AclOperation, Broker, ScramChange, ScramError, ScramMechanism, ScramWish, User};
use kafka_wire::alter_user_scram_credentials::{
    AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse, AlterUserScramCredentialsResult,
};
use kafka_wire::describe_user_scram_credentials::{
    CredentialInfo, DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
};
use kafka_wire::{DecodeError, ErrorCode, Reader, Str};

use super::{Outcome, control};
use crate::access::Asking;
use crate::session::Context;

const REFUSED: Str = Str::from_static("Only an administrator who has logged in may see and change credentials");
const UNAUTHORIZED: Str = Str::from_static("Cluster authorization failed.");
const BUSY: Str = Str::from_static("The controller has too much to do");

/// Why whoever asks may not do it, if he may not: entries decide where they count, otherwise it takes an administrator, as of now.
fn refusal(asking: &Asking<'_>, operation: AclOperation) -> Option<Str> {
    if asking.is_checked() {
        return asking.check_cluster(operation).is_err().then_some(UNAUTHORIZED);
    }
    let now = asking.name.and_then(|name| asking.security.user(name));
    let administrator = now.is_some_and(|user| user.has_tag("administrator"));
    (!administrator).then_some(REFUSED)
}

fn described(user: &User) -> DescribeUserScramCredentialsResult {
    let info = |keys: &broker::ScramCredential| CredentialInfo {
        mechanism: keys.mechanism().number() as i8,
        iterations: keys.iterations() as i32,
        ..Default::default()
    };
    DescribeUserScramCredentialsResult {
        user: user.name().into(),
        credential_infos: user.scram().iter().map(info).collect(),
        ..Default::default()
    }
}

fn describe_one(broker: &Broker, name: &str, twice: bool) -> DescribeUserScramCredentialsResult {
    let failed = |code: ErrorCode, message: String| DescribeUserScramCredentialsResult {
        user: name.into(),
        error_code: code.code(),
        error_message: Some(message.into()),
        ..Default::default()
    };
    if twice {
        return failed(
            ErrorCode::DuplicateResource,
            format!("Cannot describe SCRAM credentials for the same user twice in a single request: {name}"),
        );
    }
    let user = broker.security().user(name).filter(|user| user.scram().iter().next().is_some());
    match user {
        Some(user) => described(&user),
        None => failed(
            ErrorCode::ResourceNotFound,
            format!("Attempt to describe a user credential that does not exist: {name}"),
        ),
    }
}

/// Who has not logged in sees no keys, as if there were none: tools that look at users for something else go on.
fn describe_to_strangers(reader: &mut Reader, version: i16) -> Result<Outcome, DecodeError> {
    let request = DescribeUserScramCredentialsRequest::decode(reader, version)?;
    let missing = |name: &str| DescribeUserScramCredentialsResult {
        user: name.into(),
        error_code: ErrorCode::ResourceNotFound.code(),
        error_message: Some(format!("Attempt to describe a user credential that does not exist: {name}").into()),
        ..Default::default()
    };
    let results = request.users.iter().flatten().map(|user| missing(&user.name)).collect();
    Ok(Outcome::answer(DescribeUserScramCredentialsResponse { error_message: None, results, ..Default::default() }))
}

pub(crate) fn describe(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    if context.name().is_none() && !context.asking().is_checked() {
        return describe_to_strangers(reader, context.version);
    }
    let request = DescribeUserScramCredentialsRequest::decode(reader, context.version)?;
    if let Some(message) = refusal(&context.asking(), AclOperation::Describe) {
        let error_code = ErrorCode::ClusterAuthorizationFailed.code();
        let one = |name: &Str| DescribeUserScramCredentialsResult {
            user: name.clone(),
            error_code,
            error_message: Some(message.clone()),
            ..Default::default()
        };
        let results = request.users.iter().flatten().map(|user| one(&user.name)).collect();
        return Ok(Outcome::answer(DescribeUserScramCredentialsResponse {
            error_code,
            error_message: Some(message),
            results,
            ..Default::default()
        }));
    }
    let broker = &context.gateway.broker;
    let results = match request.users.as_deref() {
        None | Some([]) => {
            let users = broker.security().users();
            users.iter().filter(|user| user.scram().iter().next().is_some()).map(|user| described(user)).collect()
        }
        Some(users) => super::once(users, |user| &*user.name)
            .map(|(user, twice)| describe_one(broker, &user.name, twice))
            .collect(),
    };
    Ok(Outcome::answer(DescribeUserScramCredentialsResponse { results, ..Default::default() }))
}

fn changes(request: &AlterUserScramCredentialsRequest) -> Vec<ScramChange> {
    let mechanism = |number: i8| u8::try_from(number).ok().and_then(ScramMechanism::of_number);
    let deletions = request.deletions.iter().map(|one| ScramChange {
        name: one.name.to_string(),
        mechanism: mechanism(one.mechanism),
        wish: ScramWish::Delete,
    });
    let upsertions = request.upsertions.iter().map(|one| ScramChange {
        name: one.name.to_string(),
        mechanism: mechanism(one.mechanism),
        wish: ScramWish::Put {
            salt: one.salt.to_vec(),
            // Fewer than none are too few.
            iterations: u32::try_from(one.iterations).unwrap_or(0),
            salted_password: one.salted_password.to_vec(),
        },
    });
    deletions.chain(upsertions).collect()
}

fn code_of(error: &ScramError) -> ErrorCode {
    match error {
        ScramError::EmptyName | ScramError::LongName | ScramError::Keys(_) => ErrorCode::UnacceptableCredential,
        ScramError::Mechanism => ErrorCode::UnsupportedSaslMechanism,
        ScramError::Missing => ErrorCode::ResourceNotFound,
        ScramError::Twice => ErrorCode::DuplicateResource,
        ScramError::Append(_) => ErrorCode::KafkaStorageError,
    }
}

/// The same for every user that is named.
fn all(changes: &[ScramChange], code: ErrorCode, message: &Str) -> AlterUserScramCredentialsResponse {
    let names: BTreeMap<&str, ()> = changes.iter().map(|change| (change.name.as_str(), ())).collect();
    let result = |name: &str| AlterUserScramCredentialsResult {
        user: name.into(),
        error_code: code.code(),
        error_message: Some(message.clone()),
        ..Default::default()
    };
    AlterUserScramCredentialsResponse { results: names.into_keys().map(result).collect(), ..Default::default() }
}

pub(crate) fn alter(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    let request = AlterUserScramCredentialsRequest::decode(reader, context.version)?;
    let changes = changes(&request);
    if let Some(message) = refusal(&context.asking(), AclOperation::Alter) {
        return Ok(Outcome::answer(all(&changes, ErrorCode::ClusterAuthorizationFailed, &message)));
    }
    Ok(Outcome::Resume(Box::new(move |context| carry_out(Arc::new(changes), context))))
}

fn carry_out(changes: Arc<Vec<ScramChange>>, context: &mut Context<'_>) -> Outcome {
    let acting = context.acting("AlterUserScramCredentials");
    let refused = Arc::clone(&changes);
    control(
        context,
        move || all(&refused, ErrorCode::RequestTimedOut, &BUSY),
        move |broker, asking| {
            if let Some(message) = refusal(asking, AclOperation::Alter) {
                return all(&changes, ErrorCode::ClusterAuthorizationFailed, &message);
            }
            let result = |(name, outcome): (String, Result<(), ScramError>)| match outcome {
                Ok(()) => {
                    AlterUserScramCredentialsResult { user: name.into(), error_message: None, ..Default::default() }
                }
                Err(error) => AlterUserScramCredentialsResult {
                    user: name.into(),
                    error_code: code_of(&error).code(),
                    error_message: Some(error.to_string().into()),
                    ..Default::default()
                },
            };
            let results: Vec<AlterUserScramCredentialsResult> =
                broker.alter_scram(&changes).into_iter().map(result).collect();
            results.iter().for_each(|one| acting.note(&one.user, one.error_code));
            AlterUserScramCredentialsResponse { results, ..Default::default() }
        },
    )
}
