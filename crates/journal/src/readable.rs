//! Copying files of a disk that cannot read all of them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::disk::SECTOR;

/// Read at a time, and sector by sector where that much cannot be read.
const PIECE_BYTES: usize = 1 << 20;

/// Copies what can be read of `from` to the new file `to`, and flushes it; zeroes stand for what cannot, and for zeroes holes. `progress`
/// hears of bytes as they are done with.
///
/// # Errors
/// Those of opening `from`, and of writing.
pub fn copy_readable(from: &Path, to: &Path, progress: &dyn Fn(u64)) -> io::Result<()> {
    let (from, to) = (File::open(from)?, File::create_new(to)?);
    let size = from.metadata()?.len();
    to.set_len(size)?;
    let mut piece = vec![0; PIECE_BYTES];
    let (mut at, mut careful_until) = (0, 0);
    while at < size {
        let wanted = if at < careful_until { SECTOR } else { PIECE_BYTES };
        let step = match from.read_at(&mut piece[..wanted], at) {
            Ok(0) => break,
            Ok(got) => {
                if piece[..got].iter().any(|byte| *byte != 0) {
                    to.write_all_at(&piece[..got], at)?;
                }
                got as u64
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) if at >= careful_until => {
                careful_until = at + PIECE_BYTES as u64;
                continue;
            }
            Err(_) => SECTOR as u64,
        };
        at += step;
        progress(step);
    }
    to.sync_all()
}
