//! The window of a journal: what its files may take on the disk, from where on the archiver works and hurries, and when appends
//! of data wait for it.
//!
//! ```text
//! bytes  0 ───────────── calm ─────────── hurry ────────── full ─────────── window
//!          nothing to do   archiving with   archiving       no segment is    room for one rewriting, or for
//!                          ever less rest   without rest    added            one segment that state needs
//! ```
//!
//! * V1 While the archive takes what it is given, the journal's files take no more than the window: no segment is added beyond
//!   the full mark. Data waits then for one that is freed; keyed state and trims do not wait. Files that are freed take their time to
//!   go: a segment is not added, and none is rewritten, in the room that they still take, which is milliseconds.
//! * V2 Nobody waits for an archive that does not help: when it fails, when nothing is left that it could take, when it has
//!   taken nothing for [`NO_PROGRESS_MS`], or after [`WAIT_MS`] in any case, one more segment is added, beyond the window.
//!   While the keeper waits for room the archiver works without rest, wherever the marks lie.
//! * V3 A journal that is beyond its window, because that was made smaller or for V2, takes two segments for three that the archive
//!   has taken, however many it takes at once: neither do producers wait for the rest, nor does it stay beyond.
//! * V4 Checkpoints of much state leave room for [`SEGMENTS_LEFT`] segments, or more, even beyond the window: it is told.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use crate::journal::Journal;

/// Longest wait for room. Clients give up a request after 30 s.
const WAIT_MS: i64 = 20_000;
/// Longest wait for an archive that takes nothing.
const NO_PROGRESS_MS: i64 = 5_000;
/// The calm mark is at most this many segments before the full one.
const ROOM_SEGMENTS_MAX: u64 = 4;
/// Beyond the window the archive has to take so many halves of a segment for each that is added.
const HALVES_TAKEN: u64 = 3;
/// So many segments there may be in any case, as no archive helps against what state takes, …
const SEGMENTS_LEFT: u64 = 4;
/// … or this part of what checkpoints take: they are written for what comes into segments.
const OTHERS_SHARE: u64 = 3;
/// Full pressure.
const ALL: u64 = 1000;

/// Where in a window what begins, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marks {
    /// Beyond it the oldest goes into the archive, …
    pub calm: u64,
    /// … beyond this without rest, …
    pub hurry: u64,
    /// … and beyond this no segment is added.
    pub full: u64,
    /// Length of a segment.
    segment: u64,
}

impl Marks {
    /// The window, or more where checkpoints and what is kept for them take so much of it that too little is left for segments.
    pub fn beside(others: u64, window: u64, segment: u64) -> Self {
        let left = (SEGMENTS_LEFT * segment).max(others / OTHERS_SHARE);
        Self::new(window.max(others + left), segment)
    }

    /// For a window of at least four segments. Half of it is the archiver's, if that is not more than a few segments: while it moves some of
    /// them as many are written.
    pub fn new(window: u64, segment: u64) -> Self {
        let full = window.saturating_sub(segment);
        let room = (full / 2).clamp(segment.min(full), ROOM_SEGMENTS_MAX * segment);
        Self { calm: full.saturating_sub(room), hurry: full.saturating_sub(room / 2), full, segment }
    }

    /// By the archive for a segment that is added beyond the window.
    fn taken_for_one(&self) -> u64 {
        self.segment * HALVES_TAKEN / 2
    }

    /// How pressing archiving is: 0 below the calm mark, 1 from the hurry mark on.
    pub fn pressure(&self, used: u64) -> f64 {
        let span = (self.hurry - self.calm).max(1);
        let beyond = used.saturating_sub(self.calm).min(span);
        (beyond * ALL / span) as f64 / ALL as f64
    }
}

/// What the archiver last found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relief {
    /// Something that it can take, or it has not looked yet.
    Likely = 0,
    /// Nothing that it could take.
    Nothing = 1,
    /// The archive fails.
    Failing = 2,
}

/// Why a segment may be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grant {
    /// There is room for it.
    Room,
    /// State needs it.
    State,
    /// The archive does not help; what is wrong with it.
    Beyond(&'static str),
}

/// What keeper, archiver and writer tell each other about the window.
#[derive(Default)]
pub(crate) struct WindowState {
    /// Files that are no segments: checkpoints and what is kept for them.
    others: AtomicU64,
    /// Bytes that the archive has taken since the start.
    taken: AtomicU64,
    relief: AtomicU8,
    /// All that is live in segments below is on its way into the archive.
    emptied_below: AtomicU64,
    /// State finds no room.
    wanted_by_state: AtomicBool,
    /// The keeper adds no segment.
    held: AtomicBool,
    /// Data waits because of that.
    waiting: AtomicBool,
}

