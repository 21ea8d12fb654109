//! The protocol of a connection: one session behind the same words for the shard and the socket, whatever its clients speak.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use broker::{Causes, Reply, Waits};
use bytes::Bytes;
use kafka_gateway::{Advertise, SaslRules, ShardContext};
use types::{ConnectionId, ShardId};

use crate::shard::Shared;
use crate::tls::LoginFrom;

/// What clients of a listener speak.
#[derive(Clone, Debug)]
pub enum Protocol {
    /// Kafka's: what clients are told to connect to, and how they log in where they have to.
    Kafka(Arc<Advertise>, Option<Arc<SaslRules>>),
    /// AMQP 0-9-1.
    Amqp,
}

impl Protocol {
    /// Do clients have to say who they are?
    pub fn asks(&self) -> bool {
        matches!(self, Self::Kafka(_, Some(_)) | Self::Amqp)
    }
}

/// Why a connection ends that the client did not end.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// A Kafka request.
    #[error(transparent)]
    Kafka(#[from] kafka_gateway::CloseReason),
    /// Of an AMQP connection.
    #[error(transparent)]
    Amqp(#[from] amqp_gateway::CloseReason),
}

impl Refusal {
    /// Did nobody say in time who he is?
    pub fn is_late(&self) -> bool {
        matches!(
            self,
            Self::Kafka(kafka_gateway::CloseReason::Late) | Self::Amqp(amqp_gateway::CloseReason::HandshakeTimeout)
        )
    }

    /// Is the client to close its socket, now that it has read the last that it is told?
    pub fn is_for_client_to_end(&self) -> bool {
        matches!(self, Self::Amqp(amqp_gateway::CloseReason::Client))
    }

    /// Is the client to answer to the last that it is told, before its connection ends?
    pub fn awaits_answer(&self) -> bool {
        matches!(self, Self::Amqp(amqp_gateway::CloseReason::Login { told: true, .. }))
    }

    /// Is it the ordinary end of a connection?
    pub fn is_ordinary(&self) -> bool {
        matches!(
            self,
            Self::Amqp(amqp_gateway::CloseReason::Client | amqp_gateway::CloseReason::Shutdown)
                | Self::Kafka(kafka_gateway::CloseReason::Late)
        )
    }
}

/// What is left to be done of what a client has sent, when nothing more of it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    Nothing,
    /// It is answered.
    Answers,
    /// The journals are to have it, of which the client hears nothing.
    Publishes,
}

/// A connection's state.
pub enum Session {
    /// Requests and answers.
    Kafka(Box<kafka_gateway::Session>),
    /// Frames both ways.
    Amqp(Box<amqp_gateway::Session>),
}

/// Does the same with the session of any protocol.
macro_rules! each {
    ($session:expr, $name:ident => $call:expr) => {
        match $session {
            Session::Kafka($name) => $call,
            Session::Amqp($name) => $call,
        }
    };
}

impl Session {
    /// A fresh connection from `peer` to `local`.
    pub fn new(
        protocol: Protocol,
        shared: &Shared,
        shard: ShardId,
        id: ConnectionId,
        local: SocketAddr,
        peer: SocketAddr,
    ) -> Self {
        match protocol {
            Protocol::Kafka(advertise, sasl) => {
                let session =
                    kafka_gateway::Session::new(Arc::clone(&shared.gateway), advertise, shard, id, local, peer);
                Self::Kafka(Box::new(session.with_sasl(sasl, Instant::now())))
            }
            Protocol::Amqp => {
                Self::Amqp(Box::new(amqp_gateway::Session::new(Arc::clone(&shared.amqp), shard, id, local, peer)))
            }
        }
    }

    /// The peer has shown a certificate that was verified; `name` finds a part of its subject.
    pub fn set_certified(&mut self, name: impl Fn(LoginFrom) -> Option<String>, from: LoginFrom, now: Instant) {
        match self {
            Self::Amqp(session) => session.set_certified(name(from), now),
            Self::Kafka(session) => session.set_certified(name(LoginFrom::DistinguishedName), now),
        }
    }

    /// Is it known who is there, where that is asked?
    pub fn is_known(&self) -> bool {
        each!(self, session => session.is_known())
    }

    /// The user who has logged in.
    pub fn user(&self) -> Option<&str> {
        each!(self, session => session.user_name())
    }

    /// Why the connection is to end, once what is due has been answered.
    pub fn take_refusal(&mut self, now: Instant) -> Option<Refusal> {
        match self {
            Self::Kafka(session) => session.take_refusal(now).map(Refusal::from),
            Self::Amqp(_) => None,
        }
    }

    /// Is [`Session::go_on`] due, once others had their turn?
    pub fn goes_on(&self) -> bool {
        matches!(self, Self::Kafka(session) if session.goes_on())
    }

