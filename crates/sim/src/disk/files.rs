//! What happens to files between two runs, and what there is of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::stuck::is_among;
use super::{Disk, Shared, SimDisk};
use crate::random::Random;

/// The first of a checkpoint's files.
pub const CHECKPOINT: &str = "checkpoint";
/// The one that stands for one of the two others.
const THIRD: &str = "checkpoint-third";
/// All of them.
pub const CHECKPOINTS: [&str; 3] = [CHECKPOINT, "checkpoint-copy", THIRD];

/// Before one in so many starts a file that was kept comes back.
const COMES_BACK: u64 = 3;

/// A bit of a file that is not what was written.
pub struct Damage {
    file: Shared,
    at: usize,
}

impl Damage {
    fn flip(&self) {
        self.file.lock().bytes[self.at] ^= 0x10;
    }
}

/// A file that is gone.
pub struct Taken(Shared);

/// What has files come back.
pub struct Ageing {
    random: Random,
    /// A file, and what was in it.
    kept: Option<(String, Vec<u8>)>,
}

/// What a file was before it became an older copy of itself.
pub struct Newer {
    name: String,
    file: Shared,
    bytes: Vec<u8>,
}

impl Newer {
    /// Is it one of the checkpoint's?
    pub fn is_checkpoint(&self) -> bool {
        CHECKPOINTS.contains(&&*self.name)
    }
}

/// A chunk, as its header describes it (docs/formats/chunk.md).
struct Chunk {
    at: usize,
    bytes: usize,
    index: u64,
    durable: u64,
}

/// Chunks of a segment, one behind the other, as long as their indexes follow each other.
fn chunks_of(name: &str, bytes: &[u8]) -> Vec<Chunk> {
    let Some(sequence) = sequence_of(name) else { return Vec::new() };
    let (mut at, mut chunks) = (4096, Vec::<Chunk>::new());
    while let Some(header) = bytes.get(at..at + 96).filter(|header| header.starts_with(b"MSCK")) {
        let chunk = Chunk {
            at,
            bytes: number(header, 76, 4) as usize,
            index: number(header, 32, 8),
            durable: number(header, 40, 8),
        };
        if number(header, 24, 8) != sequence || chunks.last().is_some_and(|last| last.index + 1 != chunk.index) {
            break;
        }
        at += chunk.bytes;
        chunks.push(chunk);
    }
    chunks
}

/// Which files a start meets.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// A segment's file has its new name and the header of its last life.
    pub used_again: bool,
    /// A segment was rewritten.
    pub rewritten: bool,
    /// Segments that are there and which a rewritten one replaces.
    pub replaced: BTreeSet<u64>,
}

