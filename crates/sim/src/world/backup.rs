//! Backups of both journals at one moment, while they are written. Checked: what is restored from them starts, and has all that was acknowledged
//! before; where one of the journals has what was done because of something in the other, the other has that.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use journal::{
    AppendItem, ArchiveHold, BackupError, Journal, JournalStatus, Pinned, named_objects_on, pin_together_while,
};
use types::LogId;

use super::clock::SimClock;
use super::{Coverage, Waiting, World, window};
use crate::archive::SimArchive;
use crate::disk::{Faults, SimDisk};
use crate::random::Random;

/// Where second names are.
const PINNED: &str = "pinned";
/// A log of which nothing goes by itself.
const LOG: LogId = LogId(2);
/// What both journals do before the files are copied, at most.
const OPERATIONS_MAX: u64 = 80;
/// Steps of both writers while something is waited for, at most.
const STEPS_MAX: u64 = 12;
/// Time that passes meanwhile.
const TURN_MS: i64 = 10;

/// Something that is written to one journal, and what is written to the other when that is acknowledged.
struct Tidings {
    from: usize,
    cause: Option<u64>,
    effect: Option<u64>,
}

/// Makes one, restores it elsewhere and looks at it.
pub(super) fn back_up(worlds: &mut [World; 2], random: &mut Random, coverage: &mut Coverage) -> Result<(), String> {
    if worlds.iter().any(|world| world.disk.stuck().is_some() || world.disk.is_dead()) {
        return Ok(());
    }
    for world in worlds.iter_mut() {
        world.disk.set_faults(Faults::default());
        world.disk.put_out_fuses();
    }
    if worlds.iter().any(|world| world.journal().status() != JournalStatus::Running) {
        return Ok(());
    }
    let _holds: Vec<ArchiveHold> = worlds.iter().map(|world| ArchiveHold::new(&world.journal())).collect();
    let mut tidings = Tidings { from: random.below(2) as usize, cause: None, effect: None };
    tidings.cause = worlds[tidings.from].write_plain();
    // More of it may be there: what was submitted by then.
    let mut restored = Vec::with_capacity(worlds.len());
    for world in worlds.iter() {
        let disk = SimDisk::new(random.next());
        let archive = SimArchive::new(random.next(), &disk);
        restored.push(world.restored(disk, archive, random));
    }
    let Some(pinned) = pin(worlds, &mut tidings, random, coverage)? else {
        worlds.iter().for_each(|world| world.disk.unlink_all());
        return Ok(());
    };
    for (world, restored) in worlds.iter().zip(&restored) {
        restored.clock.0.store(world.clock_now(), Ordering::Relaxed);
    }
    for _ in 0..random.below(OPERATIONS_MAX) {
        let world = &mut worlds[random.below(2) as usize];
        match random.below(8) {
            0..3 => world.append(coverage),
            3..6 => world.step(coverage)?,
            6 => world.archive(coverage),
            _ => world.keep(coverage)?,
        }
    }
    for ((world, pinned), restored) in worlds.iter().zip(&pinned).zip(&restored) {
        world
            .copy(pinned, restored, coverage)
            .map_err(|failure| format!("backup of journal {}: {failure}", world.name))?;
        world.disk.unlink_all();
    }
    for world in &mut restored {
        let opened = world.open(false, coverage);
        opened.map_err(|failure| format!("backup of journal {}: {failure}", world.name))?;
    }
    coverage.add("backups restored", 1);
    let has = |world: &World, id: Option<u64>| {
        let seen = world.logs.get(&LOG).map(|model| &model.visible);
        id.is_some_and(|id| seen.is_some_and(|seen| seen.values().any(|(batch, _)| *batch == id)))
    };
    if has(&restored[1 - tidings.from], tidings.effect) {
        coverage.add("backups with a cause and its effect in another journal", 1);
        if !has(&restored[tidings.from], tidings.cause) {
            return Err("a backup has what was done because of something that it does not have".to_owned());
        }
    }
    Ok(())
}

