//! What handlers of requests may use, and what they ask of the connection.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use broker::append::Append;
use broker::{AclOperation, ClientConnection, ReplyTo, Throttle, User, Waits};

use super::{RequestRoom, ShardContext};
use crate::access::{Access, Acting, Asking};
use crate::gateway::{Advertise, Gateway};
use crate::group_of::{Fetcher, Spoken, Verdict};

/// What a handler may use.
pub(crate) struct Context<'a> {
    pub gateway: &'a Arc<Gateway>,
    pub shard: &'a mut ShardContext,
    /// Answers to this request; parts of it count up from here.
    pub to: ReplyTo,
    pub version: i16,
    pub client_id: &'a str,
    /// Who logged in.
    pub user: Option<&'a Arc<User>>,
    /// Who has shown a certificate instead.
    pub certified: Option<&'a str>,
    /// What he may do.
    pub access: &'a Access,
    pub local: SocketAddr,
    pub peer: SocketAddr,
    pub advertise: &'a Advertise,
    pub now: Instant,
    /// Nothing else is to be done on this shard.
    pub alone: bool,
    /// What is reserved for the items of the request: who works on it elsewhere holds it.
    pub room: Option<&'a Arc<dyn RequestRoom>>,
    /// Bytes of the request.
    pub length: usize,
    /// Set once the connection is gone, where the request is not handled by its network thread.
    pub gone: Option<&'a Arc<AtomicBool>>,
    /// Appends that a full queue refused.
    pub refused: &'a mut VecDeque<(usize, Append)>,
    /// Groups of which the connection has spoken.
    pub spoken: &'a mut Spoken,
    /// What limits the connection.
    pub throttle: &'a mut Throttle,
    /// Where its time goes.
    pub waits: &'a Arc<Waits>,
    /// The connection, as those see it who look on.
    pub seen: &'a ClientConnection,
}

/// Parts that one request may be split into.
pub(crate) const PARTS_MAX: u64 = 256;

impl<'a> Context<'a> {
    /// What the caller may do.
    pub fn asking(&self) -> Asking<'a> {
        let broker = &self.gateway.broker;
        Asking {
            access: self.access,
            broker,
            security: broker.security(),
            name: self.name(),
            address: self.peer.ip(),
            quiet: false,
        }
    }

    /// The name of whoever is there, if that is known.
    pub fn name(&self) -> Option<&'a str> {
        self.user.map(|user| user.name()).or(self.certified)
    }

    /// For the audit log.
    pub fn acting(&self, act: &'static str) -> Acting {
        Acting::new(&self.gateway.broker, self.name(), self.peer.ip(), act)
    }

    /// Whose a fetch of this connection is, which says that it is called `client_id`.
    pub fn verdict(&mut self, client_id: &str) -> Verdict {
        let asking = self.asking().quietly();
        let fetcher = Fetcher { client_id, user: self.name().unwrap_or_default(), peer: self.peer };
        match self.spoken.verdict(&self.gateway.broker, &self.gateway.asked, &fetcher, self.now) {
            // Who may not be a member is none, whatever he calls himself.
            Verdict::Of(filter) if asking.check_group(AclOperation::Read, &filter.group).is_err() => Verdict::Nobody,
            verdict => verdict,
        }
    }

    /// Is the member that speaks to look for its coordinator again, so that the connection that it fetches on is known to be its?
    pub fn looks_again(&self, group: &str) -> bool {
        self.gateway.asked.take(group, self.client_id, self.peer, self.now)
    }

    /// Appends to a journal, in order behind what was refused before.
    pub fn append(&mut self, journal: usize, append: Append) {
        if !self.refused.is_empty() {
            self.refused.push_back((journal, append));
            return;
        }
        let journal_of = &self.gateway.broker.journals()[journal];
        // Who does not wait for the answer sends the next one meanwhile: those are better committed together.
        let here = self.alone && append.acknowledge;
        let queued = if here { journal_of.append_here(append) } else { journal_of.append(append) };
        if let Err(append) = queued {
            self.refused.push_back((journal, append));
        }
    }
}
