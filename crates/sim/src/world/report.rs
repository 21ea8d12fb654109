//! What a run has touched, into the coverage report.

use super::{Coverage, Running, World};

impl World {
    /// What one run of a journal has done.
    pub(super) fn count(&self, running: &Running, coverage: &mut Coverage) {
        let metrics = running.journal.metrics();
        coverage.add("checkpoints", metrics.checkpoints.get());
        coverage.add("segments sealed", metrics.segments_sealed.get());
        coverage.add("segments freed", metrics.segments_freed.get());
        coverage.add("segments rewritten", metrics.segments_rewritten.get());
        coverage.add("objects made", metrics.archive_objects.get());
        coverage.add("objects deleted", metrics.archive_deletes.get());
        coverage.add("reads of objects", metrics.archive_reads.get());
        coverage.add("compaction passes", metrics.compaction_passes.get());
    }

    /// What its disk and its archive have, at the end.
    pub(super) fn report(&mut self, coverage: &mut Coverage) {
        coverage.add("objects at the end", self.archive.len() as u64);
        let archive = self.archive.counters();
        let counters = self.disk.counters();
        for (what, count) in [
            ("sectors lost", counters.sectors_lost),
            ("sectors kept", counters.sectors_kept),
            ("completions out of order", counters.reordered),
            ("writes with DSYNC", counters.dsync_writes),
            ("writes without", counters.plain_writes),
            ("syncs", counters.syncs),
            ("failed writes", counters.write_errors),
            ("failed syncs", counters.sync_errors),
            ("failed writes and syncs of the keeper", counters.file_errors),
            ("failed reads within rewritings", counters.read_errors),
            ("allocations refused", counters.full),
            ("renames lost", counters.renames_lost),
            ("segments that could not be put aside", counters.renames_refused),
            ("tries to remove, rename or replace a file that stays", counters.stuck),
            ("… to replace a segment that stays", counters.unreplaced),
            ("… with a segment", counters.stuck_by_kind[0]),
            ("… with a spare", counters.stuck_by_kind[1]),
            ("… with a reserve", counters.stuck_by_kind[2]),
            ("… with a checkpoint", counters.stuck_by_kind[3]),
            ("objects half written", archive.half_puts),
            ("objects refused", archive.failed_puts),
            ("objects for which there was no room", archive.without_room),
            ("objects back after their deletion", archive.undeleted),
        ] {
            coverage.add(what, count);
        }
    }
}