impl WindowState {
    pub fn set_others(&self, bytes: u64) {
        self.others.store(bytes, Ordering::Relaxed);
    }

    pub fn others(&self) -> u64 {
        self.others.load(Ordering::Relaxed)
    }

    /// The archive has taken something that lay in segments.
    pub fn note_taken(&self, bytes: u64) {
        self.taken.fetch_add(bytes, Ordering::Relaxed);
    }

    /// True when this is news.
    pub fn set_relief(&self, relief: Relief) -> bool {
        self.relief.swap(relief as u8, Ordering::Relaxed) != relief as u8
    }

    pub fn relief(&self) -> Relief {
        match self.relief.load(Ordering::Relaxed) {
            0 => Relief::Likely,
            1 => Relief::Nothing,
            _ => Relief::Failing,
        }
    }

    /// The archiver is about to take all that is live in the segments below one.
    pub fn set_emptied_below(&self, sequence: u64) {
        self.emptied_below.store(sequence, Ordering::Relaxed);
    }

    /// Is it soon to be freed, and so not worth a rewriting?
    pub fn is_being_emptied(&self, sequence: u64) -> bool {
        sequence < self.emptied_below.load(Ordering::Relaxed)
    }

    /// Asks for a segment for state. True for the first that asks.
    pub fn want_for_state(&self) -> bool {
        !self.wanted_by_state.swap(true, Ordering::Relaxed)
    }

    pub fn is_held(&self) -> bool {
        self.held.load(Ordering::Relaxed)
    }

    pub fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }

    pub fn set_waiting(&self, waiting: bool) {
        self.waiting.store(waiting, Ordering::Relaxed);
    }
}

/// The keeper's side: when a segment may be added.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    /// It has been waited since …
    since: Option<i64>,
    /// … and the archive took something last then, when it had taken so much in all.
    progress: (i64, u64),
    /// So much of what it has taken is made up for by segments that were added.
    used_up: u64,
}

impl Gate {
    /// May the journal take `wanted` bytes in all, or with 0 write a file again that was freed? `None`: not yet.
    pub fn ask(&mut self, marks: &Marks, state: &WindowState, wanted: u64, now: i64) -> Option<Grant> {
        let grant = self.judge(marks, state, wanted, now);
        state.held.store(grant.is_none(), Ordering::Relaxed);
        if grant.is_some() {
            self.since = None;
            let taken = state.taken.load(Ordering::Relaxed);
            let is_within = grant == Some(Grant::Room) && wanted > 0;
            let used_up = if is_within { taken } else { self.used_up + marks.taken_for_one() };
            self.used_up = used_up.min(taken);
            state.wanted_by_state.store(false, Ordering::Relaxed);
        }
        grant
    }

    fn judge(&mut self, marks: &Marks, state: &WindowState, wanted: u64, now: i64) -> Option<Grant> {
        if wanted <= marks.full {
            return Some(Grant::Room);
        }
        if state.wanted_by_state.load(Ordering::Relaxed) {
            return Some(Grant::State);
        }
        match state.relief() {
            Relief::Likely => {}
            Relief::Nothing => return Some(Grant::Beyond("nothing is left that could be archived")),
            Relief::Failing => return Some(Grant::Beyond("archiving fails")),
        }
        let taken = state.taken.load(Ordering::Relaxed);
        if wanted > marks.full + 2 * marks.segment && taken - self.used_up >= marks.taken_for_one() {
            return Some(Grant::Beyond("it was beyond it before, and the archive has taken more than is added"));
        }
        // The clock may go back.
        let since = self.since.filter(|since| *since <= now).unwrap_or(now);
        if self.since != Some(since) || self.progress.1 != taken || self.progress.0 > now {
            self.progress = (now, taken);
        }
        self.since = Some(since);
        if now - self.progress.0 >= NO_PROGRESS_MS {
            return Some(Grant::Beyond("the archive has taken nothing for a while"));
        }
        (now - since >= WAIT_MS).then_some(Grant::Beyond("archiving is too slow"))
    }
}

