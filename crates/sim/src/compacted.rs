//! What a compacted log must hold: of what was acknowledged, each record but those of which a newer one of the same key is there.

use std::collections::{BTreeMap, BTreeSet};

use record::Batches;

/// Different keys of a log.
const KEYS: u64 = 5;

/// Key of a record of a batch.
pub fn key(batch: u64, place: u64) -> u64 {
    (batch + place) % KEYS
}

/// The records of one log.
#[derive(Clone, Default)]
pub struct Records {
    /// By offset: the batch it was written with, and its key.
    known: BTreeMap<u64, (u64, u64)>,
    acknowledged: BTreeSet<u64>,
    /// What the reader that is on its way has met.
    met: BTreeSet<u64>,
}

impl Records {
    /// A batch was acknowledged.
    pub fn acknowledge(&mut self, base: u64, batch: u64, records: u64) -> Result<(), String> {
        for place in 0..records {
            self.know(base + place, (batch, key(batch, place)))?;
            self.acknowledged.insert(base + place);
        }
        Ok(())
    }

    fn know(&mut self, offset: u64, record: (u64, u64)) -> Result<(), String> {
        match self.known.insert(offset, record) {
            Some(before) if before != record => Err(format!("offset {offset} was record {before:?}, now {record:?}")),
            _ => Ok(()),
        }
    }

    /// A reader got these batches.
    pub fn saw(&mut self, bytes: &[u8]) -> Result<(), String> {
        for batch in Batches::new(bytes) {
            let (position, header) = batch.map_err(|error| error.to_string())?;
            let whole = &bytes[position..position + header.total_bytes()];
            if record::crc32c(&whole[21..]) != header.crc {
                return Err(format!("batch at {} is damaged", header.base()));
            }
            for record in record::records(whole).map_err(|error| error.to_string())? {
                let value = record.value.ok_or("a record without a value")?;
                let number = value.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte));
                let place = record.offset.since(header.base());
                let said =
                    record.key.as_deref().map(|key| key.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)));
                if said != Some(key(number, place)) {
                    return Err(format!("offset {} has key {said:?}", record.offset));
                }
                self.know(record.offset.0, (number, key(number, place)))?;
                self.met.insert(record.offset.0);
            }
        }
        Ok(())
    }

    /// A reader begins to read all.
    pub fn begin(&mut self) {
        self.met.clear();
    }

    /// It has read all from `start` to `end`; how many records that were acknowledged it did not meet.
    pub fn check(&self, start: u64, end: u64) -> Result<u64, String> {
        let mut newest: BTreeMap<u64, u64> = BTreeMap::new();
        for offset in self.met.range(start..end) {
            newest.insert(self.known[offset].1, *offset);
        }
        let mut gone = 0;
        for offset in self.acknowledged.range(start..end).filter(|offset| !self.met.contains(offset)) {
            let (batch, key) = self.known[offset];
            if newest.get(&key).is_none_or(|newest| newest < offset) {
                return Err(format!(
                    "record of batch {batch} at {offset} is gone, and nothing newer of key {key} is there"
                ));
            }
            gone += 1;
        }
        Ok(gone)
    }

    /// What was from here on is lost.
    pub fn forget_from(&mut self, end: u64) {
        self.known.split_off(&end);
        self.acknowledged.split_off(&end);
        self.met.split_off(&end);
    }
}
