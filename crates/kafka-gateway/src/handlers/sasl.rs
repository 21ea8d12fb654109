//! SaslHandshake and SaslAuthenticate where it is known who is there, or nobody wants to know: they are out of place. Where they are in place
//! the session takes them itself (`session/sasl.rs`).

use kafka_wire::sasl_authenticate::{SaslAuthenticateRequest, SaslAuthenticateResponse};
use kafka_wire::sasl_handshake::{SaslHandshakeRequest, SaslHandshakeResponse};
use kafka_wire::{DecodeError, ErrorCode, Reader, Str};

use super::Outcome;
use crate::session::Context;

const CODE: i16 = ErrorCode::IllegalSaslState.code();

pub(crate) fn handshake(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    SaslHandshakeRequest::decode(reader, context.version)?;
    Ok(Outcome::answer(SaslHandshakeResponse { error_code: CODE, ..Default::default() }))
}

pub(crate) fn authenticate(reader: &mut Reader, context: &mut Context<'_>) -> Result<Outcome, DecodeError> {
    SaslAuthenticateRequest::decode(reader, context.version)?;
    let error_message = Some(Str::from_static("SaslAuthenticate request received after successful authentication"));
    Ok(Outcome::answer(SaslAuthenticateResponse { error_code: CODE, error_message, ..Default::default() }))
}
