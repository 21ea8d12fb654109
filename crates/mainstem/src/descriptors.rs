//! File descriptors: the process takes as many as it may have, and keeps some for itself, so that however many clients connect, journals
//! are written and the administration pages answer.
//!
//! The system gives the lowest number that is free. The number of a socket therefore says how many descriptors are in use at least.

use std::io;
use std::os::fd::AsRawFd;

/// Kept for the process: for the administration pages, certificates, backups …
const KEPT_FOR_PROCESS: u64 = 48;
/// … and for the files of each journal that come and go: segments, checkpoints, archive objects.
const KEPT_FOR_JOURNAL: u64 = 16;
/// At most this part of all is kept.
const KEPT_SHARE: u64 = 2;

/// How many descriptors there are, and up to which number others than the node may have them.
#[derive(Clone, Copy, Debug)]
pub struct Descriptors {
    limit: u64,
    kept: u64,
}

impl Descriptors {
    /// Raises the limit as far as the system lets it be raised.
    ///
    /// # Errors
    /// When the limit cannot be read.
    pub fn raise(journals: usize) -> io::Result<Self> {
        let mut limits = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the pointer is valid for the call.
        if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limits) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let raised = libc::rlimit { rlim_cur: limits.rlim_max, ..limits };
        // SAFETY: the pointer is valid for the call.
        if limits.rlim_cur < limits.rlim_max && unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) } == 0
        {
            limits = raised;
        }
        Ok(Self::of(limits.rlim_cur, journals))
    }

    fn of(limit: u64, journals: usize) -> Self {
        Self { limit, kept: (KEPT_FOR_PROCESS + KEPT_FOR_JOURNAL * journals as u64).min(limit / KEPT_SHARE) }
    }

    /// May a client keep this socket?
    pub fn admits(&self, socket: &impl AsRawFd) -> bool {
        (socket.as_raw_fd() as u64) < self.limit - self.kept
    }

    /// May somebody who asks for an administration page? Half of what is kept is for them.
    pub fn page_limit(&self) -> i32 {
        i32::try_from(self.limit - self.kept / 2).unwrap_or(i32::MAX)
    }

    /// Says at which number of connections the next one will be refused.
    pub fn tell(&self) {
        let in_use = std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64);
        let connections = (self.limit - self.kept).saturating_sub(in_use);
        tracing::info!(
            limit = self.limit,
            kept = self.kept,
            in_use,
            connections,
            "file descriptors: beyond about so many connections further ones are refused"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Number(i32);

    impl AsRawFd for Number {
        fn as_raw_fd(&self) -> i32 {
            self.0
        }
    }

    #[test]
    fn some_are_kept_and_never_more_than_half() {
        let few = Descriptors::of(100, 3);
        assert!(few.admits(&Number(49)) && !few.admits(&Number(50)));
        assert_eq!(few.page_limit(), 75);
        let many = Descriptors::of(1024, 2);
        assert!(many.admits(&Number(943)) && !many.admits(&Number(944)));
        assert_eq!(Descriptors::of(u64::MAX, 1).page_limit(), i32::MAX);
    }
}
