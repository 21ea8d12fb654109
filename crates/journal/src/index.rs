//! The index of a sealed segment, written behind its last chunk or body.
//!
//! ```text
//! entries   32 bytes each, sorted by (log, offset), in pages of 16 KiB
//!             0 u64 base offset    8 u32 last-offset delta  12 u32 position in the file
//!            16 u32 bytes, top bit: shared                  20 u32 CRC-32C            24 i64 max timestamp
//! table     64 bytes a log, sorted by log id, in pages of 16 KiB
//!             0 u64 log id         8 u32 first entry        12 u32 entry count
//!            16 u64 base          24 u64 next               32 u64 bytes
//!            40 u32 records, capped   44 u32 shared bytes   48 i64 max timestamp   56 i64 last append time
//! fences    first log id (u64) of each table page, then CRC-32C (u32) of each table page and entry page
//! sharers   for each set of logs that share runs: u64 bytes, u32 count, and so many u32 numbers of rows of the table;
//!           a set of none stands for all that there was no room for
//! footer    the last sector of the file
//!             0 u32 magic "MSIX"   4 u16 version             8 [16] journal UUID   24 u64 sequence
//!            32 u64 entries at    40 u32 entry count        44 u32 log count
//!            48 u64 table at      56 u64 fences at          64 u32 fences CRC-32C
//!            72 u64 last index    80 u32 last term          84 u32 last chunk header's CRC
//!            88 u64 sharers at    96 u32 their bytes       100 u32 their CRC-32C
//!          4092 u32 CRC-32C of bytes 0..4092
//! ```
//!
//! The version is 2 where runs are shared, 1 otherwise; then there are no sharers.
//!
//! All sections begin on a sector. Pages are read through a cache shared by all segments and checked
//! when they are loaded; only fences and page checksums stay in memory.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;
use parking_lot::Mutex;
use types::{LogId, LogIndex, Offset, Term, Timestamp};
use uuid::Uuid;

use crate::chunk::{crc32c, padded};
use crate::disk::{File, SECTOR};
use crate::run::Run;
use crate::segments::SegmentError;
use crate::sharers::Sharers;

/// Length of an index entry.
pub const INDEX_ENTRY_BYTES: usize = 32;
/// Length of a log's row.
pub const ROW_BYTES: usize = 64;
const PAGE_BYTES: usize = 16 << 10;
/// A sealed segment gives back what it has no use for from this part of its length on.
const SPARE_SHARE: u64 = 8;
const MAGIC: u32 = u32::from_le_bytes(*b"MSIX");
const VERSION: u16 = 2;
const VERSION_UNSHARED: u16 = 1;
/// In an entry's number of bytes: the run is shared. No run is so long.
const SHARED: u32 = 1 << 31;

/// What the footer says besides the sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealInfo {
    /// Whose.
    pub journal: Uuid,
    /// Which segment.
    pub sequence: u64,
    /// Index of its last chunk; for a rewritten segment the largest it took over.
    pub last_index: LogIndex,
    /// Term of that chunk.
    pub last_term: Term,
    /// CRC of that chunk's header.
    pub last_crc: u32,
}

/// One log in one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRow {
    /// Whose.
    pub log: LogId,
    /// Its first entry.
    pub first_entry: u32,
    /// Number of entries.
    pub entries: u32,
    /// First offset in the segment.
    pub base: Offset,
    /// Offset after the last.
    pub next: Offset,
    /// Bytes of its runs.
    pub bytes: u64,
    /// Of them those that are shared.
    pub shared_bytes: u32,
    /// Records, at most `u32::MAX`.
    pub records: u32,
    /// Largest record timestamp.
    pub max_timestamp: Timestamp,
    /// When the last of it was appended.
    pub last_append: Timestamp,
}

impl LogRow {
    /// About how many of its bytes lie behind an offset.
    pub fn bytes_from(&self, from: Offset) -> u64 {
        let (left, all) = (self.next.since(from.max(self.base).min(self.next)), self.next.since(self.base));
        (u128::from(self.bytes) * u128::from(left) / u128::from(all.max(1))) as u64
    }

    /// Without any run yet.
    fn empty(log: LogId) -> Self {
        Self {
            log,
            first_entry: 0,
            entries: 0,
            base: Offset::ZERO,
            next: Offset::ZERO,
            bytes: 0,
            shared_bytes: 0,
            records: 0,
            max_timestamp: Timestamp::MIN,
            last_append: Timestamp::MIN,
        }
    }

