//! What takes messages away without anybody having settled them: compaction, and a log that begins later.

use std::collections::BTreeMap;

use delivery::{ChannelId, ConsumerId};

use super::{CHANNELS, FOREIGN, Message, State, World};

impl World {
    /// Compaction removes a message: what is ready is gone, what somebody has is gone when it comes back.
    pub fn compact(&mut self) {
        if self.messages.is_empty() {
            return;
        }
        let offset = self.draw(self.end());
        self.queue.note_gap(&mut self.subscription, offset, offset);
        self.queue.forget_weights(&self.subscription);
        let message = &mut self.messages[offset as usize];
        match message.state {
            State::Ready => message.state = State::Gap,
            State::Held(_) => message.removed = true,
            _ => {}
        }
    }

    /// The log begins later: what lies before is gone, and who had it has as much credit again.
    pub fn trim(&mut self) {
        self.start = (self.start + self.draw(6)).min(self.end());
        let (end, mut expected) = (self.start as usize, BTreeMap::new());
        let holder = |message: &Message| if let State::Held(id) = message.state { Some(id) } else { None };
        let mut holders: Vec<ConsumerId> = self.messages[..end].iter().filter_map(holder).collect();
        holders.sort_unstable();
        holders.dedup();
        let lost = self.queue.trim(&mut self.subscription, self.start);
        for message in self.messages[..end].iter_mut().filter(|message| holder(message).is_none()) {
            message.state = State::Trimmed;
        }
        for id in holders {
            let had_credit =
                self.members.iter().find(|member| member.id == id).is_none_or(|member| self.credit(member) > 0);
            let mut count = 0;
            for message in self.messages[..end].iter_mut().filter(|message| message.state == State::Held(id)) {
                message.state = State::Trimmed;
                count += 1;
            }
            if id != FOREIGN {
                let channel = if id.0 < 5_000 { id.0 % CHANNELS } else { id.0 - 5_000 };
                *expected.entry(ChannelId(channel)).or_insert(0) += count;
            }
            self.has_less(id, had_credit);
        }
        self.forget_suspended();
        let mut found = BTreeMap::new();
        lost.into_iter().for_each(|(channel, count)| *found.entry(channel).or_insert(0) += count);
        assert_eq!(found, expected, "{}", self.what);
    }
}
