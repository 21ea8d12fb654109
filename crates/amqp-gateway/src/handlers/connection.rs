//! Class connection: start, login, tune, open; update-secret. What else comes after the handshake is the session's.

use std::sync::Arc;
use std::time::Instant;

use amqp_wire::{
    DecodeError, Encode, Frame, FrameKind, Method, MethodId, ReplyCode, ShortStr, Table, TableRef, connection, short,
};
use broker::{AuditLine, Credentials, GUEST, LimitKind, LoginOutcome, Refused};

use super::token;
use crate::connection::{CONSUMER_TOKEN, Claim, Connection, Waiting};
use crate::error::{CloseReason, Failure};

/// Bytes of a frame before limits are negotiated, as in RabbitMQ.
pub(crate) const FRAME_MAX_BEFORE: u32 = 8192;
/// Bytes of a frame, as proposed.
const FRAME_MAX: u32 = 131_072;
/// The least that a client may ask for.
const FRAME_MIN: u32 = 8192;
/// Seconds, as proposed.
const HEARTBEAT_S: u16 = 60;
/// The release of RabbitMQ that clients are to take it for: they ask for features by version.
const VERSION: &str = "4.3.6";
const MECHANISMS: &[u8] = b"PLAIN AMQPLAIN ANONYMOUS";
/// Bytes of a claimed name that the log shows.
const NAME_SHOWN_MAX: usize = 255;
/// Octets of a frame that a refusal shows: more than a text takes.
const OCTETS_SHOWN: usize = 255;
/// Of those who have shown a certificate.
const MECHANISMS_CERTIFIED: &[u8] = b"PLAIN AMQPLAIN ANONYMOUS EXTERNAL";

/// What the handshake waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handshake {
    Start,
    Tune,
    Open,
}

/// What a step of the handshake led to.
pub(crate) enum Step {
    Next(Handshake),
    /// The connection waits for what comes next.
    Wait,
    /// It is over; seconds between heartbeats, 0 for none.
    Done,
    Tuned {
        heartbeat_s: u16,
    },
}

/// Tells the client who this is.
pub(crate) fn start(to: &mut Connection) {
    let properties = Table::build(|fields| {
        fields.table(short("capabilities"), |capabilities| {
            for name in [
                "publisher_confirms",
                "exchange_exchange_bindings",
                "basic.nack",
                "connection.blocked",
                "consumer_cancel_notify",
                "consumer_priorities",
                "authentication_failure_close",
                "per_consumer_qos",
                "direct_reply_to",
            ] {
                capabilities.put(short(name), true);
            }
        });
        fields.put(short("cluster_name"), to.gateway.broker.cluster_id());
        fields.put(short("information"), "Mainstem, a broker that speaks as RabbitMQ does");
        fields.put(short("platform"), concat!("Mainstem ", env!("CARGO_PKG_VERSION")));
        fields.put(short("product"), "RabbitMQ");
        fields.put(short("version"), VERSION);
    });
    let mechanisms = if to.certified.is_some() { MECHANISMS_CERTIFIED } else { MECHANISMS };
    let locales = b"en_US";
    let server_properties = properties.view();
    to.out.method(0, &connection::Start { version_major: 0, version_minor: 9, server_properties, mechanisms, locales });
}

/// The step that is due.
pub(crate) fn handle(
    to: &mut Connection,
    due: Handshake,
    method: &connection::Method<'_>,
    until: Instant,
) -> Result<Result<Step, Failure>, CloseReason> {
    match (due, method) {
        (Handshake::Start, connection::Method::StartOk(method)) => start_ok(to, method, until).map(Ok),
        (Handshake::Tune, connection::Method::TuneOk(method)) => Ok(tune_ok(to, *method)),
        (Handshake::Open, connection::Method::Open(method)) => Ok(open(to, method)),
        (Handshake::Open, other) => Ok(Err(unexpected_before_open(other.id()))),
        (_, other) => Err(CloseReason::Handshake(format!("{other:?} is not due"))),
    }
}

fn unexpected_before_open(method: MethodId) -> Failure {
    Failure::connection(ReplyCode::ChannelError, "unexpected method in connection state opening").of(method)
}

/// Something else than a method of the connection has come where connection.open is due.
pub(crate) fn not_open(frame: &Frame<'_>, decoded: Result<Method<'_>, DecodeError>) -> Failure {
    match decoded {
        Err(error) if frame.kind == FrameKind::Method && frame.channel == 0 => {
            Failure::from(error).of(connection::Open::ID)
        }
        _ => {
            let octets: Vec<String> = frame.payload.iter().take(OCTETS_SHOWN).map(u8::to_string).collect();
            Failure::unexpected(&format!("type {}, all octets = <<{}>>", frame.kind as u8, octets.join(",")))
        }
    }
}

