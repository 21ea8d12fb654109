//! Publishes of a session: most come whole in what was read, and are handled as they lie there. Of others what has come is kept, as long as
//! there is memory for it.

use amqp_wire::{Frame, FrameKind, basic};
use broker::{LimitKind, MessageTraits};

use super::{Phase, Session, Slot};
use crate::channel::Mode;
use crate::connection::Waiting;
use crate::content::{self, Content, Taken};
use crate::error::Failure;
use crate::handlers::{self, Table};
use crate::message::Message;
use crate::transaction::Held;

impl Session {
    /// A frame of a message whose method has come.
    pub(super) fn handle_content(&mut self, frame: &Frame<'_>, table: &mut Table<'_>) -> Result<usize, Failure> {
        let length = frame.bytes();
        let Some(Slot::Open(channel)) = self.channels.get_mut(&frame.channel) else { return Ok(length) };
        let (connection, transacts) = (&mut self.connection, matches!(channel.mode, Mode::Transaction(_)));
        let Some(content) = &mut channel.content else { return Ok(length) };
        // What is counted for the content is free when it is held whole.
        let held =
            if transacts { Held::bytes_of(content.whole_bytes(frame)).saturating_sub(content.kept()) } else { 0 };
        if !connection.has_room(content.keeps(frame) + held)? {
            return Ok(0);
        }
        let before = content.kept();
        let taken = content.take(frame, connection.broker().limits().message_bytes_max(), connection.now)?;
        if frame.kind == FrameKind::Header && content.is_too_large() {
            connection.broker().limits().note_refusal(LimitKind::MessageBytes);
        }
        connection.unfinished.add(content.kept() - before);
        let Taken::Whole(last) = taken else { return Ok(length) };
        let Some(content) = channel.content.take() else { return Ok(length) };
        connection.unfinished.sub(content.kept());
        let mandatory = content.mandatory;
        if transacts {
            content.with_blocks(last, |message, blocks| {
                handlers::publish(connection, channel, table, message, mandatory, |message| {
                    Held::of_blocks(message, mandatory, blocks, last)
                })
            })?;
        } else {
            content.with_message(last, |message| {
                handlers::publish(connection, channel, table, message, mandatory, |message| {
                    Held::new(message, mandatory)
                })
            })?;
        }
        Ok(length)
    }

    /// A publish. Most come whole, with a body of one frame; nothing of those is kept.
    pub(super) fn handle_publish(
        &mut self,
        frame: &Frame<'_>,
        publish: &basic::Publish<'_>,
        rest: &[u8],
        table: &mut Table<'_>,
    ) -> Result<usize, Failure> {
        let length = frame.bytes();
        let Some(Slot::Open(channel)) = self.channels.get_mut(&frame.channel) else { return Ok(length) };
        let connection = &mut self.connection;
        if publish.immediate {
            return Err(Failure::not_implemented("immediate=true"));
        }
        let (exchange, routing_key) = (&publish.exchange, &publish.routing_key);
        if let Some((header, body, taken)) = content::whole(rest, frame.channel, connection.broker().limits()) {
            let properties = header.properties;
            let message =
                Message { exchange, routing_key, properties, traits: MessageTraits::default(), body: &[body] };
            if matches!(channel.mode, Mode::Transaction(_))
                && !connection.has_room(Held::bytes_of(properties.as_bytes().len() + body.len()))?
            {
                return Ok(0);
            }
            handlers::publish(connection, channel, table, message, publish.mandatory, |message| {
                Held::new(message, publish.mandatory)
            })?;
            return Ok(length + taken);
        }
        handlers::check_rights(connection, exchange, routing_key)?;
        let content = Content::new(publish, connection.now);
        if !connection.has_room(content.kept())? {
            return Ok(0);
        }
        connection.unfinished.add(content.kept());
        channel.content = Some(content);
        Ok(length)
    }

    /// Where others wait for memory, what was begun here and does not get on gives way.
    pub(super) fn give_way(&mut self) {
        let now = self.connection.now;
        self.connection.unfinished.note_look(now);
        // While it waits for the outcome of what it asked for beside, what it has begun is no less in the way. The channel that asked for it has its
        // outcome first.
        let asked = match &self.connection.waiting {
            Some(Waiting::Channel { channel, .. }) => Some(*channel),
            _ => None,
        };
        if asked.is_none() && !self.wants_read() {
            return self.connection.unfinished.note_unread(now);
        }
        if self.phase != Phase::Running || !self.connection.unfinished.gives_way() {
            return;
        }
        let since = |at| self.connection.unfinished.could_come_since(at);
        let is_stalled = |number: u16, slot: &Slot| {
            Some(number) != asked && matches!(slot, Slot::Open(channel) if channel.is_stalled(now, since))
        };
        let stalled = self.channels.iter().filter(|(number, slot)| is_stalled(**number, slot));
        let stalled: Vec<u16> = stalled.map(|(number, _)| *number).collect();
        for number in stalled {
            self.fail(number, Failure::no_room().of(basic::Publish::ID));
        }
        self.charge();
    }
}
