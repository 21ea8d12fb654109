//! How a session ends: the node stops, a token has expired, or the connection is gone.

use std::sync::Arc;
use std::time::{Duration, Instant};

use amqp_wire::ReplyCode;
use broker::{Cause, Causes, Waits};

use super::{Phase, Session, Slot};
use crate::channel::Mode;
use crate::connection::{Connection, Waiting, deletion, deletion_of_declared};
use crate::error::Failure;

/// Of a commit when the node stops; what is left then is gone through with as the channel ends.
const COMMIT_TURNS_MAX: usize = 16;

/// How long the node waits at its end until journals have room for what a connection has published.
const ROOM_MAX: Duration = Duration::from_secs(3);

/// Why the broker ends a connection, and when at the latest.
pub(super) struct Leaving {
    reason: String,
    pub until: Option<Instant>,
}

impl Session {
    /// Where the connection's time goes.
    pub fn waits(&self) -> &Arc<Waits> {
        &self.connection.waits
    }

    /// What it waits for now.
    pub fn causes(&self) -> Causes {
        let Connection { waiting, publisher, quota, gateway, .. } = &self.connection;
        let quota = quota.causes();
        let disk = if publisher.open_since().is_some() { Cause::Disk.bit() } else { 0 };
        let memory =
            if gateway.held.is_full() && !self.pressure.has_room(&self.connection) { Cause::Memory.bit() } else { 0 };
        let waiting = match waiting {
            Some(Waiting::Login { .. }) => Cause::Login.bit(),
            Some(Waiting::Channel { .. } | Waiting::Connection { .. }) => Cause::Coordinator.bit(),
            Some(Waiting::Later(_, cause)) => cause.bit(),
            Some(Waiting::Publishes | Waiting::Letters | Waiting::Commit { .. }) | None => 0,
        };
        // Whoever takes single messages has an entry as well, without a tag.
        let consumes = || {
            self.connection
                .consumers
                .values()
                .any(|consumer| !consumer.tag.as_bytes().is_empty() && !consumer.cancelled)
        };
        match quota | disk | memory | waiting {
            0 if consumes() => Cause::Records.bit(),
            0 => Cause::Client.bit(),
            causes => causes,
        }
    }

    /// The node stops: what was asked is answered, then the client is told.
    pub fn drain(&mut self, now: Instant) {
        self.connection.now = now;
        // Nothing of the connection has another turn.
        for _ in 0..COMMIT_TURNS_MAX {
            if self.commits {
                self.look_at_frames();
            }
        }
        self.leave("broker forced connection closure with reason 'shutdown'".to_owned(), None);
    }

    /// The broker ends the connection: what was asked is answered, if that takes no longer, then the client is told.
    pub(super) fn leave(&mut self, reason: String, until: Option<Instant>) {
        self.connection.flush_unpaid();
        self.leaving.get_or_insert(Leaving { reason, until });
        self.try_leave();
    }

    /// Who came in by a token goes when it expires.
    pub(super) fn look_at_token(&mut self, now: Instant) {
        if self.phase == Phase::Running && self.connection.token_until.take_if(|until| now >= *until).is_some() {
            self.close_connection(&Failure::connection(ReplyCode::ConnectionForced, "credential expired"));
        }
    }

    pub(super) fn try_leave(&mut self) {
        let ready = self.connection.publisher.is_idle() && self.connection.waiting.is_none() && !self.commits;
        let (now, phase) = (self.connection.now, self.phase);
        // What journals have no room for may wait for ever.
        if self.is_blocked()
            && let Some(leaving) = &mut self.leaving
        {
            leaving.until.get_or_insert(now + ROOM_MAX);
        }
        let goes =
            |leaving: &mut Leaving| ready || phase != Phase::Running || leaving.until.is_some_and(|until| now >= until);
        let Some(Leaving { reason, .. }) = self.leaving.take_if(goes).filter(|_| phase == Phase::Running) else {
            return;
        };
        for slot in self.channels.values_mut() {
            if let Slot::Open(channel) = slot
                && let Mode::Confirm(confirms) = &mut channel.mode
            {
                confirms.tell(channel.number, &mut self.connection.out);
            }
        }
        self.close_connection(&Failure::connection(ReplyCode::ConnectionForced, reason));
    }

    /// The client sends no more and is told no more: its channels and consumers go. True: what it has published is on its way to the journals.
    pub fn finish(&mut self, now: Instant) -> bool {
        if self.phase != Phase::Running || self.connection.publisher.is_idle() && !self.commits {
            return false;
        }
        self.connection.now = now;
        let doomed = self.leave_all();
        // What journals take only now is not held back then.
        self.connection.flush_unpaid();
        if !doomed.is_empty() {
            self.connection.leave_to_controller(deletion(doomed, true));
        }
        true
    }

    /// The connection is gone: consumers leave, and what goes with the connection goes.
    pub fn close(&mut self) {
        self.connection.flush_unpaid();
        let mut doomed = self.leave_all();
        self.abandon_publishes();
        doomed.extend(self.connection.owned.drain().map(|(_, queue)| queue));
        if !doomed.is_empty() {
            self.connection.leave_to_controller(deletion(doomed, true));
        }
        if let Some(declaring) = self.connection.declaring.take() {
            self.connection.leave_to_controller(deletion_of_declared(declaring));
        }
        self.phase = Phase::Ended;
        self.connection.unsee();
        self.connection.gateway.broker.waits().leave(self.connection.id);
        self.connection.gateway.metrics.connections.dec();
    }
}