fn start_ok(to: &mut Connection, method: &connection::StartOk<'_>, until: Instant) -> Result<Step, CloseReason> {
    let capabilities =
        method.client_properties.get("capabilities").and_then(amqp_wire::Value::as_table).unwrap_or_default();
    let can = |name| capabilities.get(name).and_then(amqp_wire::Value::as_bool).unwrap_or(false);
    to.understands.consumer_cancel_notify = can("consumer_cancel_notify");
    to.understands.connection_blocked = can("connection.blocked");
    to.understands.authentication_failure_close = can("authentication_failure_close");
    let name = method.client_properties.get("connection_name").and_then(amqp_wire::Value::as_bytes);
    to.quota.client_id = name.map(|name| String::from_utf8_lossy(name).into_owned()).unwrap_or_default();
    let mechanism = &*method.mechanism;
    mechanism.clone_into(&mut to.introduction.mechanism);
    to.introduction.client_properties = bytes::Bytes::copy_from_slice(method.client_properties.as_bytes());
    let claim = |name: &[u8]| Claim { mechanism: mechanism.to_owned(), name: shown(name) };
    let given = match mechanism {
        "PLAIN" => plain(method.response),
        "AMQPLAIN" => amqplain(method.response),
        // Whoever says nothing is who everybody can say he is: as in RabbitMQ, with the name and the password that are everywhere the same.
        "ANONYMOUS" => Some((GUEST.as_bytes(), GUEST.as_bytes())),
        "EXTERNAL" => {
            let name = to.certified.clone().unwrap_or_default();
            let outcome = to.broker().security().authenticate_by_name(&name, to.peer);
            return logged_in(to, claim(name.as_bytes()), outcome);
        }
        _ => None,
    };
    let Some((name, password)) = given else { return logged_in(to, claim(b""), Err(Refused::Credentials)) };
    if let Some(token) = to.broker().security().tokens().in_place_of(password) {
        return token::login(to, mechanism, token);
    }
    let credentials = Credentials { name, password, peer: to.peer };
    if let Some(outcome) = to.broker().security().known(credentials) {
        return logged_in(to, claim(name), outcome);
    }
    let token = to.take_token();
    if !to.broker().login(to.reply_to(token), credentials, until) {
        return logged_in(to, claim(name), Err(Refused::Busy));
    }
    to.waiting = Some(Waiting::Login { token, claim: claim(name) });
    Ok(Step::Wait)
}

/// A name for the log, whatever was sent as one.
fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(&name[..name.len().min(NAME_SHOWN_MAX)]).into_owned()
}

/// It is known who somebody is, or that he is not who he says.
///
/// # Errors
/// `Login`: he is not let in, and told so if he understands it.
pub(crate) fn logged_in(to: &mut Connection, claim: Claim, outcome: LoginOutcome) -> Result<Step, CloseReason> {
    match outcome {
        Ok(user) => {
            user.name().clone_into(&mut to.user);
            to.access.log_in(user, to.gateway.broker.security(), to.peer.ip());
            to.limits.channel_max =
                u16::try_from(to.broker().limit(LimitKind::ChannelsOfConnection)).unwrap_or(u16::MAX);
            to.out.method(
                0,
                &connection::Tune { channel_max: to.limits.channel_max, frame_max: FRAME_MAX, heartbeat: HEARTBEAT_S },
            );
            Ok(Step::Next(Handshake::Tune))
        }
        Err(reason) => Err(refused(to, claim, reason, &reason.to_string())),
    }
}

/// Somebody is not let in; `outcome` is why, for the audit log.
pub(super) fn refused(to: &mut Connection, claim: Claim, reason: Refused, outcome: &str) -> CloseReason {
    let Claim { mechanism, name } = claim;
    to.gateway.metrics.refused_logins.inc();
    note_refusal(to, &name, &mechanism, outcome);
    let told = to.understands.authentication_failure_close;
    if told {
        let text = format!(
            "Login was refused using authentication mechanism {mechanism}. For details see the broker logfile."
        );
        to.out.method(0, &Failure::connection(ReplyCode::AccessRefused, text).connection_close());
    }
    CloseReason::Login { name, reason, told }
}

pub(super) fn note_refusal(to: &Connection, who: &str, what: &str, outcome: &str) {
    let line = AuditLine { who, from: to.peer.ip(), through: "amqp", act: "login", what, outcome };
    to.gateway.broker.security().audit_refusal(line);
}

/// RFC 4616: an authorisation id, which is not looked at, then user and password, each after a zero byte.
fn plain(response: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut parts = response.splitn(3, |byte| *byte == 0).skip(1);
    Some((parts.next()?, parts.next()?))
}

