//! Damaged headers of segments: the start is refused, a survey says that nothing is lost, a repair gives everything back. What a crash leaves
//! of a segment that was being prepared is none.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use journal::disk::IoMode;
use journal::{ColdWant, JournalConfig, MemoryArchive, Original, repair, survey};
use record::Batches;
use types::Offset;

use crate::node::{Node, read_all, small};
use crate::repair::{SECTOR, VALUE_BYTES, active, chunks, filled, flip, look, open, repaired, segments};

fn refusal(folder: &Path) -> String {
    match Node::open(folder, IoMode::Buffered, small()) {
        Ok(_) => panic!("a damaged folder opened"),
        Err(error) => error.to_string(),
    }
}

/// A node that looks after old segments only when it is asked to: a look may write a checkpoint.
fn open_at_rest(folder: &Path) -> Node {
    let config = JournalConfig { retention_check_ms: 3_600_000, ..small() };
    Node::open(folder, IoMode::Buffered, config).expect("it opens")
}

fn name_of(path: &Path) -> String {
    path.file_name().expect("a name").to_string_lossy().into_owned()
}

fn number_of(path: &Path) -> u64 {
    name_of(path).rsplit_once('-').and_then(|(_, number)| number.parse().ok()).expect("a segment")
}

fn first(folder: &Path) -> PathBuf {
    segments(folder)[0].clone()
}

/// How many records.
fn lost(folder: &Path) -> u64 {
    look(folder).logs.values().flat_map(|log| &log.lost).map(|range| range.end.since(range.start)).sum()
}

#[test]
fn a_damaged_header_of_the_segment_that_is_written_loses_nothing() {
    // Magic, version, journal, what is not used, sequence, checksum.
    for inside in [0, 4, 20, 2000, 4085, 4095] {
        let (folder, ends) = filled();
        let damaged = active(folder.path());
        flip(&damaged, inside);
        let refusal = refusal(folder.path());
        assert!(refusal.contains(&name_of(&damaged)) && refusal.contains("byte 0"), "byte {inside}: {refusal}");
        let found = look(folder.path());
        let ids: Vec<_> = found.damages.iter().map(|damage| damage.id.clone()).collect();
        assert_eq!(ids, [format!("3-{}-0", number_of(&damaged))], "byte {inside}");
        assert_eq!(lost(folder.path()), 0, "byte {inside}");
        repaired(folder.path(), &ends);
    }
}

#[test]
fn a_damaged_header_before_a_damaged_chunk_is_no_end_either() {
    let (folder, ends) = filled();
    let damaged = active(folder.path());
    flip(&damaged, 20);
    flip(&damaged, chunks(&damaged)[0] + 40);
    refusal(folder.path());
    assert_eq!(look(folder.path()).damages.len(), 2);
    assert!((1..=53).contains(&lost(folder.path())));
    repaired(folder.path(), &ends);
}

#[test]
fn a_damaged_header_of_a_young_journal_loses_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = open_at_rest(folder.path());
    for _ in 0..5 {
        node.append_batch(&node.log(1), 10, VALUE_BYTES).expect("appended");
    }
    let end = node.log(1).end();
    node.close();
    let begun = active(folder.path());
    segments(folder.path())
        .iter()
        .filter(|path| **path != begun)
        .for_each(|path| fs::remove_file(path).expect("removable"));
    assert!(!folder.path().join("checkpoint").exists(), "nothing is sealed yet");
    flip(&begun, 30);
    assert!(refusal(folder.path()).contains("segment-000000000001"));
    assert_eq!((look(folder.path()).damages.len(), lost(folder.path())), (1, 0));
    repaired(folder.path(), &[end]);
}

#[test]
fn a_damaged_header_of_a_sealed_segment_loses_nothing() {
    let (folder, ends) = filled();
    let damaged = segments(folder.path())[1].clone();
    flip(&damaged, 20);
    assert!(refusal(folder.path()).contains("segment-000000000002"));
    let found = look(folder.path());
    assert!(
        found.damages.len() == 1 && found.damages[0].id == "3-2-0" && found.damages[0].is_repairable(),
        "{:?}",
        found.damages
    );
    assert_eq!(lost(folder.path()), 0);
    repaired(folder.path(), &ends);
}

