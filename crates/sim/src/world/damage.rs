//! What happens to files between two runs: a bit of a segment's header or of a long chunk has changed, or the newest segment is gone, or both
//! files of the checkpoint; or a read fails once. The start is refused and everything is there when the file is what it was; or what the model knows is there without it.

use std::path::Path;

use journal::{Damage, OpenError, Opened, Original, RepairError, Survey, repair};

use super::Coverage;
use super::start::{Start, wrong};
use crate::disk::{CHECKPOINT, Newer, SimSubmitter, Taken};

/// No journal can be repaired here: a repair that is not refused for its damage fails.
const NOWHERE: &str = "/dev/null/journal";
/// Before one in so many starts an archive object is gone.
const OBJECT_GONE: u64 = 4;

/// Opens a journal, now and then with damaged or missing files first.
pub(super) fn open(start: &mut Start<'_>, coverage: &mut Coverage) -> Result<Opened<SimSubmitter>, String> {
    let refused = |error: OpenError| format!("does not open: {error}");
    let whole = start.verify_whole(coverage)?;
    if let Some(opened) = with_a_fault(start, whole.as_ref(), coverage)? {
        return Ok(opened);
    }
    without_an_object(start, coverage)?;
    if let Some(newer) = start.disk.come_back() {
        return with_an_older(start, newer, whole.as_ref(), coverage);
    }
    if let Some(taken) = start.disk.take_checkpoints() {
        return without_checkpoints(start, taken, coverage);
    }
    if let Some(taken) = start.disk.take_newest() {
        let survey = start.verify(coverage)?;
        if let Ok(opened) = start.attempt(&survey, false)? {
            coverage.add("newest segments gone of which nothing counted", 1);
            return Ok(opened);
        }
        coverage.add("newest segments missed", 1);
        start.disk.put_back(taken);
        return start.open(whole.as_ref())?.map_err(refused);
    }
    if let Some(damage) = start.disk.damage_long_chunk() {
        let outcome = start.verify(coverage).and_then(|survey| start.attempt(&survey, true));
        start.disk.mend(&damage);
        // It may be in a segment that a checkpoint covers.
        if let Ok(opened) = outcome? {
            return Ok(opened);
        }
        coverage.add("damaged long chunks refused", 1);
        return start.open(whole.as_ref())?.map_err(refused);
    }
    let Some(damage) = start.disk.damage_header() else { return start.open(whole.as_ref())?.map_err(refused) };
    let survey = start.verify(coverage)?;
    if let Ok(opened) = start.attempt(&survey, false)? {
        coverage.add("damaged headers of segments not begun", 1);
        return Ok(opened);
    }
    coverage.add("damaged headers refused", 1);
    start.disk.mend(&damage);
    start.open(whole.as_ref())?.map_err(refused)
}

/// Now and then a read or a change of names fails once during a start. It opens in spite of that, or ends and says so; then nothing is damaged, and the
/// start that follows finds everything.
fn with_a_fault(
    start: &mut Start<'_>,
    whole: Option<&Survey>,
    coverage: &mut Coverage,
) -> Result<Option<Opened<SimSubmitter>>, String> {
    let within = !start.disk.files().replaced.is_empty();
    if !start.disk.fail_at_start() {
        return Ok(None);
    }
    let outcome = start.open(whole);
    let (read, name) = start.disk.end_start();
    match outcome? {
        Ok(opened) => {
            coverage.add("starts in spite of a failed read", u64::from(read));
            coverage.add("starts in spite of a failed change of names", u64::from(name));
            Ok(Some(opened))
        }
        Err(error) if error.is_damage() || !(read || name) => {
            Err(format!("does not open: {error}, and a read had failed once: {read}"))
        }
        Err(_) => {
            coverage.add("starts ended by a failed read", u64::from(read));
            coverage.add("starts ended by a failed read within a rewriting", u64::from(read && within));
            coverage.add("starts ended by a failed change of names", u64::from(name));
            start.disk.kill();
            start.disk.revive();
            match start.verify(coverage).map(|survey| wrong(&survey))? {
                Some(wrong) => Err(format!("a start has ended, nothing is damaged, and verify reports {wrong}")),
                None => Ok(None),
            }
        }
    }
}

