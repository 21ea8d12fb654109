//! Small windows that several logs fill evenly: nobody waits for an archiver that has nothing to do.

use std::sync::Arc;

use journal::{AppendItem, JournalConfig, Log, MemoryArchive};
use record::BatchHeader;

use crate::node::{Node, batch, read_all, small};

const VALUE_BYTES: usize = 900;
const SEGMENT: u64 = 1 << 20;
/// Of one append.
const RECORDS: u64 = 200;

/// Between the mark up to which segments are added and that from which the archiver takes logs with little data too there is no place for
/// both to wait: in small windows these marks lie closer together than a segment is long.
#[test]
fn whatever_the_window_and_the_number_of_logs_the_archiver_takes_what_the_keeper_waits_for() {
    for logs in [1, 20, 100] {
        for segments in 4..=9 {
            let folder = tempfile::tempdir().expect("a folder");
            let config = JournalConfig {
                window_bytes: Some(segments * SEGMENT),
                segment_bytes: SEGMENT,
                object_bytes: 256 << 10,
                tail_bytes: 1 << 20,
                archive_check_ms: 15_000,
                retention_check_ms: 300_000,
                ..small()
            };
            let node = Node::open_with(folder.path(), &Arc::new(MemoryArchive::default()), config).expect("it opens");
            let all: Vec<_> = (0..logs).map(|id| node.log(id + 1)).collect();
            let each = RECORDS / logs;
            for _ in 0..3 * segments * SEGMENT / (RECORDS * VALUE_BYTES as u64) {
                let item = |log: &Arc<Log>| {
                    let bytes = batch(log.id(), log.end(), each, VALUE_BYTES);
                    let header = BatchHeader::parse(&bytes).expect("a valid batch");
                    AppendItem::Batch { log: Arc::clone(log), bytes, header, gate: None }
                };
                node.append(1, all.iter().map(item).collect()).expect("appended");
            }
            // An archive that takes nothing for long is waited for no longer, and this counts that.
            let exceeded = node.journal.metrics().window_exceeded.get();
            assert_eq!(exceeded, 0, "{logs} logs in a window of {segments} segments");
            for log in &all {
                assert_eq!(read_all(&node.journal, log, VALUE_BYTES), log.end());
            }
            node.close();
        }
    }
}