#[test]
fn what_was_being_prepared_is_no_damage() {
    let (folder, ends) = filled();
    let begun = active(folder.path());
    let next = folder.path().join(format!("segment-{:012}", number_of(&begun) + 1));
    // A file that had an earlier life, and of its new header a half.
    let mut bytes = fs::read(&segments(folder.path())[0]).expect("readable");
    bytes[..512].fill(0x55);
    fs::write(&next, bytes).expect("writable");
    assert_eq!(look(folder.path()).damages, []);
    let node = open(folder.path());
    for (number, end) in (1..).zip(&ends) {
        assert_eq!(read_all(&node.journal, &node.log(number), VALUE_BYTES), *end);
    }
    node.close();
}

#[test]
fn a_newer_header_is_not_surveyed() {
    for of in [active as fn(&Path) -> PathBuf, first] {
        let (folder, _) = filled();
        let file = OpenOptions::new().read(true).write(true).open(of(folder.path())).expect("openable");
        let mut header = vec![0; 4092];
        file.read_exact_at(&mut header, 0).expect("readable");
        header[4..6].copy_from_slice(&77u16.to_le_bytes());
        header.extend(record::crc32c(&header).to_le_bytes());
        file.write_all_at(&header, 0).expect("writable");
        let error =
            survey(folder.path(), 0, &MemoryArchive::default(), &|_| {}).err().expect("it is newer").to_string();
        assert!(error.contains("77"), "{error}");
    }
}

fn put_checkpoint(folder: &Path, bytes: &[u8]) {
    for name in ["checkpoint", "checkpoint-copy"] {
        fs::write(folder.join(name), bytes).expect("writable");
    }
}

/// A folder whose checkpoint is older than its last segments.
fn behind_its_checkpoint() -> (tempfile::TempDir, [Offset; 2]) {
    let (folder, _) = filled();
    let kept = fs::read(folder.path().join("checkpoint")).expect("readable");
    let node = open(folder.path());
    let logs = [node.log(1), node.log(2)];
    for _ in 0..60 {
        node.append_batch(&logs[0], 50, VALUE_BYTES).expect("appended");
        node.append_batch(&logs[1], 3, VALUE_BYTES).expect("appended");
    }
    let ends = [logs[0].end(), logs[1].end()];
    node.close();
    put_checkpoint(folder.path(), &kept);
    (folder, ends)
}

#[test]
fn a_segment_that_is_gone_is_not_the_end() {
    let (folder, ends) = behind_its_checkpoint();
    assert_eq!(look(folder.path()).damages, []);
    let all: Vec<PathBuf> = segments(folder.path()).into_iter().filter(|path| !chunks(path).is_empty()).collect();
    let middle = all[all.len() - 2].clone();
    flip(&middle, 20);
    assert!(refusal(folder.path()).contains(&name_of(&middle)), "with a damaged header");
    assert_eq!(lost(folder.path()), 0);
    flip(&middle, 20);
    let aside = folder.path().join("aside");
    fs::rename(&middle, &aside).expect("renamable");
    let refusal = refusal(folder.path());
    assert!(refusal.contains(&format!("segment {} is missing", number_of(&middle))), "{refusal}");
    let found = look(folder.path());
    assert!(found.damages.len() == 1 && found.damages[0].is_repairable(), "{:?}", found.damages);
    fs::rename(&aside, &middle).expect("renamable");
    repaired(folder.path(), &ends);
}

/// The second of segments that were rewritten into one was about to be used again.
#[test]
fn what_was_rewritten_and_is_used_again_is_no_damage() {
    // Behind the next checkpoint another rewriting may not name it any more.
    for named in [true, false] {
        let (folder, mut ends, older) = rewritten_with_older();
        if !named {
            let before = fs::read(folder.path().join("checkpoint")).expect("readable");
            let node = open_at_rest(folder.path());
            while fs::read(folder.path().join("checkpoint")).expect("readable") == before {
                node.append_batch(&node.log(1), 50, VALUE_BYTES).expect("appended");
            }
            ends[0] = node.log(1).end();
            node.close();
        }
        let all = segments(folder.path());
        let rewritten = all[0].clone();
        let gone = older
            .iter()
            .find(|path| !all.contains(&folder.path().join(name_of(path))))
            .expect("something was rewritten into another");
        fs::copy(gone, folder.path().join(format!("segment-{:012}", number_of(&all[all.len() - 1]) + 1)))
            .expect("copied");
        assert!(
            fs::read(&rewritten).expect("readable")[38..]
                .chunks(8)
                .take(8)
                .any(|number| number == number_of(gone).to_le_bytes())
        );
        if !named {
            let mut header = fs::read(&rewritten).expect("readable");
            header.truncate(4092);
            header[36..38].copy_from_slice(&1u16.to_le_bytes());
            header[46..4084].fill(0);
            header.extend(record::crc32c(&header).to_le_bytes());
            OpenOptions::new()
                .write(true)
                .open(&rewritten)
                .expect("openable")
                .write_all_at(&header, 0)
                .expect("writable");
        }
        assert_eq!((look(folder.path()).damages, lost(folder.path())), (Vec::new(), 0), "{named}");
        let node = open(folder.path());
        node.journal.check_segments(&|_| true).expect("nothing is missing");
        for (number, end) in (1..).zip(ends) {
            assert_eq!(node.log(number).end(), end);
        }
        node.close();
    }
}