/// A number of a header, little-endian.
fn number(bytes: &[u8], at: usize, length: usize) -> u64 {
    bytes[at..at + length].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

fn segment(sequence: u64) -> String {
    format!("segment-{sequence:012}")
}

fn sequence_of(name: &str) -> Option<u64> {
    name.strip_prefix("segment-").and_then(|sequence| sequence.parse().ok())
}

impl SimDisk {
    /// Now and then, a bit of the header of one of the newest segments changes.
    pub fn damage_header(&self) -> Option<Damage> {
        let mut disk = self.inner.lock();
        if !disk.damages.one_in(4) {
            return None;
        }
        let place = (disk.damages.below(3) as usize, disk.damages.below(4096) as usize);
        let file = disk
            .names
            .iter()
            .rev()
            .filter(|(name, _)| name.starts_with("segment-"))
            .map(|(_, file)| file)
            .nth(place.0)?;
        let damage = Damage { file: Arc::clone(file), at: place.1 };
        damage.flip();
        Some(damage)
    }

    /// Now and then, the newest segment that has a chunk is gone, with or without those that were prepared behind it.
    pub fn take_newest(&self) -> Option<Vec<(String, Taken)>> {
        let mut disk = self.inner.lock();
        if !disk.vanishing.one_in(6) {
            return None;
        }
        let newest =
            disk.names.iter().rev().find(|(name, file)| !chunks_of(name, &file.lock().bytes).is_empty())?.0.clone();
        let with_prepared = disk.vanishing.one_in(2);
        // An empty folder is a new journal.
        if !disk.names.keys().any(|name| name == CHECKPOINT || (name.starts_with("segment-") && *name < newest)) {
            return None;
        }
        let is_taken =
            |name: &str| name == newest || (with_prepared && name.starts_with("segment-") && *name > *newest);
        let taken: Vec<_> = disk
            .names
            .iter()
            .filter(|(name, _)| is_taken(name))
            .map(|(name, file)| (name.clone(), Taken(Arc::clone(file))))
            .collect();
        for (name, _) in &taken {
            disk.names.remove(name);
            disk.durable_names.remove(name);
        }
        Some(taken)
    }

    /// The files are back.
    pub fn put_back(&self, taken: Vec<(String, Taken)>) {
        let mut disk = self.inner.lock();
        for (name, Taken(file)) in taken {
            disk.durable_names.insert(name.clone(), Arc::clone(&file));
            disk.names.insert(name, file);
        }
    }

    /// Now and then, a bit of a chunk beyond 4 MiB changes, behind which a chunk says that it had been durable.
    pub fn damage_long_chunk(&self) -> Option<Damage> {
        let mut disk = self.inner.lock();
        let mut found = Vec::new();
        for (name, file) in disk.names.iter().rev().filter(|(name, _)| name.starts_with("segment-")).take(2) {
            let chunks = chunks_of(name, &file.lock().bytes);
            for (number, chunk) in chunks.iter().enumerate() {
                let is_durable = chunks[number + 1..].iter().any(|later| later.durable >= chunk.index);
                if chunk.bytes > 4 << 20 && is_durable {
                    found.push((Arc::clone(file), chunk.at, chunk.bytes));
                }
            }
        }
        if found.is_empty() || !disk.vanishing.one_in(2) {
            return None;
        }
        let (file, at, bytes) = found.swap_remove(disk.vanishing.below(found.len() as u64) as usize);
        let damage = Damage { file, at: at + disk.vanishing.below(bytes as u64 - 100_000) as usize };
        damage.flip();
        Some(damage)
    }

    /// From now on files come back from older copies now and then.
    pub fn age(&self, random: Random) {
        self.inner.lock().ageing = Some(Ageing { random, kept: None });
    }

    /// Now and then a file is kept as it is, and now and then one that was kept comes back: not the newest segment that has a chunk, of which nobody
    /// could tell.
    pub fn come_back(&self) -> Option<Newer> {
        let mut disk = self.inner.lock();
        let Disk { names, ageing, .. } = &mut *disk;
        let Ageing { random, kept } = ageing.as_mut()?;
        if kept.is_none() {
            let can_age = |name: &&String| sequence_of(name).is_some() || CHECKPOINTS.contains(&name.as_str());
            let chosen = random.below(names.keys().filter(can_age).count() as u64) as usize;
            let name = names.keys().filter(can_age).nth(chosen)?.clone();
            let bytes = names[&name].lock().bytes.clone();
            *kept = Some((name, bytes));
            return None;
        }
        if !random.one_in(COMES_BACK) {
            return None;
        }
        let (name, bytes) = kept.take()?;
        let newest = names.iter().rev().find(|(name, file)| !chunks_of(name, &file.lock().bytes).is_empty())?.0;
        if sequence_of(&name).is_some() && name >= *newest {
            return None;
        }
        let file = Arc::clone(names.get(&name)?);
        let newer = {
            let mut state = file.lock();
            state.pending.clear();
            std::mem::replace(&mut state.bytes, bytes)
        };
        let is_other = newer != file.lock().bytes;
        is_other.then_some(Newer { name, file, bytes: newer })
    }

    /// The file is what it was.
    pub fn renew(&self, newer: Newer) {
        newer.file.lock().bytes = newer.bytes;
    }

    /// The bit is what it was.
    pub fn mend(&self, damage: &Damage) {
        damage.flip();
    }

    /// Now and then, all files of the checkpoint are gone.
    pub fn take_checkpoints(&self) -> Option<Vec<(String, Taken)>> {
        let mut disk = self.inner.lock();
        if !disk.forgetting.one_in(8) {
            return None;
        }
        let taken: Vec<_> = CHECKPOINTS
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), Taken(disk.names.remove(*name)?))))
            .collect();
        CHECKPOINTS.iter().for_each(|name| drop(disk.durable_names.remove(*name)));
        (!taken.is_empty()).then_some(taken)
    }

    /// One of these is found again, of those that have the newest checkpoint or the one before: the third where another one could not be replaced. All
    /// are, if it is not known of any.
    pub fn put_one_back(&self, mut taken: Vec<(String, Taken)>, random: &mut Random) -> String {
        let mut newest: Vec<usize> = {
            let disk = self.inner.lock();
            let is_old = |(name, Taken(file)): &(String, Taken)| disk.is_shut(name) || is_among(&disk.stale, file);
            let stands = taken.iter().any(|one| one.0 != THIRD && is_old(one));
            (0..taken.len()).filter(|at| !is_old(&taken[*at]) && (stands || taken[*at].0 != THIRD)).collect()
        };
        if newest.is_empty() {
            self.put_back(taken);
            return "all of its files".to_owned();
        }
        let found = taken.swap_remove(newest.swap_remove(random.below(newest.len() as u64) as usize));
        let name = found.0.clone();
        self.inner.lock().only_copy |= name != CHECKPOINT;
        self.put_back(vec![found]);
        name
    }

    /// Is there only the copy of a checkpoint, because the other file was taken?
    pub fn has_only_copy(&self) -> bool {
        let disk = self.inner.lock();
        disk.only_copy && !disk.names.contains_key(CHECKPOINT)
    }

    /// Of all names and bytes.
    pub fn fingerprint(&self) -> u64 {
        let sum = |sum: u64, bytes: &[u8]| {
            bytes.chunks(8).fold(sum, |sum, eight| {
                (sum ^ number(eight, 0, eight.len())).wrapping_mul(0x100_0000_01b3).rotate_left(23)
            })
        };
        self.inner.lock().names.iter().fold(0, |all, (name, file)| sum(sum(all, name.as_bytes()), &file.lock().bytes))
    }

    /// The segment whose file stays, if a rewritten one replaces it.
    pub fn replaced_that_stays(&self) -> Option<u64> {
        let sequence = sequence_of(&self.stuck()?.0)?;
        self.files().replaced.contains(&sequence).then_some(sequence)
    }

    /// As headers say (docs/formats/segment.md).
    pub fn files(&self) -> Files {
        let (disk, mut files) = (self.inner.lock(), Files::default());
        for (name, file) in &disk.names {
            let (Some(sequence), file) = (sequence_of(name), file.lock()) else { continue };
            let Some(header) = file.bytes.get(..4096).filter(|header| header.starts_with(b"MSSG")) else { continue };
            files.used_again |= number(header, 4084, 8) != sequence;
            if number(header, 6, 2) == 2 && number(header, 4084, 8) == sequence {
                files.rewritten = true;
                // The number itself may be damaged.
                let places = (number(header, 36, 2) as usize).min((4084 - 38) / 8);
                let replaced = (0..places).map(|place| number(header, 38 + place * 8, 8));
                files.replaced.extend(
                    replaced.filter(|replaced| *replaced != sequence && disk.names.contains_key(&segment(*replaced))),
                );
            }
        }
        files
    }
}
