//! Lines of the log on their way to where they are written. Whoever logs puts them into a queue with a bound, and one thread writes them: a disk that hangs, or a pipe that nobody
//! reads, holds up the log and nothing else. Lines for which there is no room are lost and counted, and a line says how many these were once
//! there is room again. A process that ends waits a while for what is in the queue.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::log_file::note_lost;

/// Bytes of lines that wait, at most: some thousand lines.
const BYTES_MAX: usize = 1 << 20;
/// Who ends waits so long, at most.
const FLUSH_MAX: Duration = Duration::from_secs(1);

/// That of the process.
static QUEUE: OnceLock<Arc<LogQueue>> = OnceLock::new();

#[derive(Default)]
struct Inner {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Lines that found no room, and of which nothing was said yet.
    lost: u64,
    /// The thread has something to do.
    busy: bool,
}

/// See the head of the file.
#[derive(Default)]
pub struct LogQueue {
    inner: Mutex<Inner>,
    arrives: Condvar,
    rests: Condvar,
}

/// Takes one line at a time, as the formatter gives them.
pub struct QueueWriter(Arc<LogQueue>);

impl LogQueue {
    fn push(&self, line: &[u8]) {
        let mut inner = self.inner.lock();
        if inner.bytes + line.len() > BYTES_MAX {
            inner.lost += 1;
            note_lost();
            return;
        }
        inner.bytes += line.len();
        inner.lines.push_back(line.to_vec());
        inner.busy = true;
        self.arrives.notify_one();
    }

    /// The body of the thread. `tell` says how many lines were lost.
    fn run(&self, mut write: impl FnMut(&[u8]), mut tell: impl FnMut(u64)) {
        let mut inner = self.inner.lock();
        loop {
            if let Some(line) = inner.lines.pop_front() {
                inner.bytes -= line.len();
                drop(inner);
                write(&line);
            } else if inner.lost > 0 {
                let lost = std::mem::take(&mut inner.lost);
                drop(inner);
                tell(lost);
            } else {
                inner.busy = false;
                self.rests.notify_all();
                self.arrives.wait(&mut inner);
                continue;
            }
            inner = self.inner.lock();
        }
    }

    /// Waits until all is written, at most for so long.
    fn flush(&self, within: Duration) {
        let until = Instant::now() + within;
        let mut inner = self.inner.lock();
        while inner.busy && !self.rests.wait_until(&mut inner, until).timed_out() {}
    }
}

impl Write for QueueWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// From now on lines are written by a thread of their own; returns what makes writers for those who log.
///
/// # Errors
/// There is no thread.
pub fn start(write: impl FnMut(&[u8]) + Send + 'static) -> io::Result<impl Fn() -> QueueWriter> {
    let queue = Arc::clone(QUEUE.get_or_init(Arc::default));
    let of_thread = Arc::clone(&queue);
    let tell =
        |lines: u64| tracing::warn!(lines, "lines of the log are lost: they could not be written as fast as they came");
    std::thread::Builder::new().name("log".to_owned()).spawn(move || of_thread.run(write, tell))?;
    Ok(move || QueueWriter(Arc::clone(&queue)))
}

/// The process ends: what was logged is written first, if that does not take long.
pub fn flush() {
    if let Some(queue) = QUEUE.get() {
        queue.flush(FLUSH_MAX);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    #[test]
    fn who_logs_is_not_held_up_and_hears_what_is_lost() {
        let queue = Arc::new(LogQueue::default());
        let (permit, permitted) = channel::<()>();
        let (written, lines) = channel();
        let told = written.clone();
        let of_thread = Arc::clone(&queue);
        let write = move |line: &[u8]| {
            // Until the sender is gone.
            while permitted.recv().is_ok() {}
            _ = written.send(String::from_utf8_lossy(line).into_owned());
        };
        std::thread::spawn(move || of_thread.run(write, move |lost| _ = told.send(format!("lost {lost}"))));
        let line = |number: usize| format!("{number:01000}");
        let count = BYTES_MAX / 1000 + 1;
        queue.push(line(0).as_bytes());
        while !queue.inner.lock().lines.is_empty() {
            std::thread::yield_now();
        }
        (1..count + 500).for_each(|number| queue.push(line(number).as_bytes()));
        let before = queue.inner.lock().lost;
        assert_eq!(before, 500, "one is being written");
        queue.flush(Duration::from_millis(10));
        assert!(queue.inner.lock().busy, "nothing is waited for too long");
        drop(permit);
        (0..count).for_each(|number| assert_eq!(lines.recv_timeout(PATIENCE).expect("it is written"), line(number)));
        assert_eq!(lines.recv_timeout(PATIENCE).expect("it is said"), "lost 500");
        queue.push(b"one more");
        queue.flush(PATIENCE);
        assert_eq!(lines.try_recv().expect("it is written when that is over"), "one more");
    }
}
