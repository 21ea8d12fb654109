//! The submitter without io_uring: every operation is done at once, on the journal thread, with `pwritev2`
//! (which can flush as it writes) or `pwrite`. What arrives meanwhile forms the next chunk.

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use crate::bell::Bell;

use super::{Completion, File, Submitter, Wait, Waker, WriteOp};

/// Does what it is asked at once.
#[derive(Default)]
pub struct BlockingSubmitter {
    done: VecDeque<Completion>,
    bell: Arc<Bell>,
}

fn write_all(fd: RawFd, mut position: u64, mut bytes: &[u8], dsync: bool) -> io::Result<()> {
    let flags = if dsync { libc::RWF_DSYNC } else { 0 };
    while !bytes.is_empty() {
        let part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        // SAFETY: the buffer is valid for the call and only read.
        let written = unsafe { libc::pwritev2(fd, &raw const part, 1, position as libc::off_t, flags) };
        if written < 0 {
            let error = io::Error::last_os_error();
            if error.kind() == io::ErrorKind::Interrupted {
                continue;
            }
            return Err(error);
        }
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        position += written as u64;
        bytes = &bytes[written as usize..];
    }
    Ok(())
}

/// Carries out a write, with a flush when it asks for one.
pub(super) fn write(op: &WriteOp) -> Completion {
    let result = match op.file.raw_fd() {
        Some(fd) => write_all(fd, op.position, &op.data, op.dsync),
        None => Err(io::ErrorKind::Unsupported.into()),
    };
    Completion { token: op.token, result }
}

impl Submitter for BlockingSubmitter {
    fn write(&mut self, op: WriteOp) {
        self.done.push_back(write(&op));
    }

    fn write_now(&mut self, op: WriteOp) -> Completion {
        write(&op)
    }

    fn sync(&mut self, token: u64, file: Arc<dyn File>) {
        self.done.push_back(Completion { token, result: file.sync() });
    }

    fn poll(&mut self, wait: Wait, done: &mut Vec<Completion>) {
        if self.done.is_empty()
            && let Wait::For(limit) = wait
        {
            self.bell.wait(limit);
        }
        done.extend(self.done.drain(..));
    }

    fn waker(&self) -> Waker {
        let bell = Arc::clone(&self.bell);
        Arc::new(move || bell.ring())
    }

    fn capacity(&self) -> usize {
        2
    }
}