impl Journal {
    /// Has the archive begun to take what is in a segment? It is left to it then.
    pub fn is_being_archived(&self, sequence: u64) -> bool {
        self.window().is_being_emptied(sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_lie_in_order_and_leave_room() {
        for segments in 4..200 {
            let segment = 1000;
            let marks = Marks::new(segments * segment + 17, segment);
            assert!(marks.calm < marks.hurry && marks.hurry < marks.full, "{marks:?}");
            assert!(marks.full + segment <= segments * segment + 17, "{marks:?}");
            assert!((segment..=4 * segment).contains(&(marks.full - marks.calm)), "{marks:?}");
        }
        let marks = Marks::new(15_000, 1000);
        let pressure = [0, marks.calm, (marks.calm + marks.hurry) / 2, marks.hurry, marks.full, 1 << 40]
            .map(|used| marks.pressure(used));
        assert_eq!((pressure[0], pressure[1], pressure[3], pressure[4], pressure[5]), (0.0, 0.0, 1.0, 1.0, 1.0));
        assert!((0.45..0.55).contains(&pressure[2]), "{pressure:?}");
    }

    #[test]
    fn checkpoints_that_fill_the_window_hold_up_no_data() {
        let (window, segment) = (16_000, 1000);
        let state = WindowState::default();
        for others in [0, 3_000, 12_000, 16_000, 90_000] {
            let marks = Marks::beside(others, window, segment);
            let granted = Gate::default().ask(&marks, &state, others + 3 * segment, 0);
            assert_eq!(granted, Some(Grant::Room), "beside {others}: {marks:?}");
            assert!(marks.calm < marks.hurry && marks.hurry < marks.full, "{marks:?}");
        }
        assert_eq!(Marks::beside(12_000, window, segment), Marks::new(window, segment));
    }

    /// The outcome of asking at these times, with so much taken by then.
    fn asked(state: &WindowState, at: &[(i64, u64)]) -> Vec<Option<Grant>> {
        let (marks, mut gate) = (Marks::new(10_000, 1000), Gate::default());
        let ask = |(now, taken): &(i64, u64)| {
            state.note_taken(*taken);
            gate.ask(&marks, state, marks.full + 1, *now)
        };
        at.iter().map(ask).collect()
    }

    #[test]
    fn data_waits_for_an_archive_that_helps_and_for_no_other() {
        let state = WindowState::default();
        let marks = Marks::new(10_000, 1000);
        assert_eq!(Gate::default().ask(&marks, &state, marks.full, 0), Some(Grant::Room));
        assert_eq!(asked(&state, &[(0, 0), (4_999, 0)]), [None, None]);
        assert!(state.is_held());
        let beyond = |grant: &Option<Grant>| matches!(grant, Some(Grant::Beyond(_)));
        assert!(asked(&state, &[(0, 0), (5_000, 0)]).iter().map(beyond).eq([false, true]), "nothing is taken");
        assert!(!state.is_held());
        let mut gate = Gate::default();
        let far = marks.full + 2_001;
        assert_eq!(gate.ask(&marks, &state, far, 0), None);
        state.note_taken(1_499);
        assert_eq!(gate.ask(&marks, &state, far, 1), None);
        state.note_taken(1);
        assert_eq!(gate.ask(&marks, &state, far - 1, 2), None, "within reach of the window it has to be free");
        assert!(
            beyond(&gate.ask(&marks, &state, far, 3)) && gate.ask(&marks, &state, far, 4).is_none(),
            "two for three that were taken"
        );
        state.note_taken(64_000);
        let granted = (5..).take_while(|now| gate.ask(&marks, &state, far, *now).is_some()).count();
        assert_eq!(granted, 42, "what was taken at once makes up for as many segments");
        state.note_taken(6_000);
        assert!((5..8).all(|now| gate.ask(&marks, &state, 0, now) == Some(Grant::Room)));
        let granted = (8..).take_while(|now| gate.ask(&marks, &state, far, *now).is_some()).count();
        assert_eq!(granted, 1, "files that are written again are among them");
        assert_eq!(gate.ask(&marks, &state, marks.full, 50), Some(Grant::Room));
        state.note_taken(1_499);
        assert_eq!(gate.ask(&marks, &state, far, 51), None, "what was taken while there was room is in it");
        let slow: Vec<_> = (0..=20).map(|second| (second * 1000, 1)).collect();
        assert!(asked(&state, &slow).iter().position(beyond) == Some(20), "something is taken, but too little");
        assert!(
            asked(&state, &[(100_000, 0), (7, 0), (5_006, 0), (5_007, 0)])
                .iter()
                .map(beyond)
                .eq([false, false, false, true]),
            "the clock may go back"
        );

        assert!(state.want_for_state() && !state.want_for_state());
        assert_eq!(asked(&state, &[(0, 0), (1, 0)]), [Some(Grant::State), None], "state gets one");
        for relief in [Relief::Nothing, Relief::Failing] {
            assert!(state.set_relief(relief) && !state.set_relief(relief));
            assert!(asked(&state, &[(0, 0)]).iter().all(beyond));
        }
        state.set_relief(Relief::Likely);
        assert_eq!(asked(&state, &[(0, 0)]), [None]);
    }
}
