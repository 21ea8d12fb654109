//! What a journal measures of itself.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

/// Counters and histograms of one journal; cheap to clone.
#[derive(Clone)]
#[expect(missing_docs, reason = "each is explained where it is registered")]
pub struct JournalMetrics {
    pub chunk_bytes: Histogram,
    pub write_seconds: Histogram,
    pub commit_seconds: Histogram,
    commits: Counter,
    commit_nanoseconds: Counter,
    pub runs: Counter,
    pub syncs: Counter,
    pub flushed_writes: Counter,
    pub direct_commits: Counter,
    pub tail_read_bytes: Counter,
    pub cold_read_bytes: Counter,
    pub cold_hits: Counter,
    pub cold_misses: Counter,
    pub checkpoints: Counter,
    pub segments_sealed: Counter,
    pub segments_freed: Counter,
    pub segments_rewritten: Counter,
    pub rewriting_read_bytes: Counter,
    pub window_wait_seconds: Histogram,
    pub window_exceeded: Counter,
    pub archive_objects: Counter,
    pub archive_deletes: Counter,
    pub archive_idle: Counter,
    pub archive_reads: Counter,
    pub compaction_passes: Counter,
    pub compaction_removed: Counter,
    pub archive_written_bytes: Counter,
    pub archive_taken_bytes: Counter,
    pub archive_read_bytes: Counter,
    pub compaction_read_bytes: Counter,
    pub compaction_written_bytes: Counter,
}

impl Default for JournalMetrics {
    fn default() -> Self {
        let seconds = || Histogram::new(exponential_buckets(0.000_05, 2.0, 16));
        Self {
            chunk_bytes: Histogram::new(exponential_buckets(4096.0, 2.0, 12)),
            write_seconds: seconds(),
            commit_seconds: seconds(),
            commits: Counter::default(),
            commit_nanoseconds: Counter::default(),
            runs: Counter::default(),
            syncs: Counter::default(),
            flushed_writes: Counter::default(),
            direct_commits: Counter::default(),
            tail_read_bytes: Counter::default(),
            cold_read_bytes: Counter::default(),
            cold_hits: Counter::default(),
            cold_misses: Counter::default(),
            checkpoints: Counter::default(),
            segments_sealed: Counter::default(),
            segments_freed: Counter::default(),
            segments_rewritten: Counter::default(),
            rewriting_read_bytes: Counter::default(),
            window_wait_seconds: Histogram::new(exponential_buckets(0.01, 2.0, 12)),
            window_exceeded: Counter::default(),
            archive_objects: Counter::default(),
            archive_deletes: Counter::default(),
            archive_idle: Counter::default(),
            archive_reads: Counter::default(),
            compaction_passes: Counter::default(),
            compaction_removed: Counter::default(),
            archive_written_bytes: Counter::default(),
            archive_taken_bytes: Counter::default(),
            archive_read_bytes: Counter::default(),
            compaction_read_bytes: Counter::default(),
            compaction_written_bytes: Counter::default(),
        }
    }
}

impl JournalMetrics {
    /// A chunk is on stable storage, so long after its submission.
    pub(crate) fn note_commit(&self, took: std::time::Duration) {
        self.commit_seconds.observe(took.as_secs_f64());
        self.commits.inc();
        self.commit_nanoseconds.inc_by(took.as_nanos() as u64);
    }

    /// Chunks that came to stable storage, and how long all of them took together, in ns.
    pub fn commits_so_far(&self) -> (u64, u64) {
        (self.commits.get(), self.commit_nanoseconds.get())
    }

    /// Makes them visible under `mainstem_journal_…`.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("mainstem_journal");
        let bytes = || Unit::Bytes;
        registry.register_with_unit("chunk_size", "Chunk length with padding", bytes(), self.chunk_bytes.clone());
        registry.register_with_unit(
            "write_duration",
            "Chunk submission to completed write",
            Unit::Seconds,
            self.write_seconds.clone(),
        );
        registry.register_with_unit(
            "commit_duration",
            "Chunk submission to stable storage",
            Unit::Seconds,
            self.commit_seconds.clone(),
        );
        registry.register("runs", "Runs of batches, one for each log in a chunk", self.runs.clone());
        registry.register("syncs", "Flushes of a segment, apart from writes", self.syncs.clone());
        registry.register("flushed_writes", "Chunks whose write flushed them, too", self.flushed_writes.clone());
        registry.register(
            "direct_commits",
            "Small commits done by the thread that asked for them",
            self.direct_commits.clone(),
        );
        registry.register_with_unit("tail_read", "Served from the tail cache", bytes(), self.tail_read_bytes.clone());
        registry.register_with_unit(
            "cold_read",
            "Read from disk for readers of history",
            bytes(),
            self.cold_read_bytes.clone(),
        );
        registry.register("cold_cache_hits", "Extents of history found in memory", self.cold_hits.clone());
        registry.register("cold_cache_misses", "Extents of history read from disk", self.cold_misses.clone());
        registry.register("checkpoints", "Checkpoints written", self.checkpoints.clone());
        registry.register("segments_sealed", "Segments sealed", self.segments_sealed.clone());
        registry.register("segments_freed", "Segments whose space was freed", self.segments_freed.clone());
        registry.register("segments_rewritten", "Segments replaced by rewriting", self.segments_rewritten.clone());
        registry.register_with_unit(
            "rewriting_read",
            "Read from segments that are rewritten",
            bytes(),
            self.rewriting_read_bytes.clone(),
        );
        let help = "How long appends waited because the window was full and the archive behind";
        registry.register_with_unit("window_wait", help, Unit::Seconds, self.window_wait_seconds.clone());
        let help = "Segments added beyond the window, because the archive failed, was too slow, or could take nothing";
        registry.register("window_exceeded", help, self.window_exceeded.clone());
        registry.register("archive_objects", "Archive objects written", self.archive_objects.clone());
        registry.register("archive_deletes", "Archive objects deleted", self.archive_deletes.clone());
        registry.register(
            "archive_idle",
            "Times the archiver looked for work and found none",
            self.archive_idle.clone(),
        );
        registry.register(
            "archive_reads",
            "Reads of archive objects for readers of history",
            self.archive_reads.clone(),
        );
        registry.register(
            "compaction_passes",
            "Logs that were cleaned by compaction, passes",
            self.compaction_passes.clone(),
        );
        registry.register("compaction_removed", "Records that compaction removed", self.compaction_removed.clone());
        registry.register_with_unit(
            "archive_written",
            "Written into archive objects",
            bytes(),
            self.archive_written_bytes.clone(),
        );
        registry.register_with_unit(
            "archive_taken",
            "Read from segments for archive objects",
            bytes(),
            self.archive_taken_bytes.clone(),
        );
        registry.register_with_unit(
            "archive_read",
            "Read from archive objects for readers of history",
            bytes(),
            self.archive_read_bytes.clone(),
        );
        registry.register_with_unit(
            "compaction_read",
            "Batches that compaction looked through",
            bytes(),
            self.compaction_read_bytes.clone(),
        );
        registry.register_with_unit(
            "compaction_written",
            "Batches that compaction kept, as written",
            bytes(),
            self.compaction_written_bytes.clone(),
        );
    }
}
