//! What the runs of the simulator have touched, by count.

use std::collections::BTreeMap;

/// What is counted where it happens: many runs in which one of these does not have found nothing out about it.
const HAPPENS: [&str; 38] = [
    "archives that were full",
    "backups restored",
    "backups with a cause and its effect in another journal",
    "batches beyond 4 MiB",
    "batches done behind the start",
    "both checkpoints missed",
    "checkpoints",
    "compaction passes",
    "compactions in a full archive",
    "damaged headers refused",
    "damaged long chunks refused",
    "deaths behind a rename",
    "deaths beside a segment that stays",
    "deaths inside the archiver",
    "deaths inside the keeper",
    "deaths within a rewriting",
    "disks filled",
    "disks that were full for long",
    "ends of logs refused",
    "journals replayed without checkpoints",
    "logs dropped, and others made",
    "newest segments missed",
    "objects missed",
    "older copies refused",
    "older copies that say the same",
    "older copies that verify finds",
    "power losses",
    "reads behind a missing object",
    "reads of a missing object",
    "restarts without work between",
    "rewritings in spite of a failed read",
    "segments missed without checkpoints",
    "segments of a full disk that are shorter",
    "segments rewritten",
    "shared batches",
    "space given back behind a record that is kept",
    "waits for the archive that had an end",
    "windows that held beside logs that are refused",
];
/// So many runs.
const RUNS: u64 = 400;
/// Fetches across seams, of which there are as many in each thousand of runs at least.
const FETCHES: (&str, u64) = ("fetches at seams", 1_000_000);

/// What the runs touched.
#[derive(Default)]
pub struct Coverage {
    counts: BTreeMap<&'static str, u64>,
}

impl Coverage {
    /// So many more.
    pub fn add(&mut self, what: &'static str, count: u64) {
        *self.counts.entry(what).or_default() += count;
    }

    /// Prints all that so many runs have touched; true when they are many and something never was, or too seldom.
    pub fn print(&mut self, runs: u64) -> bool {
        for what in HAPPENS.iter().filter(|_| runs >= RUNS) {
            self.add(what, 0);
        }
        self.counts.iter().for_each(|(what, count)| println!("{count:>12}  {what}"));
        // In a few runs what is seldom may not happen.
        let (what, least) = FETCHES;
        let is_seldom = self.counts.get(what).is_none_or(|count| *count < runs / 1000 * least);
        runs >= RUNS && (is_seldom || self.counts.values().any(|count| *count == 0))
    }
}
