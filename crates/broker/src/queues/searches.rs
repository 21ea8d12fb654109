//! Which logs are searched on the disk for offsets without a message (`gaps.rs`), and who waits for that. One search of a log at a time; it goes on
//! as long as somebody meets offsets meanwhile that are to be read, and those who wait are answered when all is searched that was stable
//! when they asked.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use journal::{Log, ReplyTo};
use parking_lot::Mutex;
use types::LogId;

use crate::Broker;
use crate::mailbox::Reply;

/// Askers that wait for a search, at most; others are not kept waiting.
const ASKERS_MAX: usize = 10_000;

/// All that are under way.
#[derive(Default)]
pub(super) struct Searches(Mutex<HashMap<LogId, UnderWay>>);

/// Who waits for a search.
pub(super) enum Asker {
    /// A connection.
    Connection(ReplyTo),
    /// A thread that may wait. It is told by the other end being closed, too.
    Thread(SyncSender<()>),
}

/// A search of one log.
#[derive(Default)]
struct UnderWay {
    /// Those who wait until all below an offset is searched.
    askers: Vec<(Asker, u64)>,
    /// Somebody has met offsets since the last look that are to be read: they may lie behind those that the search was begun for.
    again: bool,
}

impl Searches {
    /// Has `asker` answered when one of these logs is searched up to where it is stable now; false: none is searched.
    pub fn await_one<'a>(&self, mut logs: impl Iterator<Item = &'a Arc<Log>>, asker: Asker) -> bool {
        let mut under_way = self.0.lock();
        let Some(log) = logs.find(|log| under_way.contains_key(&log.id())) else { return false };
        let Some(search) = under_way.get_mut(&log.id()).filter(|search| search.askers.len() < ASKERS_MAX) else {
            return false;
        };
        search.askers.push((asker, log.last_stable().0));
        true
    }
}

/// The search of a log. However it ends, those who wait hear of it.
pub(super) struct Search {
    broker: Arc<Broker>,
    log: LogId,
    ended: bool,
}

impl Search {
    /// `None`: it is searched already, and does not end before [`Search::end_if_done`] has said that there is more.
    pub fn begin(broker: &Arc<Broker>, log: LogId) -> Option<Self> {
        match broker.vhosts.searches.0.lock().entry(log) {
            Entry::Vacant(place) => {
                place.insert(UnderWay::default());
            }
            Entry::Occupied(mut under_way) => {
                under_way.get_mut().again = true;
                return None;
            }
        }
        Some(Self { broker: Arc::clone(broker), log, ended: false })
    }

    /// Ends it, unless somebody has met more since this was asked last. Who does so later begins another one.
    pub fn end_if_done(&mut self) -> bool {
        let mut all = self.broker.vhosts.searches.0.lock();
        if let Some(under_way) = all.get_mut(&self.log).filter(|under_way| under_way.again) {
            under_way.again = false;
            return false;
        }
        let ended = all.remove(&self.log);
        drop(all);
        self.ended = true;
        self.answer(ended.map_or_else(Vec::new, |ended| ended.askers));
        true
    }

    /// All below `until` is searched.
    pub fn answer_below(&self, until: u64) {
        let known = |under_way: &mut UnderWay| under_way.askers.extract_if(.., |(_, end)| *end <= until).collect();
        let askers = self.broker.vhosts.searches.0.lock().get_mut(&self.log).map_or_else(Vec::new, known);
        self.answer(askers);
    }

    fn answer(&self, askers: Vec<(Asker, u64)>) {
        for (asker, _) in askers {
            match asker {
                Asker::Connection(to) => self.broker.reply(to, Reply::Done(Box::new(()))),
                // Who has given up waiting hears nothing.
                Asker::Thread(to) => drop(to.try_send(())),
            }
        }
    }
}

impl Drop for Search {
    fn drop(&mut self) {
        // Another one may be under way since it ended.
        if !self.ended {
            let ended = self.broker.vhosts.searches.0.lock().remove(&self.log);
            self.answer(ended.map_or_else(Vec::new, |ended| ended.askers));
        }
    }
}
