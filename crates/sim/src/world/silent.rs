//! Producers that have written nothing for long: the keeper forgets them in time, whether checkpoints are written or not.

use types::Timestamp;

use super::World;

/// After so long; a unit of time is an operation. In the other of the two journals never.
pub(super) const EXPIRY_MS: u64 = 600;
/// All are looked through so often.
const INTERVAL_MS: i64 = 1_000;
/// A batch is sent again within this time, when its producer is known yet.
pub(super) const SENT_AGAIN_MS: i64 = 100;

impl World {
    /// Does the keeper forget them?
    pub(super) fn forgets_producers(&self) -> bool {
        self.name == "a"
    }

    /// A batch that was sent again may have waited for a segment so long that its producer was forgotten meanwhile.
    pub(super) fn may_be_twice(&self, batch: u64) -> bool {
        let is_late = |at: &Timestamp| self.clock_now() - at >= EXPIRY_MS as i64;
        self.forgets_producers() && self.sent_again.get(&batch).is_some_and(is_late)
    }

    /// After a turn of the keeper.
    pub(super) fn look_for_silent(&self) -> Result<(), String> {
        let Some(running) = self.running.as_ref().filter(|_| self.forgets_producers() && !self.disk.is_dead()) else {
            return Ok(());
        };
        let latest = self.clock_now() - EXPIRY_MS as i64 - INTERVAL_MS;
        for log in running.journal.log_ids().into_iter().filter_map(|id| running.journal.log(id)) {
            let silent = log.producers().into_iter().find(|(_, known, open)| open.is_none() && known.time < latest);
            if let Some((producer, known, _)) = silent {
                return Err(format!(
                    "{}: producer {producer} is known that wrote last at {}, and those are to be forgotten that have written nothing since {latest}",
                    log.id(),
                    known.time
                ));
            }
        }
        Ok(())
    }
}
