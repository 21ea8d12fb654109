//! Class connection: start, login, tune, open. What comes after the handshake (close, update-secret) is the session's.

use amqp_wire::{ReplyCode, ShortStr, Table, TableRef, connection, short};

use crate::connection::Connection;
use crate::error::{CloseReason, Failure};

/// Bytes of a frame before limits are negotiated, as in RabbitMQ.
pub(crate) const FRAME_MAX_BEFORE: u32 = 8192;
/// Bytes of a frame, as proposed.
const FRAME_MAX: u32 = 131_072;
/// The least that a client may ask for.
const FRAME_MIN: u32 = 8192;
/// Channels, as proposed.
const CHANNEL_MAX: u16 = 2047;
/// Seconds, as proposed.
const HEARTBEAT_S: u16 = 60;
/// The release of RabbitMQ that clients are to take it for: they ask for features by version.
const VERSION: &str = "4.3.6";
/// The one user there is; from this machine only.
const USER: &str = "guest";
const PASSWORD: &[u8] = b"guest";
const MECHANISMS: &[u8] = b"PLAIN AMQPLAIN";

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
    let (mechanisms, locales): (&[u8], &[u8]) = (MECHANISMS, b"en_US");
    let server_properties = properties.view();
    to.out.method(0, &connection::Start { version_major: 0, version_minor: 9, server_properties, mechanisms, locales });
}

/// The step that is due.
pub(crate) fn handle(to: &mut Connection, due: Handshake, method: &connection::Method<'_>) -> Result<Result<Step, Failure>, CloseReason> {
    match (due, method) {
        (Handshake::Start, connection::Method::StartOk(method)) => start_ok(to, method).map(Ok),
        (Handshake::Tune, connection::Method::TuneOk(method)) => Ok(tune_ok(to, *method)),
        (Handshake::Open, connection::Method::Open(method)) => Ok(open(to, method)),
        (_, other) => Err(CloseReason::Handshake(format!("{other:?} is not due"))),
    }
}

fn start_ok(to: &mut Connection, method: &connection::StartOk<'_>) -> Result<Step, CloseReason> {
    let capabilities = method.client_properties.get("capabilities").and_then(amqp_wire::Value::as_table).unwrap_or_default();
    let can = |name| capabilities.get(name).and_then(amqp_wire::Value::as_bool).unwrap_or(false);
    to.understands.consumer_cancel_notify = can("consumer_cancel_notify");
    to.understands.authentication_failure_close = can("authentication_failure_close");
    let given = match &*method.mechanism {
        "PLAIN" => plain(method.response),
        "AMQPLAIN" => amqplain(method.response),
        _ => None,
    };
    let is_local = to.peer.ip().to_canonical().is_loopback();
    let welcome = given.is_some_and(|(user, password)| user == USER.as_bytes() && password == PASSWORD) && is_local;
    if !welcome {
        to.gateway.metrics.refused_logins.inc();
        if to.understands.authentication_failure_close {
            let mechanism = method.mechanism;
            let text = format!("Login was refused using authentication mechanism {mechanism}. For details see the broker logfile.");
            to.out.method(0, &Failure::connection(ReplyCode::AccessRefused, text).connection_close());
        }
        return Err(CloseReason::Login);
    }
    USER.clone_into(&mut to.user);
    to.introduction.mechanism = method.mechanism.to_string();
    to.introduction.client_properties = bytes::Bytes::copy_from_slice(method.client_properties.as_bytes());
    to.out.method(0, &connection::Tune { channel_max: CHANNEL_MAX, frame_max: FRAME_MAX, heartbeat: HEARTBEAT_S });
    Ok(Step::Next(Handshake::Tune))
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
        return refuse(format!("negotiated frame_max = {frame_max} is lower than the minimum allowed value ({FRAME_MIN})"));
    }
    if frame_max == 0 || frame_max > FRAME_MAX {
        return refuse(format!("negotiated frame_max = {frame_max} is higher than the maximum allowed value ({FRAME_MAX})"));
    }
    if channel_max == 0 || channel_max > CHANNEL_MAX {
        return refuse(format!("negotiated channel_max = {channel_max} is higher than the maximum allowed value ({CHANNEL_MAX})"));
    }
    (to.limits.frame_max, to.limits.channel_max) = (frame_max, channel_max);
    to.introduction.heartbeat_s = heartbeat;
    Ok(Step::Tuned { heartbeat_s: heartbeat })
}

fn open(to: &mut Connection, method: &connection::Open<'_>) -> Result<Step, Failure> {
    let name: ShortStr<'_> = method.virtual_host;
    let Some(vhost) = to.broker().vhosts().get(&name) else {
        return Err(Failure::connection(ReplyCode::NotAllowed, format_args!("vhost {name} not found")).of(connection::Open::ID));
    };
    to.vhost = vhost;
    to.out.method(0, &connection::OpenOk {});
    Ok(Step::Done)
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
