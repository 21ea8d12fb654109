//! What is appended together: records of several logs and a keyed record in one chunk, and batches that logs share. Checked: a crash leaves
//! all of it or nothing.

use bytes::Bytes;
use journal::{AppendItem, Appended};
use types::{Durability, LogId};

use super::{Kind, Sent, Waiting, World, durability, is_compacted, make_batch};
use crate::coverage::Coverage;

/// Logs that take part: without producers, and not compacted.
const LOGS: [u64; 4] = [1, 3, 7, 11];
/// Logs that share batches; some are compacted, and some let go of what is old.
const SHARING: [u64; 6] = [1, 3, 5, 7, 9, 11];
/// Keys that take turns.
const KEYS: u64 = 8;
/// The connection of all: they keep their order.
const CONNECTION: u64 = 901;

/// Something that was submitted together.
#[derive(Clone, Debug)]
pub(super) struct Tie {
    number: u64,
    parts: Vec<Part>,
    /// With a keyed record.
    keyed: bool,
    acknowledged: bool,
}

/// A batch, and where its log ended when it was submitted: it cannot lie before.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub sent: Sent,
    pub floor: u64,
}

/// Everything since the last restart.
#[derive(Clone, Default)]
pub(super) struct Ties {
    last: u64,
    open: Vec<Tie>,
}

fn key(number: u64) -> Bytes {
    Bytes::from(format!("tied-{}", number % KEYS))
}

impl World {
    pub(super) fn tie(&mut self, coverage: &mut Coverage) {
        self.ties.last += 1;
        let (number, mut items, mut parts) = (self.ties.last, Vec::new(), Vec::new());
        let shares = self.random.one_in(2);
        if shares {
            items.push(self.shared_batch(&mut parts));
            coverage.add("shared batches", 1);
        }
        let alone = shares && self.random.one_in(2);
        if !alone {
            for id in self.some_of(&LOGS) {
                let log = self.log(id);
                let floor = log.high_watermark().0;
                let (sent, batch, header) = self.plain_batch(id);
                items.push(AppendItem::Batch { log, bytes: batch, header, gate: None });
                parts.push(Part { sent, floor });
            }
            let value = Some(Bytes::from(number.to_string()));
            items.insert(
                self.random.below(items.len() as u64 + 1) as usize,
                AppendItem::State { key: key(number), value },
            );
        }
        let item = if alone { items.remove(0) } else { AppendItem::Together(items) };
        if self.submit(CONNECTION, item, Waiting::Tie(number)) {
            self.ties.open.push(Tie { number, parts, keyed: !alone, acknowledged: false });
        }
    }

    /// At least two of these logs, as far as they are made.
    fn some_of(&mut self, logs: &[u64]) -> Vec<LogId> {
        let mut logs: Vec<u64> = logs.iter().copied().filter(|id| *id <= self.made).collect();
        while logs.len() > 2 && self.random.one_in(2) {
            logs.remove(self.random.below(logs.len() as u64) as usize);
        }
        logs.into_iter().map(LogId).collect()
    }

    fn shared_batch(&mut self, parts: &mut Vec<Part>) -> AppendItem {
        let logs = self.some_of(&SHARING);
        // Where one of the logs is compacted its records need keys.
        let made_for = logs.iter().copied().find(|id| is_compacted(*id)).unwrap_or(logs[0]);
        let (sent, bytes, header) = self.plain_batch(made_for);
        let logs: Vec<_> = logs.into_iter().map(|id| self.log(id)).collect();
        parts.extend(
            logs.iter().map(|log| Part { sent: Sent { log: log.id(), ..sent.clone() }, floor: log.high_watermark().0 }),
        );
        let mut items = AppendItem::for_all(&logs, &bytes, header);
        items.next().expect("there are logs")
    }