/// Log 3 has something only in the second of the segments that were rewritten into one, and the power went before the next checkpoint.
fn rewritten() -> (tempfile::TempDir, [Offset; 3]) {
    let (folder, ends, _) = rewritten_with_older();
    (folder, ends)
}

/// The same, and copies of the segments before.
fn rewritten_with_older() -> (tempfile::TempDir, [Offset; 3], Vec<PathBuf>) {
    let folder = tempfile::tempdir().expect("a folder");
    let node = open(folder.path());
    let logs = [node.log(1), node.log(2), node.log(3)];
    for round in 0..80 {
        node.append_batch(&logs[0], 50, VALUE_BYTES).expect("appended");
        if round % 4 == 0 {
            node.append_batch(&logs[1], 3, VALUE_BYTES).expect("appended");
        }
        if round == 32 {
            node.append_batch(&logs[2], 3, VALUE_BYTES).expect("appended");
        }
    }
    let ends = [logs[0].end(), logs[1].end(), logs[2].end()];
    node.close();
    let kept = fs::read(folder.path().join("checkpoint")).expect("readable");
    fs::create_dir(folder.path().join("older")).expect("creatable");
    let copied = |path: PathBuf| {
        let to = folder.path().join("older").join(name_of(&path));
        fs::copy(path, &to).expect("copied");
        to
    };
    let older: Vec<PathBuf> = segments(folder.path()).into_iter().map(copied).collect();
    let node = open_at_rest(folder.path());
    node.trim(&node.log(1), ends[0].0).expect("trimmed");
    // One look: a second would begin with the next checkpoint.
    node.journal.check_retention();
    let began = Instant::now();
    while node.journal.metrics().segments_rewritten.get() == 0 {
        assert!(began.elapsed() < Duration::from_secs(120), "old segments are rewritten");
        std::thread::sleep(Duration::from_millis(5));
    }
    node.close();
    put_checkpoint(folder.path(), &kept);
    assert_eq!(fs::read(&segments(folder.path())[0]).expect("readable")[6], 2, "the first is a rewritten one");
    (folder, ends, older)
}

#[test]
fn a_checkpoint_that_is_gone_is_no_empty_journal() {
    let (folder, ends) = rewritten();
    let (checkpoint, aside) = (folder.path().join("checkpoint"), folder.path().join("aside"));
    fs::remove_file(folder.path().join("checkpoint-copy")).expect("removable");
    for without_oldest in [false, true] {
        fs::rename(&checkpoint, &aside).expect("renamable");
        let oldest = first(folder.path());
        let other = folder.path().join("oldest");
        if without_oldest {
            fs::rename(&oldest, &other).expect("renamable");
        }
        let refusal = refusal(folder.path());
        assert!(refusal.contains("is missing"), "{refusal}");
        assert!(look(folder.path()).damages.iter().any(journal::Damage::is_fatal), "{:?}", look(folder.path()).damages);
        if without_oldest {
            fs::rename(&other, &oldest).expect("renamable");
        }
        fs::rename(&aside, &checkpoint).expect("renamable");
    }
    repaired(folder.path(), &ends);
}

#[test]
fn a_rewritten_segment_goes_on_standing_for_those_that_it_replaced() {
    let (folder, ends) = rewritten();
    flip(&segments(folder.path())[0], SECTOR + 100);
    assert!(lost(folder.path()) > 0);
    repaired(folder.path(), &ends);
    let (folder, ends) = rewritten();
    flip(&segments(folder.path())[0], 20);
    assert_eq!((look(folder.path()).damages.len(), lost(folder.path())), (1, 0));
    repaired(folder.path(), &ends);
}