/// A table without its length, with the fields `LOGIN` and `PASSWORD`.
fn amqplain(response: &[u8]) -> Option<(&[u8], &[u8])> {
    let table = TableRef::check(response).ok()?;
    let field = |name| table.get(name).and_then(amqp_wire::Value::as_bytes);
    Some((field("LOGIN")?, field("PASSWORD")?))
}

fn tune_ok(to: &mut Connection, method: connection::TuneOk) -> Result<Step, Failure> {
    let connection::TuneOk { channel_max, frame_max, heartbeat } = method;
    let refuse = |text: String| Err(Failure::connection(ReplyCode::NotAllowed, text).of(connection::TuneOk::ID));
    if frame_max != 0 && frame_max < FRAME_MIN {
        return refuse(format!(
            "negotiated frame_max = {frame_max} is lower than the minimum allowed value ({FRAME_MIN})"
        ));
    }
    if frame_max == 0 || frame_max > FRAME_MAX {
        return refuse(format!(
            "negotiated frame_max = {frame_max} is higher than the maximum allowed value ({FRAME_MAX})"
        ));
    }
    let most = to.limits.channel_max;
    if channel_max == 0 || channel_max > most {
        return refuse(format!(
            "negotiated channel_max = {channel_max} is higher than the maximum allowed value ({most})"
        ));
    }
    (to.limits.frame_max, to.limits.channel_max) = (frame_max, channel_max);
    to.introduction.heartbeat_s = heartbeat;
    Ok(Step::Tuned { heartbeat_s: heartbeat })
}

fn open(to: &mut Connection, method: &connection::Open<'_>) -> Result<Step, Failure> {
    let name: ShortStr<'_> = method.virtual_host;
    let refuse = |text: String| Failure::connection(ReplyCode::NotAllowed, text).of(connection::Open::ID);
    let vhost = to.broker().vhosts().get(&name).filter(|vhost| !vhost.is_deleted());
    let vhost = vhost.ok_or_else(|| refuse(format!("vhost {name} not found")))?;
    let broker = Arc::clone(to.broker());
    let security = broker.security();
    let begun = to.access.user().cloned();
    to.access.refresh(security);
    let (user, limits) = (&to.user, to.access.user().map(|user| user.limits()).unwrap_or_default());
    let place = vhost.enter().map_err(|limit| {
        broker.limits().note_refusal(LimitKind::VhostConnections);
        refuse(format!("access to vhost '{name}' refused for user '{user}': connection limit ({limit}) is reached"))
    })?;
    let seat = security.seats().take(to.reply_to(CONSUMER_TOKEN), user, limits, vhost.name());
    let seat = seat.map_err(|full| {
        broker.limits().note_refusal(LimitKind::UserConnections);
        refuse(format!("connection refused for user '{user}': {full}"))
    })?;
    // from here on a deletion finds this connection: what was done before is seen here. A token says who he is by itself.
    if to.token_until.is_none() && begun.is_some_and(|begun| security.still_is(&begun).is_none()) {
        return Err(refuse(format!("access to vhost '{name}' refused for user '{user}'")));
    }
    to.access.enter(security, Arc::clone(&vhost), (seat, place)).map_err(|failure| failure.of(connection::Open::ID))?;
    to.vhost = vhost;
    to.out.method(0, &connection::OpenOk {});
    Ok(Step::Done)
}

/// The client has another word for who it is. On a password, which does not expire, nothing depends; a token is renewed. Whether the user may
/// still be here is looked at again.
///
/// # Errors
/// *530*: he may not.
pub(crate) fn update_secret(to: &mut Connection, method: &connection::UpdateSecret<'_>) -> Result<(), Failure> {
    if to.token_until.is_some() {
        token::renew(to, method.new_secret)?;
    }
    let broker = Arc::clone(to.broker());
    to.access.refresh(broker.security());
    to.access.check_vhost().map_err(|failure| failure.of(connection::UpdateSecret::ID))?;
    to.out.method(0, &connection::UpdateSecretOk {});
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_password_are_found_in_what_the_mechanisms_send() {
        assert_eq!(plain(b"\0guest\0secret"), Some((&b"guest"[..], &b"secret"[..])));
        assert_eq!(plain(b"somebody\0guest\0with\0zero"), Some((&b"guest"[..], &b"with\0zero"[..])));
        assert_eq!(plain(b"guest"), None);
        let table = Table::build(|fields| {
            fields.put(short("LOGIN"), "guest");
            fields.put(short("PASSWORD"), "secret");
        });
        assert_eq!(amqplain(table.as_bytes()), Some((&b"guest"[..], &b"secret"[..])));
        assert_eq!(amqplain(&table.as_bytes()[..5]), None);
    }
}