    /// Adds the run that follows.
    fn add(&mut self, run: &Run) {
        assert!(run.base >= self.next, "runs of a log come in the order of offsets");
        if self.entries == 0 {
            self.base = run.base;
        }
        self.entries += 1;
        self.next = run.next;
        self.bytes += u64::from(run.bytes);
        // A segment has less than 4 GiB, and a log every body once.
        self.shared_bytes += if run.shared { run.bytes } else { 0 };
        self.records = self.records.saturating_add(run.records);
        self.max_timestamp = self.max_timestamp.max(run.max_timestamp);
        self.last_append = self.last_append.max(run.append_time);
    }
}

/// Pages of indexes, bounded.
pub struct IndexCache {
    pages: Mutex<HashMap<(u64, u32), (Bytes, u64)>>,
    clock: std::sync::atomic::AtomicU64,
    /// A rewritten segment keeps its sequence, and readers may still hold the index of the old one: pages are
    /// kept by the number of the open index.
    next_index: std::sync::atomic::AtomicU64,
    pages_max: usize,
}

impl IndexCache {
    /// Holds at most `bytes`.
    pub fn new(bytes: usize) -> Self {
        Self { pages: Mutex::default(), clock: 0.into(), next_index: 0.into(), pages_max: (bytes / PAGE_BYTES).max(16) }
    }

    fn get(&self, key: (u64, u32)) -> Option<Bytes> {
        let now = self.clock.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let mut pages = self.pages.lock();
        let (page, used) = pages.get_mut(&key)?;
        *used = now;
        Some(page.clone())
    }

    fn put(&self, key: (u64, u32), page: Bytes) {
        let now = self.clock.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let mut pages = self.pages.lock();
        if pages.len() >= self.pages_max {
            // Lets go of the older half at once, so that the search for them is rare.
            let mut ages: Vec<u64> = pages.values().map(|(_, used)| *used).collect();
            let middle = ages.len() / 2;
            let (_, median, _) = ages.select_nth_unstable(middle);
            let median = *median;
            pages.retain(|_, (_, used)| *used > median);
        }
        pages.insert(key, (page, now));
    }

    fn forget(&self, index: u64) {
        self.pages.lock().retain(|(of, _), _| *of != index);
    }
}