#[test]
fn a_rewritten_segment_stands_for_those_whose_files_could_not_be_removed() {
    let (folder, ends, older) = rewritten_with_older();
    let checkpoint = || fs::read(folder.path().join("checkpoint")).expect("readable");
    let before = checkpoint();
    let node = open_at_rest(folder.path());
    node.journal.check_retention();
    let began = Instant::now();
    while checkpoint() == before {
        assert!(began.elapsed() < Duration::from_secs(120), "a look writes a checkpoint");
        std::thread::sleep(Duration::from_millis(5));
    }
    node.close();
    let stays = |path: &&PathBuf| !folder.path().join(name_of(path)).exists();
    let staying: Vec<&PathBuf> = older.iter().filter(stays).collect();
    assert!(!staying.is_empty(), "some were replaced");
    for path in staying {
        fs::copy(path, folder.path().join(name_of(path))).expect("copied");
    }
    let rewritten = segments(folder.path())
        .into_iter()
        .find(|path| fs::read(path).expect("readable")[6] == 2)
        .expect("a rewritten one");
    flip(&rewritten, 20);
    let damages = look(folder.path()).damages;
    assert!(damages.len() == 1 && damages[0].is_repairable(), "{damages:?}");
    assert_eq!(lost(folder.path()), 0);
    repaired(folder.path(), &ends);
}

#[test]
fn what_is_lost_in_two_segments_is_put_into_each() {
    let (folder, ends) = filled();
    let all = segments(folder.path());
    // One without its index and with a damaged body, one that knows what it has lost, one behind the checkpoint.
    flip(&all[1], fs::metadata(&all[1]).expect("it is there").len() - SECTOR + 50);
    for path in [&all[1], &all[2], &active(folder.path())] {
        flip(path, chunks(path)[3] + SECTOR);
    }
    let found = look(folder.path());
    assert_eq!(found.damages.len(), 4, "{:?}", found.damages);
    repaired(folder.path(), &ends);
}

#[test]
fn what_takes_the_place_of_records_is_of_their_term() {
    for of in [active as fn(&Path) -> PathBuf, first] {
        let (folder, _) = filled();
        let damaged = of(folder.path());
        flip(&damaged, chunks(&damaged)[3] + SECTOR);
        let found = look(folder.path());
        let (id, range) =
            found.logs.iter().find_map(|(id, log)| Some((*id, log.lost.first()?.clone()))).expect("something is lost");
        repair(folder.path(), &found, Original::Kept, &|_| true).expect("it can be repaired");
        let node = open(folder.path());
        let want = ColdWant { log: node.log(id.0), from: range.start, until: range.end, max_bytes: 1 };
        let bytes = node.journal.read_cold(&[want], 1).remove(0).expect("readable").slices.concat();
        let batches: Vec<_> = Batches::new(&bytes).map(|batch| batch.expect("a batch").1).collect();
        let filler = batches
            .iter()
            .find(|batch| batch.base() <= range.start && range.start < batch.next())
            .expect("it is served");
        assert_eq!((filler.records_count, filler.leader_epoch), (0, 1), "{batches:?}");
        let (there, end) = (node.log(id.0).dense_from(), node.log(id.0).end());
        assert!(there >= range.end && there < end, "who counts records looks up to {there} for those in {range:?}");
        node.close();
        // Another start finds it in a checkpoint, or in the chunk again.
        let node = open(folder.path());
        assert_eq!(node.log(id.0).dense_from(), there);
        node.close();
    }
}

#[test]
fn where_the_damaged_file_is_a_copy_it_goes() {
    let (folder, _) = filled();
    let damaged = segments(folder.path())[0].clone();
    flip(&damaged, chunks(&damaged)[3] + SECTOR);
    repair(folder.path(), &look(folder.path()), Original::Dropped, &|_| true).expect("it can be repaired");
    let names: Vec<String> =
        fs::read_dir(folder.path()).expect("a folder").map(|entry| name_of(&entry.expect("an entry").path())).collect();
    assert!(names.iter().all(|name| !name.starts_with("damaged-") && name != "repairing"), "{names:?}");
    assert_eq!(look(folder.path()).damages, []);
}
