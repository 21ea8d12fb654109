//! Whether a queue that refuses messages when it is full takes one more.
//!
//! A classic queue refuses what would be too much. A quorum queue takes the message with which it is too full, and refuses from then on,
//! until it is down to four fifths. What consumers wait for does not stay, and so does not fill a queue.
//!
//! All who publish to the queue stand in one [`Line`]: what one of them has had admitted takes the room that the others find. So does what the log has got
//! behind the begin of an open transaction, with the bytes that were admitted: it is weighed again, as far as it is there then, when the transaction has ended.
//!
//! Source: RabbitMQ 4.3, `rabbit_amqqueue_process`, `rabbit_fifo`; asked of the real one.

use std::collections::VecDeque;

use hashbrown::HashMap;

use super::{Overflow, Queue, QueueKind};
use crate::Subscription;

/// Messages that were admitted to a queue and are not known to be in its log, in the order in which they were admitted. Of those that the log
/// has got nobody may have been told yet: where it ends says how many these are, about, if others append to it at the same time.
///
/// Memory: 24 bytes for what was admitted together, as many for what waits for the end of a transaction, at most [`UNSTABLE_MAX`] times, and an entry for each
/// publisher that has something here.
#[derive(Debug, Default)]
pub struct Line {
    /// Where the log ended when it had none of them, as far as is known.
    log_end: u64,
    /// What was admitted together.
    entries: VecDeque<Entry>,
    /// Messages and bytes that were ever before the first.
    before: (u64, u64),
    publishers: HashMap<u64, Share>,
    last_publisher: u64,
    /// What has arrived and was not stable the last time that this was looked at.
    unstable: VecDeque<Unstable>,
    /// Bytes of what is not stable and never was in line, about.
    unknown_bytes: u64,
    /// A transaction was open when this was looked at last, or has ended since.
    was_open: bool,
    /// What lies below this and has not been searched since may be messages of a transaction.
    undecided: u64,
}

/// What arrived together, and where the log ended behind it, about.
#[derive(Clone, Copy, Debug)]
struct Unstable {
    end: u64,
    count: u64,
    bytes: u64,
}

/// More pieces of what is not stable are not told apart.
const UNSTABLE_MAX: usize = 1024;

/// Messages of one publisher.
#[derive(Clone, Copy, Debug)]
struct Entry {
    publisher: u64,
    /// How many there were ever up to the last of them, and the bytes of their bodies.
    up_to: (u64, u64),
}

/// Messages that a publisher has in the line, in its order: `arrived` that are behind others', then those without an outcome, then `withdrawn`.
#[derive(Debug, Default)]
struct Share {
    count: u64,
    arrived: u64,
    withdrawn: u64,
    /// The publisher has gone: until when those without an outcome are waited for.
    gone: Option<u64>,
}

/// So many ms after its publisher has gone a message has come, or does not come any more.
const GONE_MS: u64 = 10_000;

impl Line {
    /// A number for one who publishes in an order of his own.
    pub fn join(&mut self) -> u64 {
        self.last_publisher += 1;
        self.last_publisher
    }

    /// So many messages of a publisher were admitted, with bodies of `bytes` together; the log ends at `log_end`.
    pub fn push(&mut self, publisher: u64, log_end: u64, (count, bytes): (u64, u64)) {
        if self.entries.is_empty() {
            self.log_end = log_end;
        }
        self.publishers.entry(publisher).or_default().count += count;
        let (messages, sum) = self.up_to_last();
        self.entries.push_back(Entry { publisher, up_to: (messages + count, sum + bytes) });
    }

    /// The publisher's next `count` have their outcome. `log_end`: the log ended there behind the last of them, if that is known, else 0.
    pub fn arrived(&mut self, publisher: u64, count: u64, log_end: u64) {
        if let Some(share) = self.publishers.get_mut(&publisher) {
            share.arrived = share.arrived.saturating_add(count).min(share.count - share.withdrawn);
        }
        self.advance();
        // Between what others have in the line the log may have got what has not been told.
        if self.publishers.keys().all(|other| *other == publisher) {
            self.log_end = self.log_end.max(log_end);
            self.unstable.back_mut().into_iter().for_each(|last| last.end = self.log_end);
        }
    }

