//! Who logs in by a token in the place of a password: as with RabbitMQ's OAuth 2 plugin the token says who it is, whatever user is named
//! beside it. When it expires the connection ends, unless the client has sent a new one by connection.update-secret.

use std::sync::Arc;
use std::time::{Duration, Instant};

use amqp_wire::{ReplyCode, connection};
use broker::{Refused, TokenLogin, TokenRefusal, TokenRefused, User};

use super::connection::{Step, logged_in, refused};
use crate::connection::{Claim, Connection};
use crate::error::{CloseReason, Failure};

/// Whose token it is, and until when.
fn verified(to: &Connection, token: &str) -> Result<(Arc<User>, Instant), TokenRefusal> {
    let now_ms = to.broker().now_ms();
    let TokenLogin { user, expires_ms } = to.broker().security().authenticate_by_token(token, to.peer, now_ms)?;
    let left = Duration::from_millis(u64::try_from(expires_ms - now_ms).unwrap_or(0));
    // Nobody sees the end of what lasts longer than clocks go.
    Ok((user, to.now.checked_add(left).unwrap_or(to.now + Duration::from_secs(1 << 32))))
}

/// Lets the bearer of a token in.
///
/// # Errors
/// `Login`: he is not let in, and told so if he understands it.
pub(super) fn login(to: &mut Connection, mechanism: &str, token: &str) -> Result<Step, CloseReason> {
    let claim = |name: String| Claim { mechanism: mechanism.to_owned(), name };
    match verified(to, token) {
        Ok((user, until)) => {
            to.token_until = Some(until);
            logged_in(to, claim(user.name().to_owned()), Ok(user))
        }
        Err(TokenRefusal { name, reason }) => {
            let told = match reason {
                TokenRefused::Throttled => Refused::Throttled,
                TokenRefused::NotLocal => Refused::NotLocal,
                _ => Refused::Token,
            };
            Err(refused(to, claim(name), told, &reason.to_string()))
        }
    }
}

/// A new token in the place of the one that the user came in by.
///
/// # Errors
/// *530*: it is not good, or another user's.
pub(super) fn renew(to: &mut Connection, secret: &[u8]) -> Result<(), Failure> {
    let token = std::str::from_utf8(secret).unwrap_or_default();
    let outcome = match verified(to, token) {
        Ok((user, until)) if user.name() == to.user => Ok(until),
        Ok((user, _)) => Err((user.name().to_owned(), "the token is another user's".to_owned())),
        Err(TokenRefusal { name, reason }) => Err((name, reason.to_string())),
    };
    match outcome {
        Ok(until) => {
            to.token_until = Some(until);
            Ok(())
        }
        Err((name, reason)) => {
            super::connection::note_refusal(to, &name, "update-secret", &reason);
            let text = "New secret was refused by one of the backends";
            Err(Failure::connection(ReplyCode::NotAllowed, text).of(connection::UpdateSecret::ID))
        }
    }
}
