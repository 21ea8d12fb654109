//! A broker process for tests: loopback ports that it takes itself and prints, a folder of its own, ended by its process id.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Longest wait for anything.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A running broker; killed when dropped.
pub struct Process {
    child: Child,
    /// Lines of its standard output that are not in `printed` yet.
    lines: Mutex<Receiver<String>>,
    printed: String,
    pub kafka: SocketAddr,
    pub admin: SocketAddr,
}

/// `mainstem serve` with these flags, not started.
pub fn serve(data: &Path, flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mainstem"));
    command.arg("serve").arg("--data").arg(data).args(flags).stdin(Stdio::null());
    command
}

/// Runs to the end, which must come by itself.
pub fn output(mut command: Command) -> Output {
    command.output().expect("the binary runs")
}

impl Process {
    /// Starts a broker and waits until it is ready.
    pub fn start(data: &Path, flags: &[&str]) -> Self {
        Self::start_by(serve(data, flags))
    }

    /// The same, with the limits that a shell sets before, like `ulimit -n 700`.
    pub fn start_limited(data: &Path, limits: &str, flags: &[&str]) -> Self {
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("{limits}; exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_mainstem"), "serve", "--data"])
            .arg(data)
            .args(flags)
            .stdin(Stdio::null());
        Self::start_by(command)
    }

    fn start_by(command: Command) -> Self {
        Self::try_start_by(command).unwrap_or_else(|said| panic!("the broker ended:\n{said}"))
    }

    /// What it said when it does not start.
    pub fn try_start(data: &Path, flags: &[&str]) -> Result<Self, String> {
        Self::try_start_by(serve(data, flags))
    }

    fn try_start_by(mut command: Command) -> Result<Self, String> {
        let speaks_amqp = command.get_args().any(|flag| flag == "--amqp");
        let has_memory = command.get_args().any(|flag| flag == "--memory");
        command.args(["--kafka", "127.0.0.1:0", "--admin", "127.0.0.1:0"]).args(if has_memory {
            &[][..]
        } else {
            &["--memory", "128MiB"]
        });
        command.args(if speaks_amqp { &[][..] } else { &["--amqp", "none"] });
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
        let lines = Mutex::new(lines_of(child.stdout.take().expect("a pipe")));
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 1));
        let mut process = Self { child, lines, printed: String::new(), kafka: nowhere, admin: nowhere };
        let deadline = Instant::now() + PATIENCE;
        while !process.printed.contains("ready after") {
            match process
                .lines
                .get_mut()
                .expect("no reader panics")
                .recv_timeout(deadline.saturating_duration_since(Instant::now()))
            {
                Ok(line) => process.printed.push_str(&line),
                Err(RecvTimeoutError::Timeout) => panic!("not ready in time:\n{}", process.printed),
                Err(RecvTimeoutError::Disconnected) => return Err(process.said()),
            }
        }
        (process.kafka, process.admin) = (process.address("kafka"), process.address("admin"));
        assert!(
            process.ask_admin("/health/ready").is_some_and(|answer| answer.starts_with("HTTP/1.1 200")),
            "what says that it is ready is"
        );
        Ok(process)
    }

    /// The last address on loopback without TLS that it printed with this name.
    pub fn address(&self, name: &str) -> SocketAddr {
        self.address_of(name, |line| !line.contains("(TLS)"))
    }

    /// The last one with this mark.
    pub fn address_with(&self, name: &str, mark: &str) -> SocketAddr {
        self.address_of(name, |line| line.contains(mark))
    }

    fn address_of(&self, name: &str, is_it: impl Fn(&str) -> bool) -> SocketAddr {
        let of = |line: &str| {
            let mut words = line.split_whitespace();
            let address =
                (words.next() == Some(name) && is_it(line)).then(|| words.next())??.trim_start_matches("http://");
            address.split('/').next()?.parse::<SocketAddr>().ok()
        };
        self.printed.lines().filter_map(of).rfind(|address| address.ip().is_loopback()).expect("an address")
    }

    /// Where it speaks AMQP, if it was started with `--amqp`.
    pub fn amqp(&self) -> SocketAddr {
        self.address("amqp")
    }

    /// Its resident memory, in bytes.
    pub fn resident(&self) -> usize {
        self.memory("VmRSS:")
    }

    /// The most that it has had.
    pub fn most_resident(&self) -> usize {
        self.memory("VmHWM:")
    }

    fn memory(&self, row: &str) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).expect("it runs");
        let kib =
            status.lines().find_map(|line| line.strip_prefix(row)?.trim().strip_suffix(" kB")?.parse::<usize>().ok());
        kib.expect("a size") << 10
    }

    /// What it has taken of the processors, with all its threads.
    pub fn processor_time(&self) -> Duration {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // The clock of another process, as clock_getcpuclockid(3) makes it. SAFETY: it writes to where it is told.
        let outcome = unsafe { libc::clock_gettime(!(self.id() as i32) << 3 | 2, &raw mut time) };
        assert_eq!(outcome, 0, "it runs");
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }

    /// A page of the administration; `None` when nobody listens.
    pub fn ask_admin(&self, path: &str) -> Option<String> {
        let mut socket = TcpStream::connect(self.admin).ok()?;
        write!(socket, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").ok()?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer).ok()?;
        Some(answer)
    }

    /// A connection for Kafka frames.
    pub fn connect(&self) -> TcpStream {
        let socket = TcpStream::connect(self.kafka).expect("the data port is open");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        socket
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    fn signal(&self, number: i32) {
        // SAFETY: a signal to a child that is not reaped yet.
        unsafe { libc::kill(self.child.id() as i32, number) };
    }

    /// Nobody reads its stderr before it has ended; from now on that takes one page.
    pub fn shrink_stderr(&self) {
        let pipe = self.child.stderr.as_ref().expect("it is not read yet");
        // SAFETY: a system call without pointers, on an open pipe.
        let taken = unsafe { libc::fcntl(std::os::fd::AsRawFd::as_raw_fd(pipe), libc::F_SETPIPE_SZ, 4096) };
        assert_eq!(taken, 4096, "{}", std::io::Error::last_os_error());
    }

    /// SIGHUP.
    pub fn hang_up(&self) {
        self.signal(libc::SIGHUP);
    }

    /// SIGTERM; returns what it printed, and whether it ended with success.
    pub fn terminate(mut self) -> (String, bool) {
        self.signal(libc::SIGTERM);
        let began = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                break status;
            }
            assert!(began.elapsed() < PATIENCE, "ends in time");
            std::thread::sleep(Duration::from_millis(5));
        };
        (self.said(), status.success())
    }

    /// What it printed; of a broker that has ended.
    fn said(&mut self) -> String {
        let mut said = std::mem::take(&mut self.printed);
        said.extend(self.lines.get_mut().expect("no reader panics").iter());
        let _ = self.child.stderr.take().expect("once").read_to_string(&mut said);
        said
    }

    /// SIGKILL.
    pub fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads lines to the end, whoever waits for them.
