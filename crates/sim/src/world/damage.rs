//! A bit of a segment's header that has changed since the last run: the start is refused and everything is there when the bit is back, or
//! nothing was in that segment, and what the model knows is there without it.

use journal::OpenError;

use super::Coverage;
use crate::disk::SimDisk;

/// Opens a journal, now and then with a damaged header first.
pub(super) fn open<T>(disk: &SimDisk, coverage: &mut Coverage, open: impl Fn() -> Result<T, OpenError>) -> Result<T, String> {
    let refused = |error: OpenError| format!("does not open: {error}");
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