    /// A batch that nothing is special about.
    pub(super) fn plain_batch(&mut self, id: LogId) -> (Sent, Bytes, record::BatchHeader) {
        self.next_id += 1;
        let at = self.clock_now();
        let sent = Sent {
            log: id,
            id: self.next_id,
            records: 1 + self.random.below(3),
            producer: None,
            kind: Kind::Plain,
            at,
            bytes: 0,
        };
        let filler = if self.random.one_in(8) { self.random.below(30_000) } else { self.random.below(1_500) };
        let batch = make_batch(&sent, filler as usize);
        let header = record::BatchHeader::parse(&batch).expect("the builder makes valid batches");
        (Sent { bytes: batch.len() as u64, ..sent }, batch, header)
    }

    pub(super) fn tie_answered(&mut self, number: u64, ok: bool, coverage: &mut Coverage) -> Result<(), String> {
        let at = self.ties.open.iter().position(|tie| tie.number == number).ok_or("an answer to nothing")?;
        if !ok {
            self.ties.open.remove(at);
            coverage.add("appends refused", 1);
            return Ok(());
        }
        coverage.add("ties acknowledged", 1);
        self.ties.open[at].acknowledged = true;
        let parts = self.ties.open[at].parts.clone();
        parts.into_iter().try_for_each(|part| self.part_acknowledged(part, coverage))
    }

    /// An acknowledged batch can be read, unless it was trimmed away already.
    pub(super) fn part_acknowledged(&mut self, part: Part, coverage: &mut Coverage) -> Result<(), String> {
        let (id, batch) = (part.sent.log, part.sent.id);
        if is_compacted(id) {
            return Ok(());
        }
        let found = match self.find(id, batch, part.floor, coverage) {
            // The restart will tell.
            Err(_) if self.disk.is_dead() => return Ok(()),
            found => found?,
        };
        if let Some(base) = found {
            let log_start = self.log(id).start();
            let appended = Appended { base: types::Offset(base), log_start, duplicate: false };
            return self.acknowledged(part.sent, appended, coverage);
        }
        if self.log(id).start().0 <= part.floor {
            return Err(format!("{id}: batch {batch} was acknowledged and is not readable from {} on", part.floor));
        }
        Ok(())
    }

    /// Where a batch lies that lies not before `floor`.
    fn find(&mut self, id: LogId, batch: u64, floor: u64, coverage: &mut Coverage) -> Result<Option<u64>, String> {
        self.look_at_start(id, coverage)?;
        let log = self.log(id);
        let mut from = log.start().max(types::Offset(floor));
        while from < log.high_watermark() {
            let cold = self.random.one_in(2);
            from = self.read_from(&log, from, cold, coverage)?;
        }
        let model = self.logs.entry(id).or_default();
        Ok(model.visible.range(floor..).find(|(_, (seen, _))| *seen == batch).map(|(base, _)| *base))
    }

    /// After a restart, when all logs have been read.
    pub(super) fn check_ties(
        &mut self,
        recovered: &[(Bytes, Bytes)],
        power_lost: bool,
        coverage: &mut Coverage,
    ) -> Result<(), String> {
        for tie in std::mem::take(&mut self.ties.open) {
            let value = recovered.iter().find(|(found, _)| *found == key(tie.number)).map(|(_, value)| value);
            let value = value.map_or(0, |value| String::from_utf8_lossy(value).parse().unwrap_or(0));
            // Of what was overwritten or trimmed nothing is known.
            let mut known: Vec<bool> =
                (tie.keyed && value <= tie.number).then_some(value == tie.number).into_iter().collect();
            for Part { sent, floor } in tie.parts.iter().filter(|part| !is_compacted(part.sent.log)) {
                let model = self.logs.entry(sent.log).or_default();
                let there = model.visible.range(floor..).any(|(_, (seen, _))| *seen == sent.id);
                if there || self.log(sent.log).start().0 <= *floor {
                    known.push(there);
                }
            }
            let (some, all) = (known.contains(&true), !known.contains(&false));
            // Without a keyed record it is of the class of its logs.
            let volatile = !tie.keyed && tie.parts.iter().all(|part| durability(part.sent.log) == Durability::Memory);
            let must = tie.acknowledged && !(power_lost && volatile);
            if (some || must) && !all {
                return Err(format!("of what belongs together only a part is there: {known:?} of {tie:?}"));
            }
            coverage.add(if some { "ties whole after a restart" } else { "ties gone after a restart" }, 1);
        }
        Ok(())
    }
}
