//! One file that can be neither removed, renamed nor replaced, as if it were immutable or its part of the folder were bad.

use std::io;
use std::sync::Arc;

use super::files::CHECKPOINTS;
use super::{Shared, SimDisk};

/// What sort of file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Segment,
    Spare,
    Reserve,
    Checkpoint,
}

/// All of them.
pub const KINDS: [Kind; 4] = [Kind::Segment, Kind::Spare, Kind::Reserve, Kind::Checkpoint];
/// How likely each is to be the next one.
const CHOICES: [Kind; 8] = [
    Kind::Segment,
    Kind::Segment,
    Kind::Segment,
    Kind::Segment,
    Kind::Segment,
    Kind::Spare,
    Kind::Reserve,
    Kind::Checkpoint,
];

impl Kind {
    fn of(name: &str) -> Option<Self> {
        let kinds = [
            ("segment-", Self::Segment),
            ("spare-", Self::Spare),
            ("reserve", Self::Reserve),
            ("checkpoint", Self::Checkpoint),
        ];
        kinds.into_iter().find(|(prefix, _)| name.starts_with(prefix)).map(|(_, kind)| kind)
    }
}

impl SimDisk {
    /// One of the files, until this is asked again; now and then none.
    pub fn stick(&self) {
        self.unstick();
        let kind = {
            let mut disk = self.inner.lock();
            if disk.starting.one_in(8) {
                return;
            }
            CHOICES[disk.starting.below(CHOICES.len() as u64) as usize]
        };
        if kind == Kind::Segment {
            let _ = self.stick_unremovable();
        } else {
            self.stick_one(kind);
        }
    }

    /// One of the segments can be neither removed nor renamed, but replaced. False: there is none.
    pub fn stick_unremovable(&self) -> bool {
        let is_there = self.stick_one(Kind::Segment);
        self.inner.lock().replaceable = true;
        is_there
    }

    /// One of the files of this kind, if there are any.
    pub fn stick_one(&self, kind: Kind) -> bool {
        let mut disk = self.inner.lock();
        let is_wanted = |name: &&String| {
            Kind::of(name) == Some(kind) && (kind != Kind::Checkpoint || CHECKPOINTS.contains(&name.as_str()))
        };
        let names: Vec<String> = disk.names.keys().filter(is_wanted).cloned().collect();
        if names.is_empty() {
            return false;
        }
        let chosen = disk.starting.below(names.len() as u64) as usize;
        // What has records is opened again and again, and of two checkpoints one can be read.
        disk.shut = match kind {
            Kind::Segment => false,
            Kind::Spare | Kind::Reserve => disk.starting.one_in(2),
            Kind::Checkpoint => names.len() > 1 && disk.starting.one_in(2),
        };
        (disk.stuck, disk.replaceable) = (names.into_iter().nth(chosen), false);
        true
    }

    /// All files with their lengths, and which of them stays.
    pub fn described(&self) -> String {
        let disk = self.inner.lock();
        let files: Vec<String> =
            disk.names.iter().map(|(name, file)| format!("{name} {}", file.lock().bytes.len())).collect();
        format!("{}; {:?} stays", files.join(", "), disk.stuck)
    }

    /// What is stuck, for [`SimDisk::stick_again`].
    pub fn stuck(&self) -> Option<(String, bool, bool)> {
        let disk = self.inner.lock();
        disk.stuck.clone().map(|name| (name, disk.shut, disk.replaceable))
    }

    /// That is stuck as it was.
    pub fn stick_again(&self, before: Option<(String, bool, bool)>) {
        self.unstick();
        if let Some((name, shut, replaceable)) = before {
            let mut disk = self.inner.lock();
            (disk.stuck, disk.shut, disk.replaceable) = (Some(name), shut, replaceable);
        }
    }

    /// Every file can be removed, renamed and replaced.
    pub fn unstick(&self) {
        let mut disk = self.inner.lock();
        (disk.stuck, disk.shut, disk.replaceable) = (None, false, false);
    }

    /// Does removing a file fail, or giving it the name `to`?
    pub(super) fn try_change(&self, name: &str, to: Option<&str>) -> io::Result<()> {
        let outcome = self
            .try_names()
            .and_then(|()| self.try_stuck(name, false))
            .and_then(|()| to.map_or(Ok(()), |to| self.try_stuck(to, true)));
        let mut disk = self.inner.lock();
        let disk = &mut *disk;
        let changed = to.unwrap_or(name);
        if outcome.is_err()
            && CHECKPOINTS.contains(&changed)
            && let Some(file) = disk.names.get(changed)
            && !is_among(&disk.stale, file)
        {
            disk.stale.push(Arc::clone(file));
        }
        outcome
    }

    fn try_stuck(&self, name: &str, is_replaced: bool) -> io::Result<()> {
        let mut disk = self.inner.lock();
        if disk.stuck.as_deref() != Some(name) || !disk.names.contains_key(name) || is_replaced && disk.replaceable {
            return Ok(());
        }
        disk.counters.unreplaced += u64::from(is_replaced && name.starts_with("segment-"));
        disk.count_stuck(name);
        Err(io::Error::from_raw_os_error(5))
    }

    /// Can it not be opened?
    pub(super) fn try_shut(&self, name: &str) -> io::Result<()> {
        let mut disk = self.inner.lock();
        if !disk.is_shut(name) {
            return Ok(());
        }
        disk.count_stuck(name);
        Err(io::Error::from_raw_os_error(1))
    }

    /// Is it a checkpoint that may be older than others, or cannot be read?
    pub fn is_excused(&self, name: &str) -> bool {
        let disk = self.inner.lock();
        disk.is_shut(name) || disk.names.get(name).is_some_and(|file| is_among(&disk.stale, file))
    }
}

impl super::Disk {
    fn count_stuck(&mut self, name: &str) {
        self.counters.stuck += 1;
        for (kind, count) in KINDS.iter().zip(&mut self.counters.stuck_by_kind) {
            *count += u64::from(Kind::of(name) == Some(*kind));
        }
    }

    pub(super) fn is_shut(&self, name: &str) -> bool {
        self.shut && self.stuck.as_deref() == Some(name)
    }
}

/// Is it one of these?
pub(super) fn is_among(files: &[Shared], file: &Shared) -> bool {
    files.iter().any(|one| Arc::ptr_eq(one, file))
}