/// Pins both, while their threads go on; `None`: the disk of one has failed.
fn pin(
    worlds: &mut [World; 2],
    tidings: &mut Tidings,
    random: &mut Random,
    coverage: &mut Coverage,
) -> Result<Option<Vec<Pinned>>, String> {
    let journals: Vec<Arc<Journal>> = worlds.iter().map(World::journal).collect();
    let wanted: Vec<(&Journal, &Path)> = journals.iter().map(|journal| (&**journal, Path::new(PINNED))).collect();
    let mut failed = Ok(());
    let pinned = pin_together_while(&wanted, &mut || {
        let gone_on = go_on(worlds, tidings, random, coverage);
        if failed.is_ok() && gone_on.is_err() {
            failed = gone_on;
        }
    });
    failed?;
    match pinned {
        // A change of names fails yet.
        Err(BackupError::Io { .. }) => {
            coverage.add("backups that failed", 1);
            Ok(None)
        }
        pinned => pinned.map(Some).map_err(|error| format!("no backup: {error}")),
    }
}

fn go_on(
    worlds: &mut [World; 2],
    tidings: &mut Tidings,
    random: &mut Random,
    coverage: &mut Coverage,
) -> Result<(), String> {
    for world in worlds.iter() {
        world.clock.0.fetch_add(TURN_MS, Ordering::Relaxed);
    }
    for _ in 0..random.below(STEPS_MAX) {
        worlds[random.below(2) as usize].step(coverage)?;
    }
    if tidings.effect.is_none() && tidings.cause.is_some_and(|cause| worlds[tidings.from].has_acknowledged(cause)) {
        tidings.effect = worlds[1 - tidings.from].write_plain();
    }
    worlds[random.below(2) as usize].keep(coverage)
}

impl World {
    fn journal(&self) -> Arc<Journal> {
        Arc::clone(&self.running.as_ref().expect("a journal is open between operations").journal)
    }

    /// One batch of [`LOG`]; its id, if the queue takes it.
    fn write_plain(&mut self) -> Option<u64> {
        let (sent, bytes, header) = self.plain_batch(LOG);
        let (id, log) = (sent.id, self.log(LOG));
        let item = AppendItem::Batch { log, bytes, header, gate: None };
        self.submit(LOG.0, item, Waiting::Batch(sent)).then_some(id)
    }

    fn has_acknowledged(&self, batch: u64) -> bool {
        self.logs.get(&LOG).is_some_and(|model| model.acknowledged.values().rev().any(|(id, _)| *id == batch))
    }

    /// What a journal has to hold that is restored from what is backed up now.
    fn restored(&self, disk: SimDisk, archive: SimArchive, random: &mut Random) -> Self {
        Self {
            name: self.name,
            random: Random::new(random.next()),
            disk,
            archive,
            clock: Arc::new(SimClock(AtomicI64::new(self.clock_now()))),
            running: None,
            logs: self.logs.clone(),
            state: self.state.clone(),
            state_refused: 0,
            trims_refused: 0,
            ties: self.ties.clone(),
            waiting: Default::default(),
            sent_again: self.sent_again.clone(),
            next_token: self.next_token,
            next_id: self.next_id,
            last_term: self.last_term,
            made: self.made,
            planted: self.planted,
            watch: window::Watch::default(),
            archive_rests: 0,
            drops: self.drops.clone(),
            done: self.done.clone(),
            starts: Random::new(random.next()),
            reclaims: Random::new(random.next()),
            absences: Random::new(random.next()),
            segment_bytes: self.segment_bytes,
            has_long_objects: self.has_long_objects,
            has_short_store: false,
            trace: 0,
        }
    }

    /// Copies what was pinned, and the objects that it names, to where it is restored.
    fn copy(&self, pinned: &Pinned, to: &Self, coverage: &mut Coverage) -> Result<(), String> {
        let pins = self.disk.linked();
        for name in &pinned.sealed {
            to.disk.put_file(name, pins.bytes_of(name).ok_or_else(|| format!("{name} has no second name"))?);
        }
        let copied = pinned.copy_open_to(&|name| Ok(to.disk.copied(name)), &pins, &|_| {});
        copied.map_err(|error| error.to_string())?;
        for object in named_objects_on(&to.disk, 0).map_err(|error| error.to_string())? {
            let bytes = self.archive.bytes_of(&object.name).filter(|bytes| bytes.len() as u64 == object.bytes);
            let bytes = bytes.ok_or_else(|| format!("object {} is not there as the journal names it", object.name))?;
            to.archive.put_back((object.name, bytes));
            coverage.add("objects in backups", 1);
        }
        Ok(())
    }
}