/// Now and then an archive object is gone when verify looks: it reports that one, or nothing was in it.
fn without_an_object(start: &mut Start<'_>, coverage: &mut Coverage) -> Result<(), String> {
    if !start.absences.one_in(OBJECT_GONE) {
        return Ok(());
    }
    let Some(taken) = start.archive.take(start.absences) else { return Ok(()) };
    let name = taken.0.clone();
    let survey = start.verify(coverage);
    start.archive.put_back(taken);
    let survey = survey?;
    match survey.damages.iter().find(|damage| damage.file != name) {
        Some(other) => return Err(format!("object {name} is gone, and verify reports {other:?}")),
        None if survey.damages.is_empty() => start.unmissed = Some(name),
        None => coverage.add("objects missed", 1),
    }
    Ok(())
}

/// A file is an older copy of itself. The start is refused, and everything is there with the right one; or it goes on with what it has, if verify finds nothing;
/// or verify names it.
fn with_an_older(
    start: &mut Start<'_>,
    newer: Newer,
    whole: Option<&Survey>,
    coverage: &mut Coverage,
) -> Result<Opened<SimSubmitter>, String> {
    let survey = start.verify(coverage)?;
    match (start.open(Some(&survey))?, wrong(&survey)) {
        (Ok(opened), None) => {
            coverage.add("older copies that say the same", 1);
            // Which checkpoint is the newest is known where one cannot be replaced.
            if newer.is_checkpoint() {
                start.disk.renew(newer);
            }
            Ok(opened)
        }
        (Ok(opened), Some(_)) => {
            coverage.add("older copies that verify finds", 1);
            drop(opened);
            start.disk.kill();
            start.disk.renew(newer);
            start.disk.revive();
            start.open(None)?.map_err(|error| format!("does not open with the right file: {error}"))
        }
        (Err(error), Some(_)) if error.is_damage() => {
            coverage.add("older copies refused", 1);
            start.disk.renew(newer);
            start.open(whole)?.map_err(|error| format!("does not open: {error}"))
        }
        (Err(error), wrong) => {
            Err(format!("with an older copy of a file it does not open: {error}; verify reports {wrong:?}"))
        }
    }
}

/// Both files of the checkpoint are gone. Where segments were rewritten the start is refused for that, nothing can be accepted and nothing
/// changes; with one of the files everything is there.
fn without_checkpoints(
    start: &mut Start<'_>,
    taken: Vec<(String, Taken)>,
    coverage: &mut Coverage,
) -> Result<Opened<SimSubmitter>, String> {
    let (rewritten, before) = (start.disk.files().rewritten, start.disk.fingerprint());
    let survey = start.verify(coverage)?;
    let error = match start.attempt(&survey, false)? {
        Ok(_) if rewritten => return Err("it opens without a checkpoint, and segments were rewritten".to_owned()),
        Ok(opened) => {
            coverage.add("journals replayed without checkpoints", 1);
            return Ok(opened);
        }
        Err(error) => error,
    };
    let is_named = survey.damages.iter().any(|damage| damage.file == CHECKPOINT && !damage.is_repairable());
    if rewritten && !(is_named && matches!(error, OpenError::Checkpoint(_))) {
        return Err(format!(
            "without a checkpoint it is refused for another reason: {error}; verify reports {:?}",
            survey.damages
        ));
    }
    if start.disk.fingerprint() != before {
        return Err(format!("the start was refused ({error}), and has changed files"));
    }
    coverage.add(if rewritten { "both checkpoints missed" } else { "segments missed without checkpoints" }, 1);
    // Where only segments between others are gone, what is missing with them can be accepted.
    if survey.damages.iter().any(Damage::is_fatal) {
        accepts_nothing(&survey)?;
    }
    let name = start.disk.put_one_back(taken, start.random);
    let survey = start.verify(coverage)?;
    if let Some(wrong) = wrong(&survey) {
        return Err(format!("with {name} alone verify reports {wrong}"));
    }
    start.open(Some(&survey))?.map_err(|error| format!("does not open with {name} alone: {error}"))
}

/// No damage can be accepted, neither each nor all together.
fn accepts_nothing(survey: &Survey) -> Result<(), String> {
    let refuses =
        |accepted: &dyn Fn(&Damage) -> bool| match repair(Path::new(NOWHERE), survey, Original::Kept, accepted) {
            Err(RepairError::Beyond { .. } | RepairError::Together { .. }) => Ok(()),
            _ if !survey.damages.iter().any(accepted) => Ok(()),
            _ => Err(format!("without a checkpoint damage can be accepted: {:?}", survey.damages)),
        };
    refuses(&|_| true)?;
    refuses(&Damage::is_repairable)?;
    survey.damages.iter().try_for_each(|one| refuses(&|damage| damage.id == one.id))
}
