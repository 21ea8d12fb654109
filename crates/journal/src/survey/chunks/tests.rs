//! Reading past what cannot be read.

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

/// A file of zeroes with one sector that cannot be read.
struct Bad {
    sector: u64,
    failed: AtomicU64,
}

const SIZE: u64 = 16 << 20;

impl File for Bad {
    fn name(&self) -> String {
        "bad".to_owned()
    }

    fn size(&self) -> io::Result<u64> {
        Ok(SIZE)
    }

    fn read_at(&self, position: u64, into: &mut [u8]) -> io::Result<usize> {
        let got = (SIZE - position).min(into.len() as u64);
        if position < self.sector + SECTOR as u64 && self.sector < position + got {
            self.failed.fetch_add(1, Ordering::Relaxed);
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        Ok(got as usize)
    }

    fn write_at(&self, _position: u64, _bytes: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn allocate(&self, _size: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn raw_fd(&self) -> Option<RawFd> {
        None
    }
}

#[test]
fn a_bad_sector_is_met_twice_and_not_by_everything_before_it() {
    let bad = Arc::new(Bad { sector: 3 << 20, failed: AtomicU64::new(0) });
    let file: Arc<dyn File> = Arc::clone(&bad) as Arc<dyn File>;
    let mut window = Window::new(&file);
    let unread: Vec<u64> = (0..SIZE).step_by(SECTOR).filter(|at| window.get(*at, SECTOR).is_err()).collect();
    assert_eq!(unread, [3 << 20]);
    // Once with all that is read ahead, once by itself.
    assert_eq!(bad.failed.load(Ordering::Relaxed), 2);
}
