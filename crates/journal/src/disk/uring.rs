//! The submitter over io_uring: writes and syncs overlap with building the next chunk; a read of an eventfd
//! in the same ring is the bell that other threads ring.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hashbrown::HashMap;
use io_uring::{IoUring, opcode, types};

use super::{Completion, File, Submitter, Wait, Waker, WriteOp};

const ENTRIES: u32 = 16;
const CAPACITY: usize = 6;
const BELL: u64 = u64::MAX;
/// A write with flush up to this length that is alone is done on the spot: the kernel would finish it through a
/// queue of its workers, which costs more than the overlap is worth. What arrives meanwhile forms the next chunk.
const ON_THE_SPOT_BYTES_MAX: usize = 64 << 10;

/// An operation that the kernel still works on; its memory stays here until it completes.
enum Pending {
    Write { token: u64, file: Arc<dyn File>, position: u64, data: Bytes, dsync: bool },
    Sync { token: u64, _file: Arc<dyn File> },
}

/// Writes through a ring.
pub struct UringSubmitter {
    ring: IoUring,
    pending: HashMap<u64, Pending>,
    /// Not handed to the ring yet.
    fresh: Option<WriteOp>,
    next_id: u64,
    failed: Vec<Completion>,
    bell: Arc<OwnedFd>,
    bell_count: Box<u64>,
    bell_armed: bool,
}

impl UringSubmitter {
    /// Sets up the ring.
    ///
    /// # Errors
    /// When the kernel or a sandbox refuses.
    pub fn new() -> io::Result<Self> {
        let ring = IoUring::builder().build(ENTRIES)?;
        // SAFETY: plain system call; the result is checked before it is owned.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh descriptor that nobody else owns.
        let bell = Arc::new(unsafe { OwnedFd::from_raw_fd(fd) });
        Ok(Self {
            ring,
            pending: HashMap::new(),
            fresh: None,
            next_id: 0,
            failed: Vec::new(),
            bell,
            bell_count: Box::new(0),
            bell_armed: false,
        })
    }

    fn push(&mut self, entry: &io_uring::squeue::Entry) {
        // SAFETY: the memory that the entry names is owned by `pending` or `bell_count` until it completes.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            // Full: hand over what is there. Fewer operations are outstanding than the ring has entries.
            let _ = self.ring.submit();
        }
    }

    fn start(&mut self, pending: Pending) {
        self.next_id += 1;
        let id = self.next_id;
        let entry = match &pending {
            Pending::Write { token, file, position, data, dsync } => {
                let Some(fd) = file.raw_fd() else {
                    self.failed.push(Completion { token: *token, result: Err(io::ErrorKind::Unsupported.into()) });
                    return;
                };
                let flags = if *dsync { libc::RWF_DSYNC } else { 0 };
                opcode::Write::new(types::Fd(fd), data.as_ptr(), data.len() as u32)
                    .offset(*position)
                    .rw_flags(flags)
                    .build()
            }
            Pending::Sync { token, _file } => {
                let Some(fd) = _file.raw_fd() else {
                    self.failed.push(Completion { token: *token, result: Err(io::ErrorKind::Unsupported.into()) });
                    return;
                };
                opcode::Fsync::new(types::Fd(fd)).flags(types::FsyncFlags::DATASYNC).build()
            }
        };
        self.pending.insert(id, pending);
        self.push(&entry.user_data(id));
    }

    fn start_write(&mut self, op: WriteOp) {
        let WriteOp { token, file, position, data, dsync } = op;
        self.start(Pending::Write { token, file, position, data, dsync });
    }

    /// A write that is no longer alone goes to the ring.
    fn start_fresh(&mut self) {
        if let Some(op) = self.fresh.take() {
            self.start_write(op);
        }
    }

    fn arm_bell(&mut self) {
        if !self.bell_armed {
            let into = (&raw mut *self.bell_count).cast::<u8>();
            let entry = opcode::Read::new(types::Fd(self.bell.as_raw_fd()), into, 8).build().user_data(BELL);
            self.push(&entry);
            self.bell_armed = true;
        }
    }

    /// Takes completions off the ring; true when anything, even the bell, came.
    fn reap(&mut self, done: &mut Vec<Completion>) -> bool {
        let mut any = false;
        let completed: smallvec::SmallVec<[(u64, i32); 8]> =
            self.ring.completion().map(|entry| (entry.user_data(), entry.result())).collect();
        for (id, result) in completed {
            any = true;
            if id == BELL {
                self.bell_armed = false;
                continue;
            }
            let Some(pending) = self.pending.remove(&id) else { continue };
            match pending {
                _ if result == -libc::EINTR || result == -libc::EAGAIN => self.start(pending),
                Pending::Sync { token, .. } | Pending::Write { token, .. } if result < 0 => {
                    done.push(Completion { token, result: Err(io::Error::from_raw_os_error(-result)) });
                }
                Pending::Sync { token, .. } => done.push(Completion { token, result: Ok(()) }),
                Pending::Write { token, data, .. } if result as usize == data.len() => {
                    done.push(Completion { token, result: Ok(()) });
                }
                Pending::Write { token, .. } if result == 0 => {
                    done.push(Completion { token, result: Err(io::ErrorKind::WriteZero.into()) });
                }
                Pending::Write { token, file, position, mut data, dsync } => {
                    let written = result as usize;
                    data = data.slice(written..);
                    self.start(Pending::Write { token, file, position: position + written as u64, data, dsync });
                }
            }
        }
        any
    }
}

