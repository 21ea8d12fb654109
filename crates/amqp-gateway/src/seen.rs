//! What those see who look on: connections and channels are entered in the broker's list while they are open.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use broker::{ConnectionDetails, ReplyTo};

use crate::channel::Channel;
use crate::connection::{CONSUMER_TOKEN, Connection};

impl Connection {
    /// It is open.
    pub fn see(&mut self, local: SocketAddr) {
        self.waits.introduce(&self.user, &self.quota.client_id);
        let introduction = std::mem::take(&mut self.introduction);
        // What a client says of itself is memory as long as it is there, and counts with its consumers. Where there is none it has said nothing.
        self.introduced = self.begin_consumers(1, introduction.client_properties.len()).ok();
        let client_properties = self.introduced.as_ref().map(|_| introduction.client_properties).unwrap_or_default();
        let details = ConnectionDetails {
            user: self.user.clone(),
            vhost: self.vhost.name().to_owned(),
            local,
            peer: self.peer,
            mechanism: introduction.mechanism,
            frame_max: self.limits.frame_max,
            channel_max: self.limits.channel_max,
            heartbeat_s: introduction.heartbeat_s,
            client_properties,
            connected_at: self.broker().now_ms(),
        };
        let to = ReplyTo { shard: self.shard, connection: self.id, token: CONSUMER_TOKEN };
        self.seen = Some(self.gateway.broker.connections().enter(details, to));
    }

    /// It is gone.
    pub fn unsee(&mut self) {
        self.introduced = None;
        if self.seen.take().is_some() {
            self.gateway.broker.connections().leave(self.id);
        }
    }

    /// A channel is open.
    pub fn see_channel(&self, channel: &Channel) {
        if let Some(seen) = &self.seen {
            seen.open_channel(channel.number, &channel.flow);
            self.gateway.broker.connections().churn().channels_opened.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A channel is gone.
    pub fn unsee_channel(&self, channel: &Channel) {
        if let Some(seen) = &self.seen {
            seen.close_channel(channel.number, &channel.flow);
            self.gateway.broker.connections().churn().channels_closed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// So many bytes came.
    pub fn received(&self, bytes: usize) {
        if let Some(seen) = &self.seen {
            seen.received_bytes.add(bytes as u64);
            seen.received_count.add(1);
        }
    }

    /// So many bytes went.
    pub fn sent(&self, bytes: usize) {
        if let Some(seen) = &self.seen {
            seen.sent_bytes.add(bytes as u64);
            seen.sent_count.add(1);
        }
    }
}