/// Writes index and footer of a segment into `file` from `at` on. Each run comes with the place of its log in `logs`, those of a log
/// in the order of its offsets. The file is extended when it is too short, and cut when much of it is not needed. The caller syncs. Returns what the index says of each of
/// `logs`; some may have no run.
///
/// # Errors
/// Those of the file.
pub fn write_index(
    file: &dyn File,
    at: u64,
    logs: &[LogId],
    runs: impl Iterator<Item = (u32, Run)> + Clone,
    info: &SealInfo,
) -> io::Result<Vec<LogRow>> {
    // Runs are many and logs fewer: the logs are sorted, and each run is put where its log's are.
    let mut rows: Vec<LogRow> = logs.iter().map(|log| LogRow::empty(*log)).collect();
    runs.clone().for_each(|(log, run)| rows[log as usize].add(&run));
    let mut order: Vec<(LogId, u32)> =
        logs.iter().copied().zip(0..).filter(|(_, log)| rows[*log as usize].entries > 0).collect();
    order.sort_unstable();
    let mut count = 0;
    let mut table = Vec::with_capacity(padded(order.len() * ROW_BYTES));
    for (_, log) in &order {
        let row = &mut rows[*log as usize];
        row.first_entry = count;
        count += row.entries;
        put_row(&mut table, row);
    }
    let sharers = Sharers::of(&rows, &order, runs.clone()).encode();
    let mut entries = vec![0; count as usize * INDEX_ENTRY_BYTES];
    let mut next: Vec<u32> = rows.iter().map(|row| row.first_entry).collect();
    for (log, run) in runs {
        let entry = &mut next[log as usize];
        put_entry(&mut entries[*entry as usize * INDEX_ENTRY_BYTES..][..INDEX_ENTRY_BYTES], &run);
        *entry += 1;
    }
    let entry_pages = entries.chunks(PAGE_BYTES).map(crc32c);
    let mut fences: Vec<u8> = table.chunks(PAGE_BYTES).flat_map(|page| page[..8].to_vec()).collect();
    fences.extend(table.chunks(PAGE_BYTES).map(crc32c).chain(entry_pages).flat_map(u32::to_le_bytes));
    let (fences_crc, fences_bytes) = (crc32c(&fences), fences.len());
    let mut footer = vec![0u8; SECTOR];
    let entries_at = padded(at as usize) as u64;
    let table_at = entries_at + padded(entries.len()) as u64;
    let fences_at = table_at + padded(table.len()) as u64;
    footer[0..4].copy_from_slice(&MAGIC.to_le_bytes());
    let sharers_at = fences_at + padded(fences_bytes) as u64;
    let version = if sharers.is_empty() { VERSION_UNSHARED } else { VERSION };
    footer[4..6].copy_from_slice(&version.to_le_bytes());
    footer[8..24].copy_from_slice(info.journal.as_bytes());
    footer[24..32].copy_from_slice(&info.sequence.to_le_bytes());
    footer[32..40].copy_from_slice(&entries_at.to_le_bytes());
    footer[40..44].copy_from_slice(&count.to_le_bytes());
    footer[44..48].copy_from_slice(&(order.len() as u32).to_le_bytes());
    footer[48..56].copy_from_slice(&table_at.to_le_bytes());
    footer[56..64].copy_from_slice(&fences_at.to_le_bytes());
    footer[64..68].copy_from_slice(&fences_crc.to_le_bytes());
    footer[72..80].copy_from_slice(&info.last_index.0.to_le_bytes());
    footer[80..84].copy_from_slice(&info.last_term.0.to_le_bytes());
    footer[84..88].copy_from_slice(&info.last_crc.to_le_bytes());
    if !sharers.is_empty() {
        footer[88..96].copy_from_slice(&sharers_at.to_le_bytes());
        footer[96..100].copy_from_slice(&(sharers.len() as u32).to_le_bytes());
        footer[100..104].copy_from_slice(&crc32c(&sharers).to_le_bytes());
    }
    let crc = crc32c(&footer[..4092]);
    footer[4092..].copy_from_slice(&crc.to_le_bytes());
    let end = sharers_at + padded(sharers.len()) as u64 + SECTOR as u64;
    let size = file.size()?;
    // A file that something else has cut need not end on a sector.
    if size < end || size - end > size / SPARE_SHARE || !size.is_multiple_of(SECTOR as u64) {
        file.allocate(end)?;
    }
    for (position, mut section) in
        [(entries_at, entries), (table_at, table), (fences_at, fences), (sharers_at, sharers)]
    {
        section.resize(padded(section.len()), 0);
        if !section.is_empty() {
            file.write_at(position, &section)?;
        }
    }
    file.write_at(file.size()? - SECTOR as u64, &footer)?;
    Ok(rows)
}

fn put_entry(entry: &mut [u8], run: &Run) {
    entry[0..8].copy_from_slice(&run.base.0.to_le_bytes());
    entry[8..12].copy_from_slice(&((run.next.since(run.base) - 1) as u32).to_le_bytes());
    entry[12..16].copy_from_slice(&run.position.to_le_bytes());
    entry[16..20].copy_from_slice(&(run.bytes | if run.shared { SHARED } else { 0 }).to_le_bytes());
    entry[20..24].copy_from_slice(&run.crc.to_le_bytes());
    entry[24..32].copy_from_slice(&run.max_timestamp.to_le_bytes());
}

fn put_row(into: &mut Vec<u8>, row: &LogRow) {
    into.extend_from_slice(&row.log.0.to_le_bytes());
    into.extend_from_slice(&row.first_entry.to_le_bytes());
    into.extend_from_slice(&row.entries.to_le_bytes());
    into.extend_from_slice(&row.base.0.to_le_bytes());
    into.extend_from_slice(&row.next.0.to_le_bytes());
    into.extend_from_slice(&row.bytes.to_le_bytes());
    into.extend_from_slice(&row.records.to_le_bytes());
    into.extend_from_slice(&row.shared_bytes.to_le_bytes());
    into.extend_from_slice(&row.max_timestamp.to_le_bytes());
    into.extend_from_slice(&row.last_append.to_le_bytes());
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(field)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(field)
}

fn row_from(bytes: &[u8]) -> LogRow {
    LogRow {
        log: LogId(u64_at(bytes, 0)),
        first_entry: u32_at(bytes, 8),
        entries: u32_at(bytes, 12),
        base: Offset(u64_at(bytes, 16)),
        next: Offset(u64_at(bytes, 24)),
        bytes: u64_at(bytes, 32),
        shared_bytes: u32_at(bytes, 44),
        records: u32_at(bytes, 40),
        max_timestamp: u64_at(bytes, 48) as Timestamp,
        last_append: u64_at(bytes, 56) as Timestamp,
    }
}