impl Submitter for UringSubmitter {
    fn write(&mut self, op: WriteOp) {
        self.start_fresh();
        if op.dsync && op.data.len() <= ON_THE_SPOT_BYTES_MAX && self.pending.is_empty() {
            self.fresh = Some(op);
        } else {
            self.start_write(op);
        }
    }

    fn write_now(&mut self, op: WriteOp) -> Completion {
        super::blocking::write(&op)
    }

    fn sync(&mut self, token: u64, file: Arc<dyn File>) {
        self.start_fresh();
        self.start(Pending::Sync { token, _file: file });
    }

    fn poll(&mut self, wait: Wait, done: &mut Vec<Completion>) {
        done.append(&mut self.failed);
        if let Some(op) = self.fresh.take() {
            done.push(super::blocking::write(&op));
            return;
        }
        self.arm_bell();
        let came = self.reap(done);
        let block = !came && done.is_empty();
        let outcome = match wait {
            Wait::For(limit) if block => match limit {
                None => self.ring.submit_and_wait(1),
                Some(limit) if limit.is_zero() => self.ring.submit(),
                Some(limit) => {
                    let limit = types::Timespec::from(limit.max(Duration::from_micros(50)));
                    let args = types::SubmitArgs::new().timespec(&limit);
                    self.ring.submitter().submit_with_args(1, &args)
                }
            },
            _ => self.ring.submit(),
        };
        match outcome {
            Err(error)
                if !matches!(error.raw_os_error(), Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN)) =>
            {
                panic!("the ring is broken: {error}");
            }
            _ => {}
        }
        self.reap(done);
    }

    fn waker(&self) -> Waker {
        let bell = Arc::clone(&self.bell);
        Arc::new(move || {
            let one = 1u64;
            // SAFETY: eight readable bytes; a full counter means that the bell is ringing already.
            unsafe { libc::write(bell.as_raw_fd(), (&raw const one).cast(), 8) };
        })
    }

    fn capacity(&self) -> usize {
        CAPACITY
    }
}

impl Drop for UringSubmitter {
    /// The kernel may still write to or read from memory that is freed with this: wait for it.
    fn drop(&mut self) {
        self.start_fresh();
        let mut done = Vec::new();
        while !self.pending.is_empty() {
            if self.ring.submit_and_wait(1).is_err() {
                break;
            }
            self.reap(&mut done);
        }
    }
}
