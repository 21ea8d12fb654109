//! What happens to files between two runs: a bit of a segment's header or of a long chunk has changed, or the newest segment is gone. The start
//! is refused and everything is there when the file is what it was; or what the model knows is there without it.

use journal::OpenError;

use super::Coverage;
use crate::disk::SimDisk;

/// Opens a journal, now and then with a damaged header first.
pub(super) fn open<T>(disk: &SimDisk, coverage: &mut Coverage, open: impl Fn() -> Result<T, OpenError>) -> Result<T, String> {
    let refused = |error: OpenError| format!("does not open: {error}");
    if let Some(taken) = disk.take_newest() {
        return match open() {
            Ok(opened) => {
                coverage.add("newest segments gone of which nothing counted", 1);
                Ok(opened)
            }
            Err(error) if error.is_damage() => {
                coverage.add("newest segments missed", 1);
                disk.put_back(taken);
                open().map_err(refused)
            }
            Err(error) => Err(refused(error)),
        };
    }
    if let Some(damage) = disk.damage_long_chunk() {
        let outcome = open();
        disk.mend(&damage);
        return match outcome {
            // It is in a segment that a checkpoint covers.
            Ok(opened) => Ok(opened),
            Err(error) if error.is_damage() => {
                coverage.add("damaged long chunks refused", 1);
                open().map_err(refused)
            }
            Err(error) => Err(refused(error)),
        };
    }
    let Some(damage) = disk.damage_header() else { return open().map_err(refused) };
    match open() {
        Ok(opened) => {
            coverage.add("damaged headers of segments not begun", 1);
            Ok(opened)
        }
        Err(error) if error.is_damage() => {
            coverage.add("damaged headers refused", 1);
            disk.mend(&damage);
            open().map_err(refused)
        }
        Err(error) => Err(refused(error)),
    }
}