/// The index of one sealed segment, ready for look-ups.
pub struct SealedIndex {
    /// Its number in the cache.
    number: u64,
    file: Arc<dyn File>,
    cache: Arc<IndexCache>,
    info: SealInfo,
    entries_at: u64,
    table_at: u64,
    entry_count: u32,
    log_count: u32,
    /// First log id of each table page.
    fences: Vec<LogId>,
    /// Checksums of the table pages, then of the entry pages.
    page_crcs: Vec<u32>,
    sharers: Sharers,
}

impl SealedIndex {
    /// Reads footer and fences.
    ///
    /// # Errors
    /// `Corrupt`: there is no valid footer for this journal and segment. `NewerVersion`. `Io`.
    pub fn open(
        file: Arc<dyn File>,
        journal: Uuid,
        sequence: u64,
        cache: Arc<IndexCache>,
    ) -> Result<Self, SegmentError> {
        let io = |source| SegmentError::Io { file: file.name(), source };
        let size = file.size().map_err(io)?;
        let footer_at = size.saturating_sub(SECTOR as u64);
        let corrupt =
            |position, what: &str| SegmentError::Corrupt { file: file.name(), position, what: what.to_owned() };
        let mut footer = vec![0; SECTOR];
        if file.read_at(footer_at, &mut footer).map_err(io)? < SECTOR || u32_at(&footer, 0) != MAGIC {
            return Err(corrupt(footer_at, "no index footer"));
        }
        if crc32c(&footer[..4092]) != u32_at(&footer, 4092) {
            return Err(corrupt(footer_at, "index footer checksum"));
        }
        let found = u16::from_le_bytes([footer[4], footer[5]]);
        if found > VERSION {
            return Err(SegmentError::NewerVersion { file: file.name(), found, known: VERSION });
        }
        if &footer[8..24] != journal.as_bytes() || u64_at(&footer, 24) != sequence {
            return Err(corrupt(footer_at, "index footer of another segment"));
        }
        let (entry_count, log_count) = (u32_at(&footer, 40), u32_at(&footer, 44));
        let table_pages = (log_count as usize * ROW_BYTES).div_ceil(PAGE_BYTES);
        let entry_pages = (entry_count as usize * INDEX_ENTRY_BYTES).div_ceil(PAGE_BYTES);
        let fences_at = u64_at(&footer, 56);
        let fences_bytes = table_pages * 12 + entry_pages * 4;
        if fences_at + fences_bytes as u64 > size {
            return Err(corrupt(footer_at, "index does not fit into the file"));
        }
        let mut fences = vec![0; fences_bytes];
        file.read_at(fences_at, &mut fences).map_err(io)?;
        if crc32c(&fences) != u32_at(&footer, 64) {
            return Err(corrupt(fences_at, "index fences checksum"));
        }
        let (sharers_at, sharers_bytes) = (u64_at(&footer, 88), u32_at(&footer, 96) as usize);
        if sharers_at.saturating_add(sharers_bytes as u64) > size {
            return Err(corrupt(footer_at, "index does not fit into the file"));
        }
        let mut sharers = vec![0; sharers_bytes];
        file.read_at(sharers_at, &mut sharers).map_err(io)?;
        if sharers_bytes > 0 && crc32c(&sharers) != u32_at(&footer, 100) {
            return Err(corrupt(sharers_at, "index sharers checksum"));
        }
        let sharers = Sharers::decode(&sharers, log_count).ok_or_else(|| corrupt(sharers_at, "index sharers"))?;
        let info = SealInfo {
            journal,
            sequence,
            last_index: LogIndex(u64_at(&footer, 72)),
            last_term: Term(u32_at(&footer, 80)),
            last_crc: u32_at(&footer, 84),
        };
        let (firsts, crcs) = fences.split_at(table_pages * 8);
        Ok(Self {
            number: cache.next_index.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
            info,
            entries_at: u64_at(&footer, 32),
            table_at: u64_at(&footer, 48),
            entry_count,
            log_count,
            fences: firsts.chunks_exact(8).map(|first| LogId(u64_at(first, 0))).collect(),
            page_crcs: crcs.chunks_exact(4).map(|crc| u32_at(crc, 0)).collect(),
            sharers,
            file,
            cache,
        })
    }

