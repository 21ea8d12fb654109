//! What the node does for all, and what of that holds for those asked for: its journals, as far as they use them, and its network threads.

use std::time::Duration;

use journal::JournalStatus;

use super::{Look, Shares, WhyReason, WhySubject, percent};
use crate::Broker;
use crate::waits::ThreadTime;

/// Commits that take longer on average mean a slow disk.
const SLOW_COMMIT: Duration = Duration::from_millis(20);
/// So does a disk that brings no commit to its end, while somebody waits for one for such a part of the time.
const WAITS_FROM: f64 = 0.9;
/// A thread that is busy for such a part of the time keeps others waiting.
const THREAD_BUSY_FROM: f64 = 0.8;
/// So does something that takes such a part of a thread's time.
const EFFORT_FROM: f64 = 0.25;

fn reason(cause: &'static str, share: f64, worst: f64, text: String) -> WhyReason {
    WhyReason { cause, share, worst, connections: 0, text }
}

/// Commits of these journals between two looks: how many, and their time in ns.
fn commits_between((first, second): (&Look, &Look), journals: &[bool]) -> (u64, u64) {
    let pairs = first.commits.iter().zip(&second.commits).zip(journals).filter(|(_, wanted)| **wanted);
    pairs.fold((0, 0), |sum, ((before, after), _)| {
        (sum.0 + after.0.saturating_sub(before.0), sum.1 + after.1.saturating_sub(before.1))
    })
}

/// For people.
pub(super) fn commits_of(looks: (&Look, &Look), journals: &[bool]) -> String {
    let (count, ns) = commits_between(looks, journals);
    format!("{count} commits took {:.1} ms each", ns as f64 / count.max(1) as f64 / 1e6)
}

impl Broker {
    /// Which journals have to do with them: those of their topics. All of them where there is no telling.
    pub(super) fn journals_of(&self, subject: &WhySubject, all: &[Shares]) -> Vec<bool> {
        let topics: Vec<_> = match subject {
            WhySubject::All | WhySubject::Group(_) => Vec::new(),
            WhySubject::Topic(name) => self.topic(name).into_iter().collect(),
            WhySubject::Client(_) => {
                let mut ids: Vec<_> = all.iter().flat_map(|(waits, _)| waits.about().topics).collect();
                ids.sort_unstable();
                ids.dedup();
                ids.into_iter().filter_map(|id| self.topic_by_id(id)).collect()
            }
        };
        let mut wanted = vec![topics.is_empty(); self.journals().len()];
        for topic in topics {
            for log in topic.logs().iter() {
                wanted[self.journal_number(log.id())] = true;
            }
        }
        wanted
    }

    /// What is wrong with these journals. `waits`: the part of the time that somebody waits for appends to be durable.
    pub(super) fn reasons_of_journals(&self, looks: (&Look, &Look), wanted: &[bool], waits: f64) -> Vec<WhyReason> {
        let mut reasons = Vec::new();
        for (journal, _) in self.journals().iter().zip(wanted).filter(|(_, wanted)| **wanted) {
            let number = journal.number();
            let found = match journal.status() {
                JournalStatus::Stopped { reason } => {
                    ("disk-failed", format!("journal {number} takes nothing more: {reason}"))
                }
                JournalStatus::Hindered { reason } => {
                    ("disk-failed", format!("journal {number} takes nothing at the moment: {reason}"))
                }
                _ if journal.is_disk_full() => {
                    ("disk-full", format!("the disk of journal {number} is full: data is refused"))
                }
                _ if journal.waits_for_archive() => {
                    ("archive", format!("journal {number} waits for the archive: its window is full"))
                }
                _ => continue,
            };
            reasons.push(reason(found.0, 1.0, 1.0, found.1));
        }
        let window = looks.1.at.duration_since(looks.0.at);
        let (commits, ns) = commits_between(looks, wanted);
        let mean = Duration::from_nanos(ns / commits.max(1));
        if mean >= SLOW_COMMIT {
            let busy = (ns as f64 / window.as_nanos() as f64).min(1.0);
            let text = format!(
                "the disk is slow: {commits} commits took {:.0} ms each until they were on it",
                mean.as_secs_f64() * 1e3
            );
            reasons.push(reason("slow-disk", busy, busy, text));
        } else if commits == 0 && waits >= WAITS_FROM && reasons.is_empty() {
            let text = format!("the disk is slow: no commit came to its end in {:.1} s", window.as_secs_f64());
            reasons.push(reason("slow-disk", waits, waits, text));
        }
        reasons
    }
}

/// What network threads did. A thread that is busy with one of the things that are named is not named once more.
pub(super) fn reasons_of_threads((first, second): (&Look, &Look)) -> Vec<WhyReason> {
    let window = second.at.duration_since(first.at).as_nanos() as f64;
    let pairs: Vec<_> = first.threads.iter().zip(&second.threads).collect();
    let parts = |of: fn(&ThreadTime) -> u64| -> (f64, f64) {
        let shares =
            pairs.iter().map(|(before, after)| (of(after).saturating_sub(of(before)) as f64 / window).min(1.0));
        shares.fold((0.0, 0.0), |(sum, most), share| (sum + share / pairs.len() as f64, most.max(share)))
    };
    let mut reasons = Vec::new();
    let (share, worst) = parts(|thread| thread.handshakes);
    if worst >= EFFORT_FROM {
        let count = second.handshakes.saturating_sub(first.handshakes);
        let (part, most) = (percent(share), percent(worst));
        let text =
            format!("{count} handshakes of TLS took {part} of the time of network threads, of the busiest {most}");
        reasons.push(reason("tls-handshake", share, worst, text));
    }
    let (share, worst) = parts(|thread| thread.filters);
    if worst >= EFFORT_FROM {
        let text = format!(
            "filters took {} of the time of network threads, of the busiest {}",
            percent(share),
            percent(worst)
        );
        reasons.push(reason("filter", share, worst, text));
    }
    let (share, worst) = parts(|thread| thread.busy.saturating_sub(thread.handshakes + thread.filters));
    if worst >= THREAD_BUSY_FROM {
        let text =
            format!("a network thread was busy for {} of the time, all together {}", percent(worst), percent(share));
        reasons.push(reason("threads-busy", share, worst, text));
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn causes(threads: [(u64, u64, u64); 2]) -> Vec<(&'static str, u32)> {
        let at = Instant::now();
        let look = |at, threads| Look { at, connections: Vec::new(), threads, handshakes: 0, commits: Vec::new() };
        let ms = |(busy, handshakes, filters): (u64, u64, u64)| ThreadTime {
            busy: busy * 1_000_000,
            handshakes: handshakes * 1_000_000,
            filters: filters * 1_000_000,
        };
        let (first, second) =
            (look(at, vec![ThreadTime::default(); 2]), look(at + Duration::from_secs(1), threads.map(ms).to_vec()));
        reasons_of_threads((&first, &second))
            .into_iter()
            .map(|one| (one.cause, (one.worst * 100.0).round() as u32))
            .collect()
    }

    #[test]
    fn a_thread_is_busy_with_what_is_named_or_with_something_else() {
        assert!(causes([(300, 0, 0), (100, 20, 20)]).is_empty());
        assert_eq!(causes([(950, 700, 0), (500, 400, 0)]), [("tls-handshake", 70)]);
        assert_eq!(causes([(950, 0, 600), (900, 0, 0)]), [("filter", 60), ("threads-busy", 90)]);
    }
}