    /// The publisher goes: nothing more is told of what it has in the line, of which the last `withdrawn` do not come.
    pub fn leave(&mut self, publisher: u64, withdrawn: u64, now: u64) {
        if let Some(share) = self.publishers.get_mut(&publisher) {
            share.withdrawn = withdrawn.min(share.count - share.arrived);
            share.gone = Some(now + GONE_MS);
        }
        self.advance();
    }

    /// Finds out what has come of publishers that have gone, by where the log ends and the time.
    pub fn look(&mut self, log_end: u64, now: u64) {
        while let Some(first) = self.entries.front().copied()
            && let Some(share) = self.publishers.get_mut(&first.publisher)
            && let Some(until) = share.gone
        {
            let count = first.up_to.0 - self.before.0;
            if log_end >= self.log_end + count {
                share.arrived += count;
            } else if now >= until {
                share.withdrawn = share.count - share.arrived;
            } else {
                return;
            }
            self.advance();
        }
    }

    /// The log got so many records that nobody has published: ends of transactions.
    pub fn pass(&mut self, count: u64) {
        self.log_end += count;
        self.was_open = true;
    }

    fn advance(&mut self) {
        while let Some(first) = self.entries.front().copied()
            && let Some(share) = self.publishers.get_mut(&first.publisher)
        {
            let count = first.up_to.0 - self.before.0;
            if share.arrived >= count {
                share.arrived -= count;
                self.log_end += count;
                let arrived = Unstable { end: self.log_end, count, bytes: first.up_to.1 - self.before.1 };
                let is_full = self.unstable.len() >= UNSTABLE_MAX;
                match self.unstable.back_mut().filter(|_| is_full) {
                    Some(last) => {
                        *last =
                            Unstable { end: arrived.end, count: last.count + count, bytes: last.bytes + arrived.bytes }
                    }
                    None => self.unstable.push_back(arrived),
                }
            } else if share.withdrawn == share.count {
                share.withdrawn -= count;
            } else {
                break;
            }
            share.count -= count;
            if share.count == 0 {
                self.publishers.remove(&first.publisher);
            }
            self.before = first.up_to;
            self.entries.pop_front();
        }
    }

    fn up_to_last(&self) -> (u64, u64) {
        self.entries.back().map_or(self.before, |last| last.up_to)
    }

    /// Messages in the line.
    fn messages(&self) -> u64 {
        self.up_to_last().0 - self.before.0
    }

    /// Bytes of the bodies of all.
    fn bytes(&self) -> u64 {
        self.up_to_last().1 - self.before.1
    }

    /// Bytes of the bodies of the first so many.
    fn bytes_of_first(&self, count: u64) -> u64 {
        let wanted = self.before.0 + count.min(self.messages());
        let whole = self.entries.partition_point(|entry| entry.up_to.0 <= wanted);
        let (messages, bytes) = whole.checked_sub(1).map_or(self.before, |last| self.entries[last].up_to);
        let part = self
            .entries
            .get(whole)
            .map_or(0, |next| (next.up_to.1 - bytes) / (next.up_to.0 - messages) * (wanted - messages));
        bytes + part - self.before.1
    }

    /// The log can be read up to `readable`; what lies from `stable` on waits for the end of a transaction. All below `searched` was searched for offsets
    /// without a message. `each`: bytes of a message that never was in line, about: one of before a start.
    pub fn note_stable(&mut self, (stable, readable): (u64, u64), searched: u64, each: impl FnOnce() -> u64) {
        if searched >= self.undecided {
            // Compaction has it searched again.
            self.undecided = 0;
        }
        let is_open = readable > stable;
        if std::mem::replace(&mut self.was_open, is_open) || is_open {
            self.undecided = readable;
        }
        while self.unstable.front().is_some_and(|first| first.end <= stable) {
            self.unstable.pop_front();
        }
        let arrived: u64 = self.unstable.iter().map(|piece| piece.count).sum();
        let known = self.in_log(readable) - self.in_log(stable) + arrived;
        let unknown = readable.saturating_sub(stable).saturating_sub(known);
        self.unknown_bytes = if unknown == 0 { 0 } else { unknown.saturating_mul(each()) };
    }