fn lines_of(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = String::new();
        while pipe.read_line(&mut line).is_ok_and(|length| length > 0) {
            let _ = sender.send(std::mem::take(&mut line));
        }
    });
    lines
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a Kafka request and returns the answer without its length.
pub fn exchange(socket: &mut TcpStream, request: &[u8]) -> Option<Vec<u8>> {
    send(socket, request);
    receive(socket)
}

/// Sends a frame.
pub fn send(socket: &mut TcpStream, request: &[u8]) {
    let mut frame = (request.len() as u32).to_be_bytes().to_vec();
    frame.extend(request);
    socket.write_all(&frame).expect("the broker reads");
}

/// Is there something to be read? Asked of the socket, so that no thread of the test has to be woken for it.
pub fn has_come(socket: &TcpStream) -> bool {
    socket.set_nonblocking(true).expect("a socket");
    let peeked = socket.peek(&mut [0]);
    socket.set_nonblocking(false).expect("a socket");
    peeked.is_ok()
}

/// The next answer; `None` when the broker closes.
pub fn receive(socket: &mut TcpStream) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    socket.read_exact(&mut length).ok()?;
    let mut answer = vec![0; u32::from_be_bytes(length) as usize];
    socket.read_exact(&mut answer).ok()?;
    Some(answer)
}
