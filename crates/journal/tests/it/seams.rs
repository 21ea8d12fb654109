//! Reads across the places where one part of a log ends and the next begins: objects of the archive, merged segments, full ones, the open one.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use journal::{ArchiveStore, JournalConfig, MemoryArchive, Place};
use types::{Durability, LogId, Offset};

use crate::node::{Node, Seen, read_cold, small};

const VALUE_BYTES: usize = 900;
const WINDOW: u64 = 16 << 20;
const FETCHES: u64 = 20_000;

/// An archive whose puts wait while it is shut.
#[derive(Default)]
struct Gated {
    objects: MemoryArchive,
    shut: Mutex<bool>,
    opens: Condvar,
    waiting: AtomicBool,
    puts: AtomicU64,
}

impl Gated {
    fn shut(&self, shut: bool) {
        *self.shut.lock().expect("nobody panics") = shut;
        self.opens.notify_all();
    }
}

impl ArchiveStore for Gated {
    fn put(&self, name: &str, bytes: bytes::Bytes) -> io::Result<()> {
        let mut shut = self.shut.lock().expect("nobody panics");
        while *shut {
            self.waiting.store(true, Ordering::SeqCst);
            shut = self.opens.wait(shut).expect("nobody panics");
        }
        drop(shut);
        self.waiting.store(false, Ordering::SeqCst);
        self.puts.fetch_add(1, Ordering::SeqCst);
        self.objects.put(name, bytes)
    }

    fn read_at(&self, name: &str, position: u64, into: &mut [u8]) -> io::Result<usize> {
        self.objects.read_at(name, position, into)
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<String>> {
        self.objects.list(prefix)
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.objects.delete(name)
    }
}

fn wait_for(what: &str, mut so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < Duration::from_secs(120), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The keeper merges runs of a log while objects of it are on their way to the archive: what the archive has ends inside a merged run.
#[test]
fn an_object_that_ends_inside_a_merged_run_is_no_reason_to_read_anything_twice() {
    let folder = tempfile::tempdir().expect("a folder");
    let archive = Arc::new(Gated::default());
    archive.shut(true);
    let config = JournalConfig { window_bytes: Some(WINDOW), object_bytes: 200 << 10, tail_bytes: 1 << 20, ..small() };
    let node =
        Node::open_storing(folder.path(), Arc::clone(&archive) as Arc<dyn ArchiveStore>, config).expect("it opens");
    let log = |id| node.journal.create_log(LogId(id), Durability::Memory);
    let (kept, others) = (log(1), [2, 3, 4, 5].map(log));
    // More is of the log that stays than of each of the others, and less than of all of them.
    for number in 0.. {
        if archive.waiting.load(Ordering::SeqCst) {
            break;
        }
        assert!(number < 1_000, "an object is on its way");
        node.append_batch(&kept, 20, VALUE_BYTES).expect("appended");
        for other in others.iter().filter(|other| number % 3 != other.id().0 % 3) {
            node.append_batch(other, 20, VALUE_BYTES).expect("appended");
        }
    }
    for other in &others {
        node.trim(other, other.end().0).expect("trimmed");
    }
    node.journal.check_retention();
    wait_for("what is left of segments is merged", || {
        node.journal.places(&kept).expect("readable")[0].0 == Place::Rewritten
    });
    archive.shut(false);
    let mut merged = None;
    wait_for("the archive ends inside a merged run", || {
        let places = node.journal.places(&kept).expect("readable");
        let seam = |two: &&[(Place, Range<Offset>)]| {
            two[0].0 == Place::Archived && two[1].0 == Place::Rewritten && two[1].1.start < two[0].1.end
        };
        merged = places.windows(2).find(seam).map(|two| two[1].1.start.0);
        merged.is_some()
    });
    let merged = merged.expect("found");
    let places = node.journal.places(&kept).expect("readable");
    let seam = kept.archived_until().0;
    let end = kept.high_watermark().0;
    let mut random = 1u64;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % below
    };
    for number in 0..FETCHES {
        let edge = match number % 4 {
            0 => seam,
            1 => merged,
            _ => places[next(places.len() as u64) as usize].1.start.0,
        };
        let from = (edge + next(400)).saturating_sub(200).min(end - 1);
        let bytes = [1, 2_000, 50_000, 300_000, 4 << 20][next(if number % 3 == 0 { 5 } else { 3 }) as usize];
        assert!(
            matches!(read_cold(&node.journal, &kept, Offset(from), bytes, VALUE_BYTES), Seen::Until(_)),
            "{bytes} bytes from {from}"
        );
    }
    // Times of records come from where the records are.
    assert_eq!(node.journal.find_by_time(&kept, 1_001).expect("readable"), Some((Offset(1), 1_001)));
    node.close();
}