    /// What the footer says.
    pub fn info(&self) -> &SealInfo {
        &self.info
    }

    /// Which logs share runs here.
    pub fn sharers(&self) -> &Sharers {
        &self.sharers
    }

    /// Page `number`, table pages first.
    fn page(&self, number: usize) -> Result<Bytes, SegmentError> {
        let key = (self.number, number as u32);
        if let Some(page) = self.cache.get(key) {
            return Ok(page);
        }
        let table_pages = self.fences.len();
        let (at, section_bytes, page) = if number < table_pages {
            (self.table_at, self.log_count as usize * ROW_BYTES, number)
        } else {
            (self.entries_at, self.entry_count as usize * INDEX_ENTRY_BYTES, number - table_pages)
        };
        let position = at + (page * PAGE_BYTES) as u64;
        let mut bytes = vec![0; PAGE_BYTES.min(section_bytes - page * PAGE_BYTES)];
        let got = self
            .file
            .read_at(position, &mut bytes)
            .map_err(|source| SegmentError::Io { file: self.file.name(), source })?;
        if got < bytes.len() || crc32c(&bytes) != self.page_crcs[number] {
            let what = "index page checksum".to_owned();
            return Err(SegmentError::Corrupt { file: self.file.name(), position, what });
        }
        let bytes = Bytes::from(bytes);
        self.cache.put(key, bytes.clone());
        Ok(bytes)
    }

    /// All rows, in log order.
    ///
    /// # Errors
    /// `Io`, `Corrupt`.
    pub fn rows(&self) -> Result<Vec<LogRow>, SegmentError> {
        let mut rows = Vec::with_capacity(self.log_count as usize);
        for number in 0..self.fences.len() {
            rows.extend(self.page(number)?.chunks_exact(ROW_BYTES).map(row_from));
        }
        Ok(rows)
    }

    /// The row of a log.
    ///
    /// # Errors
    /// `Io`, `Corrupt`.
    pub fn row(&self, log: LogId) -> Result<Option<LogRow>, SegmentError> {
        let Some(number) = self.fences.partition_point(|first| *first <= log).checked_sub(1) else {
            return Ok(None);
        };
        let page = self.page(number)?;
        let rows = page.len() / ROW_BYTES;
        let (mut low, mut high) = (0, rows);
        while low < high {
            let middle = (low + high) / 2;
            let id = LogId(u64_at(&page, middle * ROW_BYTES));
            if id < log { low = middle + 1 } else { high = middle }
        }
        let row = (low < rows).then(|| row_from(&page[low * ROW_BYTES..]));
        Ok(row.filter(|row| row.log == log))
    }

    /// Run number `number` of a row.
    ///
    /// # Errors
    /// `Io`, `Corrupt`.
    pub fn run(&self, row: &LogRow, number: u32) -> Result<Run, SegmentError> {
        assert!(number < row.entries, "a run of the row");
        let per_page = PAGE_BYTES / INDEX_ENTRY_BYTES;
        let entry = (row.first_entry + number) as usize;
        let page = self.page(self.fences.len() + entry / per_page)?;
        let bytes = &page[entry % per_page * INDEX_ENTRY_BYTES..][..INDEX_ENTRY_BYTES];
        let base = Offset(u64_at(bytes, 0));
        Ok(Run {
            log: row.log,
            base,
            next: base.plus(u64::from(u32_at(bytes, 8)) + 1),
            position: u32_at(bytes, 12),
            bytes: u32_at(bytes, 16) & !SHARED,
            shared: u32_at(bytes, 16) & SHARED != 0,
            crc: u32_at(bytes, 20),
            records: u32_at(bytes, 8).saturating_add(1),
            max_timestamp: u64_at(bytes, 24) as Timestamp,
            append_time: row.last_append,
        })
    }

    /// Number of the first run of a row that ends after `offset`; `row.entries` when none does.
    ///
    /// # Errors
    /// `Io`, `Corrupt`.
    pub fn first_run_after(&self, row: &LogRow, offset: Offset) -> Result<u32, SegmentError> {
        let (mut low, mut high) = (0, row.entries);
        while low < high {
            let middle = (low + high) / 2;
            if self.run(row, middle)?.next <= offset { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    }
}

impl Drop for SealedIndex {
    fn drop(&mut self) {
        self.cache.forget(self.number);
    }
}
