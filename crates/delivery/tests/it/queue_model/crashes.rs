//! What is written of a queue, and what comes back after a crash.

use super::*;

impl World {
    pub(super) fn write(&mut self) {
        for (key, value) in name().records(&self.subscription.take_changes()) {
            match value {
                Some(value) => drop(self.stored.insert(key, value)),
                None => drop(self.stored.remove(&key)),
            }
        }
        self.written = (self.messages.clone(), self.given);
    }

    /// What was not written is lost; the log is not.
    pub(super) fn crash(&mut self) {
        let (mut begin, mut runs, mut levels, mut lists) = (None, Vec::new(), Vec::new(), Vec::new());
        for (key, value) in &self.stored {
            match subscription_record(key, value).expect("its kind").expect("whole") {
                (_, SubscriptionRecord::Start { start, given }) => begin = Some((start, given.expect("it is kept"))),
                (_, SubscriptionRecord::Page(page)) => runs.extend(page),
                (_, SubscriptionRecord::Levels(page, one)) => levels.push((page, one)),
                (_, SubscriptionRecord::List(number, list)) => lists.push((number, value.len(), list)),
            }
        }
        let (start, given) = begin.expect("a start");
        assert_eq!(given, self.written.1, "{}", self.what);
        self.subscription = Subscription::restore_with(start, runs, lists);
        levels.into_iter().for_each(|(page, one)| self.subscription.restore_levels(page, one));
        self.subscription.remember_given(given);
        self.queue = Queue::new(self.rules, self.single, &mut self.subscription, self.now);
        let written = self.written.0.clone();
        for (offset, message) in self.messages.iter_mut().enumerate() {
            let gone = message.state == State::Gap || message.removed;
            let old = written.get(offset).copied().unwrap_or(Message {
                state: State::Ready,
                tries: Tries::default(),
                ..*message
            });
            *message = Message { removed: false, ..old };
            if offset < self.start as usize {
                message.state = State::Trimmed;
                continue;
            }
            if gone && matches!(old.state, State::Ready | State::Held(_)) {
                message.state = State::Gap;
                continue;
            }
            if let State::Held(_) = message.state {
                message.tries.counted -= 1;
                message.state = State::Ready;
            }
            let comes_first = self.rules.kind == QueueKind::Quorum
                && self.rules.priority_max.is_some()
                && message.tries.deliveries() > 0;
            message.returned = comes_first.then_some(offset as u64);
        }
        // The log is searched again.
        self.queue.trim(&mut self.subscription, self.start);
        for offset in (0u64..)
            .zip(&self.messages)
            .filter(|(_, message)| message.state == State::Gap)
            .map(|(offset, _)| offset)
            .collect::<Vec<_>>()
        {
            self.queue.note_gap(&mut self.subscription, offset, offset);
        }
        // What came back before a crash is found in the order of the log, before anything else is done.
        self.tick += self.end();
        while let Head::Unread(first, last) = self.queue.head(&self.subscription, self.end()) {
            let messages = &self.messages;
            self.subscription.set_levels(first, last, &mut |offset| messages[offset as usize].level);
        }
        (self.given, self.given_before) = (given, given);
        self.refusing = false;
        self.members.clear();
        self.suspended.clear();
        (self.active, self.quiescing) = (None, false);
    }
}