    /// Bytes of the bodies of what is in the log and not stable, and in line no more.
    fn unstable_bytes(&self) -> u64 {
        self.unstable.iter().map(|piece| piece.bytes).sum::<u64>().saturating_add(self.unknown_bytes)
    }

    /// How many of them are in the log that ends at `log_end`.
    pub fn in_log(&self, log_end: u64) -> u64 {
        log_end.saturating_sub(self.log_end).min(self.messages())
    }
}

impl Queue {
    /// Is one refused of `count` messages that have bodies of `size` bytes together, and come behind `line`? The log ends at `readable`; what lies
    /// from `log_end` on waits for the end of a transaction, and counts until that is there and what it has left is searched. A classic queue asks for room
    /// also when a consumer waits for them.
    pub fn refuses(
        &mut self,
        subscription: &Subscription,
        (log_end, readable): (u64, u64),
        line: &Line,
        (count, size): (u64, u64),
    ) -> bool {
        if self.rules.overflow == Overflow::DropHead {
            return false;
        }
        self.note_fill(subscription, log_end);
        if self.refusing {
            return true;
        }
        // All but the last come before that one.
        let more = if self.rules.kind == QueueKind::Classic { (1, size) } else { (0, size - size / count.max(1)) };
        let fits = |messages: u64, bytes: u64| !self.exceeds(messages + more.0, bytes + more.1);
        let (ready, ready_bytes) = (subscription.ready_for_certain(log_end), self.weights.ready(subscription));
        let unstable = readable.saturating_sub(log_end) + subscription.unsearched(log_end.min(line.undecided));
        let arrived = line.in_log(readable);
        let weighed = line.in_log(self.weights.until(subscription).min(log_end));
        let ahead = line.messages() + count.saturating_sub(1);
        let left = (ahead - arrived, line.bytes() - line.bytes_of_first(weighed));
        let messages = ready + unstable + left.0;
        let unstable_bytes = if unstable > 0 { line.unstable_bytes() } else { 0 };
        if fits(messages, ready_bytes.saturating_add(left.1).saturating_add(unstable_bytes)) {
            return false;
        }
        // No consumer gets what waits for a transaction.
        let taken =
            if left.0 == 0 || unstable > 0 { 0 } else { self.consumers.get().map_or(0, |all| all.spare(messages)) };
        if taken < ready || taken == 0 {
            return true;
        }
        let gone = arrived + (taken - ready).min(left.0);
        !fits(ahead - gone, line.bytes() - line.bytes_of_first(gone))
    }

    /// Would so many bytes that are ready be too many for a queue that refuses messages?
    pub fn refuses_bytes(&self, bytes: u64) -> bool {
        self.rules.overflow != Overflow::DropHead && self.rules.bytes_max.is_some_and(|max| bytes > max)
    }

    /// Something has changed: a quorum queue that is too full refuses from now on, one that has room enough no longer.
    pub fn note_fill(&mut self, subscription: &Subscription, log_end: u64) {
        if self.rules.overflow == Overflow::DropHead || self.rules.kind == QueueKind::Classic {
            return;
        }
        let waiting = if self.rules.letters_wait { subscription.dying() } else { 0 };
        let (messages, bytes) = (
            subscription.ready_for_certain(log_end) + subscription.delayed() + waiting,
            self.weights.ready(subscription),
        );
        let is_low = |max: Option<u64>, found: u64| max.is_none_or(|max| found <= max.saturating_mul(4) / 5);
        if self.exceeds(messages, bytes) {
            self.refusing = true;
        } else if is_low(self.rules.length_max, messages) && is_low(self.rules.bytes_max, bytes) {
            self.refusing = false;
        }
    }

    /// Is that more than the queue may have?
    pub(super) fn exceeds(&self, messages: u64, bytes: u64) -> bool {
        self.rules.length_max.is_some_and(|max| messages > max) || self.rules.bytes_max.is_some_and(|max| bytes > max)
    }
}