    /// Goes on with requests that have more to do than fits into a turn.
    pub fn go_on(&mut self, context: &mut ShardContext, now: Instant) {
        if let Self::Kafka(session) = self {
            session.go_on(context, now);
        }
    }

    /// Where the connection's time goes.
    pub fn waits(&self) -> &Arc<Waits> {
        each!(self, session => session.waits())
    }

    /// What it waits for now.
    pub fn causes(&self) -> Causes {
        each!(self, session => session.causes())
    }

    /// False: do not read from the socket now.
    pub fn wants_read(&self) -> bool {
        each!(self, session => session.wants_read())
    }

    /// Does the connection end when nothing is asked on it for long? AMQP has heartbeats for that, which clients may do without.
    pub fn ends_when_idle(&self) -> bool {
        matches!(self, Self::Kafka(_))
    }

    /// Reads on however much waits for the socket: acknowledgements make room, and the session bounds what it answers.
    pub fn reads_while_sending(&self) -> bool {
        matches!(self, Self::Amqp(_))
    }

    /// Do answers that may be in the way of others wait for another one?
    pub fn holds_answers(&self) -> bool {
        matches!(self, Self::Kafka(session) if session.holds_answers())
    }

    /// Appends what can be sent; true when there was something.
    pub fn poll_transmit(&mut self, out: &mut VecDeque<Bytes>) -> bool {
        each!(self, session => session.poll_transmit(out))
    }

    /// Takes what the broker says of a command.
    pub fn handle_reply(&mut self, token: u64, reply: Reply, context: &mut ShardContext, now: Instant) {
        match self {
            Self::Kafka(session) => session.handle_reply(token, reply, context, now),
            Self::Amqp(session) => session.handle_reply(token, reply, now),
        }
    }

    /// Something it waits for may be there, or time has passed.
    pub fn handle_wake(&mut self, context: &mut ShardContext, now: Instant) {
        match self {
            Self::Kafka(session) => session.handle_wake(context, now),
            Self::Amqp(session) => session.handle_wake(now),
        }
    }

    /// The queue of a journal has room again.
    pub fn handle_space(&mut self) {
        each!(self, session => session.handle_space());
    }

    /// The rest of a request is not read for want of memory.
    pub fn note_unread(&mut self, now: Instant) {
        if let Self::Amqp(session) = self {
            session.note_unread(now);
        }
    }

    /// A part of a large frame has come.
    pub fn note_life(&mut self, now: Instant) {
        if let Self::Amqp(session) = self {
            session.note_life(now);
        }
    }

    /// When it is to be woken without any event.
    pub fn next_timeout(&self) -> Option<Instant> {
        each!(self, session => session.next_timeout())
    }

    /// Met a defect of ours: the connection is to be closed.
    pub fn set_broken(&mut self) {
        each!(self, session => session.set_broken());
    }

    /// Is the connection to be closed?
    pub fn is_broken(&self) -> bool {
        each!(self, session => session.is_broken())
    }

    /// Does nothing that was asked wait for its answer?
    pub fn is_idle(&self) -> bool {
        each!(self, session => session.is_idle())
    }

    /// The node stops: what was asked is answered, and what waits for others to do something at once.
    pub fn drain(&mut self, context: &mut ShardContext, now: Instant) {
        match self {
            Self::Kafka(session) => session.drain(context, now),
            Self::Amqp(session) => session.drain(now),
        }
    }

    /// Does the client wait for an answer, so that nothing that it has sent behind is carried out once it has gone? Kafka reads one request after the other
    /// and ends a connection whose client does not take an answer. RabbitMQ carries out what it can read.
    pub fn awaits_answer(&self) -> bool {
        matches!(self, Self::Kafka(session) if !session.is_idle())
    }

    /// The client sends no more, and may have gone: what is to be done of what it has sent. What a Kafka client has asked is answered, as by Kafka, which
    /// reads one request after the other and finds the end behind the last. An AMQP client hears no more, as from RabbitMQ, and what it has published is
    /// kept. `reads`: it may read. `sends`: answers wait for the socket.
    pub fn finish(&mut self, reads: bool, sends: bool, now: Instant) -> Rest {
        match self {
            Self::Kafka(session) => {
                if reads && (sends || !session.is_idle()) {
                    Rest::Answers
                } else {
                    Rest::Nothing
                }
            }
            Self::Amqp(session) => {
                if session.finish(now) {
                    Rest::Publishes
                } else {
                    Rest::Nothing
                }
            }
        }
    }

    /// Nothing was read or sent for a while: memory that is only kept for what comes next is freed.
    pub fn rest(&mut self) {
        each!(self, session => session.rest());
    }

    /// The connection is gone.
    pub fn close(&mut self, context: &mut ShardContext) {
        match self {
            Self::Kafka(session) => session.close(context),
            Self::Amqp(session) => session.close(),
        }
    }
}
